/* naive.cu - exp, sum, divide, without the maximum and in the array's own type: e^x is inf from
 * 88.8 in float32 and from 11.1 in float16, and inf / inf is NaN (arXiv 1805.02867, algorithm 1).
 *
 * Moves 2 reads + 1 write of N; one block a row, any N. */
#include "kernel/passes.cuh"

template <typename Ops, typename Rows, typename Form>
__global__ void __launch_bounds__(PASS_THREADS)
    naive_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    using Real = typename Rows::Real;
    __shared__ state<Real> parts[PASS_THREADS / WARP * Form::ROWS];
    const int64_t index = (int64_t)blockIdx.x * Form::ROWS + Form::row();
    const auto row = Rows::template row<(Form::ROWS > 1)>(args, index);
    auto exponentiate_all = [&](auto &x) {
        row.round(x);
#pragma unroll
        for (auto &e : x) e = exp(e);
        row.round(x);
    };

    running_state<Real> all;
    all.m = 0; /* no maximum: exponentials are of x itself */
    for_each_tile<Form, TILE_CHUNKS>(row, 0, chunks_of(row), [&](int64_t, const auto &tile) {
        Real x[TILE<Real>], of_tile = 0;
        tile.take(x);
        exponentiate_all(x);
#pragma unroll
        for (int e = 0; e < TILE<Real>; e++) of_tile += x[e];
        all.sum.add(of_tile);
    });
    Real d[] = {merge_block<Form>(Form::merge_warp(all.rounded()), parts).d};
    row.round(d);

    if constexpr (Ops::ONE_A_ROW) {
        if (warp_of_block() == 0 && Form::writes() && index + args.launch.first_row < args.rows)
            row.put(Ops::plain_row(args.operation(), d[0]));
    } else {
        Real own[1], excluded;
        with_operation<Ops>(args.operation(), [&](auto op) {
            own[0] = decltype(op)::plain_row(d[0]);
            excluded = decltype(op)::EXCLUDED;
        });
        row.round(own);
        rewrite_tiles<Form, TILE_CHUNKS>(row, 0, chunks_of(row), [&](const auto &tile, auto &x) {
            tile.take(x);
            with_operation<Ops>(args.operation(), [&](auto op) {
                using Op = decltype(op);
                if constexpr (Op::KEEPS == ONS_KEEP_EXPONENTIALS) exponentiate_all(x);
#pragma unroll
                for (int e = 0; e < TILE<Real>; e++) x[e] = Op::plain_element(x[e], own[0]);
            });
            row.round(x);
            return excluded;
        });
    }
}

ons_status launch_naive(const launch_request &request) {
    return with_rows_or_columns<ONS_FAMILY_naive>(request, [&](auto ops, auto rows, auto form) {
        using Ops = decltype(ops);
        using Rows = typename decltype(rows)::Rows;
        return launch_strips(request, {1, request.plan->threads},
                             naive_kernel<Ops, Rows, decltype(form)>, rows.arguments);
    });
}
