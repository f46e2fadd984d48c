/* block.cuh - the team of a block: its warps share a row. They meet through shared memory, once for
 * each part. The sum is in fixed point, so its bits do not depend on the number of warps. */
#ifndef ONS_TEAM_BLOCK_CUH
#define ONS_TEAM_BLOCK_CUH

#include "../statistic/pair.cuh"
#include "../statistic/sums.cuh"

/* A block has at most WARPS warps. A kernel calls near() once for each kind of part: a
 * kind has one place in shared memory, and no barrier follows its last read. */
template <int WARPS, bool STREAM_ = false>
struct block {
    static_assert(WARPS <= WARP);
    static constexpr int STRIDE = WARP;
    static constexpr bool CHECK_ROW = false, ONE_REFERENCE = true, FETCHES = true, STREAM = STREAM_;
    using sums = in_any_order;

    __device__ static unsigned row() { return blockIdx.x; }
    __device__ static int warp() { return warp_of_block(); }
    template <int K>
    __device__ static int chunk() {
        return chunk_of_lane<K>(warp());
    }
    __device__ static bool leaves() { return false; }
    __device__ static bool writes() { return threadIdx.x == 0; }

    template <typename Part>
    __device__ static auto near(const Part &mine) {
        const Part of_warp = mine.template over_lanes<WARP>();
        if (blockDim.x == WARP) return of_warp.value();
        Part *const parts = shared<Part>();
        if (threadIdx.x % WARP == 0) parts[warp()] = of_warp;
        __syncthreads();
        return Part::by_warp(parts, warps_of_block()).value();
    }
    __device__ static float near(const fixed_sum &mine) { return near(carried_sum(mine)); }
    __device__ static double near(const lifted_sum<double> &mine) { return near(mine.lowered()); }
    __device__ static nothing near(nothing) { return {}; }

    /* Whether it holds in a thread of the row. */
    __device__ static bool any(bool holds) {
        return blockDim.x == WARP ? __any_sync(~0u, holds) : __syncthreads_or(holds);
    }
    template <typename Own, typename Sum, typename Make>
    __device__ static auto far(const Own &own, const Sum &sum, Make) {
        return whole(own, sum);
    }

   private:
    /* One place for a kind of part. All operations of a kernel use it. */
    template <typename Part>
    __device__ static Part *shared() {
        __shared__ Part parts[WARPS];
        return parts;
    }
};

#endif
