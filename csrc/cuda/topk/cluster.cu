/* topk/cluster.cu - `cluster` for softmax_topk. A row stays in the registers of the blocks of a
 * cluster (sm_90 and later). Each warp sends every block its (m, d) and the largest elements of its
 * quarters. The k-th largest of these elements bounds the k-th element from below. If k is too
 * large for that, each block takes an equal share of k, and bounds it by its threads' maxima. The
 * first block's shared memory lists the few elements that reach the bound, and the first block puts
 * them in order.
 *
 * Moves 1 read of N. Stops at the largest cluster of TOPK_THREADS threads. */
#include "buckets.cuh"
#include "blocks_of_row.cuh"
#include "../team/forms.cuh"
#include "sample_end.cuh"
#include "select.cuh"
#include "signs.cuh"
#include "launch.cuh"

/* The largest elements of a warp's quarters. */
template <typename Real>
struct alignas(16) tops_of_warp {
    Real top[4];
};

/* Element e of a thread. All threads run the same few instructions, whatever their e is. */
template <typename Tile>
__device__ __forceinline__ typename Tile::Real element_of_tile(const Tile &tile, unsigned e) {
    typename Tile::Real found = tile.element(0);
#pragma unroll
    for (unsigned i = 1; i < Tile::K * Tile::V; i++)
        if (i == e) found = tile.element(i);
    return found;
}

/* Number of threads in the row's warps before `warp` that have elements. */
template <typename Rows>
__device__ inline int threads_before(int64_t N, int warp) {
    constexpr int OF_WARP = TOPK_CHUNKS * WARP;
    const int chunks = min((int)((N + Rows::V - 1) / Rows::V), warp * OF_WARP);
    return chunks / OF_WARP * WARP + min(chunks % OF_WARP, WARP);
}

/* A key that at least k elements of the row are not below, or 0. `own` is the key of this thread's
 * largest element. Each block bounds its share of k and a few more, so that the blocks with the
 * lowest bounds are not needed. */
template <typename Rows, typename Key>
__device__ inline Key bound_by_blocks(int64_t N, Key own, int k) {
    __shared__ Key keys[LARGEST_CLUSTER];
    const int warps = warps_of_block(), blocks = blocks_of_row();
    auto rank_of = [&](int block) {
        const int threads =
            threads_before<Rows>(N, (block + 1) * warps) - threads_before<Rows>(N, block * warps);
        const int share = k * threads / threads_before<Rows>(N, blocks * warps) + 1;
        return min(share + share / 8 + 2, threads);
    };
    const int rank = rank_of(block_of_row());
    const Key of_block = rank > 0 ? bound_of_tops({own}, rank) : 0;
    if (threadIdx.x == 0) in_first_block(keys)[block_of_row()] = of_block;
    meet_in_row();
    const int lane = threadIdx.x % WARP;
    const volatile Key *const all = in_first_block(keys);
    const Key key = lane < blocks ? all[lane] : 0;
    const int rank_there = lane < blocks ? rank_of(lane) : 0;
    int from_there = 0;
#pragma unroll
    for (int i = 0; i < LARGEST_CLUSTER; i++) {
        const int other_rank = __shfl_sync(~0u, rank_there, i);
        if (__shfl_sync(~0u, key, i) >= key) from_there += other_rank;
    }
    return largest_of_warp(from_there >= k ? key : Key(0));
}

