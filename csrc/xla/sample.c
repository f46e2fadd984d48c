/* sample.c - the calls of samplers and of filtered_softmax in a program of XLA. */
#include "arrays.h"

/* What all parameters belong to. A parameter is an argument, or else an attribute with its name. */
typedef struct {
    const xla_frame *frame;
    const xla_shape *shape;
} parameters;

/* 1 if a parameter has a number for each row, 0 if it has one for all rows, else -1. */
static int step_of(const parameters *of, const xla_buffer *buffer) {
    const int64_t a_row = buffer->dtype == XLA_UINT32 ? XLA_WORDS : XLA_NO_DIMENSION;
    if (ons_xla_is_of_rows(buffer, of->shape, a_row)) return 1;
    xla_shape one = *of->shape;
    for (int i = 0; i < one.dims; i++) one.extent[i] = 1;
    return ons_xla_is_of_rows(buffer, &one, a_row) ? 0 : -1;
}

static bool take_real(const parameters *of, const char *name, const xla_buffer *buffer,
                      ons_row_real *to) {
    if (!buffer) {
        const double *number = ons_xla_scalar(of->frame, name, XLA_FLOAT64);
        if (number) to->number = *number;
        return number;
    }
    to->of_rows = buffer->data;
    to->step = step_of(of, buffer);
    to->dtype = buffer->dtype == XLA_FLOAT32 ? ONS_FLOAT32 : ONS_FLOAT64;
    return to->step >= 0 && (buffer->dtype == XLA_FLOAT32 || buffer->dtype == XLA_FLOAT64 ||
                             buffer->dtype == XLA_UINT32);
}

static bool take_integer(const parameters *of, const char *name, const xla_buffer *buffer,
                         ons_row_integer *to) {
    if (!buffer) {
        const int64_t *number = ons_xla_scalar(of->frame, name, XLA_INT64);
        if (number) to->number = *number;
        return number;
    }
    to->of_rows = buffer->data;
    to->step = step_of(of, buffer);
    to->is_wide = buffer->dtype != XLA_INT32;
    return to->step >= 0 && (buffer->dtype == XLA_INT32 || buffer->dtype == XLA_INT64 ||
                             buffer->dtype == XLA_UINT32);
}

/* The attributes besides the parameters. Returns false if one is missing, or out of range. */
static bool take_terms(const xla_frame *frame, ons_sample *sample) {
    const int32_t *joint = ons_xla_scalar(frame, "joint", XLA_INT32);
    if (!joint) return false;
    sample->joint = *joint;
    if (!sample->draws) return true;
    const int32_t *logprob = ons_xla_scalar(frame, "logprob", XLA_INT32);
    const int64_t *period = ons_xla_scalar(frame, "period", XLA_INT64);
    if (!logprob || !period || *period < 1 || *logprob < ONS_NO_LOGPROB ||
        *logprob > ONS_LOGPROB_FILTERED)
        return false;
    sample->logprob = (ons_sample_logprob)*logprob;
    sample->period = *period;
    return true;
}

/* The tokens and whether they are valid: an entry for each row. */
static bool take_tokens(xla_buffer *const *results, const xla_shape *shape, ons_xla_call *call) {
    const xla_buffer *indices = results[1], *valid = results[2];
    call->sample.valid = valid->data;
    return call->problem.k == 1 &&
           ons_xla_add_operand(ONS_INDICES, indices, shape, SELECTED, 0, &call->problem) &&
           (indices->dtype == XLA_INT32 || indices->dtype == XLA_INT64) &&
           valid->dtype == XLA_BOOL && ons_xla_is_of_rows(valid, shape, XLA_NO_DIMENSION);
}

const char *ons_xla_take_sample(const xla_frame *frame, const xla_text *operands,
                                const xla_array *axes, ons_xla_call *call) {
    enum { LOGITS, WHERE, TEMPERATURE, TOP_K, TOP_P, MIN_P, SEED, OFFSET, ARGUMENTS };
    ons_problem *problem = &call->problem;
    ons_sample *sample = &call->sample;
    ons_operand *operand = problem->operand;
    const xla_buffer *of[ARGUMENTS] = {NULL};
    xla_buffer *const *results = frame->results.buffers;
    const bool draws = problem->operation == ONS_OPERATION_sample;
    const char *wrong = ons_xla_find_arguments(frame, operands, draws ? "xwtkpmso" : "xwtkpm", of);
    if (wrong) return wrong;
    sample->draws = draws;
    if (!take_terms(frame, sample) || !of[LOGITS] || axes->length != 1 ||
        frame->results.count != (draws ? 3 : 1))
        return "an attribute, an array or the axis of the sampler is missing";
    xla_shape shape = {0};
    operand[ONS_WHERE].dtype = ONS_BOOL;
    if (!ons_xla_take_shape(axes, of[LOGITS], results[0], false, &shape, problem) ||
        !ons_xla_add_operand(ONS_X, of[LOGITS], &shape, ROW, 0, problem) ||
        (of[WHERE] && !ons_xla_add_operand(ONS_WHERE, of[WHERE], &shape, ROW, 0, problem)) ||
        !ons_xla_add_operand(ONS_Y, results[0], &shape, draws ? SELECTED : ROW, 0, problem))
        return ons_xla_misfit;
    const int real = operand[ONS_X].dtype == ONS_FLOAT64 ? XLA_FLOAT64 : XLA_FLOAT32;
    if (results[0]->dtype != real || (draws && !take_tokens(results, &shape, call)))
        return ons_xla_misfit;
    const parameters all = {frame, &shape};
    if (!take_real(&all, "temperature", of[TEMPERATURE], &sample->temperature) ||
        !take_integer(&all, "top_k", of[TOP_K], &sample->top_k) ||
        !take_real(&all, "top_p", of[TOP_P], &sample->top_p) ||
        !take_real(&all, "min_p", of[MIN_P], &sample->min_p) ||
        (draws && (!take_integer(&all, "seed", of[SEED], &sample->seed) ||
                   !take_integer(&all, "offset", of[OFFSET], &sample->offset))))
        return "a parameter of the sampler is missing, or has a type or a shape that does not fit";
    problem->sample = sample;
    problem->k = 1;
    problem->sorted = true;
    ons_filtered_softmax_without_filter(problem);
    return NULL;
}
