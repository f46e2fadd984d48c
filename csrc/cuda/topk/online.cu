/* topk/online.cu - `online` for softmax_topk. A block reads a row of any N, tile by tile (arXiv
 * 1805.02867, algorithm 4, with a tile in place of an element). Each thread runs (m, d) over its
 * elements and takes the top of each tile, its largest element (tops_of_block.cuh). Most elements
 * cost no more than that. At the end the threads' maxima bound the k-th element from below. Each
 * warp offers the r-th largest maximum of its threads, where r is an equal share of k. The block
 * then takes the tops that reach the bound, and reads the elements under these tops again. It puts
 * the elements that reach the bound in order.
 *
 * topk/split.cu runs this kernel on parts of rows.
 *
 * Moves 1 read of N. If the list has no room for the elements that reach the bound, a second read
 * lists them tile by tile, with a rising bound. */
#include "buckets.cuh"
#include "../team/forms.cuh"
#include "parts.cuh"
#include "sample_end.cuh"
#include "tiles.cuh"
#include "tops_of_block.cuh"

/* Number of blocks of the largest size that fit a multiprocessor without spilling a tile. */
template <typename Rows>
constexpr int BLOCKS_OF = TOPK_TILE_BLOCKS_OF_OTHERS;
template <typename X, alignment ALIGNED>
constexpr int BLOCKS_OF<contiguous_rows<X, ALIGNED>> =
    sizeof(X) <= sizeof(float) ? TOPK_TILE_BLOCKS : TOPK_TILE_BLOCKS_OF_OTHERS;

/* Chunks that a thread loads together, so that their reads overlap. */
constexpr int AT_ONCE = 4;

/* If a row has more than LONG_SHARE elements and more than MAX_CHUNKS_AGAIN chunks must be read
 * again, the block finds a better bound first. A shorter row is still in the L2 cache. */
constexpr uint32_t LONG_SHARE = 1 << 16, MAX_CHUNKS_AGAIN = 256;

/* Lists the elements from key `from` on that belong to the tops of a queue. *listed becomes their
 * number. If it exceeds the list's room, the function stops early. */
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
        /* not unrolled: it runs once or twice a row, so each instruction must be fetched */
#pragma unroll 1
        for (int j = 0; j < AT_ONCE; j++) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                if (x[0][i] < least || at[0] + i >= share.end) continue;
                const Key key = key_of(x[0][i]);
                if (key < from) continue; /* `from` is the key of NaN */
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
        if (__any_sync(~0u, *(volatile int *)listed > args.room)) break;
    }
    __syncthreads();
}

/* Writes the results of a row or of a part of a row: the pair, and the first k of the `count`
 * listed elements. A function of its own, so that a tile has more registers. */
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
        end_if_sample(args, share.row);
        if (threadIdx.x == 0) put_pair(args, share.row, total);
    }
}

template <typename Rows>
__global__ void __launch_bounds__(TOPK_TILE_THREADS, BLOCKS_OF<Rows>)
    topk_online_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    await_earlier_work(args.launch.next_may_start);
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
    const uint32_t step = blockDim.x * Tile::K; /* chunks in a tile */
    auto own_first = [&] { return share.begin + own_chunk<Rows>() * V; };
    const uint32_t tiles = (end - share.begin + step * V - 1) / (step * V);
    const uint32_t kept = tiles < TOPK_KEPT ? tiles : TOPK_KEPT;
    uint32_t chunk = own_first() / V, taken = 0;
    state_of_tiles<Real> so_far;
    Real least = arithmetic<Real>::nan(); /* least number that may enter the queue */
    if (threadIdx.x == 0) queued = listed = 0;
    /* Takes the tiles up to `last`, and reads each while it takes the tile before. No tile is held
     * between two calls. */
    auto take_until = [&](uint32_t last) {
        auto take = [&](const auto &read, auto &next) {
            const uint32_t first = chunk * V;
            chunk += step;
            if (taken + 1 < last) next = share.read(chunk);
            const Tile tile = share.finish(read, first / V);
            const Real top = tile.largest(), m = larger(so_far.m, top);
            if (m != so_far.m) so_far.raise(m);
            so_far.d.add(sum_exponentials(tile, reference<Real>(m)).value());
            if (taken < kept)
                tops.of_tile(taken) = top;
            else if (!(top < least) && first < end)
                tops.add(key_of(top), first);
            return ++taken == last;
        };
        auto read = share.read(chunk), next = read;
#pragma unroll 1
        while (!take(read, next)) read = next;
    };
    auto own = [&] { return own_first() < end ? key_of(so_far.m) : Key(0); };
    auto bound_of_kept = [&] {
        return queue_kept(tops, places_of_tops{own_first(), step * V, end}, kept, own(), k);
    };
    /* A new bound is found after eight times as many tiles, or when the queue could fill up before
     * the next look. */
    const uint32_t to_full = TOPK_QUEUED - (k + k / 8) / blockDim.x - 1; /* tiles until it could be
                                                                          * full */
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
    __syncthreads(); /* all have queued their tops */
    /* the list takes the place of the kept tops */
    Entry *const list = (Entry *)shared;
    bool fits = tops.is_whole();
    if (fits && end - share.begin > LONG_SHARE && queued > k + MAX_CHUNKS_AGAIN / Tile::K)
        from = bound_of_entries(tops.queue, queued, k); /* the k-th top is a bound too */
    while (fits) {
        list_behind(args, share, tops.queue, queued, from, list, &listed);
        if (listed <= args.room) break;
        /* a full list has enough elements for a higher bound, unless they are equal */
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
    return with_topk_rows_of_blocks<true>(
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
