/* masked.cuh - masked_rows: rows without gaps, as in contiguous.cuh, of which `where` excludes
 * elements, or which are scaled. The mask lies without gaps too, or is one byte for a whole row. */
#ifndef ONS_MASKED_CUH
#define ONS_MASKED_CUH

#include "address.cuh"
#include "contiguous.cuh"

/* A tile whose elements are x * factor, rounded; factor is above 0 and finite. */
template <typename X, int K_>
struct scaled_tile {
    using packed = packed_tile<X, K_>;
    using Real = typename packed::Real;
    static constexpr int K = K_, V = packed::V;
    static constexpr bool HAS_SMALLEST = packed::HAS_SMALLEST;

    packed from;
    Real factor;

    template <int n>
    __device__ __forceinline__ void take(Real (&x)[n], int first = 0) const {
        from.take(x, first);
#pragma unroll
        for (int e = 0; e < n; e++) x[e] = product(x[e], factor);
    }
    __device__ static keep_bits<K * V> kept() { return packed::kept(); }
    /* To multiply keeps the order. */
    __device__ Real largest() const { return product(from.largest(), factor); }
    __device__ Real smallest() const { return product(from.smallest(), factor); }
    __device__ scaled_tile<X, 1> chunk(int k) const { return {from.chunk(k), factor}; }
};

template <int K>
__device__ __forceinline__ auto opened(const scaled_tile<narrow, K> &tile) {
    if constexpr (K <= OPEN_CHUNKS) {
        open_tile<K> all(tile.from);
#pragma unroll
        for (float &x : all.x) x = product(x, tile.factor);
        all.most = product(all.most, tile.factor);
        all.least = product(all.least, tile.factor);
        return all;
    } else {
        return tile;
    }
}

/* The mask of a row without gaps, or null. */
class mask_row {
   public:
    __device__ mask_row(const row_address &at, int step_) : where(at.where), step(step_) {}

    __device__ bool is_given() const { return where; }
    __device__ bool excludes(int64_t element) const { return !where[step ? element : 0]; }

    /* Reads V bytes, of which 0 excludes an element, for each of a thread's K chunks, of which it
     * has `left` elements; for those beyond they are 0 or anything. */
    template <int K, int STRIDE, int V>
    __device__ __forceinline__ void read(int64_t chunk, int left, unsigned (&bytes)[K]) const {
        using word = std::conditional_t<V == 4, unsigned, unsigned short>;
        const char *from = where + (step ? chunk * V : 0);
        if (!step) {
            const unsigned all = *from ? ~0u : 0;
#pragma unroll
            for (int k = 0; k < K; k++) bytes[k] = all;
            return;
        }
        /* the words in which a chunk's bytes lie, where they end with the row at the latest */
        const int shift = (int)((uintptr_t)from % V), whole = shift ? 2 * V - shift : V;
        word second[K];
#pragma unroll
        for (int k = 0; k < K; k++) {
            bytes[k] = second[k] = 0;
            if (k * (STRIDE * V) + whole <= left) {
                const word *first = (const word *)(from - shift + k * (STRIDE * V));
                bytes[k] = first[0];
                if (shift) second[k] = first[1];
            }
        }
        if (shift) {
#pragma unroll
            for (int k = 0; k < K; k++)
                bytes[k] = V == 4 ? __funnelshift_r(bytes[k], second[k], 8 * shift)
                                  : (bytes[k] | (unsigned)second[k] << 16) >> 8 * shift;
        }
        if (has_all<K, STRIDE, V>(left - (whole - V))) return;
#pragma unroll
        for (int k = 0; k < K; k++)
            if (k * (STRIDE * V) + whole > left) {
#pragma unroll 1
                for (int i = 0; i < V && k * (STRIDE * V) + i < left; i++)
                    bytes[k] |= (unsigned)(unsigned char)from[k * (STRIDE * V) + i] << 8 * i;
            }
    }

   private:
    const char *where;
    int step;
};

/* Row: fitting_row or shifted_row. */
template <typename X, typename Row>
class masked_row : public Row {
   public:
    using Real = typename Row::Real;
    static constexpr int V = Row::V;

    __device__ masked_row(const X *x, X *y, int64_t N, const format<X> &of, const row_address &at,
                          int where_step)
        : Row(x, y, N, of), mask(at, where_step), scale(at.scale) {}

