/* tops.cuh - tops are the largest elements of parts of a thread's chunks. The k-th largest top of
 * neighbouring lanes bounds the k-th element of their row from below. */
#ifndef ONS_TOPS_CUH
#define ONS_TOPS_CUH

#include "../rows/tile.cuh"

/* The largest element of every PARTS-th chunk of a thread, from chunk `part` on. */
template <int PARTS, typename X, int K>
__device__ inline auto largest_of_part(const raw_tile<X, K> &tile, int part) {
    constexpr int CHUNKS =
        (K + PARTS - 1) / PARTS; /* a part with fewer takes its first one twice */
    raw_tile<X, CHUNKS> some;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
        some.raw[k] = tile.raw[PARTS * k + part < K ? PARTS * k + part : part];
    return some.largest();
}
template <int PARTS, typename Real, int K>
__device__ inline Real largest_of_part(const real_tile<Real, K> &tile, int part) {
    constexpr int V = real_tile<Real, K>::V;
    Real m = tile.x[part * V];
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < V; i++)
            if (k % PARTS == part) m = larger(m, tile.x[k * V + i]);
    return m;
}

/* The largest element of each of a thread's chunks. */
template <typename Tile>
__device__ inline auto tops_of_chunks(const Tile &tile) {
    constexpr int V = Tile::V;
    real_tile<typename Tile::Real, Tile::K / V> tops;
#pragma unroll
    for (int k = 0; k < Tile::K; k++) {
        tops.x[k] = tile.element(V * k);
#pragma unroll
        for (int i = 1; i < V; i++) tops.x[k] = larger(tops.x[k], tile.element(V * k + i));
    }
    return tops;
}
template <typename X, int K>
__device__ inline auto tops_of_chunks(const raw_tile<X, K> &tile)
    -> std::enable_if_t<sizeof(X) == 2, raw_tile<X, K / raw_tile<X, K>::V>> {
    raw_tile<X, K / raw_tile<X, K>::V> tops;
#pragma unroll
    for (int k = 0; k < K; k += 2) { /* the tops of two chunks in a word */
        const unsigned one = larger_pair<X>(tile.raw[k].word[0], tile.raw[k].word[1]);
        const unsigned two = larger_pair<X>(tile.raw[k + 1].word[0], tile.raw[k + 1].word[1]);
        tops.raw[k / 4].word[k % 4 / 2] =
            larger_pair<X>(__byte_perm(one, two, 0x5410), __byte_perm(one, two, 0x7632));
    }
    return tops;
}

/* The k-th largest number of LANES lanes by a bitonic network. Each lane has one number. A smaller
 * number may take the place of a NaN, so the result is a lower bound. */
template <int LANES, typename X>
__device__ inline X kth_over_lanes(X number, int k) {
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int size = 2; size <= LANES; size *= 2) {
        const bool down = !(lane & size); /* largest first */
#pragma unroll
        for (int apart = size / 2; apart > 0; apart /= 2) {
            const bool larger_one = !(lane & apart) == down;
            const X other = __shfl_xor_sync(~0u, number, apart);
            number = larger_one ? max(number, other) : min(number, other);
        }
    }
    return __shfl_sync(~0u, number, k - 1, LANES);
}

/* The same for lanes that have two numbers. A lane's i-th number has place 2 * lane + i. */
template <int LANES, typename X>
__device__ inline X kth_over_lanes(X first, X second, int k) {
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int size = 2; size <= 2 * LANES; size *= 2) {
        const bool down = !(2 * lane & size); /* largest first */
#pragma unroll
        for (int apart = size / 4; apart > 0; apart /= 2) {
            const bool larger_one = !(lane & apart) == down;
            const X one = __shfl_xor_sync(~0u, first, apart);
            const X two = __shfl_xor_sync(~0u, second, apart);
            first = larger_one ? max(first, one) : min(first, one);
            second = larger_one ? max(second, two) : min(second, two);
        }
        const X most = max(first, second), least = min(first, second);
        first = down ? most : least;
        second = down ? least : most;
    }
    const X found = (k - 1) % 2 ? second : first;
    return __shfl_sync(~0u, found, (k - 1) / 2, LANES);
}

#endif
