/* topk/online.cu - online of the operation that selects: a block a row, of any N, tile by tile
 * (arXiv 1805.02867, algorithm 4, with a tile in the place of an element). Each thread runs (m, d)
 * over its elements, and has the largest of each tile, its top (cuda/topk/tops_of_block.cuh): so a
 * number a thread and tile is all that most elements cost. At the end the threads' maxima bound the
 * k-th element from below: as many of each warp are from the bound on, k in all. The elements
 * behind the tops from there on are looked at one by one, and those from the bound on are put in
 * order.
 *
 * A part of a row is taken as a row is, for cuda/topk/split.cu.
 *
 * Moves 1 read of N. Of a row of which more is from the bound on than there is room for, the
 * elements are listed in a second read, tile by tile, with a bound that rises. */
#include "buckets.cuh"
#include "../team/forms.cuh"
#include "parts.cuh"
#include "tiles.cuh"
#include "tops_of_block.cuh"

/* How many of the largest blocks fit a multiprocessor with nothing of a tile in local memory. */
template <typename Rows>
constexpr int BLOCKS_OF = TOPK_TILE_BLOCKS_OF_OTHERS;
template <typename X, alignment ALIGNED>
constexpr int BLOCKS_OF<contiguous_rows<X, ALIGNED>> =
    sizeof(X) <= sizeof(float) ? TOPK_TILE_BLOCKS : TOPK_TILE_BLOCKS_OF_OTHERS;

/* Chunks that a thread looks at together, so that their reads are under way at once. */
constexpr int AT_ONCE = 4;

/* In rows of more elements a bound is found first where more chunks than these would be read again.
 * Shorter rows are still in the L2 cache. */
constexpr uint32_t LONG_SHARE = 1 << 16, MAX_CHUNKS_AGAIN = 256;

/* Lists the elements from a key on that are behind tops of a queue; *listed is their number,
 * above the room there is where it stops before the end. */
template <typename Rows, typename Entry, typename Key>
__device__ __forceinline__ void list_behind(const topk_arguments<Rows> &args,
                                            const block_share<Rows> &share, const Entry *queue,
                                            uint32_t queued, Key from, Entry *list, int *listed) {
    using Real = typename Rows::Real;
    constexpr int K = CHUNKS_OF<Rows>, V = Rows::V;
    const uint32_t chunks = queued * K;
    const Real least = number_of(from);
#pragma unroll 1
    for (uint32_t begin = 0; begin < chunks; begin += AT_ONCE * blockDim.x) {
        uint32_t at[AT_ONCE];
        Real x[AT_ONCE][V];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const uint32_t i = begin + threadIdx.x + j * blockDim.x;
            at[j] = share.end;
            if (i < chunks && queue[i / K].key() >= from) {
                at[j] = queue[i / K].index() + place<WARP, V>((int)(i % K) * V);
                if (at[j] > share.end) at[j] = share.end;
            }
            share.load_chunk(args, at[j], x[j]);
        }
        /* not unrolled: it runs once or twice a row, so that its instructions must be fetched */
#pragma unroll 1
        for (int j = 0; j < AT_ONCE; j++) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                if (x[0][i] < least || at[0] + i >= share.end) continue;
                const Key key = key_of(x[0][i]);
                if (key < from) continue; /* from is NaN's */
                const uint32_t slot = atomicAdd(listed, 1);
                if (slot < (uint32_t)args.room) list[slot] = Entry::make(key, at[0] + i);
            }
#pragma unroll
            for (int next = 1; next < AT_ONCE; next++) {
                at[next - 1] = at[next];
#pragma unroll
                for (int i = 0; i < V; i++) x[next - 1][i] = x[next][i];
            }
        }
        if (__any_sync(~0u, *(volatile int *)listed > args.room)) break; /* too many */
    }
    __syncthreads();
}

/* Writes the results of a row, or of a part of one: the k first of `count` listed elements from a
 * key on, and the pair. Apart, so that it takes no registers from a tile. */
template <typename Rows, typename Key>
__device__ __noinline__ void give_row(const topk_arguments<Rows> &args, Key from, uint32_t count) {
    using Real = typename Rows::Real;
    using Entry = entry<Real>;
    extern __shared__ __align__(16) unsigned char shared[];
    Entry *const list = (Entry *)shared;
    const block_share<Rows> share(args);
    const state<Real> total = state_of_block<Real>();
    auto give = [&](auto put) {
        give_first(listed_entries<Real>{list, count, from, key_of(total.m)},
                   (void *)(list + args.room), share.k, put);
    };
    if (args.workspace) {
        const part_of_topk<Real> part(args.workspace, args.rows * args.parts, args.k, share.which);
        give([&](uint32_t order, const Entry &one) { part.entries[order] = one; });
        for (int i = (int)share.k + threadIdx.x; i < args.k; i += blockDim.x) part.entries[i] = {};
        if (threadIdx.x == 0) *part.pair = total;
    } else {
        topk_of_row<Rows> results(args, share.row, total);
        give([&](uint32_t order, const Entry &one) { results.put(order, one); });
        results.template end<0>();
        if (threadIdx.x == 0) put_pair(args, share.row, total);
    }
}

