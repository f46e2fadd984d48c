/* topk/split.cu - `split` for softmax_topk. Every part of a row gives its first k entries and its
 * pair (topk/online.cu). A block merges the parts of a row. One entry of each part bounds the k-th
 * element. The block reads the first entry of every part, then the second entry of every part, and
 * so on. It stops when no part has another entry that reaches the bound. It lists the entries in
 * shared memory. When the list is full, the block cuts it to its first k. That gives a new bound.
 *
 * Moves 1 read of N. */
#include "buckets.cuh"
#include "../team/forms.cuh"
#include "select.cuh"
#include "parts.cuh"

template <typename Rows>
__global__ void __launch_bounds__(TOPK_MERGE_THREADS)
    topk_merge_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    using Entry = entry<Real>;
    extern __shared__ __align__(16) unsigned char shared[];
    Entry *const list = (Entry *)shared;
    __shared__ uint32_t listed;
    const int64_t row = blockIdx.x + args.launch.first_row;
    const part_of_topk<Real> part(args.workspace, args.rows * args.parts, args.k, row * args.parts);
    const uint32_t k = (uint32_t)args.k, parts = (uint32_t)args.parts, entries = parts * k;
    /* the first `rank` entries of all parts are at least k entries */
    const uint32_t rank = (k + parts - 1) / parts;
    const bool has_part = threadIdx.x < parts;
    const key_type<Real> of_part[1] = {has_part ? part.entries[threadIdx.x * k + rank - 1].key()
                                                : 0};
    const auto least = bound_of_tops(of_part, (int)((k + rank - 1) / rank));
    bound<key_type<Real>> from = {least, ~0u};
    if (threadIdx.x == 0) listed = 0;
    __syncthreads();
#pragma unroll 1
    for (uint32_t begin = 0; begin < entries; begin += blockDim.x) {
        const uint32_t i = begin + threadIdx.x;
        const Entry one = i < entries ? part.entries[i % parts * k + i / parts] : Entry();
        const bool listable = from.has(one.key(), one.index());
        if (listable) list[atomicAdd(&listed, 1)] = one;
        if (!__syncthreads_or(listable)) break; /* every part has at least one entry among these */
        if (listed + blockDim.x > (uint32_t)args.room) from = cut_list(list, &listed, k);
        __syncthreads(); /* all have read the count */
    }
    const state<Real> total = merge_by_warp(part.pair, (int)args.parts);
    topk_of_row<Rows> results(args, row, total);
    give_first(listed_entries<Real>{list, listed, least, key_of(total.m)},
               (void *)(list + args.room), k,
               [&](uint32_t order, const Entry &one) { results.put(order, one); });
    results.template end<0>();
    if (threadIdx.x == 0) put_pair(args, row, total);
}

ons_status launch_topk_split(const launch_request &request) {
    const ons_plan *plan = request.plan;
    if (!request.facts) {
        ons_status status = topk_of_parts(request);
        if (status != ONS_OK || plan->N <= plan->tile) return status;
    }
    auto merge = [&](auto rows, auto arguments) {
        using Rows = typename decltype(rows)::Rows;
        cut_rows(plan, &arguments);
        using Real = typename Rows::Real;
        launch_shape shape = {1, TOPK_MERGE_THREADS};
        shape.shared_bytes =
            arguments.room * (int)sizeof(entry<Real>) + bytes_beside_list<Real>(arguments.room);
        return launch_strips(request, shape, topk_merge_kernel<Rows>, arguments);
    };
    const int room =
        topk_room(request, 2 * TOPK_MERGE_THREADS); /* more than k and a block's threads */
    return plan->compute == ONS_FLOAT64
               ? with_topk_arguments<general_rows<double>>(request, as_it_is(request), room, merge)
               : with_topk_arguments<general_rows<float>>(request, as_it_is(request), room, merge);
}
