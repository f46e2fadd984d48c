/* gradient_split.cu - split of an operation that takes a gradient: the first kernel leaves the sum
 * of each part of a row in the workspace, the second adds up those of its row and writes its part.
 *
 * Moves 4 reads + 1 write of N; any N. Where the sums are the result, or are given, it is one of
 * the two. */
#include "kernel/launch_gradient.cuh"
#include "kernel/passes.cuh"

/* Where the sums of a strip's parts lie, by part and row. */
template <typename Form, typename Sum>
__device__ inline Sum *sums_of(Sum *sums, int parts, const part_of_row &part, int64_t first_row) {
    return sums + (first_row + part.strip * Form::ROWS) * parts;
}

template <typename Rows, typename Form>
__global__ void __launch_bounds__(SPLIT_THREADS)
    gradient_sums_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                         int64_t chunks_a_part, sum_in_double<typename Rows::Real> *sums) {
    await_earlier_work();
    using Sum = sum_in_double<typename Rows::Real>;
    __shared__ Sum warps[SPLIT_THREADS / WARP * Form::ROWS];
    const part_of_row part(parts, chunks_a_part, (args.N + Rows::V - 1) / Rows::V);
    sums = sums_of<Form>(sums, parts, part, args.first_row);
    const int64_t index = part.strip * Form::ROWS + Form::row();
    const auto row = Rows::template row<(Form::ROWS > 1)>(args, index);
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

constexpr int64_t MAX_BLOCKS = 1 << 16; /* of the next two */

/* The sums of all rows from those of their parts, as two doubles; a strip has `width` rows. */
template <typename Real>
__global__ void __launch_bounds__(SPLIT_THREADS)
    gradient_give_sums_kernel(const __grid_constant__ problem_arguments args, int parts, int width,
                              const sum_in_double<Real> *sums) {
    await_earlier_work();
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; row < args.rows;
         row += step) {
        const sum_in_double<Real> *of_row = sums + row / width * parts * width + row % width;
        sum_in_double<Real> sum = {};
#pragma unroll 1
        for (int part = 0; part < parts; part++) sum.add(of_row[part * width]);
        sum.put((double *)row_address(args, row).y);
    }
}

/* The sums of all rows from what is given. */
template <typename Real>
__global__ void __launch_bounds__(SPLIT_THREADS)
    gradient_take_sums_kernel(const __grid_constant__ problem_arguments args,
                              sum_in_double<Real> *sums) {
    await_earlier_work();
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; row < args.rows; row += step)
        sums[row] =
            sum_in_double<Real>::from((const double *)row_address(args, row, ONS_STATISTIC).x);
}

/* A row has `sums_a_row` sums: one of each part, or one. */
template <typename Rows, typename Form>
__global__ void __launch_bounds__(SPLIT_THREADS)
    gradient_finish_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                           int64_t chunks_a_part, int sums_a_row,
                           const sum_in_double<typename Rows::Real> *sums) {
    await_earlier_work();
    using Sum = sum_in_double<typename Rows::Real>;
    const part_of_row part(parts, chunks_a_part, (args.N + Rows::V - 1) / Rows::V);
    sums = sums_of<Form>(sums, sums_a_row, part, args.first_row);
    const int64_t index = part.strip * Form::ROWS + Form::row();
    const auto row = Rows::template row<(Form::ROWS > 1)>(args, index);
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
                        chunk, tile.template results<Op>(sum.rounded()), tile.allowed(),
                        Op::EXCLUDED);
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
        const bool given = request.problem->operand[ONS_STATISTIC].data;
        const int64_t blocks = (request.plan->rows + SPLIT_THREADS - 1) / SPLIT_THREADS;
        const launch_shape of_rows = {blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS, SPLIT_THREADS};
        if (!request.facts && given) {
            ons_status status =
                launch(request, of_rows, gradient_take_sums_kernel<typename Rows::Real>,
                       as_it_is(request), sums);
            if (status != ONS_OK) return status;
        } else if (!request.facts) {
            ons_status status = launch_strips(request, shape, gradient_sums_kernel<Rows, Form>,
                                              rows.arguments, parts, chunks_a_part, sums);
            if (status != ONS_OK) return status;
        }
        if (request.problem->sums)
            return launch(request, of_rows, gradient_give_sums_kernel<typename Rows::Real>,
                          as_it_is(request), parts, (int)Form::ROWS, sums);
        return launch_strips(request, shape, gradient_finish_kernel<Rows, Form>, rows.arguments,
                             parts, chunks_a_part, given ? 1 : parts, sums);
    });
}
