/* run.c - checks that the operands make a problem, and runs its plan. */
#include "cpu/cpu.h"
#include "onsoftmax.h"

static bool is_float(ons_dtype dtype) { return dtype <= ONS_FLOAT64; }

static bool is_sound(const ons_problem *problem) {
    if (problem->reduced_dims < 1 || problem->dims < problem->reduced_dims ||
        problem->dims > ONS_MAX_DIMS)
        return false;
    if (!problem->x.data || !problem->y.data) return false;
    if (!is_float(problem->x.dtype) || !is_float(problem->y.dtype)) return false;
    if (problem->where.data && problem->where.dtype != ONS_BOOL) return false;
    if (problem->scale.data && problem->scale.dtype != ONS_FLOAT64) return false;
    return problem->device == ONS_CPU;
}

ons_status ons_run(const ons_problem *problem, const ons_plan *plan) {
    if (plan->rows == 0 || plan->N == 0) return ONS_OK;
    if (!is_sound(problem)) return ONS_E_OPERAND;
    return ons_cpu_run(problem, plan);
}
