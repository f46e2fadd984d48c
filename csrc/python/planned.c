/* planned.c - makes the problems of calls whose arrays exist in name alone, and their plans. */
#include "planned.h"

#include <string.h>

/* The address of an array that nobody reads. */
static void *const NOWHERE = (void *)(uintptr_t)4096;

bool ons_is_planned_by_terms(ons_operation operation) {
    return ons_operations[operation].loss || operation == ONS_OPERATION_route ||
           operation == ONS_OPERATION_sample;
}

/* The arrays of the call, before it makes its problem. */
typedef struct {
    ons_view operand[ONS_OPERANDS];
    const bool *reduced;
    ons_dtype real; /* the arithmetic's type, of results */
} arrays;

static int make_problem(ons_operation operation, const arrays *of, const ons_view *y,
                        ons_planned *to) {
    if (ons_make_problem(operation, of->operand, y, of->reduced, &to->problem) < 0) return -1;
    to->problem.scale_by = 1.0;
    to->problem.stream = NULL;
    return 0;
}

/* The plan of one problem. */
static ons_status plan_problem(ons_method method, const ons_machine *machine, ons_planned *to) {
    const ons_status status = ons_make_plan(&to->problem, method, machine, &to->plan);
    if (status != ONS_OK) return status;
    to->steps = ons_steps(&to->problem, &to->plan, to->step);
    to->least_bytes = ons_least_bytes(&to->problem, machine, &to->plan);
    return status;
}

/* ------- Losses (loss.c) ------- */

static int take_loss(PyObject *terms, ons_operation operation, const arrays *of,
                     const ons_view *result, ons_planned *to) {
    const bool gradient = operation == ONS_OPERATION_cross_entropy_with_grad;
    ons_loss *loss = &to->parts.terms;
    int has_weight, reduces;
    if (!PyArg_ParseTuple(terms, "dpp:terms", &loss->smoothing, &has_weight, &reduces) ||
        make_problem(operation, of, gradient ? result : &of->operand[ONS_X], to) < 0)
        return -1;
    loss->in_double = of->real == ONS_FLOAT64;
    loss->weight = has_weight ? NOWHERE : NULL;
    loss->loss = reduces ? NULL : NOWHERE;
    loss->reduced = reduces ? NOWHERE : NULL;
    return 0;
}

static ons_status plan_loss(ons_method method, const ons_machine *machine, ons_planned *to) {
    ons_loss_parts *parts = &to->parts;
    parts->problem = to->problem;
    parts->method = method;
    const ons_status status = ons_plan_loss(parts, machine);
    if (status != ONS_OK) return status;
    int reads = 0;
    to->plan = ons_whole_loss_plan(parts);
    to->steps = ons_loss_steps(parts, to->step);
    for (int i = 0; i < to->steps; i++) reads += to->step[i].reads;
    to->least_bytes = ons_least_bytes_in_turn(&to->problem, machine, &to->plan, reads);
    return ONS_OK;
}

/* ------- Log-probabilities (logprob.c) ------- */

static int take_logprob(PyObject *terms, const arrays *of, ons_planned *to) {
    ons_logprob *logprob = &to->logprob;
    ons_view y = of->operand[ONS_X]; /* one value a row */
    int entropy, argmax, rank;
    y.dtype = of->real;
    for (int i = 0; i < y.ndim; i++) y.strides[i] = 0;
    if (!PyArg_ParseTuple(terms, "ppp:terms", &entropy, &argmax, &rank) ||
        make_problem(ONS_OPERATION_logprob, of, &y, to) < 0)
        return -1;
    logprob->count = 1;
    logprob->in_double = of->real == ONS_FLOAT64;
    logprob->entropy = entropy ? NOWHERE : NULL;
    logprob->argmax = argmax ? NOWHERE : NULL;
    logprob->rank = rank ? NOWHERE : NULL;
    to->problem.logprob = logprob;
    return 0;
}

