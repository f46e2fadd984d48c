/* lanes.cuh - the team of lanes: LANES lanes of a warp share a row, and a block has several rows.
 * The lanes exchange by shuffles alone. */
#ifndef ONS_TEAM_LANES_CUH
#define ONS_TEAM_LANES_CUH

#include "../statistic/pair.cuh"
#include "../statistic/sums.cuh"

template <int LANES>
struct lanes {
    static constexpr int STRIDE = LANES;
    static constexpr bool CHECK_ROW = true, ONE_REFERENCE = true, FETCHES = false, STREAM = false;
    using sums = in_any_order;

    __device__ static int rows() { return blockDim.x / LANES; }
    __device__ static int row_of_block() { return threadIdx.x / LANES; }
    __device__ static int64_t row() { return (int64_t)blockIdx.x * rows() + row_of_block(); }
    template <int K>
    __device__ static int chunk() {
        return threadIdx.x % LANES;
    }
    __device__ static bool leaves() { return false; }
    __device__ static bool writes() { return threadIdx.x % LANES == 0; }

    template <typename Part>
    __device__ static auto near(const Part &mine) {
        return mine.template over_lanes<LANES>().value();
    }
    /* Whether it holds in a thread of this row, or of another row of the warp. */
    __device__ static bool any(bool holds) { return __any_sync(~0u, holds); }
    template <typename Own, typename Sum, typename Make>
    __device__ static auto far(const Own &own, const Sum &sum, Make) {
        return whole(own, sum);
    }
};

/* Column form: each lane has a row. */
struct lane_a_column : lanes<1> {
    using sums = in_a_tree_of_column;
};

#endif
