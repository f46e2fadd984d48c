/* exchange.c - any array -> view, and the result -> the caller's own type. What another library
 * must be asked for (torch.empty_like, a JAX array from memory) is a few lines of Python in
 * _libraries.py. */
#include "views.h"

static PyObject *call_library(ons_module *module, const char *function, PyObject *argument) {
    if (!module->libraries) {
        module->libraries = PyImport_ImportModule("onsoftmax._libraries");
        if (!module->libraries) return NULL;
    }
    return PyObject_CallMethod(module->libraries, function, "(O)", argument);
}

/* Whether the object is a plain Python value that NumPy makes an array of: no library to give it
 * back to. */
static bool is_plain(PyObject *object) {
    return PyList_Check(object) || PyTuple_Check(object) || PyFloat_Check(object) ||
           PyLong_Check(object) || PyArray_CheckScalar(object) || PyComplex_Check(object) ||
           PyUnicode_Check(object) || PyBytes_Check(object) || object == Py_None;
}

static int view_any_numpy(ons_module *module, PyObject *object, ons_view *view) {
    if (!PyArray_CheckExact(object)) {
        int masked = PyObject_IsInstance(object, module->masked_array);
        if (masked < 0) return -1;
        if (masked) {
            PyErr_SetString(PyExc_TypeError,
                            "masked arrays are not supported: pass array.data and "
                            "where=~numpy.ma.getmaskarray(array)");
            return -1;
        }
    }
    PyArrayObject *floating = ons_numpy_floating(module, (PyArrayObject *)object);
    if (!floating) return -1;
    int status = ons_view_numpy(module, floating, view);
    Py_DECREF(floating);
    return status;
}

int ons_take(ons_module *module, PyObject *object, ons_view *view, ons_library *library) {
    *library = ONS_NUMPY;
    if (PyArray_Check(object)) return view_any_numpy(module, object, view);
    PyObject *array = NULL;
    int status = -1;
    if (is_plain(object)) {
        array = PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
        if (!array) return -1;
        if (PyList_Check(object) || PyTuple_Check(object)) {
            if (PyArray_SIZE((PyArrayObject *)array) ==
                0) { /* an empty list says nothing of a type */
                PyObject *floating = PyArray_Cast((PyArrayObject *)array, NPY_DOUBLE);
                Py_SETREF(array, floating);
                if (!array) return -1;
            }
        }
    } else { /* (library, what to look at): an array, or what hands one over by DLPack */
        PyObject *prepared = call_library(module, "prepare", object);
        int number;
        if (!prepared) return -1;
        if (PyArg_ParseTuple(prepared, "iO", &number, &array)) Py_INCREF(array);
        Py_DECREF(prepared);
        if (!array) return -1;
        *library = (ons_library)number;
    }
    status =
        PyArray_Check(array) ? view_any_numpy(module, array, view) : ons_view_dlpack(array, view);
    if (status == 0 && *library == ONS_TORCH)
        Py_SETREF(view->owner, PyTuple_Pack(2, view->owner, array));
    Py_DECREF(array);
    return status == 0 && view->owner ? 0 : -1;
}

