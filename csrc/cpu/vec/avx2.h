/* avx2.h - the vector vocabulary (vectors.h) for AVX2 with FMA and F16C. */
#ifndef ONS_CPU_AVX2_H
#define ONS_CPU_AVX2_H

#include <immintrin.h>

#include "half.h"
#include "../kernel/primitives.h"

typedef float f32_t;
typedef __m256 f32_vec;
typedef double f64_t;
typedef __m256d f64_vec;

/* a mask of the first k of 8 lanes (or of 4 double lanes): read from 8 - k on */
static const int32_t ons_first_lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

ONS_ALWAYS __m256i f32_first(int64_t k) {
    return _mm256_loadu_si256((const __m256i *)(const void *)(ons_first_lanes + 8 - k));
}
ONS_ALWAYS __m256i f64_first(int64_t k) {
    return _mm256_loadu_si256((const __m256i *)(const void *)(ons_first_lanes + 8 - 2 * k));
}

ONS_ALWAYS f32_vec f32_set(float a) { return _mm256_set1_ps(a); }
ONS_ALWAYS f32_vec f32_load(const float *p) { return _mm256_loadu_ps(p); }
ONS_ALWAYS void f32_store(float *p, f32_vec a) { _mm256_storeu_ps(p, a); }
ONS_ALWAYS void f32_stream(float *p, f32_vec a) { _mm256_stream_ps(p, a); }
ONS_ALWAYS void f32_fence(void) { _mm_sfence(); }
ONS_ALWAYS f32_vec f32_load_part(const float *p, int64_t k) {
    __m256i first = f32_first(k);
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_maskload_ps(p, first),
                            _mm256_castsi256_ps(first));
}
ONS_ALWAYS void f32_store_part(float *p, f32_vec a, int64_t k) {
    _mm256_maskstore_ps(p, f32_first(k), a);
}
ONS_ALWAYS f32_vec f32_join(f32_vec a, f32_vec b, int64_t k) {
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(f32_first(k)));
}
ONS_ALWAYS f32_vec f32_where(const char *where, f32_vec a, f32_vec b) {
    __m256i bytes = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)where));
    __m256i out = _mm256_cmpeq_epi32(bytes, _mm256_setzero_si256());
    return _mm256_blendv_ps(a, b, _mm256_castsi256_ps(out));
}
ONS_ALWAYS f32_vec f32_held(f32_vec a) { return a; }
ONS_ALWAYS f32_vec f32_max(f32_vec a, f32_vec b) { return _mm256_max_ps(a, b); }
ONS_ALWAYS f32_vec f32_min(f32_vec a, f32_vec b) { return _mm256_min_ps(a, b); }
ONS_ALWAYS f32_vec f32_nan_or(f32_vec so_far, f32_vec a, f32_vec b) {
    return _mm256_or_ps(so_far, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}
ONS_ALWAYS float f32_max_lanes(f32_vec a) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
ONS_ALWAYS bool f32_any_nan(f32_vec so_far) { return _mm256_movemask_ps(so_far) != 0; }
ONS_ALWAYS f32_vec f32_between(f32_vec a, f32_vec low, f32_vec high) {
    f32_vec size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
    f32_vec above = _mm256_cmp_ps(size, low, _CMP_GT_OQ);
    f32_vec below = _mm256_cmp_ps(size, high, _CMP_LT_OQ);
    return _mm256_and_ps(a, _mm256_and_ps(above, below));
}
ONS_ALWAYS unsigned f32_above(f32_vec a, f32_vec b) {
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(b, a, _CMP_NGE_UQ)); /* a from memory */
}
ONS_ALWAYS f32_vec f32_add_above(f32_vec counts, f32_vec a, f32_vec b) {
    __m256i above = _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_NLE_UQ)); /* -1 */
    return _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_castps_si256(counts), above));
}
ONS_ALWAYS bool f32_any_outside(f32_vec a, f32_vec b) {
    __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
    return _mm256_movemask_ps(_mm256_cmp_ps(size, b, _CMP_GT_OQ)) != 0;
}
ONS_ALWAYS f32_vec f32_same(f32_vec a, f32_vec b) {
    return _mm256_or_ps(a, _mm256_cmp_ps(a, b, _CMP_NEQ_UQ));
}
ONS_ALWAYS f32_vec f32_fma(f32_vec a, f32_vec b, f32_vec c) { return _mm256_fmadd_ps(a, b, c); }
ONS_ALWAYS f32_vec f32_fnma(f32_vec a, f32_vec b, f32_vec c) { return _mm256_fnmadd_ps(a, b, c); }
ONS_ALWAYS f32_vec f32_times(f32_vec a, f32_vec factor, f32_vec low) {
    return _mm256_fmadd_ps(a, factor, _mm256_mul_ps(a, low));
}
/* `scale` has so many bits that no product lies halfway between two floats. So the product in
 * double can be made odd, and the second rounding does no harm (half.h): subtract one if it is too
 * large, then set the last bit. A power of two, 0 and inf do not change. */
