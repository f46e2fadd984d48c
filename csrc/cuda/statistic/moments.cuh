/* moments.cuh - the moments (m, d, w) of a row or of a part (api/logprob.h), the place of its
 * largest element, and the number of elements above a given one, all from one read.
 *
 * d and w are relative to the reference of m, as in a state. If m grows from m to m', w becomes
 * (w + d (m - m')) times the factor of d. */
#ifndef ONS_MOMENTS_CUH
#define ONS_MOMENTS_CUH

#include <climits>

#include "merge.cuh"
#include "sums.cuh"

template <typename Real>
struct moments {
    Real m, d, w;
    int tile; /* the first tile of a warp that has an element m */
    int64_t above;

    __device__ static moments empty() { return {-arithmetic<Real>::infinity(), 0, 0, INT_MAX, 0}; }
    __device__ state<Real> pair() const { return {m, d}; }
    /* The mean of x - m. */
    __device__ Real mean() const { return w / d; }
};

template <typename Real>
__device__ inline bool is_same_m(Real a, Real b) {
    return a == b || (isnan(a) && isnan(b));
}

/* w relative to a larger m. */
template <typename Real>
__device__ inline Real moved(const moments<Real> &part, Real m) {
    return part.m > -arithmetic<Real>::infinity() ? fma(part.d, part.m - m, part.w) : 0;
}

template <typename Real>
__device__ inline moments<Real> merged(const moments<Real> &a, const moments<Real> &b) {
    const Real m = larger(a.m, b.m), to_a = rescale(a.m, m), to_b = rescale(b.m, m);
    return {m, fma(b.d, to_b, a.d * to_a), fma(moved(b, m), to_b, moved(a, m) * to_a),
            min(is_same_m(a.m, m) ? a.tile : INT_MAX, is_same_m(b.m, m) ? b.tile : INT_MAX),
            a.above + b.above};
}

/* Merges the moments of a warp's lanes. */
template <typename Real>
__device__ inline moments<Real> merge_over_lanes(const moments<Real> &mine) {
    moments<Real> all;
    all.m = max_over_lanes<WARP>(mine.m);
    const Real factor = rescale(mine.m, all.m);
    all.d = sum_over_warp_in_scale(mine.d * factor);
    all.w = -sum_over_warp_in_scale(-(moved(mine, all.m) * factor));
    all.tile = is_same_m(mine.m, all.m) ? mine.tile : INT_MAX;
    all.above = mine.above;
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        all.tile = min(all.tile, __shfl_xor_sync(~0u, all.tile, apart));
        all.above += __shfl_xor_sync(~0u, all.above, apart);
    }
    return all;
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

/* A tree over the chunks (sums.cuh). make gives one element's exponential and its x - m. */
struct with_products {
    template <int n, typename Real, typename Make>
    __device__ __forceinline__ static sum_and_products<Real> sum(Make make, Real) {
        constexpr int V = CHUNK<Real>;
        return sum_as_tree<n / V>(0, [&](int chunk) {
            sum_and_products<Real> sum = {0, 0};
#pragma unroll
            for (int e = 0; e < V; e++) {
                const sum_and_products<Real> one = make(chunk * V + e);
                sum.d = e == 0 ? one.d : sum.d + one.d;
                sum.w = e == 0 ? one.d * one.w : fma(one.d, one.w, sum.w);
            }
            return sum;
        });
    }
};

/* The moments of a thread that reads a row tile by tile. */
template <typename Real>
class running_moments {
   public:
    /* A tile of the warp's tile number `number`. `counts`: whether elements above `chosen` count.
     */
    template <typename Tile>
    __device__ __forceinline__ void add(const Tile &tile, int number, bool counts, Real chosen) {
        const Real top = larger(m, tile.largest());
        if (top != m) raise(top, number);
        const reference<Real> to(m);
        const exponentials<Real> &exponential = to.exponential;
        const Real largest = m == -arithmetic<Real>::infinity() ? 0 : m - to.anchor;
        sum_and_products<Real> sum;
        if (is_above_floor(tile, to))
            sum = sum_of_chunks<with_products, 4, 0, Tile::K>(tile, [&](int, Real v) {
                return sum_and_products<Real>{exponential.from_floor_on(v), v - largest};
            });
        else
            sum = sum_of_chunks<with_products, 4, 0, Tile::K>(tile, [&](int, Real v) {
                const Real x = fmax(v - to.anchor, exponential.floor);
                return sum_and_products<Real>{exponential.from_floor_on(x), x - largest};
            });
        d.add(sum.d * arithmetic<Real>::LOWERED);
        w.add(sum.w * arithmetic<Real>::LOWERED);
        if (counts) count(tile, chosen);
    }

    __device__ moments<Real> rounded() const { return {m, d.rounded(), w.rounded(), tile, above}; }

   private:
    __device__ void raise(Real to, int number) {
        const Real factor = rescale(m, to);
        if (m > -arithmetic<Real>::infinity()) w.add(d.rounded() * (m - to));
        d.d *= factor;
        d.d_low *= factor;
        w.d *= factor;
        w.d_low *= factor;
        if (!isnan(m)) tile = number;
        m = to;
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
