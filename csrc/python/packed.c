/* packed.c - functions on arrays of any library for onsoftmax/_normalizer.py: merging states, and
 * empty arrays. */
#include "call_views.h"

#include "../api/packed.h"
#include "device_array.h"

#include <string.h>

/* The names of ons_gives. */
static const char *const results[] = {"packed", "pair", "m", "d"};

/* The number of values that a result appends to the rows' shape; 0: no dimension is added. */
static int values_given(const ons_merging *all) {
    if (all->gives == ONS_GIVES_PACKED) return all->values == 2 ? ONS_PACKED_VALUES : all->values;
    return all->gives == ONS_GIVES_PAIR ? 2 : 0;
}

static int take_gives(PyObject *object, ons_gives *gives) {
    *gives = ONS_GIVES_PACKED;
    if (!object) return 0;
    for (int i = 0; PyUnicode_Check(object) && i < 4; i++)
        if (PyUnicode_CompareWithASCIIString(object, results[i]) == 0) {
            *gives = (ons_gives)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "gives is %R: expected 'packed', 'pair', 'm' or 'd'", object);
    return -1;
}

/* Checks that there are `values` values for each row. On the CPU it also makes them aligned. */
static int check_states(const char *name, int values, ons_view *view) {
    const int last = view->ndim - 1;
    if (last < 0 || view->dtype != ONS_FLOAT64 || view->shape[last] != values) {
        PyObject *shape = ons_shape_text(view);
        if (shape)
            PyErr_Format(PyExc_ValueError,
                         "%s has shape %U and dtype %s: expected float64, and the rows' shape "
                         "followed by %d",
                         name, shape, ons_dtype_name(view->dtype), values);
        Py_XDECREF(shape);
        return -1;
    }
    if (view->device != ONS_CPU) return 0;
    int64_t places = (int64_t)(uintptr_t)view->data;
    for (int i = 0; i < view->ndim; i++) places |= view->strides[i];
    return (places & (int64_t)(sizeof(double) - 1)) == 0 ? 0 : ons_view_copy(view);
}

static int check_same_rows(const ons_view *other, const ons_view *x) {
    bool same = other->ndim == x->ndim;
    for (int i = 0; same && i < x->ndim - 1; i++) same = other->shape[i] == x->shape[i];
    if (same) return 0;
    ons_view rows_here = *other, rows_there = *x;
    rows_here.ndim--;
    rows_there.ndim--;
    PyObject *here = ons_shape_text(&rows_here), *there = ons_shape_text(&rows_there);
    if (here && there)
        PyErr_Format(PyExc_ValueError, "the rows have shape %U: expected %U", here, there);
    Py_XDECREF(here);
    Py_XDECREF(there);
    return -1;
}

/* Describes the views, with the dimensions that are not merged first. */
static void describe(const ons_view *const views[2], int arrays, const bool *merged,
                     ons_merging *all) {
    const int dims = views[0]->ndim - 1;
    all->arrays = arrays;
    all->dims = all->merged_dims = 0;
    all->rows = all->parts = 1;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < dims; i++) {
            if (merged[i] != (pass == 1)) continue;
            *(merged[i] ? &all->parts : &all->rows) *= views[0]->shape[i];
            all->merged_dims += merged[i];
            all->extent[all->dims] = views[0]->shape[i];
            for (int a = 0; a < arrays; a++) all->from[a].stride[all->dims] = views[a]->strides[i];
            all->dims++;
        }
    for (int a = 0; a < arrays; a++) {
        all->from[a].data = views[a]->data;
        all->from[a].value_stride = views[a]->strides[dims];
    }
}

/* A new array with the rows of x that are left, and `values` values for each. */
static int new_values(const ons_caller *caller, const ons_view *x, const bool *merged, int values,
                      ons_view *y) {
    ons_view like = *x;
    like.ndim = 0;
    for (int i = 0; i < x->ndim - 1; i++)
        if (!merged[i]) like.shape[like.ndim++] = x->shape[i];
    if (values > 0) like.shape[like.ndim++] = values;
    return ons_new_result(caller, &like, false, ONS_FLOAT64, y);
}

