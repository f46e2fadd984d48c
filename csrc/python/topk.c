/* topk.c - the call of an operation that selects: softmax_topk returns a TopK of two arrays, or a
 * TopKWithNormalizer. */
#include "call_views.h"

int ons_index_type(const ons_caller *caller, int64_t N, ons_dtype *dtype) {
    *dtype = ONS_INT64;
    if (caller->library != ONS_JAX) return 0;
    PyObject *wide = ons_call_library(caller->module, "jax_has_64_bits", "()");
    if (!wide) return -1;
    if (wide != Py_True) *dtype = ONS_INT32;
    Py_DECREF(wide);
    if (*dtype == ONS_INT64 || N <= INT32_MAX) return 0;
    PyErr_Format(PyExc_TypeError,
                 "rows of %lld elements need indices of int64, which JAX has with jax_enable_x64",
                 (long long)N);
    return -1;
}

/* New arrays of x's shape with k elements along the axis, and of the rows' pairs if asked for. */
static int make_results(const ons_caller *caller, const ons_selection *selection, ons_dtype dtype,
                        bool pairs, ons_view operand[ONS_OPERANDS]) {
    const int axis = selection->axis;
    ons_view shape = operand[ONS_X];
    const bool in_order = caller->library == ONS_NUMPY;
    ons_dtype indices;
    int64_t N = shape.ndim > 0 ? shape.shape[axis] : 1;
    if (ons_index_type(caller, N, &indices) < 0) return -1;
    if (shape.ndim > 0) shape.shape[axis] = selection->k;
    if (ons_new_result(caller, &shape, in_order, dtype, &operand[ONS_Y]) < 0 ||
        ons_check_shape("the new values", &operand[ONS_Y], &shape) < 0 ||
        ons_new_result(caller, &shape, in_order, indices, &operand[ONS_INDICES]) < 0 ||
        ons_check_shape("the new indices", &operand[ONS_INDICES], &shape) < 0)
        return -1;
    if (!pairs) return 0;
    int rows = 0;
    for (int i = 0; i < shape.ndim; i++)
        if (i != axis) shape.shape[rows++] = shape.shape[i];
    shape.shape[rows++] = 2;
    shape.ndim = rows;
    return ons_new_result(caller, &shape, false, ONS_FLOAT64, &operand[ONS_STATISTIC]);
}

/* The named tuple of the results in the caller's types. */
static PyObject *hand_over(const ons_caller *caller, const ons_call_views *views, PyObject *array) {
    static const ons_role results[] = {ONS_Y, ONS_INDICES};
    ons_module *module = caller->module;
    PyObject *all = PyType_GenericAlloc((PyTypeObject *)module->topk, 2); /* its __new__ does the
                                                                           * same */
    for (int i = 0; all && i < 2; i++) {
        PyObject *one = ons_hand_over(module, caller->library, array, &views->operand[results[i]]);
        if (one)
            PyTuple_SET_ITEM(all, i, one);
        else
            Py_CLEAR(all);
    }
    return all;
}

/* The same with the rows' Normalizer. Python makes it from the arguments of the call. It also uses
 * the pairs if they come from the rows' own products. */
static PyObject *with_normalizer(const ons_caller *caller, const ons_call_views *views,
                                 const ons_problem *problem, PyObject *array,
                                 PyObject *const given[KEYWORDS], PyObject *found) {
    PyObject *pairs =
        ons_has_other_products(problem, views->operand[ONS_X].dtype)
            ? Py_NewRef(Py_None)
            : ons_hand_over(caller->module, caller->library, array, &views->operand[ONS_STATISTIC]);
    PyObject *keywords = ons_keywords_but_stream(given), *all = NULL;
    PyObject *stream = given[STREAM] ? given[STREAM] : Py_None;
    PyObject *made_by = ons_attribute_of("onsoftmax._normalizer", "with_normalizer");
    if (pairs && keywords && made_by)
        all = PyObject_CallFunction(made_by, "OOOsOO", found, array, pairs,
                                    ons_dtype_name(views->operand[ONS_X].dtype), stream, keywords);
    Py_XDECREF(made_by);
    Py_XDECREF(pairs);
    Py_XDECREF(keywords);
    Py_DECREF(found);
    return all;
}

