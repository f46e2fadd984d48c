/* blocks_of_row.cuh - a row's blocks, one or those of a cluster: the shared memory of the first of
 * them, their barrier, and sums over all their threads. */
#ifndef ONS_BLOCKS_OF_ROW_CUH
#define ONS_BLOCKS_OF_ROW_CUH

#include "../team/arrivals.cuh"
#include "entry.cuh"

/* How many blocks share a row, and which of them this is. */
__device__ inline int blocks_of_row() {
#if __CUDA_ARCH__ >= 900
    return (int)cluster_size();
#else
    return 1;
#endif
}
__device__ inline int block_of_row() {
#if __CUDA_ARCH__ >= 900
    return (int)cluster_rank();
#else
    return 0;
#endif
}
__device__ inline int64_t row_of_blocks() {
#if __CUDA_ARCH__ >= 900
    return cluster_index();
#else
    return blockIdx.x;
#endif
}

/* The same variable of the row's first block. */
template <typename T>
__device__ inline T *in_first_block(T *at) {
#if __CUDA_ARCH__ >= 900
    uint64_t there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((uint64_t)at), "r"(0));
    return (T *)there;
#else
    return at;
#endif
}

/* The barrier of the row's blocks, in two halves. */
__device__ inline void arrive_at_row() {
#if __CUDA_ARCH__ >= 900
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void wait_for_row() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
__device__ inline void meet_in_row() {
    if (blocks_of_row() == 1) {
        __syncthreads();
    } else {
        arrive_at_row();
        wait_for_row();
    }
}

/* The elements around a key: how many from it on, the least of these, the largest below it. */
template <typename Key>
struct around_key {
    uint32_t from;
    Key least_from, most_below;

    __device__ static around_key none() { return {0, ~Key(0), 0}; }
};

/* What the threads of a row's blocks find out together, in shared memory. To be called by all of
 * them. Two buffers in turn: the one before may still be read. */
template <typename Key>
class row_blocks {
    using Around = around_key<Key>;

   public:
    struct memory {
        Around of_warps[WARP], of_blocks[2][LARGEST_CLUSTER];
        uint32_t number;
    };

    __device__ explicit row_blocks(memory *at_) : at(at_) {}

    __device__ Around merge(Around mine) {
        exchange(merge_warp(mine));
        return merge_warp(of_block(blocks_of_row()));
    }

    /* The sum of n over the warps before this one, in the order of the row. */
    __device__ uint32_t sum_before(uint32_t n) {
        const Around of_warp = merge_warp(Around{n, 0, 0});
        exchange(of_warp);
        uint32_t before = of_block(block_of_row()).from;
        if (threadIdx.x % WARP < warp_of_block()) before += at->of_warps[threadIdx.x % WARP].from;
        return (uint32_t)count_over_lanes<WARP>((int)before);
    }

    /* One thread publishes a number, then all read it. */
    __device__ void publish(uint32_t number) { in_first_block(at)->number = number; }
    __device__ uint32_t published() {
        meet_in_row();
        return ((const volatile memory *)in_first_block(at))->number;
    }

   private:
    __device__ static Around merge_warp(Around mine) {
        mine.from = (uint32_t)count_over_lanes<WARP>((int)mine.from);
        mine.least_from = least_of_warp(mine.least_from);
        mine.most_below = ~least_of_warp(~mine.most_below);
        return mine;
    }

    /* Sends what the warps of a block have to the first block. */
    __device__ void exchange(const Around &of_warp) {
        const int lane = threadIdx.x % WARP;
        turn ^= 1;
        if (lane == 0) at->of_warps[warp_of_block()] = of_warp;
        __syncthreads();
        if (threadIdx.x < WARP) {
            const Around all =
                merge_warp(lane < warps_of_block() ? at->of_warps[lane] : Around::none());
            if (lane == 0) in_first_block(at)->of_blocks[turn][block_of_row()] = all;
        }
        meet_in_row();
    }

    /* That of a lane's block, of the first `blocks`. */
    __device__ Around of_block(int blocks) const {
        const int lane = threadIdx.x % WARP;
        return lane < blocks ? in_first_block(at)->of_blocks[turn][lane] : Around::none();
    }

    memory *at;
    int turn = 0;
};

#endif
