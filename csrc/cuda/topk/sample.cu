/* topk/sample.cu - the sampler of a language model (api/sample.h). softmax_topk lists the first
 * tokens of each row with their probabilities (plan/gpu_topk.c). Then a warp takes a row: it finds
 * where the filters end, and draws. If they do not end in the list, the row goes on to
 * sample_block.cu. */
#include "../kernel/parts_of_rows.cuh"
#include "sample.cuh"

/* The scale of each row: 1 over its temperature. */
__global__ void __launch_bounds__(THREAD_A_ROW_THREADS)
    scales_kernel(const __grid_constant__ problem_arguments args,
                  const __grid_constant__ ons_sample sample, double *scales) {
    await_earlier_work(true);
    for_each_row(args, [&](int64_t row) {
        const ons_row_filters filters = ons_filters_of(&sample, row, args.N);
        scales[row] = filters.in_range ? ons_sample_scale(filters.temperature) : 1;
    });
}

/* The first tokens of each row. */
template <typename Real>
struct token_lists {
    Real *p;
    const uint32_t *index;
    int length;
    bool finds_p;  /* the kernel finds p from the logits, relative to the largest logit */
    bool *goes_on; /* a row whose filters do not end in its list; null if all end there */
};

/* The probabilities of a row's listed tokens, relative to the largest. A warp must call it. */
template <typename Rows, typename Real = typename Rows::Real>
__device__ inline void find_probabilities(const topk_arguments<Rows> &args,
                                          const token_lists<Real> &lists, double temperature,
                                          int64_t row) {
    const int64_t begin = row * lists.length;
    auto logit = [&](int i) {
        Real x[1] = {element_of(args, row, lists.index[begin + i])};
        scale_all(x, ons_sample_scale(temperature));
        return (double)x[0];
    };
    const double m = logit(0);
    for (int i = threadIdx.x % WARP; i < lists.length; i += WARP)
        lists.p[begin + i] = (Real)exp(logit(i) - m);
    __syncwarp();
}

/* The token that a warp draws from the list of a row. Sets *ends if the filters end in it. */
template <typename Real>
__device__ inline ons_drawn_token draw_from_list(const token_lists<Real> &lists,
                                                 const ons_sample &sample, int64_t row, int64_t N,
                                                 bool *ends) {
    const ons_row_filters filters = ons_filters_of(&sample, row, N);
    const Real *const p = lists.p + row * lists.length;
    const int lane = threadIdx.x % WARP;
    const bool cuts_mass = filters.top_p < 1, of_k = !sample.joint && filters.top_k < N;
    *ends = true;
    if (!filters.in_range || !(p[0] > 0)) return {-1, 0, 0};
    *ends = filters.top_k <= lists.length && !(lists.goes_on && ons_filters_are_off(&filters, N));
    if (!*ends && (!(cuts_mass || filters.min_p > 0) || (cuts_mass && of_k))) return {-1, 0, 0};
    const int count = (int)min(filters.top_k, (int64_t)lists.length);
    double enough = arithmetic<double>::infinity();
    if (cuts_mass) {
        mass_type all = 0;
        for (int i = lane; of_k && i < count; i += WARP) all += ons_mass_of((double)p[i]);
        all = mass_of_warp(all);
        enough = ons_share_of_mass(filters.top_p, of_k ? (double)all : ONS_WHOLE_MASS,
                                   sizeof(Real) == sizeof(double));
    }
    const double least = filters.min_p * (double)p[0];
    /* Calls visit(i, p, the mass up to this token, the mass before it) until visit returns false
     * in a lane. */
    auto walk = [&](auto visit) {
        mass_type before = 0;
        for (int begin = 0; begin < count; begin += WARP) {
            const int i = begin + lane;
            const Real own = i < count ? p[i] : 0;
            const mass_type mass = ons_mass_of((double)own),
                            upto = before + sum_up_to_lane<WARP>(mass, lane);
            if (!__all_sync(~0u, visit(i, own, upto, upto - mass))) return;
            before = __shfl_sync(~0u, upto, WARP - 1);
        }
    };
    mass_type kept = 0;
    walk([&](int i, Real own, mass_type upto, mass_type before) {
        const bool keeps =
            i < count && (i == 0 || ((double)before < enough && (double)own >= least));
        const unsigned kept_lanes = __ballot_sync(~0u, keeps);
        if (kept_lanes) kept = __shfl_sync(~0u, upto, 31 - __clz((int)kept_lanes));
        *ends |= i < count && !keeps;
        return keeps;
    });
    *ends = __any_sync(~0u, *ends || (double)kept >= enough);
    if (!*ends) return {-1, 0, 0};
    const mass_type at = ons_mass_below(ons_random_of_row(&sample, row), kept);
    int token = 0;
    walk([&](int i, Real, mass_type upto, mass_type) {
        const unsigned passed = __ballot_sync(~0u, upto > at);
        if (passed) token = __shfl_sync(~0u, i, __ffs((int)passed) - 1);
        return !passed;
    });
    return ons_drawn_of(lists.index[row * lists.length + token], (double)p[token], kept);
}

