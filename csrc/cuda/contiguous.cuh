/* contiguous.cuh - contiguous_rows: rows without gaps, by fitting_row where the row's address is a
 * multiple of a pack's size in x and in y, else by shifted_row. */
#ifndef ONS_CONTIGUOUS_CUH
#define ONS_CONTIGUOUS_CUH

#include "shifted.cuh"

/* ALL_FIT: every row begins and ends with a pack, in x and in y. */
template <typename X, typename Y, bool ALL_FIT>
struct contiguous_rows {
    using Real = typename compute_of<X>::type;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ::BLOCK_THREADS, BLOCKS = 1;
    static constexpr bool NARROW = sizeof(X) + sizeof(Y) == 4;
    static constexpr int CLUSTER_WARPS = NARROW ? CLUSTER_WARPS_16_BIT : ::CLUSTER_WARPS;

    struct arguments {
        const X *x;
        Y *y;
        int64_t x_pitch, y_pitch; /* in elements */
        int64_t rows, N;
        int64_t first; /* row of this launch */
        int64_t ahead; /* fetch.cuh */
    };

    static bool all_fit(const arguments &of) {
        return of.N % V == 0 && (uintptr_t)of.x % sizeof(pack<X, V>) == 0 && of.x_pitch % V == 0 &&
               (uintptr_t)of.y % sizeof(pack<Y, V>) == 0 && of.y_pitch % V == 0;
    }

    /* One way for all lanes of a warp, which then do what they share together. */
    template <bool BEYOND, typename Body>
    __device__ __forceinline__ static void visit(const arguments &of, int64_t row, Body body) {
        row += of.first;
        int64_t N = BEYOND && row >= of.rows ? 0 : of.N;
        const X *x = of.x + row * of.x_pitch;
        Y *y = of.y + row * of.y_pitch;
        if constexpr (ALL_FIT)
            body(fitting_row<X, Y, true>(x, y, N));
        else if (__all_sync(~0u, begin_with_pack<X, Y, V>(x, y)))
            body(fitting_row<X, Y, false>(x, y, N));
        else
            body(shifted_row<X, Y>(x, y, N));
    }
};

#endif
