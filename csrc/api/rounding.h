/* rounding.h - the results of method="exact": exact values, rounded once to a type of 24 bits or
 * fewer.
 *
 * A row's m is its maximum, n the number of elements that are equal to it, and s the sum of e^(x -
 * m) over all others. With u = x - m:
 *
 *     softmax       y = e^u / (n + s)
 *     log_softmax   y = u - log(n + s)
 *     logsumexp     y = m + log(n + s)
 *
 * First the code finds y in double, with a proven bound of the error (docs/how-it-works.md). Ziv's
 * test (ACM TOMS 17, 1991) decides: if both ends of the interval round to the same number, that is
 * the answer. Else the code finds y once more, in two doubles. u and m are exact there, and s has
 * all its digits however small it is. So if u or m lies exactly between two results, s decides
 * between them. */
#ifndef ONS_ROUNDING_H
#define ONS_ROUNDING_H

#include "problem.h"
#include "two_doubles.h"

/* A type to round to: the bits of a number, its least number, its least normal number, and where it
 * overflows. A product with cut leaves so many bits (Veltkamp; Dekker, Numer. Math. 18, 1971), in
 * double and in float. */
typedef struct {
    int bits;
    double least, normal, overflow, cut, cut_float;
} ons_rounding;

ONS_INLINE ons_rounding ons_rounding_to(ons_dtype dtype) {
    const ons_rounding half = {11, 0x1p-24, 0x1p-14, 65520.0, 0x1p42 + 1, 0x1p13 + 1};
    const ons_rounding bfloat = {8, 0x1p-133, 0x1p-126, 0x1.ffp127, 0x1p45 + 1, 0x1p16 + 1};
    const ons_rounding single = {24, 0x1p-149, 0x1p-126, 0x1.ffffffp127, 0x1p29 + 1, 1.0};
    return dtype == ONS_FLOAT16 ? half : dtype == ONS_BFLOAT16 ? bfloat : single;
}

/* To nearest, ties to even; 0 is +0. A double of 1.5 * 2^52 units has this unit in its last place.
 */
ONS_INLINE double ons_rounded(double v, ons_rounding to) {
    if (!(fabs(v) < to.overflow)) return v == v ? copysign(INFINITY, v) : v;
    int exponent;
    (void)frexp(v, &exponent);
    const double own = ldexp(1.0, exponent - to.bits), unit = own > to.least ? own : to.least;
    return (v + 0x1.8p52 * unit) - 0x1.8p52 * unit;
}

/* The nearest double whose last bit is odd where something was rounded off: it rounds to fewer bits
 * as the sum of the two does. */
ONS_INLINE double ons_two_to_odd(ons_two v) {
    if (v.low == 0.0 || v.high == 0.0) return v.high;
    int exponent;
    const double fraction = frexp(v.high, &exponent) * 0x1p53;
    if (fmod(fraction, 2.0) != 0.0) return v.high;
    return nextafter(v.high, v.low > 0.0 ? (double)INFINITY : -(double)INFINITY);
}

/* The rounded value if all numbers within the error have the same; else NaN. */
ONS_INLINE double ons_decided(double v, double error, ons_rounding to) {
    const double low = ons_rounded(v - error, to), high = ons_rounded(v + error, to);
    return low == high ? low : (double)NAN;
}
ONS_INLINE double ons_two_rounded(ons_two v, ons_rounding to) {
    return ons_rounded(ons_two_to_odd(v), to);
}

/* What two doubles know of a row. */
typedef struct {
    double m, n;
    ons_two s;
    bool below; /* an element is so far below m that s does not have it */
} ons_two_row;

ONS_INLINE ons_two_row ons_two_row_of(double m) {
    const ons_two_row empty = {m, 0.0, {0.0, 0.0}, false};
    return empty;
}
ONS_INLINE void ons_two_row_add(ons_two_row *row, double x) {
    const ons_two u = ons_two_sum(x, -row->m);
    if (x == row->m)
        row->n += 1.0;
    else if (u.high >= ONS_TWO_LOWEST)
        row->s = ons_two_add(row->s, ons_two_exp(u));
    else
        row->below |= x > -INFINITY;
}
/* Call it after the last element. Far below all results only the sign of s counts. */
ONS_INLINE void ons_two_row_end(ons_two_row *row) {
    if (row->below && row->s.high == 0.0) row->s.high = 0x1p-1000;
}

/* ------- A row's state as four doubles: m, n, and the two doubles of s ------- */

enum { ONS_TWO_ROW_VALUES = 4 };

ONS_INLINE ons_two_row ons_two_row_from(const double *state) {
    const ons_two_row row = {state[0], state[1], {state[2], state[3]}, false};
    return row;
}
ONS_INLINE void ons_two_row_to(const ons_two_row *row, double *state) {
    state[0] = row->m, state[1] = row->n, state[2] = row->s.high, state[3] = row->s.low;
}

/* A row without elements, or with a NaN or +inf. */
ONS_INLINE ons_two_row ons_two_row_of_none(double m) {
    ons_two_row row = ons_two_row_of(m == m ? m + 0.0 : (double)NAN);
    if (m != -INFINITY) row.n = NAN;
    return row;
}

