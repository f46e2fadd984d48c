/* neon.h - the vector vocabulary (vectors.h) for AArch64. Every such processor has NEON with fused
 * multiply-add and the conversions of float16. */
#ifndef ONS_CPU_NEON_H
#define ONS_CPU_NEON_H

#include <arm_neon.h>

#include "half.h"
#include "../kernel/primitives.h"

typedef float f32_t;
typedef float32x4_t f32_vec;
typedef double f64_t;
typedef float64x2_t f64_vec;

/* a mask of the first k of 4 lanes (or of 2 double lanes): read from 4 - k on */
static const uint32_t ons_first_lanes[8] = {~0u, ~0u, ~0u, ~0u, 0, 0, 0, 0};

ONS_ALWAYS uint32x4_t f32_first(int64_t k) { return vld1q_u32(ons_first_lanes + 4 - k); }
ONS_ALWAYS uint32x4_t f64_first(int64_t k) { return vld1q_u32(ons_first_lanes + 4 - 2 * k); }

ONS_ALWAYS f32_vec f32_set(float a) { return vdupq_n_f32(a); }
ONS_ALWAYS f32_vec f32_load(const float *p) { return vld1q_f32(p); }
ONS_ALWAYS void f32_store(float *p, f32_vec a) { vst1q_f32(p, a); }
ONS_ALWAYS f32_vec f32_load_part(const float *p, int64_t k) {
    f32_vec a = vdupq_n_f32(-INFINITY);
    if (k > 0) a = vld1q_lane_f32(p, a, 0);
    if (k > 1) a = vld1q_lane_f32(p + 1, a, 1);
    if (k > 2) a = vld1q_lane_f32(p + 2, a, 2);
    return a;
}
ONS_ALWAYS void f32_store_part(float *p, f32_vec a, int64_t k) {
    if (k > 0) vst1q_lane_f32(p, a, 0);
    if (k > 1) vst1q_lane_f32(p + 1, a, 1);
    if (k > 2) vst1q_lane_f32(p + 2, a, 2);
}
ONS_ALWAYS f32_vec f32_join(f32_vec a, f32_vec b, int64_t k) {
    return vbslq_f32(f32_first(k), a, b);
}
ONS_ALWAYS f32_vec f32_where(const char *where, f32_vec a, f32_vec b) {
    uint32_t four;
    memcpy(&four, where, sizeof four);
    uint16x8_t bytes = vmovl_u8(vcreate_u8(four));
    return vbslq_f32(vcgtq_u32(vmovl_u16(vget_low_u16(bytes)), vdupq_n_u32(0)), a, b);
}
ONS_ALWAYS f32_vec f32_held(f32_vec a) { return a; }
/* NaN if either operand is. So the maximum itself remembers NaN, and max_lanes returns it. */
ONS_ALWAYS f32_vec f32_max(f32_vec a, f32_vec b) { return vmaxq_f32(a, b); }
ONS_ALWAYS f32_vec f32_min(f32_vec a, f32_vec b) { return vminq_f32(a, b); }
ONS_ALWAYS f32_vec f32_nan_or(f32_vec so_far, f32_vec a, f32_vec b) {
    (void)a;
    (void)b;
    return so_far;
}
ONS_ALWAYS float f32_max_lanes(f32_vec a) { return vmaxvq_f32(a); }
ONS_ALWAYS bool f32_any_nan(f32_vec so_far) {
    (void)so_far;
    return false;
}
ONS_ALWAYS f32_vec f32_between(f32_vec a, f32_vec low, f32_vec high) {
    uint32x4_t between = vandq_u32(vcagtq_f32(a, low), vcaltq_f32(a, high));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), between));
}
ONS_ALWAYS unsigned f32_above(f32_vec a, f32_vec b) {
    static const uint32_t lanes[4] = {1, 2, 4, 8};
    return vaddvq_u32(vbicq_u32(vld1q_u32(lanes), vcleq_f32(a, b)));
}
ONS_ALWAYS f32_vec f32_add_above(f32_vec counts, f32_vec a, f32_vec b) {
    uint32x4_t so_far = vreinterpretq_u32_f32(counts), one = vdupq_n_u32(1);
    return vreinterpretq_f32_u32(vaddq_u32(so_far, vbicq_u32(one, vcleq_f32(a, b))));
}
ONS_ALWAYS bool f32_any_outside(f32_vec a, f32_vec b) { return vmaxvq_u32(vcagtq_f32(a, b)) != 0; }
ONS_ALWAYS f32_vec f32_same(f32_vec a, f32_vec b) {
    return vbslq_f32(vceqq_f32(a, b), a, vdupq_n_f32(NAN));
}
ONS_ALWAYS f32_vec f32_fma(f32_vec a, f32_vec b, f32_vec c) { return vfmaq_f32(c, a, b); }
ONS_ALWAYS f32_vec f32_fnma(f32_vec a, f32_vec b, f32_vec c) { return vfmsq_f32(c, a, b); }
ONS_ALWAYS f32_vec f32_times(f32_vec a, f32_vec factor, f32_vec low) {
    return vfmaq_f32(vmulq_f32(a, low), a, factor);
}
ONS_ALWAYS f32_vec f32_product(const float *p, double scale) {
    float lanes[4];
    vst1q_f32(lanes, vld1q_f32(p));
    for (int i = 0; i < 4; i++) lanes[i] = ons_product_to_float(lanes[i], scale);
    return vld1q_f32(lanes);
}
#define F32_BELOW ONS_RAISED_BELOW
#define F32_ONE 1.0
#define F32_LOG_OF_ONE 0.0
typedef char f32_limited; /* nothing to remember */
ONS_ALWAYS f32_limited f32_limit(f32_vec *x, f32_vec floor) {
    *x = f32_max(floor, *x);
    return 0;
}
ONS_ALWAYS f32_vec f32_fma_limited(f32_limited limited, f32_vec a, f32_vec b, f32_vec c) {
    (void)limited;
    return f32_fma(a, b, c);
}
enum { f32_beside = 4, f64_beside = 4 };
/* looks up bytes in the table: word k & 7 begins at 4 * (k & 7) */
ONS_ALWAYS f32_vec f32_power(f32_vec t) {
    uint32x4_t bits = vreinterpretq_u32_f32(t);
    uint8x16x2_t table = {{vreinterpretq_u8_u32(vld1q_u32(ONS_POWERS)),
                           vreinterpretq_u8_u32(vld1q_u32(ONS_POWERS + 4))}};
    uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), vandq_u32(bits, vdupq_n_u32(7)),
                                 vdupq_n_u32(0x04040404));
    uint32x4_t fraction = vreinterpretq_u32_u8(vqtbl2q_u8(table, vreinterpretq_u8_u32(bytes)));
    return vreinterpretq_f32_u32(vaddq_u32(fraction, vshlq_n_u32(bits, 20)));
}

