/* gpu.c - arrays on a GPU, and the exceptions for CUDA's errors. */
#include "views.h"

#include <string.h>

/* Values of cudaError_t: this folder includes no header of CUDA. */
enum { CUDA_OUT_OF_MEMORY = 2, CUDA_NO_DRIVER = 35, CUDA_NO_GPU = 100 };

void ons_set_gpu_error(ons_status status) {
    switch ((int)status) {
    case ONS_E_NO_CUDA:
        PyErr_SetString(
            PyExc_RuntimeError,
            "got a CUDA array, but this build of onsoftmax has no CUDA: move the array to "
            "the CPU, or build onsoftmax anew with an nvcc, " ONS_TO_HAVE_CUDA);
        break;
    case CUDA_NO_DRIVER:
        PyErr_Format(PyExc_RuntimeError,
                     "got a CUDA array, but this machine has no NVIDIA driver that CUDA can use "
                     "(%s): install or update the driver, or move the array to the CPU",
                     ons_status_text(status));
        break;
    case CUDA_NO_GPU:
        PyErr_Format(PyExc_RuntimeError,
                     "got a CUDA array, but this process sees no GPU (%s): look at nvidia-smi and "
                     "CUDA_VISIBLE_DEVICES, or move the array to the CPU",
                     ons_status_text(status));
        break;
    case CUDA_OUT_OF_MEMORY:
        PyErr_Format(PyExc_MemoryError, "the GPU's memory is full: CUDA says %s",
                     ons_status_text(status));
        break;
    default:
        if (status > 0)
            PyErr_Format(PyExc_RuntimeError, "CUDA error %d: %s", (int)status,
                         ons_status_text(status));
        else
            PyErr_Format(PyExc_SystemError, "internal error %d: %s", (int)status,
                         ons_status_text(status));
    }
}

int ons_check_gpu(ons_module *module, int gpu) {
    if (module->gpus == 0) {
        int count;
        ons_status status = ons_gpu_count(&count);
        if (status == ONS_OK && count == 0) status = (ons_status)CUDA_NO_GPU;
        if (status != ONS_OK) {
            ons_set_gpu_error(status);
            return -1;
        }
        module->gpus = count;
    }
    if (gpu >= 0 && gpu < module->gpus) return 0;
    PyErr_Format(PyExc_ValueError, "got an array on cuda:%d: CUDA shows this process %d GPUs", gpu,
                 module->gpus);
    return -1;
}

PyObject *ons_device_text(const ons_view *view) {
    return view->device == ONS_CPU ? PyUnicode_FromString("the CPU")
                                   : PyUnicode_FromFormat("cuda:%d", view->gpu);
}

int ons_check_same_device(const char *name, const ons_view *view, const ons_view *x) {
    if (view->device == x->device && (x->device == ONS_CPU || view->gpu == x->gpu)) return 0;
    PyObject *here = ons_device_text(view), *there = ons_device_text(x);
    if (here && there)
        PyErr_Format(PyExc_ValueError, "%s is on %U, but the array is on %U: expected one device",
                     name, here, there);
    Py_XDECREF(here);
    Py_XDECREF(there);
    return -1;
}

static int dtype_named(PyObject *name, ons_role role, ons_dtype *dtype) {
    int last = role == ONS_WHERE ? ONS_BOOL : role == ONS_INDICES ? ONS_INT64 : ONS_FLOAT64;
    for (int i = ONS_FLOAT16; i <= last; i++)
        if (PyUnicode_CompareWithASCIIString(name, ons_dtype_name((ons_dtype)i)) == 0) {
            *dtype = (ons_dtype)i;
            return 0;
        }
    PyErr_Format(PyExc_TypeError, "dtype %U is not supported: expected %s", name,
                 role == ONS_WHERE ? "a mask of bool" : "float16, bfloat16, float32 or float64");
    return -1;
}

