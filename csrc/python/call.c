/* call.c - the call of an operation: arrays to views, views to a problem, the run, the result. */
#include "call_views.h"

#include "../api/packed.h"

static int copy_view(ons_module *module, const ons_call_views *views, void *stream,
                     ons_view *view) {
    return view->device == ONS_CPU ? ons_view_copy(view)
                                   : ons_gpu_copy_view(module, views->library, stream, view);
}

/* What is read must not change while out is written: copies what out overlaps, but for x itself and
 * for a gradient. */
static int keep_apart(ons_module *module, ons_call_views *views, void *stream) {
    const ons_view *out = &views->operand[ONS_Y];
    for (int role = 0; role < ONS_OPERANDS; role++) {
        ons_view *read = &views->operand[role];
        if (role == ONS_Y || !read->owner || !ons_views_overlap(read, out)) continue;
        bool in_place = (role == ONS_X || role == ONS_GRADIENT) && ons_views_same(read, out);
        if (!in_place && copy_view(module, views, stream, read) < 0) return -1;
    }
    return 0;
}

/* The type of the array, or the narrowest that holds both inputs. */
static ons_dtype type_of_inputs(const ons_call_views *views) {
    const ons_view *other = &views->operand[ONS_GRADIENT];
    ons_dtype x = views->operand[ONS_X].dtype, gradient = other->owner ? other->dtype : x;
    if (x == gradient) return x;
    return x == ONS_FLOAT64 || gradient == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
}

/* dtype NULL: none was given. */
static int make_result(ons_module *module, const ons_dtype *dtype, ons_call_views *views,
                       void *stream) {
    const ons_view *x = &views->operand[ONS_X];
    ons_view *y = &views->operand[ONS_Y];
    if (ons_new_result(module, x, true, views->library, dtype ? *dtype : type_of_inputs(views),
                       stream, y) < 0)
        return -1;
    return ons_check_shape("the new result", y, x);
}

/* A value a row; or so many of float64, which have a dimension of their own. as_y gets a dimension
 * for each of x's. */
static int make_values(ons_module *module, const bool *reduced, bool keepdims, int several,
                       ons_call_views *views, void *stream, ons_view *as_y) {
    const ons_view *x = &views->operand[ONS_X];
    ons_view *y = &views->operand[ONS_Y];
    ons_view shape = *x;
    shape.ndim = 0;
    for (int i = 0; i < x->ndim; i++)
        if (!reduced[i] || keepdims) shape.shape[shape.ndim++] = reduced[i] ? 1 : x->shape[i];
    if (several > 0) shape.shape[shape.ndim++] = several;
    if (ons_new_result(module, &shape, false, views->library, several > 0 ? ONS_FLOAT64 : x->dtype,
                       stream, y) < 0 ||
        ons_check_shape("the new result", y, &shape) < 0)
        return -1;
    *as_y = *y;
    as_y->dtype = x->dtype;
    as_y->ndim = x->ndim;
    for (int i = 0, own = 0; i < x->ndim; i++) {
        as_y->shape[i] = reduced[i] ? 1 : x->shape[i];
        as_y->strides[i] = reduced[i] ? 0 : y->strides[own];
        own += !reduced[i] || keepdims;
    }
    return 0;
}

/* Of an out that is looked at already. */
static int use_out(ons_module *module, PyObject *given, const ons_dtype *dtype,
                   ons_library out_library, ons_call_views *views, void *stream) {
    const ons_view *out = &views->operand[ONS_Y], *x = &views->operand[ONS_X];
    if (ons_check_shape("out", out, x) < 0) return -1;
    if (dtype && out->dtype != *dtype) {
        PyErr_Format(PyExc_ValueError,
                     "out has dtype %s, and dtype is %s: expected the same, or one of them",
                     ons_dtype_name(out->dtype), ons_dtype_name(*dtype));
        return -1;
    }
    if (ons_join("out", out, x, stream) < 0 || keep_apart(module, views, stream) < 0) return -1;
    return out_library == ONS_TORCH ? ons_torch_written(module, given) : 0;
}

/* A TypeError of one of two arrays says which one. */
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

