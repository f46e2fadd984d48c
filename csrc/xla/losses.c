/* losses.c - the calls of losses, divergences and log-probabilities in a program of XLA. */
#include "arrays.h"

const char *ons_xla_take_loss(const xla_frame *frame, const xla_text *operands,
                              const xla_array *axes, ons_xla_call *call) {
    enum { LOGITS, TARGET, WEIGHT, GIVEN };
    ons_problem *problem = &call->problem;
    ons_loss *terms = &call->terms;
    const xla_buffer *of[4] = {NULL};
    xla_buffer *const *results = frame->results.buffers;
    const bool gradient = problem->operation == ONS_OPERATION_cross_entropy_with_grad;
    const int64_t *ignored = ons_xla_scalar(frame, "ignore_index", XLA_INT64);
    const double *smoothing = ons_xla_scalar(frame, "label_smoothing", XLA_FLOAT64),
                 *z_loss = ons_xla_scalar(frame, "z_loss", XLA_FLOAT64);
    const char *wrong = ons_xla_find_arguments(frame, operands, "xtcl", of);
    if (wrong) return wrong;
    if (!ignored || !smoothing || !z_loss || !of[LOGITS] || !of[TARGET] || axes->length != 1 ||
        frame->results.count != 2 + gradient)
        return "an attribute, an array or the axis of the loss is missing";
    const xla_buffer *loss = results[gradient], *lse = results[gradient + 1];
    xla_shape shape = {0};
    ons_operand *x = &problem->operand[ONS_X], *y = &problem->operand[ONS_Y];
    bool fits = ons_xla_take_shape(axes, of[LOGITS], loss, false, &shape, problem) &&
                ons_xla_add_operand(ONS_X, of[LOGITS], &shape, ROW, 0, problem);
    if (fits && gradient)
        fits =
            ons_xla_add_operand(ONS_Y, results[0], &shape, ROW, 0, problem) && y->dtype == x->dtype;
    else
        *y = *x;
    terms->in_double = x->dtype == ONS_FLOAT64;
    const int real = terms->in_double ? XLA_FLOAT64 : XLA_FLOAT32;
    const xla_buffer *const of_rows[] = {of[TARGET], loss, lse, of[GIVEN]};
    for (int i = 0; fits && i < 4; i++)
        fits = !of_rows[i] || (ons_xla_is_of_rows(of_rows[i], &shape, XLA_NO_DIMENSION) &&
                               (of_rows[i] == of[TARGET] || of_rows[i]->dtype == real));
    terms->wide_target = of[TARGET]->dtype == XLA_INT64;
    if (!fits || (!terms->wide_target && of[TARGET]->dtype != XLA_INT32) ||
        (of[WEIGHT] && (of[WEIGHT]->dims != 1 || of[WEIGHT]->dtype != real ||
                        of[WEIGHT]->shape[0] != problem->extent[problem->dims - 1])))
        return ons_xla_misfit;
    terms->target = of[TARGET]->data;
    terms->weight = of[WEIGHT] ? of[WEIGHT]->data : NULL;
    terms->given = of[GIVEN] ? of[GIVEN]->data : NULL;
    terms->given_step = 1;
    terms->loss = loss->data;
    terms->lse = lse->data;
    terms->ignore_index = *ignored;
    terms->smoothing = *smoothing;
    terms->z_loss = *z_loss;
    return NULL;
}

/* ------- Divergences ------- */

