/* scalar.h - the vector vocabulary (vectors.h) in plain C: vectors of one element. */
#ifndef ONS_CPU_SCALAR_H
#define ONS_CPU_SCALAR_H

#include "half.h"
#include "../kernel/primitives.h"

typedef float f32_t, f32_vec;
typedef double f64_t, f64_vec;

/* If the hardware has no fused multiply-add, float uses double, where the product is exact. double
 * does without, since the products of the reduction are exact (exponential.h). */
#ifdef FP_FAST_FMAF
ONS_ALWAYS float f32_fma(float a, float b, float c) { return fmaf(a, b, c); }
#else
ONS_ALWAYS float f32_fma(float a, float b, float c) { return (float)((double)a * b + c); }
#endif
#ifdef FP_FAST_FMA
ONS_ALWAYS double f64_fma(double a, double b, double c) { return fma(a, b, c); }
#else
ONS_ALWAYS double f64_fma(double a, double b, double c) { return a * b + c; }
#endif

ONS_ALWAYS float f32_same(float a, float b) { return a == b ? a : NAN; }
ONS_ALWAYS float f32_times(float a, float factor, float low) {
    return (float)(a * ((double)factor + low));
}
ONS_ALWAYS double f64_times(double a, double factor, double low) { return fma(a, factor, a * low); }

ONS_ALWAYS double f64_rest(double a, double b, double c) { return fma(-a, b, c); }

#define ONS_SCALAR_VOCABULARY(P, TYPE, BITS, LANES)                                         \
    ONS_ALWAYS TYPE P##_set(TYPE a) { return a; }                                           \
    ONS_ALWAYS TYPE P##_load(const TYPE *p) {                                               \
        TYPE a;                                                                             \
        memcpy(&a, p, sizeof a);                                                            \
        return a;                                                                           \
    }                                                                                       \
    ONS_ALWAYS void P##_store(TYPE *p, TYPE a) { memcpy(p, &a, sizeof a); }                 \
    ONS_ALWAYS void P##_stream(TYPE *p, TYPE a) { P##_store(p, a); }                        \
    ONS_ALWAYS void P##_load_columns(TYPE *columns, const char *x, int64_t across) {        \
        (void)across;                                                                       \
        memcpy(columns, x, 4 * sizeof(TYPE));                                               \
    }                                                                                       \
    ONS_ALWAYS void P##_store_columns(TYPE *y, int64_t pitch, const TYPE *columns) {        \
        (void)pitch;                                                                        \
        memcpy(y, columns, 4 * sizeof(TYPE));                                               \
    }                                                                                       \
    ONS_ALWAYS void P##_fence(void) {}                                                      \
    ONS_ALWAYS void P##_widen(double *part, TYPE a) { *part = (double)a; }                  \
    ONS_ALWAYS TYPE P##_narrow(const double *part) { return (TYPE) * part; }                \
    ONS_ALWAYS TYPE P##_load_part(const TYPE *p, int64_t k) {                               \
        return k > 0 ? P##_load(p) : -INFINITY;                                             \
    }                                                                                       \
    ONS_ALWAYS void P##_store_part(TYPE *p, TYPE a, int64_t k) {                            \
        if (k > 0) P##_store(p, a);                                                         \
    }                                                                                       \
    ONS_ALWAYS TYPE P##_join(TYPE a, TYPE b, int64_t k) { return k > 0 ? a : b; }           \
    ONS_ALWAYS TYPE P##_where(const char *where, TYPE a, TYPE b) { return *where ? a : b; } \
    ONS_ALWAYS TYPE P##_held(TYPE a) { return a; }                                          \
    ONS_ALWAYS TYPE P##_max(TYPE a, TYPE b) { return a > b ? a : b; }                       \
    ONS_ALWAYS TYPE P##_min(TYPE a, TYPE b) { return a < b ? a : b; }                       \
    ONS_ALWAYS TYPE P##_nan_or(TYPE so_far, TYPE a, TYPE b) {                               \
        return isunordered(a, b) ? (TYPE)NAN : so_far;                                      \
    }                                                                                       \
    ONS_ALWAYS TYPE P##_max_lanes(TYPE a) { return a; }                                     \
    ONS_ALWAYS TYPE P##_between(TYPE a, TYPE low, TYPE high) {                              \
        return (a > low && a < high) || (a < -low && a > -high) ? a : 0;                    \
    }                                                                                       \
    ONS_ALWAYS unsigned P##_above(TYPE a, TYPE b) { return !(a <= b); }                     \
    ONS_ALWAYS TYPE P##_add_above(TYPE counts, TYPE a, TYPE b) {                            \
        BITS count;                                                                         \
        memcpy(&count, &counts, sizeof count);                                              \
        count += !(a <= b);                                                                 \
        memcpy(&counts, &count, sizeof count);                                              \
        return counts;                                                                      \
    }                                                                                       \
    ONS_ALWAYS bool P##_any_outside(TYPE a, TYPE b) { return a > b || a < -b; }             \
    ONS_ALWAYS bool P##_any_nan(TYPE so_far) { return isnan(so_far); }                      \
    ONS_ALWAYS TYPE P##_fnma(TYPE a, TYPE b, TYPE c) { return P##_fma(-a, b, c); }          \
    ONS_ALWAYS void P##_add_lanes(double *eight, const TYPE *lanes) {                       \
        for (int l = 0; l < ONS_SUMS; l++) {                                                \
            eight[l] = (double)lanes[l];                                                    \
            if (LANES > ONS_SUMS) eight[l] += (double)lanes[l + LANES - ONS_SUMS];          \
        }                                                                                   \
    }                                                                                       \
    ONS_ALWAYS TYPE P##_max_rows(const TYPE *a) { return *a; }

