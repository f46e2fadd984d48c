/* row_call.c - takes and gives the arrays of calls on rows of logits. */
#include "row_call.h"

#include <string.h>

int ons_begin_rows(ons_row_call *call, PyObject *self, PyObject *stream, PyObject *threads) {
    call->caller.module = PyModule_GetState(self);
    call->threads = call->caller.module->num_threads;
    call->stream = stream;
    call->num_threads = threads;
    call->scale_by = 1.0;
    ons_no_call_views(&call->masks);
    if (ons_take_threads(threads == Py_None ? NULL : threads, &call->threads) < 0) return -1;
    return stream == Py_None ? 0 : ons_take_stream(stream, &call->caller.stream);
}

int ons_take_logits(ons_row_call *call, int axis_number) {
    ons_caller *caller = &call->caller;
    ons_view *x = &call->x;
    if (ons_take(caller, call->logits, ONS_X, x, &caller->library) < 0) return -1;
    if (caller->library == ONS_TORCH && caller->outside &&
        (ons_check_tracing(caller) < 0 || (call->stream == Py_None && ons_check_modes(caller) < 0)))
        return -1;
    if (x->ndim == 0) {
        PyErr_SetString(PyExc_ValueError, "logits has shape (): expected at least one dimension");
        return -1;
    }
    PyObject *axis = PyLong_FromLong(axis_number);
    if (!axis) return -1;
    const int status = ons_take_axes(caller->module, axis, x->ndim, call->along);
    Py_DECREF(axis);
    if (status < 0) return -1;
    if (x->device == ONS_CUDA && !caller->stream) caller->stream = x->stream;
    call->rows = *x;
    call->rows.ndim = 0;
    call->count = 1;
    for (int i = 0; i < x->ndim; i++) {
        if (call->along[i]) {
            call->N = x->shape[i];
        } else {
            call->rows.shape[call->rows.ndim++] = x->shape[i];
            call->count *= x->shape[i];
        }
    }
    call->real = x->dtype == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
    PyObject *const given[KEYWORDS] = {
        [STREAM] = call->stream == Py_None ? NULL : call->stream,
        [NUM_THREADS] = call->num_threads == Py_None ? NULL : call->num_threads};
    return ons_check_device(x, given);
}

static ons_view *new_entry(ons_row_call *call, const char *name, bool is_result) {
    ons_row_array *array = &call->array[call->arrays++];
    *array = (ons_row_array){.name = name, .is_result = is_result};
    return &array->view;
}

bool ons_has_gaps(const ons_view *view) {
    ons_view ordered = *view;
    bool has_gaps = false;
    ons_put_in_c_order(&ordered);
    for (int i = 0; i < view->ndim; i++)
        if (view->shape[i] == 0) return false;
    for (int i = 0; i < view->ndim; i++)
        has_gaps |= view->shape[i] > 1 && view->strides[i] != ordered.strides[i];
    return has_gaps;
}

static int check_no_gaps(const char *name, const ons_view *view) {
    if (!ons_has_gaps(view)) return 0;
    PyErr_Format(PyExc_ValueError, "%s has gaps between its elements: expected none", name);
    return -1;
}

ons_view *ons_take_operand(ons_row_call *call, const char *name, PyObject *object, ons_role role) {
    ons_library library;
    ons_view *view = new_entry(call, name, false);
    return ons_take(&call->caller, object, role, view, &library) < 0 ? NULL : view;
}

/* An array of int32 or int64, of any shape. */
static ons_view *take_integers(ons_row_call *call, const char *name, PyObject *object) {
    ons_library library;
    ons_view *view = new_entry(call, name, false);
    if (PyArray_Check(object)) {
        PyArrayObject *array = (PyArrayObject *)object;
        ons_view_new_numpy(array, PyArray_ITEMSIZE(array) == 4 ? ONS_INT32 : ONS_INT64, view);
    } else if (ons_take(&call->caller, object, ONS_INDICES, view, &library) < 0) {
        return NULL;
    }
    if (view->dtype == ONS_INT32 || view->dtype == ONS_INT64) return view;
    PyErr_Format(PyExc_TypeError, "%s has dtype %s: expected int32 or int64", name,
                 ons_dtype_name(view->dtype));
    return NULL;
}

ons_view *ons_take_indices(ons_row_call *call, const char *name, PyObject *object, bool several) {
    ons_view *view = take_integers(call, name, object), wanted = call->rows;
    if (!view) return NULL;
    if (several && view->ndim == wanted.ndim + 1) {
        wanted.shape[wanted.ndim] = view->shape[wanted.ndim];
        wanted.ndim++;
    }
    return ons_check_shape(name, view, &wanted) < 0 || check_no_gaps(name, view) < 0 ? NULL : view;
}

