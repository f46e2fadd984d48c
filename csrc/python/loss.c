/* loss.c - cross_entropy for onsoftmax/_losses.py: the losses of rows, and their gradient. It finds
 * the pairs of the rows first. The arrays beside logits come without gaps and in their final type.
 */
#include "call_views.h"

#include "../api/loss.h"

#include <string.h>

/* What a call takes and gives. */
typedef struct {
    ons_caller caller;
    PyObject *logits, *target, *weight, *grad_loss, *grad_out; /* None: not given */
    int axis, reduction, wants_lse, threads;
    ons_view x, of_target, of_weight, of_given, gradient, loss, lse, reduced;
    ons_view rows; /* the shape of the rows; it owns nothing */
    bool along[ONS_MAX_DIMS];
    ons_dtype real;
    ons_loss terms;
    /* scratch: pairs, sums and losses of rows, the sum of all weights, a divisor */
    PyObject *scratch;
    char *pairs, *sums, *losses, *weight_sum, *divisor;
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
    int64_t classes = 1;
    call->rows = *x;
    call->rows.ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (call->along[i])
            classes = x->shape[i];
        else
            call->rows.shape[call->rows.ndim++] = x->shape[i];
    }
    call->real = x->dtype == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
    return take_target(call) < 0 ||
                   take_real(call, "weight", call->weight, classes, &call->of_weight) < 0 ||
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
    int64_t N = 0, rows = count_rows(call);
    for (int i = 0; i < call->x.ndim; i++)
        if (call->along[i]) N = call->x.shape[i];
    for (int64_t row = 0; row < rows && call->x.device == ONS_CPU; row++) {
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

/* ------- 2. Results and scratch ------- */

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

/* Cuts the scratch into its parts. Returns its length. */
static int64_t cut_scratch(loss_call *call, char *at) {
    const int64_t rows = count_rows(call), pair = 2 * sizeof(double);
    char *const begin = at;
    char **parts[] = {&call->pairs, &call->sums, &call->weight_sum, &call->divisor, &call->losses};
    const int64_t bytes[] = {rows * pair, call->terms.smoothing != 0.0 ? rows * pair : 0, pair,
                             pair, call->reduction == NONE ? 0 : rows * ons_dtype_size(call->real)};
    for (int i = 0; i < 5; i++) {
        *parts[i] = at;
        at += (bytes[i] + 63) & ~(int64_t)63;
    }
    return at - begin;
}

static int make_scratch(loss_call *call) {
    const int64_t bytes = cut_scratch(call, NULL);
    void *memory;
    if (call->x.device == ONS_CUDA) {
        call->scratch = ons_gpu_memory(call->caller.module, call->caller.library, call->x.gpu,
                                       call->caller.stream, bytes, &memory);
    } else {
        call->scratch = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes + 64);
        if (call->scratch)
            memory = (void *)(((uintptr_t)PyBytes_AsString(call->scratch) + 63) & ~(uintptr_t)63);
    }
    if (!call->scratch) return -1;
    cut_scratch(call, memory);
    return 0;
}

/* ------- 3. The problems that make up a loss ------- */

/* A view of two doubles for each row, with x's dimensions: the y of a problem with one value a
 * row. */
static ons_view values_of_rows(const loss_call *call, char *data) {
    ons_view view = call->x;
    int64_t stride = 2 * sizeof(double);
    view.data = data;
    for (int i = view.ndim - 1; i >= 0; i--) {
        view.strides[i] = call->along[i] ? 0 : stride;
        if (!call->along[i]) stride *= view.shape[i] > 0 ? view.shape[i] : 1;
    }
    return view;
}

static int run_problem(loss_call *call, ons_problem *problem) {
    problem->stream = call->caller.stream;
    return ons_run_call(&call->caller, problem, ONS_METHOD_AUTO, call->threads);
}

static int find_pairs(loss_call *call) {
    ons_view operand[ONS_OPERANDS];
    ons_problem problem;
    for (int i = 0; i < ONS_OPERANDS; i++) ons_no_view(&operand[i]);
    const ons_view y = values_of_rows(call, call->pairs);
    operand[ONS_X] = call->x;
    if (ons_make_problem(ONS_OPERATION_normalizer, operand, &y, call->along, &problem) < 0)
        return -1;
    problem.scale_by = 1.0;
    return run_problem(call, &problem);
}

/* Adds up x over each row, or its products with `by`. */
static int add_up(loss_call *call, const ons_view *x, const ons_view *by, const bool *along,
                  const ons_view *y) {
    ons_view operand[ONS_OPERANDS];
    ons_problem problem;
    for (int i = 0; i < ONS_OPERANDS; i++) ons_no_view(&operand[i]);
    operand[ONS_GRADIENT] = *x;
    operand[ONS_X] = by ? *by : *x;
    const ons_operation adds =
        by ? ONS_OPERATION_softmax_backward : ONS_OPERATION_log_softmax_backward;
    if (ons_make_problem(adds, operand, y, along, &problem) < 0) return -1;
    problem.sums = true;
    problem.scale_by = 1.0;
    return run_problem(call, &problem);
}

