/* moments.cuh - the moments (m, d, w) of a row or of a part (api/logprob.h), the place of its
 * largest element, and the number of elements above a given one, all from one read.
 *
 * In a state, d is relative to a power of two. Here d and w are relative to e^m: w needs x - m
 * anyway, so e^(x - m) costs only two more instructions. Rounding shifts the exponent by at most
 * |x - m| eps. Terms with a large |x - m| are small, so this error stays below half an eps in each
 * sum. If m grows from m to m', d and w become
 *
 *     e^(m - m') d,  e^(m - m') (w + d (m - m')) */
#ifndef ONS_MOMENTS_CUH
#define ONS_MOMENTS_CUH

#include <climits>

#include "merge.cuh"
#include "sums.cuh"

/* e^x for x <= 0. */
__device__ __forceinline__ float exp_of_negative(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * arithmetic<float>::LOG2_E));
    return power;
}
__device__ __forceinline__ double exp_of_negative(double x) {
    return exponentials<double>(arithmetic<double>::MAGIC)(x) * arithmetic<double>::LOWERED;
}

template <typename Real>
struct alignas(16) moments {
    Real m, d, w;
    int tile; /* the first of the warp's tiles that contains m */
    int64_t above;

    __device__ static moments empty() { return {-arithmetic<Real>::infinity(), 0, 0, INT_MAX, 0}; }

    /* The same sums relative to a larger m. A part whose m is -inf keeps its zeros. */
    __device__ moments relative_to(Real larger_m) const {
        if (m == larger_m) return *this;
        const bool is_empty = m == -arithmetic<Real>::infinity();
        const Real apart = is_empty ? 0 : m - larger_m, factor = exp_of_negative(apart);
        return {larger_m, d * factor, fma(d, apart, w) * factor, isnan(m) ? tile : INT_MAX, above};
    }
};

template <typename Real>
__device__ inline moments<Real> merged(const moments<Real> &a, const moments<Real> &b) {
    const Real m = larger(a.m, b.m);
    const moments<Real> one = a.relative_to(m), other = b.relative_to(m);
    return {m, one.d + other.d, one.w + other.w, min(one.tile, other.tile), a.above + b.above};
}

__device__ inline int min_over_warp(int v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(~0u, v);
#else
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) v = min(v, __shfl_xor_sync(~0u, v, apart));
    return v;
#endif
}

/* The sum of a warp's counts, each below 2^48. */
__device__ inline int64_t count_over_warp(int64_t v) {
    int64_t all = 0;
#pragma unroll
    for (int bits = 0; bits < 48; bits += 16)
        all += (int64_t)count_over_lanes<WARP>((int)(v >> bits & 0xffff)) << bits;
    return all;
}

/* Merges the moments of a warp's lanes, which all have one m and one tile. */
template <typename Real>
__device__ inline moments<Real> merge_of_one_m(moments<Real> all, bool counts) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        all.d += __shfl_xor_sync(~0u, all.d, apart);
        all.w += __shfl_xor_sync(~0u, all.w, apart);
    }
    if (counts) all.above = count_over_warp(all.above);
    return all;
}

template <typename Real>
__device__ inline moments<Real> merge_over_lanes(const moments<Real> &mine, bool counts) {
    moments<Real> moved = mine.relative_to(max_over_lanes<WARP>(mine.m));
    moved.tile = min_over_warp(moved.tile);
    return merge_of_one_m(moved, counts);
}

/* The sum of exponentials, and of their products with x - m. */
template <typename Real>
struct sum_and_products {
    Real d, w;

    __device__ void operator+=(const sum_and_products &other) {
        d += other.d;
        w += other.w;
    }
    __device__ sum_and_products operator+(const sum_and_products &other) const {
        return {d + other.d, w + other.w};
    }
};

/* A tree over the chunks (sums.cuh). make gives an element's x - m. */
struct with_products {
    template <int n, typename Real, typename Make>
    __device__ __forceinline__ static sum_and_products<Real> sum(Make make, Real) {
        constexpr int V = CHUNK<Real>;
        return sum_as_tree<n / V>(0, [&](int chunk) {
            sum_and_products<Real> sum = {0, 0};
#pragma unroll
            for (int e = 0; e < V; e++) {
                const Real apart = make(chunk * V + e), exponential = exp_of_negative(apart);
                sum.d = e == 0 ? exponential : sum.d + exponential;
                sum.w = e == 0 ? exponential * apart : fma(exponential, apart, sum.w);
            }
            return sum;
        });
    }
};

/* The moments of a thread that reads a row tile by tile. All lanes of a warp have one m. */
template <typename Real>
class running_moments {
   public:
    /* Adds a tile. `number` is its place among the row's tiles. `is_whole`: all of it lies in the
     * row. `counts`: count the elements above `chosen`. */
    template <typename Tile>
    __device__ __forceinline__ void add(const Tile &of, int number, bool is_whole, bool counts,
                                        Real chosen) {
        const Real top = max_over_lanes<WARP>(larger(m, of.largest()));
        if (top != m) raise(top, number);
        sum_and_products<Real> sum;
        if (is_whole)
            sum =
                sum_of_chunks<with_products, 4, 0, Tile::K>(of, [&](int, Real x) { return x - m; });
        if (!is_whole || isnan(sum.w)) sum = sum_with_infinities(of);
        d.add(sum.d);
        w.add(sum.w);
        if (counts) count(of, chosen);
    }

    __device__ moments<Real> rounded() const { return {m, d.rounded(), w.rounded(), tile, above}; }

   private:
    __device__ void raise(Real to, int number) {
        if (m > -arithmetic<Real>::infinity()) {
            const Real apart = m - to, factor = exp_of_negative(apart);
            w.add(d.rounded() * apart);
            d.d *= factor;
            d.d_low *= factor;
            w.d *= factor;
            w.d_low *= factor;
        }
        if (!isnan(m)) tile = number;
        m = to;
    }

    /* The sums of a tile that holds -inf. Each -inf adds 0. */
    template <typename Tile>
    __device__ __forceinline__ sum_and_products<Real> sum_with_infinities(const Tile &of) const {
        constexpr Real FAR = -1000; /* e^FAR is 0 */
        const Real from = m == -arithmetic<Real>::infinity() ? 0 : m;
        return sum_of_chunks<with_products, 4, 0, Tile::K>(
            of, [&](int, Real x) { return fmax(x - from, FAR); });
    }

    template <typename Tile>
    __device__ __forceinline__ void count(const Tile &of, Real chosen) {
        Real x[Tile::K * Tile::V];
        of.take(x);
#pragma unroll
        for (int e = 0; e < Tile::K * Tile::V; e++) above += x[e] > chosen;
    }

    Real m = -arithmetic<Real>::infinity();
    long_sum<Real> d, w;
    int tile = 0, above = 0;
};

#endif
