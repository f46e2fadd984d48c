/* topk_online.cu - online of the operation that selects: a block a row, of any N, tile by tile
 * (arXiv 1805.02867, algorithm 4, with a tile in the place of an element). Each thread runs (m, d)
 * over its elements. After a sample, the first part of the row, the k-th largest of the threads'
 * maxima bounds the k-th element from below; the sample is read again, from the caches. From then
 * on one comparison a thread and tile is all that most elements cost. Those from the bound on go to
 * the block's list, which is put in order at the end.
 *
 * Moves 1 read of N. Of a row of which more is from the bound on than the list has room for, the
 * elements are listed in a second read, tile by tile, with a bound that rises. */
#include "rows/select.cuh"
#include "launch_topk.cuh"
#include "pairs/reduce.cuh"

template <typename Rows>
constexpr int CHUNKS_OF = Rows::NARROW ? TOPK_TILE_CHUNKS_16_BIT : TOPK_TILE_CHUNKS;

template <typename Rows>
using tile_of_thread = typename tile_of_rows<Rows, CHUNKS_OF<Rows>>::type;

/* How many blocks find room on a multiprocessor: others take more registers. */
template <typename Rows>
constexpr int BLOCKS_OF = HAS_PROBLEM<Rows> || sizeof(typename Rows::Real) > sizeof(float)
                              ? 2
                              : TOPK_TILE_BLOCKS;

/* The sample is this part of a row, in whole tiles; for fewer than this k its bound will do. */
constexpr int SAMPLE = 8, FEW = 32;

/* This thread's part of the tile that begins there. */
template <typename Rows>
__device__ __forceinline__ tile_of_thread<Rows> load_tile(const topk_arguments<Rows> &args,
                                                          int64_t begin) {
    constexpr int K = CHUNKS_OF<Rows>;
    tile_of_thread<Rows> tile;
    Rows::template visit<false>(args, blockIdx.x, [&](const auto &row) {
        tile = row.template load<K, WARP>(begin / Rows::V + block_a_row::chunk<K>(warp_of_block()));
    });
    return tile;
}

/* The place in a tile of a thread's first element. */
template <typename Rows>
__device__ inline uint32_t own_place() {
    return block_a_row::chunk<CHUNKS_OF<Rows>>(warp_of_block()) * (uint32_t)Rows::V;
}

/* Adds a thread's elements that are not below `least`, where there is room for them. `first` is the
 * place of the first one, N where the row ends. */
template <typename Tile, typename Real, typename Entry>
__device__ __forceinline__ void list_from(const Tile &tile, Real least, uint32_t first, uint32_t N,
                                          Entry *list, uint32_t room, int *listed) {
    constexpr int V = Tile::V;
#pragma unroll
    for (int c = 0; c < Tile::K; c++) {
        const auto chunk = tile.chunk(c);
        if (chunk.largest() < least) continue;
        const uint32_t at = first + place<WARP, V>(c * V);
        bool has[V];
        int count = 0;
#pragma unroll
        for (int i = 0; i < V; i++) {
            has[i] = !(chunk.element(i) < least) && at + i < N;
            count += has[i];
        }
        uint32_t slot = atomicAdd(listed, count);
        if (slot + count > room) return;
#pragma unroll
        for (int i = 0; i < V; i++)
            if (has[i]) list[slot++] = Entry::of(key_of(chunk.element(i)), at + i);
    }
}

/* What a block knows of its list: entries that may be among the k first are from the bound on. */
template <typename Key>
struct progress {
    bound<Key> from;
    uint32_t listed;
};

/* Cuts a list of more than k to its k first. */
template <typename Entry, typename Key>
__device__ __noinline__ progress<Key> cut(Entry *list, uint32_t listed, uint32_t k,
                                          const progress<Key> &) {
    const uint32_t n = power_from(listed);
    for (uint32_t i = listed + threadIdx.x; i < n; i += blockDim.x) list[i] = {};
    sort_entries(list, n, threadIdx.x, blockDim.x, [] { __syncthreads(); });
    return {{list[k - 1].key(), 0}, k}; /* later elements are behind equal ones */
}

/* Lists the row tile by tile: of each tile at most its own k first, and cuts the list before it
 * could be full. No key is above `highest`. */