int ons_take_out(ons_module *module, PyObject *object, ons_view *view) {
    if (!PyArray_Check(object)) {
        PyObject *array = call_library(module, "prepare_out", object);
        if (!array) return -1;
        int status = ons_view_dlpack(array, view);
        Py_DECREF(array);
        if (status < 0) return -1;
    } else {
        PyArrayObject *array = (PyArrayObject *)object;
        if (ons_view_numpy(module, array, view) < 0) return -1;
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
    bool empty = false;
    for (int i = 0; i < view->ndim; i++) empty |= view->shape[i] == 0;
    for (int i = 0; i < view->ndim; i++)
        if (!empty && view->shape[i] > 1 && view->strides[i] == 0) {
            PyErr_SetString(PyExc_ValueError,
                            "out is broadcast: several of its elements are one place in memory");
            goto fail;
        }
    return 0;
fail:
    Py_CLEAR(view->owner);
    return -1;
}

int ons_take_mask(ons_module *module, PyObject *object, ons_view *view) {
    PyObject *array = NULL;
    if (PyArray_Check(object) || is_plain(object) || PyBool_Check(object))
        array = PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
    else
        array = call_library(module, "as_numpy", object);
    if (!array) return -1;
    int status = -1;
    if (!PyArray_Check(array) || PyArray_TYPE((PyArrayObject *)array) != NPY_BOOL)
        PyErr_Format(
            PyExc_TypeError, "where has dtype %S: expected a mask of bool",
            PyArray_Check(array) ? (PyObject *)PyArray_DESCR((PyArrayObject *)array) : array);
    else
        status = ons_view_numpy(module, (PyArrayObject *)array, view);
    Py_DECREF(array);
    return status;
}

int ons_take_scale(ons_module *module, PyObject *object, ons_view *view, double *number) {
    view->owner = NULL;
    if (PyFloat_CheckExact(object) || PyLong_CheckExact(object)) {
        *number = PyFloat_AsDouble(object);
        return *number == -1.0 && PyErr_Occurred() ? -1 : 0;
    }
    PyObject *array = NULL, *floating = NULL;
    if (PyArray_Check(object) || is_plain(object))
        array = PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
    else
        array = call_library(module, "as_numpy", object);
    if (!array) return -1;
    int status = -1;
    floating = (PyObject *)ons_numpy_floating(module, (PyArrayObject *)array);
    if (!floating) {
        PyErr_Format(PyExc_TypeError,
                     "scale has dtype %S: expected a real number, or an array of them",
                     (PyObject *)PyArray_DESCR((PyArrayObject *)array));
        goto done;
    }
    Py_SETREF(floating, PyArray_Cast((PyArrayObject *)floating, NPY_DOUBLE));
    if (!floating) goto done;
    if (PyArray_NDIM((PyArrayObject *)floating) == 0) {
        *number = *(double *)PyArray_DATA((PyArrayObject *)floating);
        status = 0;
    } else {
        status = ons_view_numpy(module, (PyArrayObject *)floating, view);
    }
done:
    Py_DECREF(array);
    Py_XDECREF(floating);
    return status;
}

int ons_take_dtype(ons_module *module, PyObject *object, ons_dtype *dtype) {
    if (object == Py_None) return 0;
    PyObject *name = call_library(module, "dtype_name", object);
    if (!name) return -1;
    int status = -1;
    for (int i = ONS_FLOAT16; i <= ONS_FLOAT64; i++)
        if (PyUnicode_CompareWithASCIIString(name, ons_dtype_name((ons_dtype)i)) == 0) {
            *dtype = (ons_dtype)i;
            status = 0;
        }
    if (status < 0)
        PyErr_Format(PyExc_TypeError, "dtype is %S: expected float16, bfloat16, float32 or float64",
                     name);
    Py_DECREF(name);
    return status;
}

/* A NumPy array of that shape, in `like`'s memory order where `like` is one. */
static int new_numpy(ons_module *module, const ons_view *like, ons_dtype dtype, ons_view *view) {
    npy_intp shape[ONS_MAX_DIMS];
    PyArray_Descr *descr = ons_numpy_dtype(module, dtype);
    if (!descr) return -1;
    for (int i = 0; i < like->ndim; i++) shape[i] = (npy_intp)like->shape[i];
    PyObject *array =
        PyArray_Check(like->owner)
            ? PyArray_NewLikeArray((PyArrayObject *)like->owner, NPY_KEEPORDER, descr, 0)
            : PyArray_NewFromDescr(&PyArray_Type, descr, like->ndim, shape, NULL, NULL, 0, NULL);
    if (!array) return -1;
    int status = ons_view_numpy(module, (PyArrayObject *)array, view);
    Py_DECREF(array);
    return status;
}

int ons_new_result(ons_module *module, const ons_view *like, ons_library library, ons_dtype dtype,
                   ons_view *view) {
    if (library != ONS_TORCH) return new_numpy(module, like, dtype, view);
    PyObject *name = PyUnicode_FromString(ons_dtype_name(dtype));
    PyObject *request = name ? PyTuple_Pack(2, PyTuple_GET_ITEM(like->owner, 1), name) : NULL;
    PyObject *tensor = request ? call_library(module, "torch_result", request) : NULL;
    int status = tensor ? ons_view_dlpack(tensor, view) : -1;
    if (status == 0) {
        Py_SETREF(view->owner, PyTuple_Pack(2, view->owner, tensor));
        if (!view->owner) status = -1;
    }
    Py_XDECREF(name);
    Py_XDECREF(request);
    Py_XDECREF(tensor);
    return status;
}

PyObject *ons_hand_over(ons_module *module, ons_library library, ons_view *view) {
    PyObject *owner = view->owner, *result = NULL;
    view->owner = NULL;
    if (library == ONS_NUMPY) return owner;
    if (library == ONS_JAX) {
        result = call_library(module, "jax_result", owner);
    } else {
        result = PyTuple_GET_ITEM(owner, 1);
        Py_INCREF(result);
    }
    Py_DECREF(owner);
    return result;
}
