/* device_export.c - exports a DeviceArray: DLPack, CUDA Array Interface, a copy. */
#include "device_array.h"

#include <stdlib.h>

/* The content of a capsule: one of the two headers, and the lengths to which it points. */
typedef struct {
    union {
        dlpack_managed legacy;
        dlpack_managed_versioned versioned;
    } header;
    PyObject *array;
    bool is_read; /* by `reader`, a stream that lives as long as the reader */
    void *reader;
    int64_t shape[ONS_MAX_DIMS], strides[ONS_MAX_DIMS];
} exported;

/* The consumer may call it from any thread, at any time. */
static void drop(exported *self) {
    if (ons_python_is_gone()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    const ons_device_array *array = (ons_device_array *)self->array;
    if (self->is_read) (void)ons_gpu_order(array->gpu, self->reader, array->stream);
    Py_DECREF(self->array);
    PyGILState_Release(state);
    free(self);
}

static void drop_legacy(dlpack_managed *managed) { drop(managed->manager); }
static void drop_versioned(dlpack_managed_versioned *managed) { drop(managed->manager); }

/* The destructor of a capsule that nobody took. */
static void unclaimed(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, DLPACK_LEGACY))
        drop(((dlpack_managed *)PyCapsule_GetPointer(capsule, DLPACK_LEGACY))->manager);
    else if (PyCapsule_IsValid(capsule, DLPACK_VERSIONED))
        drop(
            ((dlpack_managed_versioned *)PyCapsule_GetPointer(capsule, DLPACK_VERSIONED))->manager);
}

static dlpack_tensor tensor_of(exported *self, const ons_device_array *array) {
    int64_t size = ons_dtype_size(array->dtype), stride = 1;
    for (int i = array->ndim - 1; i >= 0; i--) {
        self->shape[i] = array->shape[i];
        self->strides[i] = stride;
        stride *= array->shape[i];
    }
    uint8_t code = array->dtype == ONS_BFLOAT16  ? DLPACK_BFLOAT
                   : array->dtype <= ONS_FLOAT64 ? DLPACK_FLOAT
                   : array->dtype == ONS_BOOL    ? DLPACK_BOOL
                                                 : DLPACK_INT;
    return (dlpack_tensor){.data = array->memory,
                           .device = {DLPACK_CUDA, array->gpu},
                           .ndim = array->ndim,
                           .dtype = {code, (uint8_t)(8 * size), 1},
                           .shape = self->shape,
                           .strides = self->strides};
}

static PyObject *capsule_of(ons_device_array *array, bool versioned, bool copied, bool is_read,
                            void *reader) {
    exported *self = malloc(sizeof *self);
    if (!self) return PyErr_NoMemory();
    if (versioned)
        self->header.versioned = (dlpack_managed_versioned){.major = 1,
                                                            .minor = 0,
                                                            .manager = self,
                                                            .deleter = drop_versioned,
                                                            .flags = copied ? DLPACK_COPIED : 0,
                                                            .tensor = tensor_of(self, array)};
    else
        self->header.legacy = (dlpack_managed){
            .tensor = tensor_of(self, array), .manager = self, .deleter = drop_legacy};
    PyObject *capsule =
        PyCapsule_New(&self->header, versioned ? DLPACK_VERSIONED : DLPACK_LEGACY, unclaimed);
    if (!capsule) {
        free(self);
        return NULL;
    }
    Py_INCREF(array);
    self->array = (PyObject *)array;
    self->is_read = is_read;
    self->reader = reader;
    return capsule;
}

/* stream= of __dlpack__. *given is false if the consumer wants no order (-1). */
static int take_consumer(PyObject *object, void **stream, bool *given) {
    *stream = NULL;
    *given = true;
    if (!object || object == Py_None) return 0;
    if (PyLong_Check(object)) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (number == -1 && overflow == 0) {
            *given = false;
            return 0;
        }
        if (number == 0 && overflow == 0) {
            PyErr_SetString(PyExc_ValueError,
                            "stream is 0, which is ambiguous for DLPack: expected 1 for the legacy "
                            "default stream, 2 for the per-thread one, or a handle");
            return -1;
        }
    }
    return ons_take_stream(object, stream);
}

static int check_device(const ons_device_array *array, PyObject *device) {
    int type, number;
    if (!device || device == Py_None) return 0;
    PyObject *pair = PySequence_Tuple(device);
    bool taken = pair && PyArg_ParseTuple(pair, "ii", &type, &number);
    Py_XDECREF(pair);
    if (!taken) return -1;
    if (type == DLPACK_CUDA && number == array->gpu) return 0;
    PyErr_Format(PyExc_BufferError,
                 "dl_device is %R, and the array is on cuda:%d: expected (2, %d) or None; "
                 "copy_to_host() gives a NumPy array",
                 device, array->gpu, array->gpu);
    return -1;
}

static int wants_version(PyObject *version, bool *versioned) {
    int major, minor;
    *versioned = false;
    if (!version || version == Py_None) return 0;
    PyObject *pair = PySequence_Tuple(version);
    bool taken = pair && PyArg_ParseTuple(pair, "ii", &major, &minor);
    Py_XDECREF(pair);
    if (!taken) return -1;
    *versioned = major >= 1;
    return 0;
}

