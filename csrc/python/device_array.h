/* device_array.h - the struct of onsoftmax.DeviceArray. */
#ifndef ONS_PYTHON_DEVICE_ARRAY_H
#define ONS_PYTHON_DEVICE_ARRAY_H

#include "views.h"

/* An array in memory of our own on a GPU, in C order. It is written and freed in the order of one
 * stream. A consumer of DLPack has a reference with the capsule. When the capsule goes, the array's
 * stream waits for the consumer's stream. */
typedef struct {
    PyObject_HEAD char *memory;
    ons_dtype dtype;
    int gpu;
    void *stream;
    PyObject *stream_owner; /* keeps the stream alive; or NULL */
    PyObject *held;         /* capsules of the arrays from which it was computed; or NULL */
    int ndim;
    int64_t bytes;
    int64_t shape[ONS_MAX_DIMS];
} ons_device_array;

/* device_array.c has the type, device_export.c its methods. */
extern PyType_Spec ons_device_array_spec;
extern PyMethodDef ons_device_array_methods[];
/* Whether the interpreter is gone or going: then do not touch Python or CUDA. */
bool ons_python_is_gone(void);
PyObject *ons_cuda_array_interface(PyObject *self, void *unused);
#endif