template <typename Rows>
__global__ void __launch_bounds__(TOPK_TILE_THREADS, BLOCKS_OF<Rows>)
    topk_online_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    await_earlier_work();
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    using Entry = entry<Real>;
    using Tile = tile_of_thread<Rows>;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ uint32_t queued;
    __shared__ int listed;
    const tops_of_block<Real> tops = {(Real *)shared,
                                      (Entry *)((Real *)shared + TOPK_KEPT * blockDim.x), &queued};
    const block_share<Rows> share(args);
    const uint32_t k = share.k, end = share.end;
    constexpr uint32_t V = Rows::V;
    const uint32_t step = blockDim.x * Tile::K; /* chunks of a tile */
    auto own_first = [&] { return share.begin + own_chunk<Rows>() * V; };
    const uint32_t tiles = (end - share.begin + step * V - 1) / (step * V);
    const uint32_t kept = tiles < TOPK_KEPT ? tiles : TOPK_KEPT;
    uint32_t chunk = own_first() / V, taken = 0;
    state_of_tiles<Real> so_far;
    Real least = arithmetic<Real>::nan(); /* of the tops that are queued */
    if (threadIdx.x == 0) queued = listed = 0;
    /* Takes the tiles up to one, each while the next is loaded. None is held between two calls. */
    auto take_until = [&](uint32_t last) {
        auto take = [&](const Tile &tile, Tile &next) {
            const uint32_t first = chunk * V;
            chunk += step;
            if (taken + 1 < last) next = share.load(args, chunk);
            const Real top = tile.largest(), m = larger(so_far.m, top);
            if (m != so_far.m) so_far.raise(m);
            so_far.d.add(sum_exponentials(tile, reference<Real>(m)).value());
            if (taken < kept)
                tops.of_tile(taken) = top;
            else if (!(top < least) && first < end)
                tops.add(key_of(top), first);
            return ++taken == last;
        };
        Tile tile = share.load(args, chunk), next;
#pragma unroll 1
        while (!take(tile, next)) tile = next;
    };
    auto own = [&] { return own_first() < end ? key_of(so_far.m) : Key(0); };
    auto bound_of_kept = [&] {
        return queue_kept(tops, places_of_tops{own_first(), step * V, end}, kept, own(), k);
    };
    /* The next bound is found when eight times as much was read, or when the queue could become
     * full before it is looked at again. */
    const uint32_t to_full = TOPK_QUEUED - (k + k / 8) / blockDim.x - 1; /* tiles after a bound */
    const uint32_t to_look = to_full < TOPK_QUEUED / 2 ? to_full : TOPK_QUEUED / 2;
    uint32_t renew = kept;
#pragma unroll 1
    for (uint32_t until = kept;; until += to_look) {
        take_until(until < tiles ? until : tiles);
        if (taken == tiles) break;
        if (taken < renew && tops.has_room(to_look)) continue;
        renew = 8 * taken;
        const Key from = taken == kept ? bound_of_kept() : cut_queue(tops, own(), k);
        if (from) least = number_of(from);
        __syncthreads(); /* all know the bound */
    }
    const state_of_warp<Real> of_warp = merge_warp(so_far);
    if (threadIdx.x % WARP == 0) states_of_warps<Real>()[warp_of_block()] = of_warp;
    Key from = tiles == kept ? bound_of_kept() : cut_queue(tops, own(), k);
    __syncthreads(); /* all have their tops in the queue */
    /* the list is where tops were kept */
    Entry *const list = (Entry *)shared;
    bool fits = tops.is_whole();
    if (fits && end - share.begin > LONG_SHARE && queued > k + MAX_CHUNKS_AGAIN / Tile::K)
        from = bound_of_entries(tops.queue, queued, k); /* the k-th top is a bound too */
    while (fits) {
        list_behind(args, share, tops.queue, queued, from, list, &listed);
        if (listed <= args.room) break;
        /* there is room for enough of them to find a higher bound, but of equal ones */
        const Key higher = bound_of_entries(list, (uint32_t)args.room, k);
        fits = higher > from;
        from = higher;
        if (threadIdx.x == 0) listed = 0;
        __syncthreads();
    }
    if (fits)
        give_row<Rows>(args, from, (uint32_t)listed);
    else
        give_row<Rows>(args, from, list_tile_by_tile<Rows>(args, from));
}

static ons_status launch_shares(const launch_request &request, bool in_parts) {
    const ons_plan *plan = request.plan;
    return with_topk_rows<true>(
        request, TOPK_QUEUED * plan->threads, [&](auto rows, auto arguments) {
            using Rows = typename decltype(rows)::Rows;
            using Real = typename Rows::Real;
            ons_plan shares = *plan;
            if (in_parts) cut_rows(plan, &arguments);
            if (arguments.parts == 1) arguments.workspace = nullptr;
            shares.rows *= arguments.parts;
            launch_shape shape = {1, plan->threads};
            shape.shared_bytes = plan->threads * (TOPK_KEPT * (int)sizeof(Real) +
                                                  TOPK_QUEUED * (int)sizeof(entry<Real>));
            return launch_strips({request.problem, &shares, request.workspace, request.facts},
                                 shape, topk_online_kernel<Rows>, arguments);
        });
}

ons_status launch_topk_online(const launch_request &request) {
    return launch_shares(request, false);
}

ons_status topk_of_parts(const launch_request &request) { return launch_shares(request, true); }
