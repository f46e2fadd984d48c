/* sum_in_double.cuh - the sum of a row for an operation that takes a gradient: of products of two
 * numbers, or of numbers of either sign. The sum is a double. Products of float are exact in
 * double. A product of doubles, and a sum of them, is two doubles (Ogita, Rump and Oishi, Accurate
 * sum and dot product, algorithm 5.3). So cancellation does not show in the results. */
#ifndef ONS_SUM_IN_DOUBLE_CUH
#define ONS_SUM_IN_DOUBLE_CUH

#include "over_lanes.cuh"

template <typename Real>
struct sum_in_double;

/* Common functions of both specializations. Both are parts (parts.cuh). */
template <typename Sum>
struct sum_part {
    template <int LANES>
    __device__ Sum over_lanes() const {
        Sum sum = *(const Sum *)this;
#pragma unroll
        for (int lanes = LANES / 2; lanes > 0; lanes /= 2) sum.add(sum.of_lane_across(lanes));
        return sum;
    }
    /* Merges any number of parts. */
    __device__ static Sum by_warp(const Sum *parts, int count) {
        Sum sum;
#pragma unroll 1
        for (int i = threadIdx.x % WARP; i < count; i += WARP) sum.add(parts[i]);
        return sum.template over_lanes<WARP>();
    }
    __device__ Sum value() const { return *(const Sum *)this; }
};

template <>
struct sum_in_double<float> : sum_part<sum_in_double<float>> {
    double d = 0;

    sum_in_double() = default;
    __device__ explicit sum_in_double(double d_) : d(d_) {}

    template <bool PRODUCT>
    __device__ void add(float x, float y) {
        d = PRODUCT ? fma((double)x, (double)y, d) : d + (double)x;
    }
    __device__ void add(const sum_in_double &other) { d += other.d; }
    __device__ sum_in_double of_lane_across(int lanes) const {
        return sum_in_double(__shfl_xor_sync(~0u, d, lanes));
    }
    __device__ sum_in_double of_lane(int lane) const {
        return sum_in_double(__shfl_sync(~0u, d, lane));
    }
    __device__ double rounded() const { return d; }

    /* The sum and what it rounded away, as the two doubles that callers exchange. */
    __device__ void put(double *two) const { two[0] = d, two[1] = 0; }
    __device__ static sum_in_double from(const double *two) {
        return sum_in_double(isfinite(two[0]) ? two[0] + two[1] : two[0]);
    }
};

template <>
struct sum_in_double<double> : sum_part<sum_in_double<double>> {
    double d = 0, d_low = 0;

    sum_in_double() = default;
    __device__ sum_in_double(double d_, double d_low_) : d(d_), d_low(d_low_) {}

    template <bool PRODUCT>
    __device__ void add(double x, double y) {
        if constexpr (PRODUCT) {
            const double product = __dmul_rn(x, y);
            add(sum_in_double{product, fma(x, y, -product)});
        } else {
            add(sum_in_double{x, 0});
        }
    }
    /* Two-sum (Knuth, TAOCP 2, 4.2.2, theorem B). Exchanging the two sums gives the same bits. */
    __device__ void add(const sum_in_double &other) {
        const double sum = __dadd_rn(d, other.d), part = sum - d;
        d_low = (d_low + other.d_low) + ((d - (sum - part)) + (other.d - part));
        d = sum;
    }
    __device__ sum_in_double of_lane_across(int lanes) const {
        return {__shfl_xor_sync(~0u, d, lanes), __shfl_xor_sync(~0u, d_low, lanes)};
    }
    __device__ sum_in_double of_lane(int lane) const {
        return {__shfl_sync(~0u, d, lane), __shfl_sync(~0u, d_low, lane)};
    }
    /* If the sum is infinite, d_low is NaN. */
    __device__ double rounded() const { return isfinite(d) ? d + d_low : d; }

    __device__ void put(double *two) const { two[0] = d, two[1] = d_low; }
    __device__ static sum_in_double from(const double *two) { return {two[0], two[1]}; }
};

/* The sum of n products, or of n numbers: x(i) * y(i) or x(i) for i from `begin` on. Up to 8 terms
 * are added in four chains. More terms are halved, and the sums of the halves are added. */
template <bool PRODUCT, int n, typename Real, typename X, typename Y>
__device__ __forceinline__ sum_in_double<Real> sum_as_tree_of(int begin, X x, Y y) {
    if constexpr (n > 8) {
        auto sum = sum_as_tree_of<PRODUCT, n / 2, Real>(begin, x, y);
        sum.add(sum_as_tree_of<PRODUCT, n - n / 2, Real>(begin + n / 2, x, y));
        return sum;
    } else {
        sum_in_double<Real> chain[4];
#pragma unroll
        for (int i = 0; i < n; i++) chain[i % 4].template add<PRODUCT>(x(begin + i), y(begin + i));
#pragma unroll
        for (int i = 1; i < 4 && i < n; i++) chain[0].add(chain[i]);
        return chain[0];
    }
}

#endif