/* ------- Divergences (divergence.c) ------- */

static int take_divergence(PyObject *terms, ons_operation operation, arrays *of,
                           const ons_view *result, ons_planned *to) {
    ons_loss *loss = &to->divergence;
    int gradient, reduces;
    double scale;
    of->operand[ONS_GRADIENT] = of->operand[ONS_X]; /* the other input */
    if (!PyArg_ParseTuple(terms, "ppd:terms", &gradient, &reduces, &scale) ||
        make_problem(operation, of, gradient ? result : &of->operand[ONS_X], to) < 0)
        return -1;
    loss->gradient = gradient;
    loss->in_double = of->real == ONS_FLOAT64;
    loss->loss = NOWHERE;
    loss->reduced = reduces ? NOWHERE : NULL;
    to->problem.loss = loss;
    to->problem.scale_by = scale;
    return 0;
}

/* ------- Routers (route.c) ------- */

static int take_route(PyObject *terms, PyObject *plain_k, arrays *of, ons_planned *to) {
    ons_route *route = &to->route;
    ons_selection selection;
    ons_view weights, *x = &of->operand[ONS_X];
    int score, has_bias, renormalize;
    long long groups, top_groups;
    if (!PyArg_ParseTuple(terms, "ipLLp:terms", &score, &has_bias, &groups, &top_groups,
                          &renormalize) ||
        ons_take_selection(plain_k, NULL, x, of->reduced, &selection) < 0)
        return -1;
    route->score = (ons_score)score;
    route->bias = has_bias ? NOWHERE : NULL;
    route->groups = groups;
    route->top_groups = top_groups == ONS_ALL_GROUPS ? groups : top_groups;
    route->renormalize = renormalize;
    route->scale = 1.0;
    if (ons_check_groups(route, x->shape[selection.axis], selection.k) < 0) return -1;
    ons_view_selected(x, &selection, of->real, &weights);
    ons_view_selected(x, &selection, ONS_INT64, &of->operand[ONS_INDICES]);
    weights.data = of->operand[ONS_INDICES].data = NOWHERE;
    if (make_problem(ONS_OPERATION_route, of, &weights, to) < 0) return -1;
    to->problem.route = route;
    to->problem.k = selection.k;
    return 0;
}

/* ------- Samplers (sample.c) ------- */

/* A number for all rows, or None for an array with a number for each row. */
static int take_real(PyObject *object, ons_row_real *to) {
    if (object == Py_None) {
        to->of_rows = NOWHERE;
        to->step = 1;
        to->dtype = ONS_FLOAT32;
        return 0;
    }
    to->number = PyFloat_AsDouble(object);
    return PyErr_Occurred() ? -1 : 0;
}
static int take_integer(PyObject *object, ons_row_integer *to) {
    if (object == Py_None) {
        to->of_rows = NOWHERE;
        to->step = 1;
        return 0;
    }
    to->number = PyLong_AsLongLong(object);
    return PyErr_Occurred() ? -1 : 0;
}

static int take_sample(PyObject *terms, arrays *of, ons_planned *to) {
    ons_sample *sample = &to->sample;
    ons_selection selection = {.k = 1};
    ons_view logprobs, *x = &of->operand[ONS_X];
    PyObject *temperature, *top_k, *top_p, *min_p;
    int joint, logprob;
    if (!PyArg_ParseTuple(terms, "OOOOpi:terms", &temperature, &top_k, &top_p, &min_p, &joint,
                          &logprob) ||
        take_real(temperature, &sample->temperature) < 0 ||
        take_integer(top_k, &sample->top_k) < 0 || take_real(top_p, &sample->top_p) < 0 ||
        take_real(min_p, &sample->min_p) < 0)
        return -1;
    sample->draws = true;
    sample->joint = joint;
    sample->logprob = (ons_sample_logprob)logprob;
    while (!of->reduced[selection.axis]) selection.axis++;
    if (x->shape[selection.axis] == 0) {
        PyErr_SetString(PyExc_ValueError, "logits has rows of length 0: expected at least 1");
        return -1;
    }
    ons_view_selected(x, &selection, of->real, &logprobs);
    ons_view_selected(x, &selection, ONS_INT64, &of->operand[ONS_INDICES]);
    logprobs.data = of->operand[ONS_INDICES].data = NOWHERE;
    if (make_problem(ONS_OPERATION_sample, of, &logprobs, to) < 0) return -1;
    to->problem.sample = sample;
    to->problem.k = 1;
    return 0;
}