const char *ons_xla_take_divergence(const xla_frame *frame, const xla_text *operands,
                                    const xla_array *axes, ons_xla_call *call) {
    enum { LOGITS, OTHER, WHERE, SCALE, GIVEN, ARGUMENTS };
    static const ons_role roles[] = {ONS_X, ONS_GRADIENT, ONS_WHERE, ONS_SCALE};
    ons_problem *problem = &call->problem;
    ons_loss *terms = &call->terms;
    ons_operand *operand = problem->operand;
    const xla_buffer *of[ARGUMENTS] = {NULL};
    xla_buffer *const *results = frame->results.buffers;
    const double *beta = ons_xla_scalar(frame, "beta", XLA_FLOAT64);
    const char *wrong = ons_xla_find_arguments(frame, operands, "xgwsl", of);
    if (wrong) return wrong;
    if (!beta || !of[LOGITS] || !of[OTHER] || axes->length != 1 || frame->results.count < 1 ||
        frame->results.count > 2)
        return "an attribute, an array or the axis of the divergence is missing";
    terms->gradient = frame->results.count == 2;
    const xla_buffer *value = results[terms->gradient];
    xla_shape shape = {0};
    bool fits = ons_xla_take_shape(axes, of[LOGITS], value, false, &shape, problem) &&
                ons_xla_is_of_rows(value, &shape, XLA_NO_DIMENSION);
    operand[ONS_WHERE].dtype = ONS_BOOL;
    operand[ONS_SCALE].dtype = ONS_FLOAT64;
    for (int i = LOGITS; fits && i < GIVEN; i++)
        fits = !of[i] ||
               ons_xla_add_operand(roles[i], of[i], &shape, i == SCALE ? VALUE : ROW, 0, problem);
    operand[ONS_Y] = operand[ONS_X];
    if (fits && terms->gradient)
        fits = ons_xla_add_operand(ONS_Y, results[0], &shape, ROW, 0, problem);
    terms->in_double = operand[ONS_X].dtype == ONS_FLOAT64;
    const int real = terms->in_double ? XLA_FLOAT64 : XLA_FLOAT32;
    if (!fits || operand[ONS_GRADIENT].dtype != operand[ONS_X].dtype ||
        operand[ONS_Y].dtype != operand[ONS_X].dtype || value->dtype != real ||
        (of[GIVEN] &&
         (of[GIVEN]->dtype != real || !ons_xla_is_of_rows(of[GIVEN], &shape, XLA_NO_DIMENSION))))
        return ons_xla_misfit;
    terms->given = of[GIVEN] ? of[GIVEN]->data : NULL;
    terms->given_step = 1;
    terms->loss = value->data;
    terms->beta = *beta;
    terms->share = 1.0;
    problem->loss = terms;
    return of[SCALE] ? ons_xla_widen_scale(of[SCALE], call) : NULL;
}

/* ------- Log-probabilities ------- */

/* An array with entries for each row. */
typedef struct {
    const xla_buffer *buffer; /* or NULL */
    int dtype;
    int64_t a_row;
    const void **to;
} array_of_rows;

static bool take_of_rows(const array_of_rows *arrays, int count, const xla_shape *shape) {
    for (int i = 0; i < count; i++) {
        const array_of_rows *each = &arrays[i];
        if (!each->buffer) continue;
        if (each->buffer->dtype != each->dtype ||
            !ons_xla_is_of_rows(each->buffer, shape, each->a_row))
            return false;
        *each->to = each->buffer->data;
    }
    return true;
}

/* The moments of all rows have one dimension, since they do not lie row after row. */
static bool take_moments(const xla_buffer *buffer, const xla_shape *shape, ons_logprob *terms) {
    int64_t words = ONS_MOMENTS * XLA_WORDS;
    for (int i = 0; i < shape->dims; i++) words *= shape->reduced[i] ? 1 : shape->extent[i];
    terms->moments = buffer->data;
    return buffer->dtype == XLA_UINT32 && buffer->dims == 1 && buffer->shape[0] == words;
}

static bool take_results(const xla_frame *frame, int flags, int real, const xla_shape *shape,
                         ons_xla_call *call) {
    enum { CHOSEN, ENTROPY, LSE, ARGMAX, RANK, MOMENTS, RESULTS };
    static const int flag_of[] = {
        0, ONS_XLA_ENTROPY, ONS_XLA_LSE, ONS_XLA_ARGMAX, ONS_XLA_RANK, ONS_XLA_MOMENTS};
    ons_logprob *terms = &call->logprob;
    const xla_buffer *found[RESULTS] = {NULL};
    int64_t count = 0;
    for (int i = 0; i < RESULTS; i++)
        if (i == CHOSEN || (flags & flag_of[i])) {
            if (count == frame->results.count) return false;
            found[i] = frame->results.buffers[count++];
        }
    const array_of_rows arrays[] = {
        {found[CHOSEN], real, terms->count, (const void **)&terms->chosen},
        {found[ENTROPY], real, 1, (const void **)&terms->entropy},
        {found[LSE], real, 1, (const void **)&terms->lse},
        {found[ARGMAX], XLA_UINT32, XLA_WORDS, (const void **)&terms->argmax},
        {found[RANK], XLA_UINT32, XLA_WORDS, (const void **)&terms->rank}};
    ons_operand *y = &call->problem.operand[ONS_Y];
    *y = call->problem.operand[ONS_X]; /* one value a row, which takes no memory of its own */
    y->data = found[CHOSEN]->data;
    y->dtype = terms->in_double ? ONS_FLOAT64 : ONS_FLOAT32;
    for (int i = 0; i < call->problem.dims; i++) y->stride[i] = 0;
    return count == frame->results.count && take_of_rows(arrays, MOMENTS, shape) &&
           (!found[MOMENTS] || take_moments(found[MOMENTS], shape, terms)) &&
           (!found[RANK] || terms->count == 1);
}

