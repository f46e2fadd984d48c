/* plan.c - problem -> plan: the method, the reason for it, what it moves, and the scratch it needs.
 * plan/cpu.c and plan/gpu_choice.c choose the method, plan/gpu_shape.c and plan/gpu_topk.c its
 * shape. These files hold the thresholds of the method and its shape. */
#include "plan.h"
#include "../api/logprob.h"
#include "../api/plan_facts.h"
#include "../api/rounding.h"

#include <stdatomic.h>
#include <string.h>

static atomic_bool batch_invariant;

bool ons_batch_invariant(void) { return atomic_load(&batch_invariant); }
bool ons_set_batch_invariant(bool invariant) {
    return atomic_exchange(&batch_invariant, invariant);
}

static ons_dtype wider(ons_dtype a, ons_dtype b) {
    return a == ONS_FLOAT64 || b == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
}

bool ons_method_takes(ons_method method, ons_operation operation, ons_device device) {
    const ons_operation_info *info = &ons_operations[operation];
    const bool on_cpu = device == ONS_CPU;
    if (info->pair && method == ONS_METHOD_naive) return false; /* it has no maximum */
    if (info->loss && info->one_a_row)
        return method == ONS_METHOD_AUTO || method == ONS_METHOD_split;
    if (!info->gradient && !info->selects && !info->loss) return true;
    /* A gradient needs neither a maximum nor exponentials, so the other methods would add nothing.
     * A selection reads a row once, so methods with more passes would add nothing. If a row is
     * held, one kernel finds the loss and the gradient. Otherwise the loss is found first. */
    switch (method) {
    case ONS_METHOD_INVARIANT:
    case ONS_METHOD_AUTO:
    case ONS_METHOD_split: return true;
    case ONS_METHOD_exact: return info->selects;
    case ONS_METHOD_online: return on_cpu || info->selects;
    case ONS_METHOD_fused: return !on_cpu || info->gradient;
    /* only on a GPU: */
    case ONS_METHOD_fused_warp:
    case ONS_METHOD_fused_block:
    case ONS_METHOD_cluster: return true;
    default: return false;
    }
}

int ons_method_reads(ons_method method, ons_operation operation) {
    const int reads = ons_methods[method].reads;
    if (ons_operations[operation].selects) return method == ONS_METHOD_exact ? 2 : 1;
    /* if the result is one value a row, the last pass, which reads x to write y, is left out */
    return ons_operations[operation].one_a_row && reads > 1 ? reads - 1 : reads;
}

int ons_method_writes(ons_method method, ons_operation operation) {
    const ons_operation_info *info = &ons_operations[operation];
    return info->one_a_row || info->selects ? 0 : ons_methods[method].writes;
}

int ons_pair_values(ons_method method) {
    return method == ONS_METHOD_exact ? ONS_TWO_ROW_VALUES : 2;
}

/* The reads and the writes of all steps. Returns whether there are steps. */
static bool count_passes(const ons_problem *problem, const ons_plan *plan, int *reads,
                         int *writes) {
    ons_step steps[ONS_MOST_STEPS];
    const int count = ons_steps(problem, plan, steps);
    *reads = *writes = 0;
    for (int i = 0; i < count; i++) {
        *reads += steps[i].reads;
        *writes += steps[i].writes;
    }
    return count > 0;
}

int ons_first_reads(ons_operation operation) { return ons_is_divergence(operation) ? 2 : 1; }

int ons_plan_reads(const ons_problem *problem, const ons_plan *plan) {
    const ons_operation_info *info = &ons_operations[problem->operation];
    int steps_reads, steps_writes;
    if (ons_has_steps(problem->operation) &&
        count_passes(problem, plan, &steps_reads, &steps_writes))
        return steps_reads;
    if (info->selects && problem->device == ONS_CUDA) return ons_topk_reads(plan);
    const bool given = problem->operand[ONS_STATISTIC].data && !info->one_a_row && !info->selects;
    if (problem->device == ONS_CUDA && plan->method == ONS_METHOD_exact && !info->pair && !given)
        return plan->on_chip_bytes > 0 || info->one_a_row ? 1 : 2;
    return given ? 1 : ons_method_reads(plan->method, problem->operation);
}

int64_t ons_read_bytes(const ons_problem *problem, const ons_plan *plan) {
    int64_t element = ons_dtype_size(problem->operand[ONS_X].dtype);
    if (ons_operations[problem->operation].gradient && !ons_is_divergence(problem->operation))
        element += ons_dtype_size(problem->operand[ONS_GRADIENT].dtype);
    return plan->rows * plan->N * element;
}

