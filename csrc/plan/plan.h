/* plan.h - the two planners, for the CPU and for GPUs, which hold their device's thresholds. Each
 * chooses the method if plan->method is ONS_METHOD_AUTO, and sets its shape. With plan->invariant
 * neither the method nor the order of its sums depends on more than N, the types and the device. On
 * the CPU all methods add up a row in one order (cpu/kernel/sum.h), so any choice will do. */
#ifndef ONS_PLAN_H
#define ONS_PLAN_H

#include "../api/onsoftmax.h"

ons_status ons_plan_on_cpu(const ons_problem *problem, const ons_machine *machine, ons_plan *plan);
ons_status ons_plan_on_gpu(const ons_problem *problem, const ons_machine *machine, ons_plan *plan);

/* ons_plan_reads (plan_facts.h) for an operation that selects, on a GPU. */
int ons_topk_reads(const ons_plan *plan);

/* The GPU for which a plan is made (ons_machine). */
void ons_gpu_to_plan_for(const ons_problem *problem, const ons_machine *machine, ons_gpu *gpu);

#endif
