/* call.c - calls an operation: makes views of the arrays and a problem of the views, runs it, and
 * returns the result. */
#include "call_views.h"

#include "../api/packed.h"
#include "../api/plan_facts.h"

static int copy_view(const ons_caller *caller, ons_view *view) {
    return view->device == ONS_CPU
               ? ons_view_copy(view)
               : ons_gpu_copy_view(caller->module, caller->library, caller->stream, view);
}

/* Inputs must not change while out is written. Copies each input that out overlaps, except x or a
 * gradient if out is this very array. */
static int keep_apart(const ons_caller *caller, ons_call_views *views) {
    const ons_view *out = &views->operand[ONS_Y];
    for (int role = 0; role < ONS_OPERANDS; role++) {
        ons_view *read = &views->operand[role];
        if (role == ONS_Y || !read->owner || !ons_views_overlap(read, out)) continue;
        bool in_place = (role == ONS_X || role == ONS_GRADIENT) && ons_views_same(read, out);
        if (!in_place && copy_view(caller, read) < 0) return -1;
    }
    return 0;
}

/* The type of the array, or the narrowest type that holds both inputs. */
static ons_dtype type_of_inputs(const ons_call_views *views) {
    const ons_view *other = &views->operand[ONS_GRADIENT];
    ons_dtype x = views->operand[ONS_X].dtype, gradient = other->owner ? other->dtype : x;
    if (x == gradient) return x;
    return x == ONS_FLOAT64 || gradient == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
}

/* The differences between the functions. A keyword may also name the operation, which takes a
 * gradient if this one does. */
typedef struct {
    const char *name;
    int keywords; /* that the function has */
    bool sums;    /* the result is the sums of the rows */
    ons_operation operation;
} operation_function;

/* A call. Each step below fills in what the next steps need. It is too large to be cleared
 * first. */
typedef struct {
    ons_caller caller;
    ons_signature takes;
    bool sums;             /* from the function */
    PyObject *const *args; /* the array, or grad and output */
    ons_operation operation;
    PyObject *given[KEYWORDS], *axes;
    int threads, keepdims;
    const ons_dtype *wanted, *computed; /* dtype= and compute=; NULL if not given */
    ons_dtype dtypes[2];                /* what `wanted` and `computed` point to */
    ons_call_views views;
    ons_method method;
    bool reduced[ONS_MAX_DIMS];
    ons_view values; /* y with x's dimensions, if it has one value a row */
    ons_problem problem;
} operation_call;

static bool has_one_a_row(const operation_call *call) {
    return ons_operations[call->operation].one_a_row || call->sums;
}

/* Whether the function has an operator of torch that autograd and compilers see. */
static bool has_operator(const operation_call *call) {
    return call->takes.keywords == OF_ROWS || call->takes.keywords == OF_VALUES;
}

static PyObject *array_of(const operation_call *call) { return call->args[call->takes.count - 1]; }

/* ------- 1. The arguments, except the arrays ------- */

static int check_arguments(operation_call *call) {
    const ons_operation_info *info = &ons_operations[call->operation];
    PyObject *const *given = call->given;
    if (given[OPERATION] && (info->gradient != (call->takes.count > 1) || info->selects)) {
        PyErr_Format(PyExc_ValueError, "%s() does no %s, which takes %s", call->takes.function,
                     info->name, call->takes.count > 1 ? "no gradient" : "no pairs");
        return -1;
    }
    if (call->takes.keywords >> PAIRS & 1 && !given[PAIRS]) {
        PyErr_Format(PyExc_TypeError, "%s() needs pairs", call->takes.function);
        return -1;
    }
    if (info->one_a_row && (given[OUT] || (given[DTYPE] && given[DTYPE] != Py_None))) {
        PyErr_Format(PyExc_TypeError, "%s() of %s takes no out and no dtype", call->takes.function,
                     info->name);
        return -1;
    }
    return 0;
}

