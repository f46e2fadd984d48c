/* packed.h - the state of onsoftmax.Normalizer: a row's maximum m, and the sum of its exponentials
 * as a number to which one can add without rounding. So the parts of a row merge to the same bits
 * in any order and nesting. `exact` has states of its own (rounding.h), which merge here too.
 *
 * The sum is relative to 2^(24 q), where q follows from m, and has four digits: the unit of digit k
 * is 2^(-24 (k + 1)). The digits of a new sum are below 2^24, except the first digit. A merge adds
 * digit to digit and carries nothing. A larger m moves the digits down by whole places, and drops
 * digits that leave the last place. Only this part and the largest m decide whether a digit of the
 * part is dropped. The digits that are kept add up as integers. So the order does not change the
 * bits as long as each digit is below 2^53. That holds for rows of up to 2^29 elements, with any
 * number of parts. (The idea is from J. Demmel and H. D. Nguyen, Parallel reproducible summation,
 * IEEE Transactions on Computers 64(7), 2015.)
 *
 * A row's sum is above 2^-24, and a part loses at most 2^-96. digits.h adds up elements in the same
 * digits, so the place of a cut does not change the bits either. */
#ifndef ONS_PACKED_H
#define ONS_PACKED_H

#include "problem.h"
#include "rounding.h"
#include "state.h"

enum { ONS_DIGITS = 4, ONS_DIGIT_BITS = 24, ONS_PACKED_VALUES = 1 + ONS_DIGITS };

/* The unit of digit 0, and of each digit relative to the one before. */
#define ONS_DIGIT_UNIT 0x1p-24

typedef struct {
    double m, digit[ONS_DIGITS];
} ons_packed;

/* ------- The power of two that is the reference of a sum ------- */

/* Above it the sum is relative to e^m, and merging two different m rounds. No two float32 there are
 * so close that both count in the sum. */
#define ONS_LARGEST_PLACE 0x1p40
ONS_INLINE bool ons_has_place(double m) { return fabs(m) <= ONS_LARGEST_PLACE; }

/* An integer c with e^m at most about 2^c. It is state.h's c if m has one. */
ONS_INLINE double ons_power_above(double m) {
    return ons_needs_anchor(m) ? ceil(m * ONS_LOG2_E) : ons_reference(m);
}

/* log(e^m * 2^-c). */
ONS_INLINE double ons_log_below(double m, double c) {
    return fma(-c, ONS_LN2_LOW, fma(-c, ONS_LN2_HIGH, m));
}

/* The place q of the first digit, for a power c. */
ONS_INLINE double ons_place(double c) { return ceil(c / ONS_DIGIT_BITS); }

/* ------- Conversion from and to a pair ------- */

/* e^x * 2^-c for |x| up to 2^40 and an integer c. |n * ln2 - x| is below 1, so the first difference
 * is exact. */
ONS_INLINE double ons_far_exponential(double x, double c) {
    const double n = rint(x * ONS_LOG2_E);
    if (!(n - c > -200.0)) return 0.0; /* also for -inf, and for NaN, which m then has */
    const double r = fma(-n, 0x1.abc9e3b39803fp-56, fma(-n, 0x1.62e42fefa39efp-1, x));
    double p = 0.0;
#define ONS_TERM(a) p = fma(p, r, a);
    ONS_EXP_TERMS(ONS_TERM)
#undef ONS_TERM
    p = fma(fma(p, r, 1.0), r, 1.0);
    return ldexp(p, (int)(n - c));
}

/* A d relative to e^m is multiplied by ons_far_exponential, as two doubles. The way back divides by
 * it, so the same d comes back. */
ONS_INLINE ons_packed ons_packed_of(ons_pair pair) {
    ons_packed packed;
    double d = pair.d, low = 0.0, unit = ONS_DIGIT_UNIT;
    packed.m = pair.m + 0.0; /* -0 becomes 0 */
    if (ons_has_place(pair.m)) {
        const double c = ons_power_above(pair.m);
        const int shift = (int)(c - ONS_DIGIT_BITS * ons_place(c));
        if (ons_needs_anchor(pair.m)) {
            const double largest = ons_far_exponential(pair.m, c);
            d = pair.d * largest;
            low = ldexp(fma(pair.d, largest, -d), shift);
        }
        d = ldexp(d, shift);
    }
    for (int k = 0; k < ONS_DIGITS; k++) {
        if (k == 2) d += low; /* the rest has room for it */
        packed.digit[k] = floor(d / unit) * unit;
        d -= packed.digit[k];
        unit *= ONS_DIGIT_UNIT;
    }
    return packed;
}