/* The state of both parts of a row. s loses at most 2^-99 of it. */
ONS_INLINE ons_two_row ons_two_row_merge(ons_two_row a, ons_two_row b) {
    const double m = ons_larger(a.m, b.m);
    if (!(fabs(m) < INFINITY)) return ons_two_row_of_none(m);
    const bool a_is_lower = a.m < b.m;
    ons_two_row merged = a_is_lower ? b : a;
    const ons_two_row lower = a_is_lower ? a : b;
    const ons_two u = ons_two_sum(lower.m, -m);
    if (lower.m == m) {
        merged.n += lower.n;
        merged.s = ons_two_add(merged.s, lower.s);
    } else if (u.high >= ONS_TWO_LOWEST) {
        const ons_two sum = ons_two_add(ons_two_of(lower.n), lower.s);
        merged.s = ons_two_add(merged.s, ons_two_times(sum, ons_two_exp(u)));
    } else {
        merged.below = lower.m > -INFINITY;
    }
    ons_two_row_end(&merged);
    merged.below = false;
    return merged;
}

/* n + s. */
ONS_INLINE double ons_two_row_d(const ons_two_row *row) {
    return row->n + (row->s.high + row->s.low);
}

/* log(n + s) */
ONS_INLINE ons_two ons_two_row_log(const ons_two_row *row) {
    return ons_two_log1p(ons_two_add(ons_two_of(row->n - 1.0), row->s));
}

ONS_INLINE double ons_two_softmax(const ons_two_row *row, double x, ons_rounding to) {
    const ons_two d = ons_two_add(ons_two_of(row->n), row->s), u = ons_two_sum(x, -row->m);
    if (x == row->m) { /* 1/n, less what s takes of it */
        const ons_two whole = ons_two_over(ons_two_of(1.0), ons_two_of(row->n));
        const ons_two less = ons_two_over(ons_two_times(row->s, whole), d);
        return ons_two_rounded(ons_two_add(whole, ons_two_minus(less)), to);
    }
    if (!(u.high >= ONS_TWO_LOWEST)) return 0.0;
    return ons_two_rounded(ons_two_over(ons_two_exp(u), d), to);
}
ONS_INLINE double ons_two_log_softmax(const ons_two_row *row, double x, ons_rounding to) {
    const ons_two u = ons_two_sum(x, -row->m);
    return ons_two_rounded(ons_two_add(u, ons_two_minus(ons_two_row_log(row))), to);
}
ONS_INLINE double ons_two_logsumexp(const ons_two_row *row, ons_rounding to) {
    return ons_two_rounded(ons_two_add(ons_two_of(row->m), ons_two_row_log(row)), to);
}

/* ------- Logarithms near 0, for `safe`. Results may be doubles: no rounding is proven ------- */

/* Whether a logarithm may miss digits, if it was found from d. */
ONS_INLINE bool ons_log_is_near_zero(double log) { return fabs(log) < 0.5; }

/* Adds an element of any size. `in_two`: e^u in two doubles, not in one. */
ONS_INLINE void ons_two_row_add_to_log(ons_two_row *row, double x, bool in_two) {
    const ons_two u = ons_two_sum(x, -row->m);
    if (x == row->m)
        row->n += 1.0;
    else if (in_two && u.high >= ONS_TWO_LOWEST)
        row->s = ons_two_add(row->s, ons_two_exp(u));
    else if (u.high > -1000.0)
        row->s = ons_two_add(row->s, ons_two_of(exp(u.high) * (1.0 + u.low)));
}
ONS_INLINE double ons_two_logsumexp_in_double(const ons_two_row *row) {
    return ons_two_add(ons_two_of(row->m), ons_two_row_log(row)).high;
}

/* A row in double. Its exponentials are e^(x - base) * 2^-c. */
typedef struct {
    ons_rounding to;
    double m, base, c;
    double top, n; /* the largest exponential, and the number of elements that have it */
    ons_two s;     /* the sum of the other exponentials */
    double second; /* of an element's result: 1 / d, or log(d) */
} ons_rounded_row;

/* The largest relative error of a result in double. docs/how-it-works.md adds it up. */
#define ONS_ROUNDED_ERROR 0x1p-48

ONS_INLINE ons_rounded_row ons_rounded_row_of(double m, ons_dtype dtype) {
    const bool far = ons_needs_anchor(m);
    const ons_rounded_row row = {ons_rounding_to(dtype),
                                 m,
                                 far ? m : 0.0,
                                 far ? 0.0 : ons_reference(m),
                                 0.0,
                                 0.0,
                                 {0.0, 0.0},
                                 0.0};
    return row;
}

/* log(sum(e^(x - m))). */
ONS_INLINE double ons_rounded_log(const ons_rounded_row *row) {
    return log1p((row->n - 1.0) + (row->s.high + row->s.low) / row->top);
}
ONS_INLINE double ons_rounded_inverse(const ons_rounded_row *row) {
    return 1.0 / (row->n * row->top + (row->s.high + row->s.low));
}
ONS_INLINE double ons_rounded_logsumexp(const ons_rounded_row *row) {
    const double L = ons_rounded_log(row), value = row->m + L;
    return ons_decided(value, ONS_ROUNDED_ERROR * (L + fabs(value)), row->to);
}

#endif
