/* tile.cuh - tiles: a thread's chunks of a row between load and exponential, as they lie in memory
 * or in the arithmetic's type. A tile gives its elements, the largest of them, and which of them
 * `where` allows. */
#ifndef ONS_TILE_CUH
#define ONS_TILE_CUH

#include "../statistic/parts.cuh"
#include "packs.cuh"

/* Two 16-bit elements in a word, compared as such. */
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

/* K chunks as they lie in memory. Pairs of 16-bit elements are compared two at a time; so their
 * smallest costs less than to compare each with the floor. */
template <typename X, int K_>
struct raw_tile {
    using Real = typename compute_of<X>::type;
    static constexpr int K = K_, V = CHUNK<Real>;
    static constexpr bool HAS_SMALLEST = sizeof(X) == 2;

    pack<X, V> raw[K];
    element_format<X> format;

    __device__ explicit raw_tile(const element_format<X> &format_ = element_format<X>())
        : format(format_) {}

    /* Where the type is known. */
    __device__ Real element(int e) const { return raw[e / V].real(e % V); }

    /* n elements from chunk `first` on. */
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

    /* The same of 16-bit elements that have that type. */
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

    /* One of its chunks. */
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

    /* All words reduced to one, as two independent chains. */
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

    Real x[K * V];

    __device__ Real element(int e) const { return x[e]; }
    template <int n>
    __device__ __forceinline__ void take(Real (&to)[n], int first = 0) const {
#pragma unroll
        for (int e = 0; e < n; e++) to[e] = x[first * V + e];
    }
    __device__ static allowed_bits<K * V> allowed() { return ~allowed_bits<K * V>(0); }
};

/* The same, and a bit for each that `where` allows. */
template <typename Real_, int K_>
struct real_tile : tile_of_numbers<Real_, K_> {
    using Real = Real_;
    using tile_of_numbers<Real, K_>::x;
    static constexpr int K = K_, V = CHUNK<Real>;
    static constexpr bool HAS_SMALLEST = false;

    allowed_bits<K * V> is_allowed;

    __device__ allowed_bits<K * V> allowed() const { return is_allowed; }

    __device__ Real largest() const {
        Real m = x[0];
#pragma unroll
        for (int e = 1; e < K * V; e++) m = larger(m, x[e]);
        return m;
    }

    __device__ real_tile<Real, 1> chunk(int k) const {
        real_tile<Real, 1> one;
        one.is_allowed = (allowed_bits<V>)(is_allowed >> k * V);
#pragma unroll
        for (int i = 0; i < V; i++) one.x[i] = x[k * V + i];
        return one;
    }
};

/* K chunks of 16-bit elements in the arithmetic's type, and the largest and smallest. */
template <int K>
struct converted_tile : tile_of_numbers<float, K> {
    using tile_of_numbers<float, K>::x;
    static constexpr bool HAS_SMALLEST = true;

    float extremes[2]; /* the largest, the smallest */

