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

#include "exponential.cuh"

enum { WARP = 32 };

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

template <typename Real, int n>
__device__ inline Real largest(const Real (&x)[n]) {
    Real m = x[0];
#pragma unroll
    for (int i = 1; i < n; i++) m = larger(m, x[i]);
    return m;
}

/* Commutative; the empty state changes nothing. */
template <typename Real>
__device__ inline state<Real> merge(state<Real> a, state<Real> b) {
    Real m = larger(a.m, b.m);
    return {m, a.d * rescale(a.m, m) + b.d * rescale(b.m, m)};
}

/* The state of what one thread has seen so far of a long row, tile by tile: d with what it rounded
 * away (two-sum: Knuth, TAOCP 2, 4.2.2, theorem B). */
template <typename Real>
struct running_state {
    Real m = -arithmetic<Real>::infinity(), d = 0, d_beyond = 0;

    /* Makes m the maximum, and d relative to it. */
    __device__ void raise(Real to) {
        Real factor = rescale(m, to);
        d *= factor;
        d_beyond *= factor;
        m = to;
    }

    __device__ void add(Real term) {
        Real sum = d + term, other = sum - d;
        d_beyond += (d - (sum - other)) + (term - other);
        d = sum;
    }

    /* d_beyond is NaN where d is inf. */
    __device__ state<Real> rounded() const { return {m, isfinite(d) ? d + d_beyond : d}; }
};

/* ------- The lanes of a warp that share a row: `lanes`, a power of two ------- */

template <typename Real>
__device__ inline Real max_over_lanes(Real v, int lanes) {
    for (int apart = lanes / 2; apart > 0; apart /= 2)
        v = larger(v, __shfl_xor_sync(~0u, v, apart));
    return v;
}

template <typename Real>
__device__ inline Real sum_over_lanes(Real v, int lanes) {
    for (int apart = lanes / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(~0u, v, apart);
    return v;
}

template <typename Real>
__device__ inline state<Real> merge_over_lanes(state<Real> mine, int lanes) {
    Real m = max_over_lanes(mine.m, lanes);
    return {m, sum_over_lanes(mine.d * rescale(mine.m, m), lanes)};
}

/* ------- Who shares a row. Each of these says which row of the block's ROWS or `rows` is this
 * thread's, and which chunks of it ------- */

/* Row form: `lanes` of a warp a row, several rows a block; all of a warp where K > 1. */
struct lanes_a_row {
    static constexpr int STRIDE = WARP;
    int lanes, row, rows;
    __device__ explicit lanes_a_row(int lanes_)
        : lanes(lanes_), row(threadIdx.x / lanes_), rows(blockDim.x / lanes_) {}
    __device__ int chunk() const { return threadIdx.x % lanes; }
    template <typename Real>
    __device__ Real max(Real v) const {
        return max_over_lanes(v, lanes);
    }
    template <typename Real>
    __device__ Real sum(Real v) const {
        return sum_over_lanes(v, lanes);
    }
};

/* Column form: a lane a row. */
struct lane_a_row {
    static constexpr int STRIDE = 1;
    int row, rows;
    __device__ explicit lane_a_row(int) : row(threadIdx.x), rows(blockDim.x) {}
    __device__ int chunk() const { return 0; }
    template <typename Real>
    __device__ Real max(Real v) const {
        return v;
    }
    template <typename Real>
    __device__ Real sum(Real v) const {
        return v;
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
    __device__ static int64_t chunk(int64_t warp) {
        return warp * (K * SPAN) + threadIdx.x % WARP;
    }
    /* Over the lanes of a warp that share a row. */
    template <typename Real>
    __device__ static Real max(Real v) {
        return max_over_lanes(v, WARP);
    }
    template <typename Real>
    __device__ static Real sum(Real v) {
        return sum_over_lanes(v, WARP);
    }
    template <typename Real>
    __device__ static state<Real> merge_warp(state<Real> mine) {
        return merge_over_lanes(mine, WARP);
    }
    /* Where the state of a part of the row lies among those of all parts and rows; and whether this
     * thread is the one of its warp that writes it. */
    __device__ static int slot(int part) { return part; }
    __device__ static bool writes() { return threadIdx.x % WARP == 0; }

    /* The state of the row from those of its parts, in their order. */
    template <typename Real>
    __device__ static state<Real> merge_parts(const state<Real> *parts, int count) {
        int lane = threadIdx.x % WARP;
        state<Real> mine = lane < count ? parts[lane] : empty_state<Real>();
        for (int i = lane + WARP; i < count; i += WARP) mine = merge(mine, parts[i]);
        return merge_over_lanes(mine, WARP);
    }
};

/* Column form: a lane of each warp a row, 32 rows a block. */
struct block_of_columns {
    static constexpr int ROWS = WARP, STRIDE = 1, SPAN = 1;

    __device__ static int row() { return threadIdx.x % WARP; }
    template <int K>
    __device__ static int64_t chunk(int64_t warp) {
        return warp * K;
    }
    template <typename Real>
    __device__ static Real max(Real v) {
        return v;
    }
    template <typename Real>
    __device__ static Real sum(Real v) {
        return v;
    }
    template <typename Real>
    __device__ static state<Real> merge_warp(state<Real> mine) {
        return mine;
    }
    __device__ static int slot(int part) { return part * ROWS + row(); }
    __device__ static bool writes() { return true; }

    template <typename Real>
    __device__ static state<Real> merge_parts(const state<Real> *parts, int count) {
        state<Real> all = parts[slot(0)];
        for (int i = 1; i < count; i++) all = merge(all, parts[slot(i)]);
        return all;
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
