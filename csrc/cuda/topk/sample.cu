/* topk/sample.cu - the sampler of a language model and its filters (api/sample.h). softmax_topk
 * lists the first tokens of each row with their probabilities (plan/gpu_topk.c). Then a warp takes
 * a row: it finds where the filters end, and draws (sample_end.cuh). It does so in the kernel that
 * lists the tokens, or in a kernel of its own. If the filters do not end in the list, the row goes
 * on to sample_team.cu. For filtered_softmax, another kernel writes the kept tokens of each
 * list. */
#include "../kernel/parts_of_rows.cuh"
#include "sample_end.cuh"
#include "sample_team.cuh"

constexpr int WRITE_THREADS = 256, WRITTEN_A_BLOCK = 8192; /* tokens */

/* The scale of each row: 1 over its temperature. */
__global__ void __launch_bounds__(THREAD_A_ROW_THREADS)
    scales_kernel(const __grid_constant__ problem_arguments args,
                  const __grid_constant__ ons_sample sample, bool in_double, double *scales) {
    await_earlier_work(true);
    for_each_row(args, [&](int64_t row) {
        const ons_row_filters filters = ons_filters_of(&sample, row, args.N);
        scales[row] = filters.in_range ? ons_sample_scale(filters.temperature, in_double) : 1;
    });
}

template <typename Rows>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    sample_kernel(const __grid_constant__ topk_arguments<Rows> args,
                  const __grid_constant__ ons_sample sample,
                  const __grid_constant__ token_lists<typename Rows::Real> lists) {
    await_earlier_work(true);
    clear_teams(lists);
    const int64_t row = (int64_t)blockIdx.x * (WARP_ROW_THREADS / WARP) + warp_of_block();
    if (row >= args.rows) return;
    const draw_of_row draw = draw_of(sample, row, args.N);
    auto *const p = lists.p + row * lists.length;
    if (lists.finds_p) {
        take_probabilities(args, lists, row, draw.filters.temperature, (int)threadIdx.x % WARP,
                           WARP, p);
        __syncwarp();
    }
    const kept_of_list kept =
        draw_from_list(args, sample, lists, row, draw, p, args.indices, args.values);
    const bool writes = threadIdx.x % WARP == 0;
    if (writes && lists.goes_on) lists.goes_on[row] = !kept.ends;
    if (sample.draws) return;
    const double sum = token_list<typename Rows::Real>(p, lists).sum(kept.tokens);
    if (writes) {
        lists.kept[row] = kept.ends ? kept.tokens : -1;
        lists.sums[row] = sum;
    }
}

/* Writes a part of a row of filtered_softmax whose filters end in its list. */
template <typename Rows>
__global__ void __launch_bounds__(WRITE_THREADS)
    write_lists_kernel(const __grid_constant__ topk_arguments<Rows> args,
                       const __grid_constant__ token_lists<typename Rows::Real> lists,
                       int64_t parts) {
    using Real = typename Rows::Real;
    await_earlier_work(true);
    const int64_t row = blockIdx.x / parts, begin = blockIdx.x % parts * WRITTEN_A_BLOCK,
                  end = min(begin + WRITTEN_A_BLOCK, args.N), first = row * lists.length;
    const int kept = lists.kept[row];
    if (kept < 0) return;
    char *const y = results_of(args, args.values, ONS_Y, row);
    auto write = [&](int64_t at, Real p) {
        write_as(y + at * args.values.along, args.values.dtype, p);
    };
    const Real all = kept == 0 ? (Real)NAN : (Real)0;
    for (int64_t at = begin + threadIdx.x; at < end; at += WRITE_THREADS) write(at, all);
    __syncthreads();
    for (int i = threadIdx.x; i < kept; i += WRITE_THREADS) {
        const int64_t at = lists.index[first + i];
        if (at >= begin && at < end)
            write(at, (Real)((double)lists.p[first + i] / lists.sums[row]));
    }
}

/* Makes an operand of rows of n elements. The rows lie side by side and begin at `data`. If n is 0,
 * the operand has one number for each row. */
static void place_rows(ons_problem *problem, ons_role role, void *data, ons_dtype dtype,
                       int64_t n) {
    const int along = problem->dims - 1;
    int64_t step = ons_dtype_size(dtype);
    ons_operand &operand = problem->operand[role];
    operand = {(char *)data, dtype, {}};
    operand.stride[along] = n > 0 ? step : 0;
    step *= n > 0 ? n : 1;
    for (int dim = along - 1; dim >= 0; dim--) {
        operand.stride[dim] = step;
        step *= problem->extent[dim];
    }
}

