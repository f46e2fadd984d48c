/* split.cu - blocks share a row in parts of a fixed length: the first kernel leaves each part's
 * (m, d) in the workspace, the second merges those of its row and writes its part (arXiv
 * 1805.02867, section 3.1, over blocks). Moves 2 reads + 1 write of N; any N. */
#include "passes.cuh"

/* A block's part of its row, in chunks; a panel has `parts` blocks. */
struct part_of_row {
    int64_t panel, first, end;

    __device__ part_of_row(int parts, int64_t chunks_a_part, int64_t chunks)
        : panel(blockIdx.x / parts),
          first(blockIdx.x % parts * chunks_a_part),
          end(first + chunks_a_part < chunks ? first + chunks_a_part : chunks) {}
};

/* The states lie in `states` by panel, part and row of the panel. */
template <typename Rows, typename Form>
__global__ void __launch_bounds__(PASS_THREADS)
    split_statistics_kernel(const __grid_constant__ typename Rows::arguments of, int parts,
                            int64_t chunks_a_part, state<typename Rows::Real> *states) {
    using Real = typename Rows::Real;
    __shared__ state<Real> warps[PASS_THREADS / WARP * Form::ROWS];
    part_of_row part(parts, chunks_a_part, (of.N + Rows::V - 1) / Rows::V);
    Rows::template visit<(Form::ROWS > 1)>(
        of, part.panel * Form::ROWS + Form::row(), [&](const auto &row) {
            running_state<Real> so_far;
            for_each_tile<Form, TILE_CHUNKS>(
                row, part.first, part.end,
                [&](int64_t, const auto &tile) { online_step(so_far, tile); });
            state<Real> mine = merge_block<Form>(Form::merge_warp(so_far.rounded()), warps);
            states += (of.first * parts + (int64_t)blockIdx.x * Form::ROWS);
            if (warp_of_block() == 0 && Form::writes()) states[Form::row()] = mine;
        });
}

template <typename Rows, typename Form>
__global__ void __launch_bounds__(PASS_THREADS)
    split_finish_kernel(const __grid_constant__ typename Rows::arguments of, int parts,
                        int64_t chunks_a_part, const state<typename Rows::Real> *states) {
    part_of_row part(parts, chunks_a_part, (of.N + Rows::V - 1) / Rows::V);
    Rows::template visit<(Form::ROWS > 1)>(
        of, part.panel * Form::ROWS + Form::row(), [&](const auto &row) {
            states += (of.first + part.panel * Form::ROWS) * parts;
            finish_tiles<Form>(row, part.first, part.end, Form::merge_parts(states, parts));
        });
}

ons_status ons_cuda_split(const launch_request &request) {
    return with_rows(request, [&](auto rows, auto is_columns) {
        using Rows = typename decltype(rows)::Rows;
        using Form = block_form<decltype(is_columns)>;
        const ons_plan *plan = request.plan;
        int parts = (int)plan->blocks_a_row;
        int64_t chunks_a_part = plan->tile / Rows::V;
        auto *states = (state<typename Rows::Real> *)request.workspace;
        launch_shape shape = {parts, plan->threads};
        if (!request.facts) {
            ons_status status = launch_panels(request, shape, split_statistics_kernel<Rows, Form>,
                                              rows.arguments, parts, chunks_a_part, states);
            if (status != ONS_OK) return status;
        }
        return launch_panels(request, shape, split_finish_kernel<Rows, Form>, rows.arguments, parts,
                             chunks_a_part, states);
    });
}
