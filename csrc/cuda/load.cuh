/* load.cuh - how the elements of a row arrive in a thread's registers, as a tile (tile.cuh), and
 * where they go back: K chunks of neighbouring elements at a time, chunk `chunk` and every
 * STRIDE-th after it. What lies beyond the row's end, and what `where` excludes, arrives as -inf.
 *
 *   contiguous_rows  rows without gaps, at any alignment: whole chunks in one access each where the
 *                    row's address allows it
 *
 *   masked_rows      the same with a mask, a scale, any number of outer dimensions
 *
 *   strided_rows     any stride along the row, any number of outer dimensions, mask, scale
 *
 *   general_rows     all of these and all else, with types that are known at run time alone; rows
 *                    of several dimensions one element at a time
 *
 * The order in which a row is added up does not depend on which of these it is, nor on the types:
 * all give the same bits. y may be x: nothing here may be read through the read-only cache, and a
 * thread writes what it alone has read.
 *
 * Rows::visit<BEYOND>(arguments, row, body) calls body with the row: a warp must come to it
 * together. BEYOND: the row may lie beyond the last, and then has no elements.
 *
 * NARROW: elements of one type of 16 bits, of which fused_warp gives a lane twice as many.
 *
 * What the addresses take of the registers is the less, the simpler the rows. BLOCK_THREADS is the
 * most threads that a block may have where each holds 8 chunks, and BLOCKS how many such blocks
 * find room side by side; CLUSTER_WARPS is how many warps do whose threads hold 16 chunks. */
#ifndef ONS_LOAD_CUH
#define ONS_LOAD_CUH

#include "masked.cuh"

/* ------- strided_rows and general_rows ------- */

/* Which of a thread's elements a mask keeps. */
template <int K, int STRIDE, int V>
__device__ inline keep_bits<K * V> load_mask(const char *where, int64_t stride, int64_t chunk,
                                             int left) {
    const char *from = where + chunk * V * stride;
    keep_bits<K * V> keep = 0;
#pragma unroll
    for (int e = 0; e < K * V; e++)
        if (place<STRIDE, V>(e) < left && from[place<STRIDE, V>(e) * stride])
            keep |= keep_bits<K * V>(1) << e;
    return keep;
}

template <typename T>
class strided_rows {
   public:
    using Real = typename compute_of<T>::type;
    using arguments = problem_arguments;
    static constexpr bool NARROW = false;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ANY_BLOCK_THREADS,
                         CLUSTER_WARPS = ::CLUSTER_WARPS;
    static constexpr int BLOCKS = sizeof(Real) == sizeof(float) ? 2 : 1;

    template <bool BEYOND, typename Body>
    __device__ __forceinline__ static void visit(const arguments &of, int64_t row, Body body) {
        body(strided_rows(of, row));
    }

    __device__ strided_rows(const arguments &of, int64_t row)
        : N(row + of.first < of.rows ? of.N : 0),
          at(of, row),
          x_stride(of.problem.operand[ONS_X].stride[of.problem.dims - 1]),
          y_stride(of.problem.operand[ONS_Y].stride[of.problem.dims - 1]),
          where_stride(of.problem.operand[ONS_WHERE].stride[of.problem.dims - 1]) {}