/* The sums that label smoothing needs. */
static int find_sums(loss_call *call) {
    const ons_view *const weight = &call->of_weight;
    const ons_view sums = values_of_rows(call, call->sums);
    if (call->terms.smoothing == 0.0) return 0;
    call->terms.sums = (const double *)(const void *)call->sums;
    if (!weight->owner) return add_up(call, &call->x, NULL, call->along, &sums);
    ons_view all = *weight, by = call->x; /* the weights as an array of x's shape */
    const bool reduced[ONS_MAX_DIMS] = {true};
    all.data = call->weight_sum;
    all.strides[0] = 0;
    by.data = weight->data;
    by.dtype = weight->dtype;
    for (int i = 0; i < by.ndim; i++) by.strides[i] = call->along[i] ? weight->strides[0] : 0;
    call->terms.weight_sum = (const double *)(const void *)call->weight_sum;
    return add_up(call, weight, NULL, reduced, &all) < 0
               ? -1
               : add_up(call, &call->x, &by, call->along, &sums);
}

/* The problem of an operation on the logits. `given`: with the pairs of the rows. */
static int make_problem(loss_call *call, ons_operation operation, const ons_view *y, bool given,
                        ons_problem *problem) {
    ons_view operand[ONS_OPERANDS];
    for (int i = 0; i < ONS_OPERANDS; i++) ons_no_view(&operand[i]);
    operand[ONS_X] = call->x;
    if (given) {
        ons_view *pairs = &operand[ONS_STATISTIC];
        *pairs = call->rows;
        pairs->data = call->pairs;
        pairs->dtype = ONS_FLOAT64;
        pairs->shape[pairs->ndim++] = 2;
        ons_put_in_c_order(pairs);
    }
    if (ons_make_problem(operation, operand, y, call->along, problem) < 0) return -1;
    problem->loss = &call->terms;
    problem->scale_by = 1.0;
    return 0;
}

/* One kernel finds the losses and the gradient, if a GPU can hold the rows and there is no label
 * smoothing: 1, 0 or -1. */
static int run_at_once(loss_call *call) {
    ons_problem problem;
    ons_plan plan;
    const ons_machine machine = ons_this_machine(call->threads);
    if (call->x.device == ONS_CPU || !call->gradient.owner || count_rows(call) == 0 ||
        call->terms.smoothing != 0.0)
        return 0;
    if (make_problem(call, ONS_OPERATION_cross_entropy_with_grad, &call->gradient, false,
                     &problem) < 0)
        return -1;
    if (ons_make_plan(&problem, ONS_METHOD_AUTO, &machine, &plan) != ONS_OK || plan.N == 0)
        return 0;
    return run_problem(call, &problem) < 0 ? -1 : 1;
}

static int run(loss_call *call) {
    ons_loss *terms = &call->terms;
    ons_problem problem;
    terms->target = call->of_target.data;
    terms->wide_target = call->of_target.dtype == ONS_INT64;
    terms->in_double = call->real == ONS_FLOAT64;
    terms->weight = call->of_weight.data;
    terms->given = call->of_given.data;
    terms->given_step = call->of_given.ndim > 0;
    terms->loss = call->reduction == NONE ? call->loss.data : call->losses;
    terms->reduced = call->reduced.data;
    terms->lse = call->lse.data;
    terms->divisor = call->reduction == MEAN ? (double *)(void *)call->divisor : NULL;
    const int done = run_at_once(call);
    if (done != 0) return done < 0 ? -1 : 0;
    ons_view losses = values_of_rows(call, terms->loss);
    losses.dtype = call->real;
    if (find_pairs(call) < 0 || find_sums(call) < 0 ||
        make_problem(call, ONS_OPERATION_cross_entropy, &losses, true, &problem) < 0 ||
        run_problem(call, &problem) < 0)
        return -1;
    if (!call->gradient.owner) return 0;
    return make_problem(call, ONS_OPERATION_cross_entropy_with_grad, &call->gradient, true,
                        &problem) < 0
               ? -1
               : run_problem(call, &problem);
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
        check_targets(&call) == 0 && make_results(&call) == 0 && make_scratch(&call) == 0 &&
        run(&call) == 0 && leave(&call, stream) == 0)
        result = results(&call);
    ons_view *const views[] = {&call.x,        &call.of_target, &call.of_weight, &call.of_given,
                               &call.gradient, &call.loss,      &call.lse,       &call.reduced};
    for (int i = 0; i < 8; i++) ons_release_view(views[i]);
    Py_XDECREF(call.scratch);
    return result;
}

const char ons_loss_doc[] =
    "cross_entropy($module, logits, target, axis, weight, grad_loss, grad_out, ignore_index,\n"
    "              label_smoothing, z_loss, reduction, return_lse, stream, num_threads, /)\n--\n\n"
    "(loss, gradient, lse) for onsoftmax/_losses.py. target, weight and grad_loss come without\n"
    "gaps, weight and grad_loss in the arithmetic's type. grad_out: None for no gradient, True\n"
    "for a new array, or the array that receives it. reduction: 0 none, 1 sum, 2 mean.";