static int take_types_and_axes(operation_call *call) {
    const int typed = ons_take_dtype(call->caller.module, call->given[DTYPE], &call->dtypes[0]);
    const int computed =
        ons_take_dtype(call->caller.module, call->given[COMPUTE], &call->dtypes[1]);
    if (typed < 0 || computed < 0) return -1;
    if (typed) call->wanted = &call->dtypes[0];
    if (computed) call->computed = &call->dtypes[1];
    return call->given[AXIS] && !(call->axes = ons_plain_axes(call->given[AXIS])) ? -1 : 0;
}

static int take_arguments(operation_call *call, Py_ssize_t count, PyObject *names) {
    PyObject **const given = call->given;
    if (ons_take_arguments(&call->takes, call->args, count, names, given) < 0) return -1;
    if (given[OPERATION] && ons_take_operation(given[OPERATION], &call->operation) < 0) return -1;
    if (check_arguments(call) < 0) return -1;
    if (given[KEEPDIMS] && (call->keepdims = PyObject_IsTrue(given[KEEPDIMS])) < 0) return -1;
    if (has_operator(call) &&
        ons_check_symbolic(&call->caller, call->args[0], given[NUM_THREADS]) < 0)
        return -1;
    if (ons_take_threads(given[NUM_THREADS], &call->threads) < 0) return -1;
    return given[STREAM] ? ons_take_stream(given[STREAM], &call->caller.stream) : 0;
}

/* ------- 2. The arrays, as views of the inputs ------- */

/* Adds the name of the array to a TypeError about one of two arrays. */
static void say_which(const char *name) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (type != PyExc_TypeError) {
        PyErr_Restore(type, value, traceback);
        return;
    }
    PyErr_Format(type, "%s: %S", name, value);
    Py_DECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

static int take_array(operation_call *call) {
    ons_caller *const caller = &call->caller;
    ons_view *const x = &call->views.operand[ONS_X];
    PyObject *const *given = call->given;
    if (ons_take(caller, array_of(call), ONS_X, x, &caller->library) < 0) {
        if (call->takes.count > 1) say_which("output");
        return -1;
    }
    const bool of_torch = caller->library == ONS_TORCH;
    if (of_torch && ons_check_tracing(caller) < 0) return -1;
    if (ons_check_device(x, given) < 0) return -1;
    if (has_operator(call) && of_torch) {
        if (!given[STREAM] && ons_check_modes(caller) < 0) return -1;
        if (call->takes.count == 1 && !given[OUT] && !call->wanted &&
            ons_check_autocast(caller, x) < 0)
            return -1;
    }
    if (x->device == ONS_CUDA && !given[STREAM]) caller->stream = x->stream;
    return 0;
}

static int take_others(operation_call *call) {
    ons_view *const operand = call->views.operand;
    PyObject *const *given = call->given;
    ons_library library;
    const ons_caller *caller = &call->caller;
    if (ons_take_where_and_scale(caller, given, &call->views, &call->problem.scale_by) < 0)
        return -1;
    if (given[PAIRS] &&
        ons_take(caller, given[PAIRS], ONS_STATISTIC, &operand[ONS_STATISTIC], &library) < 0)
        return -1;
    if (call->takes.count > 1 &&
        ons_take(caller, call->args[0], ONS_X, &operand[ONS_GRADIENT], &library) < 0) {
        say_which("grad");
        return -1;
    }
    return 0;
}

/* Puts all operands in the order of one stream. */
static int join_operands(operation_call *call) {
    const ons_view *const operand = call->views.operand, *const x = &operand[ONS_X];
    void *stream = call->caller.stream;
    if (call->takes.count > 1 && (ons_join("grad", &operand[ONS_GRADIENT], x, stream) < 0 ||
                                  ons_check_shape("grad", &operand[ONS_GRADIENT], x) < 0))
        return -1;
    if (ons_join(call->takes.count > 1 ? "output" : "array", x, x, stream) < 0 ||
        ons_join("where", &operand[ONS_WHERE], x, stream) < 0 ||
        ons_join("scale", &operand[ONS_SCALE], x, stream) < 0)
        return -1;
    return ons_join("pairs", &operand[ONS_STATISTIC], x, stream);
}

