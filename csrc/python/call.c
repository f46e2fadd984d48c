/* call.c - the call of an operation: arrays to views, views to a problem, the run, the result. */
#include "arguments.h"

static int check_shape(const char *name, const ons_view *y, const ons_view *x) {
    bool same = y->ndim == x->ndim;
    for (int i = 0; same && i < x->ndim; i++) same = y->shape[i] == x->shape[i];
    if (same) return 0;
    PyObject *given = ons_shape_text(y), *wanted = ons_shape_text(x);
    if (given && wanted)
        PyErr_Format(PyExc_ValueError, "%s has shape %U: expected %U", name, given, wanted);
    Py_XDECREF(given);
    Py_XDECREF(wanted);
    return -1;
}

/* The views of a call; those but x may be of nothing. */
typedef struct {
    ons_view x, y, where, scale, pairs, gradient;
    ons_library library, out_library;
} call_views;

static void release(call_views *views) {
    ons_release_view(&views->x);
    ons_release_view(&views->y);
    ons_release_view(&views->where);
    ons_release_view(&views->scale);
    ons_release_view(&views->pairs);
    ons_release_view(&views->gradient);
}

/* Whether no Python code runs where an argument is converted, and no finalizer's: of NumPy's and
 * torch's own arrays, and numbers. */
static bool is_inert(const ons_module *module, PyObject *object) {
    return !object || PyFloat_CheckExact(object) || PyLong_CheckExact(object) ||
           PyArray_CheckExact(object) || ons_is_tensor(module, object);
}

/* All arrays are looked at by now; they must be what they were when they were. */
static int check_unchanged(ons_module *module, PyObject *const given[KEYWORDS],
                           const call_views *views) {
    if (is_inert(module, given[WHERE]) && is_inert(module, given[SCALE]) &&
        is_inert(module, given[PAIRS]) && is_inert(module, given[OUT]))
        return 0;
    if (ons_check_unchanged(module, "the array", &views->x) < 0 ||
        ons_check_unchanged(module, "where", &views->where) < 0 ||
        ons_check_unchanged(module, "scale", &views->scale) < 0 ||
        ons_check_unchanged(module, "pairs", &views->pairs) < 0 ||
        ons_check_unchanged(module, "grad", &views->gradient) < 0)
        return -1;
    return ons_check_unchanged(module, "out", &views->y);
}

static int copy_view(ons_module *module, const call_views *views, void *stream, ons_view *view) {
    return view->device == ONS_CPU ? ons_view_copy(view)
                                   : ons_gpu_copy_view(module, views->library, stream, view);
}

/* What is read must not change while out is written: copies what out overlaps, but for x itself and
 * for a gradient. */
static int keep_apart(ons_module *module, call_views *views, void *stream) {
    ons_view *const read[] = {&views->x, &views->gradient, &views->where, &views->scale,
                              &views->pairs};
    for (int i = 0; i < 5; i++)
        if (read[i]->owner && ons_views_overlap(read[i], &views->y) &&
            !(i < 2 && ons_views_same(read[i], &views->y)) &&
            copy_view(module, views, stream, read[i]) < 0)
            return -1;
    return 0;
}

int ons_join(const char *name, const ons_view *view, const ons_view *x, void *stream) {
    if (!view->owner) return 0;
    if (ons_check_place(name, view, x) < 0) return -1;
    if (view->device == ONS_CPU) return 0;
    if (ons_check_alignment(name, view) < 0) return -1;
    return ons_order(view->gpu, view->stream, stream);
}

static int leave(const call_views *views, void *stream) {
    const ons_view *const all[] = {&views->x,     &views->y,     &views->where,
                                   &views->scale, &views->pairs, &views->gradient};
    for (int i = 0; i < 6; i++)
        if (all[i]->owner && all[i]->device == ONS_CUDA &&
            ons_order(all[i]->gpu, stream, all[i]->stream) < 0)
            return -1;
    return 0;
}

