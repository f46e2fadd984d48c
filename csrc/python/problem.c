/* problem.c - makes a problem from views: axes, broadcasting, and the order of dimensions. */
#include "views.h"

#include "../api/rounding.h"

#include <string.h>

PyObject *ons_shape_of(const ons_view *view) {
    PyObject *shape = PyTuple_New(view->ndim);
    for (int i = 0; shape && i < view->ndim; i++)
        PyTuple_SET_ITEM(shape, i, PyLong_FromLongLong(view->shape[i]));
    return shape;
}

PyObject *ons_shape_text(const ons_view *view) {
    PyObject *shape = ons_shape_of(view), *text = shape ? PyObject_Repr(shape) : NULL;
    Py_XDECREF(shape);
    return text;
}

PyObject *ons_plain_int(PyObject *object) {
    if (!PyBool_Check(object) && !PyArray_IsScalar(object, Bool)) return PyNumber_Index(object);
    PyErr_Format(PyExc_TypeError, "got %R: expected an int", object);
    return NULL;
}

static PyObject *plain_axis(PyObject *object) {
    PyObject *axis = ons_plain_int(object);
    if (!axis && PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "axis is %R: expected an int, a tuple of ints, or None",
                     object);
    return axis;
}

PyObject *ons_plain_axes(PyObject *object) {
    if (object == Py_None) return Py_NewRef(object);
    if (!PyTuple_Check(object)) return plain_axis(object);
    PyObject *axes = PyTuple_New(PyTuple_GET_SIZE(object));
    for (Py_ssize_t i = 0; axes && i < PyTuple_GET_SIZE(object); i++) {
        PyObject *axis = plain_axis(PyTuple_GET_ITEM(object, i));
        if (axis)
            PyTuple_SET_ITEM(axes, i, axis);
        else
            Py_CLEAR(axes);
    }
    return axes;
}

static int take_axis(ons_module *module, PyObject *object, int ndim, bool reduced[ONS_MAX_DIMS]) {
    Py_ssize_t axis = PyNumber_AsSsize_t(object, PyExc_OverflowError);
    if (axis == -1 && PyErr_Occurred()) goto out_of_bounds; /* out of bounds for every array */
    int among =
        ndim > 0 ? ndim : 1; /* a 0-d array is one row of one element, as in NumPy's reductions */
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

void ons_put_in_c_order(ons_view *view) {
    int64_t stride = ons_dtype_size(view->dtype);
    for (int i = view->ndim - 1; i >= 0; i--) {
        view->strides[i] = stride;
        /* if it overflows, ons_make_problem finds too many elements */
        (void)__builtin_mul_overflow(stride, view->shape[i] ? view->shape[i] : 1, &stride);
    }
}

/* The stride along dimension i of x, in an operand that broadcasts to x. */
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
    ons_view of_rows = *x;
    for (int i = 0; one_along && i < x->ndim; i++)
        if (one_along[i]) of_rows.shape[i] = 1;
    PyObject *given = ons_shape_text(view), *array = ons_shape_text(x);
    PyObject *wanted = ons_shape_text(&of_rows);
    if (given && array && wanted)
        PyErr_Format(
            PyExc_ValueError,
            "%s has shape %U, and the array has %U: expected a shape that broadcasts to %U%s", name,
            given, array, wanted, one_along ? ", with length 1 along axis" : "");
    Py_XDECREF(array);
    Py_XDECREF(given);
    Py_XDECREF(wanted);
    return -1;
}

/* Refuses more elements than the numbers of a plan can count. An empty array sets all lengths to 0,
 * so they need no limit. */
static int limit_elements(const ons_view *x, ons_problem *problem) {
    int64_t elements = 1;
    bool empty = false, many = false;
    for (int dim = 0; dim < problem->dims; dim++) {
        if (problem->extent[dim] == 0)
            empty = true;
        else
            many |= __builtin_mul_overflow(elements, problem->extent[dim], &elements);
    }
    if (!many && elements <= ONS_MAX_ELEMENTS) return 0;
    if (empty) {
        memset(problem->extent, 0, sizeof problem->extent);
        return 0;
    }
    PyObject *shape = ons_shape_text(x);
    if (shape)
        PyErr_Format(PyExc_ValueError, "the array has shape %U: expected at most 2^%d elements",
                     shape, ONS_MAX_ELEMENTS_LOG2);
    Py_XDECREF(shape);
    return -1;
}

bool ons_are_exact_states(const ons_view *view) {
    return view->ndim > 0 && view->shape[view->ndim - 1] == ONS_TWO_ROW_VALUES;
}

/* Pairs come in the form that callers exchange: two float64 side by side for each row, in the order
 * of the array's dimensions that are not reduced. States of `exact` have four. */
