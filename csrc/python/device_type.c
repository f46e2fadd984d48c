/* device_type.c - the type DeviceArray as Python sees it. */
#include "device_array.h"

#include <structmember.h>

/* At the end of the process the driver frees all memory, and may be gone already. */
static void dealloc(ons_device_array *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (self->memory && !ons_python_is_gone())
        (void)ons_gpu_free(self->gpu, self->stream, self->memory);
    Py_XDECREF(self->held);
    Py_XDECREF(self->stream_owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* The shape, or with `strides` the bytes between elements of each dimension. */
static PyObject *lengths(const ons_device_array *self, bool strides) {
    PyObject *tuple = PyTuple_New(self->ndim);
    int64_t stride = ons_dtype_size(self->dtype);
    for (int i = self->ndim - 1; tuple && i >= 0; i--) {
        PyObject *item = PyLong_FromLongLong(strides ? stride : self->shape[i]);
        if (!item)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, item);
        stride *= self->shape[i];
    }
    return tuple;
}

static PyObject *get_shape(PyObject *self, void *Py_UNUSED(unused)) {
    return lengths((ons_device_array *)self, false);
}

static PyObject *get_strides(PyObject *self, void *Py_UNUSED(unused)) {
    return lengths((ons_device_array *)self, true);
}

static PyObject *get_dtype(PyObject *self, void *Py_UNUSED(unused)) {
    return PyUnicode_FromString(ons_dtype_name(((ons_device_array *)self)->dtype));
}

static PyObject *get_device(PyObject *self, void *Py_UNUSED(unused)) {
    return PyUnicode_FromFormat("cuda:%d", ((ons_device_array *)self)->gpu);
}

static PyObject *get_stream(PyObject *self, void *Py_UNUSED(unused)) {
    return PyLong_FromVoidPtr(((ons_device_array *)self)->stream);
}

static PyObject *get_size(PyObject *self, void *Py_UNUSED(unused)) {
    const ons_device_array *array = (ons_device_array *)self;
    return PyLong_FromLongLong(array->bytes / ons_dtype_size(array->dtype));
}

static PyObject *repr(PyObject *self) {
    const ons_device_array *array = (ons_device_array *)self;
    PyObject *shape = lengths(array, false), *text = NULL;
    if (shape)
        text = PyUnicode_FromFormat("DeviceArray(shape=%R, dtype=%s, device=cuda:%d)", shape,
                                    ons_dtype_name(array->dtype), array->gpu);
    Py_XDECREF(shape);
    return text;
}

static PyGetSetDef getset[] = {
    {"shape", get_shape, NULL, "Length of each dimension.", NULL},
    {"strides", get_strides, NULL, "Bytes from one element to the next, along each dimension.",
     NULL},
    {"dtype", get_dtype, NULL,
     "Name of the type: float16, bfloat16, float32 or float64, or int64 of indices.", NULL},
    {"device", get_device, NULL, "\"cuda:0\" for the first GPU.", NULL},
    {"stream", get_stream, NULL,
     "CUDA's handle of the stream on which the array is written and freed. 0 is the legacy "
     "default\n"
     "stream.",
     NULL},
    {"size", get_size, NULL, "Number of elements.", NULL},
    {"__cuda_array_interface__", ons_cuda_array_interface, NULL,
     "CUDA Array Interface, version 3. AttributeError for bfloat16, which has no name there.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"ndim", T_INT, offsetof(ons_device_array, ndim), READONLY, "Number of dimensions."},
    {"nbytes", T_LONGLONG, offsetof(ons_device_array, bytes), READONLY, "Bytes of all elements."},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(
    doc,
    "An array on a GPU, in C order. Its memory belongs to onsoftmax.\n\n"
    "softmax returns a DeviceArray for a GPU array of an unknown library. torch, CuPy and JAX\n"
    "arrays give an array of their own library. Other libraries take a DeviceArray by DLPack\n"
    "(torch.from_dlpack, cupy.from_dlpack, jax.dlpack.from_dlpack) or by the CUDA Array\n"
    "Interface (numba). softmax takes it as the array or as out. copy_to_host() makes a NumPy\n"
    "array of it. You cannot make a DeviceArray yourself, pickle it, or copy it with the\n"
    "module copy.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)doc},
    {Py_tp_dealloc, dealloc},
    {Py_tp_repr, repr},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {Py_tp_methods, ons_device_array_methods},
    {0, NULL},
};

PyType_Spec ons_device_array_spec = {
    .name = "onsoftmax.DeviceArray",
    .basicsize = sizeof(ons_device_array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
