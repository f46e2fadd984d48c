/* online.cu - two passes. Every thread runs (m, d) over its tiles, and the block merges them; then
 * it divides (arXiv 1805.02867, algorithm 3 and section 3.1). Moves 2 reads + 1 write of N, of any
 * length. A block has one row, or 32 neighbouring columns. */
#include "kernel/passes.cuh"

/* Unaligned 16-bit rows: loading their chunks takes more registers. */
template <typename Rows>
constexpr bool IS_UNALIGNED_16_BIT = false;
template <typename X>
constexpr bool IS_UNALIGNED_16_BIT<contiguous_rows<X, alignment::NOT_ALL>> = sizeof(X) == 2;

/* Chunks of a thread in a tile. If the row is read once, a tile is larger: as much as the registers
 * of two blocks hold. */
template <typename Ops, typename Rows, typename Form>
constexpr int CHUNKS = !Ops::ONE_A_ROW || Form::ROWS > 1 || Rows::V != CHUNK<float> ? TILE_CHUNKS
                       : IS_UNALIGNED_16_BIT<Rows>                                  ? 5
                                                                                    : VALUE_CHUNKS;
template <typename Ops, typename Rows>
constexpr int BLOCKS = Ops::ONE_A_ROW && IS_UNALIGNED_16_BIT<Rows> ? 2 : 0;

template <typename Ops, typename Rows, typename Form>
__global__ void __launch_bounds__(PASS_THREADS, BLOCKS<Ops, Rows>)
    online_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    using Real = typename Rows::Real;
    __shared__ state<Real> parts[PASS_THREADS / WARP * Form::ROWS];
    const int64_t index = (int64_t)blockIdx.x * Form::ROWS + Form::row();
    const auto row = Rows::template row<(Form::ROWS > 1)>(args, index);
    typename Form::template running<Real> so_far;
    /* Lanes of a row after the last walk over the tiles too: exponentiate() needs whole warps. */
    const int64_t chunks = chunks_of<Rows>(args.N);
    for_each_tile<Form, CHUNKS<Ops, Rows, Form>>(
        row, 0, chunks, [&](int64_t, const auto &tile) { online_step(so_far, tile); });
    const auto total = merge_block<Form>(Form::merge_warp(so_far.rounded()), parts);
    with_operation<Ops>(args.operation(), [&](auto op) {
        finish_tiles<decltype(op), Form>(args, index, row, 0, chunks, total);
    });
}

ons_status launch_online(const launch_request &request) {
    auto launch_as = [&](auto ops, auto rows, auto form) {
        using Ops = decltype(ops);
        using Rows = typename decltype(rows)::Rows;
        return launch_strips(request, {1, request.plan->threads},
                             online_kernel<Ops, Rows, decltype(form)>, rows.arguments);
    };
    if (request.plan->loader == ONS_PACKED)
        return with_slices<ONS_FAMILY_online, whole_packs>(request, [&](auto ops, auto rows) {
            return launch_as(ops, rows, block_of_packs<CHUNK<float>>());
        });
    return with_rows_or_columns<ONS_FAMILY_online>(request, launch_as);
}