template <typename Rows>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    sample_kernel(const __grid_constant__ topk_arguments<Rows> args,
                  const __grid_constant__ ons_sample sample,
                  const __grid_constant__ token_lists<typename Rows::Real> lists) {
    await_earlier_work(true);
    const int64_t row = (int64_t)blockIdx.x * (WARP_ROW_THREADS / WARP) + warp_of_block();
    if (row >= args.rows) return;
    if (lists.finds_p)
        find_probabilities(args, lists, ons_row_real_of(&sample.temperature, row), row);
    bool ends;
    const ons_drawn_token drawn = draw_from_list(lists, sample, row, args.N, &ends);
    if (threadIdx.x % WARP != 0) return;
    if (lists.goes_on) lists.goes_on[row] = !ends;
    if (ends) write_drawn(args, sample, row, drawn);
}

/* The workspace, after the part of softmax_topk. */
struct sample_workspace {
    double *scales;
    char *p;
    uint32_t *index;
    bool *goes_on;

    sample_workspace(const launch_request &request) {
        const ons_plan *plan = request.plan;
        const int64_t rows = plan->rows, size = ons_dtype_size(plan->compute);
        scales =
            (double *)((char *)request.workspace + plan->workspace_bytes -
                       ons_sample_workspace(request.problem->sample, rows, plan->N, plan->k, size));
        p = (char *)(scales + rows);
        index = (uint32_t *)(p + rows * plan->k * size);
        goes_on = (bool *)(index + rows * plan->k);
    }
};

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

ons_status launch_sample(const launch_request &request, launcher *topk) {
    const ons_plan *plan = request.plan;
    const ons_sample &sample = *request.problem->sample;
    const sample_workspace space(request);
    if (ons_sample_takes_all(&sample, plan->N))
        return launch_sample_all(request, sample, space.scales);
    ons_problem problem = *request.problem;
    const launch_request own = {&problem, plan, request.workspace, request.facts};
    const int64_t rows = plan->rows, k = plan->k;
    ons_status status = ONS_OK;
    if (ons_sample_knows_no_d(&sample, plan->N)) {
        /* the scale comes later */
    } else if (!sample.temperature.of_rows) {
        problem.scale_by = ons_sample_scale(sample.temperature.number);
    } else {
        place_rows(&problem, ONS_SCALE, space.scales, ONS_FLOAT64, 0);
        if (!request.facts)
            status = launch_thread_a_row(request, scales_kernel, sample, space.scales);
    }
    if (status == ONS_OK && k > 0) {
        ons_problem list = problem;
        list.operation = ONS_OPERATION_softmax_topk;
        list.sample = nullptr;
        list.k = k;
        list.sorted = true;
        list.log = false;
        place_rows(&list, ONS_Y, space.p, plan->compute, k);
        place_rows(&list, ONS_INDICES, space.index, ONS_INT32, k);
        status = topk({&list, plan, request.workspace, request.facts});
        if (status != ONS_OK || request.facts) return status;
        bool *const goes_on =
            ons_sample_ends_in_list(&sample, plan->N, k) ? nullptr : space.goes_on;
        constexpr int ROWS = WARP_ROW_THREADS / WARP;
        auto launch_with = [&](auto of_rows, const auto &arguments) {
            using Rows = typename decltype(of_rows)::Rows;
            using Real = typename Rows::Real;
            const token_lists<Real> lists = {(Real *)space.p, space.index, (int)k,
                                             ons_sample_knows_no_d(&sample, plan->N), goes_on};
            return launch(own, {(rows + ROWS - 1) / ROWS, WARP_ROW_THREADS}, sample_kernel<Rows>,
                          arguments, sample, lists);
        };
        status = with_general_topk_rows(own, 1, launch_with);
        if (!goes_on) return status;
    }
    ons_gpu gpu;
    if (status == ONS_OK) status = ons_gpu_describe(problem.gpu, &gpu);
    if (status != ONS_OK) return status;
    const int64_t most = 2 * gpu.multiprocessors;
    return launch_sample_block(own, sample, k > 0 ? space.goes_on : nullptr,
                               rows < most ? rows : most);
}
