/* reduce.cuh - the pair (m, d) of a part of a row, how two merge, and who merges: the lanes of a
 * warp, then the warps of a block, a cluster or a grid (Milakov and Gimelshein, arXiv 1805.02867,
 * section 3.1).
 *
 * A row has two forms. In the row form the lanes of a warp take neighbouring chunks of one row; in
 * the column form, for an axis that is not the last, they take 32 neighbouring rows, a row a lane,
 * so that what a warp reads lies side by side too. Either way warp u of those that share a row
 * takes its u-th stretch of K * SPAN chunks, and a lane of it every STRIDE-th: the order of every
 * sum is fixed by the length of the row, and the addresses of a thread's chunks lie constants
 * apart. */
#ifndef ONS_REDUCE_CUH
#define ONS_REDUCE_CUH

#include "cuda.h"
#include "exponential.cuh"

/* The largest element of a part of a row, NaN once there was one, and the sum of its exponentials
 * relative to it. */
template <typename Real>
struct state {
    Real m, d;
};

template <typename Real>
__device__ inline state<Real> empty_state() {
    return {-arithmetic<Real>::infinity(), 0};
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

/* A long sum, and what it rounded away (two-sum: Knuth, TAOCP 2, 4.2.2, theorem B). */
template <typename Real>
struct long_sum {
    Real d = 0, d_beyond = 0;

    __device__ void add(Real term) {
        Real sum = d + term, other = sum - d;
        d_beyond += (d - (sum - other)) + (term - other);
        d = sum;
    }

    /* d_beyond is NaN where d is inf. */
    __device__ Real rounded() const { return isfinite(d) ? d + d_beyond : d; }
};

/* The state of what one thread has seen so far of a long row, tile by tile. */
template <typename Real>
struct running_state {
    Real m = -arithmetic<Real>::infinity();
    long_sum<Real> sum;

    /* Makes m the maximum, and d relative to it. */
    __device__ void raise(Real to) {
        Real factor = rescale(m, to);
        sum.d *= factor;
        sum.d_beyond *= factor;
        m = to;
    }

    __device__ state<Real> rounded() const { return {m, sum.rounded()}; }
};

/* ------- The lanes of a warp that share a row: LANES, a power of two ------- */

#if __CUDA_ARCH__ >= 800
/* An int in the order of the floats, NaN last: one instruction then reduces a warp. What larger()
 * gives has but the one NaN, which is positive. */
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

/* What a lane has of a row's sum, in GROUPS parts: those that as many lanes would have, where more
 * lanes shared the row. As float they are summed exactly, so that the number of lanes is not in the
 * result. */
template <typename Real, int GROUPS>
struct group_sums {
    Real of[GROUPS];

    __device__ operator Real() const {
        static_assert(GROUPS == 1);
        return of[0];
    }
};

/* The sum over lanes of numbers between 0 and 128: in fixed point, of which adding a power of two
 * leaves the digits in the low bits of the sum. Exact to 2^-39 a number but for the last two
 * roundings. */
template <int LANES, int GROUPS>
__device__ inline float sum_over_lanes(const group_sums<float, GROUPS> &v) {
    const float ONES = 0x1.8p8f, PARTS = 0x1.8p-15f; /* multiples of 2^-15, of 2^-38 */
    int high = 0, low = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        float ones = v.of[g] + ONES, parts = (v.of[g] - (ones - ONES)) + PARTS;
        high += __float_as_int(ones) - __float_as_int(ONES);
        low += __float_as_int(parts) - __float_as_int(PARTS);
    }
    high = count_over_lanes<LANES>(high);
    low = count_over_lanes<LANES>(low);
    return fmaf((float)low, 0x1p-38f, (float)high * 0x1p-15f);
}
template <int LANES>
__device__ inline float sum_over_lanes(float v) {
    return sum_over_lanes<LANES, 1>(group_sums<float, 1>{{v}});
}

template <int LANES>
__device__ inline double sum_over_lanes(double v) {
    long_sum<double> sum;
    sum.d = v;
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) {
        sum.d_beyond += __shfl_xor_sync(~0u, sum.d_beyond, lanes);
        sum.add(__shfl_xor_sync(~0u, sum.d, lanes));
    }
    return sum.rounded();
}

/* The same over a warp of any numbers from 0 on: in the scale of the largest. */
__device__ inline float sum_over_warp_in_scale(float v) {
    float top = max_over_lanes<WARP>(v);
    /* 2^up brings the largest between 64 and 128: a number that is not normal counts as 0, and one
     * from 2^121 on belongs to no sum of exponentials */
    int exponent = min(__float_as_int(top) >> 23, 247), up = 133 - exponent;
    if (exponent < 7) return 0;
    return sum_over_lanes<WARP>(v * arithmetic<float>::power(up)) * arithmetic<float>::power(-up);
}
__device__ inline double sum_over_warp_in_scale(double v) { return sum_over_lanes<WARP>(v); }

