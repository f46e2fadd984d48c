/* call.c - reads a call of XLA: its attributes, its arrays, and the problem that they make.
 * Attributes:
 *
 *   operation    an operation's name, or merge
 *   operands     a letter for each argument: x the array, or the result of the forward step;
 *                g a gradient; w a mask; s a scale; p pairs; for a loss t the targets, c the
 *                weights of the classes, l the gradients of the rows' losses; for a divergence
 *                g the logits of the other side, l the gradients of the rows' values; for
 *                log-probabilities t the index, and for their gradient p the moments, g, h and l
 *                the gradients of the log-probabilities, the entropy and the logsumexp; for a
 *                router b the bias of the experts; for a sampler t, k, p, m, s and o the
 *                temperature, top_k, top_p, min_p, seed and offset of each row or of all rows
 *   axes         the axes of a row, from the end: -1 is the last one
 *   method, num_threads, scale   as in Python; scale if no argument is one
 *   flags        ONS_XLA_LOG and the others of ffi.h
 *   ignore_index, label_smoothing, z_loss   of a loss, as in Python
 *   beta         of a divergence: the share of x
 *   score, groups, top_groups, renormalize   of a router (api/route.h), whose scale multiplies the
 *                weights
 *   joint, logprob, period, and temperature, top_k, top_p, min_p, seed and offset that are no
 *                arguments   of a sampler (api/sample.h)
 *
 * An argument has as many dimensions as the result. If an argument has length 1 along a dimension
 * and the result is longer, its one element serves for all. vmap passes arguments that it does not
 * map in this form. A result with one value a row has length 1 along the axes. States and pairs are
 * float64 in memory, but have type uint32, since JAX by default has no float64. Their words are in
 * a last dimension of their own.
 *
 * The results of a loss are its gradient, if the operation has one, the loss of each row, and the
 * logsumexp of each row. The arrays with an entry for each row have all rows. The weights have one
 * dimension.
 *
 * The results of a divergence are the gradient of x, if there are two results, and the value of
 * each row. The gradients of the values have all rows.
 *
 * The results of log-probabilities are the log-probabilities, then the results that the flags name,
 * in the flags' order. The log-probabilities, the index and their gradients have all rows, and a
 * last dimension of their own for the entries of each row. argmax and rank are int64 in memory, as
 * words. The moments have one dimension, in the order of api/logprob.h. An index out of range gives
 * NaN.
 *
 * The results of a router are the weights and the indices. The bias has one dimension.
 *
 * The results of a sampler are the log-probability of each row, its index, and whether it is valid.
 * Its parameters of 64 bits may be words. */
#include "../api/plan_facts.h"
#include "arrays.h"

#include <string.h>

static bool take_names(const xla_text *operation, const xla_text *method, ons_xla_call *call) {
    call->merges = ons_xla_is(operation, "merge");
    int found = call->merges ? 0 : -1;
    for (int i = 0; i < ONS_OPERATION_COUNT; i++)
        if (ons_xla_is(operation, ons_operations[i].name)) found = i;
    if (found < 0) return false;
    call->problem.operation = (ons_operation)found;
    for (int i = ONS_METHOD_INVARIANT; i < ONS_METHOD_COUNT; i++)
        if (ons_xla_is(method, ons_method_name((ons_method)i))) {
            call->method = (ons_method)i;
            return true;
        }
    return false;
}

static bool all_are_buffers(const xla_buffers *all) {
    for (int64_t i = 0; i < all->count; i++)
        if (all->types[i] != XLA_IS_BUFFER) return false;
    return true;
}

/* Merges the states of a row's parts, one after the other, into the row's pair. */
static bool take_merging(const xla_frame *frame, ons_xla_call *call) {
    if (frame->arguments.count != 1 || frame->results.count != 1) return false;
    const xla_buffer *from = frame->arguments.buffers[0], *to = frame->results.buffers[0];
    const int64_t last = from->dims - 1;
    ons_merging *all = &call->merging;
    if (last < 1 || to->dims != last || from->dtype != XLA_UINT32 || to->dtype != XLA_UINT32 ||
        from->shape[last] != ONS_PACKED_VALUES * XLA_WORDS || to->shape[last - 1] != 2 * XLA_WORDS)
        return false;
    all->rows = 1;
    for (int64_t i = 0; i < last - 1; i++) {
        if (to->shape[i] != from->shape[i]) return false;
        all->rows *= from->shape[i];
    }
    all->parts = from->shape[last - 1];
    all->values = ONS_PACKED_VALUES;
    all->gives = ONS_GIVES_PAIR;
    all->arrays = 1;
    all->dims = 2;
    all->merged_dims = 1;
    all->extent[0] = all->rows;
    all->extent[1] = all->parts;
    all->from[0].data = from->data;
    all->from[0].value_stride = sizeof(double);
    all->from[0].stride[1] = ONS_PACKED_VALUES * (int64_t)sizeof(double);
    all->from[0].stride[0] = all->from[0].stride[1] * all->parts;
    all->to = to->data;
    return true;
}