    /* An excluded element's result is right already, but in a row that is NaN as a whole. */
    template <int K, int STRIDE, bool STREAM>
    __device__ __forceinline__ void store(int64_t chunk, const Real (&from)[K * V],
                                          keep_bits<K * V> keep, Real excluded) const {
        Row::template store<K, STRIDE, STREAM>(chunk, from, keep, excluded);
        if (!mask.is_given() || !__any_sync(~0u, isnan(from[0]))) return;
        __syncwarp(); /* another lane may have written there */
        const int left = elements_left(Row::N, chunk * V);
#pragma unroll 1
        for (int e = 0; e < K * V; e++) {
            const int64_t at = chunk * V + place<STRIDE, V>(e);
            if (place<STRIDE, V>(e) < left && mask.excludes(at))
                Row::pointers.y()[at] = Row::of_results().rounded(excluded);
        }
    }

   protected:
    /* A thread's chunks, without what the mask excludes. */
    template <int K, int STRIDE>
    __device__ __forceinline__ packed_tile<X, K> load_kept(int64_t chunk) const {
        auto tile = Row::template load<K, STRIDE>(chunk);
        if (mask.is_given()) {
            unsigned bytes[K];
            mask.template read<K, STRIDE, V>(chunk, elements_left(Row::N, chunk * V), bytes);
#pragma unroll
            for (int k = 0; k < K; k++) tile.raw[k].keep(bytes[k], tile.of);
        }
        return tile;
    }

    mask_row mask;
    double scale;
};

/* A row whose scale is exact in the arithmetic's type, above 0 and finite. */
template <typename X, typename Row>
class scaled_row : public masked_row<X, Row> {
   public:
    using masked_row<X, Row>::masked_row;
    using Real = typename Row::Real;

    __device__ static bool can_take(double scale) {
        return (double)(Real)scale == scale && scale > 0 && isfinite(scale);
    }

    template <int K, int STRIDE>
    __device__ __forceinline__ scaled_tile<X, K> load(int64_t chunk) const {
        return {this->template load_kept<K, STRIDE>(chunk), (Real)this->scale};
    }
};

/* A row of any scale: what the mask excludes stays so where the scale turns -inf into inf. */
template <typename X, typename Row>
class rescaled_row : public masked_row<X, Row> {
   public:
    using masked_row<X, Row>::masked_row;
    using Real = typename Row::Real;
    static constexpr int V = Row::V;

    template <int K, int STRIDE>
    __device__ __forceinline__ real_tile<Real, K> load(int64_t chunk) const {
        const auto packed = Row::template load<K, STRIDE>(chunk);
        const int left = elements_left(Row::N, chunk * V);
        real_tile<Real, K> tile;
        tile.keep = ~keep_bits<K * V>(0);
        if (this->mask.is_given()) {
            unsigned bytes[K];
            this->mask.template read<K, STRIDE, V>(chunk, left, bytes);
#pragma unroll
            for (int e = 0; e < K * V; e++)
                if (!(bytes[e / V] >> 8 * (e % V) & 0xff)) tile.keep &= ~(keep_bits<K * V>(1) << e);
        }
        packed.take(tile.x);
        scale_all(tile.x, this->scale);
#pragma unroll
        for (int e = 0; e < K * V; e++)
            if (place<STRIDE, V>(e) >= left || !(tile.keep >> e & 1))
                tile.x[e] = -arithmetic<Real>::infinity();
        return tile;
    }
};

template <typename T>
struct masked_rows {
    using Real = typename compute_of<T>::type;
    using arguments = problem_arguments;
    static constexpr bool NARROW = sizeof(T) == 2;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ANY_BLOCK_THREADS,
                         BLOCKS = NARROW ? 2 : 1;
    static constexpr int CLUSTER_WARPS = ::CLUSTER_WARPS;

    template <bool BEYOND, two_ways = two_ways::AROUND_ROWS, typename Body>
    __device__ __forceinline__ static void visit(const arguments &args, int64_t row, Body body) {
        const int64_t N = BEYOND && row + args.first >= args.rows ? 0 : args.N;
        const int where_step = (int)args.problem.operand[ONS_WHERE].stride[args.problem.dims - 1];
        const row_address at(args, row);
        const T *x = (const T *)at.x;
        T *y = (T *)at.y;
        const format<T> of(args.problem.operand[ONS_X].dtype);
        using Row = std::conditional_t<NARROW, shifted_row<T, T>, either_row<T, T>>;
        if (__all_sync(~0u, scaled_row<T, Row>::can_take(at.scale)))
            body(scaled_row<T, Row>(x, y, N, of, at, where_step));
        else
            body(rescaled_row<T, Row>(x, y, N, of, at, where_step));
    }
};

#endif
