/* fused_block.cu - the row stays in the registers of one block. Each warp takes its own maximum and
 * keeps its exponentials relative to it; one exchange of (m, d) through shared memory; then every
 * thread moves its exponentials to the row's reference, an exact power of two.
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at Rows::BLOCK_THREADS threads of
 * BLOCK_CHUNKS chunks. */
#include "fetch.cuh"
#include "finish.cuh"
#include "launch.cuh"
#include "panel.cuh"

template <typename Rows, typename Form>
__global__ void __launch_bounds__(Rows::BLOCK_THREADS, Rows::BLOCKS)
    fused_block_kernel(const __grid_constant__ typename Rows::arguments of) {
    using Real = typename Rows::Real;
    constexpr int WARPS = Rows::BLOCK_THREADS / WARP;
    __shared__ std::conditional_t<Form::ROWS == 1, state<Real>[WARPS], panel_of_block<Real, WARPS>>
        parts;
    Rows::template visit<(Form::ROWS > 1)>(
        of, (int64_t)blockIdx.x * Form::ROWS + Form::row(), [&](const auto &row) {
            int chunk = Form::template chunk<BLOCK_CHUNKS>(warp_of_block());
            auto tile = row.template load<BLOCK_CHUNKS, Form::STRIDE>(chunk);
            if constexpr (Form::ROWS == 1 && fetched_by_block<Rows>)
                fetching<Rows>::template ahead<BLOCK_CHUNKS>(of, blockIdx.x, warp_of_block());
            Real x[BLOCK_CHUNKS * Rows::V];
            auto m = Form::max(tile.largest());
            auto d = Form::normalizer(exponentiate(tile, reference(m), x));
            if constexpr (Form::ROWS == 1) {
                softmax_finish finish(m, merge_block<Form, true>(state{m, d}, parts));
                finish(x);
            } else {
                softmax_finish finish(m, parts.template merge<Form>(m, d));
                finish(x);
            }
            row.template store<BLOCK_CHUNKS, Form::STRIDE, true>(chunk, x, tile.kept());
        });
}

ons_status ons_cuda_fused_block(const launch_request &request) {
    return with_rows_or_packs(request, [&](auto rows, auto is_columns) {
        using Rows = typename decltype(rows)::Rows;
        return launch_panels(request, {1, request.plan->threads},
                             fused_block_kernel<Rows, block_form<decltype(is_columns)>>,
                             rows.arguments);
    });
}
