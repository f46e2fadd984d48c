/* route.c - the calls of routers in a program of XLA. */
#include "arrays.h"

/* Reads the attributes. Returns false if one is missing. */
static bool take_terms(const xla_frame *frame, ons_xla_call *call) {
    ons_route *route = &call->route;
    const int32_t *score = ons_xla_scalar(frame, "score", XLA_INT32),
                  *renormalize = ons_xla_scalar(frame, "renormalize", XLA_INT32);
    const int64_t *groups = ons_xla_scalar(frame, "groups", XLA_INT64),
                  *top_groups = ons_xla_scalar(frame, "top_groups", XLA_INT64);
    if (!score || !renormalize || !groups || !top_groups || *score < ONS_SCORE_SOFTMAX ||
        *score > ONS_SCORE_NONE)
        return false;
    route->score = (ons_score)*score;
    route->renormalize = *renormalize;
    route->groups = *groups;
    route->top_groups = *top_groups;
    route->scale = call->problem.scale_by;
    call->problem.scale_by = 1.0;
    call->problem.route = route;
    call->problem.sorted = true;
    return true;
}

/* Whether the groups are equal, and those that experts come from have k of them. */
static bool groups_fit(const ons_route *route, int64_t N, int64_t k) {
    return route->groups >= 1 && N % route->groups == 0 && route->top_groups >= 1 &&
           route->top_groups <= route->groups && k >= 1 &&
           k <= N / route->groups * route->top_groups;
}

const char *ons_xla_take_route(const xla_frame *frame, const xla_text *operands,
                               const xla_array *axes, ons_xla_call *call) {
    enum { LOGITS, WHERE, BIAS, ARGUMENTS };
    ons_problem *problem = &call->problem;
    ons_operand *operand = problem->operand;
    const xla_buffer *of[ARGUMENTS] = {NULL};
    xla_buffer *const *results = frame->results.buffers;
    const char *wrong = ons_xla_find_arguments(frame, operands, "xwb", of);
    if (wrong) return wrong;
    if (!take_terms(frame, call) || !of[LOGITS] || axes->length != 1 || frame->results.count != 2)
        return "an attribute, an array or the axis of the router is missing";
    xla_shape shape = {0};
    operand[ONS_WHERE].dtype = ONS_BOOL;
    if (!ons_xla_take_shape(axes, of[LOGITS], results[0], false, &shape, problem) ||
        !ons_xla_add_operand(ONS_X, of[LOGITS], &shape, ROW, 0, problem) ||
        (of[WHERE] && !ons_xla_add_operand(ONS_WHERE, of[WHERE], &shape, ROW, 0, problem)) ||
        !ons_xla_add_operand(ONS_Y, results[0], &shape, SELECTED, 0, problem) ||
        !ons_xla_add_operand(ONS_INDICES, results[1], &shape, SELECTED, 0, problem))
        return ons_xla_misfit;
    const bool in_double = operand[ONS_X].dtype == ONS_FLOAT64;
    const int real = in_double ? XLA_FLOAT64 : XLA_FLOAT32;
    const int64_t along = *(const int64_t *)axes->values, N = of[LOGITS]->shape[shape.dims + along];
    if (results[0]->dtype != real ||
        (results[1]->dtype != XLA_INT32 && results[1]->dtype != XLA_INT64) ||
        (of[BIAS] && (of[BIAS]->dims != 1 || of[BIAS]->dtype != real || of[BIAS]->shape[0] != N)))
        return ons_xla_misfit;
    call->route.bias = of[BIAS] ? of[BIAS]->data : NULL;
    return groups_fit(&call->route, N, problem->k) ? NULL : "the groups do not fit the experts";
}
