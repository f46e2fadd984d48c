/* gradient_split.cu - `split` for an operation that takes a gradient. The first kernel writes the
 * sum of each part of a row to the workspace. The second adds up the parts of its row and writes
 * its part of the results.
 *
 * Moves 4 reads + 1 write of N; any N. If the sums are the result, only the first kernel runs. If
 * the sums are given, only the second kernel runs. */
#include "kernel/launch_gradient.cuh"
#include "kernel/parts_of_rows.cuh"

template <typename Rows, typename Form>
__global__ void __launch_bounds__(SPLIT_THREADS)
    gradient_sums_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                         int64_t chunks_a_part, sum_in_double<typename Rows::Real> *sums) {
    await_earlier_work();
    using Sum = sum_in_double<typename Rows::Real>;
    __shared__ Sum warps[SPLIT_THREADS / WARP * Form::ROWS];
    const part_of_rows<Rows, Form> part(args, parts, chunks_a_part);
    const auto row = part.row(args);
    sums = part.of_strip(sums, args, parts);
    with_operation<gradient_operations>(args.operation(), [&](auto op) {
        Sum sum = {};
        for_each_tile<Form, TILE_CHUNKS>(row, part.begin, part.end, [&](int64_t, const auto &tile) {
            sum.add(tile.template sum<decltype(op)>());
        });
        if constexpr (Form::ROWS == 1) sum = sum.template over_lanes<WARP>();
        if (Form::writes()) warps[Form::slot(warp_of_block())] = sum;
        __syncthreads();
        if (warp_of_block() > 0) return;
        sum = {};
        for (int warp = 0; warp < warps_of_block(); warp++) sum.add(warps[Form::slot(warp)]);
        if (Form::writes()) sums[Form::slot(blockIdx.x % parts)] = sum;
    });
}

/* Adds up the parts of all rows, and writes each sum as two doubles. A strip has `width` rows. */
template <typename Real>
__global__ void __launch_bounds__(THREAD_A_ROW_THREADS)
    gradient_give_sums_kernel(const __grid_constant__ problem_arguments args, int parts, int width,
                              const sum_in_double<Real> *sums) {
    await_earlier_work();
    for_each_row(args, [&](int64_t row) {
        using Sum = sum_in_double<Real>;
        auto add = [](Sum all, const Sum &one) {
            all.add(one);
            return all;
        };
        merged_parts(sums, row, parts, width, add).put((double *)row_address(args, row).y);
    });
}

/* A row has `sums_a_row` sums: one for each part, or one. */
template <typename Rows, typename Form>
__global__ void __launch_bounds__(SPLIT_THREADS)
    gradient_finish_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                           int64_t chunks_a_part, int sums_a_row,
                           const sum_in_double<typename Rows::Real> *sums) {
    await_earlier_work();
    using Sum = sum_in_double<typename Rows::Real>;
    const part_of_rows<Rows, Form> part(args, parts, chunks_a_part);
    const auto row = part.row(args);
    sums = part.of_strip(sums, args, sums_a_row);
    Sum sum = {};
    if constexpr (Form::ROWS == 1)
        sum = Sum::by_warp(sums, sums_a_row);
    else
        for (int i = 0; i < sums_a_row; i++) sum.add(sums[Form::slot(i)]);
    with_operation<gradient_operations>(args.operation(), [&](auto op) {
        using Op = decltype(op);
        known(row, [&](const auto &row) {
            for_each_tile<Form, TILE_CHUNKS>(
                row, part.begin, part.end, [&](int64_t chunk, const auto &tile) {
                    row.template store<TILE_CHUNKS, Form::STRIDE, true>(
                        chunk, tile.template results<Op>(sum), tile.allowed(), Op::EXCLUDED);
                });
        });
    });
}

ons_status launch_gradients_in_split(const launch_request &request) {
    return with_gradient_rows_or_columns(request, [&](auto rows, auto form) {
        using Rows = typename decltype(rows)::Rows;
        using Form = decltype(form);
        const int parts = (int)request.plan->blocks_a_row;
        const int64_t chunks_a_part = request.plan->tile / Rows::V;
        const launch_shape shape = {parts, request.plan->threads};
        auto *sums = (sum_in_double<typename Rows::Real> *)request.workspace;
        ons_status status = launch_sums(request, shape, gradient_sums_kernel<Rows, Form>,
                                        rows.arguments, parts, chunks_a_part, sums);
        if (status != ONS_OK) return status;
        if (request.problem->sums)
            return launch_thread_a_row(request, gradient_give_sums_kernel<typename Rows::Real>,
                                       parts, (int)Form::ROWS, sums);
        return launch_strips(request, shape, gradient_finish_kernel<Rows, Form>, rows.arguments,
                             parts, chunks_a_part, has_given(request) ? 1 : parts, sums);
    });
}
