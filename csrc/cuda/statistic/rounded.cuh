/* rounded.cuh - the exact results of a row, rounded once (api/rounding.h): its sum in double,
 * results that a double decides, and the sum in two doubles for the other results. Elements are
 * floats. */
#ifndef ONS_ROUNDED_CUH
#define ONS_ROUNDED_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../../api/rounding.h"
#include "operations.cuh"
#include "sum_in_double.cuh"

/* The largest relative errors of a result in double, and of a logarithm. docs/how-it-works.md adds
 * the errors up. */
constexpr double ERROR_OF_QUOTIENT = 28 * 0x1p-53, ERROR_OF_LOG = 42 * 0x1p-53;

/* The bits of the powers 2^(k / 32), less k * 2^47. */
static __device__ const unsigned long long ONS_POWERS[WARP] = {
    0x3ff0000000000000, 0x3fefd9b0d3158574, 0x3fefb5586cf9890f, 0x3fef9301d0125b51,
    0x3fef72b83c7d517b, 0x3fef54873168b9aa, 0x3fef387a6e756238, 0x3fef1e9df51fdee1,
    0x3fef06fe0a31b715, 0x3feef1a7373aa9cb, 0x3feedea64c123422, 0x3feece086061892d,
    0x3feebfdad5362a27, 0x3feeb42b569d4f82, 0x3feeab07dd485429, 0x3feea47eb03a5585,
    0x3feea09e667f3bcd, 0x3fee9f75e8ec5f74, 0x3feea11473eb0187, 0x3feea589994cce13,
    0x3feeace5422aa0db, 0x3feeb737b0cdc5e5, 0x3feec49182a3f090, 0x3feed503b23e255d,
    0x3feee89f995ad3ad, 0x3feeff76f2fb5e47, 0x3fef199bdd85529c, 0x3fef3720dcef9069,
    0x3fef5818dcfba487, 0x3fef7c97337b9b5f, 0x3fefa4afa2a490da, 0x3fefd0765b6e4540};

/* 2^(n / 32) from the bits of entry n % 32. */
__device__ inline double power_from(int high, int low, int n) {
    return __hiloint2double(high + (n << 15), low);
}

struct powers_in_memory {
    __device__ double operator()(int n) const {
        const unsigned long long bits = ONS_POWERS[n & (WARP - 1)];
        return power_from((int)(bits >> 32), (int)bits, n);
    }
};

/* Call ready() before a barrier of the block. */
struct powers_in_shared_memory {
    __device__ static void ready() {
        if (threadIdx.x < WARP) shared()[threadIdx.x] = ONS_POWERS[threadIdx.x];
    }
    __device__ double operator()(int n) const {
        const unsigned long long bits = shared()[n & (WARP - 1)];
        return power_from((int)(bits >> 32), (int)bits, n);
    }

   private:
    __device__ static unsigned long long *shared() {
        __shared__ unsigned long long powers[WARP];
        return powers;
    }
};

/* Each lane of a warp has an entry. The lanes take all powers together. */
struct powers_of_lanes {
    __device__ powers_of_lanes() {
        const unsigned long long bits = ONS_POWERS[threadIdx.x % WARP];
        high = (int)(bits >> 32), low = (int)bits;
    }
    __device__ double operator()(int n) const {
        return power_from(__shfl_sync(~0u, high, n), __shfl_sync(~0u, low, n), n);
    }

   private:
    int high, low;
};

/* The constants of e^x: 32 / ln2, ln2 / 32 as two numbers, and the terms of a polynomial down to
 * r^2 (python benchmarks/fit_exp.py). Instructions read them in constant memory, so they take no
 * registers. */
static __constant__ double ONS_EXP_OF_32[] = {
    32 * ONS_LOG2_E,      0x1.62e42ffp-6,       -0x1.718432a1b0e26p-40, 0x1.1110f017ad06bp-7,
    0x1.5555d16dc7407p-5, 0x1.5555555577b93p-3, 0x1.ffffffffda6fcp-2};

/* The exponentials of a row in double. With m: e^(x - base) * 2^-c, near 1 for m itself. Without:
 * e^x. Elements far below are raised to a floor, where the exponential is 2^-1000, or 2^-600
 * without m. */
