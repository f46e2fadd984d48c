/* rounded.cuh - the exact results of a row, rounded once (api/rounding.h): its sum in double,
 * results that a double decides, and the sum in two doubles for the others. Elements are floats. */
#ifndef ONS_ROUNDED_CUH
#define ONS_ROUNDED_CUH

#include "../../api/rounding.h"
#include "operations.cuh"
#include "sum_in_double.cuh"
#include "../rows/address.cuh"
#include "../rows/elements.cuh"

/* The exponentials of a row: e^(x - base) * 2^-c in double. Elements far below the maximum are
 * raised to a floor, where the exponential is 2^-1000. */
struct exponentials_in_double {
    float base, floor;
    double shift;

    __device__ explicit exponentials_in_double(const ons_rounded_row &row)
        : base((float)row.base),
          floor((float)((row.c - 1000) * (1 / ONS_LOG2_E))),
          shift(0x1.8p52 + 1023 - row.c) {}

    __device__ double operator()(float x) const {
        const double v = (double)fmaxf(x - base, floor), t = fma(v, ONS_LOG2_E, shift),
                     n = t - shift;
        const double r = fma(-n, ONS_LN2_LOW, fma(-n, ONS_LN2_HIGH, v));
        double p = 0;
#define TERM(a) p = fma(p, r, a);
        ONS_EXP_TERMS(TERM)
#undef TERM
        p = fma(r * r, p, r);
        const double power = __longlong_as_double(__double_as_longlong(t) << 52);
        return fma(power, p, power);
    }
};

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

/* What few rows need is called, with elements in local memory, so that all others stay in
 * registers. The second replaces the results that are NaN. Rows are passed by value: given their
 * address, nvcc 13 once put a row and the results at the same place. */
static __device__ __noinline__ ons_two_row add_in_two(ons_two_row row, const float *x, int n) {
    for (int i = 0; i < n; i++) ons_two_row_add(&row, (double)x[i]);
    return row;
}
static __device__ __noinline__ void decide_in_two(ons_two_row row, const float *x, float *y, int n,
                                                  ons_dtype to, bool log) {
    const ons_rounding rounding = ons_rounding_to(to);
    for (int i = 0; i < n; i++)
        if (isnan(y[i]))
            y[i] = (float)(log ? ons_two_log_softmax(&row, (double)x[i], rounding)
                               : ons_two_softmax(&row, (double)x[i], rounding));
}
static __device__ __noinline__ float value_in_two(ons_two_row row, ons_dtype to) {
    return (float)ons_two_logsumexp(&row, ons_rounding_to(to));
}
static __device__ __noinline__ float decided_in_double(double v, ons_dtype to) {
    return (float)ons_decided(v, ONS_ROUNDED_ERROR * fabs(v), ons_rounding_to(to));
}

template <ons_dtype TO>
__device__ inline float to_16_bits(float v) {
    if constexpr (TO == ONS_FLOAT16)
        return __half2float(__float2half_rn(v));
    else
        return __bfloat162float(__float2bfloat16_rn(v));
}

/* The result v of a row, rounded to TO; NaN if a double cannot decide. 0 is +0. */
template <ons_dtype TO>
__device__ inline float rounded_result(double v) {
    if constexpr (TO == ONS_FLOAT32) {
        const float low = (float)(v * (1 - ONS_ROUNDED_ERROR)),
                    high = (float)(v * (1 + ONS_ROUNDED_ERROR));
        return low == high ? low + 0.0f : CUDART_NAN_F;
    } else {
        /* At first with the error of a float. It is relative, so subnormal numbers are left out. */
        const float f = (float)v, low = to_16_bits<TO>(f * (1 - 0x1p-22f)),
                    high = to_16_bits<TO>(f * (1 + 0x1p-22f));
        const bool subnormal = TO == ONS_BFLOAT16 && f != 0 && fabsf(f) < 0x1p-125f;
        return low == high && !subnormal ? low + 0.0f : decided_in_double(v, TO);
    }
}

/* Results of n elements. Returns whether one is NaN. */
template <bool LOG, ons_dtype TO, int n>
__device__ __forceinline__ bool rounded_results_to(const ons_rounded_row &row, float (&x)[n]) {
    const exponentials_in_double exponential(row);
    bool undecided = false;
#pragma unroll
    for (int i = 0; i < n; i++) {
        const double v = LOG ? (fmax((double)x[i], -0x1p130) - row.m) - row.second
                             : exponential(x[i]) * row.second;
        x[i] = rounded_result<TO>(v);
        undecided |= isnan(x[i]);
    }
    return undecided;
}
template <bool LOG, int n>
__device__ __forceinline__ bool rounded_results(const ons_rounded_row &row, ons_dtype to,
                                                float (&x)[n]) {
    switch (to) {
    case ONS_FLOAT16: return rounded_results_to<LOG, ONS_FLOAT16>(row, x);
    case ONS_BFLOAT16: return rounded_results_to<LOG, ONS_BFLOAT16>(row, x);
    default: return rounded_results_to<LOG, ONS_FLOAT32>(row, x);
    }
}

/* The type of the results. */
__device__ inline ons_dtype type_of_results(const problem_arguments &args) {
    return args.problem.operand[ONS_Y].dtype;
}
template <typename Arguments>
__device__ inline ons_dtype type_of_results(const Arguments &args) {
    if (args.widens) return ONS_FLOAT32;
    return args.format.with([](auto type) {
        return std::is_same_v<decltype(type), __half>          ? ONS_FLOAT16
               : std::is_same_v<decltype(type), __nv_bfloat16> ? ONS_BFLOAT16
                                                               : ONS_FLOAT32;
    });
}

__device__ inline bool is_in_place(const problem_arguments &args) {
    return args.problem.operand[ONS_X].data == args.problem.operand[ONS_Y].data;
}
template <typename Arguments>
__device__ inline bool is_in_place(const Arguments &args) {
    return (const void *)args.x == args.y;
}

#endif
