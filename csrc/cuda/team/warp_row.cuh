/* warp_row.cuh - which row is a thread's, and which chunks of it, where lanes of a warp share one
 * and a block has several; and what they do together. */
#ifndef ONS_WARP_ROW_CUH
#define ONS_WARP_ROW_CUH

#include "../statistic/lanes.cuh"

/* How a thread's exponentials are added up (tile.cuh). */
struct in_a_tree;
struct in_any_order;

/* Row form: LANES of a warp a row, several rows a block. */
template <int LANES>
struct lanes_a_row {
    static constexpr int STRIDE = LANES;
    using sums = in_any_order;

    __device__ static int row() { return threadIdx.x / LANES; }
    __device__ static int rows() { return blockDim.x / LANES; }
    /* Whether this thread is the one of its row that writes a value. */
    __device__ static bool writes() { return threadIdx.x % LANES == 0; }
    template <int K>
    __device__ static int chunk() {
        return threadIdx.x % LANES;
    }
    template <typename Real>
    __device__ static Real max(Real v) {
        return max_over_lanes<LANES>(v);
    }
    template <typename Sum>
    __device__ static auto normalizer(const Sum &lifted) {
        return normalizer_over_lanes<LANES>(lifted);
    }
};

/* Column form: a lane a row. */
struct lane_a_column : lanes_a_row<1> {
    using sums = in_a_tree;
};

#endif
