/* call.c - reads a call of XLA: its attributes, its arrays, and the problem that they make.
 * Attributes:
 *
 *   operation    an operation's name, or merge
 *   operands     a letter for each argument: x the array, or the result of the forward step;
 *                g a gradient; w a mask; s a scale; p pairs; for a loss t the targets, c the
 *                weights of the classes, l the gradients of the rows' losses
 *   axes         the axes of a row, from the end: -1 is the last one
 *   method, num_threads, scale   as in Python; scale if no argument is one
 *   flags        ONS_XLA_LOG and the others of ffi.h
 *   ignore_index, label_smoothing, z_loss   of a loss, as in Python
 *
 * An argument has as many dimensions as the result. If an argument has length 1 along a dimension
 * and the result is longer, its one element serves for all. vmap passes arguments that it does not
 * map in this form. A result with one value a row has length 1 along the axes. States and pairs are
 * float64 in memory, but have type uint32, since JAX by default has no float64. Their words are in
 * a last dimension of their own.
 *
 * The results of a loss are its gradient, if the operation has one, the loss of each row, and the
 * logsumexp of each row. The arrays with an entry for each row have all rows. The weights have one
 * dimension. */
#include "../api/plan_facts.h"
#include "ffi.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = sizeof(double) / sizeof(uint32_t) };

static bool is(const xla_text *text, const char *name) {
    return text->length == strlen(name) && memcmp(text->text, name, text->length) == 0;
}

static const void *attribute(const xla_frame *frame, const char *name, int type) {
    const xla_attributes *all = &frame->attributes;
    for (int64_t i = 0; i < all->count; i++)
        if (all->types[i] == type && is(all->names[i], name)) return all->values[i];
    return NULL;
}

static const void *scalar(const xla_frame *frame, const char *name, int dtype) {
    const xla_scalar *found = attribute(frame, name, XLA_IS_SCALAR);
    return found && found->dtype == dtype ? found->value : NULL;
}

static bool take_names(const xla_text *operation, const xla_text *method, ons_xla_call *call) {
    call->merges = is(operation, "merge");
    int found = call->merges ? 0 : -1;
    for (int i = 0; i < ONS_OPERATION_COUNT; i++)
        if (is(operation, ons_operations[i].name)) found = i;
    if (found < 0) return false;
    call->problem.operation = (ons_operation)found;
    for (int i = ONS_METHOD_INVARIANT; i < ONS_METHOD_COUNT; i++)
        if (is(method, ons_method_name((ons_method)i))) {
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

/* The type of elements, or of words, which are float64. */
static bool take_dtype(int given, ons_dtype *dtype) {
    switch (given) {
    case XLA_FLOAT16: *dtype = ONS_FLOAT16; return true;
    case XLA_BFLOAT16: *dtype = ONS_BFLOAT16; return true;
    case XLA_FLOAT32: *dtype = ONS_FLOAT32; return true;
    case XLA_UINT32:
    case XLA_FLOAT64: *dtype = ONS_FLOAT64; return true;
    case XLA_BOOL: *dtype = ONS_BOOL; return true;
    case XLA_INT32: *dtype = ONS_INT32; return true;
    case XLA_INT64: *dtype = ONS_INT64; return true;
    default: return false;
    }
}

/* The dimensions of the arrays, and whether each belongs to a row. */
typedef struct {
    int dims;
    int64_t extent[ONS_MAX_DIMS];
    bool reduced[ONS_MAX_DIMS];
} frame_shape;

/* The length of an operand along a row: as x, one value, or k. */
typedef enum { ROW, VALUE, SELECTED } kind_of_row;

/* `states` is the number of float64 a row, as words; 0 means elements. A result has all rows of the
 * problem. The problem's dimensions are those that tell rows apart, then those of a row. */
static bool add_operand(ons_role role, const xla_buffer *buffer, const frame_shape *shape,
                        kind_of_row kind, int states, ons_problem *problem) {
    const bool result = role == ONS_Y || role == ONS_INDICES;
    ons_operand *operand = &problem->operand[role];
    if (!take_dtype(buffer->dtype, &operand->dtype) || buffer->dims != shape->dims + (states > 0) ||
        (buffer->dtype == XLA_UINT32) != (states > 0) ||
        (states > 0 && buffer->shape[shape->dims] != states * WORDS))
        return false;
    int64_t stride = ons_dtype_size(operand->dtype) * (states > 0 ? states : 1);
    int64_t stride_of[ONS_MAX_DIMS];
    for (int i = shape->dims - 1; i >= 0; i--) {
        const bool row = shape->reduced[i];
        const int64_t length = buffer->shape[i], wanted = !row || kind == ROW ? shape->extent[i]
                                                          : kind == VALUE     ? 1
                                                                              : problem->k;
        if (length != wanted && (result || length != 1)) return false;
        stride_of[i] = length == wanted && !(row && kind == VALUE) ? stride : 0;
        stride *= length;
    }
    operand->data = buffer->data;
    int dim = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < shape->dims; i++)
            if (shape->reduced[i] == (pass == 1)) operand->stride[dim++] = stride_of[i];
    /* no axis: rows of one element */
    if (dim == problem->dims - 1) operand->stride[dim] = ons_dtype_size(operand->dtype);
    return true;
}

/* A scale in the CPU's type. */
static const char *widen_scale(const xla_buffer *buffer, ons_xla_call *call) {
    ons_operand *scale = &call->problem.operand[ONS_SCALE];
    if (scale->dtype == ONS_FLOAT64) return NULL;
    if (scale->dtype != ONS_FLOAT32) return "the scale is neither float32 nor float64";
    size_t count = 1;
    for (int64_t i = 0; i < buffer->dims; i++) count *= (size_t)buffer->shape[i];
    call->scale = malloc((count + 1) * sizeof(double));
    if (!call->scale) return "no memory for the scale in float64";
    for (size_t i = 0; i < count; i++) call->scale[i] = ((const float *)buffer->data)[i];
    scale->data = (char *)call->scale;
    scale->dtype = ONS_FLOAT64;
    for (int dim = 0; dim < call->problem.dims; dim++)
        scale->stride[dim] *= (int64_t)(sizeof(double) / sizeof(float));
    return NULL;
}

static bool take_shape(const xla_array *axes, const xla_buffer *x, const xla_buffer *y, bool words,
                       frame_shape *shape, ons_problem *problem) {
    const int64_t *axis = axes->values;
    shape->dims = (int)x->dims;
    if (shape->dims >= ONS_MAX_DIMS || y->dims != shape->dims + words) return false;
    for (size_t i = 0; i < axes->length; i++) {
        if (axis[i] < -shape->dims || axis[i] >= 0) return false;
        shape->reduced[axis[i] + shape->dims] = true;
        problem->k = y->shape[axis[i] + shape->dims];
    }
    int64_t elements = 1;
    bool empty = false, many = false;
    for (int i = 0; i < shape->dims; i++) {
        shape->extent[i] = shape->reduced[i] ? x->shape[i] : y->shape[i];
        problem->reduced_dims += shape->reduced[i];
        empty |= shape->extent[i] == 0;
        many |=
            __builtin_mul_overflow(elements, shape->extent[i] ? shape->extent[i] : 1, &elements);
    }
    problem->dims = shape->dims;
    int dim = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < shape->dims; i++)
            if (shape->reduced[i] == (pass == 1)) problem->extent[dim++] = shape->extent[i];
    if (problem->reduced_dims == 0) {
        problem->dims = dim + 1;
        problem->extent[dim] = 1;
        problem->reduced_dims = 1;
    }
    if (empty) /* rows without elements: their other lengths may be large */
        for (int i = problem->dims - problem->reduced_dims; i < problem->dims; i++)
            problem->extent[i] = 0;
    return empty || (!many && elements <= ONS_MAX_ELEMENTS);
}