/* A flag of the call, or its default. */
static int take_flag(PyObject *object, bool otherwise) {
    return object ? PyObject_IsTrue(object) : otherwise;
}

PyObject *ons_topk_call(ons_operation operation, PyObject *self, PyObject *const *args,
                        Py_ssize_t count, PyObject *names, ons_outside *outside) {
    ons_module *module = PyModule_GetState(self);
    ons_caller caller = {.module = module, .outside = outside};
    const ons_signature takes = {ons_operations[operation].name, "an array, k", 1, OF_TOPK};
    PyObject *given[KEYWORDS], *axes = NULL, *plain = NULL, *result = NULL;
    ons_call_views views;
    const ons_view *const x = &views.operand[ONS_X];
    ons_method method;
    ons_dtype dtype;
    ons_problem problem;
    bool reduced[ONS_MAX_DIMS];
    int threads = module->num_threads;
    ons_selection selection;

    if (ons_take_arguments(&takes, args, count, names, given) < 0) return NULL;
    if (!given[K]) {
        PyErr_Format(
            PyExc_TypeError,
            "%s() needs k as its second argument: the number of elements to return per row",
            takes.function);
        return NULL;
    }
    int log = take_flag(given[LOG], false), sorted = take_flag(given[SORTED], true),
        pairs = take_flag(given[RETURN_NORMALIZER], false);
    if (log < 0 || sorted < 0 || pairs < 0) return NULL;
    if (ons_check_symbolic(&caller, args[0], given[NUM_THREADS]) < 0 ||
        ons_check_symbolic(&caller, args[0], given[K]) < 0 ||
        ons_take_threads(given[NUM_THREADS], &threads) < 0)
        return NULL;
    if (given[STREAM]) {
        if (ons_take_stream(given[STREAM], &caller.stream) < 0) return NULL;
        result = ons_call_on_stream(&caller, self, &takes, args, given);
        if (result != Py_NotImplemented) return result;
        Py_CLEAR(result);
    }
    int typed = ons_take_dtype(module, given[DTYPE], &dtype);
    if (typed < 0 || !(plain = ons_plain_k(given[K]))) return NULL;
    ons_no_call_views(&views);
    if (given[AXIS] && !(axes = ons_plain_axes(given[AXIS]))) goto done;
    if (ons_take(&caller, args[0], ONS_X, &views.operand[ONS_X], &caller.library) < 0 ||
        ons_check_device(x, given) < 0 ||
        ons_take_method(given[METHOD], x->device, operation, &method) < 0)
        goto done;
    if (caller.library == ONS_TORCH && ons_check_tracing(&caller) < 0) goto done;
    if (caller.library == ONS_TORCH && !given[STREAM] && !pairs && ons_check_modes(&caller) < 0)
        goto done;
    if (x->device == ONS_CUDA && !given[STREAM]) caller.stream = x->stream;
    if (ons_take_axes(module, axes, x->ndim, reduced) < 0 ||
        ons_take_selection(plain, axes, x, reduced, &selection) < 0 ||
        ons_take_where_and_scale(&caller, given, &views, &problem.scale_by) < 0 ||
        ons_join("array", x, x, caller.stream) < 0 ||
        ons_join("where", &views.operand[ONS_WHERE], x, caller.stream) < 0 ||
        ons_join("scale", &views.operand[ONS_SCALE], x, caller.stream) < 0 ||
        ons_check_all_unchanged(module, given, &views) < 0 ||
        make_results(&caller, &selection, typed ? dtype : x->dtype, pairs, views.operand) < 0 ||
        ons_make_problem(operation, views.operand, &views.operand[ONS_Y], reduced, &problem) < 0)
        goto done;
    problem.stream = caller.stream;
    problem.k = selection.k;
    problem.log = log;
    problem.sorted = sorted;
    if (ons_run_call(&caller, &problem, method, threads) == 0 &&
        ons_leave(module, &views, given, caller.stream) == 0)
        result = hand_over(&caller, &views, args[0]);
    if (result && pairs)
        result = with_normalizer(&caller, &views, &problem, args[0], given, result);
done:
    Py_DECREF(plain);
    Py_XDECREF(axes);
    ons_release_call_views(&views);
    return result;
}
