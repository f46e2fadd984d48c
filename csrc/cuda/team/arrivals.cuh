/* arrivals.cuh - each block of a cluster sends its states to all blocks through distributed shared
 * memory, and counts the bytes that arrive (sm_90 and later). */
#ifndef ONS_ARRIVALS_CUH
#define ONS_ARRIVALS_CUH

#include <cstdint>

#include "../statistic/over_lanes.cuh"

#if __CUDA_ARCH__ >= 900

/* The next three read the register anew at each call, so they occupy no register in between. */
__device__ inline uint32_t cluster_index() {
    uint32_t index;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(index));
    return index;
}

__device__ inline int thread_of_block() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

__device__ inline uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ inline uint32_t cluster_size() {
    uint32_t size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

__device__ inline uint32_t shared_address(const void *at) {
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* The address of the same variable in another block's shared memory. */
__device__ inline uint32_t in_block(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

/* A barrier that counts the bytes that arrive in this block. A block may send only after all blocks
 * of the cluster have made their barriers ready. say_ready and await_ready ensure that; a row's
 * loads can run in between. say_ready is relaxed, because the fence has published the barrier. With
 * release it would wait for all pending loads of the block. Bytes may arrive before announce() is
 * called: the barrier's phase ends after both. */
class arrivals {
   public:
    __device__ void make_ready() {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)));
            asm volatile("fence.mbarrier_init.release.cluster;");
        }
    }

    static __device__ void say_ready() {
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }

    static __device__ void await_ready() {
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }

    /* Sets the number of bytes that will arrive in this block. */
    __device__ void announce(uint32_t bytes) {
        if (threadIdx.x == 0)
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                             shared_address(&barrier)),
                         "r"(bytes)
                         : "memory");
    }

    /* Stores a value of 8, 16 or 32 bytes at the same place in another block, and counts it
     * there. */
    template <typename T>
    __device__ void send(const T *to, uint32_t rank, const T &value) {
        const uint32_t at = in_block(shared_address(to), rank),
                       counter = in_block(shared_address(&barrier), rank);
        if constexpr (sizeof(T) == sizeof(uint2)) {
            const uint2 words = *(const uint2 *)&value;
            asm volatile(
                "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, "
                "%2}, [%3];" ::"r"(at),
                "r"(words.x), "r"(words.y), "r"(counter)
                : "memory");
        } else {
            static_assert(sizeof(T) % sizeof(uint4) == 0);
#pragma unroll
            for (int i = 0; i < (int)(sizeof(T) / sizeof(uint4)); i++) {
                const uint4 words = ((const uint4 *)&value)[i];
                asm volatile(
                    "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, "
                    "%2, %3, %4}, [%5];" ::"r"(at + i * (int)sizeof(uint4)),
                    "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w), "r"(counter)
                    : "memory");
            }
        }
    }

    /* Waits until all announced bytes have arrived. `parity` is 0 the first time, then 1, 0, and so
     * on. */
    __device__ void await(uint32_t parity = 0) {
        uint32_t done = 0;
        while (!done)
            asm volatile(
                "{\n"
                ".reg .pred complete;\n"
                "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%1], %2;\n"
                "selp.u32 %0, 1, 0, complete;\n"
                "}"
                : "=r"(done)
                : "r"(shared_address(&barrier)), "r"(parity)
                : "memory");
    }

   private:
    uint64_t barrier;
};

#endif

#endif
