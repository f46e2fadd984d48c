/* loss_parts.c - finds the pairs of the rows, the sums that label smoothing needs, the losses, and
 * the gradient. */
#include "loss_parts.h"

#include <stdlib.h>
#include <string.h>

enum { PAIR = 2 * sizeof(double), ALIGNMENT = 64 };

/* Where the parts leave their results, and the workspace that all parts share. */
typedef struct {
    char *pairs, *sums, *weight_sum, *divisor, *losses, *workspace;
} places;

static places cut(const ons_loss_parts *all, char *scratch) {
    const ons_problem *problem = &all->problem;
    const int64_t real = all->terms.in_double ? sizeof(double) : sizeof(float);
    int64_t rows = 1;
    for (int dim = 0; dim < problem->dims - problem->reduced_dims; dim++)
        rows *= problem->extent[dim];
    const int64_t bytes[] = {rows * PAIR, all->terms.smoothing != 0.0 ? rows * PAIR : 0, PAIR, PAIR,
                             all->terms.loss ? 0 : rows * real};
    char *at[6] = {scratch};
    for (int i = 0; i < 5; i++)
        at[i + 1] = at[i] + (bytes[i] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return (places){at[0], at[1], at[2], at[3], at[4], at[5]};
}

static bool runs(const ons_loss_parts *all, ons_loss_part part) {
    const bool smoothed = all->terms.smoothing != 0.0;
    if (all->at_once || part == ONS_LOSS_AT_ONCE) return all->at_once && part == ONS_LOSS_AT_ONCE;
    if (part == ONS_LOSS_WEIGHT_SUM) return smoothed && all->terms.weight;
    if (part == ONS_LOSS_SUMS) return smoothed;
    return part != ONS_LOSS_GRADIENT || !ons_operations[all->problem.operation].one_a_row;
}

/* Two doubles for each row, in the order of the rows. */
static void give_pairs(ons_problem *problem, ons_role role, char *data, ons_dtype dtype) {
    ons_operand *operand = &problem->operand[role];
    int64_t stride = PAIR;
    operand->data = data;
    operand->dtype = dtype;
    for (int dim = problem->dims - 1; dim >= 0; dim--) {
        const bool along = dim >= problem->dims - problem->reduced_dims;
        operand->stride[dim] = along ? 0 : stride;
        if (!along) stride *= problem->extent[dim];
    }
}

/* Adds up x over each row, or its products with `by`. */
static void add_up(ons_problem *problem, const ons_operand *by, char *sums) {
    problem->operation = by ? ONS_OPERATION_softmax_backward : ONS_OPERATION_log_softmax_backward;
    problem->sums = true;
    problem->operand[ONS_GRADIENT] = problem->operand[ONS_X];
    if (by) problem->operand[ONS_X] = *by;
    give_pairs(problem, ONS_Y, sums, problem->operand[ONS_X].dtype);
}

/* Copies a problem, except the room for dimensions that it does not have. */
static void copy_problem(const ons_problem *from, ons_problem *to) {
    const size_t dims = (size_t)from->dims * sizeof(int64_t),
                 last = offsetof(ons_problem, scale_by);
    memcpy(to, from, offsetof(ons_problem, extent) + dims);
    for (int role = 0; role < ONS_OPERANDS; role++)
        memcpy(&to->operand[role], &from->operand[role], offsetof(ons_operand, stride) + dims);
    memcpy((char *)to + last, (const char *)from + last, sizeof *to - last);
}

static void make_part(const ons_loss_parts *all, ons_loss_part part, const places *at,
                      const ons_loss *terms, ons_problem *problem) {
    copy_problem(&all->problem, problem);
    problem->loss = terms;
    ons_operand *x = &problem->operand[ONS_X];
    ons_operand weight = {
        (char *)all->terms.weight, terms->in_double ? ONS_FLOAT64 : ONS_FLOAT32, {0}};
    const int along = problem->dims - 1;
    weight.stride[along] = ons_dtype_size(weight.dtype);
    switch (part) {
    case ONS_LOSS_PAIRS:
        problem->operation = ONS_OPERATION_normalizer;
        give_pairs(problem, ONS_Y, at->pairs, x->dtype);
        break;
    case ONS_LOSS_WEIGHT_SUM:
        *x = weight;
        problem->dims = 1;
        problem->extent[0] = problem->extent[along];
        x->stride[0] = weight.stride[along];
        add_up(problem, NULL, at->weight_sum);
        break;
    case ONS_LOSS_SUMS: add_up(problem, weight.data ? &weight : NULL, at->sums); break;
    case ONS_LOSS_VALUES:
        problem->operation = ONS_OPERATION_cross_entropy;
        give_pairs(problem, ONS_Y, at->pairs, x->dtype);
        give_pairs(problem, ONS_STATISTIC, at->pairs, ONS_FLOAT64);
        break;
    case ONS_LOSS_GRADIENT: give_pairs(problem, ONS_STATISTIC, at->pairs, ONS_FLOAT64); break;
    default: return;
    }
    ons_coalesce(problem);
}

/* Makes the plan of a part that runs. */
static ons_status plan_part(ons_loss_parts *all, ons_loss_part part, const ons_machine *machine) {
    ons_problem problem;
    char *const nowhere = (char *)(uintptr_t)ALIGNMENT; /* a plan depends on the alignment */
    const places at = cut(all, nowhere);
    make_part(all, part, &at, &all->terms, &problem);
    const ons_status status = ons_make_plan(&problem, all->method, machine, &all->plan[part]);
    const bool on_cpu = problem.device == ONS_CPU; /* ons_run has its own workspace there */
    const int64_t bytes = (at.workspace - nowhere) + (on_cpu ? 0 : all->plan[part].workspace_bytes);
    if (bytes > all->scratch_bytes) all->scratch_bytes = bytes;
    return status;
}

ons_status ons_plan_loss(ons_loss_parts *all, const ons_machine *machine) {
    const ons_plan *at_once = &all->plan[ONS_LOSS_AT_ONCE];
    all->scratch_bytes = 0;
    all->at_once = all->problem.device == ONS_CUDA && all->terms.smoothing == 0.0 &&
                   !ons_operations[all->problem.operation].one_a_row &&
                   plan_part(all, ONS_LOSS_AT_ONCE, machine) == ONS_OK && at_once->rows > 0 &&
                   at_once->N > 0;
    ons_status status = ONS_OK;
    for (int part = ONS_LOSS_PAIRS; part < ONS_LOSS_PART_COUNT && status == ONS_OK; part++)
        if (runs(all, part)) status = plan_part(all, part, machine);
    return status;
}

int ons_loss_steps(const ons_loss_parts *all, ons_step steps[ONS_MOST_STEPS]) {
    static const struct {
        const char *what;
        bool has_method; /* it reads the logits by a method */
        int reads, writes;
    } parts[] = {
        [ONS_LOSS_AT_ONCE] = {"the loss of each row and its gradient, by one kernel", true, 1, 1},
        [ONS_LOSS_PAIRS] = {"the pair (m, d) of each row", true, 1, 0},
        [ONS_LOSS_WEIGHT_SUM] = {"the sum of the class weights", false, 0, 0},
        [ONS_LOSS_SUMS] = {"the sum of the logits of each row, for label_smoothing", true, 1, 0},
        [ONS_LOSS_VALUES] = {"the loss of each row, from one of its logits", false, 0, 0},
        [ONS_LOSS_GRADIENT] = {"the gradient", true, 1, 1}};
    int count = 0;
    for (int part = 0; part < ONS_LOSS_PART_COUNT; part++) {
        if (!runs(all, part)) continue;
        const ons_plan *plan = parts[part].has_method ? &all->plan[part] : NULL;
        steps[count++] = (ons_step){parts[part].what, plan ? plan->method : ONS_METHOD_AUTO, plan,
                                    parts[part].reads, parts[part].writes};
    }
    return count;
}

ons_plan ons_whole_loss_plan(const ons_loss_parts *all) {
    ons_plan whole = all->plan[all->at_once ? ONS_LOSS_AT_ONCE : ONS_LOSS_PAIRS];
    ons_step steps[ONS_MOST_STEPS];
    const int count = ons_loss_steps(all, steps);
    const int64_t of_losses = whole.rows * (all->terms.in_double ? 8 : 4);
    int64_t workspace = 0; /* of a part on the CPU, beside the scratch of all parts */
    whole.bytes_moved = of_losses;
    for (int i = 0; i < count; i++) {
        const int64_t times = steps[i].reads + steps[i].writes;
        whole.bytes_moved += times * ons_read_bytes(&all->problem, &whole);
        if (steps[i].plan && steps[i].plan->workspace_bytes > workspace)
            workspace = steps[i].plan->workspace_bytes;
    }
    const bool on_cpu = all->problem.device == ONS_CPU;
    const bool in_turn = !all->at_once && !ons_operations[all->problem.operation].one_a_row;
    if (in_turn && !(whole.invariant && !on_cpu))
        whole.reason =
            all->terms.smoothing != 0.0
                ? "label_smoothing needs a sum of each row before the gradient: three reads"
            : on_cpu ? "the pair of a row comes first, then the gradient: two reads"
                     : "no kernel holds such rows: the gradient reads them once more";
    whole.workspace_bytes = all->scratch_bytes + (on_cpu ? workspace : 0);
    return whole;
}

ons_status ons_run_loss(const ons_loss_parts *all, void *scratch) {
    const bool on_cpu = all->problem.device == ONS_CPU;
    ons_loss terms = all->terms;
    terms.share = 1.0;
    ons_status status = ONS_OK;
    if (on_cpu) scratch = aligned_alloc(ALIGNMENT, (size_t)all->scratch_bytes);
    if (!scratch) return ONS_E_MEMORY;
    const places at = cut(all, scratch);
    if (terms.smoothing != 0.0) terms.sums = (const double *)(const void *)at.sums;
    if (terms.smoothing != 0.0 && terms.weight)
        terms.weight_sum = (const double *)(const void *)at.weight_sum;
    if (all->mean) terms.divisor = (double *)(void *)at.divisor;
    if (!terms.loss) terms.loss = at.losses;
    for (int part = 0; part < ONS_LOSS_PART_COUNT && status == ONS_OK; part++) {
        ons_problem problem;
        if (!runs(all, part)) continue;
        make_part(all, part, &at, &terms, &problem);
        status = ons_run(&problem, &all->plan[part], on_cpu ? NULL : at.workspace);
    }
    if (on_cpu) free(scratch);
    return status;
}