    template <int K, int STRIDE>
    __device__ real_tile<Real, K> load(int64_t chunk) const {
        const char *from = at.x + chunk * V * x_stride;
        int left = elements_left(N, chunk * V);
        real_tile<Real, K> tile;
        tile.keep = ~keep_bits<K * V>(0);
        if (STRIDE == 1 && is_plain() && has_all<K, STRIDE, V>(left)) {
            walk<K>(from, x_stride,
                    [&](int e, const char *x) { tile.x[e] = to_real<Real>(*(const T *)x); });
            return tile;
        }
        if (at.where) tile.keep = load_mask<K, STRIDE, V>(at.where, where_stride, chunk, left);
        T raw[K * V];
#pragma unroll
        for (int e = 0; e < K * V; e++)
            if (place<STRIDE, V>(e) < left)
                raw[e] = *(const T *)(from + place<STRIDE, V>(e) * x_stride);
#pragma unroll
        for (int e = 0; e < K * V; e++) {
            bool there = place<STRIDE, V>(e) < left && (tile.keep >> e & 1);
            tile.x[e] = there ? to_real<Real>(raw[e]) : -arithmetic<Real>::infinity();
            if (at.scale != 1.0 && there) tile.x[e] = scaled(tile.x[e], at.scale);
        }
        return tile;
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ void store(int64_t chunk, const Real (&from)[K * V], keep_bits<K * V> keep,
                          Real excluded) const {
        char *to = at.y + chunk * V * y_stride;
        int left = elements_left(N, chunk * V);
        if (STRIDE == 1 && is_plain() && has_all<K, STRIDE, V>(left)) {
            walk<K>(to, y_stride, [&](int e, char *y) { *(T *)y = from_real<T>(from[e]); });
            return;
        }
#pragma unroll
        for (int e = 0; e < K * V; e++)
            if (place<STRIDE, V>(e) < left)
                *(T *)(to + place<STRIDE, V>(e) * y_stride) =
                    from_real<T>(keep >> e & 1 ? from[e] : excluded);
    }

    /* Writes the one value of the row. */
    __device__ void put(Real v) const { *(T *)at.y = from_real<T>(v); }

    __device__ Real rounded(Real v) const { return to_real<Real>(from_real<T>(v)); }

    int64_t N;

   private:
    __device__ bool is_plain() const { return !at.where && at.scale == 1.0; }

    /* Calls visit(e, its address) for all elements of a thread's K chunks, one after the other:
     * addresses that are all made first take the registers of the elements. */
    template <int K, typename Byte, typename Visit>
    __device__ __forceinline__ static void walk(Byte *element, int64_t stride, Visit visit) {
#pragma unroll
        for (int e = 0; e < K * V; e++, element += stride) {
            asm("" : "+l"(element));
            visit(e, element);
        }
    }

    row_address at;
    int64_t x_stride, y_stride, where_stride;
};

template <typename Compute>
class general_rows {
   public:
    using Real = Compute;
    using arguments = problem_arguments;
    static constexpr bool NARROW = false;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ANY_BLOCK_THREADS,
                         CLUSTER_WARPS = ::CLUSTER_WARPS;
    static constexpr int BLOCKS = 1;

    template <bool BEYOND, typename Body>
    __device__ __forceinline__ static void visit(const arguments &of, int64_t row, Body body) {
        body(general_rows(of, row));
    }

    __device__ general_rows(const arguments &of, int64_t row)
        : N(row + of.first < of.rows ? of.N : 0), problem(of.problem), at(of, row) {}