/* An array of a floating type, of any shape. */
static ons_view *take_reals(ons_row_call *call, const char *name, PyObject *object) {
    ons_library library;
    ons_view *view = new_entry(call, name, false);
    if (object == Py_None) return view;
    return ons_take(&call->caller, object, ONS_X, view, &library) < 0 ? NULL : view;
}

ons_view *ons_take_real(ons_row_call *call, const char *name, PyObject *object,
                        const ons_view *like, bool one) {
    ons_view *view = take_reals(call, name, object);
    if (!view || object == Py_None) return view;
    if (view->dtype != call->real) {
        PyErr_Format(PyExc_TypeError, "%s has dtype %s: expected %s", name,
                     ons_dtype_name(view->dtype), ons_dtype_name(call->real));
        return NULL;
    }
    if (!(one && view->ndim == 0) && ons_check_shape(name, view, like) < 0) return NULL;
    return check_no_gaps(name, view) < 0 ? NULL : view;
}

ons_view *ons_take_row_numbers(ons_row_call *call, const char *name, PyObject *object,
                               bool integers, int64_t *step) {
    ons_view *view = integers ? take_integers(call, name, object) : take_reals(call, name, object);
    if (!view) return NULL;
    if (!integers && view->dtype != ONS_FLOAT32 && view->dtype != ONS_FLOAT64) {
        PyErr_Format(PyExc_TypeError, "%s has dtype %s: expected float32 or float64", name,
                     ons_dtype_name(view->dtype));
        return NULL;
    }
    int64_t count = 1;
    for (int i = 0; i < view->ndim; i++) count *= view->shape[i];
    *step = count != 1;
    if (count != 1 && ons_check_shape(name, view, &call->rows) < 0) return NULL;
    return check_no_gaps(name, view) < 0 ? NULL : view;
}

ons_view *ons_take_doubles(ons_row_call *call, const char *name, PyObject *object,
                           const ons_view *like) {
    const ons_dtype real = call->real;
    call->real = ONS_FLOAT64;
    ons_view *view = ons_take_real(call, name, object, like, false);
    call->real = real;
    return view;
}

int ons_take_row_masks(ons_row_call *call, PyObject *where, PyObject *scale) {
    PyObject *const given[KEYWORDS] = {
        [WHERE] = where == Py_None ? NULL : where, [SCALE] = scale == Py_None ? NULL : scale};
    ons_view *x = &call->masks.operand[ONS_X];
    *x = call->x; /* borrowed */
    const int status =
        ons_take_where_and_scale(&call->caller, given, &call->masks, &call->scale_by);
    ons_no_view(x);
    return status;
}

/* Streams to which where and scale belong come before the run, or wait for it. */
static int join_masks(const ons_row_call *call) {
    const ons_view *of = call->masks.operand;
    void *stream = call->caller.stream;
    return ons_join("where", &of[ONS_WHERE], &call->x, stream) < 0
               ? -1
               : ons_join("scale", &of[ONS_SCALE], &call->x, stream);
}
static int leave_masks(const ons_row_call *call) {
    for (int role = ONS_WHERE; role <= ONS_SCALE; role++) {
        const ons_view *view = &call->masks.operand[role];
        if (view->owner && view->device == ONS_CUDA &&
            ons_order(view->gpu, call->caller.stream, view->stream) < 0)
            return -1;
    }
    return 0;
}

ons_view *ons_new_row_result(ons_row_call *call, const ons_view *like, ons_dtype dtype) {
    ons_view *view = new_entry(call, NULL, true), shaped = call->rows; /* of the logits' library */
    shaped.ndim = like->ndim;
    memcpy(shaped.shape, like->shape, sizeof shaped.shape);
    return ons_new_result(&call->caller, &shaped, false, dtype, view) < 0 ? NULL : view;
}

/* Inputs must not change while the gradient is written. */
static int keep_apart(ons_row_call *call, ons_view *read, const ons_view *out) {
    if (!read->owner || !ons_views_overlap(read, out)) return 0;
    return call->x.device == ONS_CPU ? ons_view_copy(read)
                                     : ons_gpu_copy_view(call->caller.module, call->caller.library,
                                                         call->caller.stream, read);
}

