/* logarithm.h - the logarithm of a row's sum, without a call and, where that is asked for, without
 * a branch, so that loops over rows become vectors. */
#ifndef ONS_CPU_LOGARITHM_H
#define ONS_CPU_LOGARITHM_H

#include "../../api/exponential.h"

/* first where it is so, else second. `by_bits`: without a branch, which the compiler keeps where
 * what is left out might raise an exception. */
ONS_ALWAYS double ons_either(bool so, double first, double second, bool by_bits) {
    if (!by_bits) return so ? first : second;
    uint64_t mask = -(uint64_t)so, bits, others;
    memcpy(&bits, &first, sizeof bits);
    memcpy(&others, &second, sizeof others);
    bits = (bits & mask) | (others & ~mask);
    memcpy(&first, &bits, sizeof first);
    return first;
}

/* log(sum(e^(x - m))), of d = sum(e^x) * one * 2^-c and `largest` = e^m * one * 2^-c, as it was
 * added to d.
 *
 * If the other exponentials are far below the largest, d / largest - 1 is found first. So a row of
 * one element gives exactly 0, and no logarithm is below 0: a d of another kind of processor may be
 * below the largest. Else d = 2^n * z with z from sqrt(1/2) to sqrt(2), and e^m is near 2^k. Then
 * the logarithm is (n + c - k) * ln2 + log(z / one) + (k * ln2 - m). Neither n nor c is rounded for
 * itself: two callers may have a c that differs, and get the same bits.
 *
 * log(z) = 2 * atanh(f) with f = (z - 1) / (z + 1): Taylor's series, whose first term that is left
 * out is below 2^-56 of the sum. NaN gives NaN. `in_loop`: of vectors, or of one row. */
ONS_ALWAYS double ons_log_of_sum(double d, double d_low, double largest, double m, double c,
                                 double log_of_one, bool in_loop) {
    const uint64_t least = 0x3fe6a09e667f3bcd, bias = 1024; /* sqrt(1/2) */
    double others = ((d - largest) + d_low) / largest, all = d + d_low, z, n;
    others = ons_either(others < 0, 0.0, others, in_loop);
    bool near = others < 0.4;
    uint64_t bits, n_bits;
    memcpy(&bits, &all, sizeof bits);
    uint64_t exponent = (bits - least + (bias << 52)) >> 52; /* n + bias */
    bits -= (exponent - bias) << 52;
    memcpy(&z, &bits, sizeof z);
    n_bits = 0x4330000000000000 | exponent; /* 2^52 + n + bias */
    memcpy(&n, &n_bits, sizeof n);
    double k = (m * ONS_LOG2_E + 0x1.8p52) - 0x1.8p52;
    double above = (k * ONS_LN2_HIGH - m) + k * ONS_LN2_LOW - log_of_one;
    n = ons_either(near, 0.0, (n - (0x1p52 + (double)bias)) + (c - k), in_loop);
    double over = ons_either(near, others, z - 1, in_loop);
    double under = ons_either(near, 2 + others, z + 1, in_loop);
    double f = over / under, s = f * f, p = 2.0 / 21;
    p = p * s + 2.0 / 19;
    p = p * s + 2.0 / 17;
    p = p * s + 2.0 / 15;
    p = p * s + 2.0 / 13;
    p = p * s + 2.0 / 11;
    p = p * s + 2.0 / 9;
    p = p * s + 2.0 / 7;
    p = p * s + 2.0 / 5;
    p = p * s + 2.0 / 3;
    double rest = n * ONS_LN2_LOW + (ons_either(near, 0.0, above, in_loop) + (d - d));
    return n * ONS_LN2_HIGH + ((2 * f + f * (s * p)) + rest);
}

#endif
