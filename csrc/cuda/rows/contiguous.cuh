/* contiguous.cuh - contiguous_rows: rows without gaps, by fitting_row where the row's address is a
 * multiple of a pack's size, else by shifted_row. A kernel asks once around all that it does with a
 * row, or once at its loads and once at its stores (either_row). Where it asks around all, 16-bit
 * rows that do not all fit come by shifted_row alone, which has constants for each place in a pack:
 * with all between loads and stores there twice, a kernel is more than the instruction caches hold.
 */
#ifndef ONS_CONTIGUOUS_CUH
#define ONS_CONTIGUOUS_CUH

#include "shifted.cuh"

/* A row that is loaded and stored in one of two ways each. A warp comes to both together. */
template <typename X, typename Y, typename Pointers = row_pointers<X, Y>>
class either_row : public shifted_row<X, Y, Pointers> {
    using shifted = shifted_row<X, Y, Pointers>;
    /* Of 16 bits the rest of a row that does not end with a pack would cost too much. */
    static constexpr bool WHOLE = sizeof(X) + sizeof(Y) == 4;
    using fitting = fitting_row<X, Y, WHOLE, Pointers>;

   public:
    using Real = typename shifted::Real;
    static constexpr int V = shifted::V;
    using shifted::shifted;

    template <int K, int STRIDE>
    __device__ __forceinline__ packed_tile<X, K> load(int64_t chunk) const {
        if (fits(shifted::pointers.x()))
            return fitting(shifted::pointers, shifted::N).template load<K, STRIDE>(chunk);
        return shifted::template load<K, STRIDE>(chunk);
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ __forceinline__ void store(int64_t chunk, const Real (&from)[K * V],
                                          keep_bits<K * V> keep, Real excluded) const {
        if (fits(shifted::pointers.y()))
            fitting(shifted::pointers, shifted::N)
                .template store<K, STRIDE, STREAM>(chunk, from, keep, excluded);
        else
            shifted::template store<K, STRIDE, STREAM>(chunk, from, keep, excluded);
    }

   private:
    template <typename T>
    __device__ bool fits(const T *row) const {
        return __all_sync(
            ~0u, (!WHOLE || shifted::N % V == 0) && (uintptr_t)row % sizeof(pack<T, V>) == 0);
    }
};

/* A row of 16-bit elements whose results have their type, or are float32, which is learned at run
 * time: the row with results of either. */
template <typename Own, typename Wide>
class widened_row : public Own {
   public:
    using Own::put;

    __device__ widened_row(const Own &own, const Wide &wide_, bool widens_)
        : Own(own), wide(wide_), widens(widens_) {}