/* d of lanes of which each has the lifted exponentials of at most 64 elements. */
template <int LANES, typename Real, int GROUPS>
__device__ inline Real normalizer_over_lanes(group_sums<Real, GROUPS> sums) {
#pragma unroll
    for (int g = 0; g < GROUPS; g++) sums.of[g] *= arithmetic<Real>::LOWERED;
    if constexpr (GROUPS > 1)
        return sum_over_lanes<LANES, GROUPS>(sums);
    else if constexpr (LANES > 1)
        return sum_over_lanes<LANES>(sums.of[0]);
    else
        return sums.of[0];
}

template <typename Real>
__device__ inline state<Real> merge_over_lanes(state<Real> mine) {
    Real m = max_over_lanes<WARP>(mine.m);
    return {m, sum_over_warp_in_scale(mine.d * rescale(mine.m, m))};
}

/* The state of all parts, by a warp: the largest m first, so that each d moves once. */
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

/* The state of parts first, first + step, ... below count, in that order. */
template <typename Real>
__device__ inline state<Real> merge_some(const state<Real> *parts, int first, int count, int step) {
    state<Real> all = first < count ? parts[first] : empty_state<Real>();
    if (first + step >= count) return all;
#pragma unroll 1
    for (int i = first + step; i < count; i += step) all.m = larger(all.m, parts[i].m);
    long_sum<Real> sum;
#pragma unroll 1
    for (int i = first; i < count; i += step) sum.add(parts[i].d * rescale(parts[i].m, all.m));
    all.d = sum.rounded();
    return all;
}

/* ------- Who shares a row. Each of these says which of the block's rows is this thread's, and
 * which chunks of it ------- */

/* Row form: LANES of a warp a row, several rows a block. With one lane a row it serves the column
 * form too. */
template <int LANES>
struct lanes_a_row {
    static constexpr int STRIDE = LANES;

    __device__ static int row() { return threadIdx.x / LANES; }
    __device__ static int rows() { return blockDim.x / LANES; }
    __device__ static int chunk() { return threadIdx.x % LANES; }
    template <typename Real>
    __device__ static Real max(Real v) {
        return max_over_lanes<LANES>(v);
    }
    template <typename Real, int GROUPS>
    __device__ static Real normalizer(const group_sums<Real, GROUPS> &lifted) {
        return normalizer_over_lanes<LANES>(lifted);
    }
};

__device__ inline int warp_of_block() { return threadIdx.x / WARP; }
__device__ inline int warps_of_block() { return blockDim.x / WARP; }

/* Row form: all the block's threads a row. */
struct block_a_row {
    static constexpr int ROWS = 1, STRIDE = WARP, SPAN = WARP;

    __device__ static int row() { return 0; }
    /* The first chunk of this lane in the stretch of its warp, the `warp`-th of the row's. */
    template <int K>
    __device__ static int chunk(int warp) {
        return warp * (K * SPAN) + threadIdx.x % WARP;
    }
    /* Over the lanes of a warp that share a row. */
    template <typename Real>
    __device__ static Real max(Real v) {
        return max_over_lanes<WARP>(v);
    }
    template <typename Real>
    __device__ static Real normalizer(const group_sums<Real, 1> &lifted) {
        return normalizer_over_lanes<WARP>(lifted);
    }
    template <typename Real>
    __device__ static state<Real> merge_warp(state<Real> mine) {
        return merge_over_lanes(mine);
    }
    /* Where the state of a part of the row lies among those of all parts and rows; and whether this
     * thread is the one of its warp that writes it. */
    __device__ static int slot(int part) { return part; }
    __device__ static bool writes() { return threadIdx.x % WARP == 0; }

    /* The state of the row from those of its parts, in their order. */
    template <typename Real>
    __device__ static state<Real> merge_parts(const state<Real> *parts, int count) {
        return merge_by_warp(parts, count);
    }
};

/* Column form: a lane of each warp a row, 32 rows a block. */
struct block_of_columns {
    static constexpr int ROWS = WARP, STRIDE = 1, SPAN = 1;

    __device__ static int row() { return threadIdx.x % WARP; }
    template <int K>
    __device__ static int chunk(int warp) {
        return warp * K;
    }
    template <typename Real>
    __device__ static Real max(Real v) {
        return v;
    }
    template <typename Real>
    __device__ static Real normalizer(const group_sums<Real, 1> &lifted) {
        return normalizer_over_lanes<1>(lifted);
    }
    template <typename Real>
    __device__ static state<Real> merge_warp(state<Real> mine) {
        return mine;
    }
    __device__ static int slot(int part) { return part * ROWS + row(); }
    __device__ static bool writes() { return true; }

    template <typename Real>
    __device__ static state<Real> merge_parts(const state<Real> *parts, int count) {
        return merge_some(parts, row(), count * ROWS, ROWS);
    }
};

/* The state of the row from those of the block's warps. `parts` are in shared memory, one for each
 * warp and row; nobody may write to them before the next barrier of the block. */
template <typename Form, typename Real>
__device__ inline state<Real> merge_block(state<Real> warp, state<Real> *parts) {
    if (Form::ROWS == 1 && blockDim.x == WARP) return warp;
    if (Form::writes()) parts[Form::slot(warp_of_block())] = warp;
    __syncthreads();
    return Form::merge_parts(parts, warps_of_block());
}

#endif
