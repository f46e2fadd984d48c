/* fetch.cuh - prefetches rows of later blocks to the L2 cache, while this block's rows are on their
 * way. A block then waits for the cache alone, though its registers hold one row. Blocks begin in
 * the order of their rows, so each prefetches the row some way ahead: early enough for the memory,
 * and late enough not to displace what is still to be read. */
#ifndef ONS_FETCH_CUH
#define ONS_FETCH_CUH

#include "masked.cuh"

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

/* Prefetches, for the `warp`-th warp of those that share row `row` with K chunks a lane, the same
 * part of the row args.ahead rows later. Not where addresses are costly to find. */
template <typename Rows>
struct fetching {
    template <int K>
    __device__ static void ahead(const typename Rows::arguments &, int64_t, int) {}
};

template <typename X, bool ALL_ALIGNED>
struct fetching<contiguous_rows<X, ALL_ALIGNED>> {
    using Rows = contiguous_rows<X, ALL_ALIGNED>;

    template <int K>
    __device__ __forceinline__ static void ahead(const typename Rows::arguments &args, int64_t row,
                                                 int warp) {
        constexpr int PART = K * WARP * Rows::V;
        row += args.first + args.ahead;
        if (row >= args.rows) return;
        const X *x = args.x + row * args.x_pitch;
        fetch_bytes<PART * sizeof(X)>((const char *)(x + warp * PART), (const char *)(x + args.N));
    }
};

template <typename T>
struct fetching<masked_rows<T>> {
    using Rows = masked_rows<T>;

    template <int K>
    __device__ __forceinline__ static void ahead(const typename Rows::arguments &args, int64_t row,
                                                 int warp) {
        constexpr int PART = K * WARP * Rows::V;
        row += args.ahead;
        if (row + args.first >= args.rows) return;
        const row_address at(args, row);
        const T *x = (const T *)at.x;
        fetch_bytes<PART * sizeof(T)>((const char *)(x + warp * PART), (const char *)(x + args.N));
        if (at.where && args.problem.operand[ONS_WHERE].stride[args.problem.dims - 1])
            fetch_bytes<PART>(at.where + warp * PART, at.where + args.N);
    }
};

#endif
