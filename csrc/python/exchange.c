/* exchange.c - makes a view of any array, and converts the result to the caller's own type. A few
 * lines of Python in _libraries do what only another library can do (a conversion, a JAX array from
 * memory). */
#include "views.h"

static bool is_scalar(PyObject *object) {
    return PyFloat_Check(object) || PyLong_Check(object) || PyArray_CheckScalar(object);
}

bool ons_is_plain(PyObject *object) {
    return is_scalar(object) || PyList_Check(object) || PyTuple_Check(object) ||
           PyComplex_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object) ||
           object == Py_None;
}

static bool is_masked(const ons_module *module, PyObject *object) {
    return !PyArray_CheckExact(object) &&
           PyObject_TypeCheck(object, (PyTypeObject *)module->masked_array);
}

int ons_refuse_masked(const ons_module *module, const char *name, PyObject *object) {
    if (!is_masked(module, object)) return 0;
    PyErr_Format(PyExc_TypeError,
                 "%s is a masked array, and its mask would be ignored: expected an array without a "
                 "mask, such as its .data",
                 name);
    return -1;
}

static int view_any_numpy(ons_module *module, PyObject *object, ons_view *view) {
    if (is_masked(module, object)) {
        PyErr_SetString(PyExc_TypeError,
                        "masked arrays are not supported: pass array.data and "
                        "where=~numpy.ma.getmaskarray(array)");
        return -1;
    }
    PyArrayObject *floating = ons_numpy_floating(module, (PyArrayObject *)object);
    if (!floating) return -1;
    int status = ons_view_numpy(module, floating, view);
    Py_DECREF(floating);
    return status;
}

/* The NumPy array of a plain Python value. */
static PyObject *array_of_plain(ons_module *module, PyObject *object) {
    PyObject *array = PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
    if (!PyList_Check(object) && !PyTuple_Check(object)) return array;
    if (!array && PyErr_ExceptionMatches(PyExc_ValueError)) { /* raised again, in better words */
        PyErr_Clear();
        array = ons_call_library(module, "array_of_lists", "(O)", object);
    }
    if (array && PyArray_SIZE((PyArrayObject *)array) == 0) { /* an empty list has no type */
        PyObject *floating = PyArray_Cast((PyArrayObject *)array, NPY_DOUBLE);
        Py_SETREF(array, floating);
    }
    return array;
}

/* An array of a library other than NumPy. */
static int take_foreign(const ons_caller *caller, PyObject *object, ons_role role, ons_view *view,
                        ons_library *library) {
    ons_module *module = caller->module;
    int seen = ons_view_torch(caller, object, role, view);
    if (seen != 0) {
        *library = ONS_TORCH;
        return seen > 0 ? 0 : -1;
    }
    if (Py_IS_TYPE(object, (PyTypeObject *)module->device_array)) {
        ons_view_device_array(object, view);
        if (view->dtype <= ONS_FLOAT64 || role == ONS_WHERE) return 0;
        PyErr_Format(PyExc_TypeError,
                     "got a DeviceArray of %s: expected float16, bfloat16, float32 or float64",
                     ons_dtype_name(view->dtype));
        ons_release_view(view);
        return -1;
    }
    /* (library, what to view): an array, an object that lends one by DLPack, or a description; for
     * ONS_BY_OPERATOR, a ByOperator */
    PyObject *prepared = ons_call_library(module, "prepare", "(Oi)", object, (int)role), *array;
    int number, status = -1;
    if (!prepared) return -1;
    if (!PyArg_ParseTuple(prepared, "iO", &number, &array)) goto done;
    *library = (ons_library)number;
    view->stream = caller->stream;
    if (*library == ONS_BY_OPERATOR) {
        status = ons_leave_by_operator(caller, array);
    } else if (PyTuple_Check(array)) {
        status = ons_view_described(module, array, role, view);
    } else if (PyArray_Check(array)) {
        status = view_any_numpy(module, array, view);
    } else if (*library != ONS_TORCH) {
        status = ons_view_dlpack(module, array, role, false, view);
    } else if (ons_know_torch(module) == 0) {
        status = ons_view_torch(caller, array, role, view);
        if (status == 0) {
            status = ons_view_dlpack(module, array, role, true, view);
            if (status == 0 && view->device == ONS_CUDA)
                status = ons_torch_stream(module, view->gpu, &view->stream);
        }
    }
done:
    Py_DECREF(prepared);
    if (status < 0) ons_release_view(view);
    return status < 0 ? -1 : 0;
}

