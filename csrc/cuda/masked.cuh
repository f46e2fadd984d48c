/* masked.cuh - masked_rows: rows without gaps, as in contiguous.cuh, of which `where` excludes
 * elements, or which are scaled. The mask lies without gaps too, or is one byte for a whole row. */
#ifndef ONS_MASKED_CUH
#define ONS_MASKED_CUH

#include "address.cuh"
#include "contiguous.cuh"

/* Row: fitting_row or shifted_row. */
template <typename Row>
class masked_row : public Row {
   public:
    using Real = typename Row::Real;
    static constexpr int V = Row::V;

    template <typename X, typename Y>
    __device__ masked_row(const X *x, Y *y, int64_t N, const row_address &at, int where_step_)
        : Row(x, y, N), where(at.where), where_step(where_step_), scale(at.scale) {}

    template <int K, int STRIDE>
    __device__ __forceinline__ real_tile<Real, K> load(int64_t chunk) const {
        const auto packed = Row::template load<K, STRIDE>(chunk);
        real_tile<Real, K> tile;
        tile.keep = kept<K, STRIDE>(chunk);
#pragma unroll
        for (int e = 0; e < K * V; e++) tile.x[e] = packed.element(e);
        if (scale != 1.0) {
#pragma unroll
            for (int e = 0; e < K * V; e++) tile.x[e] = scaled(tile.x[e], scale);
        }
#pragma unroll
        for (int e = 0; e < K * V; e++)
            if (!(tile.keep >> e & 1)) tile.x[e] = -arithmetic<Real>::infinity();
        return tile;
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ __forceinline__ void store(int64_t chunk, const Real (&from)[K * V],
                                          keep_bits<K * V> keep) const {
        Real result[K * V];
#pragma unroll
        for (int e = 0; e < K * V; e++) result[e] = keep >> e & 1 ? from[e] : (Real)0;
        Row::template store<K, STRIDE, STREAM>(chunk, result, keep);
    }

   private:
    /* Bits of the elements that lie in the row and are not excluded. */
    template <int K, int STRIDE>
    __device__ __forceinline__ keep_bits<K * V> kept(int64_t chunk) const {
        const int left = elements_left(Row::N, chunk * V);
        const char *from = where + (where_step ? chunk * V : 0);
        keep_bits<K * V> keep = 0;
        if (where && where_step && (uintptr_t)from % V == 0 && has_all<K, STRIDE, V>(left)) {
#pragma unroll
            for (int k = 0; k < K; k++)
                keep |= (keep_bits<K * V>)bits_of_bytes(from + k * (STRIDE * V)) << k * V;
            return keep;
        }
#pragma unroll
        for (int e = 0; e < K * V; e++) {
            const int at = place<STRIDE, V>(e);
            if (at < left && (!where || from[where_step ? at : 0]))
                keep |= keep_bits<K * V>(1) << e;
        }
        return keep;
    }

    /* Which of the V bytes there, at a multiple of V, are not 0. */
    __device__ static unsigned bits_of_bytes(const char *from) {
        if constexpr (V == 4) {
            unsigned ones = __vcmpne4(*(const unsigned *)from, 0) & 0x08040201u;
            return (ones | ones >> 8 | ones >> 16 | ones >> 24) & 15;
        } else {
            unsigned bytes = *(const unsigned short *)from;
            return (bytes & 0xff ? 1 : 0) | (bytes >> 8 ? 2 : 0);
        }
    }

    const char *where;
    int where_step;
    double scale;
};

template <typename T>
struct masked_rows {
    using Real = typename compute_of<T>::type;
    using arguments = problem_arguments;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ANY_BLOCK_THREADS, BLOCKS = 1;
    static constexpr bool NARROW = sizeof(T) == 2;
    static constexpr int CLUSTER_WARPS = ::CLUSTER_WARPS;

    static bool can_take(const ons_problem &of) {
        int inner = of.dims - 1;
        bool alone = of.extent[inner] == 1;
        bool mask = !of.where.data || (of.where.stride[inner] & ~1ll) == 0 || alone;
        return of.reduced_dims == 1 && mask &&
               (alone || (of.x.stride[inner] == sizeof(T) && of.y.stride[inner] == sizeof(T)));
    }

    template <bool BEYOND, typename Body>
    __device__ __forceinline__ static void visit(const arguments &of, int64_t row, Body body) {
        using fits = masked_row<fitting_row<T, T, false>>;
        using shifted = masked_row<shifted_row<T, T>>;
        int64_t N = BEYOND && row + of.first >= of.rows ? 0 : of.N;
        int where_step = (int)of.problem.where.stride[of.problem.dims - 1];
        const row_address at(of, row);
        const T *x = (const T *)at.x;
        T *y = (T *)at.y;
        if (__all_sync(~0u, begin_with_pack<T, T, V>(x, y)))
            body(fits(x, y, N, at, where_step));
        else
            body(shifted(x, y, N, at, where_step));
    }
};

#endif
