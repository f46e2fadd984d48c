/* topk_online.cu - online of the operation that selects: a block a row, of any N, tile by tile
 * (arXiv 1805.02867, algorithm 4, with a tile in the place of an element). Each thread runs (m, d)
 * over its elements. Those from a bound on go to the block's list; when that could be full it is
 * cut to its k first, and the bound rises. The first bound is the k-th largest of the threads'
 * largest elements in a tile: then one comparison a thread and tile is all that most elements cost.
 *
 * Moves 1 read of N. */
#include "rows/select.cuh"
#include "launch_topk.cuh"
#include "pairs/reduce.cuh"

template <typename Rows>
constexpr int CHUNKS_OF = Rows::NARROW ? TOPK_TILE_CHUNKS_16_BIT : TOPK_TILE_CHUNKS;

/* How many blocks find room on a multiprocessor: others take more registers. */
template <typename Rows>
constexpr int BLOCKS_OF =
    (HAS_PROBLEM<Rows> || sizeof(typename Rows::Real) > sizeof(float) ? 512 : 1024) /
    TOPK_TILE_THREADS;

/* The block's list of entries, those of the row so far that are from the bound on. */
template <typename Rows>
class list_of_block {
   public:
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    using Entry = entry<Real>;

    __device__ list_of_block(Entry *list_, int *counters, uint32_t k_, uint32_t room_)
        : list(list_), group{counters + 1}, listed(counters), k(k_), room(room_) {}

    /* Adds those of a tile that lies from `begin` to `end`; `first` is the place of this thread's
     * first element. All threads of the block come together. */
    template <typename Tile>
    __device__ __forceinline__ void add(const Tile &tile, Real top, uint32_t first, uint32_t begin,
                                        uint32_t end) {
        const Key key = first < end ? key_of(top) : 0;
        auto has = [&] { return key > from.key || (key == from.key && first < from.end); };
        const uint32_t threads = __syncthreads_count(has());
        if (threads == 0) return;
        most += threads * (Tile::K * Tile::V);
        if (most > room) {
            Tile copy = tile;
            make_room(copy, key, first, begin, end);
        }
        if (has())
            each_from<WARP>(tile, from, first, end, [&](Key of, uint32_t at) {
                list[atomicAdd(listed, 1)] = Entry::of(of, at);
            });
    }

    /* Behind a barrier of the block. */
    __device__ uint32_t count() const { return *(volatile int *)listed; }

   private:
    template <typename Tile>
    __device__ __noinline__ void make_room(const Tile &tile, Key key, uint32_t first,
                                           uint32_t begin, uint32_t end) {
        uint32_t now = count();
        __syncthreads();
        if (now > k) {
            const uint32_t n = power_from(now);
            for (uint32_t i = now + threadIdx.x; i < n; i += blockDim.x) list[i] = {};
            sort_entries(list, n, threadIdx.x, blockDim.x, [] { __syncthreads(); });
            from = {list[k - 1].key(), 0}; /* later elements are behind equal ones */
            now = k;
            if (threadIdx.x == 0) *listed = (int)k;
        }
        uint32_t added = count_from(tile, first, end);
        if (now + added > room) {
            const Key largest = largest_of_block(key), tops[1] = {key};
            const Key bounding = bound_of_tops(tops, (int)k, largest);
            if (bounding > from.key) {
                from = {bounding, end};
                added = count_from(tile, first, end);
            }
            if (now + added > room) {
                from =
                    bound_by_counting<WARP>(tile, first, begin, end, k, room - now, largest, group);
                added = room - now;
            }
        }
        most = now + added;
    }

    /* How many elements of the tile are from the bound on. */
    template <typename Tile>
    __device__ uint32_t count_from(const Tile &tile, uint32_t first, uint32_t end) {
        int mine = 0;
#pragma unroll 1
        for (int e = 0; e < Tile::K * Tile::V; e++) {
            const uint32_t at = first + place<WARP, Tile::V>(e);
            mine += at < end && from.has(key_of(tile.element(e)), at);
        }
        return (uint32_t)group.sum(mine);
    }

    __device__ static Key largest_of_block(Key key) {
        __shared__ unsigned long long largest;
        if (threadIdx.x == 0) largest = 0;
        __syncthreads();
        key = ~least_of_warp(~key);
        if (threadIdx.x % WARP == 0) atomicMax(&largest, (unsigned long long)key);
        __syncthreads();
        return (Key)largest;
    }

    Entry *list;
    group_of_blocks group;
    int *listed;
    uint32_t k, room, most = 0; /* entries that there may be */
    bound<Key> from = {0, ~0u};
};

template <typename Rows>
__global__ void __launch_bounds__(TOPK_TILE_THREADS, BLOCKS_OF<Rows>)
    topk_online_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    using Real = typename Rows::Real;
    constexpr int K = CHUNKS_OF<Rows>, V = Rows::V;
    using Tile = typename tile_of_rows<Rows, K>::type;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ state<Real> parts[TOPK_TILE_THREADS / WARP];
    __shared__ int counters[4];
    if (threadIdx.x < 4) counters[threadIdx.x] = 0;
    __syncthreads();
    auto *const entries = (entry<Real> *)shared;
    list_of_block<Rows> list(entries, counters, (uint32_t)args.k, (uint32_t)args.room);
    const int64_t step = blockDim.x * (K * V);
    const uint32_t own = block_a_row::chunk<K>(warp_of_block()) * V;
    Tile next;
    auto load = [&](int64_t begin) {
        Rows::template visit<false>(args, blockIdx.x, [&](const auto &row) {
            next = row.template load<K, WARP>((begin + own) / V);
        });
    };
    running_state<Real> so_far;
#pragma unroll 1
    for (int64_t end = 0;; end += step) { /* of the tile that is here, where the next begins */
        const Tile tile = next;
        if (end < args.N) load(end);
        const int64_t begin = end - step;
        if (begin < 0) continue;
        const Real top = tile.largest(), m = larger(so_far.m, top);
        if (m != so_far.m) so_far.raise(m);
        so_far.sum.add(sum_exponentials(tile, reference<Real>(m)) * arithmetic<Real>::LOWERED);
        const int64_t here = end < args.N ? end : args.N;
        list.add(tile, top, (uint32_t)(begin + own), (uint32_t)begin, (uint32_t)here);
        if (end >= args.N) break;
    }
    const state<Real> total =
        merge_block<block_a_row>(block_a_row::merge_warp(so_far.rounded()), parts);
    __syncthreads();
    const uint32_t count = list.count();
    const int64_t row = blockIdx.x + args.first;
    const topk_of_row<Rows> results(args, row, total);
    give_first(
        entries, count, count, (uint32_t)args.k, threadIdx.x, blockDim.x, [] { __syncthreads(); },
        [&](uint32_t order, const entry<Real> &one) { results.put(order, one); });
    if (threadIdx.x == 0) put_pair(args, row, total);
}

ons_status topk_online(const launch_request &request) {
    const ons_plan *plan = request.plan;
    if (request.problem->k > ONS_LARGEST_K) return topk_large(request);
    return with_topk_rows(request, 512, [&](auto rows, const auto &arguments) {
        using Rows = typename decltype(rows)::Rows;
        launch_shape shape = {1, plan->threads};
        shape.shared_bytes = arguments.room * (int)sizeof(entry<typename Rows::Real>);
        return launch_strips(request, shape, topk_online_kernel<Rows>, arguments);
    });
}
