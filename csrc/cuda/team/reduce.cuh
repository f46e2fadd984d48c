/* reduce.cuh - how two pairs (m, d) merge, and who merges: the lanes of a warp, then the warps of a
 * block, a cluster or a grid (Milakov and Gimelshein, arXiv 1805.02867,
 * section 3.1).
 *
 * A row has two forms. In the row form the lanes of a warp take neighbouring chunks of one row; in
 * the column form, for an axis that is not the last, they take 32 neighbouring rows, a row a lane,
 * so that what a warp reads lies side by side too. Either way warp u of those that share a row
 * takes its u-th K * LANES_ALONG chunks, and a lane of it every STRIDE-th: the order of every
 * sum is fixed by the length of the row, and the addresses of a thread's chunks lie constants
 * apart. */
#ifndef ONS_REDUCE_CUH
#define ONS_REDUCE_CUH

#include "../statistic/pair.cuh"

/* The state of what one thread has seen so far of a long row, tile by tile. */
template <typename Real>
struct running_state {
    Real m = -arithmetic<Real>::infinity();
    long_sum<Real> sum;

    /* Makes m the maximum, and d relative to it. */
    __device__ void raise(Real to) {
        Real factor = rescale(m, to);
        sum.d *= factor;
        sum.d_low *= factor;
        m = to;
    }

    __device__ state<Real> rounded() const { return {m, sum.rounded()}; }
};

/* ------- How two merge ------- */

/* sum_over_lanes of a warp, of any numbers from 0 on, in the scale of the largest. Fixed point has
 * no inf and NaN, which `naive` may give. */
__device__ inline float sum_over_warp_in_scale(float v) {
    float top = max_over_lanes<WARP>(v);
    if (!isfinite(top)) return top;
    /* times 2^up the largest is between 64 and 128; a number that is not normal counts as 0, and
     * none from 2^121 on is a sum of exponentials */
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

/* The state of all parts, by a warp: the largest m first, so that each d is rescaled once. */
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

/* The same, of parts that warps hold in registers, one each. A row has at most 2^19 elements there,
 * a part some 2^11. Where all maxima are ordinary, the d relative to the largest fit a fixed_sum:
 * they add up to at least 1/2. Times 2^-MERGE_SHIFT, 2^19 is 2^13 and 2^11 is 32. */
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
    return {m, sum.over_lanes<WARP>() * A::power(MERGE_SHIFT)};
}

/* ------- Who shares a row. Each of these says which of the block's rows is this thread's, and
 * which chunks of it ------- */

/* Row form: all the block's threads a row. */
struct block_a_row {
    static constexpr int ROWS = 1, STRIDE = WARP, LANES_ALONG = WARP;

    __device__ static int row() { return 0; }
    /* The first chunk of this lane, in the part of the row's `warp`-th warp. */
    template <int K>
    __device__ static int chunk(int warp) {
        return chunk_of_lane<K>(warp);
    }
    /* Over the lanes of a warp that share a row. */
    template <typename Real>
    __device__ static Real max(Real v) {
        return max_over_lanes<WARP>(v);
    }
    template <typename Real>
    __device__ static Real normalizer(Real lifted) {
        return normalizer_over_lanes<WARP>(lifted);
    }
    template <typename Real>
    __device__ static state<Real> merge_warp(state<Real> mine) {
        return merge_over_lanes(mine);
    }
    /* The place of a part's state among those of all; and whether this thread writes it. */
    __device__ static int slot(int part) { return part; }
    __device__ static bool writes() { return threadIdx.x % WARP == 0; }

    /* The state of the row from those of its parts, in their order. */
    template <typename Real>
    __device__ static state<Real> merge_parts(const state<Real> *parts, int count) {
        return merge_by_warp(parts, count);
    }
    /* The same, of parts that warps hold, one each. */
    template <typename Real>
    __device__ static state<Real> merge_held(const state<Real> *parts, int count) {
        return merge_held_by_warp(parts, count);
    }
};

/* Column form: a lane of each warp a row, 32 rows a block. */
struct block_of_columns {
    static constexpr int ROWS = WARP, STRIDE = 1, LANES_ALONG = 1;

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
    __device__ static Real normalizer(Real lifted) {
        return normalizer_over_lanes<1>(lifted);
    }
    template <typename Real>
    __device__ static state<Real> merge_warp(state<Real> mine) {
        return mine;
    }
    __device__ static int slot(int part) { return part * ROWS + row(); }
    __device__ static bool writes() { return true; }

    /* Of a strip's states and results, those of this lane's column, and of this thread's. */
    __device__ static int own_column() { return row(); }
    template <typename Real>
    __device__ static state<Real> own(Real m, Real d) {
        return {m, d};
    }
    template <typename T>
    __device__ static T of_thread(const T *strip) {
        return strip[row()];
    }

    template <typename Real>
    __device__ static state<Real> merge_parts(const state<Real> *parts, int count) {
        return merge_some(parts, row(), count * ROWS, ROWS);
    }
};

/* Column form: MERGERS neighbouring lanes merge a row's `count` parts, which lie `step` apart.
 * Returns their d relative to m, the maximum of all. */
constexpr int MERGERS = 4;
template <typename Real>
__device__ inline Real merge_long(const state<Real> *parts, int lane, int count, int step, Real m) {
    long_sum<Real> sum;
#pragma unroll 1
    for (int part = lane; part < count; part += MERGERS) {
        const state<Real> one = parts[part * step];
        sum.add(one.d * rescale(one.m, m));
    }
#pragma unroll
    for (int apart = 1; apart < MERGERS; apart *= 2) {
        sum.d_low += __shfl_xor_sync(~0u, sum.d_low, apart);
        sum.add(__shfl_xor_sync(~0u, sum.d, apart));
    }
    return sum.rounded();
}

/* Merges the parts of every row of a strip, part p of row r at parts[p * ROWS + r]. Lane `lane` of
 * a row's calls take(row, lane, state). To be called by the whole block. */
template <int ROWS, typename Real, typename Take>
__device__ inline void merge_strip(const state<Real> *parts, int count, Take take) {
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * MERGERS; i += blockDim.x) {
        const int row = i / MERGERS, lane = i % MERGERS;
        Real m = -arithmetic<Real>::infinity();
#pragma unroll 1
        for (int part = lane; part < count; part += MERGERS)
            m = larger(m, parts[part * ROWS + row].m);
        m = max_over_lanes<MERGERS>(m);
        take(row, lane, state<Real>{m, merge_long(parts + row, lane, count, ROWS, m)});
    }
}

/* The states of a thread's rows from those of the block's warps. `parts` are in shared memory, one
 * for each warp and row; nobody may write to them before the next barrier of the block. */
template <typename Form, typename State, typename Real>
__device__ inline State merge_block(State warp, state<Real> *parts) {
    constexpr int ROWS = Form::ROWS;
    if (blockDim.x == WARP) return warp;
    if constexpr (ROWS == 1) {
        if (Form::writes()) parts[Form::slot(warp_of_block())] = warp;
        __syncthreads();
        return Form::merge_parts(parts, warps_of_block());
    } else {
        parts[Form::slot(warp_of_block())] = warp;
        __syncthreads();
        merge_strip<ROWS>(parts, warps_of_block(), [&](int row, int lane, const state<Real> &all) {
            __syncwarp(); /* the other lanes of the row have read it */
            if (lane == 0) parts[row] = all;
        });
        __syncthreads();
        return parts[Form::row()];
    }
}

#endif