ONS_ALWAYS __m128 ons_product_of_4(const float *p, double scale) {
    __m256d a = _mm256_cvtps_pd(_mm_loadu_ps(p)), by = _mm256_set1_pd(scale),
            product = _mm256_mul_pd(a, by);
    __m256i bits = _mm256_castpd_si256(product);
    __m256i rest = _mm256_castpd_si256(_mm256_fmsub_pd(a, by, product));
    __m256i less = _mm256_sub_epi64(bits, _mm256_srli_epi64(_mm256_xor_si256(bits, rest), 63));
    __m256d odd = _mm256_castsi256_pd(_mm256_or_si256(less, _mm256_set1_epi64x(1)));
    __m256i fraction = _mm256_and_si256(bits, _mm256_set1_epi64x(0xfffffffffffff));
    __m256i stays = _mm256_cmpeq_epi64(fraction, _mm256_setzero_si256());
    return _mm256_cvtpd_ps(_mm256_blendv_pd(odd, product, _mm256_castsi256_pd(stays)));
}
ONS_ALWAYS f32_vec f32_product(const float *p, double scale) {
    __m128 low = ons_product_of_4(p, scale), high = ons_product_of_4(p + 4, scale);
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
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
enum { f32_beside = 1, f64_beside = 4 };
ONS_ALWAYS f32_vec f32_power(f32_vec t) {
    __m256i bits = _mm256_castps_si256(t);
    __m256i table = _mm256_loadu_si256((const __m256i *)(const void *)ONS_POWERS);
    __m256i fraction = _mm256_permutevar8x32_epi32(table, bits);
    return _mm256_castsi256_ps(_mm256_add_epi32(fraction, _mm256_slli_epi32(bits, 20)));
}

ONS_ALWAYS f64_vec f64_set(double a) { return _mm256_set1_pd(a); }
ONS_ALWAYS f64_vec f64_load(const double *p) { return _mm256_loadu_pd(p); }
ONS_ALWAYS void f64_store(double *p, f64_vec a) { _mm256_storeu_pd(p, a); }
ONS_ALWAYS void f64_stream(double *p, f64_vec a) { _mm256_stream_pd(p, a); }
ONS_ALWAYS void f64_fence(void) { _mm_sfence(); }
ONS_ALWAYS f64_vec f64_load_part(const double *p, int64_t k) {
    __m256i first = f64_first(k);
    return _mm256_blendv_pd(_mm256_set1_pd(-INFINITY), _mm256_maskload_pd(p, first),
                            _mm256_castsi256_pd(first));
}
ONS_ALWAYS void f64_store_part(double *p, f64_vec a, int64_t k) {
    _mm256_maskstore_pd(p, f64_first(k), a);
}
ONS_ALWAYS f64_vec f64_join(f64_vec a, f64_vec b, int64_t k) {
    return _mm256_blendv_pd(b, a, _mm256_castsi256_pd(f64_first(k)));
}
ONS_ALWAYS f64_vec f64_where(const char *where, f64_vec a, f64_vec b) {
    int32_t four;
    memcpy(&four, where, sizeof four);
    __m256i bytes = _mm256_cvtepi8_epi64(_mm_cvtsi32_si128(four));
    __m256i out = _mm256_cmpeq_epi64(bytes, _mm256_setzero_si256());
    return _mm256_blendv_pd(a, b, _mm256_castsi256_pd(out));
}
ONS_ALWAYS f64_vec f64_held(f64_vec a) { return a; }
ONS_ALWAYS f64_vec f64_max(f64_vec a, f64_vec b) { return _mm256_max_pd(a, b); }
ONS_ALWAYS f64_vec f64_min(f64_vec a, f64_vec b) { return _mm256_min_pd(a, b); }
ONS_ALWAYS f64_vec f64_nan_or(f64_vec so_far, f64_vec a, f64_vec b) {
    return _mm256_or_pd(so_far, _mm256_cmp_pd(a, b, _CMP_UNORD_Q));
}
ONS_ALWAYS double f64_max_lanes(f64_vec a) {
    __m128d two = _mm_max_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_max_sd(two, _mm_unpackhi_pd(two, two)));
}
ONS_ALWAYS bool f64_any_nan(f64_vec so_far) { return _mm256_movemask_pd(so_far) != 0; }
ONS_ALWAYS f64_vec f64_between(f64_vec a, f64_vec low, f64_vec high) {
    f64_vec size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), a);
    f64_vec above = _mm256_cmp_pd(size, low, _CMP_GT_OQ);
    f64_vec below = _mm256_cmp_pd(size, high, _CMP_LT_OQ);
    return _mm256_and_pd(a, _mm256_and_pd(above, below));
}
ONS_ALWAYS unsigned f64_above(f64_vec a, f64_vec b) {
    return (unsigned)_mm256_movemask_pd(_mm256_cmp_pd(b, a, _CMP_NGE_UQ));
}
ONS_ALWAYS f64_vec f64_add_above(f64_vec counts, f64_vec a, f64_vec b) {
    __m256i above = _mm256_castpd_si256(_mm256_cmp_pd(a, b, _CMP_NLE_UQ)); /* -1 */
    return _mm256_castsi256_pd(_mm256_sub_epi64(_mm256_castpd_si256(counts), above));
}
ONS_ALWAYS bool f64_any_outside(f64_vec a, f64_vec b) {
    __m256d size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), a);
    return _mm256_movemask_pd(_mm256_cmp_pd(size, b, _CMP_GT_OQ)) != 0;
}
ONS_ALWAYS f64_vec f64_fma(f64_vec a, f64_vec b, f64_vec c) { return _mm256_fmadd_pd(a, b, c); }
ONS_ALWAYS f64_vec f64_fnma(f64_vec a, f64_vec b, f64_vec c) { return _mm256_fnmadd_pd(a, b, c); }
ONS_ALWAYS f64_vec f64_times(f64_vec a, f64_vec factor, f64_vec low) {
    return _mm256_fmadd_pd(a, factor, _mm256_mul_pd(a, low));
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
    return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(t), 52));
}