int ons_check_list(ons_module *module, PyObject *object) {
    if (!PyList_Check(object) && !PyTuple_Check(object)) return 0;
    if (!PyDict_GetItemString(PyImport_GetModuleDict(), "dask")) return 0;
    PyObject *checked = ons_call_library(module, "check_list", "(O)", object);
    Py_XDECREF(checked);
    return checked ? 0 : -1;
}

int ons_take(const ons_caller *caller, PyObject *object, ons_role role, ons_view *view,
             ons_library *library) {
    ons_module *module = caller->module;
    ons_no_view(view);
    *library = ONS_NUMPY;
    bool tensor = ons_is_tensor(module, object);
    if (!tensor && PyArray_Check(object)) return view_any_numpy(module, object, view);
    if (tensor || !ons_is_plain(object)) return take_foreign(caller, object, role, view, library);
    if (is_scalar(object)) *library = ONS_NUMBER;
    if (ons_check_list(module, object) < 0) return -1;
    PyObject *array = array_of_plain(module, object);
    int status = array ? view_any_numpy(module, array, view) : -1;
    if (array && status < 0 && PyErr_ExceptionMatches(PyExc_TypeError) &&
        ons_holds_no_numbers((PyArrayObject *)array)) {
        PyErr_Clear();
        PyObject *text = ons_call_library(module, "refused_value", "(O)", object);
        if (text) PyErr_Format(PyExc_TypeError, "got %U", text);
        Py_XDECREF(text);
    }
    Py_XDECREF(array);
    return status;
}

int ons_take_out(const ons_caller *caller, PyObject *object, ons_view *view, ons_library *library) {
    ons_module *module = caller->module;
    *library = ONS_NUMPY;
    if (ons_is_tensor(module, object) || !PyArray_Check(object)) {
        if (take_foreign(caller, object, ONS_Y, view, library) < 0) return -1;
    } else {
        PyArrayObject *array = (PyArrayObject *)object;
        if (ons_refuse_masked(module, "out", object) < 0) return -1;
        if (ons_view_numpy(module, array, view) < 0) {
            if (PyErr_ExceptionMatches(PyExc_TypeError))
                PyErr_Format(PyExc_TypeError,
                             "out has dtype %S: expected float16, bfloat16, float32 or float64",
                             (PyObject *)PyArray_DESCR(array));
            return -1;
        }
        if (!PyArray_ISNOTSWAPPED(array)) {
            PyErr_Format(PyExc_ValueError, "out has dtype %S: expected native byte order",
                         (PyObject *)PyArray_DESCR(array));
            goto fail;
        }
    }
    if (view->dtype == ONS_BOOL) {
        PyErr_SetString(PyExc_TypeError,
                        "out has dtype bool: expected float16, bfloat16, float32 or float64");
        goto fail;
    }
    if (view->readonly) {
        PyErr_SetString(PyExc_ValueError,
                        "out is read-only: expected an array that can be written to");
        goto fail;
    }
    int overlaps = ons_overlaps_itself(module, view);
    if (overlaps == 0) return 0;
    if (overlaps > 0)
        PyErr_SetString(PyExc_ValueError,
                        "out is broadcast, or strided so that its elements overlap: expected an "
                        "array in which each element has its own place in memory");
fail:
    ons_release_view(view);
    return -1;
}

int ons_check_unchanged(ons_module *module, const char *name, const ons_view *view) {
    /* memory lent by DLPack does not change, and neither does a DeviceArray */
    if (!view->owner || view->held) return 0;
    ons_role role = view->dtype == ONS_BOOL ? ONS_WHERE : ONS_X;
    ons_view now;
    int seen; /* 0: it can no longer be viewed */
    ons_no_view(&now);
    if (PyArray_Check(view->owner))
        seen = ons_view_numpy(module, (PyArrayObject *)view->owner, &now) < 0 ? -1 : 1;
    else if (ons_is_tensor(module, view->owner))
        seen = ons_view_plain_tensor(module, view->owner, role, &now);
    else
        return 0;
    if (seen < 0) return -1;
    bool same = seen && ons_views_same(view, &now);
    ons_release_view(&now);
    if (same) return 0;
    PyErr_Format(PyExc_RuntimeError,
                 "%s was reshaped, resized or given other memory while the other arguments were "
                 "converted: expected it to stay as it is",
                 name);
    return -1;
}

