/* contiguous.cuh - contiguous_rows: rows without gaps. One that begins with a pack is an
 * aligned_row, any other an unaligned_row. A kernel tests that once around all that it does with a
 * row, or at its loads and at its stores (maybe_aligned_row). Where it tests once, 16-bit rows that
 * are not all aligned are unaligned_rows, which have constants for each place in a pack: two copies
 * of all between loads and stores would not fit the instruction caches. */
#ifndef ONS_CONTIGUOUS_CUH
#define ONS_CONTIGUOUS_CUH

#include "fetch.cuh"
#include "unaligned.cuh"

/* A row that each load and each store tests for alignment. To be called by whole warps. */
template <typename X, typename Y, typename Pointers = row_pointers<X, Y>>
class maybe_aligned_row : public unaligned_row<X, Y, Pointers> {
    using unaligned = unaligned_row<X, Y, Pointers>;
    /* In 16 bits the tail of a row that does not end with a pack would cost too much. */
    static constexpr bool NO_TAIL = sizeof(X) + sizeof(Y) == 4;
    using aligned = aligned_row<X, Y, NO_TAIL, Pointers>;

   public:
    using Real = typename unaligned::Real;
    static constexpr int V = unaligned::V;
    using unaligned::unaligned;

    template <int K, int STRIDE>
    __device__ __forceinline__ raw_tile<X, K> load(int64_t chunk) const {
        if (is_aligned(unaligned::pointers.x()))
            return aligned(unaligned::pointers, unaligned::N).template load<K, STRIDE>(chunk);
        return unaligned::template load<K, STRIDE>(chunk);
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ __forceinline__ void store(int64_t chunk, const Real (&from)[K * V],
                                          allowed_bits<K * V> allowed, Real excluded) const {
        if (is_aligned(unaligned::pointers.y()))
            aligned(unaligned::pointers, unaligned::N)
                .template store<K, STRIDE, STREAM>(chunk, from, allowed, excluded);
        else
            unaligned::template store<K, STRIDE, STREAM>(chunk, from, allowed, excluded);
    }

   private:
    template <typename T>
    __device__ bool is_aligned(const T *row) const {
        return __all_sync(
            ~0u, (!NO_TAIL || unaligned::N % V == 0) && (uintptr_t)row % sizeof(pack<T, V>) == 0);
    }
};

/* A row of 16-bit elements, and of results of their type or float32, which is known at run time. */
template <typename Own, typename Wide>
class widened_row : public Own {
   public:
    using Own::put;

    __device__ widened_row(const Own &own, const Wide &wide_, bool widens_)
        : Own(own), wide(wide_), widens(widens_) {}

    template <int K, int STRIDE, bool STREAM, typename Allowed, int n>
    __device__ __forceinline__ void store(int64_t chunk, const float (&from)[n], Allowed allowed,
                                          float excluded) const {
        if (widens)
            wide.template store<K, STRIDE, STREAM>(chunk, from, allowed, excluded);
        else
            Own::template store<K, STRIDE, STREAM>(chunk, from, allowed, excluded);
    }

    __device__ void put(float v, int64_t at = 0) const {
        if (widens)
            wide.put(v, at);
        else
            Own::put(v, at);
    }

   private:
    Wide wide;
    bool widens;
};

/* Rows of one type, or of 16 bits that become float32. ALL_ALIGNED: every row begins and ends with
 * a pack, in x and in y. */
template <typename X, bool ALL_ALIGNED>
struct contiguous_rows {
    using Real = typename compute_of<X>::type;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ::BLOCK_THREADS, BLOCKS = 1;
    static constexpr bool IS_16_BIT = sizeof(X) == 2;
    static constexpr int CLUSTER_WARPS = IS_16_BIT ? CLUSTER_WARPS_16_BIT : ::CLUSTER_WARPS;

    /* Whether warps of a cluster that have no elements leave at once. That pays where instructions
     * bound. */
    static constexpr bool EMPTY_WARPS_LEAVE = IS_16_BIT && !ALL_ALIGNED;

    struct arguments {
        const X *x;
        void *y;
        int64_t x_pitch, y_pitch; /* in elements */
        int64_t rows, N;
        int64_t first; /* row of this launch */
        int64_t ahead; /* fetch.cuh */
        ons_operation which;
        element_format<X> format;
        bool widens;

        __device__ ons_operation operation() const { return which; }
    };

    /* one_a_row: y has one value a row, wherever it lies. */
    static bool all_aligned(const arguments &args, bool one_a_row) {
        const size_t y_pack = args.widens ? sizeof(pack<float, V>) : sizeof(pack<X, V>);
        return args.N % V == 0 && (uintptr_t)args.x % sizeof(pack<X, V>) == 0 &&
               args.x_pitch % V == 0 &&
               (one_a_row || ((uintptr_t)args.y % y_pack == 0 && args.y_pitch % V == 0));
    }