static int run(ons_module *module, const ons_problem *problem, ons_method method, int threads,
               ons_library library) {
    ons_plan plan;
    void *workspace = NULL;
    PyObject *scratch = NULL;
    ons_machine machine = ons_this_machine(threads);
    ons_status status = ons_make_plan(problem, method, &machine, &plan);
    if (status == ONS_OK && problem->device == ONS_CUDA && plan.workspace_bytes > 0) {
        scratch = ons_gpu_memory(module, library, problem->gpu, problem->stream,
                                 plan.workspace_bytes, &workspace);
        if (!scratch) return -1;
    }
    if (status == ONS_OK) {
        /* a launch waits where the GPU's queue is full */
        if (problem->device == ONS_CUDA || plan.rows * plan.N >= ONS_GIL_ELEMENTS) {
            Py_BEGIN_ALLOW_THREADS status = ons_run(problem, &plan, workspace);
            Py_END_ALLOW_THREADS
        } else {
            status = ons_run(problem, &plan, NULL);
        }
    }
    Py_XDECREF(scratch); /* free for what comes after on the stream */
    if (status == ONS_OK) return 0;
    ons_set_error(status, method, problem, &machine, &plan);
    return -1;
}

PyObject *ons_call_on_stream(ons_module *module, PyObject *self, const char *function,
                             PyObject *const *args, int arrays, void *stream,
                             PyObject *const given[KEYWORDS]) {
    if (PyArray_Check(args[0])) Py_RETURN_NOTIMPLEMENTED;
    PyObject *keywords = ons_keywords_but_stream(given), *all = PyTuple_New(arrays);
    for (int i = 0; all && i < arrays; i++) PyTuple_SET_ITEM(all, i, Py_NewRef(args[i]));
    if (!all) Py_CLEAR(keywords);
    PyObject *call = keywords ? PyObject_GetAttrString(self, function) : NULL;
    PyObject *handle = call ? PyLong_FromVoidPtr(stream) : NULL, *result = NULL;
    if (handle)
        result = ons_call_library(module, "on_stream", "(OOOO)", call, all, handle, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(all);
    Py_XDECREF(call);
    Py_XDECREF(handle);
    return result;
}

int ons_check_device(const ons_view *x, PyObject *const given[KEYWORDS]) {
    if (x->device == ONS_CPU && given[STREAM]) {
        PyErr_SetString(PyExc_ValueError,
                        "stream is given, but the array is on the CPU: expected None");
        return -1;
    }
    if (x->device == ONS_CUDA && given[NUM_THREADS]) {
        PyErr_Format(PyExc_ValueError,
                     "num_threads is given, but the array is on cuda:%d: expected None", x->gpu);
        return -1;
    }
    return 0;
}

/* The type of the array, or the narrowest that holds both inputs. */
static ons_dtype type_of_inputs(const call_views *views) {
    ons_dtype x = views->x.dtype, gradient = views->gradient.owner ? views->gradient.dtype : x;
    if (x == gradient) return x;
    return x == ONS_FLOAT64 || gradient == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
}

/* dtype NULL: none was given. */
static int make_result(ons_module *module, const ons_dtype *dtype, call_views *views,
                       void *stream) {
    if (ons_new_result(module, &views->x, true, views->library,
                       dtype ? *dtype : type_of_inputs(views), stream, &views->y) < 0)
        return -1;
    return check_shape("the new result", &views->y, &views->x);
}

/* A value a row, or a pair, which has a dimension of its own; as_y gets a dimension for each of
 * x's. */
static int make_values(ons_module *module, const bool *reduced, bool keepdims, bool pair,
                       call_views *views, void *stream, ons_view *as_y) {
    const ons_view *x = &views->x;
    ons_view shape = *x;
    shape.ndim = 0;
    for (int i = 0; i < x->ndim; i++)
        if (!reduced[i] || keepdims) shape.shape[shape.ndim++] = reduced[i] ? 1 : x->shape[i];
    if (pair) shape.shape[shape.ndim++] = 2;
    if (ons_new_result(module, &shape, false, views->library, pair ? ONS_FLOAT64 : x->dtype, stream,
                       &views->y) < 0 ||
        check_shape("the new result", &views->y, &shape) < 0)
        return -1;
    *as_y = views->y;
    as_y->dtype = x->dtype;
    as_y->ndim = x->ndim;
    for (int i = 0, own = 0; i < x->ndim; i++) {
        as_y->shape[i] = reduced[i] ? 1 : x->shape[i];
        as_y->strides[i] = reduced[i] ? 0 : views->y.strides[own];
        own += !reduced[i] || keepdims;
    }
    return 0;
}

/* Of an out that is looked at already. */
static int use_out(ons_module *module, PyObject *given, const ons_dtype *dtype, call_views *views,
                   void *stream) {
    const ons_view *out = &views->y;
    if (check_shape("out", out, &views->x) < 0) return -1;
    if (dtype && out->dtype != *dtype) {
        PyErr_Format(PyExc_ValueError,
                     "out has dtype %s, and dtype is %s: expected the same, or one of them",
                     ons_dtype_name(out->dtype), ons_dtype_name(*dtype));
        return -1;
    }
    if (ons_join("out", out, &views->x, stream) < 0 || keep_apart(module, views, stream) < 0)
        return -1;
    return views->out_library == ONS_TORCH ? ons_torch_written(module, given) : 0;
}

/* `function` takes such keywords, one of which may be the operation. */
static PyObject *call(const char *function, int keywords, ons_operation operation, PyObject *self,
                      PyObject *const *args, Py_ssize_t count, PyObject *names) {
    ons_module *module = PyModule_GetState(self);
    PyObject *given[KEYWORDS], *axes = NULL, *result = NULL;
    call_views views;
    const ons_view *x = &views.x;
    ons_method method;
    ons_dtype dtype;
    ons_problem problem;
    bool reduced[ONS_MAX_DIMS];
    int threads = module->num_threads, keepdims = 0;
    const int arrays = ons_operations[operation].gradient ? 2 : 1;
    void *stream = NULL;

    if (ons_take_arguments(function, arrays, keywords, args, count, names, given) < 0) return NULL;
    if (given[OPERATION] && ons_take_operation(given[OPERATION], &operation) < 0) return NULL;
    const ons_operation_info *info = &ons_operations[operation];
    if (given[OPERATION] && info->gradient) {
        PyErr_Format(PyExc_ValueError, "%s() does no %s, which takes no pairs", function,
                     info->name);
        return NULL;
    }
    if (keywords >> PAIRS & 1 && !given[PAIRS]) {
        PyErr_Format(PyExc_TypeError, "%s() needs pairs", function);
        return NULL;
    }
    if (info->one_a_row && (given[OUT] || (given[DTYPE] && given[DTYPE] != Py_None))) {
        PyErr_Format(PyExc_TypeError, "%s() of %s takes no out and no dtype", function, info->name);
        return NULL;
    }
    if (given[KEEPDIMS] && (keepdims = PyObject_IsTrue(given[KEEPDIMS])) < 0) return NULL;
    if (ons_take_threads(given[NUM_THREADS], &threads) < 0) return NULL;
    if (given[STREAM]) {
        if (ons_take_stream(given[STREAM], &stream) < 0) return NULL;
        result = ons_call_on_stream(module, self, function, args, arrays, stream, given);
        if (result != Py_NotImplemented) return result;
        Py_CLEAR(result);
    }
    int typed = ons_take_dtype(module, given[DTYPE], &dtype);
    if (typed < 0 || (given[AXIS] && !(axes = ons_plain_axes(given[AXIS])))) return NULL;
    ons_no_view(&views.x);
    ons_no_view(&views.y);
    ons_no_view(&views.where);
    ons_no_view(&views.scale);
    ons_no_view(&views.pairs);
    ons_no_view(&views.gradient);
    problem.scale_by = 1.0;
    PyObject *const array = args[arrays - 1];
    if (ons_take(module, array, ONS_X, stream, &views.x, &views.library) < 0) goto done;
    if (ons_check_device(x, given) < 0) goto done;
    if (ons_take_method(given[METHOD], x->device, &method) < 0) goto done;
    if (x->device == ONS_CUDA && !given[STREAM]) stream = x->stream;
    if (ons_take_axes(module, axes, x->ndim, reduced) < 0) goto done;
    if (given[WHERE] && ons_take_mask(module, given[WHERE], x, stream, &views.where) < 0) goto done;
    if (given[SCALE] &&
        ons_take_scale(module, given[SCALE], x, stream, &views.scale, &problem.scale_by) < 0)
        goto done;
    ons_library library;
    if (given[PAIRS] &&
        ons_take(module, given[PAIRS], ONS_PAIRS, stream, &views.pairs, &library) < 0)
        goto done;
    if (arrays > 1 && (ons_take(module, args[0], ONS_X, stream, &views.gradient, &library) < 0 ||
                       ons_join("grad", &views.gradient, x, stream) < 0 ||
                       check_shape("grad", &views.gradient, x) < 0))
        goto done;
    if (ons_join(arrays > 1 ? "output" : "array", x, x, stream) < 0 ||
        ons_join("where", &views.where, x, stream) < 0 ||
        ons_join("scale", &views.scale, x, stream) < 0 ||
        ons_join("pairs", &views.pairs, x, stream) < 0)
        goto done;
    if (given[OUT] && ons_take_out(module, given[OUT], stream, &views.y, &views.out_library) < 0)
        goto done;
    if (check_unchanged(module, given, &views) < 0) goto done;
    const ons_dtype *wanted = typed ? &dtype : NULL;
    ons_view values;
    if ((info->one_a_row
             ? make_values(module, reduced, keepdims, info->pair, &views, stream, &values)
         : given[OUT] ? use_out(module, given[OUT], wanted, &views, stream)
                      : make_result(module, wanted, &views, stream)) < 0)
        goto done;
    const ons_view *y = info->one_a_row ? &values : &views.y;
    if (ons_make_problem(operation, x, y, &views.where, &views.scale, &views.pairs, &views.gradient,
                         reduced, &problem) < 0)
        goto done;
    problem.stream = stream;
    if (run(module, &problem, method, threads, views.library) < 0) goto done;
    if (x->device == ONS_CUDA) {
        const ons_view *const from[] = {x, &views.where, &views.scale, &views.pairs,
                                        &views.gradient};
        if (leave(&views, stream) < 0) goto done;
        PyObject *stream_owner = given[STREAM] ? given[STREAM] : x->stream_owner;
        if (ons_device_array_keep(module, views.y.owner, stream_owner, from, 5) < 0) goto done;
    }
    if (given[DTYPES]) {
        PyObject *name = PyUnicode_FromString(ons_dtype_name(x->dtype));
        int status = name ? PyList_Append(given[DTYPES], name) : -1;
        Py_XDECREF(name);
        if (status < 0) goto done;
    }
    if (given[OUT]) {
        result = given[OUT];
        Py_INCREF(result);
    } else {
        bool number = info->one_a_row && views.library == ONS_NUMPY && x->device == ONS_CPU &&
                      views.y.ndim == 0;
        result = ons_hand_over(module, number ? ONS_NUMBER : views.library, array, &views.y);
    }
done:
    Py_XDECREF(axes);
    release(&views);
    return result;
}

PyObject *ons_call(ons_operation operation, PyObject *self, PyObject *const *args, Py_ssize_t count,
                   PyObject *names) {
    const ons_operation_info *info = &ons_operations[operation];
    int keywords = info->pair ? OF_PAIRS : info->one_a_row ? OF_VALUES : OF_ROWS;
    return call(info->name, keywords, operation, self, args, count, names);
}

PyObject *ons_finish_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                          PyObject *names) {
    return call("finish", OF_FINISH, ONS_OPERATION_softmax, self, args, count, names);
}
