/* operands.c - where=, scale= and dtype= of a call. */
#include "views.h"

static bool is_on_host(PyObject *object) {
    return PyArray_Check(object) || PyBool_Check(object) || ons_is_plain(object);
}

/* A mask or a scale on the CPU as a NumPy array; ValueError if it is on a GPU. */
static PyObject *host_array(const ons_caller *caller, PyObject *object, ons_role role) {
    const char *name = role == ONS_WHERE ? "where" : "scale";
    if (ons_check_list(caller->module, object) < 0) return NULL;
    PyObject *array = is_on_host(object)
                          ? PyArray_FromAny(object, NULL, 0, 0, 0, NULL)
                          : ons_call_library(caller->module, "on_host", "(Oi)", object, (int)role);
    if (!array) return NULL;
    int refused = 0;
    if (PyTuple_Check(array)) {
        refused = ons_leave_by_operator(caller, array);
    } else if (!PyArray_Check(array)) {
        PyObject *type = ons_type_name(object);
        if (type)
            PyErr_Format(PyExc_TypeError,
                         "%s is of type %U, which gives %R: expected a NumPy array", name, type,
                         array);
        Py_XDECREF(type);
        refused = -1;
    } else {
        refused = ons_refuse_masked(caller->module, name, array);
    }
    if (refused < 0) Py_CLEAR(array);
    return array;
}

/* TypeError for a mask or a scale on the CPU whose elements have another type. */
static void refuse_elements(ons_module *module, const char *name, PyObject *object, PyObject *array,
                            const char *expected) {
    const bool is_array = PyObject_HasAttrString(object, "__array__");
    PyObject *text = NULL;
    if (is_array || !ons_holds_no_numbers((PyArrayObject *)array))
        PyErr_Format(PyExc_TypeError, "%s has dtype %S: expected %s", name,
                     (PyObject *)PyArray_DESCR((PyArrayObject *)array), expected);
    else if ((text = ons_call_library(module, "refused_value", "(Os)", object, expected)))
        PyErr_Format(PyExc_TypeError, "%s: got %U", name, text);
    Py_XDECREF(text);
}

/* A mask or a scale for an array on a GPU. Returns 1 if it was taken, 0 if it is on the CPU. */
static int take_on_gpu(const ons_caller *caller, PyObject *object, ons_role role, ons_view *view) {
    ons_library library;
    if (is_on_host(object)) return 0;
    if (ons_take(caller, object, role, view, &library) < 0) return -1;
    if (view->device == ONS_CUDA) return 1;
    ons_release_view(view);
    return 0;
}

static int refuse_host(const char *name, const ons_view *x) {
    ons_view host = {.device = ONS_CPU};
    return ons_check_same_device(name, &host, x);
}

int ons_take_mask(const ons_caller *caller, PyObject *object, const ons_view *x, ons_view *view) {
    if (x->device == ONS_CUDA) {
        if (object == Py_True) return 0;
        int taken = take_on_gpu(caller, object, ONS_WHERE, view);
        if (taken < 0) return -1;
        if (taken == 0) return refuse_host("where", x);
        if (view->dtype == ONS_BOOL) return 0;
        PyErr_Format(PyExc_TypeError, "where has dtype %s: expected a mask of bool",
                     ons_dtype_name(view->dtype));
        return -1;
    }
    PyObject *array = host_array(caller, object, ONS_WHERE);
    if (!array) return -1;
    int status = -1;
    if (PyArray_TYPE((PyArrayObject *)array) != NPY_BOOL)
        refuse_elements(caller->module, "where", object, array, "a mask of bool");
    else
        status = ons_view_numpy(caller->module, (PyArrayObject *)array, view);
    Py_DECREF(array);
    return status;
}

int ons_take_scale(const ons_caller *caller, PyObject *object, const ons_view *x, ons_view *view,
                   double *number) {
    ons_module *module = caller->module;
    if (PyFloat_CheckExact(object) || PyLong_CheckExact(object)) {
        *number = PyFloat_AsDouble(object);
        if (*number != -1.0 || !PyErr_Occurred()) return 0;
        PyErr_SetString(PyExc_ValueError,
                        "scale is an int that is too large for a float64: expected at most 1.8e308 "
                        "in size");
        return -1;
    }
    if (x->device == ONS_CUDA) {
        int taken = take_on_gpu(caller, object, ONS_SCALE, view);
        if (taken != 0) return taken < 0 ? -1 : 0;
    }
    PyObject *array = host_array(caller, object, ONS_SCALE), *floating = NULL;
    if (!array) return -1;
    int status = -1;
    floating = (PyObject *)ons_numpy_floating(module, (PyArrayObject *)array);
    if (!floating) {
        PyErr_Clear();
        refuse_elements(module, "scale", object, array, "a real number, or an array of them");
        goto done;
    }
    Py_SETREF(floating, PyArray_Cast((PyArrayObject *)floating, NPY_DOUBLE));
    if (!floating) goto done;
    if (PyArray_NDIM((PyArrayObject *)floating) == 0) {
        *number = *(double *)PyArray_DATA((PyArrayObject *)floating);
        status = 0;
    } else if (x->device == ONS_CUDA) {
        status = refuse_host("scale", x);
    } else {
        status = ons_view_numpy(module, (PyArrayObject *)floating, view);
    }
done:
    Py_DECREF(array);
    Py_XDECREF(floating);
    return status;
}

static bool has_name(PyObject *name, ons_dtype *dtype) {
    for (int i = ONS_FLOAT16; i <= ONS_FLOAT64; i++)
        if (PyUnicode_CompareWithASCIIString(name, ons_dtype_name((ons_dtype)i)) == 0) {
            *dtype = (ons_dtype)i;
            return true;
        }
    return false;
}

/* Whether an object is NumPy's dtype, or the type of its scalars. This is faster than a call of
 * Python. */
static bool is_of_numpy(ons_module *module, PyObject *object, ons_dtype *dtype) {
    PyArray_Descr *descr = NULL;
    if (PyArray_DescrCheck(object))
        descr = (PyArray_Descr *)Py_NewRef(object);
    else if (PyType_Check(object) &&
             PyType_IsSubtype((PyTypeObject *)object, &PyGenericArrType_Type))
        descr = PyArray_DescrFromTypeObject(object);
    bool is = descr && ons_dtype_of_numpy(module, descr, dtype) == 0 && *dtype != ONS_BOOL;
    Py_XDECREF(descr);
    PyErr_Clear();
    return is;
}

int ons_take_dtype(ons_module *module, PyObject *object, ons_dtype *dtype) {
    if (!object || object == Py_None) return 0;
    for (int i = ONS_FLOAT16; module->torch.dtypes && i <= ONS_FLOAT64; i++)
        if (object == PyTuple_GET_ITEM(module->torch.dtypes, i)) {
            *dtype = (ons_dtype)i;
            return 1;
        }
    if (is_of_numpy(module, object, dtype)) return 1;
    if (PyUnicode_Check(object) && has_name(object, dtype)) return 1;
    PyObject *name = ons_call_library(module, "dtype_name", "(O)", object);
    if (!name) return -1;
    bool known = PyUnicode_Check(name) && has_name(name, dtype);
    if (!known)
        PyErr_Format(PyExc_TypeError, "dtype is %S: expected float16, bfloat16, float32 or float64",
                     name);
    Py_DECREF(name);
    return known ? 1 : -1;
}
