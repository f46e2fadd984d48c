/* split.cu - blocks share a row in parts of a fixed length: the first kernel leaves each part's
 * (m, d) in the workspace, the second merges those of its row and writes its part (arXiv
 * 1805.02867, section 3.1, over blocks). Moves 2 reads + 1 write of N; any N. Where the pairs of
 * the rows are given, they take the place of the parts' (1 read). */
#include "kernel/passes.cuh"

/* Of a row that warps share, fewer threads with more of it each than in the other methods that pass
 * several times: a block has less to merge, and so more of them fit. */
template <typename Form>
constexpr int THREADS = Form::ROWS == 1 ? SPLIT_THREADS : PASS_THREADS;
template <typename Real, typename Form>
constexpr int CHUNKS =
    Form::ROWS == 1 && sizeof(Real) == sizeof(float) ? SPLIT_CHUNKS : TILE_CHUNKS;

/* The fewest blocks that fit a multiprocessor: of rows without gaps that do not begin with a pack
 * it would be two, though with three a few bytes are spilled. */
template <typename Rows>
constexpr int MIN_BLOCKS = 2;
template <typename X, alignment ALIGNED>
constexpr int MIN_BLOCKS<contiguous_rows<X, ALIGNED>> = sizeof(X) <= sizeof(float) ? 3 : 2;

/* The states lie in `states` by strip, part and row of the strip. */
template <typename Rows, typename Form>
__global__ void __launch_bounds__(THREADS<Form>, MIN_BLOCKS<Rows>)
    split_statistics_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                            int64_t chunks_a_part, state<typename Rows::Real> *states) {
    await_earlier_work();
    using Real = typename Rows::Real;
    __shared__ state<Real> warps[THREADS<Form> / WARP * Form::ROWS];
    part_of_row part(parts, chunks_a_part, (args.N + Rows::V - 1) / Rows::V);
    const auto row =
        Rows::template row<(Form::ROWS > 1)>(args, part.strip * Form::ROWS + Form::row());
    running_state<Real> so_far;
    for_each_tile<Form, CHUNKS<Real, Form>>(
        row, part.begin, part.end, [&](int64_t, const auto &tile) { online_step(so_far, tile); });
    state<Real> mine = merge_block<Form>(Form::merge_warp(so_far.rounded()), warps);
    states += (args.first_row * parts + (int64_t)blockIdx.x * Form::ROWS);
    if (warp_of_block() == 0 && Form::writes()) states[Form::row()] = mine;
}

/* The state of a row from those of its parts. In the row form they are shared out to all threads of
 * the block, which call this together and once. */
template <typename Form, typename Real>
__device__ inline state<Real> merge_row(const state<Real> *states, int parts) {
    if constexpr (Form::ROWS > 1) {
        return Form::merge_parts(states, parts);
    } else {
        __shared__ state<Real> warps[THREADS<Form> / WARP];
        return merge_block<Form>(
            Form::merge_warp(merge_some(states, threadIdx.x, parts, blockDim.x)), warps);
    }
}

constexpr int64_t MAX_BLOCKS = 1 << 16; /* of what takes the pairs */

/* The states of all rows from their pairs. */
template <typename Real>
__global__ void __launch_bounds__(PASS_THREADS)
    split_take_pairs_kernel(const __grid_constant__ problem_arguments args, state<Real> *states) {
    await_earlier_work();
    const ons_operand &pairs = args.problem.operand[ONS_STATISTIC];
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; row < args.rows;
         row += step) {
        const char *at = pairs.data;
        int64_t index = row;
#pragma unroll 1
        for (int dim = args.problem.dims - args.problem.reduced_dims - 1; dim >= 0; dim--) {
            const int64_t extent = dim > 0 ? args.problem.extent[dim] : index + 1;
            at += index % extent * pairs.stride[dim];
            index /= extent;
        }
        states[row] = state_of<Real>(*(const ons_pair *)at);
    }
}

/* A row has `states_a_row` states: one of each part, or one. */
template <typename Ops, typename Rows, typename Form>
__global__ void __launch_bounds__(THREADS<Form>, MIN_BLOCKS<Rows>)
    split_finish_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                        int64_t chunks_a_part, int states_a_row,
                        const state<typename Rows::Real> *states) {
    await_earlier_work();
    part_of_row part(Ops::ONE_A_ROW ? 1 : parts, chunks_a_part, (args.N + Rows::V - 1) / Rows::V);
    const int64_t index = part.strip * Form::ROWS + Form::row();
    const auto row = Rows::template row<(Form::ROWS > 1)>(args, index);
    states += (args.first_row + part.strip * Form::ROWS) * states_a_row;
    const auto total = merge_row<Form>(states, states_a_row);
    finish_tiles<Ops, Form, CHUNKS<typename Rows::Real, Form>>(args, index, row, part.begin,
                                                               part.end, total);
}

ons_status launch_split(const launch_request &request) {
    return with_rows_or_columns<ONS_FAMILY_split>(request, [&](auto ops, auto rows, auto form) {
        using Ops = decltype(ops);
        using Rows = typename decltype(rows)::Rows;
        using Form = decltype(form);
        const ons_plan *plan = request.plan;
        int parts = (int)plan->blocks_a_row;
        int64_t chunks_a_part = plan->tile / Rows::V;
        auto *states = (state<typename Rows::Real> *)request.workspace;
        launch_shape shape = {parts, plan->threads};
        const bool given = request.problem->operand[ONS_STATISTIC].data;
        if (!request.facts && given) {
            const int64_t blocks = (plan->rows + PASS_THREADS - 1) / PASS_THREADS;
            ons_status status =
                launch(request, {blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS, PASS_THREADS},
                       split_take_pairs_kernel<typename Rows::Real>, as_it_is(request), states);
            if (status != ONS_OK) return status;
        } else if (!request.facts) {
            ons_status status = launch_strips(request, shape, split_statistics_kernel<Rows, Form>,
                                              rows.arguments, parts, chunks_a_part, states);
            if (status != ONS_OK) return status;
        }
        if (Ops::ONE_A_ROW) shape.blocks = 1; /* of a strip: it merges, and reads no element */
        return launch_strips(request, shape, split_finish_kernel<Ops, Rows, Form>, rows.arguments,
                             parts, chunks_a_part, given ? 1 : parts, states);
    });
}
