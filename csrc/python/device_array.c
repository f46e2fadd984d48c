/* device_array.c - onsoftmax.DeviceArray: the result for a GPU array of a library that onsoftmax
 * does not know. A JAX array is also made from a DeviceArray. Its memory is allocated, written and
 * freed in the order of one stream, so nothing waits. A consumer of DLPack names a stream. The
 * memory is freed after the work that was on this stream at that time.
 *
 * A library that lends an array by DLPack guarantees its memory as long as we hold the capsule, and
 * knows nothing of our stream. So the result keeps the capsule: whoever reads the result has waited
 * for the kernel that wrote it. Whoever drops it unread does not care about its contents. */
#include "device_array.h"

bool ons_python_is_gone(void) { return !Py_IsInitialized() || ons_is_finalizing(); }

PyObject *ons_new_device_array(ons_module *module, int gpu, void *stream, ons_dtype dtype, int ndim,
                               const int64_t *shape) {
    int64_t bytes = ons_dtype_size(dtype);
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(bytes, shape[i], &bytes)) return PyErr_NoMemory();
    PyTypeObject *type = (PyTypeObject *)module->device_array;
    ons_device_array *array = (ons_device_array *)PyType_GenericAlloc(type, 0);
    if (!array) return NULL;
    void *memory;
    ons_status status = ons_gpu_allocate(gpu, stream, bytes, &memory);
    if (status != ONS_OK) {
        ons_set_gpu_error(status);
        Py_DECREF(array);
        return NULL;
    }
    array->memory = memory;
    array->dtype = dtype;
    array->gpu = gpu;
    array->stream = stream;
    array->ndim = ndim;
    array->bytes = bytes;
    for (int i = 0; i < ndim; i++) array->shape[i] = shape[i];
    return (PyObject *)array;
}

void ons_view_device_array(PyObject *object, ons_view *view) {
    ons_device_array *array = (ons_device_array *)object;
    view->data = array->memory;
    view->dtype = array->dtype;
    view->device = ONS_CUDA;
    view->gpu = array->gpu;
    view->stream = array->stream;
    view->readonly = false;
    view->ndim = array->ndim;
    int64_t stride = ons_dtype_size(array->dtype);
    for (int i = array->ndim - 1; i >= 0; i--) {
        view->shape[i] = array->shape[i];
        view->strides[i] = stride;
        stride *= array->shape[i];
    }
    Py_INCREF(object);
    view->owner = object;
    Py_XINCREF(array->stream_owner);
    view->stream_owner = array->stream_owner;
}

int ons_device_array_keep(ons_module *module, PyObject *object, PyObject *stream_owner,
                          const ons_view *const from[], int count) {
    if (!Py_IS_TYPE(object, (PyTypeObject *)module->device_array)) return 0;
    ons_device_array *array = (ons_device_array *)object;
    PyObject *held = PyList_New(0);
    for (int i = 0; held && i < count; i++)
        if (from[i]->held && PyList_Append(held, from[i]->held) < 0) Py_CLEAR(held);
    if (!held) return -1;
    ONS_LOCKED(array);
    Py_XSETREF(array->held, held);
    if (stream_owner && !array->stream_owner) {
        Py_INCREF(stream_owner);
        array->stream_owner = stream_owner;
    }
    ONS_UNLOCKED();
    return 0;
}
