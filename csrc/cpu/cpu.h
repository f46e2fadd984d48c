/* cpu.h - the C entry points of this folder, and what the methods share. */
#ifndef ONS_CPU_H
#define ONS_CPU_H

#include "kernel/primitives.h"

/* One run of a plan. All threads read it. */
typedef struct {
    const ons_problem *problem;
    const ons_plan *plan;
    const ons_kernels *kernels;
    char *workspace; /* a part for each thread, then the part that they share */
} ons_job;

/* A method: runs the whole job. Cannot fail. */
typedef void ons_cpu_method(const ons_job *job);
#define ONS_METHOD(name, devices, reads, writes, on_chip, summary) ons_cpu_method ons_cpu_##name;
#include "../api/methods.def"
#undef ONS_METHOD

ons_cpu_method ons_cpu_digits; /* runs if problem->sums is set, except for gradients */

/* run.c: bytes of workspace for a plan, and the run itself. */
int64_t ons_cpu_workspace_bytes(const ons_plan *plan);
ons_status ons_cpu_run(const ons_problem *problem, const ons_plan *plan);

/* divergence.c: divergences between rows, and their gradients (op/divergence.h). run_part runs a
 * problem on the calling thread alone. */
typedef ons_status ons_run_part(ons_problem *part);
ons_status ons_cpu_divergences(const ons_problem *problem, const ons_plan *plan,
                               ons_run_part *run_part);

/* The rows that a thread of a divergence takes at a time. Its scratch has some arrays of them. If
 * rows are short, it takes about PIECE_BYTES. */
enum { ONS_DIVERGENCE_ARRAYS = 4 };
static inline int64_t ons_divergence_piece(const ons_plan *plan) {
    enum { PIECE_BYTES = 1 << 18 };
    const int64_t row = plan->N * ons_dtype_size(plan->compute);
    const int64_t a_row = ONS_DIVERGENCE_ARRAYS * (row > 0 ? row : 1);
    const int64_t piece = a_row < PIECE_BYTES ? PIECE_BYTES / a_row : 1;
    return piece < plan->rows ? piece : plan->rows > 0 ? plan->rows : 1;
}

/* route.c: the router of a mixture of experts (op/route.h). */
ons_status ons_cpu_route(const ons_problem *problem, const ons_plan *plan, ons_run_part *run_part);

/* sample.c: the sampler of a language model (op/sample.h). */
ons_status ons_cpu_sample(const ons_problem *problem, const ons_plan *plan, ons_run_part *run_part);

/* digits.c: sum(e^(x - m)) of a pair whose exponentials were computed in `compute`, relative to e^m
 * as that type's arithmetic computes it. So a row of one element has exactly 1, and n equal
 * elements have n. */
double ons_cpu_pair_d(ons_pair pair, ons_dtype compute);

/* Number of candidates that a row has room for. When the room might run out, they are cut to the k
 * largest (topk.h). */
static inline int64_t ons_candidates_room(const ons_plan *plan) {
    enum { BESIDE = 32, AT_ONCE = 64, SHORT = 256 };
    bool all = plan->N <= SHORT || plan->N - plan->k < plan->k + BESIDE;
    return (all ? plan->N : 2 * plan->k + BESIDE) + AT_ONCE;
}

/* Number of elements of a row that are compared with the bound at a time. If x is read in place,
 * the number is larger than a tile, so that a good bound is known first. */
static inline int64_t ons_taken_at_once(const ons_plan *plan) {
    return plan->x_direct && plan->form == ONS_ROW_FORM ? ONS_BLOCK : plan->tile;
}

/* Whether rows fill their lanes at most twice. Many such rows are processed together: a vector has
 * one element of each. */
static inline bool ons_has_short_rows(const ons_plan *plan) {
    return plan->N <= 2 * (plan->compute == ONS_FLOAT64 ? ONS_LANES_F64 : ONS_LANES_F32);
}

/* threads.c: calls body(context, worker, begin, end) for pieces of at most `grain` of 0 .. count,
 * on up to `threads` threads, the calling one included. worker < threads tells them apart. Any
 * thread may take any piece. While another caller holds the pool, the calling thread runs alone. */
typedef void ons_body(void *context, int worker, int64_t begin, int64_t end);
void ons_parallel_for(int64_t count, int64_t grain, int threads, ons_body *body, void *context);

#endif