template <typename Rows>
__device__ __noinline__ auto list_tile_by_tile(const topk_arguments<Rows> &args,
                                               key_type<typename Rows::Real> from,
                                               key_type<typename Rows::Real> highest) {
    using Key = key_type<typename Rows::Real>;
    using Entry = entry<typename Rows::Real>;
    using Tile = tile_of_thread<Rows>;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ unsigned long long largest;
    __shared__ int counters[3], added;
    Entry *const list = (Entry *)shared;
    const uint32_t N = (uint32_t)args.N, room = (uint32_t)args.room, k = (uint32_t)args.k;
    const int64_t step = blockDim.x * (Tile::K * Tile::V);
    progress<Key> now = {{from, N}, 0};
    if (threadIdx.x < 3) counters[threadIdx.x] = 0;
    group_of_blocks group = {counters};
    Tile next = load_tile<Rows>(args, 0);
#pragma unroll 1
    for (int64_t begin = 0; begin < N; begin += step) {
        if (now.from.key == highest && now.from.end <= begin) break; /* all others are behind */
        const Tile tile = next;
        if (begin + step < N) next = load_tile<Rows>(args, begin + step);
        const uint32_t first = (uint32_t)begin + own_place<Rows>();
        const uint32_t end = begin + step < N ? (uint32_t)(begin + step) : N;
        const Key own = first < N ? key_of(tile.largest()) : 0;
        if (!__syncthreads_or(own > now.from.key || (own == now.from.key && first < now.from.end)))
            continue;
        if (now.listed > k) now = cut(list, now.listed, k, now);
        if (threadIdx.x == 0) {
            largest = 0;
            added = 0;
        }
        __syncthreads();
        const Key of_warp = ~least_of_warp(~own);
        if (threadIdx.x % WARP == 0) atomicMax(&largest, (unsigned long long)of_warp);
        const Key keys[1] = {own};
        const Key tops = bound_of_tops(keys, (int)k);
        __syncthreads();
        if (tops > now.from.key) now.from = {tops, N};
        while (true) {
            if (own >= now.from.key)
                each_from<WARP>(tile, now.from, first, end, [&](Key key, uint32_t at) {
                    const uint32_t slot = now.listed + atomicAdd(&added, 1);
                    if (slot < room) list[slot] = Entry::of(key, at);
                    return slot < room; /* else they are too many anyway */
                });
            __syncthreads();
            const uint32_t listed = now.listed + added;
            if (listed <= room) {
                now.listed = listed;
                break;
            }
            now.from =
                bound_by_counting<WARP>(tile, own, first, (uint32_t)begin, end, k,
                                        room - now.listed, now.from.key, (Key)largest, group);
            if (threadIdx.x == 0) added = 0;
            __syncthreads();
        }
    }
    return now.listed;
}

template <typename Rows>
__global__ void __launch_bounds__(TOPK_TILE_THREADS, BLOCKS_OF<Rows>)
    topk_online_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    using Entry = entry<Real>;
    using Tile = tile_of_thread<Rows>;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ state<Real> parts[TOPK_TILE_THREADS / WARP];
    __shared__ int listed;
    Entry *const list = (Entry *)shared;
    const uint32_t room = (uint32_t)args.room, k = (uint32_t)args.k;
    const int64_t step = blockDim.x * (Tile::K * Tile::V);
    const int64_t sample = (args.N / SAMPLE / step + 1) * step;
    running_state<Real> so_far;
    Real least = 0; /* of the elements that are listed */
    if (threadIdx.x == 0) listed = 0;
    /* The sample's pair; its elements; both of the rest: for a large k of as much as there was
     * before, with a new bound, and so on. */
    int64_t begin = 0, end = sample < args.N ? sample : args.N;
    bool samples = true, adds = true, lists = false;
    Tile next = load_tile<Rows>(args, 0);
#pragma unroll 1
    while (true) {
        const Tile tile = next;
        const uint32_t first = (uint32_t)begin + own_place<Rows>();
        const bool ends = begin + step >= end;
        begin = ends && samples ? 0 : begin + step;
        if (begin < args.N) next = load_tile<Rows>(args, begin);
        const Real top = tile.largest();
        if (adds) {
            const Real m = larger(so_far.m, top);
            if (m != so_far.m) so_far.raise(m);
            so_far.sum.add(sum_exponentials(tile, reference<Real>(m)) * arithmetic<Real>::LOWERED);
        }
        if (lists && !(top < least))
            list_from(tile, least, first, (uint32_t)args.N, list, room, &listed);
        if (!ends) continue;
        if (!samples && end >= args.N) break;
        if (adds) {
            const Key keys[1] = {own_place<Rows>() < args.N ? key_of(so_far.m) : 0};
            least = number_of(bound_of_tops(keys, (int)k));
        }
        lists = *(volatile int *)&listed <= room;
        adds = !samples;
        if (!samples) end = k >= FEW && 2 * end < args.N ? 2 * end : args.N;
        samples = false;
        __syncthreads(); /* all know the bound */
    }
    const state<Real> total =
        merge_block<block_a_row>(block_a_row::merge_warp(so_far.rounded()), parts);
    __syncthreads();
    uint32_t count = (uint32_t)listed;
    if (count > room) {
        const Key keys[1] = {own_place<Rows>() < args.N ? key_of(so_far.m) : 0};
        count = list_tile_by_tile<Rows>(args, bound_of_tops(keys, (int)k), key_of(total.m));
    }
    const int64_t row = blockIdx.x + args.first;
    const topk_of_row<Rows> results(args, row, total);
    give_first(
        list, count, count, k, threadIdx.x, blockDim.x, [] { __syncthreads(); },
        [&](uint32_t order, const Entry &one) { results.put(order, one); });
    if (threadIdx.x == 0) put_pair(args, row, total);
}

ons_status topk_online(const launch_request &request) {
    const ons_plan *plan = request.plan;
    if (request.problem->k > ONS_LARGEST_K) return topk_large(request);
    return with_topk_rows(request, 1024, [&](auto rows, const auto &arguments) {
        using Rows = typename decltype(rows)::Rows;
        launch_shape shape = {1, plan->threads};
        shape.shared_bytes = arguments.room * (int)sizeof(entry<typename Rows::Real>);
        return launch_strips(request, shape, topk_online_kernel<Rows>, arguments);
    });
}
