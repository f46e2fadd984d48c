/* topk/large.cu - `online` for softmax_topk with a k above ONS_LARGEST_K. A block takes a row. It
 * runs the pair (m, d) over the tiles. It finds the k-th element by counting (select.cuh): it reads
 * the row once for each 8 bits of the key, and of the place if several elements have this key. It
 * lists the k elements in the workspace and sorts them there.
 *
 * Reads N 3 to 14 times. */
#include "../kernel/passes.cuh"
#include "launch.cuh"
#include "select.cuh"
#include "sort.cuh"

/* Calls visit(key, place) for this thread's elements of a row. */
template <typename Row, typename Visit>
__device__ inline void each_element(const Row &row, Visit visit) {
    for_each_tile<block_a_row, TILE_CHUNKS>(row, 0, chunks_of(row), [&](int64_t chunk, auto tile) {
        constexpr int V = Row::V;
#pragma unroll 1
        for (int e = 0; e < TILE_CHUNKS * V; e++) {
            const int64_t at = chunk * V + place<WARP, V>(e);
            if (at < row.N) visit(key_of(tile.element(e)), (uint32_t)at);
        }
    });
}

template <typename Rows>
__global__ void __launch_bounds__(PASS_THREADS)
    topk_large_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    using Entry = entry<Real>;
    __shared__ state<Real> parts[PASS_THREADS / WARP];
    __shared__ uint32_t listed;
    const uint32_t k = (uint32_t)args.k, room = 1u << (32 - __clz(k - 1));
    Entry *const list = (Entry *)args.workspace + (int64_t)blockIdx.x * room;
#pragma unroll 1
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        __syncthreads();
        if (threadIdx.x == 0) listed = 0;
        const auto from = Rows::template row<false>(args, row);
        running_state<Real> so_far;
        for_each_tile<block_a_row, TILE_CHUNKS>(
            from, 0, chunks_of(from),
            [&](int64_t, const auto &tile) { online_step(so_far, tile); });
        const state<Real> total =
            merge_block<block_a_row>(block_a_row::merge_warp(so_far.rounded()), parts);
        const bound<Key> last = bound_of_first(keys_between<Key>{0, key_of(total.m)}, k,
                                               [&](auto visit) { each_element(from, visit); });
        each_element(from, [&](Key key, uint32_t at) {
            if (last.has(key, at)) list[atomicAdd(&listed, 1)] = Entry::make(key, at);
        });
        for (uint32_t i = k + threadIdx.x; i < room; i += blockDim.x) list[i] = {};
        __syncthreads();
        sort_entries(list, room);
        topk_of_row<Rows> results(args, row, total);
        for (uint32_t i = threadIdx.x; i < k; i += blockDim.x) results.put(i, list[i]);
        results.template end<0>();
        if (threadIdx.x == 0) put_pair(args, row, total);
    }
}

ons_status launch_topk_large(const launch_request &request) {
    const ons_plan *plan = request.plan;
    auto launch_with = [&](auto rows, const auto &arguments) {
        using Rows = typename decltype(rows)::Rows;
        const launch_shape shape = {plan->blocks_a_row, plan->threads};
        return launch(request, shape, topk_large_kernel<Rows>, arguments);
    };
    return with_general_topk_rows(request, 1, launch_with);
}