static int run(const ons_merging *all) {
    ons_status status;
    if (all->device == ONS_CUDA || all->rows * all->parts >= ONS_GIL_ELEMENTS) {
        Py_BEGIN_ALLOW_THREADS status = ons_merge(all);
        Py_END_ALLOW_THREADS
    } else {
        status = ons_merge(all);
    }
    if (status != ONS_OK) ons_set_gpu_error(status);
    return status == ONS_OK ? 0 : -1;
}

static PyObject *merge(const char *function, bool pairs, PyObject *self, PyObject *const *args,
                       Py_ssize_t count, PyObject *names) {
    ons_module *module = PyModule_GetState(self);
    PyObject *given[KEYWORDS], *axes = NULL, *result = NULL;
    ons_view x, y, other;
    const ons_view *const views[] = {&x, &other};
    ons_caller caller = {.module = module};
    const ons_signature takes = {function, "an array", 1, OF_MERGE};
    ons_library other_library;
    ons_merging all;
    bool merged[ONS_MAX_DIMS] = {false};
    const char *const name = pairs ? "pairs" : "packed";
    if (ons_take_arguments(&takes, args, count, names, given) < 0) return NULL;
    ons_dtype dtype = ONS_FLOAT64;
    if (take_gives(given[GIVES], &all.gives) < 0 ||
        ons_take_dtype(module, given[DTYPE], &dtype) < 0)
        return NULL;
    all.compute = dtype == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
    if (given[STREAM]) {
        if (ons_take_stream(given[STREAM], &caller.stream) < 0) return NULL;
        result = ons_call_on_stream(&caller, self, &takes, args, given);
        if (result != Py_NotImplemented) return result;
        Py_CLEAR(result);
    }
    if (given[AXIS] && !(axes = ons_plain_axes(given[AXIS]))) return NULL;
    ons_no_view(&x);
    ons_no_view(&y);
    ons_no_view(&other);
    if (ons_take(&caller, args[0], ONS_STATISTIC, &x, &caller.library) < 0) goto done;
    if (pairs && Py_IS_TYPE(args[0], (PyTypeObject *)module->device_array)) {
        /* The caller drops the pairs. The states now keep alive what they were computed from. */
        x.held = ((ons_device_array *)args[0])->held;
        Py_XINCREF(x.held);
    }
    all.values = pairs ? 2 : ons_are_exact_states(&x) ? ONS_TWO_ROW_VALUES : ONS_PACKED_VALUES;
    if (ons_check_device(&x, given) < 0 || check_states(name, all.values, &x) < 0) goto done;
    if (all.values == ONS_TWO_ROW_VALUES && all.gives == ONS_GIVES_PAIR) {
        PyErr_SetString(
            PyExc_ValueError,
            "gives is 'pair', and states of exact have no pairs: expected 'packed', 'm' or 'd'");
        goto done;
    }
    if (x.device == ONS_CUDA && !given[STREAM]) caller.stream = x.stream;
    if (axes && ons_take_axes(module, axes, x.ndim - 1, merged) < 0) goto done;
    if (given[OTHER] &&
        (ons_take(&caller, given[OTHER], ONS_STATISTIC, &other, &other_library) < 0 ||
         check_states("other", all.values, &other) < 0 || check_same_rows(&other, &x) < 0))
        goto done;
    if (ons_join(name, &x, &x, caller.stream) < 0 ||
        ons_join("other", &other, &x, caller.stream) < 0 ||
        ons_check_unchanged(module, name, &x) < 0)
        goto done;
    if (new_values(&caller, &x, merged, values_given(&all), &y) < 0) goto done;
    describe(views, given[OTHER] ? 2 : 1, merged, &all);
    all.device = x.device;
    all.gpu = x.gpu;
    all.stream = caller.stream;
    all.to = (double *)(void *)y.data;
    if (run(&all) < 0) goto done;
    if (x.device == ONS_CUDA) {
        PyObject *stream_owner = given[STREAM] ? given[STREAM] : x.stream_owner;
        if (ons_order(x.gpu, caller.stream, x.stream) < 0 ||
            ons_order(x.gpu, caller.stream, y.stream) < 0 ||
            (other.owner && ons_order(x.gpu, caller.stream, other.stream) < 0) ||
            ons_device_array_keep(module, y.owner, stream_owner, views, 2) < 0)
            goto done;
    }
    bool number = caller.library == ONS_NUMPY && x.device == ONS_CPU && y.ndim == 0;
    result = ons_hand_over(module, number ? ONS_NUMBER : caller.library, args[0], &y);
done:
    Py_XDECREF(axes);
    ons_release_view(&x);
    ons_release_view(&y);
    ons_release_view(&other);
    return result;
}

