/* grid.cu - the whole GPU works on one row, in one cooperative launch. Every block goes through its
 * tiles of the row and keeps the last one in registers. It writes its (m, d) to the workspace, and
 * waits for the grid. Then it finishes the tile that it kept, and goes back through the tiles
 * before it. The caches still hold the latest of them.
 *
 * Moves 1 read + 1 write of N if the row fits the registers of the grid (one tile a block), up to 2
 * reads for longer rows; any N. */
#include <cooperative_groups.h>

#include "kernel/passes.cuh"

/* `states` has the states by parity of the strip, then by block, then by row of the strip. A block
 * that is one strip ahead does not disturb a block that still reads, and no block can be two
 * ahead. */
template <typename Ops, typename Rows, typename Form>
__global__ void __launch_bounds__(CLUSTER_THREADS, 1)
    grid_kernel(const __grid_constant__ typename Rows::arguments args,
                state<typename Rows::Real> *states) {
    using Real = typename Rows::Real;
    __shared__ state<Real> parts[2][CLUSTER_THREADS / WARP * Form::ROWS];
    constexpr int STRIDE = Form::STRIDE;
    int warps = gridDim.x * warps_of_block(),
        warp = blockIdx.x * warps_of_block() + warp_of_block();
    int64_t chunk = Form::template chunk<CLUSTER_CHUNKS>(warp);
    int64_t chunks = (int64_t)warps * (CLUSTER_CHUNKS * Form::LANES_ALONG); /* of all blocks */
    int64_t last = ((args.N + Rows::V - 1) / Rows::V - 1) / chunks * chunks;
    int turn = 0;
    for (int64_t first = 0; first < args.rows; first += Form::ROWS, turn ^= 1) {
        const auto row = Rows::template row<(Form::ROWS > 1)>(args, first + Form::row());
        state<Real> *strip = states + (int64_t)turn * gridDim.x * Form::ROWS;

        running_state<Real> so_far;
        Real x[CLUSTER_CHUNKS * Rows::V]; /* at the end, what is kept of the last tile */
        allowed_bits<CLUSTER_CHUNKS * Rows::V> allowed = 0;
        for (int64_t at = 0; at <= last; at += chunks) {
            auto tile = row.template load<CLUSTER_CHUNKS, STRIDE>(chunk + at);
            online_step(so_far, tile, x);
            with_operation<Ops>(args.operation(), [&](auto op) {
                if constexpr (decltype(op)::KEEPS == ONS_KEEP_ELEMENTS) tile.take(x);
            });
            allowed = tile.allowed();
        }
        state<Real> block = merge_block<Form>(Form::merge_warp(so_far.rounded()), parts[turn]);
        if (warp_of_block() == 0 && Form::writes()) strip[Form::slot(blockIdx.x)] = block;
        cooperative_groups::this_grid().sync();
        state<Real> total = Form::merge_parts(strip, gridDim.x);

        if constexpr (Ops::ONE_A_ROW) {
            const bool writes = blockIdx.x == 0 && warp_of_block() == 0 && Form::writes();
            put_value<Ops>(args, first + Form::row(), writes, row, total);
        } else {
            const auto constants = constants_in<Ops>(args.operation(), total);
            const reference<Real> to(total.m);
            Real excluded = finish_kept<Ops, Real>(args.operation(), x, so_far.m, constants);
            row.template store<CLUSTER_CHUNKS, STRIDE, true>(chunk + last, x, allowed, excluded);
            for (int64_t at = last - chunks; at >= 0; at -= chunks) {
                auto tile = row.template load<CLUSTER_CHUNKS, STRIDE>(chunk + at);
                excluded = finish_tile_of<Ops>(args.operation(), tile, to, constants, x);
                row.template store<CLUSTER_CHUNKS, STRIDE, true>(chunk + at, x, tile.allowed(),
                                                                 excluded);
            }
        }
    }
}

ons_status launch_grid(const launch_request &request) {
    return with_rows_or_columns<ONS_FAMILY_grid>(request, [&](auto ops, auto rows, auto form) {
        using Ops = decltype(ops);
        using Rows = typename decltype(rows)::Rows;
        launch_shape shape = {request.plan->blocks_a_row, request.plan->threads};
        shape.cooperative = true;
        return launch(request, shape, grid_kernel<Ops, Rows, decltype(form)>, rows.arguments,
                      (state<typename Rows::Real> *)request.workspace);
    });
}