ONS_ALWAYS f64_vec f64_set(double a) { return vdupq_n_f64(a); }
ONS_ALWAYS f64_vec f64_load(const double *p) { return vld1q_f64(p); }
ONS_ALWAYS void f64_store(double *p, f64_vec a) { vst1q_f64(p, a); }
ONS_ALWAYS f64_vec f64_load_part(const double *p, int64_t k) {
    f64_vec a = vdupq_n_f64(-INFINITY);
    return k > 0 ? vld1q_lane_f64(p, a, 0) : a;
}
ONS_ALWAYS void f64_store_part(double *p, f64_vec a, int64_t k) {
    if (k > 0) vst1q_lane_f64(p, a, 0);
}
ONS_ALWAYS f64_vec f64_join(f64_vec a, f64_vec b, int64_t k) {
    return vbslq_f64(vreinterpretq_u64_u32(f64_first(k)), a, b);
}
ONS_ALWAYS f64_vec f64_where(const char *where, f64_vec a, f64_vec b) {
    uint64x2_t in = {where[0] ? ~(uint64_t)0 : 0, where[1] ? ~(uint64_t)0 : 0};
    return vbslq_f64(in, a, b);
}
ONS_ALWAYS f64_vec f64_held(f64_vec a) { return a; }
ONS_ALWAYS f64_vec f64_max(f64_vec a, f64_vec b) { return vmaxq_f64(a, b); }
ONS_ALWAYS f64_vec f64_min(f64_vec a, f64_vec b) { return vminq_f64(a, b); }
ONS_ALWAYS f64_vec f64_nan_or(f64_vec so_far, f64_vec a, f64_vec b) {
    (void)a;
    (void)b;
    return so_far;
}
ONS_ALWAYS double f64_max_lanes(f64_vec a) { return vmaxvq_f64(a); }
ONS_ALWAYS bool f64_any_nan(f64_vec so_far) {
    (void)so_far;
    return false;
}
ONS_ALWAYS f64_vec f64_between(f64_vec a, f64_vec low, f64_vec high) {
    uint64x2_t between = vandq_u64(vcagtq_f64(a, low), vcaltq_f64(a, high));
    return vreinterpretq_f64_u64(vandq_u64(vreinterpretq_u64_f64(a), between));
}
ONS_ALWAYS unsigned f64_above(f64_vec a, f64_vec b) {
    static const uint64_t lanes[2] = {1, 2};
    return (unsigned)vaddvq_u64(vbicq_u64(vld1q_u64(lanes), vcleq_f64(a, b)));
}
ONS_ALWAYS f64_vec f64_add_above(f64_vec counts, f64_vec a, f64_vec b) {
    uint64x2_t so_far = vreinterpretq_u64_f64(counts), one = vdupq_n_u64(1);
    return vreinterpretq_f64_u64(vaddq_u64(so_far, vbicq_u64(one, vcleq_f64(a, b))));
}
ONS_ALWAYS bool f64_any_outside(f64_vec a, f64_vec b) {
    return vmaxvq_u32(vreinterpretq_u32_u64(vcagtq_f64(a, b))) != 0;
}
ONS_ALWAYS f64_vec f64_fma(f64_vec a, f64_vec b, f64_vec c) { return vfmaq_f64(c, a, b); }
ONS_ALWAYS f64_vec f64_fnma(f64_vec a, f64_vec b, f64_vec c) { return vfmsq_f64(c, a, b); }
ONS_ALWAYS f64_vec f64_times(f64_vec a, f64_vec factor, f64_vec low) {
    return vfmaq_f64(vmulq_f64(a, low), a, factor);
}
#define F64_BELOW ONS_RAISED_BELOW_F64
typedef char f64_limited;
ONS_ALWAYS f64_limited f64_limit(f64_vec *x, f64_vec floor) {
    *x = f64_max(floor, *x);
    return 0;
}
ONS_ALWAYS f64_vec f64_fma_limited(f64_limited limited, f64_vec a, f64_vec b, f64_vec c) {
    (void)limited;
    return f64_fma(a, b, c);
}
ONS_ALWAYS f64_vec f64_power(f64_vec t) {
    return vreinterpretq_f64_u64(vshlq_n_u64(vreinterpretq_u64_f64(t), 52));
}

