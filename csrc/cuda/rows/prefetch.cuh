/* prefetch.cuh - prefetches rows of later blocks to the L2 cache, while this block's rows are on
 * their way. A block then waits for the cache alone, though its registers hold one row. Blocks
 * begin in the order of their rows, so each prefetches the row some way ahead: early enough for the
 * memory, and late enough not to displace what is still to be read. */
#ifndef ONS_PREFETCH_CUH
#define ONS_PREFETCH_CUH

#include <cstdint>

#include "../kernel/shapes.h"

constexpr int CACHE_LINE = 128; /* bytes */

/* A warp prefetches those of `BYTES` bytes that lie before `end`. */
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
