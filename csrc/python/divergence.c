/* divergence.c - divergences between rows and their gradients, for onsoftmax/_divergences.py. */
#include "row_call.h"

#include <string.h>

/* The views are entries of `rows`. grad_out is None for no gradient. */
typedef struct {
    ons_row_call rows;
    PyObject *other, *where, *scale, *grad_value, *grad_out;
    ons_operation operation;
    int axis;
    bool reduces;
    ons_view *of_other, *of_given, *gradient, *values, *reduced;
    ons_loss terms;
} divergence_call;

static int take_other(divergence_call *call) {
    ons_row_call *rows = &call->rows;
    const ons_dtype dtype = rows->x.dtype;
    call->of_other = ons_take_operand(rows, "the other array of logits", call->other, ONS_GRADIENT);
    if (!call->of_other ||
        ons_check_shape("the other array of logits", call->of_other, &rows->x) < 0)
        return -1;
    if (call->of_other->dtype == dtype) return 0;
    PyErr_Format(PyExc_TypeError,
                 "one array of logits has dtype %s, the other has %s: expected the same dtype",
                 ons_dtype_name(dtype), ons_dtype_name(call->of_other->dtype));
    return -1;
}

static int take_arrays(divergence_call *call) {
    ons_row_call *rows = &call->rows;
    if (ons_take_logits(rows, call->axis) < 0 || take_other(call) < 0 ||
        ons_take_row_masks(rows, call->where, call->scale) < 0)
        return -1;
    call->of_given = ons_take_real(rows, "grad_value", call->grad_value, &rows->rows, true);
    if (!call->of_given || ons_join_rows(rows) < 0) return -1;
    call->gradient = ons_take_gradient(rows, call->grad_out);
    return call->gradient ? 0 : -1;
}

static int make_results(divergence_call *call) {
    ons_row_call *rows = &call->rows;
    ons_view number = rows->rows;
    number.ndim = 0;
    call->values = ons_new_row_result(rows, &rows->rows, rows->real);
    if (call->values && call->reduces)
        call->reduced = ons_new_row_result(rows, &number, rows->real);
    return !call->values || (call->reduces && !call->reduced) ? -1 : 0;
}

static int run(divergence_call *call) {
    ons_view operand[ONS_OPERANDS];
    ons_problem problem;
    ons_row_call *rows = &call->rows;
    ons_loss *terms = &call->terms;
    memcpy(operand, rows->masks.operand, sizeof operand);
    operand[ONS_X] = rows->x;
    operand[ONS_GRADIENT] = *call->of_other;
    terms->gradient = call->gradient->owner;
    if (ons_make_problem(call->operation, operand, terms->gradient ? call->gradient : &rows->x,
                         rows->along, &problem) < 0)
        return -1;
    terms->in_double = rows->real == ONS_FLOAT64;
    terms->given = call->of_given->data;
    terms->given_step = call->of_given->ndim > 0;
    terms->loss = call->values->data;
    terms->reduced = call->reduced ? call->reduced->data : NULL;
    problem.loss = terms;
    problem.scale_by = rows->scale_by;
    problem.stream = rows->caller.stream;
    return ons_run_call(&rows->caller, &problem, ONS_METHOD_AUTO, rows->threads);
}

static PyObject *results(const divergence_call *call) {
    const ons_row_call *rows = &call->rows;
    PyObject *gradient = call->gradient->owner && call->grad_out != Py_True
                             ? Py_NewRef(call->grad_out)
                             : ons_hand_over_rows(rows, call->gradient);
    return Py_BuildValue(
        "(NN)", ons_hand_over_rows(rows, call->reduces ? call->reduced : call->values), gradient);
}

PyObject *ons_divergence_call(PyObject *self, PyObject *args) {
    enum { NONE, SUM, MEAN };
    enum { KL, REVERSE_KL, JS };
    static const ons_operation operations[] = {[KL] = ONS_OPERATION_kl_divergence,
                                               [REVERSE_KL] = ONS_OPERATION_reverse_kl_divergence,
                                               [JS] = ONS_OPERATION_js_divergence};
    divergence_call call;
    ons_row_call *rows = &call.rows;
    PyObject *stream, *threads, *result = NULL;
    int operation, reduction;
    memset(&call, 0, sizeof call);
    rows->caller.outside = &rows->outside;
    if (!PyArg_ParseTuple(args, "iOOidOOOOiOO:divergence", &operation, &rows->logits, &call.other,
                          &call.axis, &call.terms.beta, &call.scale, &call.where, &call.grad_value,
                          &call.grad_out, &reduction, &stream, &threads) ||
        ons_begin_rows(rows, self, stream, threads) < 0)
        return NULL;
    call.operation = operations[operation];
    call.reduces = reduction != NONE;
    if (take_arrays(&call) == 0 && make_results(&call) == 0) {
        call.terms.share = reduction == MEAN ? 1.0 / (double)rows->count : 1.0;
        if (run(&call) == 0 && ons_leave_rows(rows) == 0) result = results(&call);
    }
    ons_release_rows(rows);
    PyObject *const by = rows->outside.by_operator;
    if (!by) return result;
    const bool gradient = call.grad_out != Py_None;
    if (operation == JS)
        return ons_operator_of(rows->caller.module, by,
                               gradient ? "js_divergence_with_grad" : "js_divergence");
    return ons_operator_of(rows->caller.module, by,
                           gradient ? "kl_divergence_with_grad" : "kl_divergence");
}

const char ons_divergence_doc[] =
    "divergence($module, operation, logits, other, axis, beta, scale, where, grad_value,\n"
    "           grad_out, reduction, stream, num_threads, /)\n--\n\n"
    "(value, gradient) for onsoftmax/_divergences.py. operation: 0 kl_divergence, 1\n"
    "reverse_kl_divergence, 2 js_divergence, of logits from other. The gradient is with respect\n"
    "to logits. grad_out: None for no gradient, True for a new array, or the array that receives\n"
    "it. reduction: 0 none, 1 sum, 2 mean.\n"
    "\n"
    "If an operator must take the arrays, such as tensors that require grad, the result is\n"
    "this operator instead.";
