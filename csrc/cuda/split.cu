/* split.cu - blocks share a row in parts of a fixed length. The first kernel writes each part's (m,
 * d) to the workspace. The second merges the parts of its row and writes its part of the results
 * (arXiv 1805.02867, section 3.1, over blocks). Moves 2 reads + 1 write of N; any N. If the caller
 * gives the pairs of the rows, only the second kernel runs (1 read). */
#include "kernel/parts_of_rows.cuh"

/* In the row form a block has fewer threads with more chunks each than other methods with several
 * passes. It has less to merge, so more blocks fit. */
template <typename Form>
constexpr int THREADS = Form::ROWS == 1 ? SPLIT_THREADS : PASS_THREADS;
template <typename Real, typename Form>
constexpr int CHUNKS =
    Form::ROWS == 1 && sizeof(Real) == sizeof(float) ? SPLIT_CHUNKS : TILE_CHUNKS;

/* The fewest blocks that fit a multiprocessor. Unaligned rows without gaps would fit two. They have
 * three, and spill a few bytes. */
template <typename Rows>
constexpr int MIN_BLOCKS = 2;
template <typename X, alignment ALIGNED>
constexpr int MIN_BLOCKS<contiguous_rows<X, ALIGNED>> = sizeof(X) <= sizeof(float) ? 3 : 2;

template <typename Rows, typename Form>
__global__ void __launch_bounds__(THREADS<Form>, MIN_BLOCKS<Rows>)
    split_statistics_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                            int64_t chunks_a_part, state<typename Rows::Real> *states) {
    await_earlier_work();
    using Real = typename Rows::Real;
    __shared__ state<Real> warps[THREADS<Form> / WARP * Form::ROWS];
    const part_of_rows<Rows, Form> part(args, parts, chunks_a_part);
    const auto row = part.row(args);
    running_state<Real> so_far;
    for_each_tile<Form, CHUNKS<Real, Form>>(
        row, part.begin, part.end, [&](int64_t, const auto &tile) { online_step(so_far, tile); });
    state<Real> mine = merge_block<Form>(Form::merge_warp(so_far.rounded()), warps);
    if (warp_of_block() == 0 && Form::writes()) *part.of_part(states, args, parts) = mine;
}

/* Merges the states of the parts of this lane's row. All threads of the block share this work: they
 * must call it together and once. In the column form each warp takes some of the parts. */
template <typename Form, typename Real>
__device__ inline state<Real> merge_row(const state<Real> *states, int parts) {
    __shared__ state<Real> warps[THREADS<Form> / WARP * Form::ROWS];
    const state<Real> some = merge_some(states, threadIdx.x, parts * Form::ROWS, blockDim.x);
    return merge_block<Form>(Form::merge_warp(some), warps);
}

/* A row has `states_a_row` states: one for each part, or one. */
template <typename Ops, typename Rows, typename Form>
__global__ void __launch_bounds__(THREADS<Form>, MIN_BLOCKS<Rows>)
    split_finish_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                        int64_t chunks_a_part, int states_a_row,
                        const state<typename Rows::Real> *states) {
    await_earlier_work();
    const part_of_rows<Rows, Form> part(args, Ops::ONE_A_ROW ? 1 : parts, chunks_a_part);
    const auto row = part.row(args);
    const auto total = merge_row<Form>(part.of_strip(states, args, states_a_row), states_a_row);
    finish_tiles<Ops, Form, CHUNKS<typename Rows::Real, Form>>(args, part.index(), row, part.begin,
                                                               part.end, total);
}

ons_status launch_split(const launch_request &request) {
    return with_rows_or_columns<ONS_FAMILY_split>(request, [&](auto ops, auto rows, auto form) {
        using Ops = decltype(ops);
        using Rows = typename decltype(rows)::Rows;
        using Form = decltype(form);
        const int parts = (int)request.plan->blocks_a_row;
        const int64_t chunks_a_part = request.plan->tile / Rows::V;
        auto *states = (state<typename Rows::Real> *)request.workspace;
        launch_shape shape = {parts, request.plan->threads};
        ons_status status = launch_sums(request, shape, split_statistics_kernel<Rows, Form>,
                                        rows.arguments, parts, chunks_a_part, states);
        if (status != ONS_OK) return status;
        if (Ops::ONE_A_ROW) shape.blocks = 1; /* one block a strip merges, and reads no element */
        return launch_strips(request, shape, split_finish_kernel<Ops, Rows, Form>, rows.arguments,
                             parts, chunks_a_part, has_given(request) ? 1 : parts, states);
    });
}
