/* select.cuh - which elements of a row are among its k largest, where the row is held in registers:
 * those from a bound on. */
#ifndef ONS_SELECT_CUH
#define ONS_SELECT_CUH

#include "blocks_of_row.cuh"
#include "entry.cuh"
#include "scan.cuh"
#include "../rows/tile.cuh"

/* The elements whose key is above `key`; and of those with this key the ones before place `end`. */
template <typename Key>
struct bound {
    Key key;
    uint32_t end;

    __device__ bool has(Key other, uint32_t index) const {
        return other > key || (other == key && index < end);
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

/* The number of a block's keys in each of 256 equal ranges between two keys. */
struct ranges_of_keys {
    static constexpr int RANGES = 256, A_LANE = RANGES / WARP;
    uint32_t keys[RANGES];

    /* The last range from which on there are as many as wanted, how many there are, and how many of
     * them are in the ranges after it. Where there are fewer, -1. To be called by a warp. */
    struct found {
        int range;
        uint32_t from_there, after;
    };
    __device__ found find(uint32_t wanted) const {
        const int lane = threadIdx.x % WARP;
        const uint4 *const own = (const uint4 *)(keys + A_LANE * (WARP - 1 - lane));
        const uint4 low = own[0], high = own[1];
        const uint32_t n[A_LANE] = {high.w, high.z, high.y, high.x, low.w, low.z, low.y, low.x};
        uint32_t in_lane = 0;
#pragma unroll
        for (int i = 0; i < A_LANE; i++) in_lane += n[i];
        const uint32_t upto = sum_up_to_lane<WARP>(in_lane, lane);
        const unsigned reached = __ballot_sync(~0u, upto >= wanted);
        if (reached == 0) return {-1, 0, 0};
        uint32_t so_far = upto - in_lane, before = so_far;
        int range = 0;
#pragma unroll
        for (int i = 0; i < A_LANE; i++)
            if (so_far < wanted) {
                before = so_far;
                so_far += n[i];
                range = A_LANE * (WARP - lane) - 1 - i;
            }
        const int from = __ffs(reached) - 1;
        return {__shfl_sync(~0u, range, from), __shfl_sync(~0u, so_far, from),
                __shfl_sync(~0u, before, from)};
    }
};

__device__ inline ranges_of_keys *ranges_of_block() {
    __shared__ __align__(16) ranges_of_keys ranges;
    return &ranges;
}

/* A key that k of a block's keys, or few more, are not below: by counting those in each of the
 * ranges between the least and the largest, then in those of the range that the k-th is in. 0 is no
 * key; where there are fewer than k, 0. each(visit) calls visit(key) for those of this thread. */
template <typename Key, typename Each>
__device__ inline Key bound_by_ranges(uint32_t k, Each each) {
    using Word = std::conditional_t<sizeof(Key) == 4, unsigned, unsigned long long>;
    constexpr int RANGES = ranges_of_keys::RANGES, BITS = 8;
    ranges_of_keys &ranges = *ranges_of_block();
    __shared__ Word least, largest;
    __shared__ typename ranges_of_keys::found found;
    Key low = ~Key(0), high = 0;
    each([&](Key key) {
        low = key && key < low ? key : low;
        high = key > high ? key : high;
    });
    low = least_of_warp(low);
    high = ~least_of_warp(~high);
    if (threadIdx.x == 0) {
        least = ~Word(0);
        largest = 0;
    }
    for (int i = threadIdx.x; i < RANGES; i += blockDim.x) ranges.keys[i] = 0;
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        atomicMin(&least, (Word)low);
        atomicMax(&largest, (Word)high);
    }
    __syncthreads();
    low = (Key)least;
    high = (Key)largest;
    uint32_t after = 0; /* keys above those that are counted */
    while (true) {
        const int bits = high > low ? (sizeof(Key) == 4 ? 32 - __clz((int)(high - low))
                                                        : 64 - __clzll((long long)(high - low)))
                                    : 0;
        const int shift = max(bits - BITS, 0);
        each([&](Key key) {
            if (key >= low && key <= high) atomicAdd(ranges.keys + ((key - low) >> shift), 1);
        });
        __syncthreads();
        if (threadIdx.x < WARP) {
            const typename ranges_of_keys::found one = ranges.find(k - after);
            if (threadIdx.x == 0) found = one;
        }
        __syncthreads();
        if (found.range < 0) return 0;
        low += (Key)found.range << shift;
        if (after + found.from_there <= k + k / 8 + 1 || shift == 0) return low;
        high = low + (((Key)1 << shift) - 1);
        after += found.after;
        for (int i = threadIdx.x; i < RANGES; i += blockDim.x) ranges.keys[i] = 0;
        __syncthreads();
    }
}

/* The same of n keys a thread. */
template <int n, typename Key>
__device__ inline Key bound_of_tops(const Key (&mine)[n], int k) {
    return bound_by_ranges<Key>((uint32_t)k, [&](auto visit) {
#pragma unroll
        for (int i = 0; i < n; i++) visit(mine[i]);
    });
}

/* A bound that k to `room` elements of a row, or of a part of one, are not below, where there are
 * k. Halves the keys between two elements, so that equal ones end it: of those equal to the k-th
 * the first are taken. k elements have a key from `low` on; `largest` is the largest key, `own` the
 * thread's. `first` is the place of the thread's first element, `end` that of the part's end. To be
 * called by all blocks of the row. */
template <typename Tile, typename Key>
__device__ __noinline__ bound<Key> bound_by_counting(const Tile &tile, Key own, uint32_t first,
                                                     uint32_t end, uint32_t k, uint32_t room,
                                                     Key low, Key largest) {
    __shared__ typename row_blocks<Key>::memory memory;
    row_blocks<Key> blocks(&memory);
    constexpr int V = Tile::V;
    auto place_of = [&](int e) { return first + place<WARP, V>(e); };
    Key high = largest, middle = low;
    uint32_t from_low = room + 1, above = 0; /* high */
    while (from_low > room && low < high) {
        around_key<Key> mine = around_key<Key>::none();
#pragma unroll 4
        for (int e = 0; e < Tile::K * V && own >= low; e++) {
            const Key key = place_of(e) < end ? key_of(tile.element(e)) : 0;
            mine.from += key >= middle;
            if (key >= middle && key < mine.least_from) mine.least_from = key;
            if (key < middle && key > mine.most_below) mine.most_below = key;
        }
        const around_key<Key> all = blocks.merge(mine);
        if (all.from >= k) {
            low = all.least_from;
            from_low = all.from;
        } else {
            high = all.most_below;
            above = all.from;
        }
        middle = low + (high - low) / 2 + ((high - low) & 1);
    }
    if (from_low <= room) return {low, end};
    auto is_equal = [&](int e) { return place_of(e) < end && key_of(tile.element(e)) == low; };
    auto equal_ones = [&](int chunk) {
        unsigned bits = 0;
#pragma unroll
        for (int i = 0; i < V; i++) bits |= (unsigned)is_equal(chunk * V + i) << i;
        return bits;
    };
    const uint32_t wanted = k - above;
    uint32_t equal = 0;
    for (int chunk = 0; chunk < Tile::K && own >= low; chunk++) equal += __popc(equal_ones(chunk));
    uint32_t before = blocks.sum_before(equal);
    for (int chunk = 0; chunk < Tile::K && before < wanted; chunk++) {
        const unsigned bits = equal_ones(chunk);
        const uint32_t upto = sum_up_to_lane<WARP>(__popc(bits), threadIdx.x % WARP);
        uint32_t at = before + upto - __popc(bits);
#pragma unroll
        for (int i = 0; i < V; i++)
            if (bits >> i & 1 && ++at == wanted) blocks.publish(place_of(chunk * V + i) + 1);
        before += __shfl_sync(~0u, upto, WARP - 1);
    }
    return {low, blocks.published()};
}

#endif