    /* All that depends on the elements' type, behind one branch. */
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

/* The tile; in the arithmetic's type where it has at most CONVERTED_CHUNKS chunks of 16-bit
 * elements, which take twice the registers there. */
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

/* make(first) + ... + make(first + n - 1), added up as a tree. */
template <int n, typename Make>
__device__ __forceinline__ auto sum_as_tree(int first, Make make) {
    if constexpr (n == 1)
        return make(first);
    else
        return sum_as_tree<n / 2>(first, make) + sum_as_tree<n - n / 2>(first + n / 2, make);
}

/* How the exponentials of a thread's chunks are added up: as one tree; or each chunk as a tree and
 * these in fixed point, so that neither the number of chunks nor that of threads changes the sum.
 * In float64 as one tree anyway. */
struct in_a_tree {
    template <int n, typename Real, typename Make>
    __device__ __forceinline__ static lifted_sum<Real> sum(Make make, Real) {
        return {sum_as_tree<n>(0, make)};
    }
};
struct in_any_order {
    template <int n, typename Make>
    __device__ __forceinline__ static fixed_sum sum(Make make, float) {
        constexpr int V = CHUNK<float>;
        fixed_sum all;
#pragma unroll
        for (int e = 0; e < n; e += V)
            all.add(sum_as_tree<V>(e, make) * arithmetic<float>::LOWERED);
        return all;
    }
    template <int n, typename Make>
    __device__ __forceinline__ static lifted_sum<double> sum(Make make, double) {
        return {sum_as_tree<n>(0, make)};
    }
};

/* The sum of make(e, element e) over a tile's COUNT chunks from FIRST on. At most AT_ONCE of them
 * are converted at a time, by halves as in sum_as_tree: they take twice the registers then. */
template <typename How, int AT_ONCE, int FIRST, int COUNT, typename Tile, typename Make>
__device__ __forceinline__ auto sum_of_chunks(const Tile &tile, Make make) {
    using Real = typename Tile::Real;
    constexpr int V = Tile::V, HALF = COUNT / 2;
    if constexpr (COUNT > AT_ONCE && COUNT % 2 == 0) {
        auto sum = sum_of_chunks<How, AT_ONCE, FIRST, HALF>(tile, make);
        sum += sum_of_chunks<How, AT_ONCE, FIRST + HALF, HALF>(tile, make);
        return sum;
    } else {
        Real x[COUNT * V];
        tile.take(x, FIRST);
        return How::template sum<COUNT * V>([&](int e) { return make(FIRST * V + e, x[e]); },
                                            Real());
    }
}

/* Whether no element of a tile is below the floor; false where to test it costs too much
 * (HAS_SMALLEST). To be called by whole warps. */
template <typename Tile, typename Real>
__device__ __forceinline__ bool is_above_floor(const Tile &tile, const reference<Real> &to) {
    if constexpr (Tile::HAS_SMALLEST)
        return __all_sync(~0u, to.anchor == 0 && tile.smallest() >= to.exponential.floor);
    else
        return false;
}

/* Fills x with a tile's lifted exponentials; returns their sum. To be called by whole warps. */
template <typename How = in_a_tree, typename Tile, typename Real, int n>
__device__ __forceinline__ auto exponentiate(const Tile &tile, const reference<Real> &to,
                                             Real (&x)[n]) {
    const exponentials<Real> &exponential = to.exponential;
    if constexpr (Tile::HAS_SMALLEST) {
        if (is_above_floor(tile, to))
            return sum_of_chunks<How, 8, 0, Tile::K>(
                tile, [&](int e, Real v) { return x[e] = exponential.from_floor_on(v); });
        return sum_of_chunks<How, 8, 0, Tile::K>(
            tile, [&](int e, Real v) { return x[e] = exponential(v - to.anchor); });
    } else {
        tile.take(x);
        if (to.anchor != 0) {
#pragma unroll
            for (int e = 0; e < n; e++) x[e] -= to.anchor;
        }
        return How::template sum<n>([&](int e) { return x[e] = exponential(x[e]); }, Real());
    }
}

/* Fills x with the elements of a tile; returns the same sum. */
template <typename How = in_a_tree, typename Tile, typename Real, int n>
__device__ __forceinline__ auto take_and_sum(const Tile &tile, const reference<Real> &to,
                                             Real (&x)[n]) {
    const exponentials<Real> &exponential = to.exponential;
    const bool above_floor = is_above_floor(tile, to);
    tile.take(x);
    if (above_floor)
        return How::template sum<n>([&](int e) { return exponential.from_floor_on(x[e]); }, Real());
    return How::template sum<n>([&](int e) { return exponential(x[e] - to.anchor); }, Real());
}

/* The same sum, of a tile that stays as it is: no exponential is kept. */
template <typename How = in_a_tree, typename Tile, typename Real>
__device__ __forceinline__ auto sum_exponentials(const Tile &tile, const reference<Real> &to) {
    const exponentials<Real> &exponential = to.exponential;
    if (is_above_floor(tile, to))
        return sum_of_chunks<How, 4, 0, Tile::K>(
            tile, [&](int, Real v) { return exponential.from_floor_on(v); });
    return sum_of_chunks<How, 4, 0, Tile::K>(
        tile, [&](int, Real v) { return exponential(v - to.anchor); });
}

#endif