struct exponentials_in_double {
    float base = 0, floor = -600 * arithmetic<float>::LN2;
    double shift = 0x1.8p52;

    exponentials_in_double() = default;
    __device__ explicit exponentials_in_double(float m) {
        using A = arithmetic<float>;
        const bool ordinary = is_ordinary(m);
        const float c = ordinary ? A::biased_c(m) - A::MAGIC : 0;
        base = ordinary ? 0 : m;
        floor = (c - 1000) * A::LN2;
        shift = fma((double)c, -32.0, shift);
    }

    template <typename Powers = powers_in_memory>
    __device__ double operator()(float x, const Powers &powers = {}) const {
        return of_difference(x - base, powers);
    }

    template <typename Powers = powers_in_memory>
    __device__ double of_difference(float x, const Powers &powers = {}) const {
        const double *const c = ONS_EXP_OF_32;
        const double v = (double)fmaxf(x, floor), t = fma(v, c[0], shift), n = t - shift;
        const double r = fma(-n, c[2], fma(-n, c[1], v));
        double p = fma(c[3], r, c[4]);
        p = fma(fma(p, r, c[5]), r, c[6]);
        p = fma(r * r, p, r);
        const double power = powers(__double2loint(t));
        return fma(power, p, power);
    }
};

/* The factor that moves a sum from the reference of `from` to the reference of `to`. `to` is not
 * smaller. The factor is 0 if it is so small that the sum does not matter. It is NaN if it would
 * not be accurate. A double then decides no result. */
__device__ inline double factor_in_double(float from, float to) {
    using A = arithmetic<float>;
    if (to - from > 700) return 0;
    if (is_ordinary(from) && is_ordinary(to))
        return __hiloint2double((1023 + A::difference(A::biased_c(from), A::biased_c(to))) << 20,
                                0);
    if (is_ordinary(from) || is_ordinary(to)) return CUDART_NAN;
    return exponentials_in_double(to).of_difference(from - to);
}

/* The number n of elements that are equal to m, and the sum s of the other exponentials. All
 * threads of the row have its m. */
struct sum_apart : sum_part<sum_apart> {
    double s = 0, n = 0;

    __device__ void add(const sum_apart &other) { s += other.s, n += other.n; }
    __device__ sum_apart of_lane_across(int lanes) const {
        sum_apart other;
        other.s = __shfl_xor_sync(~0u, s, lanes), other.n = __shfl_xor_sync(~0u, n, lanes);
        return other;
    }
};

/* The sums of a row in two doubles. All threads have its m. */
struct sum_in_two : sum_part<sum_in_two> {
    ons_two s = {0.0, 0.0};
    double n = 0;
    int below = 0;

    __device__ void add(const sum_in_two &other) {
        s = ons_two_add(s, other.s);
        n += other.n;
        below |= other.below;
    }
    __device__ sum_in_two of_lane_across(int lanes) const {
        sum_in_two other;
        other.s.high = __shfl_xor_sync(~0u, s.high, lanes);
        other.s.low = __shfl_xor_sync(~0u, s.low, lanes);
        other.n = __shfl_xor_sync(~0u, n, lanes);
        other.below = __shfl_xor_sync(~0u, below, lanes);
        return other;
    }
};

/* A result of log_softmax. */
__device__ inline double log_result(double x, double m, double log) { return (x - m) - log; }

/* log(1 + x) for x >= 0, with all digits of a small x. It calls no function, so the elements keep
 * their registers. */
__device__ inline double log_of_1_and(double x) {
    const bool near = x < 0.4;
    double z;
    const double n = split_power(1 + x, &z);
    const double f = near ? x / (2 + x) : (z - 1) / (z + 1), log = log_of_ratio(f);
    return near ? log : fma(n, arithmetic<double>::LN2, fma(n, arithmetic<double>::LN2_LOW, log));
}

/* log(d) from the row's state. */
__device__ inline double log_of(const ons_two_row &row) {
    return log_of_1_and((row.n - 1) + row.s.high);
}

/* log(d) with an absolute error: if d is near 1, digits of it are lost. */
__device__ inline double log_of(double d) {
    double z;
    const double n = split_power(d, &z), log = log_of_ratio((z - 1) / (z + 1));
    return fma(n, arithmetic<double>::LN2, fma(n, arithmetic<double>::LN2_LOW, log));
}

