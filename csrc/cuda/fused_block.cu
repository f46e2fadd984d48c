/* fused_block.cu - the row stays in the registers of one block. Each warp takes its own maximum and
 * keeps its exponentials relative to it; one exchange of (m, d) through shared memory; then every
 * thread moves its exponentials to the row's reference, an exact power of two. Where the warps are
 * few, they exchange their maxima first, then their sums: a second barrier costs them less.
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at Rows::BLOCK_THREADS threads of
 * BLOCK_CHUNKS chunks. */
#include "fetch.cuh"
#include "few_warps.cuh"
#include "finish.cuh"
#include "launch.cuh"
#include "panel.cuh"

template <typename Rows, typename Form>
__global__ void __launch_bounds__(Rows::BLOCK_THREADS, Rows::BLOCKS)
    fused_block_kernel(const __grid_constant__ typename Rows::arguments of) {
    using Real = typename Rows::Real;
    constexpr int WARPS = Rows::BLOCK_THREADS / WARP;
    __shared__ std::conditional_t<Form::ROWS == 1, state<Real>[WARPS], panel_of_block<Real, WARPS>>
        parts;
    Rows::template visit<(Form::ROWS > 1)>(
        of, (int64_t)blockIdx.x * Form::ROWS + Form::row(), [&](const auto &row) {
            int chunk = Form::template chunk<BLOCK_CHUNKS>(warp_of_block());
            auto tile = row.template load<BLOCK_CHUNKS, Form::STRIDE>(chunk);
            if constexpr (Form::ROWS == 1)
                fetching<Rows>::template ahead<BLOCK_CHUNKS>(of, blockIdx.x, warp_of_block());
            Real x[BLOCK_CHUNKS * Rows::V];
            auto m = Form::max(tile.largest());
            auto d = Form::normalizer(exponentiate(tile, reference(m), x));
            if constexpr (Form::ROWS == 1) {
                softmax_finish finish(m, merge_block<Form, true>(state{m, d}, parts));
                finish(x);
            } else {
                softmax_finish finish(m, parts.template merge<Form>(m, d));
                finish(x);
            }
            row.template store<BLOCK_CHUNKS, Form::STRIDE, true>(chunk, x, tile.kept());
        });
}

/* The threads of the largest such block: of short rows those that a warp could hold too. */
constexpr int few_threads(int chunks_a_thread) {
    constexpr int SHORT = WARP * WARP_CHUNKS, LONG = FEW_WARPS * WARP * FEW_CHUNKS;
    return (chunks_a_thread == SHORT_CHUNKS ? SHORT : LONG) / chunks_a_thread;
}

/* A thread's K chunks in GROUPS groups: those that as many threads have where rows are not of 16
 * bits. */
template <typename Rows, int K, int GROUPS>
__global__ void __launch_bounds__(few_threads(K),
                                  Rows::BLOCKS *Rows::BLOCK_THREADS / few_threads(K))
    fused_block_few_warps_kernel(const __grid_constant__ typename Rows::arguments of) {
    using Real = typename Rows::Real;
    __shared__ few_warps<Real> warps;
    Rows::template visit<false>(of, blockIdx.x, [&](const auto &row) {
        const int chunk = block_a_row::template chunk<K>(warp_of_block());
        auto tile = row.template load<K, WARP>(chunk);
        fetching<Rows>::template ahead<K>(of, blockIdx.x, warp_of_block());
        Real x[K * Rows::V];
        auto m = warps.max(tile.largest());
        auto d = warps.normalizer(exponentiate<GROUPS, SIDE_BY_SIDE>(tile, reference(m), x));
        softmax_finish finish(state{m, d});
        finish(x);
        row.template store<K, WARP, false>(chunk, x, tile.kept());
    });
}

template <typename Rows>
static ons_status launch_few_warps(const launch_request &request, const Rows &rows) {
    using R = typename Rows::Rows;
    const launch_shape shape = {1, request.plan->threads};
    const int chunks = request.plan->elements_a_thread / R::V;
    if constexpr (R::NARROW)
        if (chunks == FEW_CHUNKS_16_BIT)
            return launch_panels(request, shape,
                                 fused_block_few_warps_kernel<R, FEW_CHUNKS_16_BIT, 2>,
                                 rows.arguments);
    return with_constant<SHORT_CHUNKS, FEW_CHUNKS>(chunks, [&](auto K) {
        return launch_panels(request, shape, fused_block_few_warps_kernel<R, decltype(K)::value, 1>,
                             rows.arguments);
    });
}

ons_status ons_cuda_fused_block(const launch_request &request) {
    const ons_plan *plan = request.plan;
    return with_rows_or_packs(request, [&](auto rows, auto is_columns) {
        using Rows = typename decltype(rows)::Rows;
        if constexpr (!decltype(is_columns)::value)
            if (plan->tile <= FEW_WARPS * WARP * FEW_CHUNKS * Rows::V)
                return launch_few_warps(request, rows);
        return launch_panels(request, {1, plan->threads},
                             fused_block_kernel<Rows, block_form<decltype(is_columns)>>,
                             rows.arguments);
    });
}