/* problem.compute for pairs of rows of this type. Only products round otherwise in another type. */
static ons_dtype other_arithmetic(ons_dtype dtype, const ons_problem *problem) {
    const ons_operand *x = &problem->operand[ONS_X], *y = &problem->operand[ONS_Y];
    const bool wide = dtype == ONS_FLOAT64;
    const bool scales = problem->operand[ONS_SCALE].data || problem->scale_by != 1.0;
    const bool asked_wide = x->dtype == ONS_FLOAT64 || y->dtype == ONS_FLOAT64;
    if (!problem->operand[ONS_STATISTIC].data || !scales || wide == asked_wide) return ONS_FLOAT16;
    return wide ? ONS_FLOAT64 : ONS_FLOAT32;
}

/* `function` takes such keywords, one of which may be the operation, which takes a gradient where
 * the given one does. */
static PyObject *call(const char *function, int keywords, ons_operation operation, bool sums,
                      PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    ons_module *module = PyModule_GetState(self);
    PyObject *given[KEYWORDS], *axes = NULL, *result = NULL;
    ons_call_views views;
    ons_view *const operand = views.operand;
    const ons_view *const x = &operand[ONS_X];
    ons_method method;
    ons_dtype dtype, compute;
    ons_problem problem;
    bool reduced[ONS_MAX_DIMS];
    int threads = module->num_threads, keepdims = 0;
    const int arrays = ons_operations[operation].gradient ? 2 : 1;
    void *stream = NULL;

    if (ons_take_arguments(function, arrays == 1 ? "an array" : "grad and output", arrays, keywords,
                           args, count, names, given) < 0)
        return NULL;
    if (given[OPERATION] && ons_take_operation(given[OPERATION], &operation) < 0) return NULL;
    const ons_operation_info *info = &ons_operations[operation];
    if (given[OPERATION] && (info->gradient != (arrays > 1) || info->selects)) {
        PyErr_Format(PyExc_ValueError, "%s() does no %s, which takes %s", function, info->name,
                     arrays > 1 ? "no gradient" : "no pairs");
        return NULL;
    }
    const bool one_a_row = info->one_a_row || sums;
    const bool has_operator = keywords == OF_ROWS || keywords == OF_VALUES;
    const int several = !sums ? 2 * info->pair : info->gradient ? 2 : ONS_PACKED_VALUES;
    if (keywords >> PAIRS & 1 && !given[PAIRS]) {
        PyErr_Format(PyExc_TypeError, "%s() needs pairs", function);
        return NULL;
    }
    if (info->one_a_row && (given[OUT] || (given[DTYPE] && given[DTYPE] != Py_None))) {
        PyErr_Format(PyExc_TypeError, "%s() of %s takes no out and no dtype", function, info->name);
        return NULL;
    }
    if (given[KEEPDIMS] && (keepdims = PyObject_IsTrue(given[KEEPDIMS])) < 0) return NULL;
    if ((has_operator && ons_check_symbolic(module, args[0], given[NUM_THREADS]) < 0) ||
        ons_take_threads(given[NUM_THREADS], &threads) < 0)
        return NULL;
    if (given[STREAM]) {
        if (ons_take_stream(given[STREAM], &stream) < 0) return NULL;
        result = ons_call_on_stream(module, self, function, args, arrays, stream, given);
        if (result != Py_NotImplemented) return result;
        Py_CLEAR(result);
    }
    int typed = ons_take_dtype(module, given[DTYPE], &dtype);
    const int computed = ons_take_dtype(module, given[COMPUTE], &compute);
    if (typed < 0 || computed < 0 || (given[AXIS] && !(axes = ons_plain_axes(given[AXIS]))))
        return NULL;
    ons_no_call_views(&views);
    PyObject *const array = args[arrays - 1];
    if (ons_take(module, array, ONS_X, stream, &operand[ONS_X], &views.library) < 0) {
        if (arrays > 1) say_which("output");
        goto done;
    }
    if (views.library == ONS_TORCH && ons_check_tracing(module) < 0) goto done;
    if (ons_check_device(x, given) < 0) goto done;
    if (has_operator && views.library == ONS_TORCH) {
        if (!given[STREAM] && ons_check_modes(module) < 0) goto done;
        if (arrays == 1 && !given[OUT] && !typed && ons_check_autocast(module, x) < 0) goto done;
    }
    if (ons_take_method(given[METHOD], x->device, operation, &method) < 0) goto done;
    if (x->device == ONS_CUDA && !given[STREAM]) stream = x->stream;
    if (ons_take_axes(module, axes, x->ndim, reduced) < 0) goto done;
    if (ons_take_where_and_scale(module, given, stream, &views, &problem.scale_by) < 0) goto done;
    ons_library library;
    if (given[PAIRS] && ons_take(module, given[PAIRS], ONS_STATISTIC, stream,
                                 &operand[ONS_STATISTIC], &library) < 0)
        goto done;
    if (arrays > 1 &&
        ons_take(module, args[0], ONS_X, stream, &operand[ONS_GRADIENT], &library) < 0) {
        say_which("grad");
        goto done;
    }
    if (arrays > 1 && (ons_join("grad", &operand[ONS_GRADIENT], x, stream) < 0 ||
                       ons_check_shape("grad", &operand[ONS_GRADIENT], x) < 0))
        goto done;
    if (ons_join(arrays > 1 ? "output" : "array", x, x, stream) < 0 ||
        ons_join("where", &operand[ONS_WHERE], x, stream) < 0 ||
        ons_join("scale", &operand[ONS_SCALE], x, stream) < 0 ||
        ons_join("pairs", &operand[ONS_STATISTIC], x, stream) < 0)
        goto done;
    ons_library out_library = ONS_NUMPY;
    if (given[OUT] && ons_take_out(module, given[OUT], stream, &operand[ONS_Y], &out_library) < 0)
        goto done;
    if (ons_check_all_unchanged(module, given, &views) < 0) goto done;
    const ons_dtype *wanted = typed ? &dtype : NULL;
    ons_view values;
    if ((one_a_row    ? make_values(module, reduced, keepdims, several, &views, stream, &values)
         : given[OUT] ? use_out(module, given[OUT], wanted, out_library, &views, stream)
                      : make_result(module, wanted, &views, stream)) < 0)
        goto done;
    if (ons_make_problem(operation, operand, one_a_row ? &values : &operand[ONS_Y], reduced,
                         &problem) < 0)
        goto done;
    problem.sums = sums;
    if (computed) problem.compute = other_arithmetic(compute, &problem);
    problem.stream = stream;
    if (ons_run_call(module, &problem, method, threads, views.library) < 0 ||
        ons_leave(module, &views, given, stream) < 0 || ons_say_dtype(given, x) < 0)
        goto done;
    if (given[OUT]) {
        result = given[OUT];
        Py_INCREF(result);
    } else {
        bool number = one_a_row && views.library == ONS_NUMPY && x->device == ONS_CPU &&
                      operand[ONS_Y].ndim == 0;
        result = ons_hand_over(module, number ? ONS_NUMBER : views.library, array, &operand[ONS_Y]);
    }
done:
    Py_XDECREF(axes);
    ons_release_call_views(&views);
    return result;
}

PyObject *ons_call(ons_operation operation, PyObject *self, PyObject *const *args, Py_ssize_t count,
                   PyObject *names) {
    const ons_operation_info *info = &ons_operations[operation];
    int keywords = info->pair ? OF_PAIRS : info->one_a_row ? OF_VALUES : OF_ROWS;
    return call(info->name, keywords, operation, false, self, args, count, names);
}

PyObject *ons_finish_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                          PyObject *names) {
    return call("finish", OF_FINISH, ONS_OPERATION_softmax, false, self, args, count, names);
}

PyObject *ons_sums_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return call("sums", OF_SUMS, ONS_OPERATION_normalizer, true, self, args, count, names);
}

PyObject *ons_gradient_sums_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                 PyObject *names) {
    const ons_operation operation = ONS_OPERATION_softmax_backward;
    return call("gradient_sums", OF_GRADIENT_SUMS, operation, true, self, args, count, names);
}

PyObject *ons_gradient_finish_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names) {
    const ons_operation operation = ONS_OPERATION_softmax_backward;
    return call("gradient_finish", OF_GRADIENT_FINISH, operation, false, self, args, count, names);
}
