/* run.c - checks a problem's operands, and runs its plan. It also merges states. */
#include "../cpu/cpu.h"
#include "../cuda/cuda.h"
#include "float_mode.h"
#include "loss.h"
#include "onsoftmax.h"
#include "packed.h"

static bool is_float(ons_dtype dtype) { return dtype <= ONS_FLOAT64; }

static bool is_selection(const ons_problem *problem, const ons_plan *plan) {
    const ons_operand *indices = &problem->operand[ONS_INDICES];
    return problem->reduced_dims == 1 && problem->k >= 1 && problem->k <= plan->N &&
           indices->data && (indices->dtype == ONS_INT32 || indices->dtype == ONS_INT64);
}

static bool is_sound(const ons_problem *problem, const ons_plan *plan) {
    if (problem->reduced_dims < 1 || problem->dims < problem->reduced_dims ||
        problem->dims > ONS_MAX_DIMS)
        return false;
    if ((!problem->operand[ONS_X].data && plan->rows * plan->N > 0) ||
        (!problem->operand[ONS_Y].data && !ons_is_divergence(problem->operation)))
        return false;
    if (ons_operations[problem->operation].selects && !is_selection(problem, plan)) return false;
    if (!is_float(problem->operand[ONS_X].dtype) || !is_float(problem->operand[ONS_Y].dtype))
        return false;
    if (problem->operand[ONS_WHERE].data && problem->operand[ONS_WHERE].dtype != ONS_BOOL)
        return false;
    if (!problem->operand[ONS_SCALE].data) return true;
    return problem->device == ONS_CPU ? problem->operand[ONS_SCALE].dtype == ONS_FLOAT64
                                      : is_float(problem->operand[ONS_SCALE].dtype);
}

/* A problem that is a part of another one, on this thread alone. The method depends on N and the
 * types alone, and not on the number of rows in the part. */
static ons_status run_part(ons_problem *part) {
    const ons_machine machine = ons_this_machine(1);
    ons_plan plan;
    ons_coalesce(part);
    const ons_status status = ons_make_plan(part, ONS_METHOD_INVARIANT, &machine, &plan);
    return status == ONS_OK ? ons_cpu_run(part, &plan) : status;
}

ons_status ons_run(const ons_problem *problem, const ons_plan *plan, void *workspace) {
    /* an empty row has a value too */
    const ons_operation_info *info = &ons_operations[problem->operation];
    const bool divergence = ons_is_divergence(problem->operation);
    bool one_a_row = info->one_a_row || problem->sums || divergence;
    const bool reduces =
        (divergence || problem->operation == ONS_OPERATION_cross_entropy) && problem->loss->reduced;
    if ((plan->rows == 0 && !reduces) || (plan->N == 0 && !one_a_row)) return ONS_OK;
    if (!is_sound(problem, plan)) return ONS_E_OPERAND;
    if (problem->device != ONS_CPU) return ons_cuda_run(problem, plan, workspace);
    const ons_float_mode theirs = ons_float_mode_enter();
    const ons_status status =
        divergence                                   ? ons_cpu_divergences(problem, plan, run_part)
        : problem->operation == ONS_OPERATION_route  ? ons_cpu_route(problem, plan, run_part)
        : problem->operation == ONS_OPERATION_sample ? ons_cpu_sample(problem, plan, run_part)
                                                     : ons_cpu_run(problem, plan);
    ons_float_mode_leave(theirs);
    return status;
}

ons_status ons_merge(const ons_merging *all) {
    if (all->rows > 0 && all->device == ONS_CUDA) return ons_cuda_merge(all);
    const ons_float_mode theirs = ons_float_mode_enter();
    for (int64_t row = 0; row < all->rows; row++) {
        if (all->values == ONS_TWO_ROW_VALUES)
            ons_merge_exact_row(all, row);
        else if (all->gives == ONS_GIVES_D)
            all->to[row] = ons_cpu_pair_d(ons_pair_of_packed(ons_merged(all, row)), all->compute);
        else
            ons_merge_row(all, row);
    }
    ons_float_mode_leave(theirs);
    return ONS_OK;
}

const char *ons_status_text(ons_status status) {
    switch (status) {
    case ONS_OK: return "done";
    case ONS_E_MEMORY: return "out of memory";
    case ONS_E_METHOD_NOT_ON_DEVICE: return "the method does not run on this device";
    case ONS_E_OPERAND: return "the operands do not make a problem";
    case ONS_E_NO_CUDA: return "this build has no CUDA";
    case ONS_E_ROW_TOO_LONG: return "the row is too long for the method";
    case ONS_E_NO_CLUSTERS: return "this GPU has no thread-block clusters of that size";
    case ONS_E_NO_GRID: return "this GPU has no cooperative launch";
    case ONS_E_K_TOO_LARGE: return "k is too large for the method";
    case ONS_E_METHOD_NOT_OF_TYPE: return "the method does not round to this type";
    default: return ons_cuda_error_text(status);
    }
}
