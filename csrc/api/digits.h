/* digits.h - adds up the exponentials of a row in the digits of packed.h without rounding. So the
 * sum has the same bits in every order of the elements, and for every cut of the row into parts.
 *
 * Each exponential is 2^n * p, where n and p depend only on the element. It is cut into digits from
 * the top: first the nearest multiple of the first digit's unit, then the nearest multiple of the
 * second digit's unit to the rest, and so on. A larger m moves digits down by whole places, so it
 * changes none of these cuts. Each digit is then a sum of integers of at most 2^24 each: exact up
 * to 2^29 elements. The rest after the last digit is dropped. It is at most 2^-97 of the sum's
 * reference, and so at most 2^-73 of the row's sum.
 *
 * Small elements are exponentiated as in the other methods. For large elements, which softmax takes
 * relative to the row's anchor, n and p are computed in double (ons_far_exponential). */
#ifndef ONS_DIGITS_H
#define ONS_DIGITS_H

#include "packed.h"

/* An element so far below another adds nothing to it: e^-68 < 2^-97. */
#define ONS_FAR_BELOW 68.0

/* A number whose sum with a term is rounded to the unit of digit k, in units of `one`, a power of
 * two. */
#define ONS_DIGIT_MAGIC(k, one) \
    (0x1.8p52 * (one) * ((k) == 0 ? 0x1p-24 : (k) == 1 ? 0x1p-48 : (k) == 2 ? 0x1p-72 : 0x1p-96))

/* log2 of the reference of a row's sum, and the number that its elements lose first. If m has no
 * place, elements are relative to m. */
ONS_INLINE double ons_digits_power(double m) {
    return ons_has_place(m) ? ONS_DIGIT_BITS * ons_place(ons_power_above(m)) : 0.0;
}
ONS_INLINE double ons_digits_base(double m) { return ons_has_place(m) ? 0.0 : m; }

/* The state of a row from its sum. A row with NaN or +inf has no sum. */
ONS_INLINE ons_packed ons_packed_of_digits(double m, const double *digit) {
    ons_packed state;
    state.m = m == m ? m + 0.0 : (double)NAN; /* one zero, and one NaN */
    for (int k = 0; k < ONS_DIGITS; k++)
        state.digit[k] = m == m && m != INFINITY ? digit[k] : (double)NAN;
    return state;
}

/* Adds a term from 0 to 1. The term and the digits are in units of `one`. */
ONS_INLINE void ons_add_digits(double *digit, double term, double one) {
    for (int k = 0; k < ONS_DIGITS; k++) {
        const double magic = ONS_DIGIT_MAGIC(k, one), some = (term + magic) - magic;
        digit[k] += some;
        term -= some;
    }
}

#endif