/* Carries the digits first: the same sum can have different digits. */
ONS_INLINE ons_pair ons_pair_of_packed(ons_packed packed) {
    ons_pair pair = {packed.m, 0.0};
    for (int k = ONS_DIGITS - 1; k > 0; k--) {
        const double above = ldexp(1.0, -ONS_DIGIT_BITS * k);
        const double carry = floor(packed.digit[k] / above) * above;
        packed.digit[k - 1] += carry;
        packed.digit[k] -= carry;
    }
    for (int k = ONS_DIGITS - 1; k >= 0; k--) pair.d += packed.digit[k];
    if (ons_has_place(packed.m)) {
        const double c = ons_power_above(packed.m);
        const int shift = (int)(ONS_DIGIT_BITS * ons_place(c) - c);
        double low = 0.0;
        for (int k = 0; k < ONS_DIGITS; k++)
            low += k == 0 ? packed.digit[0] - pair.d : packed.digit[k];
        pair.d = ldexp(pair.d, shift);
        if (ons_needs_anchor(packed.m)) {
            const double largest = ons_far_exponential(packed.m, c), d = pair.d / largest;
            pair.d = d + (fma(-d, largest, pair.d) + ldexp(low, shift)) / largest;
        }
    }
    return pair;
}

/* ------- Merging ------- */

/* Raises the maximum to a larger m. */
ONS_INLINE ons_packed ons_packed_raise(ons_packed packed, double m) {
    if (packed.m == m) return packed;
    if (packed.m == -INFINITY) {
        packed.m = m; /* all digits are 0 */
        return packed;
    }
    if (!ons_has_place(packed.m) || !ons_has_place(m)) {
        ons_pair pair = ons_pair_of_packed(packed);
        pair.d *= ons_pair_factor(pair.m, m);
        pair.m = m;
        return ons_packed_of(pair);
    }
    const double places = ons_place(ons_power_above(m)) - ons_place(ons_power_above(packed.m));
    for (int left = places < ONS_DIGITS ? (int)places : ONS_DIGITS; left > 0; left--) {
        for (int k = ONS_DIGITS - 1; k > 0; k--)
            packed.digit[k] = packed.digit[k - 1] * ONS_DIGIT_UNIT;
        packed.digit[0] = 0.0;
    }
    packed.m = m;
    return packed;
}

/* The sign of a NaN depends on the order of additions, so there is one NaN. */
ONS_INLINE double ons_one_nan(double value) { return value == value ? value : (double)NAN; }

/* Merges the states of two parts of a row. The empty state (-inf, 0) changes nothing. */
ONS_INLINE ons_packed ons_packed_merge(ons_packed a, ons_packed b) {
    const double m = ons_larger(a.m, b.m);
    a = ons_packed_raise(a, m);
    b = ons_packed_raise(b, m);
    a.m = ons_one_nan(a.m);
    for (int k = 0; k < ONS_DIGITS; k++) a.digit[k] = ons_one_nan(a.digit[k] + b.digit[k]);
    return a;
}

/* ------- The states of arrays ------- */

/* The output for the merged state of a row: the state itself, its pair (m, d) in the form of
 * state.h, m, or sum(e^(x - m)). */
typedef enum { ONS_GIVES_PACKED, ONS_GIVES_PAIR, ONS_GIVES_M, ONS_GIVES_D } ons_gives;

/* One or two arrays of states or of pairs. A row has `values` doubles: ONS_PACKED_VALUES,
 * ONS_TWO_ROW_VALUES for a state of `exact`, or 2 for a pair. The last `merged_dims` of `dims`
 * dimensions are merged; the dimensions before them tell the rows apart. `to` is in C order. */
