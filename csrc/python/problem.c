/* problem.c - a problem from views: axes, broadcasting, and the dimensions in the problem's order.
 */
#include "views.h"

#include <string.h>

PyObject *ons_shape_text(const ons_view *view) {
    PyObject *shape = PyTuple_New(view->ndim);
    for (int i = 0; shape && i < view->ndim; i++)
        PyTuple_SET_ITEM(shape, i, PyLong_FromLongLong(view->shape[i]));
    PyObject *text = shape ? PyObject_Repr(shape) : NULL;
    Py_XDECREF(shape);
    return text;
}

static int take_axis(ons_module *module, PyObject *object, int ndim, bool reduced[ONS_MAX_DIMS]) {
    Py_ssize_t axis = PyNumber_AsSsize_t(object, PyExc_OverflowError);
    if (axis == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "axis is %R: expected an int, a tuple of ints, or None",
                         object);
        else if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return -1;
        else
            goto out_of_bounds;
        return -1;
    }
    int among = ndim > 0
                    ? ndim
                    : 1; /* a 0-d array is one row of one element, as NumPy's reductions take it */
    if (axis < -among || axis >= among) goto out_of_bounds;
    axis += axis < 0 ? among : 0;
    if (reduced[axis]) {
        PyErr_Format(PyExc_ValueError, "axis %R is given twice", object);
        return -1;
    }
    reduced[axis] = true;
    return 0;
out_of_bounds:
    PyErr_Clear();
    PyObject *error = PyObject_CallFunction(module->axis_error, "Oi", object, ndim);
    if (error) PyErr_SetObject(module->axis_error, error);
    Py_XDECREF(error);
    return -1;
}

int ons_take_axes(ons_module *module, PyObject *object, int ndim, bool reduced[ONS_MAX_DIMS]) {
    memset(reduced, 0, ONS_MAX_DIMS * sizeof *reduced);
    if (object == NULL) {
        reduced[ndim > 0 ? ndim - 1 : 0] = true;
    } else if (object == Py_None) {
        for (int i = 0; i < ndim; i++) reduced[i] = true;
    } else if (PyTuple_Check(object)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++)
            if (take_axis(module, PyTuple_GET_ITEM(object, i), ndim, reduced) < 0) return -1;
    } else {
        return take_axis(module, object, ndim, reduced);
    }
    return 0;
}

/* The stride of dimension i of x in an operand that broadcasts to x. */
static int64_t broadcast_stride(const ons_view *view, int ndim, int i) {
    int own = i - (ndim - view->ndim);
    return own < 0 || view->shape[own] == 1 ? 0 : view->strides[own];
}

static int check_broadcast(const char *name, const ons_view *view, const ons_view *x,
                           const bool *one_along) {
    bool fits = view->ndim <= x->ndim;
    for (int own = 0; fits && own < view->ndim; own++) {
        int i = own + x->ndim - view->ndim;
        fits = view->shape[own] == 1 ||
               (view->shape[own] == x->shape[i] && !(one_along && one_along[i]));
    }
    if (fits) return 0;
    PyObject *given = ons_shape_text(view), *wanted = ons_shape_text(x);
    if (given && wanted)
        PyErr_Format(PyExc_ValueError,
                     "%s has shape %U: expected one that broadcasts to the array's %U%s", name,
                     given, wanted, one_along ? ", with length 1 along axis" : "");
    Py_XDECREF(given);
    Py_XDECREF(wanted);
    return -1;
}

static void add_dim(const ons_view *x, const ons_view *y, const ons_view *where,
                    const ons_view *scale, int i, ons_problem *problem) {
    int dim = problem->dims++;
    problem->extent[dim] = x->shape[i];
    problem->x.stride[dim] = x->strides[i];
    problem->y.stride[dim] = y->strides[i];
    problem->where.stride[dim] = where->owner ? broadcast_stride(where, x->ndim, i) : 0;
    problem->scale.stride[dim] = scale->owner ? broadcast_stride(scale, x->ndim, i) : 0;
}

int ons_make_problem(const ons_view *x, const ons_view *y, const ons_view *where,
                     const ons_view *scale, const bool reduced[ONS_MAX_DIMS],
                     ons_problem *problem) {
    problem->operation = ONS_SOFTMAX;
    problem->device = x->device;
    problem->gpu = x->device == ONS_CUDA ? x->gpu : 0;
    problem->dims = problem->reduced_dims = 0;
    problem->x.data = x->data;
    problem->x.dtype = x->dtype;
    problem->y.data = y->data;
    problem->y.dtype = y->dtype;
    problem->where.data = where->owner ? where->data : NULL;
    problem->where.dtype = ONS_BOOL;
    problem->scale.data = scale->owner ? scale->data : NULL;
    problem->scale.dtype = scale->owner ? scale->dtype : ONS_FLOAT64;
    if (where->owner && check_broadcast("where", where, x, NULL) < 0) return -1;
    if (scale->owner && check_broadcast("scale", scale, x, reduced) < 0) return -1;
    for (int i = 0; i < x->ndim; i++)
        if (!reduced[i]) add_dim(x, y, where, scale, i, problem);
    int outer = problem->dims;
    for (int i = 0; i < x->ndim; i++)
        if (reduced[i]) add_dim(x, y, where, scale, i, problem);
    problem->reduced_dims = problem->dims - outer;
    if (problem->reduced_dims == 0) {
        if (outer == ONS_MAX_DIMS) {
            PyErr_Format(PyExc_ValueError, "axis=() on an array of %d dimensions is not supported",
                         ONS_MAX_DIMS);
            return -1;
        }
        /* no axis, or no dimension at all: rows of one element */
        problem->dims = outer + 1;
        problem->extent[outer] = 1;
        problem->x.stride[outer] = ons_dtype_size(x->dtype);
        problem->y.stride[outer] = ons_dtype_size(y->dtype);
        problem->where.stride[outer] = problem->scale.stride[outer] = 0;
        problem->reduced_dims = 1;
    }
    ons_coalesce(problem);
    return 0;
}
