/* sample.c - the sampler of a language model and its filters, for onsoftmax/_sample.py. */
#include "row_call.h"

#include <string.h>

#include "../api/sample.h"

/* The views are entries of `rows`. */
typedef struct {
    ons_row_call rows;
    PyObject *temperature, *top_k, *top_p, *min_p, *where;
    PyObject *seed, *offset;
    ons_view *logprob, *indices, *valid, *filtered;
    ons_sample sample;
} sample_call;

/* A Python float is a number for all rows. Any other object is an array. */
static int take_real(sample_call *call, const char *name, PyObject *object, ons_row_real *to) {
    if (PyFloat_Check(object)) {
        to->number = PyFloat_AsDouble(object);
        return 0;
    }
    const ons_view *view = ons_take_row_numbers(&call->rows, name, object, false, &to->step);
    if (!view) return -1;
    to->of_rows = view->data;
    to->dtype = view->dtype;
    return 0;
}

/* The same for a Python int, modulo 2^64. */
static int take_integer(sample_call *call, const char *name, PyObject *object,
                        ons_row_integer *to) {
    if (PyLong_Check(object)) {
        to->number = (int64_t)PyLong_AsUnsignedLongLongMask(object);
        return PyErr_Occurred() ? -1 : 0;
    }
    const ons_view *view = ons_take_row_numbers(&call->rows, name, object, true, &to->step);
    if (!view) return -1;
    to->of_rows = view->data;
    to->is_wide = view->dtype == ONS_INT64;
    return 0;
}

static int take_arrays(sample_call *call, int axis) {
    ons_row_call *rows = &call->rows;
    ons_sample *sample = &call->sample;
    if (ons_take_logits(rows, axis) < 0) return -1;
    if (rows->N == 0) {
        PyErr_SetString(PyExc_ValueError, "logits has rows of length 0: expected at least 1");
        return -1;
    }
    if (ons_take_row_masks(rows, call->where, Py_None) < 0 ||
        take_real(call, "temperature", call->temperature, &sample->temperature) < 0 ||
        take_integer(call, "top_k", call->top_k, &sample->top_k) < 0 ||
        take_real(call, "top_p", call->top_p, &sample->top_p) < 0 ||
        take_real(call, "min_p", call->min_p, &sample->min_p) < 0)
        return -1;
    if (sample->draws && (take_integer(call, "seed", call->seed, &sample->seed) < 0 ||
                          take_integer(call, "offset", call->offset, &sample->offset) < 0))
        return -1;
    sample->period = sample->seed.step > 0 ? 1 : rows->count; /* 1: seeds of their own */
    return ons_join_rows(rows);
}

static int make_results(sample_call *call, bool wants_valid) {
    ons_row_call *rows = &call->rows;
    ons_dtype indices;
    if (ons_index_type(&rows->caller, rows->N, &indices) < 0) return -1;
    call->logprob = ons_new_row_result(rows, &rows->rows, rows->real);
    if (!call->logprob) return -1;
    call->indices = ons_new_row_result(rows, &rows->rows, indices);
    if (!call->indices || !wants_valid) return call->indices ? 0 : -1;
    call->valid = ons_new_row_result(rows, &rows->rows, ONS_BOOL);
    if (!call->valid) return -1;
    call->sample.valid = (bool *)call->valid->data;
    return 0;
}

/* A result with a dimension of length 1 at the axis of the logits. */
static ons_view along_axis(const ons_row_call *rows, const ons_view *result) {
    ons_view view = *result;
    view.ndim = rows->x.ndim;
    for (int i = 0, row_dim = 0; i < view.ndim; i++) {
        view.shape[i] = rows->along[i] ? 1 : result->shape[row_dim];
        view.strides[i] = rows->along[i] ? ons_dtype_size(view.dtype) : result->strides[row_dim];
        row_dim += !rows->along[i];
    }
    return view;
}

static int run(const sample_call *call, bool is_invariant) {
    const ons_row_call *rows = &call->rows;
    const bool draws = call->sample.draws;
    const ons_view y = draws ? along_axis(rows, call->logprob) : *call->filtered;
    ons_view operand[ONS_OPERANDS];
    ons_problem problem;
    memcpy(operand, rows->masks.operand, sizeof operand);
    operand[ONS_X] = rows->x;
    if (draws) operand[ONS_INDICES] = along_axis(rows, call->indices);
    const ons_operation operation = draws ? ONS_OPERATION_sample : ONS_OPERATION_filtered_softmax;
    if (ons_make_problem(operation, operand, &y, rows->along, &problem) < 0) return -1;
    problem.sample = &call->sample;
    problem.k = 1;
    problem.scale_by = 1.0;
    ons_filtered_softmax_without_filter(&problem);
    ons_coalesce(&problem); /* softmax may join more dimensions */
    problem.stream = rows->caller.stream;
    /* filtered_softmax may be a softmax by now */
    const ons_method method = is_invariant || !draws ? ONS_METHOD_INVARIANT : ONS_METHOD_AUTO;
    return ons_run_call(&rows->caller, &problem, method, rows->threads);
}

