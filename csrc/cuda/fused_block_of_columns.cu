/* fused_block_of_columns.cu - fused_block in the column form: a strip of columns stays in the
 * registers of one block, and each warp has a part of every column. Exponentials are taken relative
 * to each warp's maximum, and (m, d) are exchanged at once; then every thread moves its
 * exponentials to the column's reference, an exact power of two. */
#include "kernel/launch_packs.cuh"
#include "team/strip.cuh"
#include "statistic/finish.cuh"

template <typename Ops, typename Rows, typename Form>
__global__ void __launch_bounds__(Rows::BLOCK_THREADS, Rows::BLOCKS)
    fused_block_of_columns_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    using Real = typename Rows::Real;
    __shared__ strip_of_block<Real, Rows::BLOCK_THREADS / WARP> parts;
    const int64_t index = (int64_t)blockIdx.x * Form::ROWS + Form::row();
    Rows::template visit<true>(args, index, [&](const auto &row) {
        int chunk = Form::template chunk<BLOCK_CHUNKS>(warp_of_block());
        auto tile = row.template load<BLOCK_CHUNKS, Form::STRIDE>(chunk);
        Real x[BLOCK_CHUNKS * Rows::V];
        auto m = Form::max(tile.largest());
        [[maybe_unused]] Real excluded = 0;
        with_operation<Ops>(args.operation(), [&](auto op) {
            using Op = decltype(op);
            auto d = Form::normalizer(keep_and_sum<Op>(args.operation(), tile, reference(m), x));
            const auto total = parts.template merge<Form>(m, d, [&](const state<Real> &all) {
                return constants_in<Op>(args.operation(), all);
            });
            if constexpr (Ops::ONE_A_ROW)
                put_value<Op>(args, index, warp_of_block() == 0, row, total);
            else
                excluded = finish_kept<Op, decltype(m)>(args.operation(), x, m, total);
        });
        if constexpr (!Ops::ONE_A_ROW)
            row.template store<BLOCK_CHUNKS, Form::STRIDE, true>(chunk, x, tile.allowed(),
                                                                 excluded);
    });
}

ons_status fused_block_of_columns(const launch_request &request) {
    auto launch_as = [&](auto form) {
        using Form = decltype(form);
        return [&request](auto ops, auto rows) {
            using Rows = typename decltype(rows)::Rows;
            return launch_strips(request, {1, request.plan->threads},
                                 fused_block_of_columns_kernel<decltype(ops), Rows, Form>,
                                 rows.arguments);
        };
    };
    if (request.plan->loader == ONS_PACKED)
        return with_packs<kinds_in_fused_block>(request, launch_as(block_of_packs<CHUNK<float>>()));
    return with_columns(request, launch_as(block_of_columns()));
}
