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

/* The largest relative error of a result in double. The error of a logarithm is larger than on the
 * CPU (ONS_ROUNDED_ERROR), because all threads of a row add up in one double. docs/how-it-works.md
 * adds the errors up. */
__device__ constexpr double result_error(bool log) { return log ? 0x1p-47 : ONS_ROUNDED_ERROR; }

/* The powers 2^(k / 16), in shared memory. Call ready() before a barrier of the block, and
 * power() after it. */
struct sixteenths {
    __device__ static void ready() {
        static const __constant__ unsigned long long powers[] = {ONS_SIXTEENTHS};
        if (threadIdx.x < 16) shared()[threadIdx.x] = powers[threadIdx.x];
    }
    /* 2^(n / 16) */
    __device__ static double power(int n) {
        const unsigned long long bits = shared()[n & 15];
        return __hiloint2double((int)(bits >> 32) + (n << 16), (int)bits);
    }

   private:
    __device__ static unsigned long long *shared() {
        __shared__ unsigned long long powers[16];
        return powers;
    }
};

/* The constants of e^x. Instructions read them in constant memory, so they take no registers. */
static __constant__ double ONS_EXP_OF_16[] = {16 * ONS_LOG2_E, ONS_LN2_16_HIGH, ONS_LN2_16_LOW,
#define TERM(a) a,
                                              ONS_EXP_TERMS_16(TERM)
#undef TERM
};

/* The exponentials of a row with the maximum m: e^(x - base) * 2^-c in double, near 1 for m itself.
 * Elements far below the maximum are raised to a floor, where the exponential is 2^-1000. */
struct exponentials_in_double {
    float base, floor;
    double shift;

    __device__ explicit exponentials_in_double(float m) {
        using A = arithmetic<float>;
        const bool ordinary = is_ordinary(m);
        const float c = ordinary ? A::biased_c(m) - A::MAGIC : 0;
        base = ordinary ? 0 : m;
        floor = (c - 1000) * A::LN2;
        shift = fma((double)c, -16.0, 0x1.8p52);
    }

    __device__ double operator()(float x) const { return of_difference(x - base); }

