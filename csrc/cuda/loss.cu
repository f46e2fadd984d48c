/* loss.cu - computes the loss of each row from its pair, and its gradient (api/loss.h).
 *
 * losses: a thread takes a row, and reads one element of it. Then one block or one cluster adds up
 * the losses.
 * loss_gradient: blocks share a row in parts, as in split.cu. Moves 1 read + 1 write of N. */
#include <climits>

#include "../api/loss_parts.h"
#include "driver/device.cuh"
#include "kernel/launch_loss.cuh"
#include "kernel/parts_of_rows.cuh"
#include "statistic/pair_d.cuh"
#include "team/arrivals.cuh"

/* ------- The losses ------- */

__global__ void __launch_bounds__(THREAD_A_ROW_THREADS)
    losses_kernel(const __grid_constant__ problem_arguments args,
                  const __grid_constant__ ons_loss loss) {
    await_earlier_work();
    const ons_problem &problem = args.problem;
    for_each_row(args, [&](int64_t row) {
        const int64_t target = ons_target_of(&loss, row, args.N);
        ons_pair pair = ((const ons_pair *)problem.operand[ONS_STATISTIC].data)[row];
        pair.d = loss.in_double ? d_of<double>(pair) : d_of<float>(pair);
        double value = target == ONS_IGNORED ? 0.0 : arithmetic<double>::nan();
        if (target >= 0) {
            const ons_operand &x = problem.operand[ONS_X];
            const char *logit = row_address(args, row).x + target * x.stride[problem.dims - 1];
            value = ons_loss_of(&loss, row, target, args.N, pair.m, log(pair.d),
                                read_as<double>(logit, x.dtype));
        }
        ons_set_real(&loss, loss.loss, row, value);
        if (loss.lse) ons_set_real(&loss, loss.lse, row, ons_lse_of(pair));
    });
}

/* On sm_90 and later, a cluster of REDUCE_BLOCKS blocks adds up many rows. Otherwise one block
 * does. */
constexpr int REDUCE_THREADS = 1024, REDUCE_BLOCKS = 8, ROWS_A_THREAD = 8;

struct sums_of_rows {
    double losses, weights;
};

/* Adds one number from each thread in a fixed order. The first warp gets the sum. */
__device__ inline double sum_of_block(double mine) {
    __shared__ double warps[REDUCE_THREADS / WARP];
    mine = sum_over_lanes<WARP>(mine);
    __syncthreads();
    if (threadIdx.x % WARP == 0) warps[warp_of_block()] = mine;
    __syncthreads();
    return sum_over_lanes<WARP>(warps[threadIdx.x % WARP]);
}

/* The blocks that add up rows. */
class adding_blocks {
   public:
    __device__ adding_blocks() {
#if __CUDA_ARCH__ >= 900
        if (gridDim.x == 1) return;
        arrived().make_ready();
        arrivals::say_ready();
#endif
    }

    /* Adds up visit(row) over the rows of this block. The first warp gets the sum. A thread loads
     * several rows at once. */
    template <typename Visit>
    __device__ static double over_rows(int64_t rows, Visit visit) {
        const int64_t step = (int64_t)gridDim.x * REDUCE_THREADS;
        double sum = 0;
        for (int64_t row = blockIdx.x * (int64_t)REDUCE_THREADS + threadIdx.x; row < rows;
             row += ROWS_A_THREAD * step) {
            decltype(visit(row)) of_row[ROWS_A_THREAD];
#pragma unroll
            for (int i = 0; i < ROWS_A_THREAD; i++)
                of_row[i] = row + i * step < rows ? visit(row + i * step) : 0;
#pragma unroll
            for (int i = 0; i < ROWS_A_THREAD; i++) sum += of_row[i];
        }
        return sum_of_block(sum);
    }

    /* Adds up the blocks' sums. Returns whether this thread has the result. */
    __device__ bool merge(sums_of_rows &mine) const {
#if __CUDA_ARCH__ >= 900
        __shared__ __align__(16) sums_of_rows of_blocks[REDUCE_BLOCKS];
        if (gridDim.x > 1) {
            arrivals::await_ready();
            if (threadIdx.x == 0) arrived().send(of_blocks + cluster_rank(), 0, mine);
            if (cluster_rank() > 0) return false;
            arrived().announce(gridDim.x * sizeof mine);
            arrived().await();
            mine = {0, 0};
            for (unsigned i = 0; i < gridDim.x; i++) {
                mine.losses += of_blocks[i].losses;
                mine.weights += of_blocks[i].weights;
            }
        }
#endif
        return threadIdx.x == 0;
    }

