/* tile.cuh - tiles: a thread's chunks of a row between load and exponential, as they lie in memory
 * or in the arithmetic's type. A tile gives its elements and the largest element. It also marks the
 * elements that `where` allows. */
#ifndef ONS_TILE_CUH
#define ONS_TILE_CUH

#include "../statistic/over_lanes.cuh"
#include "packs.cuh"

/* Two 16-bit elements in a word, compared together. */
template <typename X>
using pair_of_16_bits = std::conditional_t<std::is_same_v<X, __half>, __half2, __nv_bfloat162>;

template <typename X>
__device__ inline unsigned larger_pair(unsigned a, unsigned b) {
    using pair = pair_of_16_bits<X>;
    pair m = __hmax2_nan(*(pair *)&a, *(pair *)&b);
    return *(unsigned *)&m;
}
template <typename X>
__device__ inline unsigned smaller_pair(unsigned a, unsigned b) {
    using pair = pair_of_16_bits<X>;
    pair m = __hmin2_nan(*(pair *)&a, *(pair *)&b);
    return *(unsigned *)&m;
}

/* K chunks as they lie in memory. 16-bit elements are compared in pairs, so finding the smallest
 * costs less than comparing each with the floor. */
template <typename X, int K_>
struct raw_tile {
    using Real = typename compute_of<X>::type;
    static constexpr int K = K_, V = CHUNK<Real>;
    static constexpr bool HAS_SMALLEST = sizeof(X) == 2;

    pack<X, V> raw[K];
    element_format<X> format;

    __device__ explicit raw_tile(const element_format<X> &format_ = element_format<X>())
        : format(format_) {}

    /* Only if the type is known at compile time. */
    __device__ Real element(int e) const { return raw[e / V].real(e % V); }

    /* Converts n elements from chunk `first` on. */
    template <int n>
    __device__ __forceinline__ void take(Real (&x)[n], int first = 0) const {
        format.with([&](auto type) {
#pragma unroll
            for (int e = 0; e < n; e++)
                x[e] = raw[first + e / V].template real<decltype(type)>(e % V);
        });
    }

    __device__ static allowed_bits<K * V> allowed() { return ~allowed_bits<K * V>(0); }

    __device__ Real largest() const {
        if constexpr (sizeof(X) == 2) {
            return format.with([&](auto type) { return largest_as<decltype(type)>(); });
        } else {
            Real m = element(0);
#pragma unroll
            for (int e = 1; e < K * V; e++) m = larger(m, element(e));
            return m;
        }
    }

    __device__ Real smallest() const {
        static_assert(HAS_SMALLEST);
        return format.with([&](auto type) { return smallest_as<decltype(type)>(); });
    }

    /* The same for 16-bit elements that are of type Type. */
    template <typename Type>
    __device__ Real largest_as() const {
        const pack<Type, 2> m = {{reduced(larger_pair<Type>)}};
        return larger(m.real(0), m.real(1));
    }
    template <typename Type>
    __device__ Real smallest_as() const {
        const pack<Type, 2> m = {{reduced(smaller_pair<Type>)}};
        return -larger(-m.real(0), -m.real(1));
    }

    __device__ raw_tile<X, 1> chunk(int k) const { return part<1>(k); }

    /* N of its chunks, from chunk `first` on. */
    template <int N>
    __device__ raw_tile<X, N> part(int first) const {
        raw_tile<X, N> some(format);
#pragma unroll
        for (int k = 0; k < N; k++) some.raw[k] = raw[first + k];
        return some;
    }

   private:
    static constexpr int WORDS = K * pack<X, V>::WORDS;

    /* Reduces all words to one, in two independent chains. */
    template <typename Reduce>
    __device__ unsigned reduced(Reduce reduce) const {
        constexpr int HALF = WORDS / 2;
        unsigned low = word(0), high = word(HALF);
#pragma unroll
        for (int i = 1; i < HALF; i++) low = reduce(low, word(i));
#pragma unroll
        for (int i = HALF + 1; i < WORDS; i++) high = reduce(high, word(i));
        return reduce(low, high);
    }

    __device__ unsigned word(int i) const {
        return raw[i / pack<X, V>::WORDS].word[i % pack<X, V>::WORDS];
    }
};

/* K chunks in the arithmetic's type. */
template <typename Real_, int K_>
struct tile_of_numbers {
    using Real = Real_;
    static constexpr int K = K_, V = CHUNK<Real>;
    static constexpr bool HAS_SMALLEST = false;

    Real x[K * V];

    __device__ Real element(int e) const { return x[e]; }
    template <int n>
    __device__ __forceinline__ void take(Real (&to)[n], int first = 0) const {
#pragma unroll
        for (int e = 0; e < n; e++) to[e] = x[first * V + e];
    }
    __device__ static allowed_bits<K * V> allowed() { return ~allowed_bits<K * V>(0); }
    __device__ tile_of_numbers<Real, 1> chunk(int k) const {
        tile_of_numbers<Real, 1> one;
#pragma unroll
        for (int i = 0; i < V; i++) one.x[i] = x[k * V + i];
        return one;
    }
    __device__ Real largest() const {
        Real m = x[0];
#pragma unroll
        for (int e = 1; e < K * V; e++) m = larger(m, x[e]);
        return m;
    }
};

/* The same, with a bit for each element that `where` allows. */
template <typename Real, int K>
struct real_tile : tile_of_numbers<Real, K> {
    allowed_bits<K * CHUNK<Real>> is_allowed;

    __device__ auto allowed() const { return is_allowed; }
};

/* K chunks of 16-bit elements in the arithmetic's type, with the largest and the smallest. */
template <int K>
struct converted_tile : tile_of_numbers<float, K> {
    using tile_of_numbers<float, K>::x;
    static constexpr bool HAS_SMALLEST = true;

    float extremes[2]; /* the largest, the smallest */

    /* Everything that depends on the elements' type, behind one branch. */
    __device__ explicit converted_tile(const raw_tile<any_16_bit, K> &tile) {
        tile.format.with([&](auto type) {
            extremes[0] = tile.template largest_as<decltype(type)>();
            extremes[1] = tile.template smallest_as<decltype(type)>();
#pragma unroll
            for (int e = 0; e < K * CHUNK<float>; e++)
                x[e] = tile.raw[e / CHUNK<float>].template real<decltype(type)>(e % CHUNK<float>);
        });
    }

    __device__ float largest() const { return extremes[0]; }
    __device__ float smallest() const { return extremes[1]; }
};

/* Converts a tile of at most CONVERTED_CHUNKS chunks of 16-bit elements to the arithmetic's type,
 * in which they take twice the registers. Returns any other tile as it is. */
constexpr int CONVERTED_CHUNKS = 8;
template <typename Tile>
__device__ __forceinline__ Tile converted(const Tile &tile) {
    return tile;
}
template <int K>
__device__ __forceinline__ auto converted(const raw_tile<any_16_bit, K> &tile) {
    if constexpr (K <= CONVERTED_CHUNKS)
        return converted_tile<K>(tile);
    else
        return tile;
}

#endif