/* A row in double. The exponentials are relative to m. `second` is 1 / d for softmax, and log(d)
 * for the other operations. These have the relative error `relative`, and an absolute error. */
struct row_in_double {
    exponentials_in_double exponential;
    double m, second = 0, relative = ERROR_OF_LOG, error = 0;

    __device__ row_in_double() : m(0) {} /* relative to 0 */
    __device__ explicit row_in_double(float m_) : exponential(m_), m(m_) {}
    /* The same row with its sum. */
    __device__ row_in_double of(const ons_two_row &sum, bool log) const {
        row_in_double row = *this;
        row.second = log ? log_of(sum) : 1 / (ons_two_row_d(&sum) * exponential(row.m));
        return row;
    }
    /* Takes log(d) that was found from d, relative to 0. */
    __device__ void take_log(double log) {
        second = log;
        relative = 4 * 0x1p-53;
        error = fma(fabs(log), 1.25 * 0x1p-53, 23 * 0x1p-53);
    }
};

/* A sum of e^x needs elements below LARGEST_FOR_SUM, and must be above LEAST_SUM. Then no
 * exponential overflows, elements at the floor do not matter, and no product with 1 / d is 0.
 * log(d) then has an absolute error of ERROR_OF_LOG * (1 + |log(d)|). */
constexpr float LARGEST_FOR_SUM = 260;
constexpr double LEAST_SUM = 0x1p-300;

/* ------- Results ------- */

/* A number near 0 is rounded to +0, not to -0. */
template <ons_dtype TO>
__device__ inline float without_minus_0(float v) {
    if constexpr (TO == ONS_FLOAT16)
        return v > -0x1p-25f ? 0 : v;
    else if constexpr (TO == ONS_BFLOAT16)
        return v > -0x1p-134f ? 0 : v;
    else
        return v + 0.0f;
}

/* The float towards 0 from v, with its last bit set, or an infinity. Rounded to 16 bits, it gives
 * what v gives: the numbers halfway between two results end in zeros. */
__device__ inline float to_odd(double v) {
    const unsigned odd = __float_as_uint(__double2float_rz(v)) | 1;
    return __uint_as_float(min(odd, 0xff800000));
}

/* Both numbers, rounded to 16 bits. */
template <ons_dtype TO>
__device__ inline unsigned both_in_16_bits(float a, float b) {
    if constexpr (TO == ONS_FLOAT16) {
        const __half2 two = __floats2half2_rn(a, b);
        return *(const unsigned *)&two;
    } else {
        const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
        return *(const unsigned *)&two;
    }
}

/* Fills y with the results of n elements: v if LOG, else v / d. The store rounds them to TO.
 * Returns whether an error may change a rounded result. */
template <bool LOG, ons_dtype TO, int n>
__device__ __forceinline__ bool rounded_to(const double (&v)[n], const row_in_double &row,
                                           float (&y)[n]) {
    const double error = LOG ? row.relative : ERROR_OF_QUOTIENT, factor = LOG ? 1 : row.second,
                 less = factor * (1 - error), more = factor * (1 + error);
    auto low = [&](int i) { return LOG ? fma(v[i], less, row.error) : v[i] * less; };
    auto high = [&](int i) { return LOG ? fma(v[i], more, -row.error) : v[i] * more; };
    bool differs = false;
    if constexpr (TO == ONS_FLOAT32) {
#pragma unroll
        for (int i = 0; i < n; i++) {
            y[i] = (float)low(i);
            differs |= y[i] != (float)high(i);
        }
    } else {
        /* Results of 16 bits, and the numbers halfway between two of them, have 0 as the low word
         * of a double. So the error matters only if it changes the high word. Without LOG it is at
         * most 32 units of the low word. */
        unsigned changes = 0, least = ~0u;
#pragma unroll
        for (int i = 0; i < n; i++) {
            const double result = LOG ? low(i) : v[i] * factor;
            y[i] = to_odd(result);
            if (LOG)
                changes |= __double2hiint(result) ^ __double2hiint(high(i));
            else
                least = min(least, (unsigned)__double2loint(result) + 32);
        }
        if (LOG ? changes : least <= 64) {
#pragma unroll
            for (int i = 0; i < n; i++) {
                const unsigned both = both_in_16_bits<TO>(to_odd(low(i)), to_odd(high(i)));
                differs |= (both ^ both >> 16) & 0xffff;
            }
        }
    }
    if (LOG) {
#pragma unroll
        for (int i = 0; i < n; i++) y[i] = without_minus_0<TO>(y[i]);
    }
    return differs;
}
template <bool LOG, int n>
__device__ __forceinline__ bool rounded(ons_dtype to, const double (&v)[n],
                                        const row_in_double &row, float (&y)[n]) {
    switch (to) {
    case ONS_FLOAT16: return rounded_to<LOG, ONS_FLOAT16>(v, row, y);
    case ONS_BFLOAT16: return rounded_to<LOG, ONS_BFLOAT16>(v, row, y);
    default: return rounded_to<LOG, ONS_FLOAT32>(v, row, y);
    }
}

