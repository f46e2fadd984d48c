/* loss.c - cross_entropy for onsoftmax/_losses.py: the losses of rows, and their gradient. The
 * arrays beside logits come without gaps and in their final type. */
#include "row_call.h"

#include "../api/loss_parts.h"

#include <string.h>

/* What a loss takes and gives. The views are entries of the call. */
typedef struct {
    ons_row_call rows;
    PyObject *target, *weight, *grad_loss, *grad_out; /* None: not given */
    int axis, reduction, wants_lse;
    ons_view *of_target, *of_weight, *of_given, *gradient, *loss, *lse;
    ons_loss terms;
} loss_call;

enum { NONE, SUM, MEAN };

static int take_arrays(loss_call *call) {
    ons_row_call *rows = &call->rows;
    if (ons_take_logits(rows, call->axis) < 0) return -1;
    const ons_view classes = {.ndim = 1, .shape = {rows->N}};
    call->of_target = ons_take_indices(rows, "target", call->target, false);
    if (!call->of_target) return -1;
    call->of_weight = ons_take_real(rows, "weight", call->weight, &classes, false);
    if (!call->of_weight) return -1;
    call->of_given = ons_take_real(rows, "grad_loss", call->grad_loss, &rows->rows, true);
    if (!call->of_given || ons_join_rows(rows) < 0) return -1;
    call->gradient = ons_take_gradient(rows, call->grad_out);
    return call->gradient ? 0 : -1;
}

/* `lse` stays NULL if it is not wanted. */
static int make_results(loss_call *call) {
    ons_row_call *rows = &call->rows;
    ons_view number = rows->rows;
    number.ndim = 0;
    call->loss =
        ons_new_row_result(rows, call->reduction == NONE ? &rows->rows : &number, rows->real);
    if (!call->loss) return -1;
    if (call->wants_lse) call->lse = ons_new_row_result(rows, &rows->rows, rows->real);
    return call->wants_lse && !call->lse ? -1 : 0;
}

static int run_parts(const ons_row_call *call, ons_loss_parts *parts) {
    const ons_caller *caller = &call->caller;
    const ons_machine machine = ons_this_machine(call->threads);
    const ons_plan *pairs = &parts->plan[ONS_LOSS_PAIRS];
    const bool on_gpu = call->x.device == ONS_CUDA;
    PyObject *owner = NULL;
    void *scratch = NULL;
    ons_status status = ons_plan_loss(parts, &machine);
    if (status == ONS_OK && on_gpu &&
        !(owner = ons_gpu_memory(caller->module, caller->library, call->x.gpu, caller->stream,
                                 parts->scratch_bytes, &scratch)))
        return -1;
    if (status == ONS_OK && (on_gpu || pairs->rows * pairs->N >= ONS_GIL_ELEMENTS)) {
        Py_BEGIN_ALLOW_THREADS status = ons_run_loss(parts, scratch);
        Py_END_ALLOW_THREADS
    } else if (status == ONS_OK) {
        status = ons_run_loss(parts, scratch);
    }
    Py_XDECREF(owner); /* free for later work on the stream */
    if (status == ONS_OK) return 0;
    if (status == ONS_E_MEMORY)
        PyErr_NoMemory();
    else
        ons_set_gpu_error(status);
    return -1;
}

static int run(loss_call *call) {
    ons_view operand[ONS_OPERANDS];
    ons_loss_parts parts;
    const ons_row_call *rows = &call->rows;
    const bool gradient = call->gradient->owner, reduces = call->reduction != NONE;
    const ons_operation operation =
        gradient ? ONS_OPERATION_cross_entropy_with_grad : ONS_OPERATION_cross_entropy;
    for (int i = 0; i < ONS_OPERANDS; i++) ons_no_view(&operand[i]);
    operand[ONS_X] = rows->x;
    if (ons_make_problem(operation, operand, gradient ? call->gradient : &rows->x, rows->along,
                         &parts.problem) < 0)
        return -1;
    parts.problem.stream = rows->caller.stream;
    parts.problem.scale_by = 1.0;
    parts.mean = call->reduction == MEAN;
    parts.method = ONS_METHOD_AUTO;
    parts.terms = call->terms;
    parts.terms.target = call->of_target->data;
    parts.terms.wide_target = call->of_target->dtype == ONS_INT64;
    parts.terms.in_double = rows->real == ONS_FLOAT64;
    parts.terms.weight = call->of_weight->data;
    parts.terms.given = call->of_given->data;
    parts.terms.given_step = call->of_given->ndim > 0;
    parts.terms.loss = reduces ? NULL : call->loss->data;
    parts.terms.reduced = reduces ? call->loss->data : NULL;
    parts.terms.lse = call->lse ? call->lse->data : NULL;
    return run_parts(rows, &parts);
}

static PyObject *results(const loss_call *call) {
    const ons_row_call *rows = &call->rows;
    PyObject *gradient = call->gradient->owner && call->grad_out != Py_True
                             ? Py_NewRef(call->grad_out)
                             : ons_hand_over_rows(rows, call->gradient);
    return Py_BuildValue("(NNN)", ons_hand_over_rows(rows, call->loss), gradient,
                         ons_hand_over_rows(rows, call->lse));
}