ONS_ALWAYS void f32_add_lanes(f64_vec *eight, const f32_vec *lanes) {
    for (int v = 0; v < 2; v++) {
        f32_vec a = lanes[v], b = lanes[v + 2];
        eight[2 * v] = vaddq_f64(vcvt_f64_f32(vget_low_f32(a)), vcvt_f64_f32(vget_low_f32(b)));
        eight[2 * v + 1] = vaddq_f64(vcvt_high_f64_f32(a), vcvt_high_f64_f32(b));
    }
}
ONS_ALWAYS void f64_add_lanes(f64_vec *eight, const f64_vec *lanes) {
    for (int v = 0; v < 4; v++) eight[v] = lanes[v];
}
/* adds l and l + 4, then l and l + 2, then the last two */
ONS_ALWAYS double f64_sum_eight(const f64_vec *eight) {
    f64_vec low = vaddq_f64(eight[0], eight[2]), high = vaddq_f64(eight[1], eight[3]);
    return vaddvq_f64(vaddq_f64(low, high));
}
ONS_ALWAYS f64_vec f64_sum_rows(f64_vec (*eight)[4]) {
    return (f64_vec){f64_sum_eight(eight[0]), f64_sum_eight(eight[1])};
}
ONS_ALWAYS f32_vec f32_max_rows(const f32_vec *a) {
    return vpmaxq_f32(vpmaxq_f32(a[0], a[1]), vpmaxq_f32(a[2], a[3]));
}
ONS_ALWAYS f64_vec f64_max_rows(const f64_vec *a) { return vpmaxq_f64(a[0], a[1]); }

ONS_ALWAYS uint16x4_t ons_load_four(const char *p) {
    return vld1_u16((const uint16_t *)(const void *)p);
}
ONS_ALWAYS void ons_store_four(char *p, uint16x4_t a) { vst1_u16((uint16_t *)(void *)p, a); }

ONS_ALWAYS f32_vec f32_load_half(const char *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(ons_load_four(p)));
}
ONS_ALWAYS void f32_store_half(char *p, f32_vec a) {
    ons_store_four(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}
ONS_ALWAYS f32_vec f32_load_bfloat(const char *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(ons_load_four(p), 16));
}

/* Whether the processor rounds to bfloat16 by itself. neon.c sets it. */
static bool ons_rounds_to_bfloat;

/* bfcvtn v0.4h, v0.4s, which keeps subnormals. It is given by its code, since compilers know the
 * name only if the whole function is for such a processor. */