ons_view *ons_take_gradient(ons_row_call *call, PyObject *grad_out) {
    ons_library library;
    ons_view *x = &call->x, *out = new_entry(call, "grad_out", true);
    if (grad_out == Py_None) return out;
    if (grad_out == Py_True)
        return ons_new_result(&call->caller, x, true, x->dtype, out) < 0 ||
                       ons_check_shape("the new gradient", out, x) < 0
                   ? NULL
                   : out;
    if (ons_take_out(&call->caller, grad_out, out, &library) < 0 ||
        ons_check_shape("grad_out", out, x) < 0)
        return NULL;
    if (out->dtype != x->dtype) {
        PyErr_Format(PyExc_ValueError, "grad_out has dtype %s: expected %s, as the logits have",
                     ons_dtype_name(out->dtype), ons_dtype_name(x->dtype));
        return NULL;
    }
    if (library == ONS_TORCH && ons_torch_written(call->caller.module, grad_out) < 0) return NULL;
    if (!ons_views_same(x, out) && keep_apart(call, x, out) < 0) return NULL;
    for (int i = 0; i < call->arrays; i++)
        if (!call->array[i].is_result && keep_apart(call, &call->array[i].view, out) < 0)
            return NULL;
    return ons_join("grad_out", out, x, call->caller.stream) < 0 ? NULL : out;
}

int ons_check_indices(const ons_row_call *call, const ons_view *indices, const long long *ignored) {
    int64_t count = 1;
    for (int i = 0; i < indices->ndim; i++) count *= indices->shape[i];
    const int64_t a_row = call->count > 0 ? count / call->count : 1;
    for (int64_t i = 0; i < count && call->x.device == ONS_CPU; i++) {
        const int64_t value = indices->dtype == ONS_INT64
                                  ? ((const int64_t *)(const void *)indices->data)[i]
                                  : ((const int32_t *)(const void *)indices->data)[i];
        if ((value >= 0 && value < call->N) || (ignored && value == *ignored)) continue;
        if (ignored)
            PyErr_Format(PyExc_IndexError,
                         "target %lld of row %lld is no class: expected 0 to %lld, or "
                         "ignore_index, which is %lld",
                         (long long)value, (long long)(i / a_row), (long long)call->N - 1,
                         *ignored);
        else
            PyErr_Format(PyExc_IndexError,
                         "index %lld of row %lld is no element: expected 0 to %lld",
                         (long long)value, (long long)(i / a_row), (long long)call->N - 1);
        return -1;
    }
    return 0;
}

int ons_run_rows(const ons_row_call *call, ons_operation operation, const ons_view *y,
                 const ons_view *pairs, const ons_loss *loss, const ons_logprob *logprob) {
    ons_view operand[ONS_OPERANDS];
    ons_problem problem;
    for (int i = 0; i < ONS_OPERANDS; i++) ons_no_view(&operand[i]);
    operand[ONS_X] = call->x;
    if (pairs) operand[ONS_STATISTIC] = *pairs;
    if (ons_make_problem(operation, operand, y, call->along, &problem) < 0) return -1;
    problem.loss = loss;
    problem.logprob = logprob;
    problem.scale_by = 1.0;
    problem.stream = call->caller.stream;
    return ons_run_call(&call->caller, &problem, ONS_METHOD_AUTO, call->threads);
}

int ons_join_rows(ons_row_call *call) {
    const ons_view *x = &call->x;
    void *stream = call->caller.stream;
    if (ons_join("logits", x, x, stream) < 0) return -1;
    for (int i = 0; i < call->arrays; i++) {
        const ons_row_array *array = &call->array[i];
        if (array->name && ons_join(array->name, &array->view, x, stream) < 0) return -1;
    }
    return join_masks(call);
}

int ons_leave_rows(ons_row_call *call) {
    const ons_view *inputs[ONS_ROW_ARRAYS + 1] = {&call->x};
    int count = 1;
    if (call->x.device == ONS_CPU) return 0;
    if (leave_masks(call) < 0) return -1;
    if (ons_order(call->x.gpu, call->caller.stream, call->x.stream) < 0) return -1;
    for (int i = 0; i < call->arrays; i++) {
        const ons_view *view = &call->array[i].view;
        if (!call->array[i].is_result) inputs[count++] = view;
        if (view->owner && ons_order(call->x.gpu, call->caller.stream, view->stream) < 0) return -1;
    }
    PyObject *owner = call->stream != Py_None ? call->stream : call->x.stream_owner;
    for (int i = 0; i < call->arrays; i++) {
        const ons_view *view = &call->array[i].view;
        if (call->array[i].is_result && view->owner &&
            ons_device_array_keep(call->caller.module, view->owner, owner, inputs, count) < 0)
            return -1;
    }
    return 0;
}

void ons_release_rows(ons_row_call *call) {
    ons_release_view(&call->x);
    for (int i = 0; i < call->arrays; i++) ons_release_view(&call->array[i].view);
    ons_release_call_views(&call->masks);
}

PyObject *ons_hand_over_rows(const ons_row_call *call, const ons_view *view) {
    if (!view || !view->owner) return Py_NewRef(Py_None);
    const ons_library library = call->caller.library;
    const bool number = library == ONS_NUMPY && view->device == ONS_CPU && view->ndim == 0;
    return ons_hand_over(call->caller.module, number ? ONS_NUMBER : library, call->logits, view);
}
