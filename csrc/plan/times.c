/* plan/times.c - the time of a method, as it was measured. plan/measured_times.def has the times of
 * one GPU over a grid of rows and lengths, and the times in between are interpolated. This file
 * also has the parts of a time: the launch, and the reads that the cache serves. */
#include "../api/plan_facts.h"

#include "gpu.h"

#include <math.h>

/* An entry of the table: its kind in the upper 5 bits, and a number in the lower 27. The upper bits
 * of a time are log2 of its rows. */
typedef uint32_t entry;
enum { SHIFT = 27, LENGTH_IS_NEXT = 30, SERIES_IS_NEXT = 31 };
#define ENTRY(what, number) ((entry)(what) << SHIFT | (entry)(number))
static int what_of(entry l) { return (int)(l >> SHIFT); }
static double number_of(entry l) { return l & (((entry)1 << SHIFT) - 1); }

#define KEY(dtype, packs, method) (((dtype) * 2 + (packs)) * ONS_METHOD_COUNT + (method))
#define SERIES(dtype, packs, method) \
    ENTRY(SERIES_IS_NEXT, KEY(ONS_##dtype, packs, ONS_METHOD_##method)),
#define LENGTH(N) ENTRY(LENGTH_IS_NEXT, N),
#define TIME(rows_log2, units) ENTRY(rows_log2, units),
static const entry copies[] = {
#define ONS_COPY_TIMES
#include "measured_times.def"
#undef ONS_COPY_TIMES
};
static const entry times[] = {
#define ONS_METHOD_TIMES
#include "measured_times.def"
#undef ONS_METHOD_TIMES
};
enum { COPIES = sizeof copies / sizeof *copies, TIMES = sizeof times / sizeof *times };

static double rows_of(entry time) { return ldexp(1, what_of(time)); }
static double seconds_of(entry time) { return 1e-8 * number_of(time); }

/* The time of `rows` rows of one length, interpolated between the entries. Above the last entry it
 * grows in proportion to the rows. */
static double at_rows(const entry *time, const entry *end, double rows) {
    const entry *last = end - 1;
    if (rows >= rows_of(*last)) return seconds_of(*last) * (rows / rows_of(*last));
    while (rows_of(time[1]) <= rows) time++;
    const double share = (rows - rows_of(time[0])) / (rows_of(time[1]) - rows_of(time[0]));
    return seconds_of(time[0]) + share * (seconds_of(time[1]) - seconds_of(time[0]));
}

/* The time of `rows` rows of N elements, interpolated between the lengths of a series. The shortest
 * length comes first. Above the last length the time grows in proportion to N. */
static double at_length(const entry *series, double rows, double N) {
    double shorter = 0, shorter_seconds = 0;
    while (series < times + TIMES && what_of(*series) == LENGTH_IS_NEXT) {
        const double length = number_of(*series++);
        const entry *end = series;
        while (end < times + TIMES && what_of(*end) < LENGTH_IS_NEXT) end++;
        const double seconds = at_rows(series, end, rows);
        if (length >= N && (shorter == 0 || length == N)) return seconds;
        if (length >= N) {
            const double share = (N - shorter) / (length - shorter);
            return shorter_seconds + share * (seconds - shorter_seconds);
        }
        shorter = length;
        shorter_seconds = seconds;
        series = end;
    }
    return shorter == 0 ? 0 : shorter_seconds * (N / shorter);
}

/* Whether a GPU is of the kind that was measured, as far as the planner knows. */
static bool was_measured(const ons_gpu *gpu) {
    const ons_gpu *measured = &ons_known_gpus[0];
    return gpu->architecture == measured->architecture &&
           gpu->multiprocessors == measured->multiprocessors &&
           fabs(gpu->bandwidth / measured->bandwidth - 1) < 0.03;
}

/* Whether rows lie one after the other without gaps, have one type, and nothing else is given. */
static bool is_what_was_measured(const ons_problem *problem, const ons_plan *plan) {
    const ons_operand *x = &problem->operand[ONS_X], *y = &problem->operand[ONS_Y];
    if (problem->operation != ONS_OPERATION_softmax || problem->device != ONS_CUDA ||
        problem->dims > 2 || problem->reduced_dims > 1 || problem->scale_by != 1 ||
        x->dtype != y->dtype || plan->rows == 0 || plan->N == 0)
        return false;
    for (int role = ONS_WHERE; role < ONS_OPERANDS; role++)
        if (problem->operand[role].data) return false;
    for (int dim = 0; dim < problem->dims; dim++) {
        const int64_t size = ons_dtype_size(x->dtype);
        const int64_t gapless = dim == problem->dims - 1 ? size : size * plan->N;
        if (x->stride[dim] != gapless || y->stride[dim] != gapless) return false;
    }
    return true;
}

/* Only one 16-bit type was measured, since a method does the same with both. */
static ons_dtype measured_dtype(ons_dtype dtype) {
    return dtype == ONS_FLOAT16 ? ONS_BFLOAT16 : dtype;
}

/* The first length of a series, or NULL if it was not measured. */
static const entry *find_series(ons_dtype dtype, bool packs, ons_method method) {
    const entry wanted = ENTRY(SERIES_IS_NEXT, KEY((entry)dtype, packs, (entry)method));
    for (const entry *at = times; at < times + TIMES; at++)
        if (*at == wanted) return at + 1;
    return NULL;
}

double ons_measured_seconds(const ons_problem *problem, const ons_machine *machine,
                            const ons_plan *plan) {
    if (!is_what_was_measured(problem, plan)) return 0;
    ons_gpu gpu;
    ons_gpu_to_plan_for(problem, machine, &gpu);
    if (!was_measured(&gpu)) return 0;
    const ons_operand *x = &problem->operand[ONS_X], *y = &problem->operand[ONS_Y];
    const ons_dtype dtype = measured_dtype(x->dtype);
    const uintptr_t begins = (uintptr_t)x->data | (uintptr_t)y->data;
    const bool packs = plan->N * ons_dtype_size(dtype) % 16 == 0 && begins % 16 == 0;
    const entry *series = find_series(dtype, packs, plan->method);
    return series ? at_length(series, (double)plan->rows, (double)plan->N) : 0;
}

double ons_measured_copy_seconds(const ons_problem *problem, const ons_machine *machine,
                                 const ons_plan *plan) {
    if (ons_measured_seconds(problem, machine, plan) == 0) return 0;
    const int64_t size = ons_dtype_size(problem->operand[ONS_X].dtype);
    return at_rows(copies, copies + COPIES, (double)plan->rows * (double)plan->N * (double)size);
}

double ons_launch_seconds(const ons_problem *problem, const ons_plan *plan) {
    if (problem->device != ONS_CUDA) return 0;
    const ons_dtype dtype = measured_dtype(problem->operand[ONS_X].dtype);
    /* selections, losses and divergences have kernels of their own: no kernel is faster than the
     * shortest copy */
    const ons_operation_info *info = &ons_operations[problem->operation];
    const entry *at = info->selects || info->loss ? NULL : find_series(dtype, true, plan->method);
    double least = at ? INFINITY : seconds_of(copies[0]);
    for (; at && at < times + TIMES && what_of(*at) != SERIES_IS_NEXT; at++)
        if (what_of(*at) < LENGTH_IS_NEXT) least = fmin(least, seconds_of(*at));
    return least;
}

double ons_arithmetic_seconds(const ons_problem *problem, const ons_machine *machine,
                              const ons_plan *plan) {
    /* of an element: an exponential, its sum and a result take 13 multiply-adds, and there are 3
     * conversions, which are as slow where doubles are slow */
    enum { DOUBLES = 16 };
    if (problem->device != ONS_CUDA || plan->method != ONS_METHOD_exact) return 0;
    ons_gpu gpu;
    ons_gpu_to_plan_for(problem, machine, &gpu);
    return gpu.doubles > 0 ? DOUBLES * (double)plan->rows * (double)plan->N / gpu.doubles : 0;
}

/* The bytes read between two reads of an element, as a fraction of the GPU's L2. These bytes are
 * the inputs of all rows that the blocks process at once. `in_turn`: the whole array is read before
 * a row is read again, so they are all inputs. If the fraction is at most 1, a second read finds
 * its row in L2. */
static double part_of_cache(const ons_problem *problem, const ons_gpu *gpu, const ons_plan *plan,
                            bool in_turn) {
    const double all =
                     (double)(ons_first_reads(problem->operation) * ons_read_bytes(problem, plan)),
                 cache = (double)gpu->l2_bytes;
    if (in_turn || plan->threads == 0) return all / cache;
    const double rows =
        (double)(blocks_in_flight(gpu, plan->threads) * (plan->width > 1 ? plan->width : 1));
    return all / cache * fmin(1, rows / fmax((double)plan->rows, 1));
}

static int64_t least_bytes(const ons_problem *problem, const ons_machine *machine,
                           const ons_plan *plan, int reads, bool in_turn) {
    if (problem->device != ONS_CUDA) return plan->bytes_moved;
    ons_gpu gpu;
    ons_gpu_to_plan_for(problem, machine, &gpu);
    const int again_reads = reads - ons_first_reads(problem->operation);
    if (again_reads <= 0) return plan->bytes_moved;
    const int64_t again = again_reads * ons_read_bytes(problem, plan);
    const double part = part_of_cache(problem, &gpu, plan, in_turn);
    return plan->bytes_moved - (part <= 1 ? again : (int64_t)((double)again / part));
}

int64_t ons_least_bytes(const ons_problem *problem, const ons_machine *machine,
                        const ons_plan *plan) {
    /* `split` of a divergence has a block for each row */
    const bool in_turn = plan->method == ONS_METHOD_split && !ons_is_divergence(problem->operation);
    return least_bytes(problem, machine, plan, ons_plan_reads(problem, plan), in_turn);
}

int64_t ons_least_bytes_in_turn(const ons_problem *problem, const ons_machine *machine,
                                const ons_plan *plan, int reads) {
    return least_bytes(problem, machine, plan, reads, true);
}