/* Finishes the rows whose first tokens are listed. */
template <typename Real>
static ons_status launch_on_lists(const launch_request &request, const ons_sample &sample,
                                  const token_lists<Real> &lists) {
    const int64_t rows = request.plan->rows;
    constexpr int ROWS = WARP_ROW_THREADS / WARP;
    const launch_shape shape = {(rows + ROWS - 1) / ROWS, WARP_ROW_THREADS};
    /* the rows as they are, without the scale of the lists */
    ons_plan plan = *request.plan;
    plan.loader =
        ons_sample_is_contiguous(request.problem, plan.compute) ? ONS_CONTIGUOUS : ONS_GENERAL;
    const launch_request own = {request.problem, &plan, request.workspace, request.facts};
    ons_status status =
        with_general_topk_rows(request, 1, [&](auto of_rows, const auto &arguments) {
            using Rows = typename decltype(of_rows)::Rows;
            if constexpr (std::is_same_v<typename Rows::Real, Real>)
                return launch(request, shape, sample_kernel<Rows>, arguments, sample, lists);
            return ONS_E_OPERAND;
        });
    if (status == ONS_OK && !sample.draws)
        status = with_general_topk_rows(request, 1, [&](auto of_rows, const auto &arguments) {
            using Rows = typename decltype(of_rows)::Rows;
            const int64_t parts = (request.plan->N + WRITTEN_A_BLOCK - 1) / WRITTEN_A_BLOCK;
            if constexpr (std::is_same_v<typename Rows::Real, Real>)
                return launch(request, {rows * parts, WRITE_THREADS}, write_lists_kernel<Rows>,
                              arguments, lists, parts);
            return ONS_E_OPERAND;
        });
    return status == ONS_OK && lists.goes_on ? launch_sample_team(own, sample, lists) : status;
}

ons_status launch_sample(const launch_request &request, launcher *topk) {
    const ons_plan *plan = request.plan;
    const ons_sample &sample = *request.problem->sample;
    const int64_t rows = plan->rows, k = plan->k, size = ons_dtype_size(plan->compute);
    ons_gpu gpu;
    ons_status status = ons_gpu_describe(request.problem->gpu, &gpu);
    if (status != ONS_OK) return status;
    const auto space =
        ons_sample_workspace_of(&sample, rows, plan->N, k, size, gpu.multiprocessors);
    char *const from = (char *)request.workspace + plan->workspace_bytes - space.end;
    if (ons_sample_takes_all(&sample, plan->N)) return launch_sample_all(request, sample);
    ons_problem list = *request.problem;
    const bool in_double = plan->compute == ONS_FLOAT64;
    auto *const scales = (double *)(from + space.scales);
    if (ons_sample_knows_no_d(&sample, plan->N)) {
        /* the scale comes later */
    } else if (!sample.temperature.of_rows) {
        list.scale_by = ons_sample_scale(sample.temperature.number, in_double);
    } else {
        place_rows(&list, ONS_SCALE, scales, ONS_FLOAT64, 0);
        if (!request.facts)
            status = launch_thread_a_row(request, scales_kernel, sample, in_double, scales);
    }
    if (status != ONS_OK) return status;
    list.operation = ONS_OPERATION_softmax_topk;
    list.sample = nullptr;
    list.k = k;
    list.sorted = true;
    list.log = false;
    place_rows(&list, ONS_Y, from + space.p, plan->compute, k);
    place_rows(&list, ONS_INDICES, from + space.index, ONS_INT32, k);
    const ons_problem &own = *request.problem;
    const auto results = [&](ons_role role) -> results_at {
        const ons_operand &operand = own.operand[role];
        return {operand.data, own.dims == 1 ? 0 : operand.stride[0], 0, operand.dtype};
    };
    const sampler_end end = {true, ons_sample_knows_no_d(&sample, plan->N), sample,
                             results(ONS_INDICES), results(ONS_Y)};
    const bool at_once = ons_sample_ends_listing(&sample, plan, ons_topk_by_blocks(plan->family));
    status = topk({&list, plan, request.workspace, request.facts, at_once ? &end : nullptr});
    if (status != ONS_OK || request.facts || at_once) return status;
    const bool ends = ons_sample_ends_in_list(&sample, plan->N, k);
    auto launch_on = [&](auto real) {
        using Real = decltype(real);
        return launch_on_lists<Real>(
            request, sample,
            {(Real *)(from + space.p), (const uint32_t *)(from + space.index), (int)k,
             ons_sample_knows_no_d(&sample, plan->N), ends ? nullptr : (bool *)from + space.goes_on,
             (int *)(from + space.kept), (double *)(from + space.sums), from,
             ends ? 0 : ons_sample_teams(rows, gpu.multiprocessors)});
    };
    return in_double ? launch_on(double()) : launch_on(float());
}
