/* contiguous.cuh - contiguous_rows: rows without gaps, aligned or not (packs.cuh). If much code
 * lies between load and store, aligned and other 16-bit rows have a kernel each. One kernel for
 * both would not fit the instruction caches. */
#ifndef ONS_CONTIGUOUS_CUH
#define ONS_CONTIGUOUS_CUH

#include "prefetch.cuh"
#include "unaligned.cuh"

/* A row that may be aligned or not. A loop over its tiles asks once (known). */
template <typename X, typename Y, typename Pointers = row_pointers<X, Y>>
class either_row : public unaligned_row<X, Y, Pointers> {
    using unaligned = unaligned_row<X, Y, Pointers>;
    /* 16-bit rows with 16-bit results have no tail: it would cost too much. */
    static constexpr bool TAIL = sizeof(X) + sizeof(Y) > 4;
    using aligned = aligned_row<X, Y, TAIL, Pointers>;

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

    /* Calls body with the row as its true kind. */
    template <typename Body>
    __device__ __forceinline__ void known(Body body) const {
        if (is_aligned(unaligned::pointers.x()) && is_aligned(unaligned::pointers.y()))
            body(aligned(unaligned::pointers, unaligned::N));
        else
            body(*(const unaligned *)this);
    }

   private:
    /* Whether the rows of all lanes of the warp are aligned. */
    template <typename T>
    __device__ bool is_aligned(const T *row) const {
        return __all_sync(
            ~0u, (TAIL || unaligned::N % V == 0) && (uintptr_t)row % sizeof(pack<T, V>) == 0);
    }
};

template <typename X, typename Y, typename Pointers, typename Body>
__device__ __forceinline__ void known(const either_row<X, Y, Pointers> &row, Body body) {
    row.known(body);
}
template <typename Row, typename Body>
__device__ __forceinline__ void known(const Row &row, Body body) {
    body(row);
}

template <alignment ALIGNED, typename X, typename Y, typename Pointers = row_pointers<X, Y>>
using row_without_gaps = std::conditional_t<
    ALIGNED == alignment::ALL, aligned_row<X, Y, false, Pointers>,
    std::conditional_t<ALIGNED == alignment::NOT_ALL, unaligned_row<X, Y, Pointers>,
                       either_row<X, Y, Pointers>>>;

/* A row of 16-bit elements. Its results are 16-bit or float32, which is known only at run time. */
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

/* Rows whose results have the elements' type, or 16-bit rows with float32 results. */
template <typename X, alignment ALIGNED>
struct contiguous_rows {
    using Real = typename compute_of<X>::type;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ::BLOCK_THREADS, BLOCKS = 1;
    static constexpr bool IS_16_BIT = sizeof(X) == 2;
    static constexpr int CLUSTER_WARPS = IS_16_BIT ? CLUSTER_WARPS_16_BIT : ::CLUSTER_WARPS;

    /* Whether cluster warps without elements leave at once. That pays if instructions limit the
     * speed. */
    static constexpr bool EMPTY_WARPS_LEAVE = IS_16_BIT && ALIGNED == alignment::NOT_ALL;

    struct arguments {
        const X *x;
        void *y;
        int64_t x_pitch, y_pitch; /* in elements */
        int64_t rows, N;
        ons_launch launch;
        int64_t ahead; /* rows to prefetch ahead (prefetch.cuh) */
        ons_operation which;
        element_format<X> format;
        bool widens;

        __device__ ons_operation operation() const { return which; }
    };

    /* The pointers of row `row` of this launch, computed anew at each use. */
    template <typename Row, typename Y>
    class pointers {
       public:
        __device__ pointers(const arguments &args_, Row row_) : args(args_), row(row_) {}
        __device__ int64_t number() const { return row + args.launch.first_row; }
        __device__ const X *x() const { return args.x + number() * args.x_pitch; }
        __device__ Y *y() const { return (Y *)args.y + number() * args.y_pitch; }
        __device__ const element_format<X> &format() const { return args.format; }

       private:
        const arguments &args;
        Row row;
    };

    template <int K>
    using tile = raw_tile<X, K>;

    /* A 16-bit row can store both types of results. */
    template <bool CHECK_ROW, typename Index>
    __device__ __forceinline__ static auto row(const arguments &args, Index index) {
        using P = pointers<Index, X>;
        using W = pointers<Index, float>;
        const int64_t N = CHECK_ROW && index + args.launch.first_row >= args.rows ? 0 : args.N;
        const row_without_gaps<ALIGNED, X, X, P> own(P(args, index), N);
        if constexpr (IS_16_BIT)
            return widened_row(own, row_without_gaps<ALIGNED, X, float, W>(W(args, index), N),
                               args.widens);
        else
            return own;
    }

    /* Prefetches part of the row that comes args.ahead rows after row `row` (prefetch.cuh): the
     * part that has the same place there as warp `warp` has in this row, with K chunks a lane. */
    template <int K>
    __device__ __forceinline__ static void ahead(const arguments &args, int64_t row, int warp) {
        constexpr int PART = K * WARP * V;
        row += args.launch.first_row + args.ahead;
        if (row >= args.rows) return;
        const X *x = args.x + row * args.x_pitch;
        fetch_bytes<PART * sizeof(X)>((const char *)(x + warp * PART), (const char *)(x + args.N));
    }
};

#endif
