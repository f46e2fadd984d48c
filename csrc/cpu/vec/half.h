/* half.h - roundings of one element: float16 and bfloat16 from and to float, to nearest even, and
 * other results that must be rounded once. */
#ifndef ONS_CPU_HALF_H
#define ONS_CPU_HALF_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t ons_bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ons_float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The 15 bits below the sign become the top of a float whose exponent is too low by 112. One exact
 * product corrects the exponent, subnormals included. */
static inline float ons_half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = (uint32_t)(half & 0x7fffu) << 13;
    if (rest >= 0x7c00u << 13) return ons_float_of(sign | 0x7f800000u | rest); /* inf, NaN */
    return ons_float_of(sign | ons_bits_of(ons_float_of(rest) * 0x1p112f));
}

static inline uint16_t ons_float_to_half(float value) {
    uint32_t bits = ons_bits_of(value), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* from 65520: rounds to inf */
    if (rest < 0x38800000u) {
        /* A subnormal half. Adding 0.5 leaves its 10 bits at the bottom, rounded by the
         * hardware. */
        return (uint16_t)(sign | (ons_bits_of(ons_float_of(rest) + 0.5f) - ons_bits_of(0.5f)));
    }
    rest += 0xfffu + ((rest >> 13) & 1u); /* to nearest, ties to even */
    return (uint16_t)(sign | ((rest - 0x38000000u) >> 13));
}

static inline float ons_bfloat_to_float(uint16_t bfloat) {
    return ons_float_of((uint32_t)bfloat << 16);
}

static inline uint16_t ons_float_to_bfloat(float value) {
    uint32_t bits = ons_bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Rounds a double to a float so that rounding the float to a shorter type gives the same as
 * rounding the double. If the float is inexact, it is made odd (Boldo and Melquiond, Emulation of
 * FMA, 2008). */
static inline float ons_double_to_odd_float(double value) {
    float nearest = (float)value;
    if ((double)nearest == value || isnan(value) || isinf(nearest)) return nearest;
    uint32_t bits = ons_bits_of(nearest);
    if (bits & 1u) return nearest;
    bool toward_zero = fabs((double)nearest) > fabs(value);
    return ons_float_of(toward_zero ? bits - 1u : bits + 1u);
}

/* x * scale rounded once. If the product in double is inexact, it is made odd, as above: decimal
 * scales such as 0.7 often lead to products near the middle of two floats. There is no branch, so a
 * loop over it becomes vectors. */
static inline float ons_product_to_float(float x, double scale) {
    double product = x * scale, rest = fma((double)x, scale, -product);
    int64_t bits, rest_bits;
    memcpy(&bits, &product, sizeof bits);
    memcpy(&rest_bits, &rest, sizeof rest_bits);
    int64_t inexact = (rest > 0) | (rest < 0); /* both false if rest is NaN, as beside an infinite
                                                * product */
    int64_t too_large = (int64_t)((uint64_t)(bits ^ rest_bits) >> 63) & inexact;
    bits = (bits - too_large) | inexact;
    memcpy(&product, &bits, sizeof product);
    return (float)product;
}

#endif