static int64_t bytes_moved(const ons_problem *problem, const ons_plan *plan) {
    const ons_operation_info *info = &ons_operations[problem->operation];
    const int64_t y = ons_dtype_size(problem->operand[ONS_Y].dtype);
    if (problem->sums) return ons_read_bytes(problem, plan);
    const int reads = ons_plan_reads(problem, plan);
    int64_t a_row = info->one_a_row ? y : 0;
    if (info->selects)
        a_row = problem->k * (y + ons_dtype_size(problem->operand[ONS_INDICES].dtype));
    int writes = ons_method_writes(plan->method, problem->operation);
    int steps_reads, steps_writes;
    if (ons_has_steps(problem->operation) &&
        count_passes(problem, plan, &steps_reads, &steps_writes))
        writes = steps_writes;
    if (ons_is_divergence(problem->operation)) a_row = ons_dtype_size(plan->compute);
    return reads * ons_read_bytes(problem, plan) + plan->rows * (plan->N * writes * y + a_row);
}

ons_status ons_make_plan(const ons_problem *problem, ons_method method, const ons_machine *machine,
                         ons_plan *plan) {
    memset(plan, 0, sizeof *plan);
    plan->rows = plan->N = 1;
    for (int dim = 0; dim < problem->dims; dim++)
        *(dim < problem->dims - problem->reduced_dims ? &plan->rows : &plan->N) *=
            problem->extent[dim];
    bool on_cpu = problem->device == ONS_CPU;
    plan->invariant =
        method == ONS_METHOD_INVARIANT || (method == ONS_METHOD_AUTO && ons_batch_invariant());
    if (plan->invariant) method = ONS_METHOD_AUTO;
    if (method != ONS_METHOD_AUTO &&
        !(on_cpu ? ons_methods[method].on_cpu : ons_methods[method].on_cuda))
        return ONS_E_METHOD_NOT_ON_DEVICE;
    plan->compute = wider(problem->operand[ONS_X].dtype, method == ONS_METHOD_naive
                                                             ? problem->operand[ONS_X].dtype
                                                             : problem->operand[ONS_Y].dtype);
    if (problem->compute != ONS_FLOAT16) plan->compute = problem->compute;
    const ons_operation_info *operation = &ons_operations[problem->operation];
    if (!ons_method_takes(method, problem->operation, problem->device))
        return ONS_E_METHOD_NOT_OF_OPERATION;
    const ons_method of_given = problem->exact_states ? ONS_METHOD_exact : ONS_METHOD_split;
    const bool given = problem->operand[ONS_STATISTIC].data && !operation->selects;
    const bool by_given = given && method == ONS_METHOD_AUTO;
    const bool finds_moments = problem->operation == ONS_OPERATION_logprob;
    const ons_logprob *logprob = finds_moments ? problem->logprob : NULL;
    const bool walks_twice =
        on_cpu && logprob && (logprob->entropy || logprob->argmax || logprob->rank);
    if (by_given) method = of_given;
    if (finds_moments) method = on_cpu ? ONS_METHOD_online : ONS_METHOD_split;
    plan->method = method;
    if (method == ONS_METHOD_exact && plan->compute == ONS_FLOAT64) return ONS_E_METHOD_NOT_OF_TYPE;
    if (operation->gradient)
        plan->compute = wider(plan->compute, problem->operand[ONS_GRADIENT].dtype);
    if (operation->selects) plan->k = problem->k;
    plan->reason = by_given        ? "the pairs of the rows are given: their elements are read once"
                   : walks_twice   ? "each row is read tile by tile: once for its sum, once more "
                                     "for entropy, argmax or rank"
                   : finds_moments ? "the row is read once, tile by tile"
                                   : "asked for by name";
    if (operation->loss && !operation->gradient && !given && !finds_moments &&
        (on_cpu || operation->one_a_row))
        return ONS_E_OPERAND;
    if (problem->sums) {
        plan->method = on_cpu && !operation->gradient ? ONS_METHOD_online : ONS_METHOD_split;
        plan->reason = "the rows' sums are the result: their elements are read once";
    }
    plan->in_double = plan->method == ONS_METHOD_exact;
    if (given && plan->method != of_given) /* other methods find the pairs themselves */
        return ONS_E_OPERAND;
    ons_status status = (on_cpu ? ons_plan_on_cpu : ons_plan_on_gpu)(problem, machine, plan);
    if (status != ONS_OK) return status;
    if (operation->gradient || operation->selects || operation->loss)
        plan->measured = NULL; /* softmax was measured */
    if (plan->invariant && method == ONS_METHOD_AUTO && !problem->sums && !on_cpu) {
        plan->reason = "it gives a row the same bits in any batch and layout";
        plan->measured = NULL;
    }
    plan->bytes_moved = bytes_moved(problem, plan);
    return ONS_OK;
}
