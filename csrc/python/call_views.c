/* call_views.c - the work on arrays that the calls of all operations share. */
#include "call_views.h"

void ons_no_call_views(ons_call_views *views) {
    for (int i = 0; i < ONS_OPERANDS; i++) ons_no_view(&views->operand[i]);
}

void ons_release_call_views(ons_call_views *views) {
    for (int i = 0; i < ONS_OPERANDS; i++) ons_release_view(&views->operand[i]);
}

int ons_check_shape(const char *name, const ons_view *y, const ons_view *x) {
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

/* Whether converting an argument runs no Python code, not even a finalizer: for NumPy's and torch's
 * own arrays, and numbers. */
static bool is_inert(const ons_module *module, PyObject *object) {
    return !object || PyFloat_CheckExact(object) || PyLong_CheckExact(object) ||
           PyArray_CheckExact(object) || ons_is_tensor(module, object);
}

int ons_check_all_unchanged(ons_module *module, PyObject *const given[KEYWORDS],
                            const ons_call_views *views) {
    static const char *const names[ONS_OPERANDS] = {
        [ONS_X] = "the array",    [ONS_Y] = "out",           [ONS_WHERE] = "where",
        [ONS_SCALE] = "scale",    [ONS_STATISTIC] = "pairs", [ONS_GRADIENT] = "grad",
        [ONS_INDICES] = "indices"};
    if (is_inert(module, given[WHERE]) && is_inert(module, given[SCALE]) &&
        is_inert(module, given[PAIRS]) && is_inert(module, given[OUT]))
        return 0;
    for (int i = 0; i < ONS_OPERANDS; i++)
        if (ons_check_unchanged(module, names[i], &views->operand[i]) < 0) return -1;
    return 0;
}

int ons_take_where_and_scale(const ons_caller *caller, PyObject *const given[KEYWORDS],
                             ons_call_views *views, double *scale_by) {
    const ons_view *x = &views->operand[ONS_X];
    *scale_by = 1.0;
    if (given[WHERE] && ons_take_mask(caller, given[WHERE], x, &views->operand[ONS_WHERE]) < 0)
        return -1;
    if (!given[SCALE]) return 0;
    return ons_take_scale(caller, given[SCALE], x, &views->operand[ONS_SCALE], scale_by);
}

int ons_join(const char *name, const ons_view *view, const ons_view *x, void *stream) {
    if (!view->owner) return 0;
    if (ons_check_same_device(name, view, x) < 0) return -1;
    if (view->device == ONS_CPU) return 0;
    if (ons_check_alignment(name, view) < 0) return -1;
    return ons_order(view->gpu, view->stream, stream);
}

int ons_leave(ons_module *module, const ons_call_views *views, PyObject *const given[KEYWORDS],
              void *stream) {
    const ons_view *x = &views->operand[ONS_X], *from[ONS_OPERANDS];
    if (x->device == ONS_CPU) return 0;
    for (int i = 0; i < ONS_OPERANDS; i++) {
        from[i] = &views->operand[i];
        if (from[i]->owner && from[i]->device == ONS_CUDA &&
            ons_order(from[i]->gpu, stream, from[i]->stream) < 0)
            return -1;
    }
    PyObject *stream_owner = given[STREAM] ? given[STREAM] : x->stream_owner;
    /* with indices the pairs are a result too; otherwise they are given */
    static const ons_role results[] = {ONS_Y, ONS_INDICES, ONS_STATISTIC};
    int count = views->operand[ONS_INDICES].owner ? 3 : 1;
    for (int i = 0; i < count; i++) {
        PyObject *result = views->operand[results[i]].owner;
        if (result && ons_device_array_keep(module, result, stream_owner, from, ONS_OPERANDS) < 0)
            return -1;
    }
    return 0;
}

bool ons_has_other_products(const ons_problem *problem, ons_dtype dtype) {
    const ons_operand *operand = problem->operand;
    const bool scales = operand[ONS_SCALE].data || problem->scale_by != 1.0;
    const bool wide = operand[ONS_X].dtype == ONS_FLOAT64 || operand[ONS_Y].dtype == ONS_FLOAT64;
    return scales && wide != (dtype == ONS_FLOAT64);
}

int ons_say_dtype(PyObject *const given[KEYWORDS], const ons_view *x) {
    if (!given[DTYPES] || given[DTYPES] == Py_None) return 0;
    PyObject *name = PyUnicode_FromString(ons_dtype_name(x->dtype));
    int status = name ? PyList_Append(given[DTYPES], name) : -1;
    Py_XDECREF(name);
    return status;
}

static int run_call(const ons_caller *caller, const ons_problem *problem, ons_method method,
                    int threads) {
    ons_plan plan;
    void *workspace = NULL;
    PyObject *scratch = NULL;
    ons_machine machine = ons_this_machine(threads);
    ons_status status = ons_make_plan(problem, method, &machine, &plan);
    if (status == ONS_OK && problem->device == ONS_CUDA && plan.workspace_bytes > 0) {
        scratch = ons_gpu_memory(caller->module, caller->library, problem->gpu, problem->stream,
                                 plan.workspace_bytes, &workspace);
        if (!scratch) return -1;
    }
    if (status == ONS_OK) {
        /* a launch waits if the GPU's queue is full */
        if (problem->device == ONS_CUDA || plan.rows * plan.N >= ONS_GIL_ELEMENTS) {
            Py_BEGIN_ALLOW_THREADS status = ons_run(problem, &plan, workspace);
            Py_END_ALLOW_THREADS
        } else {
            status = ons_run(problem, &plan, NULL);
        }
    }
    Py_XDECREF(scratch); /* free for later work on the stream */
    if (status == ONS_OK) return 0;
    ons_set_error(status, method, problem, &machine, &plan);
    return -1;
}

int ons_run_call(const ons_caller *caller, const ons_problem *problem, ons_method method,
                 int threads) {
    PyObject *row;
    if (ons_begin_row(caller, &row) < 0) return -1;
    const int status = run_call(caller, problem, method, threads);
    ons_end_row(row);
    return status;
}

PyObject *ons_call_on_stream(const ons_caller *caller, PyObject *self, const ons_signature *takes,
                             PyObject *const *args, PyObject *const given[KEYWORDS]) {
    if (PyArray_Check(args[0])) Py_RETURN_NOTIMPLEMENTED;
    PyObject *keywords = ons_keywords_but_stream(given), *all = PyTuple_New(takes->count);
    for (int i = 0; all && i < takes->count; i++) PyTuple_SET_ITEM(all, i, Py_NewRef(args[i]));
    if (!all) Py_CLEAR(keywords);
    PyObject *call = keywords ? PyObject_GetAttrString(self, takes->function) : NULL;
    PyObject *handle = call ? PyLong_FromVoidPtr(caller->stream) : NULL, *result = NULL;
    if (handle)
        result =
            ons_call_library(caller->module, "on_stream", "(OOOO)", call, all, handle, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(all);
    Py_XDECREF(call);
    Py_XDECREF(handle);
    return result;
}

int ons_check_symbolic(const ons_caller *caller, PyObject *array, PyObject *number) {
    if (!number || PyLong_Check(number)) return 0;
    PyObject *found = ons_call_library(caller->module, "find_symbolic", "(OO)", array, number);
    if (!found) return -1;
    int status = found == Py_None ? 0 : ons_leave_by_operator(caller, found);
    Py_DECREF(found);
    return status;
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
