/* rounding.h - the results of method="exact": exact values, rounded once to a type of 24 bits or fewer.
 *
 * A row's m is its maximum, n the number of elements that are equal to it, and s the sum of e^(x - m) over all
 * others. With u = x - m:
 *
 *     softmax       y = e^u / (n + s)
 *     log_softmax   y = u - log(n + s)
 *     logsumexp     y = m + log(n + s)
 *
 * First all of it is found in double, with an error that is proven. Ziv's test (ACM TOMS 17, 1991) decides: if
 * both ends of the interval round to the same number, that is the answer. Else the same once more in two
 * doubles. u and m are exact there, and s has all digits of its own however small it is: what lies exactly
 * between two results is moved off by s alone. */
#ifndef ONS_ROUNDING_H
#define ONS_ROUNDING_H

#include "two_doubles.h"

/* A type to round to: its bits, the exponent of its least number, and where it overflows. */
typedef struct {
    int bits, least;
    double overflow; /* this and more become inf */
} ons_rounding;

ONS_INLINE ons_rounding ons_rounding_to_float32(void) {
    const ons_rounding to = {24, -149, 0x1.ffffffp127};
    return to;
}
ONS_INLINE ons_rounding ons_rounding_to_float16(void) {
    const ons_rounding to = {11, -24, 65520.0};
    return to;
}
ONS_INLINE ons_rounding ons_rounding_to_bfloat16(void) {
    const ons_rounding to = {8, -133, 0x1.ffp127};
    return to;
}

/* To nearest, ties to even. A double of 1.5 * 2^52 units has this unit in its last place. */
ONS_INLINE double ons_rounded(double v, ons_rounding to) {
    if (!(fabs(v) < to.overflow)) return v == v ? copysign(INFINITY, v) : v;
    int exponent;
    (void)frexp(v, &exponent);
    const int unit = exponent - to.bits > to.least ? exponent - to.bits : to.least;
    const double magic = ldexp(0x1.8p52, unit), rounded = (v + magic) - magic;
    return copysign(rounded, v);
}

/* The nearest double whose last bit is odd where something was rounded off: it rounds to fewer bits as the sum
 * of the two does. */
ONS_INLINE double ons_two_to_odd(ons_two v) {
    if (v.low == 0.0 || v.high == 0.0) return v.high;
    int exponent;
    const double fraction = frexp(v.high, &exponent) * 0x1p53;
    if (fmod(fraction, 2.0) != 0.0) return v.high;
    return nextafter(v.high, v.low > 0.0 ? INFINITY : -INFINITY);
}

/* The rounded value if all numbers within the error have the same; else NaN. */
ONS_INLINE double ons_decided(double v, double error, ons_rounding to) {
    const double low = ons_rounded(v - error, to), high = ons_rounded(v + error, to);
    return low == high ? low : (double)NAN;
}
ONS_INLINE double ons_two_decided(ons_two v, double error, ons_rounding to) {
    const double low = ons_rounded(ons_two_to_odd(ons_two_add(v, ons_two_of(-error))), to);
    const double high = ons_rounded(ons_two_to_odd(ons_two_add(v, ons_two_of(error))), to);
    return low == high ? low : (double)NAN;
}

/* What two doubles know of a row. */
typedef struct {
    double m, n;
    ons_two s;
} ons_two_row;

ONS_INLINE void ons_two_row_add(ons_two_row *row, double x) {
    const ons_two u = ons_two_sum(x, -row->m);
    if (x == row->m)
        row->n += 1.0;
    else if (u.high > -800.0)
        row->s = ons_two_add(row->s, ons_two_exp(u, 0.0));
}

/* log(n + s), and the error of it. */
ONS_INLINE ons_two ons_two_row_log(const ons_two_row *row, double *error) {
    const ons_two L = ons_two_log1p(ons_two_add(ons_two_of(row->n - 1.0), row->s));
    *error = 0x1p-90 * L.high;
    return L;
}

ONS_INLINE double ons_two_softmax(const ons_two_row *row, double x, ons_rounding to) {
    const ons_two d = ons_two_add(ons_two_of(row->n), row->s);
    const ons_two u = ons_two_sum(x, -row->m);
    if (x == row->m) { /* 1/n, less what s takes of it */
        const ons_two whole = ons_two_over(ons_two_of(1.0), ons_two_of(row->n));
        const ons_two less = ons_two_over(ons_two_times(row->s, whole), d);
        const double error = 0x1p-96 * less.high + (whole.low != 0.0 ? 0x1p-98 * whole.high : 0.0);
        return ons_two_decided(ons_two_add(whole, ons_two_minus(less)), row->s.high == 0.0 ? 0.0 : error, to);
    }
    const ons_two y = ons_two_over(ons_two_exp(u, 0.0), d);
    return ons_two_decided(y, 0x1p-95 * y.high, to);
}
ONS_INLINE double ons_two_log_softmax(const ons_two_row *row, double x, ons_rounding to) {
    double error;
    const ons_two L = ons_two_row_log(row, &error), u = ons_two_sum(x, -row->m);
    if (L.high == 0.0) return ons_rounded(ons_two_to_odd(u), to);
    return ons_two_decided(ons_two_add(u, ons_two_minus(L)), error + 0x1p-100 * fabs(u.low), to);
}
ONS_INLINE double ons_two_logsumexp(const ons_two_row *row, ons_rounding to) {
    double error;
    const ons_two L = ons_two_row_log(row, &error);
    if (L.high == 0.0) return ons_rounded(row->m, to);
    return ons_two_decided(ons_two_add(ons_two_of(row->m), L), error, to);
}

#endif