typedef struct {
    ons_device device;
    int gpu; /* on ONS_CUDA, like stream */
    void *stream;
    int values;
    ons_gives gives;
    ons_dtype compute; /* type in which exponentials were computed, if d is wanted */
    int arrays, dims, merged_dims;
    int64_t rows;
    int64_t parts; /* the number of parts that one array has of each row */
    int64_t extent[ONS_MAX_DIMS];
    struct {
        const char *data; /* aligned; strides are aligned too, and in bytes */
        int64_t value_stride, stride[ONS_MAX_DIMS];
    } from[2];
    double *to;
} ons_merging;

ONS_INLINE int64_t ons_offset(const int64_t *extent, const int64_t *stride, int dims,
                              int64_t index) {
    int64_t offset = 0;
    for (int dim = dims - 1; dim >= 0; dim--) {
        offset += index % extent[dim] * stride[dim];
        index /= extent[dim];
    }
    return offset;
}

ONS_INLINE double ons_value_at(const char *data) { return *(const double *)(const void *)data; }

ONS_INLINE ons_packed ons_packed_at(const char *data, int64_t stride, bool pairs) {
    const ons_pair pair = {ons_value_at(data), ons_value_at(data + stride)};
    if (pairs) return ons_packed_of(pair);
    ons_packed packed = {pair.m, {pair.d, 0.0, 0.0, 0.0}};
    for (int k = 1; k < ONS_DIGITS; k++) packed.digit[k] = ons_value_at(data + (1 + k) * stride);
    return packed;
}

/* Part number `part` of a row in array a. */
ONS_INLINE const char *ons_part_at(const ons_merging *all, int64_t row, int a, int64_t part) {
    const int kept = all->dims - all->merged_dims;
    const int64_t *stride = all->from[a].stride;
    return all->from[a].data + ons_offset(all->extent, stride, kept, row) +
           ons_offset(all->extent + kept, stride + kept, all->merged_dims, part);
}

ONS_INLINE ons_packed ons_merged(const ons_merging *all, int64_t row) {
    ons_packed merged = {-INFINITY, {0.0, 0.0, 0.0, 0.0}};
    for (int a = 0; a < all->arrays; a++)
        for (int64_t part = 0; part < all->parts; part++)
            merged = ons_packed_merge(
                merged, ons_packed_at(ons_part_at(all, row, a, part), all->from[a].value_stride,
                                      all->values == 2));
    return merged;
}

/* Writes a row's output for states of `exact`. */
ONS_INLINE void ons_merge_exact_row(const ons_merging *all, int64_t row) {
    ons_two_row merged = ons_two_row_of_none(-INFINITY);
    for (int a = 0; a < all->arrays; a++)
        for (int64_t part = 0; part < all->parts; part++) {
            const char *at = ons_part_at(all, row, a, part);
            double state[ONS_TWO_ROW_VALUES];
            for (int i = 0; i < ONS_TWO_ROW_VALUES; i++)
                state[i] = ons_value_at(at + i * all->from[a].value_stride);
            merged = ons_two_row_merge(merged, ons_two_row_from(state));
        }
    if (all->gives == ONS_GIVES_PACKED)
        ons_two_row_to(&merged, all->to + ONS_TWO_ROW_VALUES * row);
    else
        all->to[row] = all->gives == ONS_GIVES_M ? merged.m : ons_two_row_d(&merged);
}

/* Writes a row's output, except for d, which is relative to e^m as the device computes it. */
ONS_INLINE void ons_merge_row(const ons_merging *all, int64_t row) {
    const ons_packed merged = ons_merged(all, row);
    if (all->gives == ONS_GIVES_PACKED) {
        double *to = all->to + ONS_PACKED_VALUES * row;
        to[0] = merged.m;
        for (int k = 0; k < ONS_DIGITS; k++) to[1 + k] = merged.digit[k];
    } else if (all->gives == ONS_GIVES_PAIR) {
        const ons_pair pair = ons_pair_of_packed(merged);
        all->to[2 * row] = pair.m;
        all->to[2 * row + 1] = pair.d;
    } else {
        all->to[row] = merged.m;
    }
}

#ifdef __cplusplus
extern "C" {
#endif

/* run.c: merges them. On a GPU it launches the merge on the stream. */
ons_status ons_merge(const ons_merging *all);

#ifdef __cplusplus
}
#endif

#endif
