/* bulk.cuh - bulk copies between global and shared memory, which the hardware makes on its own
 * (sm_90 and later). Sizes and addresses are multiples of 16 bytes. */
#ifndef ONS_BULK_CUH
#define ONS_BULK_CUH

#include "../team/arrivals.cuh"

#if __CUDA_ARCH__ >= 900

/* Orders this thread's accesses to shared memory before later bulk copies. The thread that starts
 * the copies must meet this one in between. */
__device__ inline void order_accesses() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* One thread calls it. The mbarrier counts the bytes as they arrive. */
__device__ inline void bulk_read(uint32_t to, uintptr_t from, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

/* One thread calls it, and waits until the shared memory has been read. */
__device__ inline void bulk_write(void *to, const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

#endif

#endif