static int check_pairs(const ons_view *pairs, const ons_view *x, const bool *reduced,
                       bool gradient) {
    ons_view wanted = {.ndim = 0};
    for (int i = 0; i < x->ndim; i++)
        if (!reduced[i]) wanted.shape[wanted.ndim++] = x->shape[i];
    const int values = !gradient && ons_are_exact_states(pairs) ? ONS_TWO_ROW_VALUES : 2;
    wanted.shape[wanted.ndim++] = values;
    bool same = pairs->ndim == wanted.ndim && pairs->dtype == ONS_FLOAT64, none = false;
    for (int i = 0; same && i < wanted.ndim; i++) {
        same = pairs->shape[i] == wanted.shape[i];
        none |= wanted.shape[i] == 0; /* an array without elements may have any strides */
    }
    if (same && (none || pairs->strides[pairs->ndim - 1] == (int64_t)sizeof(double))) return 0;
    const int last = pairs->ndim - 1;
    const bool of_other_rows =
        !same && last >= 0 && pairs->shape[last] == values && pairs->dtype == ONS_FLOAT64;
    ons_view rows = *pairs; /* it owns nothing */
    rows.ndim -= of_other_rows;
    wanted.ndim -= of_other_rows;
    PyObject *given = ons_shape_text(&rows), *shape = ons_shape_text(&wanted);
    if (given && shape && of_other_rows)
        PyErr_Format(PyExc_ValueError, "the chunk's rows have shape %U: expected %U", shape, given);
    else if (given && shape)
        PyErr_Format(PyExc_ValueError,
                     "pairs have shape %U and dtype %s: expected %U, float64, side by side", given,
                     ons_dtype_name(pairs->dtype), shape);
    Py_XDECREF(given);
    Py_XDECREF(shape);
    return -1;
}

/* Adds dimension i of x. It is dimension `row_dim` of pairs, unless it is reduced. */
static void add_dim(const ons_view operand[ONS_OPERANDS], const ons_view *y, int row_dim, int i,
                    ons_problem *problem) {
    const ons_view *x = &operand[ONS_X], *where = &operand[ONS_WHERE], *scale = &operand[ONS_SCALE];
    int dim = problem->dims++;
    problem->extent[dim] = x->shape[i];
    problem->operand[ONS_X].stride[dim] = x->strides[i];
    problem->operand[ONS_Y].stride[dim] = y->strides[i];
    problem->operand[ONS_WHERE].stride[dim] =
        where->owner ? broadcast_stride(where, x->ndim, i) : 0;
    problem->operand[ONS_SCALE].stride[dim] =
        scale->owner ? broadcast_stride(scale, x->ndim, i) : 0;
    problem->operand[ONS_STATISTIC].stride[dim] =
        operand[ONS_STATISTIC].owner && row_dim >= 0 ? operand[ONS_STATISTIC].strides[row_dim] : 0;
    for (int role = ONS_GRADIENT; role <= ONS_INDICES; role++)
        problem->operand[role].stride[dim] =
            problem->operand[role].data ? operand[role].strides[i] : 0;
}

int ons_make_problem(ons_operation operation, const ons_view operand[ONS_OPERANDS],
                     const ons_view *y, const bool reduced[ONS_MAX_DIMS], ons_problem *problem) {
    const ons_view *x = &operand[ONS_X], *where = &operand[ONS_WHERE], *scale = &operand[ONS_SCALE];
    problem->k = 0;
    problem->log = false;
    problem->sorted = true;
    problem->sums = false;
    problem->sample = NULL;
    problem->exact_states =
        operand[ONS_STATISTIC].owner && ons_are_exact_states(&operand[ONS_STATISTIC]);
    problem->compute = ONS_FLOAT16;
    problem->operation = operation;
    problem->device = x->device;
    problem->gpu = x->device == ONS_CUDA ? x->gpu : 0;
    problem->dims = problem->reduced_dims = 0;
    static const ons_dtype absent[ONS_OPERANDS] = {
        [ONS_WHERE] = ONS_BOOL, [ONS_SCALE] = ONS_FLOAT64, [ONS_STATISTIC] = ONS_FLOAT64};
    const bool takes[ONS_OPERANDS] = {[ONS_X] = true,
                                      [ONS_Y] = true,
                                      [ONS_WHERE] = where->owner,
                                      [ONS_SCALE] = scale->owner,
                                      [ONS_STATISTIC] = operand[ONS_STATISTIC].owner,
                                      [ONS_GRADIENT] = ons_operations[operation].gradient,
                                      [ONS_INDICES] = ons_operations[operation].selects};
    for (int role = 0; role < ONS_OPERANDS; role++) {
        const ons_view *view = role == ONS_Y ? y : &operand[role];
        const bool given = takes[role];
        problem->operand[role].data = given ? view->data : NULL;
        problem->operand[role].dtype = given ? view->dtype : absent[role];
    }
    if (operand[ONS_STATISTIC].owner &&
        check_pairs(&operand[ONS_STATISTIC], x, reduced, ons_operations[operation].gradient) < 0)
        return -1;
    if (where->owner && check_broadcast("where", where, x, NULL) < 0) return -1;
    if (scale->owner && check_broadcast("scale", scale, x, reduced) < 0) return -1;
    for (int i = 0; i < x->ndim; i++)
        if (!reduced[i]) add_dim(operand, y, problem->dims, i, problem);
    int outer = problem->dims;
    for (int i = 0; i < x->ndim; i++)
        if (reduced[i]) add_dim(operand, y, -1, i, problem);
    problem->reduced_dims = problem->dims - outer;
    if (problem->reduced_dims == 0) {
        if (outer == ONS_MAX_DIMS) {
            PyErr_Format(PyExc_ValueError, "axis=() on an array of %d dimensions is not supported",
                         ONS_MAX_DIMS);
            return -1;
        }
        /* no axis, or no dimension: rows of one element */
        problem->dims = outer + 1;
        problem->extent[outer] = 1;
        for (int role = 0; role < ONS_OPERANDS; role++) {
            bool along = role <= ONS_Y || role >= ONS_GRADIENT;
            problem->operand[role].stride[outer] =
                along ? ons_dtype_size(problem->operand[role].dtype) : 0;
        }
        problem->reduced_dims = 1;
    }
    if (limit_elements(x, problem) < 0) return -1;
    ons_coalesce(problem);
    return 0;
}
