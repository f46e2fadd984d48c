/* gradient_warp.cu - fused_warp of an operation that takes a gradient: both rows stay in the
 * registers of one warp, or of as few of its lanes as hold them, and a block has several rows.
 *
 * Moves 2 reads + 1 write of N. Stops at 32 lanes of WARP_CHUNKS chunks. */
#include "kernel/launch_gradient.cuh"
#include "team/warp_row.cuh"

template <typename Rows, typename Form, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    gradient_warp_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    const int64_t index = (int64_t)blockIdx.x * Form::rows() + Form::row();
    Rows::template visit<true, TEST_WHEN_HELD<Rows>>(args, index, [&](const auto &row) {
        const int chunk = Form::template chunk<K>();
        const auto tile = row.template load<K, Form::STRIDE>(chunk);
        with_gradient(args.operation(), [&](auto op) {
            using Op = decltype(op);
            const auto sum = merge_sums<Form::STRIDE>(tile.template sum<Op>());
            row.template finish<Op, Form::STRIDE, false>(chunk, tile, sum.rounded());
        });
    });
}

ons_status gradient_warp(const launch_request &request) {
    const ons_plan *plan = request.plan;
    return with_gradient_rows(request, [&](auto rows) {
        using Rows = typename decltype(rows)::Rows;
        ons_status status = ONS_E_OPERAND;
        const int chunks = plan->elements_a_thread / Rows::V;
#define ONS_GRADIENT_SHAPE(L, K)                            \
    if (plan->lanes == L && chunks == K)                    \
        status = launch_strips(request, {1, plan->threads}, \
                               gradient_warp_kernel<Rows, lanes_a_row<L>, K>, rows.arguments);
#include "kernel/instances.def"
#undef ONS_GRADIENT_SHAPE
        return status;
    });
}