/* The result of a call, or the operator that must take the arrays instead. */
static PyObject *end_call(sample_call *call, PyObject *result, const char *name) {
    ons_row_call *rows = &call->rows;
    ons_release_rows(rows);
    PyObject *const by = rows->outside.by_operator;
    return by ? ons_operator_of(rows->caller.module, by, name) : result;
}

PyObject *ons_sample_call(PyObject *self, PyObject *args) {
    sample_call call;
    ons_row_call *rows = &call.rows;
    PyObject *stream, *threads, *result = NULL;
    int axis, joint, logprob, wants_valid, is_invariant;
    memset(&call, 0, sizeof call);
    rows->caller.outside = &rows->outside;
    if (!PyArg_ParseTuple(args, "OiOOOOOOpipOpOO:sample", &rows->logits, &axis, &call.temperature,
                          &call.top_k, &call.top_p, &call.min_p, &call.seed, &call.offset, &joint,
                          &logprob, &wants_valid, &call.where, &is_invariant, &stream, &threads) ||
        ons_begin_rows(rows, self, stream, threads) < 0)
        return NULL;
    call.sample.draws = true;
    call.sample.joint = joint;
    call.sample.logprob = (ons_sample_logprob)logprob;
    if (take_arrays(&call, axis) == 0 && make_results(&call, wants_valid) == 0 &&
        run(&call, is_invariant) == 0 && ons_leave_rows(rows) == 0)
        result = Py_BuildValue("(NNN)", ons_hand_over_rows(rows, call.indices),
                               ons_hand_over_rows(rows, logprob ? call.logprob : NULL),
                               ons_hand_over_rows(rows, call.valid));
    return end_call(&call, result, "sample");
}

PyObject *ons_filtered_softmax_call(PyObject *self, PyObject *args) {
    sample_call call;
    ons_row_call *rows = &call.rows;
    PyObject *stream, *threads, *result = NULL;
    int axis, joint, is_invariant;
    memset(&call, 0, sizeof call);
    rows->caller.outside = &rows->outside;
    if (!PyArg_ParseTuple(args, "OiOOOOpOpOO:filtered_softmax", &rows->logits, &axis,
                          &call.temperature, &call.top_k, &call.top_p, &call.min_p, &joint,
                          &call.where, &is_invariant, &stream, &threads) ||
        ons_begin_rows(rows, self, stream, threads) < 0)
        return NULL;
    call.sample.joint = joint;
    if (take_arrays(&call, axis) == 0 &&
        (call.filtered = ons_new_row_result(rows, &rows->x, rows->real)) &&
        run(&call, is_invariant) == 0 && ons_leave_rows(rows) == 0)
        result = ons_hand_over_rows(rows, call.filtered);
    return end_call(&call, result, "filtered_softmax");
}

const char ons_sample_doc[] =
    "sample($module, logits, axis, temperature, top_k, top_p, min_p, seed, offset, joint,\n"
    "       logprob, valid, where, is_invariant, stream, num_threads, /)\n--\n\n"
    "(indices, logprob, valid) for onsoftmax/_sample.py. A result that is not wanted is None.\n"
    "logprob: 0 none, 1 unfiltered, 2 filtered. temperature, top_p and min_p are floats, or\n"
    "arrays of float32 or float64. top_k, seed and offset are ints, or arrays of int32 or int64.\n"
    "The arrays come without gaps. They have the shape of the rows, or one element.\n"
    "\n"
    "If an operator must take the arrays, such as tensors that require grad, the result is\n"
    "this operator instead.";

const char ons_filtered_softmax_doc[] =
    "filtered_softmax($module, logits, axis, temperature, top_k, top_p, min_p, joint, where,\n"
    "                 is_invariant, stream, num_threads, /)\n--\n\n"
    "The filtered probabilities for onsoftmax/_sample.py. It takes the arguments of sample.\n"
    "\n"
    "If an operator must take the arrays, such as tensors that require grad, the result is\n"
    "this operator instead.";
