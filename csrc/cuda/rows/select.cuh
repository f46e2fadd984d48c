/* select.cuh - which elements of a row are among its k largest, where those who share the row hold
 * it in registers, as tiles: the elements from a bound on. */
#ifndef ONS_SELECT_CUH
#define ONS_SELECT_CUH

#include "../pairs/cluster.cuh"
#include "../pairs/entry.cuh"
#include "tile.cuh"

/* The elements whose key is above `key`; and of those with this key the ones before place `end`. */
template <typename Key>
struct bound {
    Key key;
    uint32_t end;

    __device__ bool has(Key of, uint32_t index) const {
        return of > key || (of == key && index < end);
    }
};

/* Calls visit(key, place) for a thread's elements from the bound on, until it returns false:
 * `first` is the place of the first one, N where the row ends. */
template <int STRIDE, typename Tile, typename Key, typename Visit>
__device__ __forceinline__ void each_from(const Tile &tile, const bound<Key> &from, uint32_t first,
                                          uint32_t N, Visit visit) {
    const auto least = number_of(from.key);
    bool goes_on = true;
#pragma unroll
    for (int e = 0; e < Tile::K * Tile::V; e++)
        if (!(tile.element(e) < least)) {
            const uint32_t at = first + place<STRIDE, Tile::V>(e);
            const Key key = key_of(tile.element(e));
            if (goes_on && at < N && from.has(key, at)) goes_on = visit(key, at);
        }
}

template <typename Key>
__device__ inline Key least_by_shuffles(Key key) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const Key other = __shfl_xor_sync(~0u, key, apart);
        key = other < key ? other : key;
    }
    return key;
}
__device__ inline uint64_t least_of_warp(uint64_t key) { return least_by_shuffles(key); }
__device__ inline uint32_t least_of_warp(uint32_t key) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(~0u, key);
#else
    return least_by_shuffles(key);
#endif
}

/* A key that k of a block's keys are not below, n of each thread, and few more than k: by
 * bisection. 0 is no key; where there are fewer than k, 0. */
template <int n, typename Key>
__device__ inline Key bound_of_tops(const Key (&mine)[n], int k) {
    using Word = std::conditional_t<sizeof(Key) == 4, unsigned, unsigned long long>;
    __shared__ Word least, largest;
    if (threadIdx.x == 0) {
        least = ~Word(0);
        largest = 0;
    }
    Key low = ~Key(0), high = 0;
    int from_low = 0;
#pragma unroll
    for (int i = 0; i < n; i++) {
        from_low += __syncthreads_count(mine[i] != 0);
        low = mine[i] && mine[i] < low ? mine[i] : low;
        high = mine[i] > high ? mine[i] : high;
    }
    if (from_low < k) return 0;
    low = least_of_warp(low);
    high = ~least_of_warp(~high);
    if (threadIdx.x % WARP == 0) {
        atomicMin(&least, (Word)low);
        atomicMax(&largest, (Word)high);
    }
    __syncthreads();
    low = (Key)least;
    high = (Key)largest;
    const int enough = k + k / 8 + 1;
#pragma unroll 1
    while (low < high && from_low > enough) {
        const Key middle = low + (high - low) / 2 + ((high - low) & 1);
        int above = 0;
#pragma unroll
        for (int i = 0; i < n; i++) above += __syncthreads_count(mine[i] >= middle);
        if (above >= k) {
            low = middle;
            from_low = above;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* A bound that k to `room` elements of a row, or of a part of one, keep, where there are k: by
 * bisection of the keys, then of the places of those that are equal to the k-th. k elements have a
 * key from `low` on, `largest` is the largest, `own` the thread's. `first` is the place along the
 * row of the thread's first element, `begin` and `end` are where the part begins and ends. Of the
 * group sum(n) gives the sum over those who share the part, any(b) whether one of those who call
 * this together has b. */
template <int STRIDE, typename Tile, typename Key, typename Group>
__device__ __noinline__ bound<Key> bound_by_counting(const Tile &tile, Key own, uint32_t first,
                                                     uint32_t begin, uint32_t end, uint32_t k,
                                                     uint32_t room, Key low, Key largest,
                                                     Group &group) {
    auto count = [&](auto counts) {
        int n = 0;
#pragma unroll 1
        for (int e = 0; e < Tile::K * Tile::V && own >= low; e++) {
            const uint32_t at = first + place<STRIDE, Tile::V>(e);
            if (at < end) n += counts(key_of(tile.element(e)), at);
        }
        return (uint32_t)group.sum(n);
    };
    Key high = largest;
    uint32_t from_low = count([&](Key key, uint32_t) { return key >= low; });
    while (group.any(low < high && from_low > room)) {
        const Key middle = low + (high - low) / 2 + ((high - low) & 1);
        const uint32_t n = count([&](Key key, uint32_t) { return key >= middle; });
        if (low >= high || from_low <= room) continue;
        if (n >= k) {
            low = middle;
            from_low = n;
        } else {
            high = middle - 1;
        }
    }
    bound<Key> found = {low, end};
    if (!group.any(from_low > room)) return found;
    const uint32_t above = count([&](Key key, uint32_t) { return key > low; });
    uint32_t least = begin, most = end; /* of the place behind the last one that is kept */
    while (group.any(least < most)) {
        const uint32_t middle = least + (most - least) / 2;
        const uint32_t n = count([&](Key key, uint32_t at) { return key == low && at < middle; });
        if (least >= most) continue;
        if (n + above >= k)
            most = middle;
        else
            least = middle + 1;
    }
    if (from_low > room) found.end = most;
    return found;
}

#endif
