/* fused_block.cu - the row stays in the registers of one block. The warps exchange their maxima
 * through shared memory, then the sums of their exponentials (team/block.cuh). statistic/sums.cuh
 * adds up the exponentials of one thread; a block's sum is a fixed_sum (statistic/over_lanes.cuh).
 * fused_block_of_columns.cu has the column form.
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at Rows::BLOCK_THREADS threads of
 * BLOCK_CHUNKS chunks. With a gradient it moves 2 reads + 1 write, and a block has at most
 * GRADIENT_THREADS. */
#include "kernel/held.cuh"
#include "kernel/launch_divergence.cuh"
#include "kernel/launch_loss.cuh"
#include "kernel/launch_rows.cuh"
#include "team/block.cuh"

/* The most threads of a block if each has K chunks. */
template <typename Rows, int K>
constexpr int MAX_THREADS =
    K == SHORT_CHUNKS    ? WARP_CHUNKS * WARP / K
    : K == MEDIUM_CHUNKS ? MEDIUM_WARPS * WARP
    : K == BLOCK_CHUNKS  ? Rows::BLOCK_THREADS
                         : (UNALIGNED_ROW_CHUNKS / K + WARP - 1) / WARP * WARP;

/* Number of such blocks that a multiprocessor must hold; 0 leaves it to the compiler. */
template <typename Rows, int K>
constexpr int MIN_BLOCKS =
    (K > BLOCK_CHUNKS ? UNALIGNED_WARPS * WARP : Rows::BLOCKS * Rows::BLOCK_THREADS) /
    MAX_THREADS<Rows, K>;

template <typename Ops, typename Rows, int K>
__global__ void __launch_bounds__(MAX_THREADS<Rows, K>, MIN_BLOCKS<Rows, K>)
    fused_block_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work(args.launch.next_may_start);
    block<MAX_THREADS<Rows, K> / WARP, TAKES_TWO_ROWS<Ops>> team;
    held<Ops, Rows, K>(args, team);
}

/* The most chunks of a thread. Unaligned rows may have more, since each of their warps has a fixed
 * cost. */
template <typename Rows>
constexpr int MAX_CHUNKS_OF = BLOCK_CHUNKS;
template <>
constexpr int MAX_CHUNKS_OF<contiguous_rows<float, alignment::EITHER>> = UNALIGNED_CHUNKS;
template <>
constexpr int MAX_CHUNKS_OF<contiguous_rows<any_16_bit, alignment::NOT_ALL>> =
    UNALIGNED_CHUNKS_16_BIT;

template <typename Ops, typename Rows, int K, typename Arguments>
static ons_status launch_block(const launch_request &request, const Arguments &arguments) {
    if constexpr (K > MAX_CHUNKS_OF<Rows> || (K != BLOCK_CHUNKS && Ops::ONE_A_ROW))
        return ONS_E_OPERAND;
    else
        return launch_strips(request, {1, request.plan->threads}, fused_block_kernel<Ops, Rows, K>,
                             arguments);
}

ons_status launch_fused_block(const launch_request &request) {
    return with_rows<ONS_FAMILY_fused_block>(request, [&](auto ops, auto rows) {
        using Ops = decltype(ops);
        using Rows = typename decltype(rows)::Rows;
        return with_constant<SHORT_CHUNKS, MEDIUM_CHUNKS, BLOCK_CHUNKS, UNALIGNED_CHUNKS,
                             UNALIGNED_CHUNKS_16_BIT>(
            request.plan->elements_a_thread / Rows::V, [&](auto K) {
                return launch_block<Ops, Rows, decltype(K)::value>(request, rows.arguments);
            });
    });
}

ons_status launch_losses_in_block(const launch_request &request) {
    return with_loss_rows<ONS_FAMILY_fused_block>(request, [&](auto rows) {
        return launch_block<loss_operation, typename decltype(rows)::Rows, BLOCK_CHUNKS>(
            request, rows.arguments);
    });
}

ons_status launch_gradients_in_block(const launch_request &request) {
    return with_gradient_rows(request, [&](auto rows) {
        return launch_block<gradient_operations, typename decltype(rows)::Rows, BLOCK_CHUNKS>(
            request, rows.arguments);
    });
}

ons_status launch_divergences_in_block(const launch_request &request) {
    return with_divergence_rows(request, [&](auto rows) {
        return launch_block<divergence_operation, typename decltype(rows)::Rows, BLOCK_CHUNKS>(
            request, rows.arguments);
    });
}
