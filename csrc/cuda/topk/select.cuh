/* select.cuh - finds the k largest elements by a bound. They are exactly the elements that reach
 * the bound. Counting finds the bound. */
#ifndef ONS_SELECT_CUH
#define ONS_SELECT_CUH

#include "blocks_of_row.cuh"
#include "entry.cuh"
#include "scan.cuh"
#include "../rows/tile.cuh"

/* Elements from a bound on have a larger key, or the same key and a place before `end`. */
template <typename Key>
struct bound {
    Key key;
    uint32_t end;

    __device__ bool has(Key other, uint32_t index) const {
        return other > key || (other == key && index < end);
    }
};

/* Calls visit(key, place) for a thread's elements from the bound on, until it returns false.
 * `first` is the place of the thread's first element, and the row ends at N. */
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

/* Number of keys in each of 256 ranges. */
struct ranges_of_keys {
    static constexpr int RANGES = 256, A_LANE = RANGES / WARP;
    uint32_t keys[RANGES];

    /* A block must call it, and then meet before it counts. */
    __device__ void clear() {
        for (int i = threadIdx.x; i < RANGES; i += blockDim.x) keys[i] = 0;
    }

    /* `range` is the last range from which on there are at least `wanted` keys, or -1. from_there
     * counts the keys from this range on, `after` the keys in the ranges after it. */
    struct found {
        int range;
        uint32_t from_there, after;
    };
    /* A warp must call it. */
    __device__ found find(uint32_t wanted) const {
        const int lane = threadIdx.x % WARP, last = A_LANE * (WARP - lane) - 1;
        const uint4 *const own = (const uint4 *)(keys + last + 1 - A_LANE);
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
                range = last - i;
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

/* Keys in 256 ranges: the lowest key alone, then equal parts of the others. So equal keys at the
 * low end, such as -inf, have a range of their own. */
template <typename Key>
struct keys_between {
    Key low, high;

    /* log2 of the number of keys in a part. */
    __device__ int scale() const {
        const Key apart = high > low ? (high - low - 1) / (ranges_of_keys::RANGES - 1) : 0;
        return sizeof(Key) == 4 ? 32 - __clz((int)apart) : 64 - __clzll((long long)apart);
    }
    __device__ bool has(Key key) const { return key >= low && key <= high; }
    __device__ uint32_t range_of(Key key, int scale) const {
        return key == low ? 0 : 1 + (uint32_t)((key - low - 1) >> scale);
    }
    __device__ keys_between part(int range, int scale) const {
        if (range == 0) return {low, low};
        const Key first = low + 1 + ((Key)(range - 1) << scale), size = ((Key)1 << scale) - 1;
        return {first, high - first < size ? high : first + size};
    }
};

/* The least and the largest of a block's keys; 0 is no key. each(visit) calls visit(key) for this
 * thread's keys. */
template <typename Key, typename Each>
__device__ inline keys_between<Key> least_and_largest(Each each) {
    using Word = std::conditional_t<sizeof(Key) == 4, unsigned, unsigned long long>;
    __shared__ Word least, largest;
    Key low = ~Key(0), high = 0;
    each([&](Key key) {
        low = key && key < low ? key : low;
        high = key > high ? key : high;
    });
    low = least_of_warp(low);
    high = largest_of_warp(high);
    if (threadIdx.x == 0) {
        least = ~Word(0);
        largest = 0;
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        atomicMin(&least, (Word)low);
        atomicMax(&largest, (Word)high);
    }
    __syncthreads();
    return {(Key)least, (Key)largest};
}

/* A key, the number of keys not below it, and the number above it. */
template <typename Key>
struct counted_key {
    Key key;
    uint32_t from, above;
};

/* Finds a key that at least k keys are not below. Either at most `room` keys are not below it, or
 * it is the k-th key itself. If there are fewer than k keys, it returns key 0. It counts keys in
 * ranges, then in parts of the range that has the k-th key. Before the call the ranges are clear,
 * and no key is above `among`. each(visit) calls visit(key) for this thread's keys. */
template <typename Key, typename Each>
__device__ inline counted_key<Key> count_to_kth(keys_between<Key> among, uint32_t k, uint32_t room,
                                                Each each) {
    ranges_of_keys &ranges = *ranges_of_block();
    __shared__ ranges_of_keys::found found;
    uint32_t above = 0;
    while (true) {
        const int scale = among.scale();
        each([&](Key key) {
            if (among.has(key)) atomicAdd(ranges.keys + among.range_of(key, scale), 1);
        });
        __syncthreads();
        if (threadIdx.x < WARP) {
            const ranges_of_keys::found one = ranges.find(k - above);
            if (threadIdx.x == 0) found = one;
        }
        __syncthreads();
        if (found.range < 0) return {0, 0, 0};
        among = among.part(found.range, scale);
        if (above + found.from_there <= room || among.low == among.high)
            return {among.low, above + found.from_there, above + found.after};
        above += found.after;
        ranges.clear();
        __syncthreads();
    }
}

/* A key that at least k of a block's keys are not below, and few more than k; 0 if there are fewer
 * keys. */
template <typename Key, typename Each>
__device__ inline Key bound_by_ranges(uint32_t k, Each each) {
    ranges_of_block()->clear();
    return count_to_kth(least_and_largest<Key>(each), k, k + k / 8 + 1, each).key;
}

/* The same for n keys a thread. */
template <int n, typename Key>
__device__ inline Key bound_of_tops(const Key (&mine)[n], int k) {
    return bound_by_ranges<Key>((uint32_t)k, [&](auto visit) {
#pragma unroll
        for (int i = 0; i < n; i++) visit(mine[i]);
    });
}

/* The bound from which on exactly k elements lie. each(visit) calls visit(key, place) for this
 * thread's elements. There are k or more. */
template <typename Key, typename Each>
__device__ inline bound<Key> bound_of_first(keys_between<Key> among, uint32_t k, Each each) {
    ranges_of_keys *const ranges = ranges_of_block();
    ranges->clear();
    __syncthreads();
    const counted_key<Key> kth = count_to_kth(
        among, k, k, [&](auto visit) { each([&](Key key, uint32_t) { visit(key); }); });
    if (kth.from == k) return {kth.key, ~0u};
    /* of equal elements take the first ones: the earlier the element, the larger ~place */
    const uint32_t wanted = k - kth.above;
    ranges->clear();
    __syncthreads();
    const auto last = count_to_kth(keys_between<uint32_t>{0, ~0u}, wanted, wanted, [&](auto visit) {
        each([&](Key key, uint32_t at) {
            if (key == kth.key) visit(~at);
        });
    });
    return {kth.key, ~last.key + 1};
}

/* Keeps the entries of a list that are from a bound on. *count becomes their number; no thread may
 * change it meanwhile. A block must call it. */
template <typename Entry, typename Key>
__device__ inline void keep_from(const bound<Key> &from, Entry *list, uint32_t *count) {
    constexpr uint32_t A_THREAD = 4; /* each thread reads so many at once */
    const uint32_t n = *count;
    __syncthreads();
    if (threadIdx.x == 0) *count = 0;
#pragma unroll 1
    for (uint32_t begin = 0; begin < n; begin += A_THREAD * blockDim.x) {
        Entry own[A_THREAD];
#pragma unroll
        for (uint32_t j = 0; j < A_THREAD; j++) {
            const uint32_t i = begin + threadIdx.x + j * blockDim.x;
            own[j] = i < n ? list[i] : Entry();
        }
        __syncthreads(); /* all have read, so entries may be overwritten */
#pragma unroll
        for (uint32_t j = 0; j < A_THREAD; j++)
            if (own[j].key() != 0 && from.has(own[j].key(), own[j].index()))
                list[atomicAdd(count, 1)] = own[j];
    }
    __syncthreads();
}

/* Keeps the first k entries of a longer list. Returns their bound. */
template <typename Entry>
__device__ __noinline__ auto cut_list(Entry *list, uint32_t *count, uint32_t k) {
    using Key = decltype(list->key());
    auto each = [&](auto visit) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < *count; i += blockDim.x)
            visit(list[i].key(), list[i].index());
    };
    const auto among =
        least_and_largest<Key>([&](auto visit) { each([&](Key key, uint32_t) { visit(key); }); });
    const bound<Key> from = bound_of_first(among, k, each);
    keep_from(from, list, count);
    return from;
}

/* A bound from which on k to `room` elements lie, of a row or of a part that has at least k. It
 * halves the range of keys, between two elements' keys. If elements equal to the k-th are too many,
 * it takes the first ones. At least k elements have a key from `low` on, `largest` is the largest
 * key, and `own` is the largest key of this thread. `first` is the place of the thread's first
 * element, and the part ends at `end`. All blocks of the row must call it. */
template <typename Tile, typename Key>
__device__ __noinline__ bound<Key> bound_by_counting(const Tile &tile, Key own, uint32_t first,
                                                     uint32_t end, uint32_t k, uint32_t room,
                                                     Key low, Key largest) {
    __shared__ typename row_blocks<Key>::memory memory;
    row_blocks<Key> blocks(&memory);
    constexpr int V = Tile::V;
    auto place_of = [&](int e) { return first + place<WARP, V>(e); };
    Key high = largest, middle = low;
    uint32_t from_low = room + 1, above = 0; /* elements above `high` */
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
