/* topk_online.cu - online of the operation that selects: a block a row, of any N, tile by tile
 * (arXiv 1805.02867, algorithm 4, with a tile in the place of an element). Each thread runs (m, d)
 * over its elements, and has the largest of each tile, its top. Tops from a bound on go to the
 * block's queue: all of the first part of the row, then those from the k-th largest of the threads'
 * maxima on. So one comparison a thread and tile is all that most elements cost. At the end the
 * bound is that of the whole row; the elements behind the tops from there on are looked at one by
 * one, and those from the bound on are put in order.
 *
 * A part of a row is taken as a row is, for topk_split.cu.
 *
 * Moves 1 read of N. Of a row of which more is from the bound on than there is room for, the
 * elements are listed in a second read, tile by tile, with a bound that rises. */
#include "pairs/buckets.cuh"
#include "rows/select.cuh"
#include "topk_parts.cuh"
#include "pairs/reduce.cuh"

/* Of 16-bit rows between packs more chunks would take more registers than there are. */
template <typename Rows>
constexpr int CHUNKS_OF = TOPK_TILE_CHUNKS;
template <typename X>
constexpr int CHUNKS_OF<contiguous_rows<X, X, true>> =
    sizeof(X) == 2 ? TOPK_TILE_CHUNKS_16_BIT : TOPK_TILE_CHUNKS;

template <typename Rows>
using tile_of_thread = typename tile_of_rows<Rows, CHUNKS_OF<Rows>>::type;

/* How many blocks find room on a multiprocessor: others take more registers. */
template <typename Rows>
constexpr int BLOCKS_OF = 2;
template <typename X, bool ALL_FIT>
constexpr int BLOCKS_OF<contiguous_rows<X, X, ALL_FIT>> = sizeof(X) > sizeof(float) ? 2
                                                          : ALL_FIT ? TOPK_TILE_BLOCKS
                                                                    : TOPK_TILE_BLOCKS - 1;

/* The first bound is that of so many tiles, whose tops all go to the queue: half of what it has
 * room for. A new one is found when eight times as much was read, and before the queue can be full.
 */
constexpr uint32_t TILES = TOPK_QUEUE / 2 / TOPK_TILE_THREADS;

/* Elements that a thread looks at together, so that their reads are under way at once. */
constexpr int AT_ONCE = 4;

/* What a block has: a row, or a part of one. */
template <typename Rows>
struct block_share {
    int64_t which, row; /* its number among all parts, and that of its row */
    uint32_t begin, end, k;

    __device__ explicit block_share(const topk_arguments<Rows> &args)
        : which(blockIdx.x + args.first), row(which), begin(0), end((uint32_t)args.N) {
        if (args.parts > 1) {
            row = which / args.parts;
            begin = (uint32_t)((which - row * args.parts) * args.part_length);
            if (end - begin > args.part_length) end = begin + (uint32_t)args.part_length;
        }
        k = end - begin < (uint32_t)args.k ? end - begin : (uint32_t)args.k;
    }

    /* This thread's part of a tile, from that chunk of the row on. */
    __device__ __forceinline__ tile_of_thread<Rows> load(const topk_arguments<Rows> &args,
                                                         uint32_t chunk) const {
        constexpr int K = CHUNKS_OF<Rows>;
        tile_of_thread<Rows> tile;
        Rows::template visit<false>(args, row - args.first, [&](const auto &from) {
            tile = from.template load<K, WARP>(chunk);
        });
        return tile;
    }
};

/* The place in a tile of a thread's first chunk. */
template <typename Rows>
__device__ inline uint32_t own_chunk() {
    return block_a_row::chunk<CHUNKS_OF<Rows>>(warp_of_block());
}

/* What a block knows of its list: entries that may be among the k first are from the bound on. */
template <typename Key>
struct progress {
    bound<Key> from;
    uint32_t listed;
};

/* Cuts a list of more than k to its k first. */
template <typename Key, typename Entry>
__device__ __noinline__ progress<Key> cut(Entry *list, uint32_t listed, uint32_t k) {
    const uint32_t n = power_from(listed);
    for (uint32_t i = listed + threadIdx.x; i < n; i += blockDim.x) list[i] = {};
    sort_entries(list, n, threadIdx.x, blockDim.x, [] { __syncthreads(); });
    return {{list[k - 1].key(), 0}, k}; /* later elements are behind equal ones */
}

/* Lists the share tile by tile: of each tile at most its own k first, and cuts the list before it
 * could be full. No key is above `highest`. */
