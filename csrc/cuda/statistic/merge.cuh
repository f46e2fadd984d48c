/* merge.cuh - merges pairs (m, d): two pairs, the pairs of a warp's lanes, or any number of pairs
 * in memory (Milakov and Gimelshein, arXiv 1805.02867, section 3.1). */
#ifndef ONS_MERGE_CUH
#define ONS_MERGE_CUH

#include "pair.cuh"
#include "sum_in_double.cuh"

/* The state of a thread that reads a long row tile by tile. */
template <typename Real>
struct running_state {
    Real m = -arithmetic<Real>::infinity();
    long_sum<Real> sum;

    /* Makes `to` the maximum, and d relative to it. */
    __device__ void raise(Real to) {
        Real factor = rescale(m, to);
        sum.d *= factor;
        sum.d_low *= factor;
        m = to;
    }

    __device__ state<Real> rounded() const { return {m, sum.rounded()}; }
};

/* ------- Merging two pairs ------- */

/* sum_over_lanes of a warp, for numbers that are not negative, in the scale of the largest. Fixed
 * point cannot hold inf and NaN, which `naive` may give. */
__device__ inline float sum_over_warp_in_scale(float v) {
    float top = max_over_lanes<WARP>(v);
    if (!isfinite(top)) return top;
    /* Multiplied by 2^up, the largest number is between 64 and 128. If it is below 2^-120, the sum
     * counts as 0. No sum of exponentials reaches 2^121. */
    int exponent = min(__float_as_int(top) >> 23, 247), up = 133 - exponent;
    if (exponent < 7) return 0;
    return sum_over_lanes<WARP>(v * arithmetic<float>::power(up)) * arithmetic<float>::power(-up);
}
__device__ inline double sum_over_warp_in_scale(double v) { return sum_over_lanes<WARP>(v); }

template <typename Real>
__device__ inline state<Real> merge_over_lanes(state<Real> mine) {
    Real m = max_over_lanes<WARP>(mine.m);
    return {m, sum_over_warp_in_scale(mine.d * rescale(mine.m, m))};
}

/* A warp merges all parts: it finds the largest m first, so each d is rescaled once. */
template <typename Real>
__device__ inline state<Real> merge_by_warp(const state<Real> *parts, int count) {
    const int lane = threadIdx.x % WARP;
    Real m = -arithmetic<Real>::infinity();
#pragma unroll 4
    for (int i = lane; i < count; i += WARP) m = larger(m, parts[i].m);
    m = max_over_lanes<WARP>(m);
    long_sum<Real> sum;
#pragma unroll 4
    for (int i = lane; i < count; i += WARP) sum.add(parts[i].d * rescale(parts[i].m, m));
    return {m, sum_over_warp_in_scale(sum.rounded())};
}

/* Merges the parts begin, begin + step, and so on before `end`, in this order. */
template <typename Real>
__device__ inline state<Real> merge_some(const state<Real> *parts, int begin, int end, int step) {
    state<Real> all = begin < end ? parts[begin] : empty_state<Real>();
    if (begin + step >= end) return all;
#pragma unroll 1
    for (int i = begin + step; i < end; i += step) all.m = larger(all.m, parts[i].m);
    long_sum<Real> sum;
#pragma unroll 1
    for (int i = begin; i < end; i += step) sum.add(parts[i].d * rescale(parts[i].m, all.m));
    all.d = sum.rounded();
    return all;
}

/* merge_by_warp for the parts of a row that warps hold in registers. Such a row has at most 2^19
 * elements, and a part about 2^11. If all maxima are ordinary, a fixed_sum adds up the d, each
 * relative to the largest maximum, times 2^-MERGE_SHIFT. A part then adds at most 32 and the row at
 * most 2^13, and the sum is at least 2^-7. */
constexpr int MERGE_SHIFT = 6;
template <typename Real>
__device__ inline state<Real> merge_held_by_warp(const state<Real> *parts, int count) {
    return merge_by_warp(parts, count);
}
template <>
__device__ inline state<float> merge_held_by_warp(const state<float> *parts, int count) {
    using A = arithmetic<float>;
    const int lane = threadIdx.x % WARP;
    float m = -A::infinity(), farthest = 0;
#pragma unroll 1
    for (int i = lane; i < count; i += WARP) {
        m = larger(m, parts[i].m);
        farthest = fmaxf(farthest, parts[i].m == -A::infinity() ? 0 : fabsf(parts[i].m));
    }
    m = max_over_lanes<WARP>(m);
    if (!__all_sync(~0u, is_ordinary(m) && is_ordinary(farthest)))
        return merge_over_lanes(merge_some(parts, lane, count, WARP));
    fixed_sum sum;
#pragma unroll 1
    for (int i = lane; i < count; i += WARP)
        sum.add(parts[i].d *
                A::power(A::difference(A::biased_c(parts[i].m), A::biased_c(m)) - MERGE_SHIFT));
    return {m, sum.over_lanes<WARP>().value() * A::power(MERGE_SHIFT)};
}

template <typename Real>
__device__ inline sum_in_double<Real> merge_held_by_warp(const sum_in_double<Real> *parts,
                                                         int count) {
    return sum_in_double<Real>::by_warp(parts, count);
}

#endif
