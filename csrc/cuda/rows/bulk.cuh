/* bulk.cuh - bulk copies between global and shared memory, which the hardware makes on its own
 * (sm_90 and later): whole multiples of 16 bytes, between addresses that are such multiples. */
#ifndef ONS_BULK_CUH
#define ONS_BULK_CUH

#include "../team/arrivals.cuh"

#if __CUDA_ARCH__ >= 900

/* What this thread did to shared memory comes before the bulk copies that are asked for once it has
 * met the thread that asks for them. */
__device__ inline void order_accesses() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Asked for by one thread; the mbarrier counts the bytes as they arrive. */
__device__ inline void bulk_read(uint32_t to, uintptr_t from, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

/* Asked for by one thread, which waits until the shared memory has been read. */
__device__ inline void bulk_write(void *to, const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

#endif

#endif
