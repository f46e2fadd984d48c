/* avx512.h - the vector vocabulary (vectors.h) for AVX-512 F, DQ, BW, VL. */
#ifndef ONS_CPU_AVX512_H
#define ONS_CPU_AVX512_H

#include <immintrin.h>

#include "half.h"
#include "../kernel/primitives.h"

typedef float f32_t;
typedef __m512 f32_vec;
typedef double f64_t;
typedef __m512d f64_vec;

ONS_ALWAYS __mmask16 f32_first(int64_t k) { return (__mmask16)((1u << k) - 1u); }
ONS_ALWAYS __mmask8 f64_first(int64_t k) { return (__mmask8)((1u << k) - 1u); }

ONS_ALWAYS f32_vec f32_set(float a) { return _mm512_set1_ps(a); }
ONS_ALWAYS f32_vec f32_load(const float *p) { return _mm512_loadu_ps(p); }
ONS_ALWAYS void f32_store(float *p, f32_vec a) { _mm512_storeu_ps(p, a); }
ONS_ALWAYS void f32_stream(float *p, f32_vec a) { _mm512_stream_ps(p, a); }
ONS_ALWAYS void f32_fence(void) { _mm_sfence(); }
ONS_ALWAYS f32_vec f32_load_part(const float *p, int64_t k) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), f32_first(k), p);
}
ONS_ALWAYS void f32_store_part(float *p, f32_vec a, int64_t k) {
    _mm512_mask_storeu_ps(p, f32_first(k), a);
}
ONS_ALWAYS f32_vec f32_join(f32_vec a, f32_vec b, int64_t k) {
    return _mm512_mask_mov_ps(b, f32_first(k), a);
}
ONS_ALWAYS f32_vec f32_where(const char *where, f32_vec a, f32_vec b) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)where);
    return _mm512_mask_mov_ps(b, _mm_test_epi8_mask(bytes, bytes), a);
}
ONS_ALWAYS f32_vec f32_held(f32_vec a) {
    __asm__("" : "+v"(a));
    return a;
}
ONS_ALWAYS f32_vec f32_max(f32_vec a, f32_vec b) { return _mm512_max_ps(a, b); }
ONS_ALWAYS f32_vec f32_min(f32_vec a, f32_vec b) { return _mm512_min_ps(a, b); }
ONS_ALWAYS f32_vec f32_nan_or(f32_vec so_far, f32_vec a, f32_vec b) {
    return _mm512_mask_mov_ps(so_far, _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q), _mm512_set1_ps(NAN));
}
ONS_ALWAYS float f32_max_lanes(f32_vec a) { return _mm512_reduce_max_ps(a); }
ONS_ALWAYS bool f32_any_nan(f32_vec so_far) {
    return _mm512_cmp_ps_mask(so_far, so_far, _CMP_UNORD_Q) != 0;
}
ONS_ALWAYS f32_vec f32_between(f32_vec a, f32_vec low, f32_vec high) {
    f32_vec size = _mm512_abs_ps(a);
    __mmask16 above = _mm512_cmp_ps_mask(size, low, _CMP_GT_OQ);
    return _mm512_maskz_mov_ps(_mm512_mask_cmp_ps_mask(above, size, high, _CMP_LT_OQ), a);
}
ONS_ALWAYS unsigned f32_above(f32_vec a, f32_vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ);
}
ONS_ALWAYS f32_vec f32_add_above(f32_vec counts, f32_vec a, f32_vec b) {
    __m512i so_far = _mm512_castps_si512(counts);
    return _mm512_castsi512_ps(_mm512_mask_add_epi32(so_far, _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ),
                                                     so_far, _mm512_set1_epi32(1)));
}
ONS_ALWAYS bool f32_any_outside(f32_vec a, f32_vec b) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(a), b, _CMP_GT_OQ) != 0;
}
ONS_ALWAYS f32_vec f32_same(f32_vec a, f32_vec b) {
    return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ), _mm512_set1_ps(NAN));
}
ONS_ALWAYS f32_vec f32_fma(f32_vec a, f32_vec b, f32_vec c) { return _mm512_fmadd_ps(a, b, c); }
ONS_ALWAYS f32_vec f32_fnma(f32_vec a, f32_vec b, f32_vec c) { return _mm512_fnmadd_ps(a, b, c); }
ONS_ALWAYS f32_vec f32_times(f32_vec a, f32_vec factor, f32_vec low) {
    return _mm512_fmadd_ps(a, factor, _mm512_mul_ps(a, low));
}
/* `scale` has so many bits that no product lies halfway between two floats. So the product in
 * double, rounded to zero, can be made odd by setting its last bit, and the second rounding does no
 * harm (half.h). A power of two, 0 and inf may stay. */
