/* general.cuh - general_rows: rows with any stride, any number of outer dimensions, a mask, a
 * scale, and types known only at run time. If a row has several dimensions, or float64 elements
 * with float32 arithmetic, elements are read one by one. */
#ifndef ONS_GENERAL_CUH
#define ONS_GENERAL_CUH

#include "address.cuh"
#include "tile.cuh"

/* Calls visit(e, address of element e) for the elements of a thread's K chunks that are in the row.
 * The row has `left` elements from the first chunk on. With ALL, all chunks are in the row.
 * Addresses are computed one by one: all at once they would take the registers of the elements. */
template <int K, int STRIDE, int V, bool ALL, typename Byte, typename Visit>
__device__ __forceinline__ void walk(Byte *chunk, int64_t stride, int left, Visit visit) {
    const int64_t step = STRIDE * V * stride;
#pragma unroll
    for (int k = 0; k < K; k++, chunk += step) {
        asm("" : "+l"(chunk));
        Byte *element = chunk;
#pragma unroll
        for (int i = 0; i < V; i++, element += stride) {
            asm("" : "+l"(element));
            __builtin_assume(__isGlobal(element)); /* asm has hidden it */
            if (ALL || k * (STRIDE * V) + i < left) visit(k * V + i, element);
        }
    }
}

/* The same. For few neighbouring chunks it uses a second copy of the loop, without comparisons. */
template <int K, int STRIDE, int V, typename Byte, typename Visit>
__device__ __forceinline__ void walk(Byte *chunk, int64_t stride, int left, Visit visit) {
    if (STRIDE == 1 && K < BLOCK_CHUNKS && has_all<K, STRIDE, V>(left))
        walk<K, STRIDE, V, true>(chunk, stride, left, visit);
    else
        walk<K, STRIDE, V, false>(chunk, stride, left, visit);
}

/* ------- Rows of several dimensions, one element at a time. Not inlined: an address takes
 * divisions, and these need registers ------- */

template <ons_role FROM>
struct offsets {
    int64_t x, y, where;

    /* The offsets of element j of a row. */
    __device__ offsets(const ons_problem &problem, int64_t j) : x(0), y(0), where(0) {
        const int first = problem.dims - problem.reduced_dims;
#pragma unroll 1
        for (int dim = problem.dims - 1; dim >= first; dim--) {
            int64_t index = j;
            if (dim > first) {
                j /= problem.extent[dim];
                index -= j * problem.extent[dim];
            }
            x += index * problem.operand[FROM].stride[dim];
            y += index * problem.operand[ONS_Y].stride[dim];
            where += index * problem.operand[ONS_WHERE].stride[dim];
        }
    }
};

/* The places of a thread's chunks: `count` elements, V side by side, then `step` further on. */
struct places {
    int64_t first, N;
    int count, V, step;

    __device__ int64_t at(int e) const { return first + e / V * step + e % V; }
};

/* Returns a bit for each element that was read. The others become -inf. */
template <ons_role FROM, typename Real>
__device__ __noinline__ unsigned long long read_one_by_one(const ons_problem &problem,
                                                           row_address at, places places,
                                                           Real *to) {
    unsigned long long allowed = 0;
#pragma unroll 1
    for (int e = 0; e < places.count; e++) {
        const int64_t j = places.at(e);
        to[e] = -arithmetic<Real>::infinity();
        if (j >= places.N) continue;
        const offsets<FROM> offset(problem, j);
        if (at.where && !at.where[offset.where]) continue;
        to[e] = read_as<Real>(at.x + offset.x, problem.operand[FROM].dtype);
        allowed |= 1ull << e;
    }
    return allowed;
}

template <typename Real>
__device__ __noinline__ void write_one_by_one(const ons_problem &problem, row_address at,
                                              places places, const Real *from) {
#pragma unroll 1
    for (int e = 0; e < places.count; e++) {
        const int64_t j = places.at(e);
        if (j < places.N)
            write_as(at.y + offsets<ONS_X>(problem, j).y, problem.operand[ONS_Y].dtype, from[e]);
    }
}

