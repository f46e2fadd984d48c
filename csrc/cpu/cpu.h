/* cpu.h - the C entry points of this folder, and what the methods share. */
#ifndef ONS_CPU_H
#define ONS_CPU_H

#include "kernel/primitives.h"

/* One run of a plan: what every thread reads. */
typedef struct {
    const ons_problem *problem;
    const ons_plan *plan;
    const ons_kernels *kernels;
    char *workspace; /* of every thread in turn, then what the threads share */
} ons_job;

/* A method: runs the whole job. Cannot fail. */
typedef void ons_cpu_method(const ons_job *job);
#define ONS_METHOD(name, devices, reads, writes, on_chip, summary) ons_cpu_method ons_cpu_##name;
#include "../api/methods.def"
#undef ONS_METHOD

ons_cpu_method ons_cpu_digits; /* of problem->sums, but for gradients */

/* run.c: scratch that the plan needs, and the run itself. */
int64_t ons_cpu_workspace_bytes(const ons_plan *plan);
ons_status ons_cpu_run(const ons_problem *problem, const ons_plan *plan);

/* run.c: sum(e^(x - m)) of a pair whose exponentials were taken in that type: relative to what that
 * type's arithmetic makes of e^m. So a row of one element has exactly 1, and n equal ones n. */
double ons_cpu_pair_d(ons_pair pair, ons_dtype compute);

/* How many candidates a row has room for. They are cut to the k largest when it could become too
 * small (topk.h). */
static inline int64_t ons_candidates_room(const ons_plan *plan) {
    enum { BESIDE = 32, AT_ONCE = 64, SHORT = 256 };
    bool all = plan->N <= SHORT || plan->N - plan->k < plan->k + BESIDE;
    return (all ? plan->N : 2 * plan->k + BESIDE) + AT_ONCE;
}

/* How many elements of a row are compared with the bound at a time: where they stay in memory, more
 * than a tile, so that a good bound is known first. */
static inline int64_t ons_taken_at_once(const ons_plan *plan) {
    return plan->x_direct && plan->form == ONS_ROW_FORM ? ONS_BLOCK : plan->tile;
}

/* Rows that fill their lanes at most twice: many are taken at once, a vector of each element. */
static inline bool ons_has_short_rows(const ons_plan *plan) {
    return plan->N <= 2 * (plan->compute == ONS_FLOAT64 ? ONS_LANES_F64 : ONS_LANES_F32);
}

/* threads.c: calls body(context, worker, begin, end) for pieces of at most `grain` of 0 .. count,
 * on up to `threads` threads, this one included; worker < threads tells them apart. Which thread
 * takes which piece is not fixed. Runs on this thread alone while another caller holds the pool. */
typedef void ons_body(void *context, int worker, int64_t begin, int64_t end);
void ons_parallel_for(int64_t count, int64_t grain, int threads, ons_body *body, void *context);

#endif