/* ------- Few rows need the functions from here on. Their elements are in local memory. The
 * functions are called, and not inlined, so that the code of other rows keeps its registers. Rows
 * are passed by value: given their address, nvcc 13 once put a row and the results at the same
 * place ------- */

/* Fills y with the results of n elements. Where a double cannot decide, y is NaN. Returns whether
 * there is such a result. n is a multiple of AT_ONCE: the elements that a thread computes at once,
 * since an instruction waits for the one before. */
template <int AT_ONCE>
static __device__ __noinline__ bool decide_in_double(row_in_double row, const float *x, float *y,
                                                     int n, ons_dtype to, bool log) {
    bool undecided = false;
#pragma unroll 1
    for (int first = 0; first < n; first += AT_ONCE) {
        double v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const float at = x[first + i];
            v[i] = log ? log_result(fmax((double)at, -0x1p130), row.m, row.second)
                       : row.exponential(at);
        }
        float results[AT_ONCE];
        const bool marked =
            log ? rounded<true>(to, v, row, results) : rounded<false>(to, v, row, results);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (marked) {
                const double whole = log ? v[i] : v[i] * row.second,
                             error = log ? row.relative : ERROR_OF_QUOTIENT;
                results[i] =
                    (float)ons_decided(whole, error * fabs(whole) + row.error, ons_rounding_to(to));
            }
            y[first + i] = results[i];
            undecided |= isnan(results[i]);
        }
    }
    return undecided;
}

/* ln(2^(k / 32) / its double) */
static __device__ const float ONS_POWERS_REST[WARP] = {
    0x0.0p+0f,        0x1.cd2524p-55f,  0x1.79aa66p-54f,  -0x1.556522p-54f, -0x1.01b15ep-55f,
    0x1.aecf74p-54f,  0x1.68efdep-54f,  0x1.2f7e16p-55f,  0x1.34d754p-55f,  -0x1.24aedcp-54f,
    0x1.59f48ap-55f,  0x1.363ed6p-59f,  0x1.690cecp-56f,  -0x1.8dec6cp-56f, 0x1.063e1ep-54f,
    -0x1.c33c54p-55f, -0x1.3b3efcp-54f, -0x1.81f648p-56f, -0x1.b32dccp-56f, -0x1.369b70p-54f,
    0x1.db72fcp-55f,  -0x1.da9b88p-58f, 0x1.1affc2p-56f,  -0x1.1bbd1ep-54f, 0x1.c1a77ap-55f,
    -0x1.8d6f44p-57f, 0x1.36eae4p-56f,  0x1.76b2c6p-57f,  0x1.4a385ap-56f,  -0x1.2d5210p-55f,
    -0x1.ff7128p-55f, 0x1.a64a94p-55f};

/* e^u with a relative error of less than 2^-61, for u from ONS_TWO_LOWEST to 0. It takes a sixth of
 * the instructions of ons_two_exp. r has two doubles. e^r - 1 - r is below 2^-14, so one double has
 * enough digits for it. */