ONS_ALWAYS __m256 ons_product_of_8(const float *p, double scale) {
    __m512d product =
        _mm512_mul_round_pd(_mm512_cvtps_pd(_mm256_loadu_ps(p)), _mm512_set1_pd(scale),
                            _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m512i bits = _mm512_castpd_si512(product);
    __mmask8 inexact = _mm512_test_epi64_mask(bits, _mm512_set1_epi64(0xfffffffffffff));
    bits = _mm512_mask_or_epi64(bits, inexact, bits, _mm512_set1_epi64(1));
    return _mm512_cvtpd_ps(_mm512_castsi512_pd(bits));
}
ONS_ALWAYS f32_vec f32_product(const float *p, double scale) {
    __m256 low = ons_product_of_8(p, scale), high = ons_product_of_8(p + 8, scale);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
#define F32_BELOW 155.0 /* 2^-155 / d rounds to 0 */
typedef __mmask16 f32_limited;
ONS_ALWAYS f32_limited f32_limit(f32_vec *x, f32_vec floor) {
    return _mm512_cmp_ps_mask(*x, floor, _CMP_NLT_UQ);
}
ONS_ALWAYS f32_vec f32_fma_limited(f32_limited kept, f32_vec a, f32_vec b, f32_vec c) {
    return _mm512_maskz_fmadd_ps(kept, a, b, c);
}
/* As ONS_POWERS, but times F32_ONE. With this factor these eight numbers are nearer to floats, and
 * it cancels in every quotient. A vector has 16 entries: the eight twice. */
#define F32_ONE 0x1.06345c4b86176p+0
#define F32_LOG_OF_ONE 0x1.885abe5d59f21p-6
static const uint32_t ons_powers_twice[16] = {
    0x3f831a2e, 0x3f7ef7d1, 0x3f7be862, 0x3f7a04c3, 0x3f796817, 0x3f7a2ff5, 0x3f7c7ca2, 0x3f80714f,
    0x3f831a2e, 0x3f7ef7d1, 0x3f7be862, 0x3f7a04c3, 0x3f796817, 0x3f7a2ff5, 0x3f7c7ca2, 0x3f80714f,
};
ONS_ALWAYS f32_vec f32_power(f32_vec t) {
    __m512i bits = _mm512_castps_si512(t);
    __m512i fraction = _mm512_permutexvar_epi32(bits, _mm512_loadu_si512(ons_powers_twice));
    return _mm512_castsi512_ps(_mm512_add_epi32(fraction, _mm512_slli_epi32(bits, 20)));
}
enum { f32_beside = 4, f64_beside = 4 };

ONS_ALWAYS f64_vec f64_set(double a) { return _mm512_set1_pd(a); }
ONS_ALWAYS f64_vec f64_load(const double *p) { return _mm512_loadu_pd(p); }
ONS_ALWAYS void f64_store(double *p, f64_vec a) { _mm512_storeu_pd(p, a); }
ONS_ALWAYS void f64_stream(double *p, f64_vec a) { _mm512_stream_pd(p, a); }
ONS_ALWAYS void f64_fence(void) { _mm_sfence(); }
ONS_ALWAYS f64_vec f64_load_part(const double *p, int64_t k) {
    return _mm512_mask_loadu_pd(_mm512_set1_pd(-INFINITY), f64_first(k), p);
}
ONS_ALWAYS void f64_store_part(double *p, f64_vec a, int64_t k) {
    _mm512_mask_storeu_pd(p, f64_first(k), a);
}
ONS_ALWAYS f64_vec f64_join(f64_vec a, f64_vec b, int64_t k) {
    return _mm512_mask_mov_pd(b, f64_first(k), a);
}
ONS_ALWAYS f64_vec f64_where(const char *where, f64_vec a, f64_vec b) {
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)where);
    return _mm512_mask_mov_pd(b, (__mmask8)_mm_test_epi8_mask(bytes, bytes), a);
}
ONS_ALWAYS f64_vec f64_held(f64_vec a) {
    __asm__("" : "+v"(a));
    return a;
}
ONS_ALWAYS f64_vec f64_max(f64_vec a, f64_vec b) { return _mm512_max_pd(a, b); }
ONS_ALWAYS f64_vec f64_min(f64_vec a, f64_vec b) { return _mm512_min_pd(a, b); }
ONS_ALWAYS f64_vec f64_nan_or(f64_vec so_far, f64_vec a, f64_vec b) {
    return _mm512_mask_mov_pd(so_far, _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q), _mm512_set1_pd(NAN));
}
ONS_ALWAYS double f64_max_lanes(f64_vec a) { return _mm512_reduce_max_pd(a); }
ONS_ALWAYS bool f64_any_nan(f64_vec so_far) {
    return _mm512_cmp_pd_mask(so_far, so_far, _CMP_UNORD_Q) != 0;
}
ONS_ALWAYS f64_vec f64_between(f64_vec a, f64_vec low, f64_vec high) {
    f64_vec size = _mm512_abs_pd(a);
    __mmask8 above = _mm512_cmp_pd_mask(size, low, _CMP_GT_OQ);
    return _mm512_maskz_mov_pd(_mm512_mask_cmp_pd_mask(above, size, high, _CMP_LT_OQ), a);
}
ONS_ALWAYS unsigned f64_above(f64_vec a, f64_vec b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_NLE_UQ);
}
ONS_ALWAYS f64_vec f64_add_above(f64_vec counts, f64_vec a, f64_vec b) {
    __m512i so_far = _mm512_castpd_si512(counts);
    return _mm512_castsi512_pd(_mm512_mask_add_epi64(so_far, _mm512_cmp_pd_mask(a, b, _CMP_NLE_UQ),
                                                     so_far, _mm512_set1_epi64(1)));
}
ONS_ALWAYS bool f64_any_outside(f64_vec a, f64_vec b) {
    return _mm512_cmp_pd_mask(_mm512_abs_pd(a), b, _CMP_GT_OQ) != 0;
}
ONS_ALWAYS f64_vec f64_fma(f64_vec a, f64_vec b, f64_vec c) { return _mm512_fmadd_pd(a, b, c); }
ONS_ALWAYS f64_vec f64_fnma(f64_vec a, f64_vec b, f64_vec c) { return _mm512_fnmadd_pd(a, b, c); }
ONS_ALWAYS f64_vec f64_times(f64_vec a, f64_vec factor, f64_vec low) {
    return _mm512_fmadd_pd(a, factor, _mm512_mul_pd(a, low));
}
#define F64_BELOW 1081.0 /* 2^-1081 / d rounds to 0 */
typedef __mmask8 f64_limited;
ONS_ALWAYS f64_limited f64_limit(const f64_vec *x, f64_vec floor) {
    return _mm512_cmp_pd_mask(*x, floor, _CMP_NLT_UQ);
}
ONS_ALWAYS f64_vec f64_fma_limited(f64_limited kept, f64_vec a, f64_vec b, f64_vec c) {
    return _mm512_maskz_fmadd_pd(kept, a, b, c);
}
ONS_ALWAYS f64_vec f64_power(f64_vec t) {
    return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(t), 52));
}

