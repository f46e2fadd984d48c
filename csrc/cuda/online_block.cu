/* online_block.cu - the row stays in the registers of one block, as in fused_block, but every
 * thread runs (m, d) over its chunks as they arrive (arXiv 1805.02867, algorithm 3). It can begin
 * before its last chunk is there, and pays with a second exponential an element at the end.
 *
 * Moves 1 read + 1 write of N. Stops at Rows::BLOCK_THREADS threads of BLOCK_CHUNKS chunks. */
#include "kernel/held.cuh"
#include "kernel/launch_rows.cuh"
#include "statistic/running_pair.cuh"
#include "team/block.cuh"

template <typename Ops, typename Rows>
__global__ void __launch_bounds__(Rows::BLOCK_THREADS, Rows::BLOCKS)
    online_block_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    block<Rows::BLOCK_THREADS / WARP, true> team;
    held<Ops, Rows, BLOCK_CHUNKS, running_pair>(args, team);
}

ons_status launch_online_block(const launch_request &request) {
    return with_rows<ONS_FAMILY_online_block>(request, [&](auto ops, auto rows) {
        using Rows = typename decltype(rows)::Rows;
        return launch_strips(request, {1, request.plan->threads},
                             online_block_kernel<decltype(ops), Rows>, rows.arguments);
    });
}
