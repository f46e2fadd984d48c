/* cluster.cuh - a row's blocks, one or those of a cluster: the shared memory of the first of them,
 * their barrier, and sums over all their threads. */
#ifndef ONS_CLUSTER_CUH
#define ONS_CLUSTER_CUH

#include "arrivals.cuh"

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

/* Sums over all threads of the row's blocks, which come together. There are three counters in turn:
 * one is added to, one may still be read, one is cleared. */
struct group_of_blocks {
    int *counters; /* in shared memory, cleared before */
    int turn = 0;

    __device__ int sum(int n) {
        n = count_over_lanes<WARP>(n);
        int *const counter = in_first_block(counters + turn);
        if (threadIdx.x % WARP == 0) atomicAdd(counter, n);
        meet_in_row();
        n = *(volatile int *)counter;
        turn = turn < 2 ? turn + 1 : 0;
        if (threadIdx.x == 0 && block_of_row() == 0) counters[turn < 2 ? turn + 1 : 0] = 0;
        return n;
    }
    __device__ static bool any(bool b) { return b; }
};

#endif
