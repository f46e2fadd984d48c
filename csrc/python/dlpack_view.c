/* dlpack_view.c - looks at an array that its library hands over by DLPack. */
#include "views.h"

#include "dlpack_abi.h"

static const char LEGACY[] = "dltensor", VERSIONED[] = "dltensor_versioned";
static const char HELD[] = "onsoftmax_dlpack";

/* The capsule that keeps a consumed tensor: frees it the way its producer asks. */
static void release_legacy(PyObject *capsule) {
    dlpack_managed *managed = PyCapsule_GetPointer(capsule, HELD);
    if (managed->deleter) managed->deleter(managed);
}

static void release_versioned(PyObject *capsule) {
    dlpack_managed_versioned *managed = PyCapsule_GetPointer(capsule, HELD);
    if (managed->deleter) managed->deleter(managed);
}

/* array.__dlpack__(max_version=(1, 3)), and as it was before versions where that is not understood.
 */
static PyObject *capsule_of(PyObject *array) {
    PyObject *capsule = NULL, *method = PyObject_GetAttrString(array, "__dlpack__");
    PyObject *none = PyTuple_New(0), *keywords = Py_BuildValue("{s:(ii)}", "max_version", 1, 3);
    if (method && none && keywords) {
        capsule = PyObject_Call(method, none, keywords);
        if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            capsule = PyObject_CallNoArgs(method);
        }
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(keywords);
    return capsule;
}

/* NumPy's number for an integer type or bool, -1 for any other. */
static int count_type(dlpack_dtype given) {
    static const int ints[] = {NPY_INT8, NPY_INT16, NPY_INT32, NPY_INT64};
    static const int uints[] = {NPY_UINT8, NPY_UINT16, NPY_UINT32, NPY_UINT64};
    int width = given.bits == 8    ? 0
                : given.bits == 16 ? 1
                : given.bits == 32 ? 2
                : given.bits == 64 ? 3
                                   : -1;
    if (given.lanes != 1 || width < 0) return -1;
    if (given.code == DLPACK_BOOL) return width == 0 ? NPY_BOOL : -1;
    return given.code == DLPACK_INT ? ints[width] : given.code == DLPACK_UINT ? uints[width] : -1;
}

/* Puts the integers that the view shows as float64 in its place. */
static int float_counts(ons_module *module, int type, ons_view *view) {
    npy_intp shape[ONS_MAX_DIMS], strides[ONS_MAX_DIMS];
    for (int i = 0; i < view->ndim; i++) {
        shape[i] = (npy_intp)view->shape[i];
        strides[i] = (npy_intp)view->strides[i];
    }
    PyObject *shown =
        PyArray_New(&PyArray_Type, view->ndim, shape, type, strides, view->data, 0, 0, NULL);
    PyArrayObject *floating = shown ? ons_numpy_floating(module, (PyArrayObject *)shown) : NULL;
    PyObject *held = view->owner;
    int status = floating ? ons_view_numpy(module, floating, view) : -1;
    if (status == 0) Py_DECREF(held);
    Py_XDECREF(shown);
    Py_XDECREF(floating);
    return status;
}

static int dtype_of(dlpack_dtype given, ons_dtype *dtype) {
    if (given.lanes == 1 && given.code == DLPACK_FLOAT && given.bits == 16)
        *dtype = ONS_FLOAT16;
    else if (given.lanes == 1 && given.code == DLPACK_FLOAT && given.bits == 32)
        *dtype = ONS_FLOAT32;
    else if (given.lanes == 1 && given.code == DLPACK_FLOAT && given.bits == 64)
        *dtype = ONS_FLOAT64;
    else if (given.lanes == 1 && given.code == DLPACK_BFLOAT && given.bits == 16)
        *dtype = ONS_BFLOAT16;
    else {
        PyErr_Format(PyExc_TypeError,
                     "DLPack type with code %d, %d bits and %d lanes is not supported: "
                     "expected float16, bfloat16, float32 or float64",
                     given.code, given.bits, given.lanes);
        return -1;
    }
    return 0;
}

static int fill(ons_module *module, const dlpack_tensor *tensor, ons_view *view) {
    if (tensor->device.type == DLPACK_CUDA || tensor->device.type == DLPACK_CUDA_MANAGED) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "got a CUDA array, but this build of onsoftmax has no CUDA: move the array to the CPU");
        return -1;
    }
    if (tensor->device.type != DLPACK_CPU && tensor->device.type != DLPACK_CUDA_HOST) {
        PyErr_Format(PyExc_BufferError,
                     "DLPack device type %d is not supported: expected the CPU (1)",
                     tensor->device.type);
        return -1;
    }
    if (tensor->ndim < 0 || tensor->ndim > ONS_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "array has %d dimensions: at most %d are supported",
                     tensor->ndim, ONS_MAX_DIMS);
        return -1;
    }
    int counts = count_type(tensor->dtype);
    if (counts < 0 || !module)
        if (dtype_of(tensor->dtype, &view->dtype) < 0) return -1;
    view->ndim = tensor->ndim;
    view->data = (char *)tensor->data + tensor->byte_offset;
    int64_t size = tensor->dtype.bits / 8, c_stride = size;
    for (int i = view->ndim - 1; i >= 0; i--) {
        view->shape[i] = tensor->shape[i];
        view->strides[i] = tensor->strides ? tensor->strides[i] * size : c_stride;
        c_stride *= tensor->shape[i];
    }
    if (!tensor->data && c_stride != 0) {
        PyErr_SetString(PyExc_BufferError, "the DLPack capsule has elements, but no data");
        return -1;
    }
    return counts < 0 ? 0 : float_counts(module, counts, view);
}

int ons_view_dlpack(ons_module *module, PyObject *array, ons_view *view) {
    PyObject *capsule = capsule_of(array);
    if (!capsule) return -1;
    int status = -1;
    if (PyCapsule_IsValid(capsule, VERSIONED)) {
        dlpack_managed_versioned *managed = PyCapsule_GetPointer(capsule, VERSIONED);
        if (managed->major != 1) {
            PyErr_Format(PyExc_BufferError, "DLPack version %u.%u is not supported: expected 1.x",
                         (unsigned)managed->major, (unsigned)managed->minor);
            goto done;
        }
        view->owner = PyCapsule_New(managed, HELD, release_versioned);
        if (!view->owner) goto done;
        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        view->readonly = (managed->flags & DLPACK_READ_ONLY) != 0;
        status = fill(module, &managed->tensor, view);
    } else if (PyCapsule_IsValid(capsule, LEGACY)) {
        dlpack_managed *managed = PyCapsule_GetPointer(capsule, LEGACY);
        view->owner = PyCapsule_New(managed, HELD, release_legacy);
        if (!view->owner) goto done;
        PyCapsule_SetName(capsule, "used_dltensor");
        view->readonly = false;
        status = fill(module, &managed->tensor, view);
    } else {
        PyErr_Format(PyExc_BufferError,
                     "__dlpack__ of %R gave no DLPack capsule that is still to be used",
                     (PyObject *)Py_TYPE(array));
    }
    if (status < 0) Py_CLEAR(view->owner);
done:
    Py_DECREF(capsule);
    return status;
}
