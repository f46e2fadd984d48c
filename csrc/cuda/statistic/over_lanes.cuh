/* over_lanes.cuh - maxima and sums over the LANES lanes of a warp that share a row; LANES is a
 * power of two. fixed_sum adds in fixed point. long_sum also keeps what its additions round
 * away. */
#ifndef ONS_OVER_LANES_CUH
#define ONS_OVER_LANES_CUH

#include "../kernel/shapes.h"
#include "exponential.cuh"

__device__ inline int warp_of_block() { return threadIdx.x / WARP; }
__device__ inline int warps_of_block() { return blockDim.x / WARP; }

/* Elements in a chunk: 16 bytes of the arithmetic's type. */
template <typename Real>
constexpr int CHUNK = 16 / sizeof(Real);

/* The first chunk of this lane, if the lanes of warps share a row, K chunks a lane. The part of the
 * row's warp number `warp` is K * 32 chunks, and a lane has every 32nd of them. */
template <int K>
__device__ inline int chunk_of_lane(int warp) {
    return warp * (K * WARP) + threadIdx.x % WARP;
}

__device__ inline float larger(float a, float b) {
#if __CUDA_ARCH__ >= 800
    float m;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
    return m;
#else
    return a >= b || isnan(a) ? a : b;
#endif
}
__device__ inline double larger(double a, double b) { return ons_larger(a, b); }

/* A long sum, and the part that it rounded away (two-sum: Knuth, TAOCP 2, 4.2.2, theorem B). */
template <typename Real>
struct long_sum {
    Real d = 0, d_low = 0;

    __device__ void add(Real term) {
        Real sum = d + term, other = sum - d;
        d_low += (d - (sum - other)) + (term - other);
        d = sum;
    }

    /* If d is inf, d_low is NaN. */
    __device__ Real rounded() const { return isfinite(d) ? d + d_low : d; }
};

#if __CUDA_ARCH__ >= 800
/* An int in the order of the floats, NaN last, so one instruction reduces a warp. larger() returns
 * only the positive NaN. */
__device__ inline int in_order(float v) {
    int bits = __float_as_int(v);
    return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ inline float out_of_order(int ordered) {
    return __int_as_float(ordered ^ (ordered >> 31 & 0x7fffffff));
}

__device__ inline float max_of_warp(float v) {
    return out_of_order(__reduce_max_sync(~0u, in_order(v)));
}
#endif

template <int LANES, typename Real>
__device__ inline Real max_over_lanes(Real v) {
#if __CUDA_ARCH__ >= 800
    if constexpr (LANES == WARP && sizeof(Real) == sizeof(float)) return max_of_warp(v);
#endif
    if constexpr (LANES > 1) {
        v = larger(v, __shfl_xor_sync(~0u, v, LANES / 2));
        v = max_over_lanes<LANES / 2>(v);
    }
    return v;
}

template <int LANES>
__device__ inline int count_over_lanes(int v) {
#if __CUDA_ARCH__ >= 800
    if constexpr (LANES == WARP) return __reduce_add_sync(~0u, v);
#endif
    if constexpr (LANES > 1) {
        v += __shfl_xor_sync(~0u, v, LANES / 2);
        v = count_over_lanes<LANES / 2>(v);
    }
    return v;
}

/* A sum in fixed point of numbers between 0 and 128; the sum stays below 2^16. Adding ONES or PARTS
 * to a number leaves its digits in the low bits. Each number is rounded to 2^-38, and the order of
 * the additions does not matter. value() rounds twice more. */
class fixed_sum {
   public:
    fixed_sum() = default;
    __device__ fixed_sum(int high_, int low_) : high(high_), low(low_) {}

    __device__ void add(float v) {
        const float ones = v + ONES, parts = (v - (ones - ONES)) + PARTS;
        high += __float_as_int(ones) - __float_as_int(ONES);
        low += __float_as_int(parts) - __float_as_int(PARTS);
    }

    __device__ void operator+=(const fixed_sum &other) {
        high += other.high;
        low += other.low;
    }

    __device__ int2 digits() const { return {high, low}; }

    template <int LANES>
    __device__ fixed_sum over_lanes() const {
        return {count_over_lanes<LANES>(high), count_over_lanes<LANES>(low)};
    }

    /* The same sum with low digits from 0 to below 2^23. What is above goes to the high digits. The
     * digits of each number are within 2^22 of 0, so an int holds the sum of 511 numbers. With more
     * numbers, carry in between. A carried sum has only one representation, in whatever order it
     * was added up. 2^8 carried sums can be added. */
    __device__ fixed_sum carried() const { return {high + (low >> 23), low & ((1 << 23) - 1)}; }

    __device__ float value() const { return fmaf((float)low, 0x1p-38f, (float)high * 0x1p-15f); }

   private:
    static constexpr float ONES = 0x1.8p8f, PARTS = 0x1.8p-15f; /* multiples of 2^-15, of 2^-38 */
    int high = 0, low = 0;
};

template <int LANES>
__device__ inline float sum_over_lanes(float v) {
    fixed_sum sum;
    sum.add(v);
    return sum.over_lanes<LANES>().value();
}

template <int LANES>
__device__ inline double sum_over_lanes(double v) {
    long_sum<double> sum;
    sum.d = v;
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) {
        sum.d_low += __shfl_xor_sync(~0u, sum.d_low, lanes);
        sum.add(__shfl_xor_sync(~0u, sum.d, lanes));
    }
    return sum.rounded();
}

#endif
