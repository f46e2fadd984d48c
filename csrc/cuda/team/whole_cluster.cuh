/* whole_cluster.cuh - the team of a cluster whose blocks merge each part at once: in every block,
 * then over the blocks (sm_90 and later). In cluster.cuh each warp has a reference of its own, and
 * sends its pair. Here all threads share one reference, and may merge any part. */
#ifndef ONS_TEAM_WHOLE_CLUSTER_CUH
#define ONS_TEAM_WHOLE_CLUSTER_CUH

#include "../statistic/rounded.cuh"
#include "block.cuh"
#include "cluster.cuh"

#if __CUDA_ARCH__ >= 900

/* Whether something holds in a thread, as a part. */
struct flag {
    int holds, unused;

    __device__ static flag by_warp(const flag *parts, int count) {
        const int lane = threadIdx.x % WARP;
        return {__any_sync(~0u, lane < count && parts[lane].holds), 0};
    }
    __device__ bool value() const { return holds; }
};
/* The largest element of a block, as a part of 8 bytes. */
struct largest_of_block {
    float m, unused;

    __device__ static largest<float> by_warp(const largest_of_block *parts, int count) {
        const float m = parts[min((int)threadIdx.x % WARP, count - 1)].m;
        return {max_over_lanes<WARP>(m)};
    }
};

/* The blocks of a cluster share a row. Each part is merged in every block, then sent to all blocks.
 * A kind of part may be sent again after another kind, since then no block reads the earlier parts
 * any more. */
struct whole_cluster : block<WARP> {
    using of_block = block<WARP>;
    static constexpr bool STREAM = true;

    __device__ whole_cluster() {
        barrier<sum_in_double<float>>().make_ready();
        barrier<flag>().make_ready();
        barrier<largest_of_block>().make_ready();
        barrier<sum_apart>().make_ready();
        barrier<sum_in_two>().make_ready();
        arrivals::say_ready();
    }

    __device__ static unsigned row() { return cluster_index(); }
    __device__ static int warp() { return warp_of_cluster(); }
    template <int K>
    __device__ static int chunk() {
        return chunk_of_lane<K>(warp());
    }
    __device__ static bool writes() { return cluster_rank() == 0 && threadIdx.x == 0; }

    __device__ sum_in_double<float> near(const sum_in_double<float> &mine) {
        const auto sum = of_block::near(mine);
        arrivals::await_ready(); /* it is the first part of a row */
        return exchange(sum, 0);
    }
    __device__ bool any(bool holds) { return exchange(flag{of_block::any(holds), 0}, votes++); }
    __device__ float near(const largest<float> &mine) {
        return exchange(largest_of_block{of_block::near(mine), 0}, maxima++);
    }
    __device__ sum_apart near(const sum_apart &mine) { return exchange(of_block::near(mine), 0); }
    __device__ sum_in_two near(const sum_in_two &mine) {
        return exchange(of_block::near(mine), sums++);
    }

   private:
    template <typename Part>
    __device__ static arrivals &barrier() {
        __shared__ arrivals arrived;
        return arrived;
    }
    template <typename Part>
    __device__ static auto exchange(const Part &mine, int times_before) {
        __shared__ __align__(16) unsigned char shared[LARGEST_CLUSTER * sizeof(Part)];
        Part *const parts = (Part *)shared;
        const int blocks = cluster_size();
        barrier<Part>().announce(blocks * sizeof(Part));
        if (threadIdx.x < blocks) barrier<Part>().send(parts + cluster_rank(), threadIdx.x, mine);
        barrier<Part>().await(times_before & 1);
        return Part::by_warp(parts, blocks).value();
    }

    int votes = 0, maxima = 0, sums = 0; /* the parts of these kinds so far */
};

#endif

#endif
