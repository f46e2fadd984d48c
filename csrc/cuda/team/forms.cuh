/* forms.cuh - merges pairs (m, d) over the lanes of a warp, then over the warps of a block, for the
 * methods that read a row several times.
 *
 * A row has two forms. In the row form, the lanes of a warp take neighbouring chunks of one row. In
 * the column form, for an axis that is not the last, they take 32 neighbouring rows, one row a
 * lane. So a warp's reads lie side by side in both forms. Of the warps that share a row, warp u
 * takes the u-th run of K * LANES_ALONG chunks of the row. Each lane takes every STRIDE-th chunk of
 * this run. So the order of every sum depends only on the length of the row, and the addresses of a
 * thread's chunks differ by constants. */
#ifndef ONS_FORMS_CUH
#define ONS_FORMS_CUH

#include "../statistic/merge.cuh"

/* ------- Who shares a row. Each struct gives this thread's row of the block, and its chunks of the
 * row ------- */

/* Row form: all threads of the block share one row. */
struct block_a_row {
    static constexpr int ROWS = 1, STRIDE = WARP, LANES_ALONG = WARP;

    template <typename Real>
    using running = running_state<Real>;

    __device__ static int row() { return 0; }
    /* The first chunk of this lane, in the part of warp number `warp` of the row. */
    template <int K>
    __device__ static int chunk(int warp) {
        return chunk_of_lane<K>(warp);
    }
    template <typename Real>
    __device__ static state<Real> merge_warp(state<Real> mine) {
        return merge_over_lanes(mine);
    }
    /* The place of a part's state, and whether this thread writes it. */
    __device__ static int slot(int part) { return part; }
    __device__ static bool writes() { return threadIdx.x % WARP == 0; }

    /* Merges the states of a row's parts, in their order. */
    template <typename Real>
    __device__ static state<Real> merge_parts(const state<Real> *parts, int count) {
        return merge_by_warp(parts, count);
    }
    /* `row` is the state of this lane's row. Calls make(state) for each of this thread's rows, and
     * returns the results. Whole warps must call it. */
    template <typename Real, typename Make>
    __device__ static auto of_rows(const state<Real> &row, Make make) {
        return make(row);
    }
};

/* Column form: a block has 32 rows, and each lane of a warp has one of them. */
struct block_of_columns {
    static constexpr int ROWS = WARP, STRIDE = 1, LANES_ALONG = 1;

    template <typename Real>
    using running = running_state<Real>;

    __device__ static int row() { return threadIdx.x % WARP; }
    template <int K>
    __device__ static int chunk(int warp) {
        return warp * K;
    }
    template <typename Part>
    __device__ static auto near(const Part &mine) {
        return mine.template over_lanes<1>().value();
    }
    template <typename Real>
    __device__ static state<Real> merge_warp(state<Real> mine) {
        return mine;
    }
    __device__ static int slot(int part) { return part * ROWS + row(); }
    __device__ static bool writes() { return true; }

    /* Returns the sums of this thread's columns, from the sum of this lane's column. */
    template <typename Sum>
    __device__ static const Sum &of_columns(const Sum &own) {
        return own;
    }
    /* Of a strip's states and results, the one of this lane's column and of this thread. */
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
    template <typename Real, typename Make>
    __device__ static auto of_rows(const state<Real> &row, Make make) {
        return make(row);
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

/* Merges the parts of every row of a strip; part p of row r is parts[p * ROWS + r]. Each lane
 * `lane` of a row's MERGERS calls take(row, lane, state). The whole block must call it. */
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

/* Merges the states of the block's warps. Each lane gets the state of its own row. The whole block
 * must call it. `parts` is shared memory with a state for each warp and row. No thread may write to
 * it before the next barrier of the block. */
template <typename Form, typename Real>
__device__ inline state<Real> merge_block(const state<Real> &warp, state<Real> *parts) {
    constexpr int ROWS = Form::ROWS;
    if (blockDim.x == WARP) return warp;
    if (Form::writes()) parts[Form::slot(warp_of_block())] = warp;
    __syncthreads();
    if constexpr (ROWS == 1) {
        return Form::merge_parts(parts, warps_of_block());
    } else {
        merge_strip<ROWS>(parts, warps_of_block(), [&](int row, int lane, const state<Real> &all) {
            __syncwarp(); /* the other lanes of the row have read parts[row] */
            if (lane == 0) parts[row] = all;
        });
        __syncthreads();
        return parts[Form::slot(0)];
    }
}

#endif
