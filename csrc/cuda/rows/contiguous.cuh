/* contiguous.cuh - contiguous_rows: rows without gaps, by fitting_row where the row's address is a
 * multiple of a pack's size in x and in y, else by shifted_row. 16-bit rows that do not all fit
 * come all by shifted_row, which has constants for each place in a pack: with a second way of
 * everything between loads and stores a kernel is more than the instruction caches hold. */
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
        ons_operation which;

        __device__ ons_operation operation() const { return which; }
    };

    /* one_a_row: y has one value a row, wherever it lies. */
    static bool all_fit(const arguments &args, bool one_a_row) {
        return args.N % V == 0 && (uintptr_t)args.x % sizeof(pack<X, V>) == 0 &&
               args.x_pitch % V == 0 &&
               (one_a_row ||
                ((uintptr_t)args.y % sizeof(pack<Y, V>) == 0 && args.y_pitch % V == 0));
    }

    /* The pointers of the `row`-th row of this launch, each made anew where it is used. */
    template <typename Row>
    class pointers {
       public:
        __device__ pointers(const arguments &args_, Row row_) : args(args_), row(row_) {}
        __device__ const X *x() const { return args.x + (row + args.first) * args.x_pitch; }
        __device__ Y *y() const { return args.y + (row + args.first) * args.y_pitch; }

       private:
        const arguments &args;
        Row row;
    };

    /* One way for all lanes of a warp, which then do what they share together. LOADS: the body does
     * no more than load, so that there is room for a second way of it. */
    template <bool BEYOND, bool LOADS = false, typename Row, typename Body>
    __device__ __forceinline__ static void visit(const arguments &args, Row row, Body body) {
        using P = pointers<Row>;
        const P at(args, row);
        const int64_t N = BEYOND && row + args.first >= args.rows ? 0 : args.N;
        if constexpr (ALL_FIT)
            body(fitting_row<X, Y, true, P>(at, N));
        else if constexpr (NARROW && !LOADS)
            body(shifted_row<X, Y, P>(at, N));
        else if (__all_sync(~0u, begin_with_pack<X, Y, V>(at.x(), at.y())))
            body(fitting_row<X, Y, false, P>(at, N));
        else
            body(shifted_row<X, Y, P>(at, N));
    }
};

#endif
