/* sums.cuh - exponentiates a thread's tile and adds it up. A tile is a thread's chunks
 * (rows/tile.cuh). */
#ifndef ONS_SUMS_CUH
#define ONS_SUMS_CUH

#include "parts.cuh"

/* make(begin) + ... + make(begin + n - 1), added up as a tree. */
template <int n, typename Make>
__device__ __forceinline__ auto sum_as_tree(int begin, Make make) {
    if constexpr (n == 1)
        return make(begin);
    else
        return sum_as_tree<n / 2>(begin, make) + sum_as_tree<n - n / 2>(begin + n / 2, make);
}

/* How a thread adds up the exponentials of its chunks. in_a_tree: as one tree. in_any_order: a tree
 * for each chunk, then fixed point over the chunks, so the sum depends neither on the number of
 * chunks nor on the number of threads. In float64 both use one tree. */
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

/* in_a_tree for the elements of a column. */
struct in_a_tree_of_column : in_a_tree {};

/* The sum of make(e, element e) over a tile's COUNT chunks from FIRST on. Converted chunks take
 * twice the registers, so an even number above AT_ONCE is halved first, as in sum_as_tree. */
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

/* Whether no element of a tile is below the floor. It is false if the test would cost too much
 * (HAS_SMALLEST). Whole warps call it. */
template <typename Tile, typename Real>
__device__ __forceinline__ bool is_above_floor(const Tile &tile, const reference<Real> &to) {
    if constexpr (Tile::HAS_SMALLEST)
        return __all_sync(~0u, to.anchor == 0 && tile.smallest() >= to.exponential.floor);
    else
        return false;
}

/* Fills x with a tile's lifted exponentials, and returns their sum. Whole warps call it. */
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

/* Fills x with the elements of a tile, and returns the sum of their lifted exponentials. */
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

/* The sum of the lifted exponentials of a tile. Nothing is kept. */
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
