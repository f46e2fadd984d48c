/* load.cuh - how the elements of a row arrive in a thread's registers, and where they go back: K
 * chunks of neighbouring elements at a time, chunk `chunk` and every STRIDE-th after it. What lies
 * beyond the row's end, and what `where` excludes, arrives as -inf.
 *
 *   contiguous_rows<X, Y>  rows without gaps, at any alignment: whole chunks in one access each
 *                          where the row's address allows it
 *   strided_rows<T>        any stride along the row, any number of outer dimensions, mask, scale
 *   general_rows<Real>     all else: other pairs of types, rows of several dimensions; one element
 *                          at a time
 *
 * Which elements a lane has does not depend on which of these it is, nor on the types: all give the
 * same bits. y may be x: nothing here may be read through the read-only cache, and a thread writes
 * what it alone has read.
 *
 * BLOCK_THREADS is the most threads that a block may have where each holds 8 chunks in registers:
 * what the addresses take of these is the less, the simpler the rows. */
#ifndef ONS_LOAD_CUH
#define ONS_LOAD_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "exponential.cuh"
#include "../onsoftmax.h"

/* The arithmetic's type for an element's, and the elements of a chunk: 16 bytes of that type. */
template <typename T>
struct compute_of {
    using type = float;
};
template <>
struct compute_of<double> {
    using type = double;
};
template <typename Real>
constexpr int CHUNK = 16 / sizeof(Real);

/* The bits of `keep` that load returns, one an element. */
constexpr unsigned KEEP_ALL = ~0u;

template <typename Real>
__device__ inline Real to_real(__half v) {
    return (Real)__half2float(v);
}
template <typename Real>
__device__ inline Real to_real(__nv_bfloat16 v) {
    return (Real)__bfloat162float(v);
}
template <typename Real>
__device__ inline Real to_real(float v) {
    return (Real)v;
}
template <typename Real>
__device__ inline Real to_real(double v) {
    return (Real)v;
}

/* Rounds to nearest even, once. */
template <typename T>
__device__ inline T from_real(float v);
template <>
__device__ inline __half from_real(float v) {
    return __float2half_rn(v);
}
template <>
__device__ inline __nv_bfloat16 from_real(float v) {
    return __float2bfloat16_rn(v);
}
template <>
__device__ inline float from_real(float v) {
    return v;
}
template <>
__device__ inline double from_real(float v) {
    return (double)v;
}
template <typename T>
__device__ inline T from_real(double v);
template <>
__device__ inline __half from_real(double v) {
    return __double2half(v);
}
template <>
__device__ inline __nv_bfloat16 from_real(double v) {
    return __double2bfloat16(v);
}
template <>
__device__ inline float from_real(double v) {
    return __double2float_rn(v);
}
template <>
__device__ inline double from_real(double v) {
    return v;
}

/* Reads one element of a type that is known at run time alone. */
template <typename Real>
__device__ inline Real read_as(const char *at, ons_dtype dtype) {
    switch (dtype) {
    case ONS_FLOAT16: return to_real<Real>(*(const __half *)at);
    case ONS_BFLOAT16: return to_real<Real>(*(const __nv_bfloat16 *)at);
    case ONS_FLOAT32: return to_real<Real>(*(const float *)at);
    default: return to_real<Real>(*(const double *)at);
    }
}

template <typename Real>
__device__ inline void write_as(char *at, ons_dtype dtype, Real v) {
    switch (dtype) {
    case ONS_FLOAT16: *(__half *)at = from_real<__half>(v); break;
    case ONS_BFLOAT16: *(__nv_bfloat16 *)at = from_real<__nv_bfloat16>(v); break;
    case ONS_FLOAT32: *(float *)at = from_real<float>(v); break;
    default: *(double *)at = from_real<double>(v);
    }
}

/* v rounded to a type, as `naive` does after each step. */
template <typename Real>
__device__ inline Real round_to(ons_dtype dtype, Real v) {
    alignas(8) char own[8];
    write_as(own, dtype, v);
    return read_as<Real>(own, dtype);
}

/* How many of a row's elements there are from this thread's first one on, as an int that is larger
 * than what its chunks can reach. */
__device__ inline int elements_left(int64_t N, int64_t first) {
    int64_t left = N - first;
    return left > 1 << 30 ? 1 << 30 : (int)left;
}

/* Element e of a thread's K chunks of V, counted from its first one along the row. */
template <int STRIDE, int V>
__device__ constexpr int place(int e) {
    return e / V * STRIDE * V + e % V;
}

/* ------- contiguous_rows ------- */

/* A chunk in one access. */
template <typename T, int V>
struct alignas(sizeof(T) * V) pack {
    T element[V];
};

