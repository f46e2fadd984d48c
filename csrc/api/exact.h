/* exact.h - the exponentials of a row added up in the digits of packed.h without rounding: the same
 * bits wherever the row is cut, and in whatever order its elements come.
 *
 * Each exponential is 2^n * p, where n and p follow from the element alone. It is cut into digits
 * from the top: the nearest multiple of what a digit counts, then that of what is left. A larger m
 * moves digits down by whole places, so it changes none of these cuts. Each digit is then a sum of
 * integers of at most 2^24 each: exact up to 2^29 elements. What is left after the last digit is
 * dropped: at most 2^-97 of what the sum is relative to, 2^-73 of the row's sum.
 *
 * Small elements are exponentiated as everywhere. The others, which softmax takes relative to an
 * anchor of the row, have n and p here too, found in double (ons_far_exponential). */
#ifndef ONS_EXACT_H
#define ONS_EXACT_H

#include "packed.h"

/* An element so far below another one is nothing beside it: e^-68 < 2^-97. */
#define ONS_FAR_BELOW 68.0

/* A sum with it has steps of what digit k counts, in units of `one`, a power of two. */
#define ONS_DIGIT_MAGIC(k, one) \
    (0x1.8p52 * (one) * ((k) == 0 ? 0x1p-24 : (k) == 1 ? 0x1p-48 : (k) == 2 ? 0x1p-72 : 0x1p-96))

/* log2 of what the sum of a row of that m is relative to, and what its elements lose first: where m
 * has no place, they are taken relative to it. */
ONS_INLINE double ons_exact_power(double m) {
    return ons_has_place(m) ? ONS_DIGIT_BITS * ons_place(ons_power_above(m)) : 0.0;
}
ONS_INLINE double ons_exact_base(double m) { return ons_has_place(m) ? 0.0 : m; }

/* The state of a row whose exponentials are added up: of one with NaN or +inf there is no sum. */
ONS_INLINE ons_packed ons_exact_of(double m, const double *digit) {
    ons_packed state;
    state.m = m == m ? m + 0.0 : (double)NAN; /* one zero, and one NaN */
    for (int k = 0; k < ONS_DIGITS; k++)
        state.digit[k] = m == m && m != INFINITY ? digit[k] : (double)NAN;
    return state;
}

/* Adds a number from 0 to 1, both in units of `one`. */
ONS_INLINE void ons_add_digits(double *digit, double term, double one) {
    for (int k = 0; k < ONS_DIGITS; k++) {
        const double magic = ONS_DIGIT_MAGIC(k, one), some = (term + magic) - magic;
        digit[k] += some;
        term -= some;
    }
}

#endif