/* The pairs are the first two of each row's moments. */
static bool add_pairs(const xla_buffer *moments, const xla_shape *shape, ons_problem *problem) {
    int64_t lengths[ONS_MAX_DIMS + 1];
    for (int i = 0; i < shape->dims; i++) lengths[i] = shape->reduced[i] ? 1 : shape->extent[i];
    lengths[shape->dims] = 2 * XLA_WORDS;
    const xla_buffer pairs = {
        .dtype = XLA_UINT32, .data = moments->data, .dims = shape->dims + 1, .shape = lengths};
    return ons_xla_add_operand(ONS_STATISTIC, &pairs, shape, VALUE, 2, problem);
}

const char *ons_xla_take_logprob(const xla_frame *frame, const xla_text *operands,
                                 const xla_array *axes, int flags, ons_xla_call *call) {
    enum { LOGITS, INDEX, MOMENTS, OF_CHOSEN, OF_ENTROPY, OF_LSE, ARGUMENTS };
    ons_problem *problem = &call->problem;
    ons_logprob *terms = &call->logprob;
    const xla_buffer *of[ARGUMENTS] = {NULL};
    const bool gradient = problem->operation == ONS_OPERATION_logprob_backward;
    const char *wrong = ons_xla_find_arguments(frame, operands, "xtpghl", of);
    if (wrong) return wrong;
    if (!of[LOGITS] || !of[INDEX] || axes->length != 1 || (of[MOMENTS] != NULL) != gradient ||
        (!gradient && (of[OF_CHOSEN] || of[OF_ENTROPY] || of[OF_LSE])) ||
        frame->results.count < 1 || (gradient && frame->results.count > 1))
        return "an array or the axis of the log-probabilities is missing, or is given to an "
               "operation that does not take it";
    xla_shape shape = {0};
    const ons_operand *x = &problem->operand[ONS_X], *y = &problem->operand[ONS_Y];
    if (!ons_xla_take_shape(axes, of[LOGITS], of[INDEX], true, &shape, problem) ||
        !ons_xla_add_operand(ONS_X, of[LOGITS], &shape, ROW, 0, problem))
        return ons_xla_misfit;
    terms->in_double = x->dtype == ONS_FLOAT64;
    terms->wide_index = of[INDEX]->dtype == XLA_INT64;
    terms->count = of[INDEX]->shape[shape.dims];
    const int real = terms->in_double ? XLA_FLOAT64 : XLA_FLOAT32;
    const array_of_rows arrays[] = {
        {of[INDEX], terms->wide_index ? XLA_INT64 : XLA_INT32, terms->count, &terms->index},
        {of[OF_CHOSEN], real, terms->count, &terms->of_chosen},
        {of[OF_ENTROPY], real, 1, &terms->of_entropy},
        {of[OF_LSE], real, 1, &terms->of_lse}};
    if (terms->count < 1 || !take_of_rows(arrays, 4, &shape)) return ons_xla_misfit;
    problem->logprob = terms;
    if (!gradient) return take_results(frame, flags, real, &shape, call) ? NULL : ons_xla_misfit;
    return take_moments(of[MOMENTS], &shape, terms) && add_pairs(of[MOMENTS], &shape, problem) &&
                   ons_xla_add_operand(ONS_Y, frame->results.buffers[0], &shape, ROW, 0, problem) &&
                   y->dtype == x->dtype
               ? NULL
               : ons_xla_misfit;
}