/* Merges the states of a row's parts, one after the other, into the row's pair. */
static bool take_merging(const xla_frame *frame, ons_xla_call *call) {
    if (frame->arguments.count != 1 || frame->results.count != 1) return false;
    const xla_buffer *from = frame->arguments.buffers[0], *to = frame->results.buffers[0];
    const int64_t last = from->dims - 1;
    ons_merging *all = &call->merging;
    if (last < 1 || to->dims != last || from->dtype != XLA_UINT32 || to->dtype != XLA_UINT32 ||
        from->shape[last] != ONS_PACKED_VALUES * WORDS || to->shape[last - 1] != 2 * WORDS)
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

/* Finds the arguments by their letters. Returns NULL, or a text about what is wrong. */
static const char *find_arguments(const xla_frame *frame, const xla_text *operands,
                                  const char *letters, const xla_buffer **found) {
    if (frame->arguments.count != (int64_t)operands->length)
        return "there are more or fewer arrays than the operation takes";
    for (size_t i = 0; i < operands->length; i++) {
        const char *at = memchr(letters, operands->text[i], strlen(letters));
        if (!at || found[at - letters]) return "an operand is unknown, or is given twice";
        found[at - letters] = frame->arguments.buffers[i];
    }
    return NULL;
}

/* The arrays of a problem whose operation and flags are known. */
static const char *take_arrays(const xla_frame *frame, const xla_text *operands,
                               const xla_array *axes, ons_xla_call *call) {
    ons_problem *problem = &call->problem;
    const ons_operation_info *info = &ons_operations[problem->operation];
    const xla_buffers *results = &frame->results;
    if (results->count != 1 + info->selects) return "the operation has another number of results";
    const xla_buffer *buffer[ONS_OPERANDS] = {NULL};
    const char *wrong = find_arguments(frame, operands, "x wspg", buffer); /* in roles' order */
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
    frame_shape shape = {0};
    if (!take_shape(axes, buffer[ONS_X], buffer[ONS_Y], states > 0, &shape, problem))
        return "the arrays' shapes do not fit";
    problem->operand[ONS_WHERE].dtype = ONS_BOOL;
    problem->operand[ONS_SCALE].dtype = problem->operand[ONS_STATISTIC].dtype = ONS_FLOAT64;
    for (int i = 0; i < ONS_OPERANDS; i++) {
        kind_of_row kind = i == ONS_SCALE || i == ONS_STATISTIC ? VALUE : ROW;
        if (i == ONS_INDICES || (i == ONS_Y && info->selects)) kind = SELECTED;
        if (i == ONS_Y && (info->one_a_row || problem->sums)) kind = VALUE;
        const int words = i == ONS_STATISTIC ? 2 : i == ONS_Y ? states : 0;
        if (buffer[i] && !add_operand((ons_role)i, buffer[i], &shape, kind, words, problem))
            return "an array has a type or a shape that does not fit the others";
    }
    if (states > 0) problem->operand[ONS_Y].dtype = problem->operand[ONS_X].dtype;
    return buffer[ONS_SCALE] && problem->device == ONS_CPU ? widen_scale(buffer[ONS_SCALE], call)
                                                           : NULL;
}

/* Whether an array has an entry for each row. */
static bool is_of_rows(const xla_buffer *buffer, const frame_shape *shape) {
    bool fits = buffer->dims == shape->dims;
    for (int i = 0; fits && i < shape->dims; i++)
        fits = buffer->shape[i] == (shape->reduced[i] ? 1 : shape->extent[i]);
    return fits;
}

static const char *take_loss(const xla_frame *frame, const xla_text *operands,
                             const xla_array *axes, ons_xla_call *call) {
    enum { LOGITS, TARGET, WEIGHT, GIVEN };
    ons_problem *problem = &call->problem;
    ons_loss *terms = &call->terms;
    const xla_buffer *of[4] = {NULL};
    xla_buffer *const *results = frame->results.buffers;
    const bool gradient = problem->operation == ONS_OPERATION_cross_entropy_with_grad;
    const int64_t *ignored = scalar(frame, "ignore_index", XLA_INT64);
    const double *smoothing = scalar(frame, "label_smoothing", XLA_FLOAT64),
                 *z_loss = scalar(frame, "z_loss", XLA_FLOAT64);
    const char *wrong = find_arguments(frame, operands, "xtcl", of);
    if (wrong) return wrong;
    if (!gradient && problem->operation != ONS_OPERATION_cross_entropy)
        return "the operation is unknown";
    if (!ignored || !smoothing || !z_loss || !of[LOGITS] || !of[TARGET] || axes->length != 1 ||
        frame->results.count != 2 + gradient)
        return "an attribute, an array or the axis of the loss is missing";
    const xla_buffer *loss = results[gradient], *lse = results[gradient + 1];
    frame_shape shape = {0};
    ons_operand *x = &problem->operand[ONS_X], *y = &problem->operand[ONS_Y];
    bool fits = take_shape(axes, of[LOGITS], loss, false, &shape, problem) &&
                add_operand(ONS_X, of[LOGITS], &shape, ROW, 0, problem);
    if (fits && gradient)
        fits = add_operand(ONS_Y, results[0], &shape, ROW, 0, problem) && y->dtype == x->dtype;
    else
        *y = *x;
    terms->in_double = x->dtype == ONS_FLOAT64;
    const int real = terms->in_double ? XLA_FLOAT64 : XLA_FLOAT32;
    const xla_buffer *const of_rows[] = {of[TARGET], loss, lse, of[GIVEN]};
    for (int i = 0; fits && i < 4; i++)
        fits = !of_rows[i] || (is_of_rows(of_rows[i], &shape) &&
                               (of_rows[i] == of[TARGET] || of_rows[i]->dtype == real));
    terms->wide_target = of[TARGET]->dtype == XLA_INT64;
    if (!fits || (!terms->wide_target && of[TARGET]->dtype != XLA_INT32) ||
        (of[WEIGHT] && (of[WEIGHT]->dims != 1 || of[WEIGHT]->dtype != real ||
                        of[WEIGHT]->shape[0] != problem->extent[problem->dims - 1])))
        return "an array has a type or a shape that does not fit the others";
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

const char *ons_xla_take(const xla_frame *frame, ons_device device, ons_xla_call *call) {
    const xla_text *operation = attribute(frame, "operation", XLA_IS_TEXT),
                   *operands = attribute(frame, "operands", XLA_IS_TEXT),
                   *method = attribute(frame, "method", XLA_IS_TEXT);
    const xla_array *axes = attribute(frame, "axes", XLA_IS_ARRAY);
    const double *scale = scalar(frame, "scale", XLA_FLOAT64);
    const int32_t *threads = scalar(frame, "num_threads", XLA_INT32),
                  *flags = scalar(frame, "flags", XLA_INT32);
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
    const bool is_loss = ons_operations[call->problem.operation].loss;
    const char *wrong = (is_loss ? take_loss : take_arrays)(frame, operands, axes, call);
    if (!wrong) ons_coalesce(&call->problem);
    return wrong;
}
