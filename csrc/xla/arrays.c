/* arrays.c - the attributes and the arrays of a call of XLA. */
#include "arrays.h"

#include <stdlib.h>
#include <string.h>

const char ons_xla_misfit[] = "an array has a type or a shape that does not fit the others";

bool ons_xla_is(const xla_text *text, const char *name) {
    return text->length == strlen(name) && memcmp(text->text, name, text->length) == 0;
}

const void *ons_xla_attribute(const xla_frame *frame, const char *name, int type) {
    const xla_attributes *all = &frame->attributes;
    for (int64_t i = 0; i < all->count; i++)
        if (all->types[i] == type && ons_xla_is(all->names[i], name)) return all->values[i];
    return NULL;
}

const void *ons_xla_scalar(const xla_frame *frame, const char *name, int dtype) {
    const xla_scalar *found = ons_xla_attribute(frame, name, XLA_IS_SCALAR);
    return found && found->dtype == dtype ? found->value : NULL;
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

bool ons_xla_add_operand(ons_role role, const xla_buffer *buffer, const xla_shape *shape,
                         xla_along kind, int states, ons_problem *problem) {
    const bool result = role == ONS_Y || role == ONS_INDICES;
    ons_operand *operand = &problem->operand[role];
    if (!take_dtype(buffer->dtype, &operand->dtype) || buffer->dims != shape->dims + (states > 0) ||
        (buffer->dtype == XLA_UINT32) != (states > 0) ||
        (states > 0 && buffer->shape[shape->dims] != states * XLA_WORDS))
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

bool ons_xla_take_shape(const xla_array *axes, const xla_buffer *x, const xla_buffer *y, bool words,
                        xla_shape *shape, ons_problem *problem) {
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

bool ons_xla_is_of_rows(const xla_buffer *buffer, const xla_shape *shape, int64_t a_row) {
    bool fits = buffer->dims == shape->dims + (a_row >= 0);
    if (fits && a_row >= 0) fits = buffer->shape[shape->dims] == a_row;
    for (int i = 0; fits && i < shape->dims; i++)
        fits = buffer->shape[i] == (shape->reduced[i] ? 1 : shape->extent[i]);
    return fits;
}

const char *ons_xla_widen_scale(const xla_buffer *buffer, ons_xla_call *call) {
    ons_operand *scale = &call->problem.operand[ONS_SCALE];
    if (call->problem.device != ONS_CPU || scale->dtype == ONS_FLOAT64) return NULL;
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

const char *ons_xla_find_arguments(const xla_frame *frame, const xla_text *operands,
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