/* FROM: the operand to read. SCALES: whether its elements are multiplied by the row's scale. */
template <typename Compute, ons_role FROM = ONS_X, bool SCALES = true>
class general_rows {
   public:
    using Real = Compute;
    using arguments = problem_arguments;
    static constexpr bool IS_16_BIT = false, EMPTY_WARPS_LEAVE = false;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ANY_BLOCK_THREADS,
                         CLUSTER_WARPS = ::CLUSTER_WARPS;
    static constexpr int BLOCKS = sizeof(Real) == sizeof(float) ? 2 : 1;

    template <int K>
    using tile = real_tile<Real, K>;

    /* Does not prefetch later rows: their addresses are costly to compute. */
    template <int K>
    __device__ static void ahead(const arguments &, int64_t, int) {}

    template <bool CHECK_ROW>
    __device__ __forceinline__ static general_rows row(const arguments &args, int64_t index) {
        return general_rows(args, index);
    }

    __device__ general_rows(const arguments &args, int64_t row)
        : N(row + args.launch.first_row < args.rows ? args.N : 0),
          problem(args.problem),
          at(args, row, FROM) {}

    template <int K, int STRIDE>
    __device__ real_tile<Real, K> load(int64_t chunk) const {
        real_tile<Real, K> tile;
        if (problem.reduced_dims > 1 || is_wider(problem.operand[FROM].dtype)) {
            Real x[K * V];
            tile.is_allowed = (allowed_bits<K * V>)read_one_by_one<FROM>(
                problem, at, of_thread<K, STRIDE>(chunk), x);
#pragma unroll
            for (int e = 0; e < K * V; e++) tile.x[e] = x[e];
        } else {
            load_strided<K, STRIDE>(chunk, tile);
        }
        if constexpr (SCALES) scale_allowed(tile);
        return tile;
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ void store(int64_t chunk, const Real (&from)[K * V], allowed_bits<K * V> allowed,
                          Real excluded) const {
        if (problem.reduced_dims > 1 || is_wider(problem.operand[ONS_Y].dtype)) {
            Real x[K * V];
            select(from, allowed, excluded, x);
            write_one_by_one(problem, at, of_thread<K, STRIDE>(chunk), x);
        } else {
            Real x[K * V];
            select(from, allowed, excluded, x);
            store_strided<K, STRIDE>(chunk, x);
        }
    }

    /* Writes the one value of the row. */
    __device__ void put(Real v) const { write_as(at.y, problem.operand[ONS_Y].dtype, v); }
    __device__ void put(const ons_pair &pair) const { *(ons_pair *)at.y = pair; }

    /* Rounds numbers to the elements' type. */
    template <int n>
    __device__ void round(Real (&v)[n]) const {
#pragma unroll
        for (int i = 0; i < n; i++) v[i] = round_to(problem.operand[FROM].dtype, v[i]);
    }

    __device__ double scale() const { return at.scale; }

    int64_t N;

   private:
    template <int n>
    __device__ __forceinline__ void select(const Real (&from)[n], allowed_bits<n> allowed,
                                           Real excluded, Real (&to)[n]) const {
#pragma unroll
        for (int e = 0; e < n; e++) to[e] = from[e];
        if (at.where) {
#pragma unroll
            for (int e = 0; e < n; e++)
                if (!(allowed >> e & 1)) to[e] = excluded;
        }
    }

    /* float64 operands with float32 arithmetic: results of `naive`, or float32 rows that are
     * finished by pairs. */
    __device__ static bool is_wider(ons_dtype dtype) {
        return sizeof(Real) == sizeof(float) && dtype == ONS_FLOAT64;
    }

    __device__ static bool is_16_bit(ons_dtype dtype) {
        return dtype == ONS_FLOAT16 || dtype == ONS_BFLOAT16;
    }

    __device__ int64_t stride_of(ons_role role) const {
        return problem.operand[role].stride[problem.dims - 1];
    }

    /* Elements after the row's end stay -inf. All elements are converted together, so there is one
     * branch on their type. */
    template <int K, int STRIDE>
    __device__ __forceinline__ void load_strided(int64_t chunk, real_tile<Real, K> &tile) const {
        const ons_dtype dtype = problem.operand[FROM].dtype;
        const int64_t stride = stride_of(FROM);
        const char *from = at.x + chunk * V * stride;
        const int left = elements_left(N, chunk * V);
        if (is_16_bit(dtype)) {
            unsigned short raw[K * V];
            const unsigned short least = dtype == ONS_FLOAT16 ? 0xfc00 : 0xff80;
#pragma unroll
            for (int e = 0; e < K * V; e++) raw[e] = least;
            walk<K, STRIDE, V>(from, stride, left,
                               [&](int e, const char *x) { raw[e] = *(const unsigned short *)x; });
            if (dtype == ONS_FLOAT16) {
#pragma unroll
                for (int e = 0; e < K * V; e++) tile.x[e] = to_real<Real>(__ushort_as_half(raw[e]));
            } else {
#pragma unroll
                for (int e = 0; e < K * V; e++)
                    tile.x[e] = to_real<Real>(__ushort_as_bfloat16(raw[e]));
            }
        } else {
#pragma unroll
            for (int e = 0; e < K * V; e++) tile.x[e] = -arithmetic<Real>::infinity();
            if (sizeof(Real) == sizeof(float) || dtype == ONS_FLOAT32)
                walk<K, STRIDE, V>(from, stride, left, [&](int e, const char *x) {
                    tile.x[e] = (Real) * (const float *)x;
                });
            else
                walk<K, STRIDE, V>(from, stride, left, [&](int e, const char *x) {
                    tile.x[e] = (Real) * (const double *)x;
                });
        }
        tile.is_allowed = allow_first<K, STRIDE>(left);
        if (at.where) {
            const int64_t where_stride = stride_of(ONS_WHERE);
            tile.is_allowed = 0;
            walk<K, STRIDE, V>(at.where + chunk * V * where_stride, where_stride, left,
                               [&](int e, const char *where) {
                                   if (*where) tile.is_allowed |= allowed_bits<K * V>(1) << e;
                               });
        }
    }

    template <int K, int STRIDE>
    __device__ places of_thread(int64_t chunk) const {
        return {chunk * V, N, K * V, V, STRIDE * V};
    }

    /* A bit for each element in the row. */
    template <int K, int STRIDE>
    __device__ static allowed_bits<K * V> allow_first(int left) {
        allowed_bits<K * V> allowed = 0;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int count = min(max(left - k * (STRIDE * V), 0), V);
            allowed |=
                (allowed_bits<K * V>(1) << k * V << count) - (allowed_bits<K * V>(1) << k * V);
        }
        return allowed;
    }