template <typename Rows>
__global__ void __launch_bounds__(TOPK_THREADS)
    topk_cluster_kernel(const __grid_constant__ topk_arguments<Rows> args) {
#if __CUDA_ARCH__ >= 900
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    using Entry = entry<Real>;
    constexpr int K = TOPK_CHUNKS, V = Rows::V;
    using Tile = typename Rows::template tile<K>;
    using Signs = signs<Tile>;
    extern __shared__ __align__(16) unsigned char shared[];
    Entry *const list = (Entry *)shared;
    void *const beside = list + args.room;
    /* for every warp, the largest elements of its quarters, and its state */
    Real *const tops = (Real *)((char *)beside + bytes_beside_list<Real>(args.room));
    state<Real> *const states = (state<Real> *)(tops + 4 * blocks_of_row() * warps_of_block());
    __shared__ int listed;
    const int blocks = blocks_of_row(), warps = blocks * warps_of_block();
    const int64_t row = row_of_blocks() + args.launch.first_row;
    const int warp = block_of_row() * warps_of_block() + warp_of_block();
    const uint32_t chunk = block_a_row::chunk<K>(warp), first = chunk * V;
    const uint32_t N = (uint32_t)args.N, k = (uint32_t)args.k;
    if (threadIdx.x == 0) listed = 0;
    __shared__ arrivals arrived;
    arrived.make_ready();
    arrivals::say_ready();
    await_earlier_work(args.launch.next_may_start);

    const Tile tile =
        Rows::template row<false>(args, row_of_blocks()).template load<K, WARP>(chunk);
    const Real top = tile.largest(), m = max_over_lanes<WARP>(top);
    const Real d = sum_exponentials<in_any_order>(tile, reference<Real>(m))
                       .template over_lanes<WARP>()
                       .value();
    const Key own = first < N ? key_of(top) : 0;
    const Real of_quarter = max_over_lanes<WARP / 4>(top);
    tops_of_warp<Real> four;
    four.top[0] = __shfl_sync(~0u, of_quarter, 0);
    four.top[1] = __shfl_sync(~0u, of_quarter, WARP / 4);
    four.top[2] = __shfl_sync(~0u, of_quarter, WARP / 2);
    four.top[3] = __shfl_sync(~0u, of_quarter, 3 * WARP / 4);
    arrivals::await_ready();
    arrived.announce(warps * (sizeof(state<Real>) + sizeof four));
    const int to = threadIdx.x % WARP;
    if (to < blocks) {
        arrived.send(states + warp, to, {m, d});
        arrived.send((tops_of_warp<Real> *)tops + warp, to, four);
    }
    arrived.await();
    bound<Key> from = {0, N};
    if ((int)k <= 3 * warps) { /* out of 4 * warps quarters */
        Key mine[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int quarter = threadIdx.x + i * blockDim.x;
            const uint32_t begins =
                (quarter / 4 * (K * WARP) + quarter % 4 * (WARP / 4)) * (uint32_t)V;
            mine[i] = quarter < 4 * warps && begins < N ? key_of(tops[quarter]) : 0;
        }
        from.key = bound_of_tops(mine, (int)k);
    } else {
        from.key = bound_by_blocks<Rows>(args.N, own, (int)k);
    }
    bool counts = from.key == 0; /* if there are too few tops, count the elements */
    int *const count_at = in_first_block(&listed);
    Entry *const list_at = in_first_block(list);
    state<Real> total;
    bool merged = false;
    auto merge_once = [&] {
        if (!merged) total = merge_held_by_warp(states, warps);
        merged = true;
    };
    int count = 0;
    while (true) {
        if (counts) {
            merge_once();
            Tile copy = tile;
            from = bound_by_counting(copy, own, first, N, k, (uint32_t)args.room, from.key,
                                     key_of(total.m));
            if (threadIdx.x == 0 && block_of_row() == 0) listed = 0;
            meet_in_row();
        }
        if (own >= from.key) {
            unsigned from_there = Signs::not_below(tile, number_of(from.key));
            while (from_there) {
                const unsigned bit = 31 - __clz(from_there), e = Signs::element(bit);
                from_there ^= 1u << bit;
                const uint32_t at = first + (uint32_t)place<WARP, V>((int)e);
                const Key key = key_of(element_of_tile(tile, e));
                if (at >= N || !from.has(key, at)) continue;
                const int slot = atomicAdd(count_at, 1);
                if (slot >= args.room) break; /* too many in any case */
                list_at[slot] = Entry::make(key, at);
            }
        }
        arrive_at_row();
        merge_once(); /* while the others arrive */
        wait_for_row();
        count = *(volatile int *)count_at;
        if (count <= args.room) break;
        counts = true;
    }
    arrivals::say_ready(); /* the first block stays until all have read its count */
    if (block_of_row() == 0) {
        topk_of_row<Rows> results(args, row, total);
        give_first(listed_entries<Real>{list, (uint32_t)count, from.key, key_of(total.m)}, beside,
                   k, [&](uint32_t order, const Entry &one) { results.put(order, one); });
        results.template end<0>();
        end_if_sample(args, row);
        if (threadIdx.x == 0) put_pair(args, row, total);
    }
    arrivals::await_ready();
#endif
}

ons_status launch_topk_cluster(const launch_request &request) {
    const ons_plan *plan = request.plan;
    const int k = (int)request.problem->k, room = k <= 64 ? 256 : (5 * k / 2 + 67) / 4 * 4;
    return with_topk_rows_of_blocks(request, room, [&](auto rows, const auto &arguments) {
        using Rows = typename decltype(rows)::Rows;
        using Real = typename Rows::Real;
        launch_shape shape = {1, plan->threads};
        shape.blocks = shape.cluster = (int)plan->blocks_a_row;
        shape.shared_bytes = arguments.room * (int)sizeof(entry<Real>) +
                             bytes_beside_list<Real>(arguments.room) +
                             shape.cluster * plan->threads / WARP * 6 * (int)sizeof(Real);
        return launch_strips(request, shape, topk_cluster_kernel<Rows>, arguments);
    });
}