template <typename X, typename Y>
class contiguous_rows {
   public:
    using Real = typename compute_of<X>::type;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = 1024;

    struct arguments {
        const X *x;
        Y *y;
        int64_t x_pitch, y_pitch; /* in elements */
        int64_t rows, N;
        int64_t first; /* row of this launch */
    };

    __device__ contiguous_rows(const arguments &of, int64_t row)
        : N(row + of.first < of.rows ? of.N : 0),
          x(of.x + (row + of.first) * of.x_pitch),
          y(of.y + (row + of.first) * of.y_pitch) {}

    template <int K, int STRIDE>
    __device__ unsigned load(int64_t chunk, Real (&to)[K * V]) const {
        const X *from = x + chunk * V;
        int left = elements_left(N, chunk * V);
        X raw[K * V];
        if (left > place<STRIDE, V>(K * V - 1) && (uintptr_t)from % sizeof(pack<X, V>) == 0) {
#pragma unroll
            for (int k = 0; k < K; k++)
                *(pack<X, V> *)(raw + k * V) = ((const pack<X, V> *)from)[k * STRIDE];
        } else {
#pragma unroll
            for (int e = 0; e < K * V; e++)
                raw[e] = place<STRIDE, V>(e) < left ? from[place<STRIDE, V>(e)]
                                                    : from_real<X>(-arithmetic<Real>::infinity());
        }
#pragma unroll
        for (int e = 0; e < K * V; e++) to[e] = to_real<Real>(raw[e]);
        return KEEP_ALL;
    }

    template <int K, int STRIDE>
    __device__ void store(int64_t chunk, const Real (&from)[K * V], unsigned) const {
        Y *to = y + chunk * V;
        int left = elements_left(N, chunk * V);
        Y raw[K * V];
#pragma unroll
        for (int e = 0; e < K * V; e++) raw[e] = from_real<Y>(from[e]);
        if (left > place<STRIDE, V>(K * V - 1) && (uintptr_t)to % sizeof(pack<Y, V>) == 0) {
#pragma unroll
            for (int k = 0; k < K; k++)
                ((pack<Y, V> *)to)[k * STRIDE] = *(const pack<Y, V> *)(raw + k * V);
        } else {
#pragma unroll
            for (int e = 0; e < K * V; e++)
                if (place<STRIDE, V>(e) < left) to[place<STRIDE, V>(e)] = raw[e];
        }
    }

    __device__ Real rounded(Real v) const { return to_real<Real>(from_real<X>(v)); }

    int64_t N; /* 0 for a row beyond the last */

   private:
    const X *x;
    Y *y;
};

/* ------- strided_rows and general_rows ------- */

struct problem_arguments {
    ons_problem problem;
    int64_t rows, N;
    int64_t first; /* row of this launch */
};

/* x * by rounded once: by way of a double that is rounded to odd, which cannot be half way. */
__device__ inline float scaled(float x, double by) {
    if ((double)(float)by == by) return x * (float)by;
    double product = (double)x * by, rest = fma((double)x, by, -product);
    long long bits = __double_as_longlong(product);
    if (product != 0 && isfinite(product) && rest != 0 && bits % 2 == 0)
        bits += (rest > 0) == (product > 0) ? 1 : -1;
    return (float)__longlong_as_double(bits);
}
__device__ inline double scaled(double x, double by) { return x * by; }

/* Where one row's elements lie. */
struct row_address {
    const char *x, *where;
    char *y;
    double scale;

    __device__ row_address(const problem_arguments &arguments, int64_t row) {
        const ons_problem &of = arguments.problem;
        row += arguments.first;
        if (row >= arguments.rows) row = 0; /* not to be read: its N is 0 */
        const char *scale_at = of.scale.data;
        x = of.x.data;
        y = of.y.data;
        where = of.where.data;
        for (int dim = of.dims - of.reduced_dims - 1; dim >= 0; dim--) {
            int64_t index = row;
            if (dim > 0) {
                row /= of.extent[dim];
                index -= row * of.extent[dim];
            }
            x += index * of.x.stride[dim];
            y += index * of.y.stride[dim];
            if (where) where += index * of.where.stride[dim];
            if (scale_at) scale_at += index * of.scale.stride[dim];
        }
        scale = scale_at ? read_as<double>(scale_at, of.scale.dtype) : of.scale_by;
    }
};

template <typename T>
class strided_rows {
   public:
    using Real = typename compute_of<T>::type;
    using arguments = problem_arguments;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = 512;

    __device__ strided_rows(const arguments &of, int64_t row)
        : N(row + of.first < of.rows ? of.N : 0),
          at(of, row),
          x_stride(of.problem.x.stride[of.problem.dims - 1]),
          y_stride(of.problem.y.stride[of.problem.dims - 1]),
          where_stride(of.problem.where.stride[of.problem.dims - 1]) {}

