/* simd_scalar.h - the vector vocabulary (primitives_tmpl.h) in plain C: vectors of one element. */
#ifndef ONS_CPU_SIMD_SCALAR_H
#define ONS_CPU_SIMD_SCALAR_H

#include "half.h"
#include "primitives.h"

typedef float f32_t, f32_vec;
typedef double f64_t, f64_vec;

/* Without a fused multiply-add in hardware float goes by way of double, where the product is exact;
 * double does without, since the reduction's products are exact (primitives_tmpl.h). */
#ifdef FP_FAST_FMAF
static inline float f32_fma(float a, float b, float c) { return fmaf(a, b, c); }
#else
static inline float f32_fma(float a, float b, float c) { return (float)((double)a * b + c); }
#endif
#ifdef FP_FAST_FMA
static inline double f64_fma(double a, double b, double c) { return fma(a, b, c); }
#else
static inline double f64_fma(double a, double b, double c) { return a * b + c; }
#endif

static inline float f32_times(float a, float factor, float beyond) {
    return (float)(a * ((double)factor + beyond));
}
static inline double f64_times(double a, double factor, double beyond) {
    return fma(a, factor, a * beyond);
}

#define ONS_SCALAR_VOCABULARY(P, TYPE, LANES)                                                  \
    static inline TYPE P##_set(TYPE a) { return a; }                                           \
    static inline TYPE P##_load(const TYPE *p) {                                               \
        TYPE a;                                                                                \
        memcpy(&a, p, sizeof a);                                                               \
        return a;                                                                              \
    }                                                                                          \
    static inline void P##_store(TYPE *p, TYPE a) { memcpy(p, &a, sizeof a); }                 \
    static inline void P##_stream(TYPE *p, TYPE a) { P##_store(p, a); }                        \
    static inline void P##_transpose(TYPE *a) { (void)a; }                                     \
    static inline void P##_settle(void) {}                                                     \
    static inline TYPE P##_narrow(const double *p) { return (TYPE) * p; }                      \
    static inline TYPE P##_load_part(const TYPE *p, int64_t k) {                               \
        return k > 0 ? P##_load(p) : -INFINITY;                                                \
    }                                                                                          \
    static inline void P##_store_part(TYPE *p, TYPE a, int64_t k) {                            \
        if (k > 0) P##_store(p, a);                                                            \
    }                                                                                          \
    static inline TYPE P##_join(TYPE a, TYPE b, int64_t k) { return k > 0 ? a : b; }           \
    static inline TYPE P##_where(const char *where, TYPE a, TYPE b) { return *where ? a : b; } \
    static inline TYPE P##_held(TYPE a) { return a; }                                          \
    static inline TYPE P##_add(TYPE a, TYPE b) { return a + b; }                               \
    static inline TYPE P##_sub(TYPE a, TYPE b) { return a - b; }                               \
    static inline TYPE P##_mul(TYPE a, TYPE b) { return a * b; }                               \
    static inline TYPE P##_div(TYPE a, TYPE b) { return a / b; }                               \
    static inline TYPE P##_max(TYPE a, TYPE b) { return a > b ? a : b; }                       \
    static inline TYPE P##_nan_or(TYPE so_far, TYPE a, TYPE b) {                               \
        return isunordered(a, b) ? (TYPE)NAN : so_far;                                         \
    }                                                                                          \
    static inline TYPE P##_max_lanes(TYPE a) { return a; }                                     \
    static inline bool P##_any_nan(TYPE so_far) { return isnan(so_far); }                      \
    static inline TYPE P##_fnma(TYPE a, TYPE b, TYPE c) { return P##_fma(-a, b, c); }          \
    static inline double P##_sum_lanes(const TYPE *lanes) {                                    \
        double tree[LANES];                                                                    \
        for (int l = 0; l < LANES; l++) tree[l] = (double)lanes[l];                            \
        for (int half = LANES / 2; half > 0; half /= 2)                                        \
            for (int l = 0; l < half; l++) tree[l] += tree[l + half];                          \
        return tree[0];                                                                        \
    }                                                                                          \
    static inline void P##_sum_rows(double *d, TYPE(*lanes)[LANES]) {                          \
        *d = P##_sum_lanes(*lanes);                                                            \
    }                                                                                          \
    static inline TYPE P##_max_rows(const TYPE *a) { return *a; }

ONS_SCALAR_VOCABULARY(f32, float, ONS_LANES_F32)
ONS_SCALAR_VOCABULARY(f64, double, ONS_LANES_F64)

typedef char f32_limited; /* nothing to remember */
static inline f32_limited f32_limit(float *x, float floor) {
    *x = f32_max(floor, *x);
    return 0;
}
static inline float f32_fma_limited(f32_limited limited, float a, float b, float c) {
    (void)limited;
    return f32_fma(a, b, c);
}
static inline float f32_power(float t) {
    uint32_t bits = ons_bits_of(t);
    return ons_float_of(ONS_POWERS[bits & 7] + (bits << 20));
}
static inline double f64_shift(double p, double t) {
    uint64_t bits, by;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&by, &t, sizeof by);
    bits += by << 52;
    memcpy(&p, &bits, sizeof p);
    return p;
}

static inline uint16_t ons_load_16_bits(const char *p) {
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}
static inline void ons_store_16_bits(char *p, uint16_t bits) { memcpy(p, &bits, sizeof bits); }

static inline float f32_load_half(const char *p) { return ons_half_to_float(ons_load_16_bits(p)); }
static inline float f32_load_bfloat(const char *p) {
    return ons_bfloat_to_float(ons_load_16_bits(p));
}
static inline void f32_store_half(char *p, float a) { ons_store_16_bits(p, ons_float_to_half(a)); }
static inline void f32_store_bfloat(char *p, float a) {
    ons_store_16_bits(p, ons_float_to_bfloat(a));
}

static inline void f32_store_quotient_bfloat(char *p, float a) { f32_store_bfloat(p, a); }

#endif
