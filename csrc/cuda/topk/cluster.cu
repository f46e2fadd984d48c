/* topk/cluster.cu - cluster of the operation that selects: a row stays in the registers of the
 * blocks of a cluster (sm_90 and later). Each warp sends its (m, d) to every block, and the largest
 * elements of its quarters. The k-th largest of these bounds the k-th element from below. If k is
 * too large for that, the largest elements of the threads bound it. The few elements from the bound
 * on are listed in the first block's shared memory. The first block puts them in order.
 *
 * Moves 1 read of N. Stops at the largest cluster of TOPK_THREADS threads. */
#include "buckets.cuh"
#include "../team/arrivals.cuh"
#include "../team/forms.cuh"
#include "select.cuh"
#include "signs.cuh"
#include "launch.cuh"

/* The largest elements of a warp's quarters. */
template <typename Real>
struct alignas(16) tops_of_warp {
    Real top[4];
};

/* One of a thread's elements, which all come to in the same few instructions. */
template <typename Tile>
__device__ __forceinline__ typename Tile::Real element_of_tile(const Tile &tile, unsigned e) {
    typename Tile::Real found = tile.element(0);
#pragma unroll
    for (unsigned i = 1; i < Tile::K * Tile::V; i++)
        if (i == e) found = tile.element(i);
    return found;
}

#if __CUDA_ARCH__ >= 900

/* The blocks that share a row: those of a cluster. */
struct blocks_of_row {
    __device__ static int count() { return (int)cluster_size(); }

    /* Their barrier, in two halves. */
    __device__ static void arrive() {
        __syncwarp();
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    }
    __device__ static void wait() {
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
    __device__ static void meet() {
        arrive();
        wait();
    }

    /* The same variable of another block. */
    template <typename T>
    __device__ static T *at(T *here, int block) {
        uint64_t there;
        asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((uint64_t)here), "r"(block));
        return (T *)there;
    }
};

/* A key that k elements of a row are not below, or 0, by the largest key of each thread. */
template <typename Key>
__device__ __noinline__ Key bound_of_threads(Key own, Key largest, uint32_t k) {
    const Key least = key_of(-arithmetic<decltype(number_of(own))>::infinity());
    return count_to_kth<blocks_of_row>(keys_between<Key>{least, largest}, k, k + k / 8 + 1,
                                       [&](auto visit) { visit(own); })
        .key;
}

#endif

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
    /* of every warp: the largest elements of its quarters, and its state */
    Real *const tops = (Real *)((char *)beside + bytes_beside_list<Real>(args.room));
    state<Real> *const states =
        (state<Real> *)(tops + 4 * blocks_of_row::count() * warps_of_block());
    __shared__ int listed;
    const int blocks = blocks_of_row::count(), warps = blocks * warps_of_block();
    const int64_t row = cluster_index() + args.first_row;
    const int warp = cluster_rank() * warps_of_block() + warp_of_block();
    const uint32_t chunk = block_a_row::chunk<K>(warp), first = chunk * V;
    const uint32_t N = (uint32_t)args.N, k = (uint32_t)args.k;
    if (threadIdx.x == 0) listed = 0;
    __shared__ arrivals arrived;
    arrived.make_ready();
    arrivals::say_ready();
    await_earlier_work();

    const Tile tile =
        Rows::template row<false>(args, cluster_index()).template load<K, WARP>(chunk);
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
    state<Real> total;
    bool merged = false;
    auto merge_once = [&] {
        if (!merged) total = merge_held_by_warp(states, warps);
        merged = true;
    };
    bound<Key> from = {0, N};
    if ((int)k <= 3 * warps) { /* of 4 quarters each */
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
        merge_once();
        from.key = bound_of_threads(own, key_of(total.m), k);
    }
    bool counts = from.key == 0; /* the elements, where there are too few tops */
    int *const count_at = blocks_of_row::at(&listed, 0);
    Entry *const list_at = blocks_of_row::at(list, 0);
    int count = 0;
    while (true) {
        if (counts) {
            merge_once();
            Tile copy = tile;
            from = bound_of_tile<blocks_of_row>(copy, keys_between<Key>{from.key, key_of(total.m)},
                                                first, N, k, (uint32_t)args.room);
            if (threadIdx.x == 0 && cluster_rank() == 0) listed = 0;
            blocks_of_row::meet();
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
                if (slot >= args.room) break; /* they are too many anyway */
                list_at[slot] = Entry::make(key, at);
            }
        }
        blocks_of_row::arrive();
        merge_once(); /* meanwhile */
        blocks_of_row::wait();
        count = *(volatile int *)count_at;
        if (count <= args.room) break;
        counts = true;
    }
    arrivals::say_ready(); /* the first block stays until its count is read no more */
    if (cluster_rank() == 0) {
        topk_of_row<Rows> results(args, row, total);
        give_first(listed_entries<Real>{list, (uint32_t)count, from.key, key_of(total.m)}, beside,
                   k, [&](uint32_t order, const Entry &one) { results.put(order, one); });
        results.template end<0>();
        if (threadIdx.x == 0) put_pair(args, row, total);
    }
    arrivals::await_ready();
#endif
}

ons_status launch_topk_cluster(const launch_request &request) {
    const ons_plan *plan = request.plan;
    const int k = (int)request.problem->k, room = k <= 64 ? 256 : (5 * k / 2 + 67) / 4 * 4;
    return with_topk_rows(request, room, [&](auto rows, const auto &arguments) {
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
