/* select.cuh - which elements are among the k largest: those from a bound on. It is found by
 * counting. */
#ifndef ONS_SELECT_CUH
#define ONS_SELECT_CUH

#include "entry.cuh"
#include "scan.cuh"
#include "signs.cuh"
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

/* The bits of the elements from a bound on. */
template <typename Tile, typename Key>
__device__ __forceinline__ unsigned bits_from(const Tile &tile, const bound<Key> &from,
                                              uint32_t first, uint32_t N) {
    using Signs = signs<Tile>;
    const auto number = number_of(from.key);
    unsigned bits = Signs::not_below(tile, number);
    if (__any_sync(~0u, isnan(number))) bits = bits_of_nan(tile);
    if (__any_sync(~0u, !(number > -arithmetic<typename Tile::Real>::infinity())))
        bits &= bits_before<WARP, Tile>(N, first);
    if (__any_sync(~0u, from.end < N)) {
        const unsigned more = isnan(number) ? 0 : Signs::above(tile, number) | bits_of_nan(tile);
        bits &= more | bits_before<WARP, Tile>(from.end, first);
    }
    return bits;
}

/* A list of a row's elements: the number of those that should be in it may be above its room. */
template <typename Entry>
struct list_of_row {
    Entry *entries;
    uint32_t *count, room;
};

/* Lists a thread's elements that have a bit, as far as there is room. get(e, place) gives element e
 * of the tile. To be called by whole warps. */
template <typename Tile, typename Entry, typename Get>
__device__ __forceinline__ void list_bits(unsigned bits, uint32_t first,
                                          const list_of_row<Entry> &list, Get get) {
    const int lane = threadIdx.x % WARP;
    const uint32_t upto = sum_up_to_lane<WARP>(__popc(bits), lane);
    uint32_t slot = lane == WARP - 1 ? atomicAdd(list.count, upto) : 0;
    slot = __shfl_sync(~0u, slot, WARP - 1) + upto - __popc(bits);
    while (bits && slot < list.room) {
        const unsigned bit = 31 - __clz(bits), e = signs<Tile>::element(bit);
        bits ^= 1u << bit;
        const uint32_t at = first + (uint32_t)place<WARP, Tile::V>((int)e);
        list.entries[slot++] = Entry::make(key_of(get(e, at)), at);
    }
}

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

/* How many keys are in each of 256 ranges. */
struct ranges_of_keys {
    static constexpr int RANGES = 256, A_LANE = RANGES / WARP;
    uint32_t keys[RANGES];

    /* The last range from which on there are as many keys as wanted, or -1; how many there are from
     * it on, and how many in the ranges after it. */
    struct found {
        int range;
        uint32_t from_there, after;
    };
    /* To be called by a warp. */
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
 * low end, such as -inf, are told apart at once. */
template <typename Key>
struct keys_between {
    Key low, high;

