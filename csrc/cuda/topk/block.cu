/* topk/block.cu - `fused_block` for softmax_topk. A row stays in the registers of a block. The
 * block takes tops, the largest elements of parts of the row. The k-th largest top bounds the k-th
 * element from below. The parts depend on k. For a small k they are MAX_SUBSETS subsets of lanes,
 * and one warp puts their tops in order. For a larger k a part is all elements of one thread. For a
 * still larger k it is one chunk, and for the largest k one element. The block counts these tops in
 * ranges. If too many elements reach the bound, bound_by_counting (select.cuh) finds a better
 * bound. The block lists the elements that reach the bound in shared memory and puts them in order.
 *
 * Moves 1 read of N. Stops at TOPK_BLOCK_THREADS threads of TOPK_CHUNKS chunks. */
#include "launch.cuh"
#include "../team/block.cuh"
#include "buckets.cuh"
#include "../team/forms.cuh"
#include "sample_end.cuh"
#include "select.cuh"
#include "signs.cuh"
#include "tops.cuh"

/* The number of subsets of a block's lanes, equally many in each warp, and the largest k for which
 * they are used. */
enum { MAX_SUBSETS = 2 * WARP, MAX_K_BY_SUBSETS = 24 };

/* The first warp finds the k-th largest top of the subsets. Call put, find, then read kth, with a
 * barrier between each two. */
template <typename Real>
struct tops_of_subsets {
    Real tops[MAX_SUBSETS], kth;

    /* log2 of the lanes of a subset. */
    __device__ static int scale() { return max(31 - __clz(warps_of_block() - 1), 0); }

    __device__ void put(Real top) {
        const int lanes = 1 << scale();
        for (int apart = 1; apart < lanes; apart *= 2)
            top = larger(top, __shfl_xor_sync(~0u, top, apart));
        if ((threadIdx.x & (lanes - 1)) == 0) tops[threadIdx.x >> scale()] = top;
    }
    __device__ void find(int k) {
        if (threadIdx.x >= WARP) return;
        const int subsets = blockDim.x >> scale(), one = 2 * threadIdx.x;
        const Real none = -arithmetic<Real>::infinity();
        const Real found = kth_over_lanes<WARP>(one < subsets ? tops[one] : none,
                                                one + 1 < subsets ? tops[one + 1] : none, k);
        if (threadIdx.x == 0) kth = found;
    }
};

/* The bound for a k that has too few chunks: it counts all elements. */
template <typename Key, typename Tile>
__device__ __noinline__ Key bound_of_elements(const Tile &tile, uint32_t first, uint32_t N,
                                              uint32_t k) {
    return bound_by_ranges<Key>(k, [&](auto visit) {
#pragma unroll 4
        for (int e = 0; e < Tile::K * Tile::V; e++)
            if (first + place<WARP, Tile::V>(e) < N) visit(key_of(tile.element(e)));
    });
}

/* A bit for each element that is from the bound on. */
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

/* Adds a thread's elements whose bit is set to the block's list, until the list is full. */
template <typename Tile, typename Rows, typename Entry>
__device__ __forceinline__ void list_bits(const topk_arguments<Rows> &args, int64_t row,
                                          unsigned bits, uint32_t first, Entry *list,
                                          uint32_t *listed) {
    const int lane = threadIdx.x % WARP;
    const uint32_t upto = sum_up_to_lane<WARP>(__popc(bits), lane);
    uint32_t slot = lane == WARP - 1 ? atomicAdd(listed, upto) : 0;
    slot = __shfl_sync(~0u, slot, WARP - 1) + upto - __popc(bits);
    while (bits && slot < (uint32_t)args.room) {
        const unsigned bit = 31 - __clz(bits);
        bits ^= 1u << bit;
        const uint32_t at = first + (uint32_t)place<WARP, Tile::V>((int)signs<Tile>::element(bit));
        list[slot++] = Entry::make(key_of(element_of(args, row, at)), at);
    }
}

/* Number of blocks that fit a multiprocessor. */
template <typename Rows>
constexpr int BLOCKS_OF = 2;
template <typename X, alignment ALIGNED>
constexpr int BLOCKS_OF<contiguous_rows<X, ALIGNED>> =
#if __CUDA_ARCH__ == 750 /* It has room for 1024 threads. */
    2;
