/* sort.cuh - a block sorts a list of entries in memory. */
#ifndef ONS_SORT_CUH
#define ONS_SORT_CUH

#include "entry.cuh"

/* Sorts n entries, where n is a power of two, by a bitonic network (Batcher, Sorting networks and
 * their applications, 1968). A whole block must call it. */
template <typename Entry>
__device__ inline void sort_entries(Entry *list, uint32_t n) {
#pragma unroll 1
    for (uint32_t size = 2; size <= n; size *= 2)
#pragma unroll 1
        for (uint32_t apart = size / 2; apart > 0; apart /= 2) {
            __syncthreads();
#pragma unroll 1
            for (uint32_t i = threadIdx.x; i < n / 2; i += blockDim.x) {
                const uint32_t low = 2 * i - (i & (apart - 1)), high = low + apart;
                const Entry a = list[low], b = list[high];
                if (low & size ? a.is_before(b) : b.is_before(a)) {
                    list[low] = b;
                    list[high] = a;
                }
            }
        }
    __syncthreads();
}

#endif
