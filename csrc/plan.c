/* plan.c - problem -> plan: which method, why, what it moves, the scratch it needs. plan_cpu.c and
 * plan_cuda.c choose, and hold all thresholds. */
#include "plan.h"

#include <string.h>

static ons_dtype wider(ons_dtype a, ons_dtype b) {
    return a == ONS_FLOAT64 || b == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
}

/* Of one value a row there is no pass that writes y from x. */
static int64_t bytes_moved(const ons_problem *problem, const ons_plan *plan) {
    const ons_method_info *info = &ons_methods[plan->method];
    int64_t x = ons_dtype_size(problem->operand[ONS_X].dtype);
    int64_t y = ons_dtype_size(problem->operand[ONS_Y].dtype);
    if (ons_operations[problem->operation].one_a_row)
        return plan->rows * (plan->N * x * (info->reads > 1 ? info->reads - 1 : 1) + y);
    if (ons_operations[problem->operation].selects)
        return plan->rows *
               (plan->N * x +
                problem->k * (y + ons_dtype_size(problem->operand[ONS_INDICES].dtype)));
    int reads = problem->operand[ONS_PAIRS].data ? 1 : info->reads;
    if (ons_operations[problem->operation].gradient)
        x += ons_dtype_size(problem->operand[ONS_GRADIENT].dtype);
    return plan->rows * plan->N * (reads * x + info->writes * y);
}

/* Of operations that take a gradient or select only some methods make sense: without a maximum and
 * without exponentials there is nothing for the others to do; and what reads a row once has no use
 * for more. */
static bool takes(ons_method method, const ons_operation_info *operation, bool on_cpu) {
    if (!operation->gradient && !operation->selects) return true;
    switch (method) {
    case ONS_METHOD_AUTO:
    case ONS_METHOD_split: return true;
    case ONS_METHOD_online: return on_cpu || operation->selects;
    case ONS_METHOD_fused: return !on_cpu || operation->gradient;
    case ONS_METHOD_fused_block: return operation->gradient;
    case ONS_METHOD_fused_warp:
    case ONS_METHOD_cluster: return true;
    default: return false;
    }
}

ons_status ons_make_plan(const ons_problem *problem, ons_method method, const ons_machine *machine,
                         ons_plan *plan) {
    memset(plan, 0, sizeof *plan);
    plan->rows = plan->N = 1;
    for (int dim = 0; dim < problem->dims; dim++)
        *(dim < problem->dims - problem->reduced_dims ? &plan->rows : &plan->N) *=
            problem->extent[dim];
    bool on_cpu = problem->device == ONS_CPU;
    if (method != ONS_METHOD_AUTO &&
        !(on_cpu ? ons_methods[method].on_cpu : ons_methods[method].on_cuda))
        return ONS_E_METHOD_NOT_ON_DEVICE;
    plan->compute = wider(problem->operand[ONS_X].dtype, method == ONS_METHOD_naive
                                                             ? problem->operand[ONS_X].dtype
                                                             : problem->operand[ONS_Y].dtype);
    const ons_operation_info *operation = &ons_operations[problem->operation];
    if (!takes(method, operation, on_cpu)) return ONS_E_METHOD_NOT_OF_OPERATION;
    if (operation->gradient)
        plan->compute = wider(plan->compute, problem->operand[ONS_GRADIENT].dtype);
    if (operation->selects) plan->k = problem->k;
    plan->method = method;
    plan->reason = "asked for by name";
    const bool given = problem->operand[ONS_PAIRS].data && !operation->selects;
    if (given && method == ONS_METHOD_AUTO) {
        plan->method = ONS_METHOD_split;
        plan->reason = "the pairs of the rows are given: their elements are read once";
    }
    /* others find the pairs themselves; `naive` finds none */
    if ((given && plan->method != ONS_METHOD_split) ||
        (operation->pair && method == ONS_METHOD_naive))
        return ONS_E_OPERAND;
    ons_status status = (on_cpu ? ons_plan_on_cpu : ons_plan_on_gpu)(problem, machine, plan);
    if (status != ONS_OK) return status;
    if (operation->gradient || operation->selects) plan->measured = NULL; /* of softmax */
    plan->bytes_moved = bytes_moved(problem, plan);
    return ONS_OK;
}
