/* loss_parts.h - a loss and its gradient as problems that run one after the other. */
#ifndef ONS_LOSS_PARTS_H
#define ONS_LOSS_PARTS_H

#include "loss.h"
#include "plan_facts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first part does the work of all others: one kernel of a GPU that holds the rows. */
typedef enum {
    ONS_LOSS_AT_ONCE,
    ONS_LOSS_PAIRS,
    ONS_LOSS_WEIGHT_SUM, /* this part and the next: only with label smoothing */
    ONS_LOSS_SUMS,
    ONS_LOSS_VALUES,
    ONS_LOSS_GRADIENT,
    ONS_LOSS_PART_COUNT
} ons_loss_part;

/* The caller sets the first four. ons_plan_loss sets the others. */
typedef struct {
    /* Coalesced: cross_entropy_with_grad, whose y is the gradient, or cross_entropy, whose y may be
     * x. The pairs of the rows are not given. */
    ons_problem problem;
    /* Without weight_sum, sums and divisor. `loss` may be NULL if only `reduced` is wanted. */
    ons_loss terms;
    bool mean;         /* terms.reduced is the mean of the losses, else their sum */
    ons_method method; /* of all parts: ONS_METHOD_AUTO or ONS_METHOD_INVARIANT */
    bool at_once;
    ons_plan plan[ONS_LOSS_PART_COUNT]; /* of the parts that run */
    int64_t scratch_bytes;              /* of all parts */
} ons_loss_parts;

ons_status ons_plan_loss(ons_loss_parts *all, const ons_machine *machine);

/* After ons_plan_loss: what runs in turn (plan_facts.h). Returns the number of steps. */
int ons_loss_steps(const ons_loss_parts *all, ons_step steps[ONS_MOST_STEPS]);

/* After ons_plan_loss: the plan of the whole loss. It is the plan of the first part that reads the
 * logits, with the bytes and the scratch of all parts. */
ons_plan ons_whole_loss_plan(const ons_loss_parts *all);

/* As ons_run: on a GPU `scratch` is scratch_bytes of its memory, on the CPU it is NULL. */
ons_status ons_run_loss(const ons_loss_parts *all, void *scratch);

/* Multiplies `count` elements on a GPU by a number there, a float, or a double if the elements are.
 * If the number is 1, no element is read or written. */
ons_status ons_gpu_multiply(int gpu, void *stream, void *elements, ons_dtype dtype, int64_t count,
                            const void *by);

#ifdef __cplusplus
}
#endif

#endif