   private:
#if __CUDA_ARCH__ >= 900
    __device__ static arrivals &arrived() {
        __shared__ arrivals of_blocks;
        return of_blocks;
    }
#endif
};

/* The sum of the weights of the rows' targets. */
__device__ inline double sum_of_weights(int64_t rows, int64_t N, const ons_loss &loss) {
    auto sum_over = [&](const auto *targets) {
        auto counts = [&](int64_t target) {
            return target != loss.ignore_index && target >= 0 && target < N;
        };
        if (!loss.weight)
            return adding_blocks::over_rows(rows,
                                            [&](int64_t row) { return (int)counts(targets[row]); });
        return adding_blocks::over_rows(rows, [&](int64_t row) {
            const int64_t target = targets[row];
            return counts(target) ? ons_class_weight(&loss, target) : 0.0;
        });
    };
    return loss.wide_target ? sum_over((const int64_t *)loss.target)
                            : sum_over((const int32_t *)loss.target);
}

__global__ void __launch_bounds__(REDUCE_THREADS)
    divisor_kernel(int64_t rows, int64_t N, const __grid_constant__ ons_loss loss) {
    const adding_blocks blocks;
    await_earlier_work(true);
    sums_of_rows sums = {0, sum_of_weights(rows, N, loss)};
    if (blocks.merge(sums)) *loss.divisor = sums.weights;
}

/* The sum of the losses, or their mean. `finds_divisor`: the kernel also computes the divisor. */
__global__ void __launch_bounds__(REDUCE_THREADS)
    reduced_loss_kernel(int64_t rows, int64_t N, bool finds_divisor,
                        const __grid_constant__ ons_loss loss) {
    const adding_blocks blocks;
    await_earlier_work(true);
    auto sum_over = [&](const auto *losses) {
        return adding_blocks::over_rows(rows, [&](int64_t row) { return losses[row]; });
    };
    sums_of_rows sums = {
        loss.in_double ? sum_over((const double *)loss.loss) : sum_over((const float *)loss.loss),
        finds_divisor ? sum_of_weights(rows, N, loss) : 0};
    if (!blocks.merge(sums)) return;
    if (finds_divisor) *loss.divisor = sums.weights; /* for the gradient */
    ons_set_real(&loss, loss.reduced, 0,
                 loss.divisor ? sums.losses / *loss.divisor : sums.losses * loss.share);
}

/* Launches a kernel of adding_blocks. */
template <typename... Parameters, typename... Arguments>
static ons_status launch_adding(const launch_request &request, void (*kernel)(Parameters...),
                                const Arguments &...arguments) {
    ons_gpu gpu;
    const ons_status status = ons_gpu_describe(request.problem->gpu, &gpu);
    if (status != ONS_OK) return status;
    const bool many =
        request.plan->rows > ROWS_A_THREAD * REDUCE_THREADS && gpu.cluster_blocks >= REDUCE_BLOCKS;
    launch_shape shape = {many ? REDUCE_BLOCKS : 1, REDUCE_THREADS};
    shape.cluster = (int)shape.blocks;
    return launch(request, shape, kernel, arguments...);
}

ons_status find_divisor(const launch_request &request) {
    const ons_loss &loss = *request.problem->loss;
    if (request.facts || !loss.divisor) return ONS_OK;
    return launch_adding(request, divisor_kernel, request.plan->rows, request.plan->N, loss);
}

ons_status reduce_losses(const launch_request &request, bool finds_divisor) {
    const ons_loss &loss = *request.problem->loss;
    if (request.facts || !loss.reduced) return ONS_OK;
    return launch_adding(request, reduced_loss_kernel, request.plan->rows, request.plan->N,
                         finds_divisor && loss.divisor, loss);
}

ons_status launch_losses(const launch_request &request) {
    ons_status status = ONS_OK;
    if (request.plan->rows > 0)
        status = launch_thread_a_row(request, losses_kernel, *request.problem->loss);
    return status == ONS_OK ? reduce_losses(request, true) : status;
}

/* ------- The gradient ------- */