    __device__ double of_difference(float x) const {
        const double *const c = ONS_EXP_OF_16;
        const double v = (double)fmaxf(x, floor), t = fma(v, c[0], shift), n = t - shift;
        const double r = fma(-n, c[2], fma(-n, c[1], v));
        double p = fma(c[3], r, c[4]);
        p = fma(fma(fma(p, r, c[5]), r, c[6]), r, c[7]);
        p = fma(r * r, p, r);
        const double power = sixteenths::power(__double2loint(t));
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

/* The sum without the largest exponentials, and the number of these. */
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

/* A row in double. `second` is 1 / d for softmax, and log(d) for the other operations. */
struct row_in_double {
    exponentials_in_double exponential;
    double m, second;
};

/* ------- Few rows need the functions from here on. Their elements are in local memory. The
 * functions are called, and not inlined, so that the code of other rows keeps its registers. Rows
 * are passed by value: given their address, nvcc 13 once put a row and the results at the same
 * place ------- */

static __device__ __noinline__ sum_apart add_apart(exponentials_in_double exponential, double top,
                                                   sum_apart sum, const float *x, int n) {
    for (int i = 0; i < n; i++) {
        const double e = exponential(x[i]);
        if (e >= top)
            sum.n += 1;
        else
            sum.s += e;
    }
    return sum;
}
static __device__ __noinline__ ons_two_row add_in_two(ons_two_row row, const float *x, int n) {
    for (int i = 0; i < n; i++) ons_two_row_add(&row, (double)x[i]);
    return row;
}
template <typename Team>
static __device__ __noinline__ ons_two_row whole_in_two(Team team, ons_two_row mine) {
    sum_in_two sum;
    sum.s = mine.s, sum.n = mine.n, sum.below = mine.below;
    sum = team.near(sum);
    mine.s = sum.s, mine.n = sum.n, mine.below = sum.below != 0;
    ons_two_row_end(&mine);
    return mine;
}
static __device__ __noinline__ float value_in_two(ons_two_row row, ons_dtype to) {
    return (float)ons_two_logsumexp(&row, ons_rounding_to(to));
}
/* The last two replace the results that are NaN. */
static __device__ __noinline__ void decide_in_two(ons_two_row row, const float *x, float *y, int n,
                                                  ons_dtype to, bool log) {
    const ons_rounding rounding = ons_rounding_to(to);
    for (int i = 0; i < n; i++)
        if (isnan(y[i]))
            y[i] = (float)(log ? ons_two_log_softmax(&row, (double)x[i], rounding)
                               : ons_two_softmax(&row, (double)x[i], rounding));
}
/* Decides the results that are marked. Returns whether a double cannot, and leaves NaN there. */
static __device__ __noinline__ bool decide_in_double(exponentials_in_double exponential, double m,
                                                     double second, const float *x, float *y,
                                                     const unsigned *marks, int n, ons_dtype to,
                                                     bool log) {
    const ons_rounding rounding = ons_rounding_to(to);
    bool undecided = false;
    for (int i = 0; i < n; i++) {
        if ((marks[i / 2] >> i % 2 * 16 & 0x7fff) == 0) continue;
        const double v =
            log ? log_result(fmax((double)x[i], -0x1p130), m, second) : exponential(x[i]) * second;
        y[i] = (float)ons_decided(v, result_error(log) * fabs(v), rounding);
        undecided |= isnan(y[i]);
    }
    return undecided;
}

/* ------- Results ------- */

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

/* Fills y with the results v * factor of n elements. The store rounds them to TO. Each half of a
 * word of `marks` belongs to one result. It is not 0 if an error may change the rounded result. A
 * 16-bit result is a float here. Both neighbours of this float must round to the same number.
 * Returns whether there is a mark. */
template <bool LOG, ons_dtype TO, int n>
__device__ __forceinline__ bool rounded_to(const double (&v)[n], double factor, float (&y)[n],
                                           unsigned (&marks)[n / 2]) {
    unsigned any = 0;
    const double low = factor * (1 - result_error(LOG)), high = factor * (1 + result_error(LOG));
#pragma unroll
    for (int i = 0; i < n; i += 2) {
        if constexpr (TO == ONS_FLOAT32) {
#pragma unroll
            for (int j = i; j < i + 2; j++) {
                y[j] = (float)(v[j] * low);
                any |= y[j] != (float)(v[j] * high);
            }
            marks[i / 2] = ~0u;
        } else {
            const float least = -0x1p-149f, a = (float)(v[i] * factor),
                        b = (float)(v[i + 1] * factor);
            marks[i / 2] = (both_in_16_bits<TO>(__fadd_rd(a, least), __fadd_rd(b, least)) ^
                            both_in_16_bits<TO>(__fadd_ru(a, -least), __fadd_ru(b, -least))) &
                           0x7fff7fff;
            any |= marks[i / 2];
            y[i] = a, y[i + 1] = b;
        }
        if (LOG) y[i] = without_minus_0<TO>(y[i]), y[i + 1] = without_minus_0<TO>(y[i + 1]);
    }
    return any != 0;
}
template <bool LOG, int n>
__device__ __forceinline__ bool rounded(ons_dtype to, const double (&v)[n], double factor,
                                        float (&y)[n], unsigned (&marks)[n / 2]) {
    switch (to) {
    case ONS_FLOAT16: return rounded_to<LOG, ONS_FLOAT16>(v, factor, y, marks);
    case ONS_BFLOAT16: return rounded_to<LOG, ONS_BFLOAT16>(v, factor, y, marks);
    default: return rounded_to<LOG, ONS_FLOAT32>(v, factor, y, marks);
    }
}

#endif