#else
    sizeof(X) == 2 ? 3 : 2;
#endif

template <typename Rows>
__global__ void __launch_bounds__(TOPK_BLOCK_THREADS, BLOCKS_OF<Rows>)
    topk_block_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    using Entry = entry<Real>;
    constexpr int K = TOPK_CHUNKS, V = Rows::V;
    using Tile = typename Rows::template tile<K>;
    extern __shared__ __align__(16) unsigned char shared[];
    Entry *const list = (Entry *)shared;
    void *const beside = list + args.room;
    using Team = block<TOPK_BLOCK_THREADS / WARP>;
    __shared__ tops_of_subsets<Real> subsets;
    __shared__ uint32_t listed;
    const int64_t row = blockIdx.x + args.launch.first_row;
    const uint32_t chunk = Team::chunk<K>(), first = chunk * V;
    const uint32_t N = (uint32_t)args.N, k = (uint32_t)args.k;
    if (threadIdx.x == 0) listed = 0;

    const Tile tile = Rows::template row<false>(args, blockIdx.x).template load<K, WARP>(chunk);
    const Real top = tile.largest();
    const Key own = first < N ? key_of(top) : 0;
    const bool by_subsets = k <= MAX_K_BY_SUBSETS;
    if (by_subsets) subsets.put(top);
    const Real m = Team::near(largest{top});
    if (by_subsets) subsets.find((int)k);
    const Real d = Team::near(sum_exponentials<in_any_order>(tile, reference<Real>(m)));
    const state<Real> total = {m, d};

    bound<Key> from = {0, N};
    if (by_subsets) {
        from.key = key_of(subsets.kth);
    } else {
        /* chosen so that at most about 2 k elements are from the bound on */
        const bool few = 2 * k <= N / (K * V), many = 8 * k > 5 * (N / V);
        Key tops[K] = {few ? own : 0};
        if (!few && !many) {
#pragma unroll
            for (int i = 0; i < K; i++)
                tops[i] = first + i * (WARP * V) < N ? key_of(tile.chunk(i).largest()) : 0;
        }
        if (many) {
            Tile copy = tile;
            from.key = bound_of_elements<Key>(copy, first, N, k);
        } else {
            from.key = bound_of_tops(tops, (int)k);
        }
    }
    bool counts = from.key == 0;
    if (counts) from.key = key_of(-arithmetic<Real>::infinity());
    uint32_t count = 0;
    while (true) {
        if (counts) {
            Tile copy = tile;
            from =
                bound_by_counting(copy, own, first, N, k, (uint32_t)args.room, from.key, key_of(m));
            if (threadIdx.x == 0) listed = 0;
            __syncthreads();
        }
        const bool some = own >= from.key;
        if (__any_sync(~0u, some)) {
            const unsigned kept = bits_from(tile, from, first, N);
            list_bits<Tile>(args, row, some ? kept : 0, first, list, &listed);
        }
        __syncthreads();
        count = *(volatile uint32_t *)&listed;
        if (count <= (uint32_t)args.room) break;
        counts = true;
    }
    topk_of_row<Rows> results(args, row, total);
    give_first(listed_entries<Real>{list, count, from.key, key_of(m)}, beside, k,
               [&](uint32_t order, const Entry &one) { results.put(order, one); });
    results.template end<0>();
    end_if_sample(args, row);
    if (threadIdx.x == 0) put_pair(args, row, total);
}

ons_status launch_topk_block(const launch_request &request) {
    const ons_plan *plan = request.plan;
    const int k = (int)request.problem->k, room = k <= 64 ? 128 : 2 * k;
    return with_topk_rows_of_blocks(request, room, [&](auto rows, const auto &arguments) {
        using Rows = typename decltype(rows)::Rows;
        using Real = typename Rows::Real;
        launch_shape shape = {1, plan->threads};
        shape.shared_bytes =
            arguments.room * (int)sizeof(entry<Real>) + bytes_beside_list<Real>(arguments.room);
        return launch_strips(request, shape, topk_block_kernel<Rows>, arguments);
    });
}