/* The arrays of a problem whose operation and flags are known. */
static const char *take_arrays(const xla_frame *frame, const xla_text *operands,
                               const xla_array *axes, ons_xla_call *call) {
    ons_problem *problem = &call->problem;
    const ons_operation_info *info = &ons_operations[problem->operation];
    const xla_buffers *results = &frame->results;
    if (results->count != 1 + info->selects) return "the operation has another number of results";
    const xla_buffer *buffer[ONS_OPERANDS] = {NULL};
    const char *wrong =
        ons_xla_find_arguments(frame, operands, "x wspg", buffer); /* in roles' order */
    if (wrong) return wrong;
    buffer[ONS_Y] = results->buffers[0];
    buffer[ONS_INDICES] = info->selects ? results->buffers[1] : NULL;
    if (!buffer[ONS_X] || (buffer[ONS_GRADIENT] != NULL) != info->gradient ||
        (info->selects && axes->length != 1))
        return "the array, its gradient or its axis is missing, or is given to an operation that "
               "does not take it";
    if (problem->sums && !info->pair && !info->gradient) return "the operation has no sums";
    const int states = !problem->sums   ? info->pair * ons_pair_values(call->method)
                       : info->gradient ? 2
                                        : ONS_PACKED_VALUES;
    xla_shape shape = {0};
    if (!ons_xla_take_shape(axes, buffer[ONS_X], buffer[ONS_Y], states > 0, &shape, problem))
        return "the arrays' shapes do not fit";
    problem->operand[ONS_WHERE].dtype = ONS_BOOL;
    problem->operand[ONS_SCALE].dtype = problem->operand[ONS_STATISTIC].dtype = ONS_FLOAT64;
    for (int i = 0; i < ONS_OPERANDS; i++) {
        xla_along kind = i == ONS_SCALE || i == ONS_STATISTIC ? VALUE : ROW;
        if (i == ONS_INDICES || (i == ONS_Y && info->selects)) kind = SELECTED;
        if (i == ONS_Y && (info->one_a_row || problem->sums)) kind = VALUE;
        const int words = i == ONS_STATISTIC ? 2 : i == ONS_Y ? states : 0;
        if (buffer[i] && !ons_xla_add_operand((ons_role)i, buffer[i], &shape, kind, words, problem))
            return ons_xla_misfit;
    }
    if (states > 0) problem->operand[ONS_Y].dtype = problem->operand[ONS_X].dtype;
    return buffer[ONS_SCALE] ? ons_xla_widen_scale(buffer[ONS_SCALE], call) : NULL;
}

const char *ons_xla_take(const xla_frame *frame, ons_device device, ons_xla_call *call) {
    const xla_text *operation = ons_xla_attribute(frame, "operation", XLA_IS_TEXT),
                   *operands = ons_xla_attribute(frame, "operands", XLA_IS_TEXT),
                   *method = ons_xla_attribute(frame, "method", XLA_IS_TEXT);
    const xla_array *axes = ons_xla_attribute(frame, "axes", XLA_IS_ARRAY);
    const double *scale = ons_xla_scalar(frame, "scale", XLA_FLOAT64);
    const int32_t *threads = ons_xla_scalar(frame, "num_threads", XLA_INT32),
                  *flags = ons_xla_scalar(frame, "flags", XLA_INT32);
    memset(call, 0, sizeof *call);
    if (!operation || !operands || !method || !axes || !scale || !threads || !flags ||
        axes->dtype != XLA_INT64 || *threads < 1)
        return "an attribute is missing, or has another type or value than expected";
    if (!take_names(operation, method, call)) return "the operation or the method is unknown";
    if (!all_are_buffers(&frame->arguments) || !all_are_buffers(&frame->results))
        return "an argument or a result is no array";
    call->threads = *threads;
    call->problem.device = device;
    call->problem.scale_by = *scale;
    call->problem.log = *flags & ONS_XLA_LOG;
    call->problem.sorted = *flags & ONS_XLA_SORTED;
    call->problem.sums = *flags & ONS_XLA_SUMS;
    if (call->merges)
        return take_merging(frame, call) ? NULL : "the argument is not an array of states to merge";
    const char *wrong;
    switch (call->problem.operation) {
    case ONS_OPERATION_logprob:
    case ONS_OPERATION_logprob_backward:
        wrong = ons_xla_take_logprob(frame, operands, axes, *flags, call);
        break;
    case ONS_OPERATION_cross_entropy:
    case ONS_OPERATION_cross_entropy_with_grad:
        wrong = ons_xla_take_loss(frame, operands, axes, call);
        break;
    case ONS_OPERATION_kl_divergence:
    case ONS_OPERATION_reverse_kl_divergence:
    case ONS_OPERATION_js_divergence:
        wrong = ons_xla_take_divergence(frame, operands, axes, call);
        break;
    case ONS_OPERATION_route: wrong = ons_xla_take_route(frame, operands, axes, call); break;
    case ONS_OPERATION_sample: wrong = ons_xla_take_sample(frame, operands, axes, call); break;
    default: wrong = take_arrays(frame, operands, axes, call);
    }
    if (!wrong) ons_coalesce(&call->problem);
    return wrong;
}