template <typename Rows>
__device__ __noinline__ auto list_tile_by_tile(const topk_arguments<Rows> &args,
                                               const block_share<Rows> &share,
                                               key_type<typename Rows::Real> from,
                                               key_type<typename Rows::Real> highest) {
    using Key = key_type<typename Rows::Real>;
    using Entry = entry<typename Rows::Real>;
    using Tile = tile_of_thread<Rows>;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ unsigned long long largest;
    __shared__ int added;
    Entry *const list = (Entry *)shared;
    const uint32_t N = share.end, room = (uint32_t)args.room, k = share.k;
    const int64_t step = blockDim.x * (Tile::K * Tile::V);
    progress<Key> now = {{from, N}, 0};
    constexpr uint32_t V = Rows::V;
    const uint32_t own_first = own_chunk<Rows>() * V;
    Tile next = share.load(args, (share.begin + own_first) / V);
#pragma unroll 1
    for (int64_t begin = share.begin; begin < N; begin += step) {
        if (now.from.key == highest && now.from.end <= begin) break; /* all others are behind */
        const Tile tile = next;
        const uint32_t first = (uint32_t)begin + own_first;
        if (begin + step < N) next = share.load(args, (first + (uint32_t)step) / V);
        const uint32_t end = begin + step < N ? (uint32_t)(begin + step) : N;
        const Key own = first < N ? key_of(tile.largest()) : 0;
        if (!__syncthreads_or(own > now.from.key || (own == now.from.key && first < now.from.end)))
            continue;
        if (now.listed > k) now = cut<Key>(list, now.listed, k);
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
            now.from = bound_by_counting(tile, own, first, end, k, room - now.listed, now.from.key,
                                         (Key)largest);
            if (threadIdx.x == 0) added = 0;
            __syncthreads();
        }
    }
    return now.listed;
}

/* Keeps the tops from a key on, at the front of the queue; *kept is their number. */
template <typename Entry, typename Key>
__device__ __noinline__ void keep_from(Entry *queue, uint32_t count, Key from, int *kept) {
    __syncthreads(); /* all know the count */
    if (threadIdx.x == 0) *kept = 0;
    __syncthreads();
#pragma unroll 1
    for (uint32_t begin = 0; begin < count; begin += blockDim.x) {
        const uint32_t i = begin + threadIdx.x;
        const Entry top = i < count ? queue[i] : Entry();
        __syncthreads(); /* kept ones go where others were, which have been read */
        if (top.key() != 0 && top.key() >= from) queue[atomicAdd(kept, 1)] = top;
    }
    __syncthreads();
}

/* Of k threads' maxima, of which `own` is one, where there are so many; else of k tops. The queue
 * keeps those from it on. */
template <typename Entry, typename Key>
__device__ __noinline__ Key bound_so_far(Entry *queue, int *queued, Key own, uint32_t k) {
    const Key keys[1] = {own};
    Key from = bound_of_tops(keys, (int)k);
    const uint32_t count = (uint32_t)*queued;
    if (count > TOPK_QUEUE) return from;
    if (from == 0 && count >= k) {
        __syncthreads(); /* all are done with the ranges */
        from = bound_by_ranges<Key>(k, [&](auto visit) {
            for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) visit(queue[i].key());
        });
    }
    keep_from(queue, count, from, queued);
    return from;
}

/* The sum of a tile's exponentials. */
template <typename Tile, typename Real>
__device__ __forceinline__ Real sum_of(const Tile &tile, const reference<Real> &to) {
    return sum_exponentials(tile, to);
}
/* Of 16-bit elements by halves, the second one after the first: all at once take more registers
 * than there are. The sum is the same. */