    /* log2 of how many keys a part has. */
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

/* The least and the largest of a block's keys; 0 is no key. each(visit) calls visit(key) for the
 * keys of this thread. */
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
    high = ~least_of_warp(~high);
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

/* One block has the row. blocks_of_row of cluster.cu is the other case. */
struct one_block {
    __device__ static void meet() { __syncthreads(); }
    __device__ static const ranges_of_keys *sum(const ranges_of_keys *ranges) { return ranges; }
};

/* A key that `from` keys are not below, and that `above` keys are above. */
template <typename Key>
struct counted_key {
    Key key;
    uint32_t from, above;
};

/* A key that k keys are not below: `room` of them or fewer, or it is the k-th itself. Where there
 * are fewer than k, key 0. Counts keys in the ranges between two, then in the parts of the range
 * that the k-th is in. No key is above `among`. each(visit) calls visit(key) for the keys of this
 * thread. To be called by all threads of the row's blocks. */
template <typename Blocks, typename Key, typename Each>
__device__ inline counted_key<Key> count_to_kth(keys_between<Key> among, uint32_t k, uint32_t room,
                                                Each each) {
    ranges_of_keys &ranges = *ranges_of_block();
    __shared__ ranges_of_keys::found found;
    uint32_t above = 0;
    while (true) {
        for (int i = threadIdx.x; i < ranges_of_keys::RANGES; i += blockDim.x) ranges.keys[i] = 0;
        const int scale = among.scale();
        __syncthreads();
        each([&](Key key) {
            if (among.has(key)) atomicAdd(ranges.keys + among.range_of(key, scale), 1);
        });
        Blocks::meet();
        const ranges_of_keys *const all = Blocks::sum(&ranges);
        if (threadIdx.x < WARP) {
            const ranges_of_keys::found one = all->find(k - above);
            if (threadIdx.x == 0) found = one;
        }
        Blocks::meet();
        if (found.range < 0) return {0, 0, 0};
        among = among.part(found.range, scale);
        if (above + found.from_there <= room || among.low == among.high)
            return {among.low, above + found.from_there, above + found.after};
        above += found.after;
    }
}

/* A key that k of a block's keys, or few more, are not below; where there are fewer, 0. */
template <typename Key, typename Each>
__device__ inline Key bound_by_ranges(uint32_t k, Each each) {
    return count_to_kth<one_block>(least_and_largest<Key>(each), k, k + k / 8 + 1, each).key;
}

/* The same of n keys a thread. */
template <int n, typename Key>
__device__ inline Key bound_of_tops(const Key (&mine)[n], int k) {
    return bound_by_ranges<Key>((uint32_t)k, [&](auto visit) {
#pragma unroll
        for (int i = 0; i < n; i++) visit(mine[i]);
    });
}

/* The bound that k to `room` elements are not below: of equal ones the first are taken.
 * each(visit) calls visit(key, place) for this thread's elements; their places are below `end`. */
template <typename Blocks, typename Key, typename Each>
__device__ inline bound<Key> bound_of_elements(keys_between<Key> range, uint32_t end, uint32_t k,
                                               uint32_t room, Each each) {
    const counted_key<Key> kth = count_to_kth<Blocks>(
        range, k, room, [&](auto visit) { each([&](Key key, uint32_t) { visit(key); }); });
    if (kth.from <= room) return {kth.key, end};
    /* ~place, which is larger the sooner an element comes */
    const keys_between<uint32_t> places = {~end + 1, ~0u};
    const auto last =
        count_to_kth<Blocks>(places, k - kth.above, room - kth.above, [&](auto visit) {
            each([&](Key key, uint32_t at) {
                if (key == kth.key) visit(~at);
            });
        });
    return {kth.key, ~last.key + 1};
}

/* The same of a tile that each thread has of the row. */
template <typename Blocks, typename Tile, typename Key>
__device__ __noinline__ bound<Key> bound_of_tile(const Tile &tile, keys_between<Key> range,
                                                 uint32_t first, uint32_t end, uint32_t k,
                                                 uint32_t room) {
    return bound_of_elements<Blocks>(range, end, k, room, [&](auto visit) {
#pragma unroll 4
        for (int e = 0; e < Tile::K * Tile::V; e++) {
            const uint32_t at = first + place<WARP, Tile::V>(e);
            if (at < end) visit(key_of(tile.element(e)), at);
        }
    });
}

/* Leaves the entries of a list that are from a bound on; *count is their number, which no thread
 * may change meanwhile. To be called by a block. */
template <typename Entry, typename Key>
__device__ inline void keep_from(const bound<Key> &from, Entry *list, uint32_t *count) {
    constexpr uint32_t A_THREAD = 4; /* that each reads at once */
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
        __syncthreads(); /* those that stay go where others were, which have been read */
#pragma unroll
        for (uint32_t j = 0; j < A_THREAD; j++)
            if (own[j].key() != 0 && from.has(own[j].key(), own[j].index()))
                list[atomicAdd(count, 1)] = own[j];
    }
    __syncthreads();
}

/* Leaves the k first entries of a list of more. Returns the bound that they are from. */
template <typename Entry>
__device__ __noinline__ auto cut_list(Entry *list, uint32_t *count, uint32_t k) {
    using Key = decltype(list->key());
    auto each = [&](auto visit) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < *count; i += blockDim.x)
            visit(list[i].key(), list[i].index());
    };
    const auto range =
        least_and_largest<Key>([&](auto visit) { each([&](Key key, uint32_t) { visit(key); }); });
    const bound<Key> from = bound_of_elements<one_block>(range, ~0u, k, k, each);
    keep_from(from, list, count);
    return from;
}

#endif