ONS_ALWAYS __m256d ons_low_half(__m256 a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
ONS_ALWAYS __m256d ons_high_half(__m256 a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
ONS_ALWAYS void f32_add_lanes(f64_vec *eight, const f32_vec *lanes) {
    eight[0] = _mm256_add_pd(ons_low_half(lanes[0]), ons_low_half(lanes[1]));
    eight[1] = _mm256_add_pd(ons_high_half(lanes[0]), ons_high_half(lanes[1]));
}
ONS_ALWAYS void f64_add_lanes(f64_vec *eight, const f64_vec *lanes) {
    eight[0] = lanes[0];
    eight[1] = lanes[1];
}
/* adds l and l + 4, then l and l + 2, then the last two */
ONS_ALWAYS double f64_sum_eight(const f64_vec *eight) {
    f64_vec four = eight[0] + eight[1];
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/* Four elements of each of 8 rows. Each vector has rows i and i + 4; then their 128-bit parts are
 * transposed. */
ONS_ALWAYS void ons_transpose_parts(f32_vec *a) {
    __m256d b[4];
    for (int i = 0; i < 2; i++) { /* of rows 2 i and 2 i + 1: elements 0 and 1, then 2 and 3 */
        b[i] = _mm256_castps_pd(_mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]));
        b[i + 2] = _mm256_castps_pd(_mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]));
    }
    for (int i = 0; i < 4; i += 2) {
        a[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(b[i], b[i + 1]));
        a[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(b[i], b[i + 1]));
    }
}
ONS_ALWAYS __m128 ons_four_at(const char *p) {
    return _mm_loadu_ps((const float *)(const void *)p);
}
ONS_ALWAYS void f32_load_columns(f32_vec *columns, const char *x, int64_t across) {
    for (int i = 0; i < 4; i++) {
        __m256 rows = _mm256_castps128_ps256(ons_four_at(x + i * across));
        columns[i] = _mm256_insertf128_ps(rows, ons_four_at(x + (i + 4) * across), 1);
    }
    ons_transpose_parts(columns);
}
ONS_ALWAYS void f32_store_columns(float *y, int64_t pitch, const f32_vec *columns) {
    f32_vec rows[4] = {columns[0], columns[1], columns[2], columns[3]};
    ons_transpose_parts(rows);
    for (int i = 0; i < 4; i++) _mm_storeu_ps(y + i * pitch, _mm256_castps256_ps128(rows[i]));
    y += 4 * pitch;
    for (int i = 0; i < 4; i++) _mm_storeu_ps(y + i * pitch, _mm256_extractf128_ps(rows[i], 1));
}
/* Transposes the doubles of 4 rows. */
ONS_ALWAYS void ons_transpose_doubles(f64_vec *a) {
    f64_vec even0 = _mm256_unpacklo_pd(a[0], a[1]), odd0 = _mm256_unpackhi_pd(a[0], a[1]);
    f64_vec even1 = _mm256_unpacklo_pd(a[2], a[3]), odd1 = _mm256_unpackhi_pd(a[2], a[3]);
    a[0] = _mm256_permute2f128_pd(even0, even1, 0x20);
    a[1] = _mm256_permute2f128_pd(odd0, odd1, 0x20);
    a[2] = _mm256_permute2f128_pd(even0, even1, 0x31);
    a[3] = _mm256_permute2f128_pd(odd0, odd1, 0x31);
}
ONS_ALWAYS void f64_load_columns(f64_vec *columns, const char *x, int64_t across) {
    for (int i = 0; i < 4; i++)
        columns[i] = _mm256_loadu_pd((const double *)(const void *)(x + i * across));
    ons_transpose_doubles(columns);
}
ONS_ALWAYS void f64_store_columns(double *y, int64_t pitch, const f64_vec *columns) {
    f64_vec rows[4] = {columns[0], columns[1], columns[2], columns[3]};
    ons_transpose_doubles(rows);
    for (int i = 0; i < 4; i++) _mm256_storeu_pd(y + i * pitch, rows[i]);
}

