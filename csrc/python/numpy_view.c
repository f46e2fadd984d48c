/* numpy_view.c - makes views of NumPy arrays, and converts arrays that have no view. */
#include "views.h"

#include <stdlib.h>

/* ml_dtypes.bfloat16, or NULL without an exception if ml_dtypes is missing. */
static PyArray_Descr *bfloat16(ons_module *module) {
    if (!module->bfloat16) {
        PyObject *ml_dtypes = PyImport_ImportModule("ml_dtypes");
        PyObject *type = ml_dtypes ? PyObject_GetAttrString(ml_dtypes, "bfloat16") : NULL;
        if (type) PyArray_DescrConverter(type, &module->bfloat16);
        Py_XDECREF(type);
        Py_XDECREF(ml_dtypes);
        PyErr_Clear();
    }
    return module->bfloat16;
}

static bool is_bfloat16(ons_module *module, PyArray_Descr *descr) {
    if (!PyTypeNum_ISUSERDEF(descr->type_num) || PyDataType_ELSIZE(descr) != 2) return false;
    PyArray_Descr *known = bfloat16(module);
    return known && known->type_num == descr->type_num;
}

void ons_no_view(ons_view *view) { view->owner = view->held = view->stream_owner = NULL; }

void ons_release_view(ons_view *view) {
    Py_CLEAR(view->owner);
    Py_CLEAR(view->held);
    Py_CLEAR(view->stream_owner);
}

int ons_dtype_of_numpy(ons_module *module, PyArray_Descr *descr, ons_dtype *dtype) {
    switch (descr->type_num) {
    case NPY_HALF: *dtype = ONS_FLOAT16; return 0;
    case NPY_FLOAT: *dtype = ONS_FLOAT32; return 0;
    case NPY_DOUBLE: *dtype = ONS_FLOAT64; return 0;
    case NPY_BOOL: *dtype = ONS_BOOL; return 0;
    default:
        if (is_bfloat16(module, descr)) {
            *dtype = ONS_BFLOAT16;
            return 0;
        }
        PyErr_Format(PyExc_TypeError,
                     "dtype %S is not supported: expected float16, bfloat16, float32 or float64, "
                     "or integers or bool in the input",
                     (PyObject *)descr);
        return -1;
    }
}

PyArray_Descr *ons_numpy_dtype(ons_module *module, ons_dtype dtype) {
    static const int numbers[] = {NPY_HALF, -1,        NPY_FLOAT, NPY_DOUBLE,
                                  NPY_BOOL, NPY_INT32, NPY_INT64};
    if (dtype != ONS_BFLOAT16) return PyArray_DescrFromType(numbers[dtype]);
    PyArray_Descr *descr = bfloat16(module);
    if (!descr)
        PyErr_SetString(
            PyExc_TypeError,
            "a NumPy array of bfloat16 needs the package ml_dtypes: pip install ml_dtypes");
    Py_XINCREF(descr);
    return descr;
}

int ons_view_numpy(ons_module *module, PyArrayObject *array, ons_view *view) {
    ons_dtype dtype;
    if (PyArray_NDIM(array) > ONS_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "array has %d dimensions: at most %d are supported",
                     PyArray_NDIM(array), ONS_MAX_DIMS);
        return -1;
    }
    if (ons_dtype_of_numpy(module, PyArray_DESCR(array), &dtype) < 0) return -1;
    ons_view_new_numpy(array, dtype, view);
    return 0;
}

void ons_view_new_numpy(PyArrayObject *array, ons_dtype dtype, ons_view *view) {
    view->dtype = dtype;
    view->ndim = PyArray_NDIM(array);
    view->data = PyArray_BYTES(array);
    view->readonly = !PyArray_ISWRITEABLE(array);
    for (int i = 0; i < view->ndim; i++) {
        view->shape[i] = PyArray_DIM(array, i);
        view->strides[i] = PyArray_STRIDE(array, i);
    }
    ons_no_view(view);
    view->device = ONS_CPU;
    Py_INCREF(array);
    view->owner = (PyObject *)array;
}

