/* divergence.cu - divergences between any rows, and their gradients (op/divergence.h). A block
 * takes a row of both inputs tile by tile: once for the pairs and the mean of the terms, once more
 * for the terms of js_divergence, and once more for the gradient. Rows of kl_divergence without
 * gaps are held in a warp, a block or a cluster (kernel/launch_divergence.cuh).
 *
 * Moves 2 reads of N, 4 for js_divergence, and with the gradient 2 reads + 1 write more; any N. */
#include "kernel/launch_divergence.cuh"
#include "kernel/launch_loss.cuh"
#include "kernel/passes.cuh"

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

/* The sums of both kinds of terms of js_divergence. */
struct js_sums {
    double of_p, of_q;

    __device__ void operator+=(const js_sums &other) {
        of_p += other.of_p;
        of_q += other.of_q;
    }
};

/* Adds up the sums of a block's threads in a fixed order. All threads get the result. */
__device__ inline js_sums sum_of_block(const js_sums &mine) {
    __shared__ js_sums parts[DIVERGENCE_WARPS];
    const js_sums of_warp = {sum_over_lanes<WARP>(mine.of_p), sum_over_lanes<WARP>(mine.of_q)};
    if (threadIdx.x % WARP == 0) parts[warp_of_block()] = of_warp;
    __syncthreads();
    js_sums all = {0, 0};
    for (int warp = 0; warp < warps_of_block(); warp++) all += parts[warp];
    return all;
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
                      const __grid_constant__ ons_loss loss) {
    await_earlier_work(args.launch.next_may_start);
    using Real = Compute;
    using Rows = any_rows_of_logits<Compute>;
    __shared__ divergence_state<Real, double> parts[DIVERGENCE_WARPS];
    constexpr int V = Rows::V, K = TILE_CHUNKS;
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
    const divergence_of_row<Real> of_row(merge_held_by_warp(parts, warps_of_block()));
    gradient_of_divergence<Real> gradient(of_row, 1);

    const Real beta = (Real)loss.beta, log_d = is_js ? of_row.log_d() : 0;
    auto ratio = [&](Real weight, Real rest) { return gradient.apart(weight, rest) - log_d; };
    js_sums sums = {0, 0};
    if (is_js) {
        for_each_pair_of_tiles(row, [&](int64_t, const auto &tile) {
#pragma unroll 4
            for (int e = 0; e < K * V; e++) {
                const Real x = tile.weights.element(e), other = tile.rest.element(e);
                const Real p = gradient.p(x), q = gradient.q(other), log_ratio = ratio(x, other);
                if (p != 0) sums.of_p += (double)(p * over_mixture(log_ratio, beta));
                if (q != 0) sums.of_q += (double)(q * over_mixture(-log_ratio, 1 - beta));
            }
        });
        sums = sum_of_block(sums);
    }
    if (threadIdx.x == 0) {
        double value =
            is_js ? loss.beta * sums.of_p + (1 - loss.beta) * sums.of_q : (double)of_row.value();
        if (is_js && !of_row.is_finite()) value = arithmetic<double>::nan();
        ons_set_real(&loss, loss.loss, number, has_elements ? value : 0);
    }
    if (!loss.gradient) return;

    const double given = loss.given ? ons_real_at(&loss, loss.given, number * loss.given_step) : 1;
    gradient.by = (Real)(given * loss.share * of_weights.scale() * (is_js ? loss.beta : 1));
    for_each_pair_of_tiles(row, [&](int64_t chunk, const auto &tile) {
        Real y[K * V];
#pragma unroll
        for (int e = 0; e < K * V; e++) {
            const Real weight = tile.weights.element(e), rest = tile.rest.element(e);
            if (is_js) {
                const Real p = gradient.p(weight);
                y[e] = p == 0
                           ? 0
                           : gradient.by *
                                 (p * (over_mixture(ratio(weight, rest), beta) - (Real)sums.of_p));
            } else if (args.operation() == ONS_OPERATION_kl_divergence) {
                y[e] = gradient.of_weight(weight, rest);
            } else {
                y[e] = gradient.of_rest(weight, rest);
            }
        }
        row.template store<K, WARP, false>(chunk, [&](int e) { return y[e]; }, tile.allowed(), 0);
    });
}

ons_status launch_divergence(const launch_request &request) {
    const weights_first swapped(request);
    ons_status status = ONS_OK;
    auto launch_with = [&](auto real) {
        return launch_strips(request, {1, request.plan->threads}, divergence_kernel<decltype(real)>,
                             as_it_is(swapped.request()), *request.problem->loss);
    };
    if (request.plan->rows > 0)
        status =
            request.plan->compute == ONS_FLOAT64 ? launch_with(double()) : launch_with(float());
    return status == ONS_OK ? reduce_divergences(request) : status;
}

ons_status reduce_divergences(const launch_request &request) {
    return reduce_losses(request, false);
}
