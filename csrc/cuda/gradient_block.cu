/* gradient_block.cu - fused_block and cluster of an operation that takes a gradient: both rows stay
 * in the registers of one block, or of the blocks of a cluster (sm_90 and later). Each warp sends
 * its sum to every block; a block goes on once all have arrived. In the column form a warp has its
 * part of 32 rows, and one block has them all.
 *
 * Moves 2 reads + 1 write of N. Stops at GRADIENT_THREADS threads of BLOCK_CHUNKS chunks in a
 * block, and at the largest cluster of such blocks, of K chunks. */
#include "team/arrivals.cuh"
#include "cuda.h"
#include "kernel/launch_gradient.cuh"

constexpr int MAX_WARPS = GRADIENT_THREADS / WARP;

/* The sum of a row whose warps are all in this block. */
template <typename Form, typename Sum>
__device__ inline Sum merge_in_block(Sum mine) {
    __shared__ Sum parts[MAX_WARPS * Form::ROWS];
    if constexpr (Form::ROWS == 1) mine = merge_sums<WARP>(mine);
    if (blockDim.x == WARP) return mine;
    if (Form::writes()) parts[Form::slot(warp_of_block())] = mine;
    __syncthreads();
    if constexpr (Form::ROWS == 1) return merge_sums_by_warp(parts, warps_of_block());
    Sum sum = {};
    for (int warp = 0; warp < warps_of_block(); warp++) sum.add(parts[Form::slot(warp)]);
    return sum;
}

template <typename Rows, typename Form>
__global__ void __launch_bounds__(GRADIENT_THREADS)
    gradient_block_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    const int64_t index = (int64_t)blockIdx.x * Form::ROWS + Form::row();
    Rows::template visit<(Form::ROWS > 1), TEST_WHEN_HELD<Rows>>(args, index, [&](const auto &row) {
        const int chunk = Form::template chunk<BLOCK_CHUNKS>(warp_of_block());
        const auto tile = row.template load<BLOCK_CHUNKS, Form::STRIDE>(chunk);
        if constexpr (Form::ROWS == 1)
            fetching<Rows>::template ahead<BLOCK_CHUNKS>(args, blockIdx.x, warp_of_block());
        with_gradient(args.operation(), [&](auto op) {
            using Op = decltype(op);
            const auto sum = merge_in_block<Form>(tile.template sum<Op>());
            row.template finish<Op, Form::STRIDE, true>(chunk, tile, sum.rounded());
        });
    });
}

/* A sum on its way to another block. */
__device__ inline state<double> sent_as(const row_sum<float> &sum) { return {sum.d, 0}; }
__device__ inline state<double> sent_as(const row_sum<double> &sum) { return {sum.d, sum.d_low}; }
__device__ inline void received(const state<double> &part, row_sum<float> *sum) { sum->d = part.m; }
__device__ inline void received(const state<double> &part, row_sum<double> *sum) {
    *sum = {part.m, part.d};
}

/* The blocks that fit a multiprocessor. */
template <typename Rows, int K>
constexpr int BLOCKS = ons_gradient_warps(Rows::IS_16_BIT, K > BLOCK_CHUNKS) / MAX_WARPS;

template <typename Rows, int K>
__global__ void __launch_bounds__(GRADIENT_THREADS, BLOCKS<Rows, K>)
    gradient_cluster_kernel(const __grid_constant__ typename Rows::arguments args) {
#if __CUDA_ARCH__ >= 900
    using Sum = row_sum<typename Rows::Real>;
    __shared__ state<double> parts[LARGEST_CLUSTER * MAX_WARPS];
    __shared__ arrivals arrived;
    const int blocks = cluster_size(), warps = blocks * warps_of_block();
    const int warp = cluster_rank() * warps_of_block() + warp_of_block(), to = threadIdx.x % WARP;
    arrived.make_ready();
    arrivals::say_ready();
    await_earlier_work();
    Rows::template visit<false, TEST_WHEN_HELD<Rows>>(args, cluster_index(), [&](const auto &row) {
        const int chunk = block_a_row::chunk<K>(warp);
        const auto tile = row.template load<K, WARP>(chunk);
        fetching<Rows>::template ahead<K>(args, cluster_index(), warp);
        with_gradient(args.operation(), [&](auto op) {
            using Op = decltype(op);
            const Sum mine = merge_sums<WARP>(tile.template sum<Op>());
            arrivals::await_ready();
            arrived.announce(warps * sizeof(state<double>));
            if (to < blocks) arrived.send(parts + warp, to, sent_as(mine));
            arrived.await();
            Sum sum = {}, part;
#pragma unroll 1
            for (int i = to; i < warps; i += WARP) {
                received(parts[i], &part);
                sum.add(part);
            }
            sum = merge_sums<WARP>(sum);
            row.template finish<Op, WARP, true>(chunk, tile, sum.rounded());
        });
    });
#endif
}

ons_status gradient_block(const launch_request &request) {
    return with_gradient_rows_or_columns(request, [&](auto rows, auto form) {
        using Rows = typename decltype(rows)::Rows;
        using Form = decltype(form);
        return launch_strips(request, {1, request.plan->threads}, gradient_block_kernel<Rows, Form>,
                             rows.arguments);
    });
}

ons_status gradient_cluster(const launch_request &request) {
    return with_gradient_rows(request, [&](auto rows) {
        using Rows = typename decltype(rows)::Rows;
        launch_shape shape = {request.plan->blocks_a_row, request.plan->threads};
        shape.cluster = (int)request.plan->blocks_a_row;
        auto launch_with = [&](auto K) {
            return launch_strips(request, shape, gradient_cluster_kernel<Rows, decltype(K)::value>,
                                 rows.arguments);
        };
        const int chunks = request.plan->elements_a_thread / Rows::V;
        if constexpr (Rows::ALL_ALIGNED)
            return launch_with(std::integral_constant<int, GRADIENT_CLUSTER_CHUNKS>());
        else if constexpr (Rows::HAS_CLUSTER_CHUNKS)
            return with_constant<BLOCK_CHUNKS, GRADIENT_CLUSTER_CHUNKS>(chunks, launch_with);
        else
            return launch_with(std::integral_constant<int, BLOCK_CHUNKS>());
    });
}