    template <int K, int STRIDE>
    __device__ __forceinline__ void store_strided(int64_t chunk, const Real (&from)[K * V]) const {
        const ons_dtype dtype = problem.operand[ONS_Y].dtype;
        const int64_t stride = stride_of(ONS_Y);
        char *to = at.y + chunk * V * stride;
        const int left = elements_left(N, chunk * V);
        if (is_16_bit(dtype)) {
            unsigned short raw[K * V];
            if (dtype == ONS_FLOAT16) {
#pragma unroll
                for (int e = 0; e < K * V; e++)
                    raw[e] = __half_as_ushort(from_real<__half>(from[e]));
            } else {
#pragma unroll
                for (int e = 0; e < K * V; e++)
                    raw[e] = __bfloat16_as_ushort(from_real<__nv_bfloat16>(from[e]));
            }
            walk<K, STRIDE, V>(to, stride, left,
                               [&](int e, char *y) { *(unsigned short *)y = raw[e]; });
        } else if (sizeof(Real) == sizeof(float) || dtype == ONS_FLOAT32) {
            walk<K, STRIDE, V>(to, stride, left,
                               [&](int e, char *y) { *(float *)y = (float)from[e]; });
        } else {
            walk<K, STRIDE, V>(to, stride, left,
                               [&](int e, char *y) { *(double *)y = (double)from[e]; });
        }
    }

    /* An excluded element stays -inf, whatever the scale. */
    template <int K>
    __device__ __forceinline__ void scale_allowed(real_tile<Real, K> &tile) const {
        if (at.scale != 1.0) scale_all(tile.x, at.scale);
        if (at.where || at.scale != 1.0) {
#pragma unroll
            for (int e = 0; e < K * V; e++)
                if (!(tile.is_allowed >> e & 1)) tile.x[e] = -arithmetic<Real>::infinity();
        }
    }

    const ons_problem &problem;
    row_address at;
};

#endif