    template <int K, int STRIDE, bool STREAM, typename Keep, int n>
    __device__ __forceinline__ void store(int64_t chunk, const float (&from)[n], Keep keep,
                                          float excluded) const {
        if (widens)
            wide.template store<K, STRIDE, STREAM>(chunk, from, keep, excluded);
        else
            Own::template store<K, STRIDE, STREAM>(chunk, from, keep, excluded);
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

/* Rows of one type, or of 16 bits that become float32. ALL_FIT: every row begins and ends with a
 * pack, in x and in y. */
template <typename X, bool ALL_FIT>
struct contiguous_rows {
    using Real = typename compute_of<X>::type;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ::BLOCK_THREADS, BLOCKS = 1;
    static constexpr bool NARROW = sizeof(X) == 2;
    static constexpr int CLUSTER_WARPS = NARROW ? CLUSTER_WARPS_16_BIT : ::CLUSTER_WARPS;

    struct arguments {
        const X *x;
        void *y;
        int64_t x_pitch, y_pitch; /* in elements */
        int64_t rows, N;
        int64_t first; /* row of this launch */
        int64_t ahead; /* fetch.cuh */
        ons_operation which;
        format<X> of;
        bool widens;

        __device__ ons_operation operation() const { return which; }
    };

    /* one_a_row: y has one value a row, wherever it lies. */
    static bool all_fit(const arguments &args, bool one_a_row) {
        const size_t y_pack = args.widens ? sizeof(pack<float, V>) : sizeof(pack<X, V>);
        return args.N % V == 0 && (uintptr_t)args.x % sizeof(pack<X, V>) == 0 &&
               args.x_pitch % V == 0 &&
               (one_a_row || ((uintptr_t)args.y % y_pack == 0 && args.y_pitch % V == 0));
    }

    /* The pointers of the `row`-th row of this launch, each made anew where it is used. */
    template <typename Row, typename Y>
    class pointers {
       public:
        __device__ pointers(const arguments &args_, Row row_) : args(args_), row(row_) {}
        __device__ const X *x() const { return args.x + (row + args.first) * args.x_pitch; }
        __device__ Y *y() const { return (Y *)args.y + (row + args.first) * args.y_pitch; }
        __device__ const format<X> &of() const { return args.of; }

       private:
        const arguments &args;
        Row row;
    };

    template <int K>
    using tile = packed_tile<X, K>;

    /* The row where nothing of it is loaded. */
    template <typename Row>
    __device__ static auto result_of(const arguments &args, Row row) {
        return of_both<whole>(args, row, args.N);
    }

    template <bool BEYOND, two_ways WHERE = two_ways::AROUND_ROWS, typename Row, typename Body>
    __device__ __forceinline__ static void visit(const arguments &args, Row row, Body body) {
        const int64_t N = BEYOND && row + args.first >= args.rows ? 0 : args.N;
        if constexpr (ALL_FIT)
            body(of_both<whole>(args, row, N));
        else if constexpr (WHERE == two_ways::AT_ACCESSES)
            body(of_both<either>(args, row, N));
        else if constexpr (NARROW)
            body(of_both<shifted>(args, row, N));
        else if (const pointers<Row, X> at(args, row);
                 __all_sync(~0u, begin_with_pack<X, X, V>(at.x(), at.y())))
            body(of_both<fitting>(args, row, N));
        else
            body(of_both<shifted>(args, row, N));
    }

    /* K chunks of a row from `chunk` on, for a kernel that has nothing else of it in two ways: so
     * there is room for both. */
    template <int K, int STRIDE, bool BEYOND, typename Row>
    __device__ __forceinline__ static tile<K> load_row(const arguments &args, Row row,
                                                       int64_t chunk) {
        using P = pointers<Row, X>;
        const P at(args, row);
        const int64_t N = BEYOND && row + args.first >= args.rows ? 0 : args.N;
        if (ALL_FIT || __all_sync(~0u, args.N % V == 0 && begin_with_pack<X, X, V>(at.x(), at.x())))
            return whole<X, P>(at, N).template load<K, STRIDE>(chunk);
        return shifted<X, P>(at, N).template load<K, STRIDE>(chunk);
    }

   private:
    template <typename Y, typename P>
    using whole = fitting_row<X, Y, true, P>;
    template <typename Y, typename P>
    using fitting = fitting_row<X, Y, false, P>;
    template <typename Y, typename P>
    using either = either_row<X, Y, P>;
    template <typename Y, typename P>
    using shifted = shifted_row<X, Y, P>;

    /* A row of one of these kinds; of 16 bits with results of both types. */
    template <template <typename, typename> class Of, typename Row>
    __device__ __forceinline__ static auto of_both(const arguments &args, Row row, int64_t N) {
        using P = pointers<Row, X>;
        using W = pointers<Row, float>;
        const Of<X, P> own(P(args, row), N);
        if constexpr (NARROW)
            return widened_row(own, Of<float, W>(W(args, row), N), args.widens);
        else
            return own;
    }
};

/* Of kernels that hold a row: a second way costs its loads and stores alone. 16-bit rows that do
 * not all fit come one way. */
template <typename Rows>
constexpr two_ways HELD_ROWS = Rows::NARROW ? two_ways::AROUND_ROWS : two_ways::AT_ACCESSES;

template <typename Rows>
constexpr bool is_contiguous = false;
template <typename X, bool ALL_FIT>
constexpr bool is_contiguous<contiguous_rows<X, ALL_FIT>> = true;

/* Calls body with a row and K of its chunks from `chunk` on. */
template <typename Ops, typename Rows, int K, int STRIDE, bool BEYOND, two_ways WHERE, typename Row,
          typename Body>
__device__ __forceinline__ void visit_loaded(const typename Rows::arguments &args, Row index,
                                             int64_t chunk, Body body) {
    if constexpr (Ops::ONE_A_ROW && is_contiguous<Rows>) {
        auto tile = opened(Rows::template load_row<K, STRIDE, BEYOND>(args, index, chunk));
        body(Rows::result_of(args, index), tile);
    } else {
        Rows::template visit<BEYOND, WHERE>(args, index, [&](const auto &row) {
            auto tile = opened(row.template load<K, STRIDE>(chunk));
            body(row, tile);
        });
    }
}

#endif
