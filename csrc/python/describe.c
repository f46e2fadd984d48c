/* describe.c - plan() and methods() as dicts; onsoftmax/_describe.py makes objects of them. */
#include "arguments.h"

static const char *const keeps_names[] = {"nothing", "tile", "row"};

/* A view of a C-ordered array of that shape which nobody will read. */
static int view_of_shape(PyObject *shape, ons_dtype dtype, ons_view *view) {
    view->owner = NULL;
    view->data = (char *)view;
    view->dtype = dtype;
    view->ndim = (int)PyTuple_GET_SIZE(shape);
    int64_t stride = ons_dtype_size(dtype);
    if (PyTuple_GET_SIZE(shape) > ONS_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "the shape has %zd dimensions: at most %d are supported",
                     PyTuple_GET_SIZE(shape), ONS_MAX_DIMS);
        return -1;
    }
    for (int i = view->ndim - 1; i >= 0; i--) {
        PyObject *item = PyTuple_GET_ITEM(shape, i);
        view->shape[i] = PyNumber_AsSsize_t(item, PyExc_OverflowError);
        if (view->shape[i] == -1 && PyErr_Occurred()) return -1;
        if (view->shape[i] < 0) {
            PyErr_Format(PyExc_ValueError, "the shape is %R: expected no negative length", shape);
            return -1;
        }
        view->strides[i] = stride;
        if (__builtin_mul_overflow(stride, view->shape[i] ? view->shape[i] : 1, &stride)) {
            PyErr_Format(PyExc_ValueError,
                         "the shape is %R: more elements than an address can reach", shape);
            return -1;
        }
    }
    return 0;
}

PyObject *ons_plan_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    ons_module *module = PyModule_GetState(self);
    PyObject *given[KEYWORDS], *result = NULL;
    ons_view x, y, absent;
    ons_library library;
    ons_method method;
    ons_problem problem;
    ons_plan made;
    bool reduced[ONS_MAX_DIMS];
    int threads = module->num_threads;

    x.owner = absent.owner = NULL;
    problem.scale_by = 1.0;
    if (ons_take_arguments("plan", args, count, names, given) < 0) return NULL;
    if (ons_take_method(given[METHOD], &method) < 0 ||
        ons_take_threads(given[NUM_THREADS], &threads) < 0)
        return NULL;
    if (PyTuple_Check(args[0])) {
        ons_dtype dtype = ONS_FLOAT32;
        if (given[DTYPE] && ons_take_dtype(module, given[DTYPE], &dtype) < 0) return NULL;
        if (view_of_shape(args[0], dtype, &x) < 0) return NULL;
        y = x;
    } else {
        if (ons_take(module, args[0], &x, &library) < 0) goto done;
        y = x;
        if (given[DTYPE] && ons_take_dtype(module, given[DTYPE], &y.dtype) < 0) goto done;
        for (int i = 0; i < y.ndim; i++)
            y.strides[i] = y.strides[i] / ons_dtype_size(x.dtype) * ons_dtype_size(y.dtype);
    }
    if (ons_take_axes(module, given[AXIS], x.ndim, reduced) < 0) goto done;
    if (ons_make_problem(&x, &y, &absent, &absent, reduced, &problem) < 0) goto done;
    ons_status status = ons_make_plan(&problem, method, threads, &made);
    if (status != ONS_OK) {
        ons_set_error(status, method, &made);
        goto done;
    }
    result = Py_BuildValue(
        "{s:s,s:s,s:s,s:s,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:i}", "method", ons_method_name(made.method),
        "reason", made.reason, "form", made.form == ONS_ROW_FORM ? "row" : "column", "compute",
        ons_dtype_name(made.compute), "rows", (long long)made.rows, "N", (long long)made.N, "tile",
        (long long)made.tile, "width", (long long)made.width, "bytes_moved",
        (long long)made.bytes_moved, "on_chip_bytes", (long long)made.on_chip_bytes,
        "workspace_bytes", (long long)made.workspace_bytes, "threads", made.threads);
done:
    Py_XDECREF(x.owner);
    return result;
}

PyObject *ons_list_methods(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < ONS_METHOD_COUNT; i++) {
        const ons_method_info *info = &ons_methods[i];
        if (!info->on_cpu) continue;
        PyObject *one = Py_BuildValue("{s:s,s:i,s:i,s:s,s:s}", "name", info->name, "reads",
                                      info->reads, "writes", info->writes, "keeps",
                                      keeps_names[info->keeps], "summary", info->summary);
        if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}
