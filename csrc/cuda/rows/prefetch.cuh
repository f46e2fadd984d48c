/* prefetch.cuh - prefetches rows of later blocks to the L2 cache, while this block waits for its
 * own rows. A later block then waits for the cache alone. Blocks begin in the order of their rows,
 * so each prefetches a row a fixed distance ahead: far enough for the memory to answer, and near
 * enough not to displace data still to be read. */
#ifndef ONS_PREFETCH_CUH
#define ONS_PREFETCH_CUH

#include <cstdint>

#include "../kernel/shapes.h"

constexpr int CACHE_LINE = 128; /* bytes */

/* A warp prefetches BYTES bytes, up to `end`. */
template <int BYTES>
__device__ __forceinline__ void fetch_bytes(const char *from, const char *end) {
    from += threadIdx.x % WARP * CACHE_LINE;
#pragma unroll
    for (int i = 0; i < BYTES; i += WARP * CACHE_LINE)
        if (from + i < end &&
            (BYTES >= WARP * CACHE_LINE || threadIdx.x % WARP < BYTES / CACHE_LINE))
            asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i) : "memory");
}

#endif
