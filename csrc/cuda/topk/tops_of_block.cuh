/* topk/tops_of_block.cuh - the tops of a block: the largest element of each thread in each tile.
 * The block keeps all tops of the first tiles, by thread and tile. Then the kept tops that reach a
 * bound go to a queue, and so do all later tops that reach it. */
#ifndef ONS_TOPK_TOPS_CUH
#define ONS_TOPK_TOPS_CUH

#include "select.cuh"
#include "shapes.h"

/* The tops of a thread are at places `first`, `first` + `step`, and so on, before `end`. */
struct places_of_tops {
    uint32_t first, step, end;
};

/* In shared memory. */
template <typename Real>
struct tops_of_block {
    using Key = key_type<Real>;
    using Entry = entry<Real>;

    Real *kept;
    Entry *queue;
    uint32_t *queued; /* tops that were added; may exceed the queue's room */

    __device__ static uint32_t room() { return TOPK_QUEUED * blockDim.x; }

    __device__ Real &of_tile(uint32_t tile) const { return kept[tile * blockDim.x + threadIdx.x]; }

    __device__ __forceinline__ void add(Key key, uint32_t place) const {
        const uint32_t slot = atomicAdd(queued, 1);
        if (slot < room()) queue[slot] = Entry::make(key, place);
    }

    /* Whether the queue has all tops that were added. */
    __device__ bool is_whole() const { return *(volatile uint32_t *)queued <= room(); }

    /* Whether the tops of `tiles` more tiles fit. */
    __device__ bool has_room(uint32_t tiles) const {
        return !__syncthreads_or(*(volatile uint32_t *)queued + tiles * blockDim.x > room());
    }
};

/* The `rank`-th largest of a warp's keys: each lane counts the keys above its own. 0 if there are
 * fewer keys. */
template <typename Key>
__device__ inline Key kth_of_warp(Key key, uint32_t rank) {
    uint32_t above = 0;
#pragma unroll
    for (int i = 1; i < WARP; i++) above += __shfl_xor_sync(~0u, key, i) > key;
    const Key found = least_of_warp(above < rank ? key : ~Key(0));
    return rank <= WARP ? found : 0;
}

/* A key that at least k elements of a row are not below, or 0. `own` is the largest key that this
 * thread has seen, or 0. In each warp, `rank` threads have such a key from the bound on, if the
 * warp has enough threads with elements. */
template <typename Key>
__device__ inline Key bound_by_warps(Key own, uint32_t rank) {
    constexpr int MAX_WARPS = TOPK_TILE_THREADS / WARP;
    __shared__ Key of_warps[MAX_WARPS];
    const int warps = warps_of_block();
    Key from = kth_of_warp(own, rank);
    if (threadIdx.x % WARP == 0) of_warps[warp_of_block()] = from;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < MAX_WARPS; i++) {
        const Key of_warp = i < warps ? of_warps[i] : ~Key(0);
        from = of_warp < from ? of_warp : from;
    }
    return from;
}

/* The same. If k is large, the least of the threads' maxima lie far below the k-th element. Then
 * all tops from this bound on are counted. each(visit) calls visit(key) for this thread's tops. */
template <typename Key, typename Each>
__device__ inline Key bound_of_row(Key own, uint32_t k, Each each) {
    constexpr uint32_t CLOSE_RANK = WARP / 2;
    const uint32_t rank = (k + warps_of_block() - 1) / warps_of_block();
    const Key by_warps = bound_by_warps(own, rank);
    if (by_warps != 0 && rank <= CLOSE_RANK) return by_warps;
    return bound_by_ranges<Key>(k, [&](auto visit) {
        each([&](Key key) {
            if (key >= by_warps) visit(key);
        });
    });
}

/* A key that at least k of n entries are not below. */
template <typename Entry>
__device__ __noinline__ auto bound_of_entries(const Entry *entries, uint32_t n, uint32_t k) {
    return bound_by_ranges<decltype(entries->key())>(k, [&](auto visit) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) visit(entries[i].key());
    });
}

/* A key that at least k elements of a row are not below. The kept tops of `tiles` tiles go to the
 * queue if they are from this key on. */
template <typename Real, typename Key>
__device__ __noinline__ Key queue_kept(tops_of_block<Real> tops, places_of_tops at, uint32_t tiles,
                                       Key own, uint32_t k) {
    const Key from = bound_of_row(own, k, [&](auto visit) {
#pragma unroll 1
        for (uint32_t tile = 0; tile < tiles; tile++)
            if (at.first + tile * at.step < at.end) visit(key_of(tops.of_tile(tile)));
    });
    const Real least = number_of(from); /* NaN if `from` is 0 or NaN's key: then nothing is below
                                         * it */
    if (own >= from)
#pragma unroll 4
        for (uint32_t tile = 0; tile < tiles; tile++) {
            const Real top = tops.of_tile(tile);
            const uint32_t place = at.first + tile * at.step;
            if (!(top < least) && place < at.end) tops.add(key_of(top), place);
        }
    return from;
}

/* The same; the queue keeps the tops from this key on. */
template <typename Real, typename Key>
__device__ __noinline__ Key cut_queue(tops_of_block<Real> tops, Key own, uint32_t k) {
    __syncthreads(); /* all have added their tops */
    const uint32_t count = *tops.queued;
    const uint32_t in_queue = count < tops.room() ? count : tops.room();
    const Key from = bound_of_row(own, k, [&](auto visit) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < in_queue; i += blockDim.x) visit(tops.queue[i].key());
    });
    if (count <= tops.room()) keep_from(bound<Key>{from, ~0u}, tops.queue, tops.queued);
    return from;
}

#endif
