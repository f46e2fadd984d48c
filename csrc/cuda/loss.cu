/* loss.cu - the losses of rows whose pairs are given, and their gradient (api/loss.h).
 *
 * losses: a thread takes a row, and reads one element of it. One block then adds up all rows.
 * loss_gradient: blocks share a row in parts, as in split.cu. Moves 1 read + 1 write of N. */
#include "../api/loss.h"
#include "kernel/parts_of_rows.cuh"

/* ------- The losses ------- */

__global__ void __launch_bounds__(THREAD_A_ROW_THREADS)
    losses_kernel(const __grid_constant__ problem_arguments args) {
    await_earlier_work();
    const ons_problem &problem = args.problem;
    const ons_loss &loss = problem.loss;
    for_each_row(args, [&](int64_t row) {
        const int64_t target = ons_target_of(&loss, row, args.N);
        ons_pair pair = ((const ons_pair *)problem.operand[ONS_STATISTIC].data)[row];
        pair.d = loss.in_double ? d_of<double>(pair) : d_of<float>(pair);
        double value = target == ONS_IGNORED ? 0.0 : arithmetic<double>::nan();
        if (target >= 0) {
            const ons_operand &x = problem.operand[ONS_X];
            const char *logit = row_address(args, row).x + target * x.stride[problem.dims - 1];
            value = ons_loss_of(&loss, row, target, args.N, pair, read_as<double>(logit, x.dtype));
        }
        ons_set_real(&loss, loss.loss, row, value);
        if (loss.lse) ons_set_real(&loss, loss.lse, row, ons_lse_of(pair));
    });
}

constexpr int REDUCE_THREADS = 512;

/* The sum of a number of each thread, in a fixed order; thread 0 gets it. */
__device__ inline double sum_of_block(double mine) {
    __shared__ double warps[REDUCE_THREADS / WARP];
    mine = sum_over_lanes<WARP>(mine);
    __syncthreads();
    if (threadIdx.x % WARP == 0) warps[warp_of_block()] = mine;
    __syncthreads();
    return sum_over_lanes<WARP>(threadIdx.x < REDUCE_THREADS / WARP ? warps[threadIdx.x] : 0.0);
}

__global__ void __launch_bounds__(REDUCE_THREADS)
    reduced_loss_kernel(const __grid_constant__ problem_arguments args) {
    await_earlier_work();
    const ons_loss &loss = args.problem.loss;
    double sum = 0, weights = 0;
    for (int64_t row = threadIdx.x; row < args.rows; row += REDUCE_THREADS) {
        const int64_t target = ons_target_of(&loss, row, args.N);
        sum += ons_real_at(&loss, loss.loss, row);
        if (target >= 0) weights += ons_class_weight(&loss, target);
    }
    sum = sum_of_block(sum);
    weights = sum_of_block(weights);
    if (threadIdx.x > 0) return;
    if (loss.divisor) *loss.divisor = weights;
    ons_set_real(&loss, loss.reduced, 0, loss.divisor ? sum / weights : sum);
}

ons_status launch_losses(const launch_request &request) {
    const ons_status status = launch_thread_a_row(request, losses_kernel);
    if (status != ONS_OK || !request.problem->loss.reduced) return status;
    return launch(request, {1, REDUCE_THREADS}, reduced_loss_kernel, as_it_is(request));
}

/* ------- The gradient ------- */

/* What a block knows of its row. */
template <typename Real>
struct row_of_loss {
    const ons_loss &loss;
    int64_t target;
    Real each = 0, own = 0;
    row_constants<Real> constants;

    __device__ row_of_loss(const ons_loss &loss_, int64_t row, int64_t N, const ons_pair &pair)
        : loss(loss_), target(ons_target_of(&loss, row, N)) {
        constants = constants_of<softmax>(state_of<Real>(pair));
        if (target < 0) return;
        const ons_loss_gradient of =
            ons_gradient_of_loss(&loss, row, target, N, {pair.m, d_of<Real>(pair)});
        const double product = ((double)constants.first + (double)constants.second) * of.all;
        constants.first = (Real)product;
        constants.second = (Real)(product - (double)constants.first);
        each = (Real)of.each;
        own = (Real)of.target;
    }

    /* Turns the results of a thread's chunks, which begin at element `first`, into the gradient. */
    template <int STRIDE, int V, int n>
    __device__ __forceinline__ void finish(int64_t first, int64_t N, Real (&y)[n]) const {
        if (target < 0) {
#pragma unroll
            for (int e = 0; e < n; e++)
                y[e] = target == ONS_IGNORED ? (Real)0 : arithmetic<Real>::nan();
            return;
        }
        if (each != 0) {
#pragma unroll
            for (int e = 0; e < n; e++) {
                const int64_t j = first + place<STRIDE, V>(e);
                if (j < N) y[e] -= each * (Real)ons_class_weight(&loss, j);
            }
        }
        const int64_t at = target - first;
        if (at < 0 || at > place<STRIDE, V>(n - 1)) return;
#pragma unroll
        for (int e = 0; e < n; e++)
            if (at == place<STRIDE, V>(e)) y[e] -= own;
    }
};

template <typename Rows>
__global__ void __launch_bounds__(SPLIT_THREADS)
    loss_gradient_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                         int64_t chunks_a_part, const __grid_constant__ ons_loss loss,
                         const ons_pair *pairs) {
    await_earlier_work();
    using Real = typename Rows::Real;
    constexpr int K = TILE_CHUNKS, V = Rows::V;
    const part_of_rows<Rows, block_a_row> part(args, parts, chunks_a_part);
    const auto row = part.row(args);
    const int64_t index = args.first_row + part.index();
    const ons_pair pair = pairs[index];
    const row_of_loss<Real> of(loss, index, args.N, pair);
    const reference<Real> to((Real)pair.m);
    known(row, [&](const auto &row) {
        for_each_tile<block_a_row, K>(
            row, part.begin, part.end, [&](int64_t chunk, const auto &tile) {
                Real y[K * V];
                finish_tile<softmax>(tile, to, of.constants, y);
                of.template finish<WARP, V>(chunk * V, args.N, y);
                row.template store<K, WARP, true>(chunk, y, tile.allowed(), 0);
            });
    });
}

ons_status launch_loss_gradient(const launch_request &request) {
    constexpr ons_family FAMILY = ONS_FAMILY_loss_gradient;
    const ons_plan *plan = request.plan;
    auto launch_with = [&](auto, auto rows) {
        using Rows = typename decltype(rows)::Rows;
        return launch_strips(request, {plan->blocks_a_row, plan->threads},
                             loss_gradient_kernel<Rows>, rows.arguments, (int)plan->blocks_a_row,
                             plan->tile / Rows::V, request.problem->loss,
                             (const ons_pair *)request.problem->operand[ONS_STATISTIC].data);
    };
    if (plan->loader == ONS_CONTIGUOUS)
        return with_type_of_x(request, [&](auto type) {
            return with_contiguous<FAMILY, row_shaped, decltype(type)>(request, launch_with);
        });
    return with_general<row_shaped>(request, launch_with);
}
