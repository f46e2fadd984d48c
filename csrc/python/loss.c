/* loss.c - cross_entropy for onsoftmax/_losses.py: the losses of rows, and their gradient. The
 * arrays beside logits come without gaps and in their final type. */
#include "call_views.h"

#include "../api/loss_parts.h"

#include <string.h>

/* What a call takes and gives. */
typedef struct {
    ons_caller caller;
    PyObject *logits, *target, *weight, *grad_loss, *grad_out; /* None: not given */
    int axis, reduction, wants_lse, threads;
    int64_t N;
    ons_view x, of_target, of_weight, of_given, gradient, loss, lse, reduced;
    ons_view rows; /* the shape of the rows; it owns nothing */
    bool along[ONS_MAX_DIMS];
    ons_dtype real;
    ons_loss terms;
} loss_call;

enum { NONE, SUM, MEAN };

/* ------- 1. The arrays ------- */

static int check_no_gaps(const char *name, const ons_view *view) {
    ons_view ordered = *view;
    ons_put_in_c_order(&ordered);
    for (int i = 0; i < view->ndim; i++)
        if (view->shape[i] > 1 && view->strides[i] != ordered.strides[i]) {
            PyErr_Format(PyExc_ValueError, "%s has gaps between its elements: expected none", name);
            return -1;
        }
    return 0;
}

static int take_target(loss_call *call) {
    ons_library library;
    ons_view *view = &call->of_target;
    if (PyArray_Check(call->target)) {
        PyArrayObject *array = (PyArrayObject *)call->target;
        ons_view_new_numpy(array, PyArray_ITEMSIZE(array) == 4 ? ONS_INT32 : ONS_INT64, view);
    } else if (ons_take(&call->caller, call->target, ONS_INDICES, view, &library) < 0) {
        return -1;
    }
    if (view->dtype != ONS_INT32 && view->dtype != ONS_INT64) {
        PyErr_Format(PyExc_TypeError, "target has dtype %s: expected int32 or int64",
                     ons_dtype_name(view->dtype));
        return -1;
    }
    return ons_check_shape("target", view, &call->rows) < 0 ? -1 : check_no_gaps("target", view);
}

/* A real array; with `classes` of one number for each class, else of one number or one a row. */
static int take_real(loss_call *call, const char *name, PyObject *object, int64_t classes,
                     ons_view *view) {
    ons_library library;
    if (object == Py_None) return 0;
    if (ons_take(&call->caller, object, ONS_X, view, &library) < 0) return -1;
    if (view->dtype != call->real) {
        PyErr_Format(PyExc_TypeError, "%s has dtype %s: expected %s", name,
                     ons_dtype_name(view->dtype), ons_dtype_name(call->real));
        return -1;
    }
    ons_view wanted = {.ndim = 1, .shape = {classes}};
    if ((classes >= 0 || view->ndim > 0) &&
        ons_check_shape(name, view, classes >= 0 ? &wanted : &call->rows) < 0)
        return -1;
    return check_no_gaps(name, view);
}

static int take_gradient(loss_call *call) {
    ons_library library;
    ons_view *out = &call->gradient, *x = &call->x;
    if (call->grad_out == Py_None) return 0;
    if (call->grad_out == Py_True)
        return ons_new_result(&call->caller, x, true, x->dtype, out) < 0
                   ? -1
                   : ons_check_shape("the new gradient", out, x);
    if (ons_take_out(&call->caller, call->grad_out, out, &library) < 0 ||
        ons_check_shape("grad_out", out, x) < 0)
        return -1;
    if (out->dtype != x->dtype) {
        PyErr_Format(PyExc_ValueError, "grad_out has dtype %s: expected %s, as the logits have",
                     ons_dtype_name(out->dtype), ons_dtype_name(x->dtype));
        return -1;
    }
    if (library == ONS_TORCH && ons_torch_written(call->caller.module, call->grad_out) < 0)
        return -1;
    /* inputs must not change while the gradient is written */
    ons_view *const inputs[] = {x, &call->of_target, &call->of_weight, &call->of_given};
    for (int i = 0; i < 4; i++) {
        ons_view *read = inputs[i];
        if (!read->owner || !ons_views_overlap(read, out) || (i == 0 && ons_views_same(x, out)))
            continue;
        if (x->device == ONS_CPU ? ons_view_copy(read) < 0
                                 : ons_gpu_copy_view(call->caller.module, call->caller.library,
                                                     call->caller.stream, read) < 0)
            return -1;
    }
    return 0;
}

