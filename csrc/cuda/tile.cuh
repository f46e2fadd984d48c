/* tile.cuh - a thread's chunks of a row between their load and their exponentials: as they lie in
 * memory, or in the arithmetic's type. A tile gives its elements one by one, the largest of them,
 * and which of them `where` keeps. */
#ifndef ONS_TILE_CUH
#define ONS_TILE_CUH

#include "packs.cuh"
#include "reduce.cuh"

__device__ inline unsigned larger_pair(unsigned a, unsigned b, __half) {
    __half2 m = __hmax2_nan(*(__half2 *)&a, *(__half2 *)&b);
    return *(unsigned *)&m;
}
__device__ inline unsigned larger_pair(unsigned a, unsigned b, __nv_bfloat16) {
    __nv_bfloat162 m = __hmax2_nan(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
    return *(unsigned *)&m;
}
__device__ inline unsigned smaller_pair(unsigned a, unsigned b, __half) {
    __half2 m = __hmin2_nan(*(__half2 *)&a, *(__half2 *)&b);
    return *(unsigned *)&m;
}
__device__ inline unsigned smaller_pair(unsigned a, unsigned b, __nv_bfloat16) {
    __nv_bfloat162 m = __hmin2_nan(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
    return *(unsigned *)&m;
}

/* K chunks as they lie in memory. Pairs of 16-bit elements are compared as such, two at a time; the
 * smallest then costs less than a bound on each exponential. */
template <typename X, int K_>
struct packed_tile {
    using Real = typename compute_of<X>::type;
    static constexpr int K = K_, V = CHUNK<Real>;
    static constexpr bool HAS_SMALLEST = sizeof(X) == 2;

    pack<X, V> raw[K];

    __device__ Real element(int e) const { return raw[e / V].real(e % V); }
    __device__ static keep_bits<K * V> kept() { return ~keep_bits<K * V>(0); }

    __device__ Real largest() const {
        if constexpr (sizeof(X) == 2) {
            pack<X, 2> m = {{word(0)}};
#pragma unroll
            for (int i = 1; i < WORDS; i++) m.word[0] = larger_pair(m.word[0], word(i), X());
            return larger(m.real(0), m.real(1));
        } else {
            Real m = element(0);
#pragma unroll
            for (int e = 1; e < K * V; e++) m = larger(m, element(e));
            return m;
        }
    }

    __device__ Real smallest() const {
        static_assert(HAS_SMALLEST);
        pack<X, 2> m = {{word(0)}};
#pragma unroll
        for (int i = 1; i < WORDS; i++) m.word[0] = smaller_pair(m.word[0], word(i), X());
        return -larger(-m.real(0), -m.real(1));
    }

    /* One of its chunks. */
    __device__ packed_tile<X, 1> chunk(int k) const { return {{raw[k]}}; }

   private:
    static constexpr int WORDS = K * pack<X, V>::WORDS;
    __device__ unsigned word(int i) const {
        return raw[i / pack<X, V>::WORDS].word[i % pack<X, V>::WORDS];
    }
};

/* K chunks in the arithmetic's type, and what `where` keeps of them. */
template <typename Real_, int K_>
struct real_tile {
    using Real = Real_;
    static constexpr int K = K_, V = CHUNK<Real>;
    static constexpr bool HAS_SMALLEST = false;

    Real x[K * V];
    keep_bits<K * V> keep;

    __device__ Real element(int e) const { return x[e]; }
    __device__ keep_bits<K * V> kept() const { return keep; }

    __device__ Real largest() const {
        Real m = x[0];
#pragma unroll
        for (int e = 1; e < K * V; e++) m = larger(m, x[e]);
        return m;
    }

    __device__ real_tile<Real, 1> chunk(int k) const {
        real_tile<Real, 1> one;
        one.keep = (keep_bits<V>)(keep >> k * V);
#pragma unroll
        for (int i = 0; i < V; i++) one.x[i] = x[k * V + i];
        return one;
    }
};

/* Makes the lifted exponentials of n elements, a power of two of them; returns their sum, added up
 * as a tree. */
template <int n, typename Real, typename Make>
__device__ __forceinline__ Real sum_as_tree(Real *x, int first, Make make) {
    if constexpr (n == 1)
        return *x = make(first);
    else
        return sum_as_tree<n / 2>(x, first, make) +
               sum_as_tree<n / 2>(x + n / 2, first + n / 2, make);
}

/* Fills x with the lifted exponentials of a tile; returns their sum. A warp comes to it together.
 */
template <typename Tile, typename Real, int n>
__device__ __forceinline__ Real exponentiate(const Tile &tile, const reference<Real> &to,
                                             Real (&x)[n]) {
    const exponentials<Real> &exponential = to.exponential;
    if constexpr (Tile::HAS_SMALLEST) {
        if (__all_sync(~0u, to.anchor == 0 && tile.smallest() >= exponential.floor))
            return sum_as_tree<n>(
                x, 0, [&](int e) { return exponential.from_floor_on(tile.element(e)); });
        return sum_as_tree<n>(x, 0,
                              [&](int e) { return exponential(tile.element(e) - to.anchor); });
    } else {
#pragma unroll
        for (int e = 0; e < n; e++) x[e] = tile.element(e);
        if (to.anchor != 0) {
#pragma unroll
            for (int e = 0; e < n; e++) x[e] -= to.anchor;
        }
        return sum_as_tree<n>(x, 0, [&](int e) { return exponential(x[e]); });
    }
}

#endif