PyArrayObject *ons_numpy_floating(ons_module *module, PyArrayObject *array) {
    int number = PyArray_DESCR(array)->type_num;
    bool counts = PyTypeNum_ISINTEGER(number) || PyTypeNum_ISBOOL(number);
    ons_dtype dtype = ONS_FLOAT64;
    if (!counts && ons_dtype_of_numpy(module, PyArray_DESCR(array), &dtype) < 0) return NULL;
    if (!counts && PyArray_ISNOTSWAPPED(array)) {
        Py_INCREF(array);
        return array;
    }
    PyArray_Descr *native = ons_numpy_dtype(module, dtype);
    if (!native) return NULL;
    PyObject *converted = PyArray_NewLikeArray(array, NPY_KEEPORDER, native, 0);
    if (converted && PyArray_CopyInto((PyArrayObject *)converted, array) < 0) Py_CLEAR(converted);
    return (PyArrayObject *)converted;
}

PyObject *ons_numpy_of(const ons_view *view, int type) {
    npy_intp shape[ONS_MAX_DIMS], strides[ONS_MAX_DIMS];
    for (int i = 0; i < view->ndim; i++) {
        shape[i] = (npy_intp)view->shape[i];
        strides[i] = (npy_intp)view->strides[i];
    }
    return PyArray_New(&PyArray_Type, view->ndim, shape, type, strides, view->data, 0, 0, NULL);
}

/* NumPy's numbers of types that have the sizes of ours. */
static const int stand_ins[] = {NPY_HALF, NPY_HALF,  NPY_FLOAT, NPY_DOUBLE,
                                NPY_BOOL, NPY_INT32, NPY_INT64};

int ons_view_copy(ons_view *view) {
    PyObject *shown = ons_numpy_of(view, stand_ins[view->dtype]);
    PyObject *copy = shown ? PyArray_NewCopy((PyArrayObject *)shown, NPY_KEEPORDER) : NULL;
    Py_XDECREF(shown);
    if (!copy) return -1;
    Py_CLEAR(view->held);
    Py_SETREF(view->owner, copy);
    view->data = PyArray_BYTES((PyArrayObject *)copy);
    view->readonly = false;
    for (int i = 0; i < view->ndim; i++)
        view->strides[i] = PyArray_STRIDE((PyArrayObject *)copy, i);
    return 0;
}

bool ons_view_bounds(const ons_view *view, uintptr_t *low, uintptr_t *high) {
    *low = *high = (uintptr_t)view->data;
    for (int i = 0; i < view->ndim; i++) {
        if (view->shape[i] == 0) return false;
        int64_t reach = view->strides[i] * (view->shape[i] - 1);
        *(reach < 0 ? low : high) += (uintptr_t)reach;
    }
    *high += (uintptr_t)ons_dtype_size(view->dtype);
    return true;
}

bool ons_views_overlap(const ons_view *a, const ons_view *b) {
    uintptr_t a_low, a_high, b_low, b_high;
    if (!ons_view_bounds(a, &a_low, &a_high) || !ons_view_bounds(b, &b_low, &b_high)) return false;
    return a_low < b_high && b_low < a_high;
}

bool ons_views_same(const ons_view *a, const ons_view *b) {
    if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && a->strides[i] != b->strides[i]))
            return false;
    return true;
}

int ons_overlaps_itself(ons_module *module, const ons_view *view) {
    int64_t steps[ONS_MAX_DIMS], lengths[ONS_MAX_DIMS];
    int dims = 0;
    for (int i = 0; i < view->ndim; i++) {
        if (view->shape[i] == 0) return 0;
        if (view->shape[i] == 1) continue;
        int64_t step = llabs(view->strides[i]);
        int at = dims++;
        for (; at > 0 && steps[at - 1] > step; at--) {
            steps[at] = steps[at - 1];
            lengths[at] = lengths[at - 1];
        }
        steps[at] = step;
        lengths[at] = view->shape[i];
    }
    /* In every slice and transpose of an array, each step is at least as long as everything that
     * the shorter steps reach. NumPy decides about any other layout. */
    int64_t reach = ons_dtype_size(view->dtype);
    bool apart = true;
    for (int i = 0; i < dims && apart; i++) {
        apart = steps[i] >= reach;
        reach += steps[i] * (lengths[i] - 1);
    }
    if (apart) return 0;
    PyObject *shown = ons_numpy_of(view, stand_ins[view->dtype]);
    PyObject *answer = shown ? ons_call_library(module, "overlaps_itself", "(O)", shown) : NULL;
    int overlaps = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(shown);
    Py_XDECREF(answer);
    return overlaps;
}
