/* safe.cu - three passes: the maximum; the sum of e^(x - m); divide (arXiv 1805.02867, algorithm
 * 2). Moves 3 reads + 1 write of N; one block a row, any N. */
#include "kernel/near_zero.cuh"

template <typename Ops, typename Rows, typename Form>
__global__ void __launch_bounds__(PASS_THREADS)
    safe_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    using Real = typename Rows::Real;
    __shared__ state<Real> parts[2][PASS_THREADS / WARP * Form::ROWS];
    const int64_t index = (int64_t)blockIdx.x * Form::ROWS + Form::row();
    const auto row = Rows::template row<(Form::ROWS > 1)>(args, index);
    state<Real> top = empty_state<Real>();
    for_each_tile<Form, TILE_CHUNKS>(row, 0, chunks_of(row), [&](int64_t, const auto &tile) {
        top.m = larger(top.m, tile.largest());
    });
    Real m = merge_block<Form>(Form::merge_warp(top), parts[0]).m;

    reference<Real> to(m);
    running_state<Real> all;
    all.m = m;
    for_each_tile<Form, TILE_CHUNKS>(row, 0, chunks_of(row), [&](int64_t, const auto &tile) {
        Real x[TILE<Real>];
        all.sum.add(exponentiate(tile, to, x).value());
    });
    state<Real> total = merge_block<Form>(Form::merge_warp(all.rounded()), parts[1]);

    Real log;
    const bool is_near = keep_digits<Ops, Form>(args.operation(), row, total, &log);
    with_operation<Ops>(args.operation(), [&](auto op) {
        using Op = decltype(op);
        if constexpr (Op::ONE_A_ROW) {
            finish_tiles<Op, Form>(args, index, row, 0, 0, is_near ? state_of_one(log) : total);
        } else {
            auto constants = constants_of<Op>(total);
            if (is_near) constants.second = log;
            finish_tiles_with<Op, Form>(args, row, 0, chunks_of(row), constants);
        }
    });
}

ons_status launch_safe(const launch_request &request) {
    return with_rows_or_columns<ONS_FAMILY_safe>(request, [&](auto ops, auto rows, auto form) {
        using Ops = decltype(ops);
        using Rows = typename decltype(rows)::Rows;
        return launch_strips(request, {1, request.plan->threads},
                             safe_kernel<Ops, Rows, decltype(form)>, rows.arguments);
    });
}