static int take_arrays(loss_call *call) {
    ons_caller *caller = &call->caller;
    ons_view *x = &call->x;
    PyObject *axis = NULL;
    if (ons_take(caller, call->logits, ONS_X, x, &caller->library) < 0) return -1;
    if (x->ndim == 0) {
        PyErr_SetString(PyExc_ValueError, "logits has shape (): expected at least one dimension");
        return -1;
    }
    if (!(axis = PyLong_FromLong(call->axis))) return -1;
    const int status = ons_take_axes(caller->module, axis, x->ndim, call->along);
    Py_DECREF(axis);
    if (status < 0) return -1;
    if (x->device == ONS_CUDA && !caller->stream) caller->stream = x->stream;
    call->rows = *x;
    call->rows.ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (call->along[i])
            call->N = x->shape[i];
        else
            call->rows.shape[call->rows.ndim++] = x->shape[i];
    }
    call->real = x->dtype == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
    return take_target(call) < 0 ||
                   take_real(call, "weight", call->weight, call->N, &call->of_weight) < 0 ||
                   take_real(call, "grad_loss", call->grad_loss, -1, &call->of_given) < 0 ||
                   ons_join("logits", x, x, caller->stream) < 0 ||
                   ons_join("target", &call->of_target, x, caller->stream) < 0 ||
                   ons_join("weight", &call->of_weight, x, caller->stream) < 0 ||
                   ons_join("grad_loss", &call->of_given, x, caller->stream) < 0 ||
                   take_gradient(call) < 0 ||
                   ons_join("grad_out", &call->gradient, x, caller->stream) < 0
               ? -1
               : 0;
}

static int64_t count_rows(const loss_call *call) {
    int64_t count = 1;
    for (int i = 0; i < call->rows.ndim; i++) count *= call->rows.shape[i];
    return count;
}

/* On the CPU a target that is no class is an error. On a GPU it gives NaN. */
static int check_targets(const loss_call *call) {
    const ons_view *target = &call->of_target;
    const int64_t N = call->N, rows = call->x.device == ONS_CPU ? count_rows(call) : 0;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t value = target->dtype == ONS_INT64
                                  ? ((const int64_t *)(const void *)target->data)[row]
                                  : ((const int32_t *)(const void *)target->data)[row];
        if ((value >= 0 && value < N) || value == call->terms.ignore_index) continue;
        PyErr_Format(PyExc_IndexError,
                     "target %lld of row %lld is no class: expected 0 to %lld, or ignore_index, "
                     "which is %lld",
                     (long long)value, (long long)row, (long long)N - 1,
                     (long long)call->terms.ignore_index);
        return -1;
    }
    return 0;
}

/* ------- 2. The results ------- */

static int make_results(loss_call *call) {
    ons_view number = call->rows;
    number.ndim = 0;
    if (call->reduction == NONE
            ? ons_new_result(&call->caller, &call->rows, false, call->real, &call->loss) < 0
            : ons_new_result(&call->caller, &number, false, call->real, &call->reduced) < 0)
        return -1;
    if (call->wants_lse &&
        ons_new_result(&call->caller, &call->rows, false, call->real, &call->lse) < 0)
        return -1;
    return 0;
}

/* ------- 3. The run ------- */

static int run_parts(loss_call *call, ons_loss_parts *parts) {
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
    const bool gradient = call->gradient.owner;
    const ons_operation operation =
        gradient ? ONS_OPERATION_cross_entropy_with_grad : ONS_OPERATION_cross_entropy;
    for (int i = 0; i < ONS_OPERANDS; i++) ons_no_view(&operand[i]);
    operand[ONS_X] = call->x;
    if (ons_make_problem(operation, operand, gradient ? &call->gradient : &call->x, call->along,
                         &parts.problem) < 0)
        return -1;
    parts.problem.stream = call->caller.stream;
    parts.problem.scale_by = 1.0;
    parts.mean = call->reduction == MEAN;
    parts.terms = call->terms;
    parts.terms.target = call->of_target.data;
    parts.terms.wide_target = call->of_target.dtype == ONS_INT64;
    parts.terms.in_double = call->real == ONS_FLOAT64;
    parts.terms.weight = call->of_weight.data;
    parts.terms.given = call->of_given.data;
    parts.terms.given_step = call->of_given.ndim > 0;
    parts.terms.loss = call->loss.data;
    parts.terms.lse = call->lse.data;
    parts.terms.reduced = call->reduced.data;
    return run_parts(call, &parts);
}

