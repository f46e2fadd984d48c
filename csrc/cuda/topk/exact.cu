/* topk/exact.cu - the results of `exact` for softmax_topk. A kernel of this folder has found the
 * indices of a row's largest elements. A block then reads the row once more, for its sum in double,
 * and replaces the results. If a double cannot decide a result, the block adds up the row in two
 * doubles.
 *
 * Moves 1 read of N. */
#include "../kernel/exact_passes.cuh"
#include "../rows/contiguous.cuh"
#include "launch.cuh"

template <bool LOG, typename Rows, typename Passes>
__device__ __forceinline__ void replace_results(const topk_arguments<Rows> &args, int64_t row,
                                                const Passes &passes) {
    const ons_dtype to = args.values.dtype;
    char *const values = results_of(args, args.values, ONS_Y, row);
    const char *const indices = results_of(args, args.indices, ONS_INDICES, row);
    const row_in_double whole = in_double<LOG>(passes);
    /* Excluded elements and -inf have their results already. */
    auto for_each_finite = [&](auto visit) {
        for (int order = threadIdx.x; order < args.k; order += blockDim.x) {
            const char *const index = indices + order * args.indices.along;
            const float x = element_of(args, row,
                                       args.indices.dtype == ONS_INT64 ? *(const int64_t *)index
                                                                       : *(const int32_t *)index);
            if (x > -CUDART_INF_F) visit(x, values + order * args.values.along);
        }
    };
    auto decided = [&](float x) {
        float y;
        decide_in_double<1>(whole, &x, &y, 1, to, LOG);
        return y;
    };
    bool undecided = false;
    for_each_finite([&](float x, char *value) {
        const float y = decided(x);
        undecided |= isnan(y);
        write_as(value, to, y);
    });
    if (!passes.team.any(undecided)) return;
    const ons_two_row in_two = passes.in_two();
    for_each_finite([&](float x, char *value) {
        float y = decided(x);
        decide_in_two(in_two, false, &x, &y, 1, to, LOG);
        write_as(value, to, y);
    });
}

template <typename Rows>
__global__ void __launch_bounds__(PASS_THREADS)
    topk_exact_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    await_earlier_work(args.launch.next_may_start);
    const auto row = Rows::template row<false>(args, blockIdx.x);
    const exact_passes passes(row);
    if (!isfinite(passes.m)) return; /* its results are NaN already */
    const int64_t index = args.launch.first_row + blockIdx.x;
    if (args.log)
        replace_results<true>(args, index, passes);
    else
        replace_results<false>(args, index, passes);
}

ons_status launch_topk_exact(const launch_request &request) {
    ons_plan plan = *request.plan;
    launch_request own = request;
    own.plan = &plan;
    plan.width = 1;
    return with_topk_rows(own, 0, [&](auto rows, const auto &arguments) -> ons_status {
        using Rows = typename decltype(rows)::Rows;
        if constexpr (std::is_same_v<typename Rows::Real, float>) {
            const int64_t warps = (plan.N + TILE<float> * WARP - 1) / (TILE<float> * WARP);
            const int threads =
                WARP * (int)(warps < PASS_THREADS / WARP ? warps : PASS_THREADS / WARP);
            return launch_strips(own, {1, threads}, topk_exact_kernel<Rows>, arguments);
        } else {
            return ONS_E_OPERAND;
        }
    });
}