    template <int K, int STRIDE>
    __device__ real_tile<Real, K> load(int64_t chunk) const {
        real_tile<Real, K> tile;
        if (problem.reduced_dims > 1)
            load_one_by_one<K, STRIDE>(chunk, tile);
        else
            load_strided<K, STRIDE>(chunk, tile);
        return tile;
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ void store(int64_t chunk, const Real (&from)[K * V], keep_bits<K * V> keep,
                          Real excluded) const {
        if (problem.reduced_dims > 1 || is_wider(problem.operand[ONS_Y].dtype))
            store_one_by_one<K, STRIDE>(chunk, from, keep, excluded);
        else
            store_strided<K, STRIDE>(chunk, from, keep, excluded);
    }

    /* Writes the one value of the row. */
    __device__ void put(Real v) const { write_as(at.y, problem.operand[ONS_Y].dtype, v); }

    __device__ Real rounded(Real v) const { return round_to(problem.operand[ONS_X].dtype, v); }

    int64_t N;

   private:
    /* A result of float64 from the arithmetic of float32, as `naive` has it alone. */
    __device__ static bool is_wider(ons_dtype dtype) {
        return sizeof(Real) == sizeof(float) && dtype == ONS_FLOAT64;
    }

    /* Calls body with an element of the type, of those that are not wider. */
    template <typename Body>
    __device__ __forceinline__ static void with_type(ons_dtype dtype, Body body) {
        switch (dtype) {
        case ONS_FLOAT16: body(__half()); break;
        case ONS_BFLOAT16: body(__nv_bfloat16()); break;
        case ONS_FLOAT64:
            if constexpr (sizeof(Real) == sizeof(double)) body(double());
            break;
        default: body(float());
        }
    }

    __device__ int64_t stride_of(ons_role role) const {
        return problem.operand[role].stride[problem.dims - 1];
    }

    template <int K, int STRIDE>
    __device__ __forceinline__ void load_strided(int64_t chunk, real_tile<Real, K> &tile) const {
        const int64_t stride = stride_of(ONS_X);
        const char *from = at.x + chunk * V * stride;
        const int left = elements_left(N, chunk * V);
        with_type(problem.operand[ONS_X].dtype, [&](auto one) {
            using T = decltype(one);
#pragma unroll
            for (int e = 0; e < K * V; e++)
                if (place<STRIDE, V>(e) < left)
                    tile.x[e] = to_real<Real>(*(const T *)(from + place<STRIDE, V>(e) * stride));
        });
        tile.keep = ~keep_bits<K * V>(0);
        if (at.where)
            tile.keep = load_mask<K, STRIDE, V>(at.where, stride_of(ONS_WHERE), chunk, left);
        if (at.scale != 1.0) {
#pragma unroll
            for (int e = 0; e < K * V; e++) tile.x[e] = scaled(tile.x[e], at.scale);
        }
#pragma unroll
        for (int e = 0; e < K * V; e++)
            if (place<STRIDE, V>(e) >= left || !(tile.keep >> e & 1))
                tile.x[e] = -arithmetic<Real>::infinity();
    }

    template <int K, int STRIDE>
    __device__ __forceinline__ void store_strided(int64_t chunk, const Real (&from)[K * V],
                                                  keep_bits<K * V> keep, Real excluded) const {
        const int64_t stride = stride_of(ONS_Y);
        char *to = at.y + chunk * V * stride;
        const int left = elements_left(N, chunk * V);
        with_type(problem.operand[ONS_Y].dtype, [&](auto one) {
            using T = decltype(one);
#pragma unroll
            for (int e = 0; e < K * V; e++)
                if (place<STRIDE, V>(e) < left)
                    *(T *)(to + place<STRIDE, V>(e) * stride) =
                        from_real<T>(keep >> e & 1 ? from[e] : excluded);
        });
    }

    /* Each is put in its place by a comparison, since an array that is indexed at run time cannot
     * stay in registers. */
    template <int K, int STRIDE>
    __device__ void load_one_by_one(int64_t chunk, real_tile<Real, K> &tile) const {
        tile.keep = 0;
#pragma unroll 1
        for (int e = 0; e < K * V; e++) {
            int64_t j = chunk * V + place<STRIDE, V>(e);
            Real v = -arithmetic<Real>::infinity();
            if (j < N) {
                int64_t x_at = 0, y_at = 0, where_at = 0;
                offsets(j, &x_at, &y_at, &where_at);
                if (!at.where || at.where[where_at]) {
                    v = read_as<Real>(at.x + x_at, problem.operand[ONS_X].dtype);
                    if (at.scale != 1.0) v = scaled(v, at.scale);
                    tile.keep |= keep_bits<K * V>(1) << e;
                }
            }
#pragma unroll
            for (int i = 0; i < K * V; i++) tile.x[i] = i == e ? v : tile.x[i];
        }
    }

    template <int K, int STRIDE>
    __device__ void store_one_by_one(int64_t chunk, const Real (&from)[K * V],
                                     keep_bits<K * V> keep, Real excluded) const {
#pragma unroll 1
        for (int e = 0; e < K * V; e++) {
            int64_t j = chunk * V + place<STRIDE, V>(e);
            Real v = 0;
#pragma unroll
            for (int i = 0; i < K * V; i++) v = i == e ? from[i] : v;
            if (j >= N) continue;
            int64_t x_at = 0, y_at = 0, where_at = 0;
            offsets(j, &x_at, &y_at, &where_at);
            write_as(at.y + y_at, problem.operand[ONS_Y].dtype, keep >> e & 1 ? v : excluded);
        }
    }

    __device__ void offsets(int64_t j, int64_t *x, int64_t *y, int64_t *where) const {
        int first = problem.dims - problem.reduced_dims;
        for (int dim = problem.dims - 1; dim >= first; dim--) {
            int64_t index = j;
            if (dim > first) {
                j /= problem.extent[dim];
                index -= j * problem.extent[dim];
            }
            *x += index * problem.operand[ONS_X].stride[dim];
            *y += index * problem.operand[ONS_Y].stride[dim];
            *where += index * problem.operand[ONS_WHERE].stride[dim];
        }
    }

    const ons_problem &problem;
    row_address at;
};

#endif