    template <int K, int STRIDE>
    __device__ unsigned load(int64_t chunk, Real (&to)[K * V]) const {
        const char *from = at.x + chunk * V * x_stride;
        int left = elements_left(N, chunk * V);
        unsigned keep = at.where ? load_mask<K, STRIDE>(chunk, left) : KEEP_ALL;
        T raw[K * V];
#pragma unroll
        for (int e = 0; e < K * V; e++)
            if (place<STRIDE, V>(e) < left)
                raw[e] = *(const T *)(from + place<STRIDE, V>(e) * x_stride);
#pragma unroll
        for (int e = 0; e < K * V; e++) {
            bool there = place<STRIDE, V>(e) < left && (keep >> e & 1);
            to[e] = there ? to_real<Real>(raw[e]) : -arithmetic<Real>::infinity();
            if (at.scale != 1.0 && there) to[e] = scaled(to[e], at.scale);
        }
        return keep;
    }

    template <int K, int STRIDE>
    __device__ void store(int64_t chunk, const Real (&from)[K * V], unsigned keep) const {
        char *to = at.y + chunk * V * y_stride;
        int left = elements_left(N, chunk * V);
#pragma unroll
        for (int e = 0; e < K * V; e++)
            if (place<STRIDE, V>(e) < left)
                *(T *)(to + place<STRIDE, V>(e) * y_stride) =
                    from_real<T>(keep >> e & 1 ? from[e] : (Real)0);
    }

    __device__ Real rounded(Real v) const { return to_real<Real>(from_real<T>(v)); }

    int64_t N;

   private:
    template <int K, int STRIDE>
    __device__ unsigned load_mask(int64_t chunk, int left) const {
        const char *from = at.where + chunk * V * where_stride;
        unsigned keep = 0;
#pragma unroll
        for (int e = 0; e < K * V; e++)
            if (place<STRIDE, V>(e) < left && from[place<STRIDE, V>(e) * where_stride])
                keep |= 1u << e;
        return keep;
    }

    row_address at;
    int64_t x_stride, y_stride, where_stride;
};

template <typename Compute>
class general_rows {
   public:
    using Real = Compute;
    using arguments = problem_arguments;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = 512;

    __device__ general_rows(const arguments &of, int64_t row)
        : N(row + of.first < of.rows ? of.N : 0), problem(of.problem), at(of, row) {}

    /* One element after the other: each is put in its place by a comparison, since an array that is
     * indexed at run time cannot stay in registers. */
    template <int K, int STRIDE>
    __device__ unsigned load(int64_t chunk, Real (&to)[K * V]) const {
        unsigned keep = 0;
#pragma unroll 1
        for (int e = 0; e < K * V; e++) {
            int64_t j = chunk * V + place<STRIDE, V>(e);
            Real v = -arithmetic<Real>::infinity();
            if (j < N) {
                int64_t x_at = 0, y_at = 0, where_at = 0;
                offsets(j, &x_at, &y_at, &where_at);
                if (!at.where || at.where[where_at]) {
                    v = read_as<Real>(at.x + x_at, problem.x.dtype);
                    if (at.scale != 1.0) v = scaled(v, at.scale);
                    keep |= 1u << e;
                }
            }
#pragma unroll
            for (int i = 0; i < K * V; i++) to[i] = i == e ? v : to[i];
        }
        return keep;
    }

    template <int K, int STRIDE>
    __device__ void store(int64_t chunk, const Real (&from)[K * V], unsigned keep) const {
#pragma unroll 1
        for (int e = 0; e < K * V; e++) {
            int64_t j = chunk * V + place<STRIDE, V>(e);
            Real v = 0;
#pragma unroll
            for (int i = 0; i < K * V; i++) v = i == e ? from[i] : v;
            if (j >= N) continue;
            int64_t x_at = 0, y_at = 0, where_at = 0;
            offsets(j, &x_at, &y_at, &where_at);
            write_as(at.y + y_at, problem.y.dtype, keep >> e & 1 ? v : (Real)0);
        }
    }

    __device__ Real rounded(Real v) const { return round_to(problem.x.dtype, v); }

    int64_t N;

   private:
    __device__ void offsets(int64_t j, int64_t *x, int64_t *y, int64_t *where) const {
        int first = problem.dims - problem.reduced_dims;
        for (int dim = problem.dims - 1; dim >= first; dim--) {
            int64_t index = j;
            if (dim > first) {
                j /= problem.extent[dim];
                index -= j * problem.extent[dim];
            }
            *x += index * problem.x.stride[dim];
            *y += index * problem.y.stride[dim];
            *where += index * problem.where.stride[dim];
        }
    }

    const ons_problem &problem;
    row_address at;
};

#endif