#define F64_STEPS 16
static const uint64_t ons_sixteenths[] = {ONS_SIXTEENTHS};
ONS_ALWAYS f64_vec f64_power_16(f64_vec t) {
    const __m512i bits = _mm512_castpd_si512(t);
    const __m512i fraction = _mm512_permutex2var_epi64(_mm512_loadu_si512(ons_sixteenths), bits,
                                                       _mm512_loadu_si512(ons_sixteenths + 8));
    return _mm512_castsi512_pd(_mm512_add_epi64(fraction, _mm512_slli_epi64(bits, 48)));
}

ONS_ALWAYS void f32_widen(f64_vec *parts, f32_vec a) {
    parts[0] = _mm512_cvtps_pd(_mm512_castps512_ps256(a));
    parts[1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
}
ONS_ALWAYS f32_vec f32_narrow(const f64_vec *parts) {
    __m512 low = _mm512_castps256_ps512(_mm512_cvtpd_ps(parts[0]));
    return _mm512_insertf32x8(low, _mm512_cvtpd_ps(parts[1]), 1);
}
ONS_ALWAYS void f64_widen(f64_vec *part, f64_vec a) { *part = a; }
ONS_ALWAYS f64_vec f64_narrow(const f64_vec *part) { return *part; }
ONS_ALWAYS f64_vec f64_rest(f64_vec a, f64_vec b, f64_vec c) { return f64_fnma(a, b, c); }
ONS_ALWAYS void f32_add_lanes(f64_vec *eight, const f32_vec *lanes) {
    f64_vec half[2];
    f32_widen(half, *lanes);
    *eight = _mm512_add_pd(half[0], half[1]);
}
ONS_ALWAYS void f64_add_lanes(f64_vec *eight, const f64_vec *lanes) { *eight = *lanes; }
/* adds l and l + 4, then l and l + 2, then the last two */
ONS_ALWAYS double f64_sum_eight(const f64_vec *eight) {
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(*eight), _mm512_extractf64x4_pd(*eight, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/* Four elements of each of 16 rows. Each vector has rows i, i + 4, i + 8 and i + 12; then their
 * 128-bit parts are transposed. */
ONS_ALWAYS void ons_transpose_parts(f32_vec *a) {
    __m512d b[4];
    for (int i = 0; i < 2; i++) { /* of rows 2 i and 2 i + 1: elements 0 and 1, then 2 and 3 */
        b[i] = _mm512_castps_pd(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]));
        b[i + 2] = _mm512_castps_pd(_mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));
    }
    for (int i = 0; i < 4; i += 2) {
        a[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(b[i], b[i + 1]));
        a[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(b[i], b[i + 1]));
    }
}
ONS_ALWAYS __m128 ons_four_at(const char *p) {
    return _mm_loadu_ps((const float *)(const void *)p);
}
ONS_ALWAYS void f32_load_columns(f32_vec *columns, const char *x, int64_t across) {
    for (int i = 0; i < 4; i++) {
        const char *row = x + i * across;
        __m512 rows = _mm512_castps128_ps512(ons_four_at(row));
        rows = _mm512_insertf32x4(rows, ons_four_at(row + 4 * across), 1);
        rows = _mm512_insertf32x4(rows, ons_four_at(row + 8 * across), 2);
        columns[i] = _mm512_insertf32x4(rows, ons_four_at(row + 12 * across), 3);
    }
    ons_transpose_parts(columns);
}
ONS_ALWAYS void f32_store_columns(float *y, int64_t pitch, const f32_vec *columns) {
    f32_vec rows[4] = {columns[0], columns[1], columns[2], columns[3]};
    ons_transpose_parts(rows);
    for (int i = 0; i < 4; i++) _mm_storeu_ps(y + i * pitch, _mm512_castps512_ps128(rows[i]));
    y += 4 * pitch;
    for (int i = 0; i < 4; i++) _mm_storeu_ps(y + i * pitch, _mm512_extractf32x4_ps(rows[i], 1));
    y += 4 * pitch;
    for (int i = 0; i < 4; i++) _mm_storeu_ps(y + i * pitch, _mm512_extractf32x4_ps(rows[i], 2));
    y += 4 * pitch;
    for (int i = 0; i < 4; i++) _mm_storeu_ps(y + i * pitch, _mm512_extractf32x4_ps(rows[i], 3));
}
/* The same for 8 rows. Each vector has rows i and i + 4. */
ONS_ALWAYS void ons_transpose_halves(f64_vec *a) {
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    f64_vec even0 = _mm512_unpacklo_pd(a[0], a[1]), odd0 = _mm512_unpackhi_pd(a[0], a[1]);
    f64_vec even1 = _mm512_unpacklo_pd(a[2], a[3]), odd1 = _mm512_unpackhi_pd(a[2], a[3]);
    a[0] = _mm512_permutex2var_pd(even0, low, even1);
    a[1] = _mm512_permutex2var_pd(odd0, low, odd1);
    a[2] = _mm512_permutex2var_pd(even0, high, even1);
    a[3] = _mm512_permutex2var_pd(odd0, high, odd1);
}
ONS_ALWAYS void f64_load_columns(f64_vec *columns, const char *x, int64_t across) {
    for (int i = 0; i < 4; i++) {
        const double *row = (const double *)(const void *)(x + i * across);
        const double *other = (const double *)(const void *)(x + (i + 4) * across);
        __m512d rows = _mm512_castpd256_pd512(_mm256_loadu_pd(row));
        columns[i] = _mm512_insertf64x4(rows, _mm256_loadu_pd(other), 1);
    }
    ons_transpose_halves(columns);
}
ONS_ALWAYS void f64_store_columns(double *y, int64_t pitch, const f64_vec *columns) {
    f64_vec rows[4] = {columns[0], columns[1], columns[2], columns[3]};
    ons_transpose_halves(rows);
    for (int i = 0; i < 4; i++) _mm256_storeu_pd(y + i * pitch, _mm512_castpd512_pd256(rows[i]));
    y += 4 * pitch;
    for (int i = 0; i < 4; i++) _mm256_storeu_pd(y + i * pitch, _mm512_extractf64x4_pd(rows[i], 1));
}

