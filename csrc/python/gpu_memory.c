/* gpu_memory.c - memory on a GPU besides a call's arrays: scratch and copies. */
#include "device_array.h"

PyObject *ons_gpu_memory(ons_module *module, ons_library library, int gpu, void *stream,
                         int64_t bytes, void **memory) {
    if (library == ONS_TORCH && module->torch.exchange)
        return ons_torch_memory(module, gpu, bytes, memory);
    if (library == ONS_TORCH || library == ONS_CUPY) {
        PyObject *owner = NULL, *address,
                 *given = ons_call_library(module, "memory", "(iiL)", (int)library, gpu,
                                           (long long)bytes);
        if (given && PyArg_ParseTuple(given, "OO", &owner, &address)) {
            *memory = PyLong_AsVoidPtr(address);
            Py_INCREF(owner);
        }
        Py_XDECREF(given);
        return owner;
    }
    PyObject *array = ons_new_device_array(module, gpu, stream, ONS_BOOL, 1, &bytes);
    if (array) *memory = ((ons_device_array *)array)->memory;
    return array;
}

int ons_gpu_copy_view(ons_module *module, ons_library library, void *stream, ons_view *view) {
    uintptr_t low, high;
    void *memory;
    if (!ons_view_bounds(view, &low, &high)) return 0;
    PyObject *owner =
        ons_gpu_memory(module, library, view->gpu, stream, (int64_t)(high - low), &memory);
    if (!owner) return -1;
    ons_status status = ons_gpu_copy(view->gpu, stream, memory, (void *)low, (int64_t)(high - low));
    if (status != ONS_OK) {
        ons_set_gpu_error(status);
        Py_DECREF(owner);
        return -1;
    }
    view->data = (char *)memory + ((uintptr_t)view->data - low);
    Py_CLEAR(view->held);
    Py_SETREF(view->owner, owner);
    return 0;
}