PyObject *ons_merge_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return merge("merge", false, self, args, count, names);
}

PyObject *ons_pack_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return merge("pack", true, self, args, count, names);
}

PyObject *ons_empty_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    ons_module *module = PyModule_GetState(self);
    PyObject *given[KEYWORDS], *result = NULL;
    ons_view like, shape, y;
    ons_caller caller = {.module = module};
    static const ons_signature takes = {"empty", "an array and a shape", 2, OF_EMPTY};
    ons_dtype dtype;
    if (ons_take_arguments(&takes, args, count, names, given) < 0) return NULL;
    int typed = ons_take_dtype(module, given[DTYPE], &dtype);
    if (typed < 0) return NULL;
    if (!PyTuple_Check(args[1]) || PyTuple_GET_SIZE(args[1]) > ONS_MAX_DIMS) {
        PyErr_Format(PyExc_TypeError, "shape is %R: expected a tuple of at most %d ints", args[1],
                     ONS_MAX_DIMS);
        return NULL;
    }
    int64_t lengths[ONS_MAX_DIMS];
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); i++) {
        lengths[i] = PyNumber_AsSsize_t(PyTuple_GET_ITEM(args[1], i), PyExc_OverflowError);
        if (lengths[i] >= 0) continue;
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "shape is %R: expected lengths of at least 0", args[1]);
        return NULL;
    }
    ons_no_view(&like);
    ons_no_view(&y);
    if (ons_take(&caller, args[0], ONS_X, &like, &caller.library) < 0) goto done;
    shape = like; /* it owns nothing */
    shape.ndim = (int)PyTuple_GET_SIZE(args[1]);
    memcpy(shape.shape, lengths, (size_t)shape.ndim * sizeof *lengths);
    caller.stream = like.stream;
    if (caller.library == ONS_NUMBER) caller.library = ONS_NUMPY;
    if (ons_new_result(&caller, &shape, false, typed ? dtype : like.dtype, &y) == 0)
        result = ons_hand_over(module, caller.library, args[0], &y);
done:
    ons_release_view(&like);
    ons_release_view(&y);
    return result;
}

const char ons_merge_doc[] =
    "merge($module, packed, /, axis=(), *, dtype=None, other=None, gives='packed', "
    "stream=None)\n--\n\n"
    "Merges packed states of rows along axis, and with the states in `other`, if it is given.\n"
    "An array of states has the rows' shape, followed by 5 (csrc/api/packed.h), or by 4 for\n"
    "states of `exact` (csrc/api/rounding.h), and is float64.\n"
    "\n"
    "gives: 'packed' for states, 'pair' for the pairs that finish takes, 'm' or 'd' for one\n"
    "number a row. finish takes states of `exact` as they are, so they have no pairs. d is\n"
    "sum(exp(x - m)). `dtype` is the type of the rows, by default float64.";
const char ons_pack_doc[] =
    "pack($module, pairs, /, axis=(), *, dtype=None, other=None, gives='packed', "
    "stream=None)\n--\n\n"
    "As merge, but from the pairs that normalizer gives.";
const char ons_empty_doc[] =
    "empty($module, like, shape, /, *, dtype=None)\n--\n\n"
    "An array of a shape with undefined contents. It has the library and the device of\n"
    "`like`. Its type is dtype, or else the type of `like`, or the type to which `like` is\n"
    "converted.";