PyObject *ons_loss_call(PyObject *self, PyObject *args) {
    loss_call call;
    ons_row_call *rows = &call.rows;
    PyObject *stream, *threads, *result = NULL;
    long long ignore_index;
    memset(&call, 0, sizeof call);
    if (!PyArg_ParseTuple(args, "OOiOOOLddipOO:cross_entropy", &rows->logits, &call.target,
                          &call.axis, &call.weight, &call.grad_loss, &call.grad_out, &ignore_index,
                          &call.terms.smoothing, &call.terms.z_loss, &call.reduction,
                          &call.wants_lse, &stream, &threads) ||
        ons_begin_rows(rows, self, stream, threads) < 0)
        return NULL;
    call.terms.ignore_index = ignore_index;
    if (take_arrays(&call) == 0 && ons_check_indices(rows, call.of_target, &ignore_index) == 0 &&
        make_results(&call) == 0 && run(&call) == 0 && ons_leave_rows(rows) == 0)
        result = results(&call);
    ons_release_rows(rows);
    return result;
}

const char ons_loss_doc[] =
    "cross_entropy($module, logits, target, axis, weight, grad_loss, grad_out, ignore_index,\n"
    "              label_smoothing, z_loss, reduction, return_lse, stream, num_threads, /)\n--\n\n"
    "(loss, gradient, lse) for onsoftmax/_losses.py. target, weight and grad_loss come without\n"
    "gaps. weight and grad_loss have the arithmetic's type. grad_out: None for no gradient, True\n"
    "for a new array, or the array that receives it. reduction: 0 none, 1 sum, 2 mean.";

/* ------- The gradient of parts of rows ------- */

PyObject *ons_loss_gradient_call(PyObject *self, PyObject *args) {
    ons_row_call call;
    ons_loss terms = {.ignore_index = -1};
    PyObject *target, *of_pairs, *of_factors, *of_weight, *result = NULL;
    int axis;
    ons_view *index, *pairs, *factors, *weight, *gradient;
    memset(&call, 0, sizeof call);
    if (!PyArg_ParseTuple(args, "OOiOOO:loss_gradient", &call.logits, &target, &axis, &of_pairs,
                          &of_factors, &of_weight) ||
        ons_begin_rows(&call, self, Py_None, Py_None) < 0 || ons_take_logits(&call, axis) < 0)
        return NULL;
    const ons_view classes = {.ndim = 1, .shape = {call.N}};
    ons_view two = call.rows, three;
    two.shape[two.ndim++] = 2;
    three = two;
    three.shape[three.ndim - 1] = 3;
    if ((index = ons_take_indices(&call, "target", target, false)) &&
        (pairs = ons_take_doubles(&call, "pairs", of_pairs, &two)) &&
        (factors = ons_take_doubles(&call, "factors", of_factors, &three)) &&
        (weight = ons_take_real(&call, "weight", of_weight, &classes, false)) &&
        ons_join_rows(&call) == 0 && (gradient = ons_take_gradient(&call, Py_True))) {
        terms.target = index->data;
        terms.wide_target = index->dtype == ONS_INT64;
        terms.in_double = call.real == ONS_FLOAT64;
        terms.weight = weight->data;
        terms.factors = (const double *)(const void *)factors->data;
        if (ons_run_rows(&call, ONS_OPERATION_cross_entropy_with_grad, gradient, pairs, &terms,
                         NULL) == 0 &&
            ons_leave_rows(&call) == 0)
            result = ons_hand_over_rows(&call, gradient);
    }
    ons_release_rows(&call);
    return result;
}

const char ons_loss_gradient_doc[] =
    "loss_gradient($module, logits, target, axis, pairs, factors, weight, /)\n--\n\n"
    "The gradient of rows of logits, or of parts of rows, from the pairs of the whole rows. "
    "factors\n"
    "has three float64 for each row: all, each and own. The gradient of class j is then\n"
    "all * softmax(row)[j] - each * weight[j]. At the target, own is subtracted too. A row whose\n"
    "target is -1 has the gradient 0. If the target is not in this part, give any class of the\n"
    "part, and own = 0.";

PyObject *ons_multiply_call(PyObject *self, PyObject *args) {
    ons_row_call call;
    PyObject *by, *result = NULL;
    const ons_view number = {.ndim = 0};
    const ons_view *factor = NULL;
    ons_status status = ONS_OK;
    memset(&call, 0, sizeof call);
    if (!PyArg_ParseTuple(args, "OO:multiply", &call.logits, &by) ||
        ons_begin_rows(&call, self, Py_None, Py_None) < 0 || ons_take_logits(&call, -1) < 0)
        return NULL;
    const ons_view *x = &call.x;
    if (x->device == ONS_CPU || ons_has_gaps(x)) {
        result = Py_NewRef(Py_False);
    } else if ((factor = ons_take_real(&call, "grad_loss", by, &number, false)) &&
               ons_join_rows(&call) == 0) {
        int64_t count = 1;
        for (int i = 0; i < x->ndim; i++) count *= x->shape[i];
        status =
            ons_gpu_multiply(x->gpu, call.caller.stream, x->data, x->dtype, count, factor->data);
        if (status != ONS_OK)
            ons_set_gpu_error(status);
        else if (ons_leave_rows(&call) == 0 &&
                 (call.caller.library != ONS_TORCH ||
                  ons_torch_written(call.caller.module, call.logits) == 0))
            result = Py_NewRef(Py_True);
    }
    ons_release_rows(&call);
    return result;
}

const char ons_multiply_doc[] =
    "multiply($module, gradient, grad_loss, /)\n--\n\n"
    "Multiplies a gradient on a GPU in place by one number on the same GPU. If the number is\n"
    "exactly 1, the gradient is neither read nor written. The call does not wait for the GPU.\n"
    "Returns False, and does nothing, if the gradient has gaps or is on the CPU.";