static int take_operands(operation_call *call) {
    const ons_view *x = &call->views.operand[ONS_X];
    if (take_array(call) < 0 ||
        ons_take_method(call->given[METHOD], x->device, call->operation, &call->method) < 0 ||
        ons_take_axes(call->caller.module, call->axes, x->ndim, call->reduced) < 0)
        return -1;
    return take_others(call) < 0 ? -1 : join_operands(call);
}

/* ------- 3. The memory of the result ------- */

static int make_result(operation_call *call) {
    const ons_view *x = &call->views.operand[ONS_X];
    ons_view *y = &call->views.operand[ONS_Y];
    const ons_dtype dtype = call->wanted ? *call->wanted : type_of_inputs(&call->views);
    if (ons_new_result(&call->caller, x, true, dtype, y) < 0) return -1;
    return ons_check_shape("the new result", y, x);
}

/* One value a row, or several float64 values, which have a dimension of their own. */
static int make_values(operation_call *call) {
    const ons_operation_info *info = &ons_operations[call->operation];
    const int several = !call->sums      ? info->pair * ons_pair_values(call->method)
                        : info->gradient ? 2
                                         : ONS_PACKED_VALUES;
    const ons_view *x = &call->views.operand[ONS_X];
    ons_view *y = &call->views.operand[ONS_Y], *as_y = &call->values, shape = *x;
    const bool *reduced = call->reduced;
    shape.ndim = 0;
    for (int i = 0; i < x->ndim; i++)
        if (!reduced[i] || call->keepdims) shape.shape[shape.ndim++] = reduced[i] ? 1 : x->shape[i];
    if (several > 0) shape.shape[shape.ndim++] = several;
    if (ons_new_result(&call->caller, &shape, false, several > 0 ? ONS_FLOAT64 : x->dtype, y) < 0 ||
        ons_check_shape("the new result", y, &shape) < 0)
        return -1;
    *as_y = *y;
    as_y->dtype = x->dtype;
    as_y->ndim = x->ndim;
    for (int i = 0, own = 0; i < x->ndim; i++) {
        as_y->shape[i] = reduced[i] ? 1 : x->shape[i];
        as_y->strides[i] = reduced[i] ? 0 : y->strides[own];
        own += !reduced[i] || call->keepdims;
    }
    return 0;
}

static int use_out(operation_call *call, ons_library out_library) {
    const ons_view *out = &call->views.operand[ONS_Y], *x = &call->views.operand[ONS_X];
    if (ons_check_shape("out", out, x) < 0) return -1;
    if (call->wanted && out->dtype != *call->wanted) {
        PyErr_Format(PyExc_ValueError,
                     "out has dtype %s, and dtype is %s: expected the same type, or only one of "
                     "the two arguments",
                     ons_dtype_name(out->dtype), ons_dtype_name(*call->wanted));
        return -1;
    }
    if (ons_join("out", out, x, call->caller.stream) < 0 ||
        keep_apart(&call->caller, &call->views) < 0)
        return -1;
    return out_library == ONS_TORCH ? ons_torch_written(call->caller.module, call->given[OUT]) : 0;
}

static int take_result(operation_call *call) {
    ons_library library = ONS_NUMPY;
    if (call->given[OUT] &&
        ons_take_out(&call->caller, call->given[OUT], &call->views.operand[ONS_Y], &library) < 0)
        return -1;
    if (ons_check_all_unchanged(call->caller.module, call->given, &call->views) < 0) return -1;
    if (has_one_a_row(call)) return make_values(call);
    return call->given[OUT] ? use_out(call, library) : make_result(call);
}

/* ------- 4. The problem, its run, and the caller's result ------- */