template <typename Rows>
__global__ void __launch_bounds__(SPLIT_THREADS)
    loss_gradient_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                         int64_t chunks_a_part, const __grid_constant__ ons_loss loss,
                         const ons_pair *pairs) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    constexpr int K = TILE_CHUNKS, V = Rows::V;
    const part_of_rows<Rows, block_a_row> part(args, parts, chunks_a_part);
    const auto row = part.row(args);
    const int64_t index = args.launch.first_row + part.index();
    const state<Real> whole = state_of<Real>(pairs[index]);
    const int64_t target = ons_target_of(&loss, index, args.N);
    const gradient_of_loss<Real, true> gradient(loss, index, target, args.N,
                                                own_of<Real>(loss, index, target), whole);
    const auto constants = gradient.constants(whole);
    const reference<Real> to(whole.m);
    known(row, [&](const auto &row) {
        for_each_tile<block_a_row, K>(
            row, part.begin, part.end, [&](int64_t chunk, const auto &tile) {
                Real y[K * V];
                finish_tile<softmax>(tile, to, constants, y);
                const int64_t at = target - chunk * V;
                const bool is_near = at >= 0 && at < INT_MAX; /* a row may be longer */
                gradient.template finish<WARP, V>(chunk * V, is_near ? (int)at : -1, args.N, y);
                row.template store<K, WARP, true>(chunk, y, tile.allowed(), 0);
            });
    });
}

ons_status launch_loss_gradient(const launch_request &request) {
    constexpr ons_family FAMILY = ONS_FAMILY_loss_gradient;
    const ons_plan *plan = request.plan;
    auto launch_with = [&]([[maybe_unused]] auto ops, auto rows) {
        using Rows = typename decltype(rows)::Rows;
        return launch_strips(request, {plan->blocks_a_row, plan->threads},
                             loss_gradient_kernel<Rows>, rows.arguments, (int)plan->blocks_a_row,
                             plan->tile / Rows::V, *request.problem->loss,
                             (const ons_pair *)request.problem->operand[ONS_STATISTIC].data);
    };
    if (plan->loader == ONS_CONTIGUOUS)
        return with_type_of_x(request, [&](auto type) {
            return with_contiguous<FAMILY, row_shaped, decltype(type)>(request, launch_with);
        });
    return with_general<row_shaped>(request, launch_with);
}

/* ------- The gradient of the logits times the gradient of the loss. In most programs the latter
 * is 1. The kernel then reads no element ------- */

template <typename X>
__global__ void __launch_bounds__(PASS_THREADS)
    multiply_kernel(X *elements, int64_t count, const typename compute_of<X>::type *by) {
    await_earlier_work();
    using Real = typename compute_of<X>::type;
    constexpr int V = 16 / sizeof(X);
    const Real factor = *by;
    if (factor == 1) return;
    using Pack = pack<X, V>;
    const bool is_aligned = (uintptr_t)elements % sizeof(Pack) == 0;
    const int64_t step = (int64_t)gridDim.x * blockDim.x, packs = is_aligned ? count / V : 0;
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = first; i < packs; i += step) {
        Pack some = ((const Pack *)elements)[i];
#pragma unroll
        for (int e = 0; e < V; e++) some.put(e, from_real<X>(some.real(e) * factor));
        ((Pack *)elements)[i] = some;
    }
    for (int64_t i = packs * V + first; i < count; i += step)
        elements[i] = from_real<X>(to_real<Real>(elements[i]) * factor);
}

ons_status ons_gpu_multiply(int gpu, void *stream, void *elements, ons_dtype dtype, int64_t count,
                            const void *by) {
    constexpr int BLOCKS_A_MULTIPROCESSOR = 4;
    current_gpu here(gpu);
    ons_gpu facts;
    if (here.error != cudaSuccess) return status_of(here.error);
    const ons_status status = ons_gpu_describe(gpu, &facts);
    if (status != ONS_OK || count == 0) return status;
    const void *const kernel = dtype == ONS_FLOAT16 ? (const void *)multiply_kernel<__half>
                               : dtype == ONS_BFLOAT16
                                   ? (const void *)multiply_kernel<__nv_bfloat16>
                               : dtype == ONS_FLOAT32 ? (const void *)multiply_kernel<float>
                                                      : (const void *)multiply_kernel<double>;
    void *arguments[] = {&elements, &count, &by};
    return start_kernel({BLOCKS_A_MULTIPROCESSOR * facts.multiprocessors, PASS_THREADS},
                        facts.early_launch, stream, kernel, arguments);
}