    /* The pointers of row `row` of this launch, each computed again where it is used. */
    template <typename Row, typename Y>
    class pointers {
       public:
        __device__ pointers(const arguments &args_, Row row_) : args(args_), row(row_) {}
        __device__ const X *x() const { return args.x + (row + args.first) * args.x_pitch; }
        __device__ Y *y() const { return (Y *)args.y + (row + args.first) * args.y_pitch; }
        __device__ const element_format<X> &format() const { return args.format; }

       private:
        const arguments &args;
        Row row;
    };

    template <int K>
    using tile = raw_tile<X, K>;

    /* The row of a kernel that loads nothing by it. */
    template <typename Row>
    __device__ static auto result_of(const arguments &args, Row row) {
        return of_both<without_tail>(args, row, args.N);
    }

    template <bool CHECK_ROW, alignment_test TEST = alignment_test::PER_ROW, typename Row,
              typename Body>
    __device__ __forceinline__ static void visit(const arguments &args, Row row, Body body) {
        const int64_t N = CHECK_ROW && row + args.first >= args.rows ? 0 : args.N;
        if constexpr (ALL_ALIGNED)
            body(of_both<without_tail>(args, row, N));
        else if constexpr (TEST == alignment_test::PER_ACCESS)
            body(of_both<maybe_aligned>(args, row, N));
        else if constexpr (IS_16_BIT)
            body(of_both<unaligned>(args, row, N));
        else if (const pointers<Row, X> at(args, row);
                 __all_sync(~0u, are_aligned<X, X, V>(at.x(), at.y())))
            body(of_both<aligned>(args, row, N));
        else
            body(of_both<unaligned>(args, row, N));
    }

    /* Prefetches, for the `warp`-th warp of those that share row `row` with K chunks a lane, the
     * same part of the row args.ahead rows later (fetch.cuh). */
    template <int K>
    __device__ __forceinline__ static void ahead(const arguments &args, int64_t row, int warp) {
        constexpr int PART = K * WARP * V;
        row += args.first + args.ahead;
        if (row >= args.rows) return;
        const X *x = args.x + row * args.x_pitch;
        fetch_bytes<PART * sizeof(X)>((const char *)(x + warp * PART), (const char *)(x + args.N));
    }

    /* K chunks of a row, for kernels that store none: these have room for both loads. */
    template <int K, int STRIDE, bool CHECK_ROW, typename Row>
    __device__ __forceinline__ static tile<K> load_row(const arguments &args, Row row,
                                                       int64_t chunk) {
        using P = pointers<Row, X>;
        const P at(args, row);
        const int64_t N = CHECK_ROW && row + args.first >= args.rows ? 0 : args.N;
        if (ALL_ALIGNED || __all_sync(~0u, args.N % V == 0 && are_aligned<X, X, V>(at.x(), at.x())))
            return without_tail<X, P>(at, N).template load<K, STRIDE>(chunk);
        return unaligned<X, P>(at, N).template load<K, STRIDE>(chunk);
    }

   private:
    template <typename Y, typename P>
    using without_tail = aligned_row<X, Y, true, P>;
    template <typename Y, typename P>
    using aligned = aligned_row<X, Y, false, P>;
    template <typename Y, typename P>
    using maybe_aligned = maybe_aligned_row<X, Y, P>;
    template <typename Y, typename P>
    using unaligned = unaligned_row<X, Y, P>;

    /* A row of one of these kinds; in 16 bits with results of both types. */
    template <template <typename, typename> class Of, typename Row>
    __device__ __forceinline__ static auto of_both(const arguments &args, Row row, int64_t N) {
        using P = pointers<Row, X>;
        using W = pointers<Row, float>;
        const Of<X, P> own(P(args, row), N);
        if constexpr (IS_16_BIT)
            return widened_row(own, Of<float, W>(W(args, row), N), args.widens);
        else
            return own;
    }
};

/* For kernels that hold a row: PER_ACCESS doubles loads and stores alone. 16-bit rows that are not
 * all aligned have one way. */
template <typename Rows>
constexpr alignment_test TEST_WHEN_HELD =
    Rows::IS_16_BIT ? alignment_test::PER_ROW : alignment_test::PER_ACCESS;

template <typename Rows>
constexpr bool is_contiguous_rows = false;
template <typename X, bool ALL_ALIGNED>
constexpr bool is_contiguous_rows<contiguous_rows<X, ALL_ALIGNED>> = true;

#endif
