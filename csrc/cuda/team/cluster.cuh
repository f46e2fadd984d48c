/* cluster.cuh - the team of a cluster: the warps of its blocks share a row (sm_90 and later). The
 * lanes of a warp are near each other. Each warp sends its part to every block, and waits for the
 * parts of all warps. No barrier of the block is needed. */
#ifndef ONS_TEAM_CLUSTER_CUH
#define ONS_TEAM_CLUSTER_CUH

#include <type_traits>

#include "../statistic/merge.cuh"
#include "../statistic/sums.cuh"
#include "arrivals.cuh"

#if __CUDA_ARCH__ >= 900

/* The number of this warp in the cluster, read anew at each call. */
__device__ inline int warp_of_cluster() {
    return (int)(cluster_rank() * warps_of_block()) + thread_of_block() / WARP;
}

/* The parts lie in shared memory. The part of warp w of block r is at r * warps + w. */
template <typename Rows, int CHUNKS = CLUSTER_CHUNKS>
class cluster {
   public:
    static constexpr int STRIDE = WARP;
    static constexpr bool CHECK_ROW = false, ONE_REFERENCE = false, FETCHES = true, STREAM = true;
    using sums = in_a_tree;

    __device__ cluster(const typename Rows::arguments &args_, void *shared_, arrivals &arrived_)
        : args(args_), shared(shared_), arrived(arrived_) {
        arrived.make_ready();
        arrivals::say_ready();
    }

    /* Both are read anew at each use. */
    struct index_of_row {
        __device__ operator int64_t() const { return cluster_index(); }
    };
    template <int K>
    struct index_of_chunk {
        __device__ operator int64_t() const { return chunk_of_lane<K>(warp_of_cluster()); }
    };
    __device__ static index_of_row row() { return {}; }
    template <int K>
    __device__ static index_of_chunk<K> chunk() {
        return {};
    }
    __device__ static int warp() { return warp_of_cluster(); }
    __device__ static bool writes() { return warp() == 0 && thread_of_block() % WARP == 0; }
    __device__ bool leaves() const { return Rows::EMPTY_WARPS_LEAVE && warp() >= warps_of_row(); }

    template <typename Part>
    __device__ static auto near(const Part &mine) {
        return mine.template over_lanes<WARP>().value();
    }

    template <typename Own, typename Sum, typename Make>
    __device__ auto far(const Own &own, const Sum &sum, Make make) {
        const auto mine = whole(own, sum);
        auto *parts = (std::decay_t<decltype(mine)> *)shared;
        arrivals::await_ready();
        const int parted = warps_of_row();
        arrived.announce(parted * sizeof mine);
        /* only to a block that still has warps */
        const int to = thread_of_block() % WARP;
        if (to * warps_of_block() < parted) arrived.send(parts + warp(), to, mine);
        arrived.await();
        return make(merge_held_by_warp(parts, parted));
    }

   private:
    __device__ int warps_of_row() const {
        constexpr int PART = CHUNKS * WARP * Rows::V;
        return Rows::EMPTY_WARPS_LEAVE ? (int)((args.N + PART - 1) / PART)
                                       : (int)cluster_size() * warps_of_block();
    }

    const typename Rows::arguments &args;
    void *shared;
    arrivals &arrived;
};

#endif

#endif