/* Merges the lanes of each of 4 rows into one: lanes l and l + 2, then the last two. */
ONS_ALWAYS f64_vec ons_merge_rows(const f64_vec *a, f64_vec (*merge)(f64_vec, f64_vec)) {
    f64_vec two[2];
    for (int k = 0; k < 2; k++) /* rows k and k + 2 */
        two[k] = merge(_mm256_permute2f128_pd(a[k], a[k + 2], 0x20),
                       _mm256_permute2f128_pd(a[k], a[k + 2], 0x31));
    return merge(_mm256_unpacklo_pd(two[0], two[1]), _mm256_unpackhi_pd(two[0], two[1]));
}
ONS_ALWAYS f64_vec ons_sum_of_two(f64_vec a, f64_vec b) { return a + b; }
ONS_ALWAYS f64_vec f64_sum_rows(f64_vec (*eight)[2]) {
    f64_vec sums[4];
    for (int i = 0; i < 4; i++) sums[i] = eight[i][0] + eight[i][1];
    return ons_merge_rows(sums, ons_sum_of_two);
}
ONS_ALWAYS f64_vec f64_max_rows(const f64_vec *a) { return ons_merge_rows(a, f64_max); }
ONS_ALWAYS f32_vec f32_max_rows(const f32_vec *a) {
    f32_vec two[4], four[2];
    for (int k = 0; k < 4; k++) {
        f32_vec low = a[2 * k], high = a[2 * k + 1];
        two[k] = f32_max(_mm256_unpacklo_ps(low, high), _mm256_unpackhi_ps(low, high));
    }
    for (int k = 0; k < 2; k++) {
        __m256d low = _mm256_castps_pd(two[2 * k]), high = _mm256_castps_pd(two[2 * k + 1]);
        four[k] = f32_max(_mm256_castpd_ps(_mm256_unpacklo_pd(low, high)),
                          _mm256_castpd_ps(_mm256_unpackhi_pd(low, high)));
    }
    return f32_max(_mm256_permute2f128_ps(four[0], four[1], 0x20),
                   _mm256_permute2f128_ps(four[0], four[1], 0x31));
}