static int run(operation_call *call) {
    ons_view *const operand = call->views.operand;
    ons_problem *problem = &call->problem;
    const ons_view *y = has_one_a_row(call) ? &call->values : &operand[ONS_Y];
    if (ons_make_problem(call->operation, operand, y, call->reduced, problem) < 0) return -1;
    problem->sums = call->sums;
    if (call->computed && problem->operand[ONS_STATISTIC].data &&
        ons_has_other_products(problem, *call->computed))
        problem->compute = *call->computed == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
    problem->stream = call->caller.stream;
    if (ons_run_call(&call->caller, problem, call->method, call->threads) < 0 ||
        ons_leave(call->caller.module, &call->views, call->given, call->caller.stream) < 0)
        return -1;
    return ons_say_dtype(call->given, &operand[ONS_X]);
}

static PyObject *hand_over(const operation_call *call) {
    const ons_view *x = &call->views.operand[ONS_X], *y = &call->views.operand[ONS_Y];
    const ons_library library = call->caller.library;
    if (call->given[OUT]) return Py_NewRef(call->given[OUT]);
    const bool number =
        has_one_a_row(call) && library == ONS_NUMPY && x->device == ONS_CPU && y->ndim == 0;
    return ons_hand_over(call->caller.module, number ? ONS_NUMBER : library, array_of(call), y);
}

static PyObject *call_function(const operation_function *function, PyObject *self,
                               PyObject *const *args, Py_ssize_t count, PyObject *names,
                               ons_outside *outside) {
    operation_call call;
    PyObject *result = NULL;
    call.caller = (ons_caller){.module = PyModule_GetState(self), .outside = outside};
    call.operation = function->operation;
    call.args = args;
    const bool gradient = ons_operations[call.operation].gradient;
    call.takes = (ons_signature){function->name, gradient ? "grad and output" : "an array",
                                 gradient ? 2 : 1, function->keywords};
    call.sums = function->sums;
    call.threads = call.caller.module->num_threads;
    call.keepdims = 0;
    call.axes = NULL;
    call.wanted = call.computed = NULL;
    if (take_arguments(&call, count, names) < 0) return NULL;
    if (call.given[STREAM]) {
        result = ons_call_on_stream(&call.caller, self, &call.takes, args, call.given);
        if (result != Py_NotImplemented) return result;
        Py_CLEAR(result);
    }
    if (take_types_and_axes(&call) < 0) return NULL;
    ons_no_call_views(&call.views);
    if (take_operands(&call) == 0 && take_result(&call) == 0 && run(&call) == 0)
        result = hand_over(&call);
    Py_XDECREF(call.axes);
    ons_release_call_views(&call.views);
    return result;
}

PyObject *ons_call(ons_operation operation, PyObject *self, PyObject *const *args, Py_ssize_t count,
                   PyObject *names, ons_outside *outside) {
    const ons_operation_info *info = &ons_operations[operation];
    const int keywords = info->pair ? OF_PAIRS : info->one_a_row ? OF_VALUES : OF_ROWS;
    const operation_function function = {info->name, keywords, false, operation};
    return call_function(&function, self, args, count, names, outside);
}

#define FUNCTION(call, name, keywords, sums, operation)                                        \
    PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) { \
        static const operation_function function = {name, keywords, sums, operation};          \
        return call_function(&function, self, args, count, names, NULL);                       \
    }
FUNCTION(ons_finish_call, "finish", OF_FINISH, false, ONS_OPERATION_softmax)
FUNCTION(ons_sums_call, "sums", OF_SUMS, true, ONS_OPERATION_normalizer)
FUNCTION(ons_gradient_sums_call, "gradient_sums", OF_GRADIENT_SUMS, true,
         ONS_OPERATION_softmax_backward)
FUNCTION(ons_gradient_finish_call, "gradient_finish", OF_GRADIENT_FINISH, false,
         ONS_OPERATION_softmax_backward)
