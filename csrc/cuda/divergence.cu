/* divergence.cu - divergences between any rows, and their gradients (op/divergence.h). A block
 * takes a row of both inputs tile by tile: once for the pairs and the mean of the terms, once more
 * for the terms of js_divergence, and once more for the gradient. Rows without gaps have other
 * kernels: kernel/launch_divergence.cuh for kl_divergence, js.cu for js_divergence.
 *
 * Moves 2 reads of N, 4 for js_divergence, and with the gradient 2 reads + 1 write more; any N. */
#include "kernel/launch_divergence.cuh"
#include "kernel/launch_loss.cuh"
#include "kernel/passes.cuh"
#include "statistic/js.cuh"

/* Two general rows of logits. */
template <typename Compute>
struct any_rows_of_logits {
    using of_weights = general_rows<Compute, ONS_X>;
    using of_rest = general_rows<Compute, ONS_GRADIENT>;
    using Real = Compute;
    using arguments = problem_arguments;
    static constexpr int V = of_weights::V;
};

constexpr int DIVERGENCE_WARPS = PASS_THREADS / WARP;

/* The sums of a thread that reads a row tile by tile. All lanes of a warp have one m. */
template <typename Real>
struct running_divergence {
    divergence_state<Real, double> so_far = {
        {-arithmetic<Real>::infinity(), -arithmetic<Real>::infinity()}, {0, 0, 0}, 0};

    template <typename Tile>
    __device__ void add(Tile &tile) {
        const largest_of_two<Real> of_tile = {tile.weights.largest(), tile.rest.largest()},
                                   of_warp = of_tile.template over_lanes<WARP>(),
                                   m = {larger(so_far.m.weights, of_warp.weights),
                                        larger(so_far.m.rest, of_warp.rest)};
        so_far.sum = so_far.relative_to(m);
        so_far.m = m;
        const divergence_sums<Real> sum = sums_of_tile(tile.weights, tile.rest, m);
        so_far.sum += {(double)sum.d, (double)sum.d_of_rest, (double)sum.s};
    }
    __device__ divergence_state<Real, double> of_warp() const {
        return {so_far.m, so_far.sum.template over_lanes<WARP>(), 0};
    }
};

/* Adds up the sums of a block's threads in a fixed order. All threads get the result. */
__device__ inline of_both<double> sum_of_block(const of_both<double> &mine) {
    __shared__ of_both<double> parts[DIVERGENCE_WARPS];
    const of_both<double> of_warp = mine.over_lanes<WARP>();
    if (threadIdx.x % WARP == 0) parts[warp_of_block()] = of_warp;
    __syncthreads();
    return merge_held_by_warp(parts, warps_of_block());
}

/* Calls visit(chunk, tile) with this thread's tiles of both rows. */
template <typename Row, typename Visit>
__device__ inline void for_each_pair_of_tiles(const Row &row, Visit visit) {
    constexpr int V = Row::V;
    for_each_tile<block_a_row, TILE_CHUNKS>(row, 0, (row.N + V - 1) / V, visit);
}

template <typename Compute>
__global__ void __launch_bounds__(PASS_THREADS)
    divergence_kernel(const __grid_constant__ problem_arguments args,
                      const __grid_constant__ ons_loss loss,
                      const __grid_constant__ js_mixture mixture) {
    await_earlier_work(args.launch.next_may_start);
    using Real = Compute;
    using Rows = any_rows_of_logits<Compute>;
    __shared__ divergence_state<Real, double> parts[DIVERGENCE_WARPS];
    constexpr int K = TILE_CHUNKS;
    const int64_t index = blockIdx.x, number = args.launch.first_row + index;
    const typename Rows::of_weights of_weights(args, index);
    const typename Rows::of_rest of_rest(args, index);
    const gradient_row<typename Rows::of_weights, typename Rows::of_rest, tiles_of_logits> row(
        of_weights, of_rest, 1);
    const bool is_js = args.operation() == ONS_OPERATION_js_divergence;

    running_divergence<Real> running;
    bool has_elements = false;
    for_each_pair_of_tiles(row, [&](int64_t, auto tile) {
        running.add(tile);
        has_elements |= tile.allowed() != 0;
    });
    const auto of_warp = running.of_warp();
    if (threadIdx.x % WARP == 0) parts[warp_of_block()] = of_warp;
    has_elements = __syncthreads_or(has_elements);
    const divergence_state<Real, double> whole = merge_held_by_warp(parts, warps_of_block());
    const divergence_of_row<Real> of_row(whole);
    const js_of_row<Real> js(whole, mixture);
    of_both<double> terms = {0, 0};
    double value = (double)of_row.value();
    if (is_js) {
        for_each_pair_of_tiles(row, [&](int64_t, const auto &tile) { terms += js.terms(tile); });
        terms = sum_of_block(terms);
        value = js.value(terms);
    }
    if (threadIdx.x == 0) ons_set_real(&loss, loss.loss, number, has_elements ? value : 0);
    if (!loss.gradient) return;

    const double given = loss.given ? ons_real_at(&loss, loss.given, number * loss.given_step) : 1;
    const Real by = (Real)(given * loss.share * of_weights.scale());
    const gradient_of_divergence<Real> gradient(of_row, by);
    const gradient_of_js<Real, false> of_js(js, terms, by);
    const bool is_of_rest = args.operation() == ONS_OPERATION_reverse_kl_divergence;
    for_each_pair_of_tiles(row, [&](int64_t chunk, const auto &tile) {
        auto store = [&](const auto &result) {
            row.template store<K, WARP, false>(chunk, result, tile.allowed(), 0);
        };
        if (is_js)
            of_js.of_tile(tile, store);
        else
            store([&](int e) {
                return gradient.element(is_of_rest, tile.weights.element(e), tile.rest.element(e));
            });
    });
}

ons_status launch_divergence(const launch_request &request) {
    const weights_first swapped(request);
    ons_status status = ONS_OK;
    auto launch_with = [&](auto real) {
        return launch_strips(request, {1, request.plan->threads}, divergence_kernel<decltype(real)>,
                             as_it_is(swapped.request()), *request.problem->loss,
                             js_mixture(request.problem->loss->beta));
    };
    if (request.plan->rows > 0)
        status =
            request.plan->compute == ONS_FLOAT64 ? launch_with(double()) : launch_with(float());
    return status == ONS_OK ? reduce_divergences(request) : status;
}

ons_status reduce_divergences(const launch_request &request) {
    return reduce_losses(request, false);
}