ONS_SCALAR_VOCABULARY(f32, float, uint32_t, ONS_LANES_F32)
ONS_SCALAR_VOCABULARY(f64, double, uint64_t, ONS_LANES_F64)

ONS_ALWAYS double f64_sum_eight(const double *eight) {
    double tree[ONS_SUMS];
    memcpy(tree, eight, sizeof tree);
    for (int half = ONS_SUMS / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) tree[l] += tree[l + half];
    return tree[0];
}
ONS_ALWAYS double f64_sum_rows(double (*eight)[ONS_SUMS]) { return f64_sum_eight(*eight); }

ONS_ALWAYS float f32_product(const float *p, double scale) {
    return ons_product_to_float(f32_load(p), scale);
}
#define F32_BELOW ONS_RAISED_BELOW
#define F32_ONE 1.0
#define F32_LOG_OF_ONE 0.0
typedef char f32_limited; /* nothing to remember */
ONS_ALWAYS f32_limited f32_limit(float *x, float floor) {
    *x = f32_max(floor, *x);
    return 0;
}
ONS_ALWAYS float f32_fma_limited(f32_limited limited, float a, float b, float c) {
    (void)limited;
    return f32_fma(a, b, c);
}
enum { f32_beside = 4, f64_beside = 4 };
ONS_ALWAYS float f32_power(float t) {
    uint32_t bits = ons_bits_of(t);
    return ons_float_of(ONS_POWERS[bits & 7] + (bits << 20));
}
#define F64_BELOW ONS_RAISED_BELOW_F64
typedef char f64_limited;
ONS_ALWAYS f64_limited f64_limit(double *x, double floor) {
    *x = f64_max(floor, *x);
    return 0;
}
ONS_ALWAYS double f64_fma_limited(f64_limited limited, double a, double b, double c) {
    (void)limited;
    return f64_fma(a, b, c);
}
ONS_ALWAYS double f64_power(double t) {
    uint64_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits <<= 52;
    memcpy(&t, &bits, sizeof t);
    return t;
}

ONS_ALWAYS uint16_t ons_load_16_bits(const char *p) {
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}
ONS_ALWAYS void ons_store_16_bits(char *p, uint16_t bits) { memcpy(p, &bits, sizeof bits); }

ONS_ALWAYS float f32_load_half(const char *p) { return ons_half_to_float(ons_load_16_bits(p)); }
ONS_ALWAYS float f32_load_bfloat(const char *p) { return ons_bfloat_to_float(ons_load_16_bits(p)); }
ONS_ALWAYS void f32_store_half(char *p, float a) { ons_store_16_bits(p, ons_float_to_half(a)); }
ONS_ALWAYS void f32_store_bfloat(char *p, float a) { ons_store_16_bits(p, ons_float_to_bfloat(a)); }

ONS_ALWAYS void f32_store_quotient_bfloat(char *p, float a) { f32_store_bfloat(p, a); }

#endif