/* An array like the NumPy array behind the view. If the view shows only a part of it, the new array
 * is like this part. */
static PyObject *new_like(const ons_view *like, PyArray_Descr *descr) {
    PyArrayObject *behind = (PyArrayObject *)like->owner;
    bool whole = PyArray_NDIM(behind) == like->ndim;
    for (int i = 0; whole && i < like->ndim; i++) whole = PyArray_DIM(behind, i) == like->shape[i];
    PyObject *shown = whole ? Py_NewRef(like->owner) : ons_numpy_of(like, descr->type_num);
    PyObject *array = NULL;
    if (shown)
        array = PyArray_NewLikeArray((PyArrayObject *)shown, NPY_KEEPORDER, descr, 0);
    else
        Py_DECREF(descr);
    Py_XDECREF(shown);
    return array;
}

/* A NumPy array of like's shape. `own_shape`: it also gets the memory order of the array behind. */
static int new_numpy(ons_module *module, const ons_view *like, bool own_shape, ons_dtype dtype,
                     ons_view *view) {
    npy_intp shape[ONS_MAX_DIMS];
    PyArray_Descr *descr = ons_numpy_dtype(module, dtype);
    if (!descr) return -1;
    int64_t bytes = ons_dtype_size(dtype);
    for (int i = 0; i < like->ndim; i++) bytes *= shape[i] = (npy_intp)like->shape[i];
    PyObject *before;
    if (ons_use_large_memory(bytes, &before) < 0) {
        Py_DECREF(descr);
        return -1;
    }
    PyObject *array =
        own_shape && PyArray_Check(like->owner)
            ? new_like(like, descr)
            : PyArray_NewFromDescr(&PyArray_Type, descr, like->ndim, shape, NULL, NULL, 0, NULL);
    ons_use_memory_as_before(before);
    if (!array) return -1;
    ons_view_new_numpy((PyArrayObject *)array, dtype, view);
    Py_DECREF(array);
    return 0;
}

int ons_new_result(const ons_caller *caller, const ons_view *like, bool own_shape, ons_dtype dtype,
                   ons_view *view) {
    ons_module *module = caller->module;
    const ons_library library = caller->library;
    if (library == ONS_TORCH) return ons_new_tensor(module, like, own_shape, dtype, view);
    if (library == ONS_JAX && dtype == ONS_FLOAT64) {
        PyObject *fits = ons_call_library(module, "check_jax_float64", "()");
        if (!fits) return -1;
        Py_DECREF(fits);
    }
    if (like->device == ONS_CPU) return new_numpy(module, like, own_shape, dtype, view);
    PyObject *made;
    int status = -1;
    if (library == ONS_CUPY) {
        PyObject *shape = own_shape ? Py_NewRef(Py_None) : ons_shape_of(like);
        if (!shape) return -1;
        made = ons_call_library(module, "cupy_result", "(OsO)", like->owner, ons_dtype_name(dtype),
                                shape);
        Py_DECREF(shape);
        if (made) status = ons_view_described(module, made, ons_role_of_result(dtype), view);
    } else {
        made =
            ons_new_device_array(module, like->gpu, caller->stream, dtype, like->ndim, like->shape);
        if (made) ons_view_device_array(made, view);
        status = made ? 0 : -1;
    }
    Py_XDECREF(made);
    return status;
}

PyObject *ons_hand_over(ons_module *module, ons_library library, PyObject *given,
                        const ons_view *view) {
    if (library == ONS_JAX)
        return ons_call_library(module, "jax_result", "(OO)", view->owner, given);
    Py_INCREF(view->owner);
    return library == ONS_NUMBER ? PyArray_Return((PyArrayObject *)view->owner) : view->owner;
}
