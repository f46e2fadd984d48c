/* fetch.cuh - rows that later blocks take are brought to the L2 cache while this one's are on their
 * way: a block then waits for the cache alone, though its registers hold but one row. Blocks begin
 * in the order of their rows, so the row some way behind the newest is asked for, early enough for
 * the memory and late enough not to push out of the cache what is yet to be read. */
#ifndef ONS_FETCH_CUH
#define ONS_FETCH_CUH

#include "masked.cuh"

constexpr int LINE = 128; /* bytes of the cache that are brought together */

/* A warp asks for those of `BYTES` bytes that lie before `end`. */
template <int BYTES>
__device__ __forceinline__ void fetch_stretch(const char *from, const char *end) {
    from += threadIdx.x % WARP * LINE;
#pragma unroll
    for (int i = 0; i < BYTES; i += WARP * LINE)
        if (from + i < end && (BYTES >= WARP * LINE || threadIdx.x % WARP < BYTES / LINE))
            asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i) : "memory");
}

/* What the `warp`-th warp of those that share row `row`, with K chunks a lane, asks for: the same
 * part of the row of.ahead rows behind it. Nothing of rows whose addresses are costly to find. */
template <typename Rows>
struct fetching {
    template <int K>
    __device__ static void ahead(const typename Rows::arguments &, int64_t, int) {}
};

template <typename X, typename Y, bool ALL_FIT>
struct fetching<contiguous_rows<X, Y, ALL_FIT>> {
    using Rows = contiguous_rows<X, Y, ALL_FIT>;

    template <int K>
    __device__ __forceinline__ static void ahead(const typename Rows::arguments &of, int64_t row,
                                                 int warp) {
        constexpr int PART = K * WARP * Rows::V;
        row += of.first + of.ahead;
        if (row >= of.rows) return;
        const X *x = of.x + row * of.x_pitch;
        fetch_stretch<PART * sizeof(X)>((const char *)(x + warp * PART), (const char *)(x + of.N));
    }
};

template <typename T>
struct fetching<masked_rows<T>> {
    using Rows = masked_rows<T>;

    template <int K>
    __device__ __forceinline__ static void ahead(const typename Rows::arguments &of, int64_t row,
                                                 int warp) {
        constexpr int PART = K * WARP * Rows::V;
        row += of.ahead;
        if (row + of.first >= of.rows) return;
        const row_address at(of, row);
        const T *x = (const T *)at.x;
        fetch_stretch<PART * sizeof(T)>((const char *)(x + warp * PART), (const char *)(x + of.N));
        if (at.where && of.problem.operand[ONS_WHERE].stride[of.problem.dims - 1])
            fetch_stretch<PART>(at.where + warp * PART, at.where + of.N);
    }
};

#endif