ONS_ALWAYS void f32_widen(f64_vec *parts, f32_vec a) {
    parts[0] = ons_low_half(a);
    parts[1] = ons_high_half(a);
}
ONS_ALWAYS f32_vec f32_narrow(const f64_vec *parts) {
    __m256 low = _mm256_castps128_ps256(_mm256_cvtpd_ps(parts[0]));
    return _mm256_insertf128_ps(low, _mm256_cvtpd_ps(parts[1]), 1);
}
ONS_ALWAYS void f64_widen(f64_vec *part, f64_vec a) { *part = a; }
ONS_ALWAYS f64_vec f64_narrow(const f64_vec *part) { return *part; }
ONS_ALWAYS f64_vec f64_rest(f64_vec a, f64_vec b, f64_vec c) { return f64_fnma(a, b, c); }

ONS_ALWAYS f32_vec f32_load_half(const char *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
ONS_ALWAYS void f32_store_half(char *p, f32_vec a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
ONS_ALWAYS f32_vec f32_load_bfloat(const char *p) {
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
/* bits + 0x7fff + the lowest bit that stays: the high half of the result is rounded to even. */
ONS_ALWAYS __m256i ons_even(__m256i bits) {
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}
ONS_ALWAYS void ons_store_high_halves(char *p, __m256i a) {
    const __m256i high = _mm256_set1_epi64x(0x0f0e0b0a07060302); /* of four elements */
    __m256i halves = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(a, high), 0x08);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(halves));
}
/* A quotient is not negative, or it is NaN. The bits of any NaN are above 0x7fff0000, which is a
 * NaN. */
ONS_ALWAYS void f32_store_quotient_bfloat(char *p, f32_vec a) {
    __m256i largest = _mm256_set1_epi32(0x7fff0000);
    ons_store_high_halves(p, ons_even(_mm256_min_epu32(_mm256_castps_si256(a), largest)));
}
/* Makes NaN quiet, as ons_float_to_bfloat, for eight at a time. */
ONS_ALWAYS void f32_store_bfloat(char *p, f32_vec a) {
    __m256i bits = _mm256_castps_si256(a),
            quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    ons_store_high_halves(p, _mm256_blendv_epi8(ons_even(bits), quiet, nan));
}

#endif