/* ------- 4. The results in the caller's types ------- */

/* What ons_leave does, for the views of a loss. */
static int leave(loss_call *call, PyObject *stream) {
    const ons_view *const views[] = {&call->x,        &call->of_target, &call->of_weight,
                                     &call->of_given, &call->gradient,  &call->loss,
                                     &call->lse,      &call->reduced};
    enum { INPUTS = 4, ALL = 8 };
    if (call->x.device == ONS_CPU) return 0;
    for (int i = 0; i < ALL; i++)
        if (views[i]->owner && ons_order(call->x.gpu, call->caller.stream, views[i]->stream) < 0)
            return -1;
    PyObject *owner = stream != Py_None ? stream : call->x.stream_owner;
    for (int i = INPUTS; i < ALL; i++)
        if (views[i]->owner &&
            ons_device_array_keep(call->caller.module, views[i]->owner, owner, views, INPUTS) < 0)
            return -1;
    return 0;
}

static PyObject *hand_over(const loss_call *call, const ons_view *view) {
    if (!view->owner) return Py_NewRef(Py_None);
    if (view == &call->gradient && call->grad_out != Py_True) return Py_NewRef(call->grad_out);
    const ons_library library = call->caller.library;
    const bool number = library == ONS_NUMPY && view->device == ONS_CPU && view->ndim == 0;
    return ons_hand_over(call->caller.module, number ? ONS_NUMBER : library, call->logits, view);
}

static PyObject *results(const loss_call *call) {
    return Py_BuildValue("(NNN)",
                         hand_over(call, call->reduction == NONE ? &call->loss : &call->reduced),
                         hand_over(call, &call->gradient), hand_over(call, &call->lse));
}

PyObject *ons_loss_call(PyObject *self, PyObject *args) {
    loss_call call;
    PyObject *stream, *threads, *result = NULL;
    long long ignore_index;
    memset(&call, 0, sizeof call);
    call.caller.module = PyModule_GetState(self);
    call.threads = call.caller.module->num_threads;
    if (!PyArg_ParseTuple(args, "OOiOOOLddipOO:cross_entropy", &call.logits, &call.target,
                          &call.axis, &call.weight, &call.grad_loss, &call.grad_out, &ignore_index,
                          &call.terms.smoothing, &call.terms.z_loss, &call.reduction,
                          &call.wants_lse, &stream, &threads))
        return NULL;
    call.terms.ignore_index = ignore_index;
    PyObject *given[KEYWORDS] = {[STREAM] = stream == Py_None ? NULL : stream,
                                 [NUM_THREADS] = threads == Py_None ? NULL : threads};
    if (ons_take_threads(given[NUM_THREADS], &call.threads) < 0 ||
        (given[STREAM] && ons_take_stream(stream, &call.caller.stream) < 0))
        return NULL;
    if (take_arrays(&call) == 0 && ons_check_device(&call.x, given) == 0 &&
        check_targets(&call) == 0 && make_results(&call) == 0 && run(&call) == 0 &&
        leave(&call, stream) == 0)
        result = results(&call);
    ons_view *const views[] = {&call.x,        &call.of_target, &call.of_weight, &call.of_given,
                               &call.gradient, &call.loss,      &call.lse,       &call.reduced};
    for (int i = 0; i < 8; i++) ons_release_view(views[i]);
    return result;
}

const char ons_loss_doc[] =
    "cross_entropy($module, logits, target, axis, weight, grad_loss, grad_out, ignore_index,\n"
    "              label_smoothing, z_loss, reduction, return_lse, stream, num_threads, /)\n--\n\n"
    "(loss, gradient, lse) for onsoftmax/_losses.py. target, weight and grad_loss come without\n"
    "gaps, weight and grad_loss in the arithmetic's type. grad_out: None for no gradient, True\n"
    "for a new array, or the array that receives it. reduction: 0 none, 1 sum, 2 mean.";
