/* online_block.cu - the row stays in the registers of one block, as in fused_block, but every
 * thread runs (m, d) over its chunks as they are taken up (arXiv 1805.02867, algorithm 3): it can
 * begin before its last chunk is there, and pays with a second exponential an element at the end.
 *
 * Moves 1 read + 1 write of N. Stops at Rows::BLOCK_THREADS threads of BLOCK_CHUNKS
 * chunks. */
#include "kernel/passes.cuh"

template <typename Ops, typename Rows, typename Form>
__global__ void __launch_bounds__(Rows::BLOCK_THREADS, Rows::BLOCKS)
    online_block_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    using Real = typename Rows::Real;
    __shared__ state<Real> parts[Rows::BLOCK_THREADS / WARP * Form::ROWS];
    const int64_t index = (int64_t)blockIdx.x * Form::ROWS + Form::row();
    Rows::template visit<(Form::ROWS > 1), TEST_WHEN_HELD<Rows>>(args, index, [&](const auto &row) {
        int chunk = Form::template chunk<BLOCK_CHUNKS>(warp_of_block());
        auto tile = row.template load<BLOCK_CHUNKS, Form::STRIDE>(chunk);

        running_state<Real> so_far;
#pragma unroll
        for (int k = 0; k < BLOCK_CHUNKS; k++) online_step(so_far, converted(tile.chunk(k)));
        state<Real> total = merge_block<Form>(Form::merge_warp(so_far.rounded()), parts);

        if constexpr (Ops::ONE_A_ROW) {
            put_value<Ops>(args, index, warp_of_block() == 0 && Form::writes(), row, total);
        } else {
            Real x[BLOCK_CHUNKS * Rows::V];
            auto whole = converted(tile);
            const Real excluded =
                finish_tile<Ops>(args.operation(), whole, reference<Real>(total.m),
                                 constants_in<Ops>(args.operation(), total), x);
            row.template store<BLOCK_CHUNKS, Form::STRIDE, true>(chunk, x, whole.allowed(),
                                                                 excluded);
        }
    });
}

ons_status ons_cuda_online_block(const launch_request &request) {
    return with_rows_or_columns<kinds_in_online_block>(
        request, [&](auto ops, auto rows, auto form) {
            using Ops = decltype(ops);
            using Rows = typename decltype(rows)::Rows;
            return launch_strips(request, {1, request.plan->threads},
                                 online_block_kernel<Ops, Rows, decltype(form)>, rows.arguments);
        });
}