int ons_check_alignment(const char *name, const ons_view *view) {
    int64_t size = ons_dtype_size(view->dtype);
    int64_t address_bits = (int64_t)(uintptr_t)view->data; /* the size is a power of two */
    bool empty = false;
    for (int i = 0; i < view->ndim; i++) {
        empty |= view->shape[i] == 0;
        if (view->shape[i] > 1) address_bits |= view->strides[i];
    }
    if ((address_bits & (size - 1)) == 0 || empty) return 0;
    PyErr_Format(PyExc_ValueError,
                 "%s is not aligned: on a GPU its address and strides must be multiples of its "
                 "%lld-byte elements; pass a copy",
                 name, (long long)size);
    return -1;
}

int ons_check_lengths(const ons_view *view) {
    for (int i = 0; i < view->ndim; i++)
        if (view->shape[i] < 0) {
            PyErr_Format(PyExc_ValueError, "dimension %d has length %lld: expected at least 0", i,
                         (long long)view->shape[i]);
            return -1;
        }
    return 0;
}

/* The GPU of an address, if its producer names none; GPU 0 for an empty array. */
static int find_gpu(ons_module *module, ons_view *view) {
    view->gpu = 0;
    if (!view->data) return 0;
    if (ons_check_gpu(module, 0) < 0) return -1;
    ons_status status = ons_gpu_of(view->data, &view->gpu);
    if (status == ONS_OK && view->gpu >= 0) return 0;
    if (status == ONS_OK)
        PyErr_SetString(PyExc_ValueError,
                        "__cuda_array_interface__ shows memory that is not on a GPU");
    else
        ons_set_gpu_error(status);
    return -1;
}

int ons_view_described(ons_module *module, PyObject *description, ons_role role, ons_view *view) {
    PyObject *array, *address, *shape, *strides, *dtype, *stream, *stream_owner;
    int readonly;
    if (!PyArg_ParseTuple(description, "OOO!OUpiOO", &array, &address, &PyTuple_Type, &shape,
                          &strides, &dtype, &readonly, &view->gpu, &stream, &stream_owner))
        return -1;
    view->device = ONS_CUDA;
    view->readonly = readonly;
    view->data = PyLong_AsVoidPtr(address);
    if (view->gpu == ONS_UNKNOWN_GPU && find_gpu(module, view) < 0) return -1;
    if (ons_check_gpu(module, view->gpu) < 0 || dtype_named(dtype, role, &view->dtype) < 0)
        return -1;
    if (stream != Py_None) view->stream = PyLong_AsVoidPtr(stream);
    if (view->stream == (void *)1)
        view->stream = NULL; /* CUDA's handle of the legacy default
                              * stream */
    view->ndim = (int)PyTuple_GET_SIZE(shape);
    if (PyTuple_GET_SIZE(shape) > ONS_MAX_DIMS ||
        (strides != Py_None &&
         (!PyTuple_Check(strides) || PyTuple_GET_SIZE(strides) != view->ndim))) {
        PyErr_Format(PyExc_ValueError,
                     "array has shape %R and strides %R: expected a stride for each dimension, and "
                     "at most %d dimensions",
                     shape, strides, ONS_MAX_DIMS);
        return -1;
    }
    int64_t c_stride = ons_dtype_size(view->dtype);
    for (int i = view->ndim - 1; i >= 0; i--) {
        view->shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
        view->strides[i] =
            strides == Py_None ? c_stride : PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i));
        c_stride *= view->shape[i];
    }
    if (PyErr_Occurred() || ons_check_lengths(view) < 0) return -1;
    if (!view->data && c_stride != 0) {
        PyErr_SetString(PyExc_BufferError, "the array has elements, but no data");
        return -1;
    }
    Py_INCREF(array);
    view->owner = array;
    Py_INCREF(stream_owner);
    view->stream_owner = stream_owner;
    return 0;
}

int ons_order(int gpu, void *first, void *then) {
    if (first == then) return 0;
    ons_status status = ons_gpu_order(gpu, first, then);
    if (status == ONS_OK) return 0;
    ons_set_gpu_error(status);
    return -1;
}