/* A copy in memory of its own, in the order of the same stream. */
static PyObject *copy_of(ons_module *module, ons_device_array *array) {
    PyObject *copy = ons_new_device_array(module, array->gpu, array->stream, array->dtype,
                                          array->ndim, array->shape);
    if (!copy) return NULL;
    ons_device_array *made = (ons_device_array *)copy;
    Py_XINCREF(array->stream_owner);
    made->stream_owner = array->stream_owner;
    ons_status status =
        ons_gpu_copy(array->gpu, array->stream, made->memory, array->memory, array->bytes);
    if (status != ONS_OK) {
        ons_set_gpu_error(status);
        Py_CLEAR(copy);
    }
    return copy;
}

static PyObject *dlpack(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = NULL, *version = NULL, *device = NULL, *copy = NULL;
    ons_device_array *array = (ons_device_array *)self;
    void *consumer;
    bool ordered, versioned;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O$OOO:__dlpack__", names, &stream, &version,
                                     &device, &copy))
        return NULL;
    if (check_device(array, device) < 0 || wants_version(version, &versioned) < 0 ||
        take_consumer(stream, &consumer, &ordered) < 0)
        return NULL;
    int copies = copy && copy != Py_None ? PyObject_IsTrue(copy) : 0;
    if (copies < 0) return NULL;
    PyObject *lent = copies ? copy_of(PyType_GetModuleState(Py_TYPE(self)), array) : self;
    if (!lent) return NULL;
    if (!copies) Py_INCREF(lent);
    PyObject *capsule = NULL;
    array = (ons_device_array *)lent;
    if (!ordered || ons_order(array->gpu, array->stream, consumer) == 0)
        capsule = capsule_of(array, versioned, copies, ordered, consumer);
    Py_DECREF(lent);
    return capsule;
}

static PyObject *device_pair(PyObject *self, PyObject *Py_UNUSED(none)) {
    return Py_BuildValue("(ii)", DLPACK_CUDA, ((ons_device_array *)self)->gpu);
}

PyObject *ons_cuda_array_interface(PyObject *self, void *Py_UNUSED(unused)) {
    const ons_device_array *array = (ons_device_array *)self;
    static const char *const types[] = {"<f2", NULL, "<f4", "<f8", "|b1", "<i4", "<i8"};
    if (!types[array->dtype]) {
        PyErr_SetString(PyExc_AttributeError,
                        "__cuda_array_interface__: it has no name for bfloat16; use DLPack");
        return NULL;
    }
    PyObject *shape = PyObject_GetAttrString(self, "shape");
    PyObject *stream = array->stream ? PyLong_FromVoidPtr(array->stream) : PyLong_FromLong(1);
    PyObject *address = PyLong_FromVoidPtr(array->bytes ? array->memory : NULL);
    PyObject *result = NULL;
    if (shape && stream && address)
        result = Py_BuildValue("{s:O,s:s,s:(OO),s:O,s:i,s:O}", "shape", shape, "typestr",
                               types[array->dtype], "data", address, Py_False, "strides", Py_None,
                               "version", 3, "stream", stream);
    Py_XDECREF(shape);
    Py_XDECREF(stream);
    Py_XDECREF(address);
    return result;
}

static PyObject *copy_to_host(PyObject *self, PyObject *Py_UNUSED(none)) {
    ons_device_array *array = (ons_device_array *)self;
    npy_intp shape[ONS_MAX_DIMS];
    for (int i = 0; i < array->ndim; i++) shape[i] = (npy_intp)array->shape[i];
    PyArray_Descr *descr = ons_numpy_dtype(PyType_GetModuleState(Py_TYPE(self)), array->dtype);
    if (!descr) return NULL;
    PyObject *host =
        PyArray_NewFromDescr(&PyArray_Type, descr, array->ndim, shape, NULL, NULL, 0, NULL);
    if (!host) return NULL;
    void *to = PyArray_DATA((PyArrayObject *)host);
    ons_status status;
    Py_BEGIN_ALLOW_THREADS status =
        ons_gpu_copy(array->gpu, array->stream, to, array->memory, array->bytes);
    if (status == ONS_OK) status = ons_gpu_wait(array->gpu, array->stream);
    Py_END_ALLOW_THREADS if (status != ONS_OK) {
        ons_set_gpu_error(status);
        Py_CLEAR(host);
    }
    return host;
}

static PyObject *no_array(PyObject *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(names)) {
    PyErr_Format(PyExc_TypeError, "%R is on a GPU: copy_to_host() makes a NumPy array of it", self);
    return NULL;
}

PyDoc_STRVAR(
    dlpack_doc,
    "__dlpack__($self, stream=None, *, max_version=None, dl_device=None, copy=None)\n--\n\n"
    "A DLPack capsule, as in the array API standard. Work that comes later on stream sees the\n"
    "contents of the array.");
PyDoc_STRVAR(device_doc,
             "__dlpack_device__($self, /)\n--\n\n(2, n): CUDA, and the number of the GPU.");
PyDoc_STRVAR(copy_doc,
             "copy_to_host($self, /)\n--\n\n"
             "Waits for the GPU and returns a NumPy array with the same elements. bfloat16 needs\n"
             "ml_dtypes.");

PyMethodDef ons_device_array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))dlpack, METH_VARARGS | METH_KEYWORDS, dlpack_doc},
    {"__dlpack_device__", device_pair, METH_NOARGS, device_doc},
    {"copy_to_host", copy_to_host, METH_NOARGS, copy_doc},
    {"__array__", (PyCFunction)(void (*)(void))no_array, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};