template <typename X>
__device__ __forceinline__ float sum_of(const packed_tile<X, TOPK_TILE_CHUNKS_16_BIT> &tile,
                                        const reference<float> &to) {
    constexpr int HALF = TOPK_TILE_CHUNKS_16_BIT / 2;
    const float first = sum_exponentials(tile.template part<HALF>(0), to);
    auto others = tile.template part<HALF>(HALF);
#pragma unroll
    for (int k = 0; k < HALF; k++)
#pragma unroll
        for (int i = 0; i < pack<X, CHUNK<float>>::WORDS; i++)
            asm volatile("" : "+r"(others.raw[k].word[i]) : "f"(first));
    return first + sum_exponentials(others, to);
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
    __shared__ int queued, listed;
    Entry *const list = (Entry *)shared, *const queue = list + args.room;
    const block_share<Rows> share(args);
    const uint32_t room = (uint32_t)args.room, k = share.k, end = share.end;
    constexpr uint32_t V = Rows::V;
    const uint32_t step = blockDim.x * Tile::K; /* chunks of a tile */
    running_state<Real> so_far;
    Real least = arithmetic<Real>::nan(); /* of the tops that are queued */
    uint32_t chunk = share.begin / V + own_chunk<Rows>();
    uint32_t tiles = (end - share.begin + step * V - 1) / (step * V); /* that are left */
    const bool has_elements = chunk * V < end;
    const uint32_t queued_first = (tiles < TILES ? tiles : TILES) * blockDim.x;
    uint32_t next_slot = threadIdx.x; /* of these */
    if (threadIdx.x == 0) {
        queued = (int)queued_first;
        listed = 0;
    }
    /* Takes a tile while the next one comes; whether it is the last. */
    auto take = [&](const Tile &tile, Tile &next) {
        const uint32_t first = chunk * V;
        chunk += step;
        if (--tiles > 0) next = share.load(args, chunk);
        const Real top = tile.largest(), m = larger(so_far.m, top);
        if (m != so_far.m) so_far.raise(m);
        so_far.sum.add(sum_of(tile, reference<Real>(m)) * arithmetic<Real>::LOWERED);
        if (next_slot < queued_first) {
            queue[next_slot] = first < end ? Entry::of(key_of(top), first) : Entry();
            next_slot += blockDim.x;
        } else if (!(top < least) && first < end) {
            const uint32_t slot = atomicAdd(&queued, 1);
            if (slot < TOPK_QUEUE) queue[slot] = Entry::of(key_of(top), first);
        }
        return tiles == 0;
    };
    const uint32_t most = (TOPK_QUEUE - 2 * k) / blockDim.x / 2; /* pairs of tiles to a bound */
    uint32_t taken = 0, renewed = TILES / 2;
    Tile one = share.load(args, chunk), other;
    __syncthreads();
#pragma unroll 1
    while (!take(one, other) && !take(other, one)) {
        if (++taken != renewed) continue;
        renewed += 7 * renewed < most ? 7 * renewed : most;
        const Key from = bound_so_far(queue, &queued, has_elements ? key_of(so_far.m) : 0, k);
        if (from) least = number_of(from);
        __syncthreads(); /* all know the bound */
    }
    const state<Real> total =
        merge_block<block_a_row>(block_a_row::merge_warp(so_far.rounded()), parts);
    const Key from = bound_so_far(queue, &queued, has_elements ? key_of(so_far.m) : 0, k);
    bool fits = *(volatile int *)&queued <= TOPK_QUEUE;
    if (fits) {
        constexpr uint32_t n = Tile::K * Tile::V;
        const uint32_t looked_at = (uint32_t)queued * n;
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < looked_at; i += AT_ONCE * blockDim.x) {
            if (*(volatile int *)&listed > args.room) break; /* too many */
            uint32_t at[AT_ONCE];
            Key key[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                const uint32_t e = i + j * blockDim.x;
                at[j] =
                    e < looked_at ? queue[e / n].index() + place<WARP, Tile::V>((int)(e % n)) : end;
                key[j] = at[j] < end ? key_of(element_of<Rows>(args, share.row, at[j])) : 0;
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                if (at[j] >= end || key[j] < from) continue;
                const uint32_t slot = atomicAdd(&listed, 1);
                if (slot < room) list[slot] = Entry::of(key[j], at[j]);
            }
        }
        __syncthreads();
        fits = listed <= args.room;
    }
    uint32_t count = (uint32_t)listed;
    if (!fits) count = list_tile_by_tile<Rows>(args, share, from, key_of(total.m));
    auto give = [&](auto put) { give_first(list, queue, count, k, from, key_of(total.m), put); };
    if (args.workspace) {
        const part_of_topk<Real> part(args.workspace, args.rows * args.parts, args.k, share.which);
        give([&](uint32_t order, const Entry &one) { part.entries[order] = one; });
        for (int i = (int)k + threadIdx.x; i < args.k; i += blockDim.x) part.entries[i] = {};
        if (threadIdx.x == 0) *part.pair = total;
    } else {
        const topk_of_row<Rows> results(args, share.row, total);
        give([&](uint32_t order, const Entry &one) { results.put(order, one); });
        if (threadIdx.x == 0) put_pair(args, share.row, total);
    }
}

static ons_status launch_shares(const launch_request &request, bool in_parts) {
    const ons_plan *plan = request.plan;
    return with_topk_rows(request, topk_room(request, TOPK_LISTED), [&](auto rows, auto arguments) {
        using Rows = typename decltype(rows)::Rows;
        ons_plan shares = *plan;
        if (in_parts) cut_rows(plan, &arguments);
        if (arguments.parts == 1) arguments.workspace = nullptr;
        shares.rows *= arguments.parts;
        launch_shape shape = {1, plan->threads};
        shape.shared_bytes =
            (arguments.room + TOPK_QUEUE) * (int)sizeof(entry<typename Rows::Real>);
        return launch_strips({request.problem, &shares, request.workspace, request.facts}, shape,
                             topk_online_kernel<Rows>, arguments);
    });
}

ons_status topk_online(const launch_request &request) {
    return request.plan->workspace_bytes > 0 ? topk_large(request) : launch_shares(request, false);
}

ons_status topk_of_parts(const launch_request &request) { return launch_shares(request, true); }
