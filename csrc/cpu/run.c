/* run.c - runs a plan on the CPU: the workspace, then the method. */
#include "cpu.h"

#include <stdlib.h>

#include "logprob.h"
#include "loss.h"
#include "split.h"

#define ONS_ENTRY_EVERYWHERE(name) ons_cpu_##name
#define ONS_ENTRY_ALIAS_ON_CUDA(name) ons_cpu_##name
#define ONS_ENTRY_CPU_ONLY(name) ons_cpu_##name
#define ONS_ENTRY_CUDA_ONLY(name) NULL
static ons_cpu_method *const entries[ONS_METHOD_COUNT] = {
#define ONS_METHOD(name, devices, reads, writes, on_chip, summary) ONS_ENTRY_##devices(name),
#include "../api/methods.def"
#undef ONS_METHOD
};

int64_t ons_cpu_workspace_bytes(const ons_plan *plan) {
    int64_t shared = plan->method == ONS_METHOD_split ? ons_split_shared_bytes(plan) : 0;
    return plan->threads * ons_strip_bytes(plan) + shared;
}

/* Approximate bytes of a strip of short rows. */
enum { STRIP_BYTES = 1 << 14 };

/* A plan of `fused` for an instruction set without pipelines: it runs strip by strip, and keeps
 * rows. */
static ons_plan by_strips(const ons_plan *plan) {
    ons_plan own = *plan;
    int64_t max_width = ONS_MAX_WIDTH, row = plan->N * ons_dtype_size(plan->compute);
    if (plan->form == ONS_ROW_FORM && row * max_width > STRIP_BYTES) max_width = STRIP_BYTES / row;
    if (own.width > max_width) own.width = max_width > 0 ? max_width : 1;
    own.whole_rows = own.whole_columns = own.brings_rows = own.past_caches = false;
    own.keeps_apart = true;
    own.workspace_bytes = ons_cpu_workspace_bytes(&own);
    return own;
}

ons_status ons_cpu_run(const ons_problem *problem, const ons_plan *plan) {
    _Alignas(64) char small[4096];
    const ons_kernels *kernels = ons_kernels_for(plan->compute);
    ons_plan strips;
    if (!kernels->has_pipelines && (plan->whole_rows || plan->whole_columns)) {
        strips = by_strips(plan);
        plan = &strips;
    }
    bool fits = plan->workspace_bytes <= (int64_t)sizeof small;
    size_t bytes = ((size_t)plan->workspace_bytes + 63) & ~(size_t)63;
    char *workspace = fits ? small : aligned_alloc(64, bytes);
    if (!workspace) return ONS_E_MEMORY;
    ons_job job = {problem, plan, kernels, workspace};
    const ons_operation_info *info = &ons_operations[problem->operation];
    const bool exact = problem->sums && !info->gradient;
    ons_cpu_method *const own = problem->operation == ONS_OPERATION_cross_entropy ? ons_cpu_losses
                                : problem->operation == ONS_OPERATION_logprob     ? ons_cpu_logprob
                                : problem->operation == ONS_OPERATION_logprob_backward
                                    ? ons_cpu_logprob_backward
                                    : entries[plan->method];
    (exact ? ons_cpu_digits : own)(&job);
    if (!fits) free(workspace);
    return ONS_OK;
}