__device__ inline ons_two nearly_exp(ons_two u) {
    const double *const c = ONS_EXP_OF_32;
    const double t = fma(u.high, c[0], 0x1.8p52), n = t - 0x1.8p52;
    const ons_two second = ons_two_product(-n, c[2]),
                  r = ons_two_sum(fma(-n, c[1], u.high), second.high);
    double p = fma(0x1.6c16503a6a203p-10, r.high, 0x1.11115cf3f80c2p-7);
    p = fma(fma(fma(p, r.high, 0x1.555555558b473p-5), r.high, 0x1.5555555548798p-3), r.high,
            0x1.fffffffffffffp-2);
    const int at = __double2loint(t);
    const double power = powers_in_memory()(at), rest = ONS_POWERS_REST[at & (WARP - 1)];
    const double less = (r.low + (second.low + u.low)) + fma(rest, r.high, rest);
    const ons_two product = ons_two_product(power, r.high),
                  sum = ons_two_fast_sum(power, product.high);
    return ons_two_fast_sum(sum.high,
                            sum.low + fma(power, fma(r.high * r.high, p, less), product.low));
}
constexpr double NEARLY = 0x1p-60;

/* Adds n elements to a row in two doubles. n is a multiple of AT_ONCE. `nearly`: the sum has a
 * relative error of NEARLY. */
template <int AT_ONCE>
static __device__ __noinline__ ons_two_row add_in_two(ons_two_row row, bool nearly, const float *x,
                                                      int n) {
#pragma unroll 1
    for (int first = 0; first < n; first += AT_ONCE) {
        ons_two e[AT_ONCE];
        if (nearly) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const ons_two u = ons_two_sum((double)x[first + i], -row.m);
                const bool adds = u.high < 0 && u.high >= ONS_TWO_LOWEST;
                e[i] = nearly_exp(adds ? u : ons_two_of(0.0));
                if (!adds) e[i] = ons_two_of(0.0);
                row.n += u.high == 0;
                row.below |= u.high < ONS_TWO_LOWEST && u.high > -CUDART_INF;
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) row.s = ons_two_add(row.s, e[i]);
        } else {
            for (int i = 0; i < AT_ONCE; i++) ons_two_row_add(&row, (double)x[first + i]);
        }
    }
    return row;
}

template <typename Team>
__device__ inline ons_two_row whole_in_two(Team &team, ons_two_row mine) {
    sum_in_two sum;
    sum.s = mine.s, sum.n = mine.n, sum.below = mine.below;
    sum = team.near(sum);
    mine.s = sum.s, mine.n = sum.n, mine.below = sum.below != 0;
    ons_two_row_end(&mine);
    return mine;
}

/* The result of x in two doubles, or logsumexp if `operation` has one value a row. */
enum result_kind { SOFTMAX, LOG_SOFTMAX, LOGSUMEXP };
static __device__ __noinline__ float result_of(ons_two_row row, double x, result_kind kind,
                                               ons_dtype to) {
    const ons_rounding rounding = ons_rounding_to(to);
    return (float)(kind == SOFTMAX       ? ons_two_softmax(&row, x, rounding)
                   : kind == LOG_SOFTMAX ? ons_two_log_softmax(&row, x, rounding)
                                         : ons_two_logsumexp(&row, rounding));
}
/* The same. NaN if the error of a sum that is nearly exact may change the rounded result. */
static __device__ __noinline__ float result_in_two(ons_two_row row, bool nearly, double x,
                                                   result_kind kind, ons_dtype to) {
    ons_two_row less = row, more = row;
    const double error = nearly ? NEARLY * row.s.high : 0;
    less.s = ons_two_fast_sum(row.s.high, row.s.low - error);
    more.s = ons_two_fast_sum(row.s.high, row.s.low + error);
    const float value = result_of(less, x, kind, to);
    return !nearly || value == result_of(more, x, kind, to) ? value : CUDART_NAN_F;
}
/* Replaces the results that are NaN. Returns whether some remain. */
static __device__ __noinline__ bool decide_in_two(ons_two_row row, bool nearly, const float *x,
                                                  float *y, int n, ons_dtype to, bool log) {
    bool undecided = false;
    for (int i = 0; i < n; i++) {
        if (isnan(y[i]))
            y[i] = result_in_two(row, nearly, (double)x[i], log ? LOG_SOFTMAX : SOFTMAX, to);
        undecided |= isnan(y[i]);
    }
    return undecided;
}

#endif
