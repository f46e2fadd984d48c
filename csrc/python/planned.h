/* planned.h - the plans of calls that take more than a method, for plan(): losses,
 * log-probabilities, divergences, routers and samplers. */
#ifndef ONS_PYTHON_PLANNED_H
#define ONS_PYTHON_PLANNED_H

#include "arguments.h"

#include "../api/logprob.h"
#include "../api/loss_parts.h"
#include "../api/route.h"
#include "../api/sample.h"

/* The arrays of such a call exist in name alone. Do not copy it: the problem points into it. */
typedef struct {
    ons_problem problem; /* of a loss: of all its parts */
    ons_plan plan;       /* of the whole call */
    int steps;           /* their number */
    ons_step step[ONS_MOST_STEPS];
    int64_t least_bytes; /* plan_facts.h */
    ons_loss_parts parts;
    ons_logprob logprob;
    ons_loss divergence;
    ons_route route;
    ons_sample sample;
} ons_planned;

bool ons_is_planned_by_terms(ons_operation operation);

/* Makes the plan of a call on x. `terms` is a tuple of what onsoftmax/_plan/terms.py finds in the
 * call's arguments. plain_k is NULL if the operation takes no k. `result` is a view of x's shape
 * whose strides and address a gradient has. */
int ons_plan_by_terms(ons_operation operation, PyObject *terms, PyObject *plain_k,
                      const ons_view *x, const ons_view *result, const bool reduced[ONS_MAX_DIMS],
                      ons_method method, const ons_machine *machine, ons_planned *to);

/* The steps as a tuple of dicts. */
PyObject *ons_steps_as_dicts(const ons_planned *planned);

#endif