ONS_ALWAYS uint16x4_t ons_bfloats_by_instruction(f32_vec a) {
    register f32_vec from __asm__("v0") = a;
    register uint16x4_t rounded __asm__("v0");
    __asm__(".inst 0x0ea16800" : "=w"(rounded) : "w"(from));
    return rounded;
}
/* bits + 0x7fff + the lowest bit that stays, and NaN made quiet: ons_float_to_bfloat, for four at a
 * time */
ONS_ALWAYS uint16x4_t ons_bfloats_by_hand(f32_vec a) {
    uint32x4_t bits = vreinterpretq_u32_f32(a);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint16x4_t even = vaddhn_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint16x4_t quiet = vshrn_n_u32(vorrq_u32(bits, vdupq_n_u32(0x400000)), 16);
    return vbsl_u16(vmovn_u32(vceqq_f32(a, a)), even, quiet);
}
ONS_ALWAYS void f32_store_bfloat(char *p, f32_vec a) {
    ons_store_four(p,
                   ons_rounds_to_bfloat ? ons_bfloats_by_instruction(a) : ons_bfloats_by_hand(a));
}

/* AArch64 has no single store past the caches, so these are plain stores without a fence. */
ONS_ALWAYS void f32_stream(float *p, f32_vec a) { vst1q_f32(p, a); }
ONS_ALWAYS void f64_stream(double *p, f64_vec a) { vst1q_f64(p, a); }
ONS_ALWAYS void f32_fence(void) {}
ONS_ALWAYS void f64_fence(void) {}

/* Transposes four elements of each of 4 rows: pairs of rows first, then all four. */
ONS_ALWAYS void ons_transpose(f32_vec *a) {
    float32x4x2_t low = vtrnq_f32(a[0], a[1]), high = vtrnq_f32(a[2], a[3]);
    for (int i = 0; i < 2; i++) {
        a[i] = vcombine_f32(vget_low_f32(low.val[i]), vget_low_f32(high.val[i]));
        a[i + 2] = vcombine_f32(vget_high_f32(low.val[i]), vget_high_f32(high.val[i]));
    }
}
ONS_ALWAYS void f32_load_columns(f32_vec *columns, const char *x, int64_t across) {
    for (int i = 0; i < 4; i++)
        columns[i] = vld1q_f32((const float *)(const void *)(x + i * across));
    ons_transpose(columns);
}
ONS_ALWAYS void f32_store_columns(float *y, int64_t pitch, const f32_vec *columns) {
    f32_vec rows[4] = {columns[0], columns[1], columns[2], columns[3]};
    ons_transpose(rows);
    for (int i = 0; i < 4; i++) vst1q_f32(y + i * pitch, rows[i]);
}
/* Transposes the doubles of 2 rows. */
ONS_ALWAYS void f64_load_columns(f64_vec *columns, const char *x, int64_t across) {
    const double *row = (const double *)(const void *)x;
    const double *other = (const double *)(const void *)(x + across);
    for (int k = 0; k < 4; k += 2) {
        columns[k] = vtrn1q_f64(vld1q_f64(row + k), vld1q_f64(other + k));
        columns[k + 1] = vtrn2q_f64(vld1q_f64(row + k), vld1q_f64(other + k));
    }
}
ONS_ALWAYS void f64_store_columns(double *y, int64_t pitch, const f64_vec *columns) {
    for (int row = 0; row < 2; row++, y += pitch)
        for (int k = 0; k < 4; k += 2)
            vst1q_f64(y + k, row == 0 ? vtrn1q_f64(columns[k], columns[k + 1])
                                      : vtrn2q_f64(columns[k], columns[k + 1]));
}
ONS_ALWAYS void f32_widen(f64_vec *parts, f32_vec a) {
    parts[0] = vcvt_f64_f32(vget_low_f32(a));
    parts[1] = vcvt_high_f64_f32(a);
}
ONS_ALWAYS f32_vec f32_narrow(const f64_vec *parts) {
    return vcvt_high_f32_f64(vcvt_f32_f64(parts[0]), parts[1]);
}
ONS_ALWAYS void f64_widen(f64_vec *part, f64_vec a) { *part = a; }
ONS_ALWAYS f64_vec f64_narrow(const f64_vec *part) { return *part; }
ONS_ALWAYS f64_vec f64_rest(f64_vec a, f64_vec b, f64_vec c) { return f64_fnma(a, b, c); }
ONS_ALWAYS void f32_store_quotient_bfloat(char *p, f32_vec a) { f32_store_bfloat(p, a); }

#endif