/* Merges the lanes of each of 8 rows into one: lanes l and l + 4, then l and l + 2, then the last
 * two. */
ONS_ALWAYS f64_vec ons_merge_rows(const f64_vec *a, f64_vec (*merge)(f64_vec, f64_vec)) {
    f64_vec two[4], four[2];
    for (int k = 0; k < 4; k++) { /* rows i and i + 2 */
        f64_vec low = a[k / 2 * 4 + k % 2], high = a[k / 2 * 4 + k % 2 + 2];
        two[k] =
            merge(_mm512_shuffle_f64x2(low, high, 0x44), _mm512_shuffle_f64x2(low, high, 0xee));
    }
    for (int k = 0; k < 2; k++) /* rows 0, 2, 4, 6, and the others */
        four[k] = merge(_mm512_shuffle_f64x2(two[k], two[k + 2], 0x88),
                        _mm512_shuffle_f64x2(two[k], two[k + 2], 0xdd));
    return merge(_mm512_unpacklo_pd(four[0], four[1]), _mm512_unpackhi_pd(four[0], four[1]));
}
ONS_ALWAYS f64_vec ons_sum_of_two(f64_vec a, f64_vec b) { return a + b; }
ONS_ALWAYS f64_vec f64_sum_rows(f64_vec (*eight)[1]) {
    return ons_merge_rows(*eight, ons_sum_of_two);
}
ONS_ALWAYS f64_vec f64_max_rows(const f64_vec *a) { return ons_merge_rows(a, f64_max); }
ONS_ALWAYS f32_vec f32_max_rows(const f32_vec *a) {
    f32_vec two[8], four[4], eight[2];
    for (int k = 0; k < 8; k++) {
        f32_vec low = a[2 * k], high = a[2 * k + 1];
        two[k] = f32_max(_mm512_unpacklo_ps(low, high), _mm512_unpackhi_ps(low, high));
    }
    for (int k = 0; k < 4; k++) {
        __m512d low = _mm512_castps_pd(two[2 * k]), high = _mm512_castps_pd(two[2 * k + 1]);
        four[k] = f32_max(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
                          _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
    }
    for (int k = 0; k < 2; k++)
        eight[k] = f32_max(_mm512_shuffle_f32x4(four[2 * k], four[2 * k + 1], 0x88),
                           _mm512_shuffle_f32x4(four[2 * k], four[2 * k + 1], 0xdd));
    return f32_max(_mm512_shuffle_f32x4(eight[0], eight[1], 0x88),
                   _mm512_shuffle_f32x4(eight[0], eight[1], 0xdd));
}

ONS_ALWAYS f32_vec f32_load_half(const char *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
ONS_ALWAYS void f32_store_half(char *p, f32_vec a) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
static const uint16_t ons_odd_halves[32]
    __attribute__((aligned(64))) = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
ONS_ALWAYS f32_vec f32_load_bfloat(const char *p) {
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
/* bits + 0x7fff + the lowest bit that stays: the high half of the result is rounded to even. */
ONS_ALWAYS __m512i ons_even(__m512i bits) {
    __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    __m512i even = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    return _mm512_mask_add_epi32(even, odd, even, _mm512_set1_epi32(1));
}
ONS_ALWAYS void ons_store_high_halves(char *p, __m512i a) {
    __m512i halves = _mm512_permutexvar_epi16(_mm512_load_si512(ons_odd_halves), a);
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_castsi512_si256(halves));
}
/* A quotient is not negative, or it is NaN. The bits of any NaN are above 0x7fff0000, which is a
 * NaN. */
ONS_ALWAYS void f32_store_quotient_bfloat(char *p, f32_vec a) {
    __m512i largest = _mm512_set1_epi32(0x7fff0000);
    ons_store_high_halves(p, ons_even(_mm512_min_epu32(_mm512_castps_si512(a), largest)));
}
/* Makes NaN quiet, as ons_float_to_bfloat, for sixteen at a time. The instruction of AVX512_BF16
 * would turn subnormals into 0. */
ONS_ALWAYS void f32_store_bfloat(char *p, f32_vec a) {
    __m512i bits = _mm512_castps_si512(a),
            quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    ons_store_high_halves(p, _mm512_mask_mov_epi32(ons_even(bits), nan, quiet));
}

#endif
