/* blocks_of_row.cuh - the blocks that share a row: one block, or the blocks of a cluster. The file
 * gives them the first block's shared memory, a barrier, and sums over all their threads. */
#ifndef ONS_BLOCKS_OF_ROW_CUH
#define ONS_BLOCKS_OF_ROW_CUH

#include "../team/arrivals.cuh"
#include "entry.cuh"

/* The number of blocks that share a row, and this block's place among them. */
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

/* Address of the same variable in the row's first block. */
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

/* A barrier of the row's blocks, in two halves. */
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

/* Values that the warps of a row give to its first block, each at its own place. All threads of the
 * row must make it. The blocks but the first may end when they have given theirs. */
template <typename T>
class given_to_first_block {
   public:
    __device__ explicit given_to_first_block(T *values_) : values(values_) {
#if __CUDA_ARCH__ >= 900
        arrived().make_ready();
        arrivals::say_ready();
#endif
    }

    /* Before a warp gives its first value, and before it ends. */
    __device__ void await_ready() {
#if __CUDA_ARCH__ >= 900
        if (!ready) arrivals::await_ready();
        ready = true;
#endif
    }

    __device__ void give(int at, const T &value) {
#if __CUDA_ARCH__ >= 900
        if (blocks_of_row() > 1)
            arrived().send(values + at, 0, value);
        else /* such a launch has no cluster */
#endif
            values[at] = value;
    }

    /* The first block calls it, and then has all `count` values. */
    __device__ void await([[maybe_unused]] int count) {
#if __CUDA_ARCH__ >= 900
        if (blocks_of_row() > 1) {
            arrived().announce(count * sizeof(T));
            arrived().await();
            return;
        }
#endif
        __syncthreads();
    }

   private:
#if __CUDA_ARCH__ >= 900
    __device__ static arrivals &arrived() {
        __shared__ arrivals barrier;
        return barrier;
    }
    bool ready = false;
#endif
    T *const values;
};

/* `from` is the number of elements not below a key, least_from the least of them, and most_below
 * the largest element below the key. */
template <typename Key>
struct around_key {
    uint32_t from;
    Key least_from, most_below;

    __device__ static around_key none() { return {0, ~Key(0), 0}; }
};

/* Merges what all threads of a row's blocks found, in shared memory. All of them must call it. It
 * uses two buffers in turn, because threads may still read the last one. */
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

    /* One thread publishes a number, and all read it. */
    __device__ void publish(uint32_t number) { in_first_block(at)->number = number; }
    __device__ uint32_t published() {
        meet_in_row();
        return ((const volatile memory *)in_first_block(at))->number;
    }

   private:
    __device__ static Around merge_warp(Around mine) {
        mine.from = (uint32_t)count_over_lanes<WARP>((int)mine.from);
        mine.least_from = least_of_warp(mine.least_from);
        mine.most_below = largest_of_warp(mine.most_below);
        return mine;
    }

    /* Sends the merged result of a block's warps to the first block. */
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

    /* What the block with this lane's number sent, if that number is below `blocks`. */
    __device__ Around of_block(int blocks) const {
        const int lane = threadIdx.x % WARP;
        return lane < blocks ? in_first_block(at)->of_blocks[turn][lane] : Around::none();
    }

    memory *at;
    int turn = 0;
};

#endif