/* ------- All of them ------- */

int ons_plan_by_terms(ons_operation operation, PyObject *terms, PyObject *plain_k,
                      const ons_view *x, const ons_view *result, const bool reduced[ONS_MAX_DIMS],
                      ons_method method, const ons_machine *machine, ons_planned *to) {
    arrays of = {.reduced = reduced, .real = x->dtype == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32};
    int taken;
    ons_status status;
    memset(to, 0, sizeof *to);
    for (int role = 0; role < ONS_OPERANDS; role++) ons_no_view(&of.operand[role]);
    of.operand[ONS_X] = *x;
    if (x->ndim == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "the array has shape (): expected at least one dimension");
        return -1;
    }
    switch (operation) {
    case ONS_OPERATION_cross_entropy:
    case ONS_OPERATION_cross_entropy_with_grad:
        taken = take_loss(terms, operation, &of, result, to);
        status = taken == 0 ? plan_loss(method, machine, to) : ONS_OK;
        break;
    case ONS_OPERATION_logprob:
        taken = take_logprob(terms, &of, to);
        status = taken == 0 ? plan_problem(method, machine, to) : ONS_OK;
        break;
    case ONS_OPERATION_kl_divergence:
    case ONS_OPERATION_reverse_kl_divergence:
    case ONS_OPERATION_js_divergence:
        taken = take_divergence(terms, operation, &of, result, to);
        status = taken == 0 ? plan_problem(method, machine, to) : ONS_OK;
        break;
    case ONS_OPERATION_route:
        taken = take_route(terms, plain_k, &of, to);
        status = taken == 0 ? plan_problem(method, machine, to) : ONS_OK;
        if (taken == 0 && status == ONS_OK && x->device == ONS_CPU)
            to->plan.workspace_bytes = ons_route_scratch(&to->problem, &to->plan, &to->plan.width);
        break;
    case ONS_OPERATION_sample:
        taken = take_sample(terms, &of, to);
        status = taken == 0 ? plan_problem(method, machine, to) : ONS_OK;
        break;
    default: PyErr_SetString(PyExc_ValueError, "the operation takes no terms"); return -1;
    }
    if (taken == 0 && status != ONS_OK)
        ons_set_error(status, method, &to->problem, machine, &to->plan);
    return taken == 0 && status == ONS_OK ? 0 : -1;
}

PyObject *ons_steps_as_dicts(const ons_planned *planned) {
    PyObject *all = PyTuple_New(planned->steps);
    for (int i = 0; all && i < planned->steps; i++) {
        const ons_step *step = &planned->step[i];
        const ons_plan *plan = step->plan;
        const bool on_gpu = planned->problem.device == ONS_CUDA;
        PyObject *one = Py_BuildValue(
            "{s:s,s:z,s:i,s:i,s:i,s:L}", "what", step->what, "method",
            step->method == ONS_METHOD_AUTO ? NULL : ons_method_name(step->method), "reads",
            step->reads, "writes", step->writes, "threads", plan ? plan->threads : 0,
            "blocks_a_row", plan && on_gpu ? (long long)ons_blocks_a_row(plan) : 0LL);
        if (!one) {
            Py_CLEAR(all);
            break;
        }
        PyTuple_SET_ITEM(all, i, one);
    }
    return all;
}
