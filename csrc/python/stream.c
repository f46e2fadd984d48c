/* stream.c - stream= of a call: the ways in which libraries represent a CUDA stream. */
#include "views.h"

/* CUDA's handle of the legacy default stream, in __cuda_stream__ and elsewhere. */
enum { LEGACY_DEFAULT = 1 };

static int take_handle(PyObject *given, PyObject *handle, void **stream) {
    if (!PyLong_Check(handle)) {
        PyErr_Format(PyExc_TypeError, "the stream %R has the handle %R: expected an int", given,
                     handle);
        return -1;
    }
    *stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(handle);
    if (PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "stream is %R: expected the handle of a CUDA stream, an int",
                     given);
        return -1;
    }
    if (*stream == (void *)LEGACY_DEFAULT) *stream = NULL; /* so each stream has one handle */
    return 0;
}

/* A new reference to object.name, or NULL without an exception if it does not exist. */
static PyObject *attribute(PyObject *object, const char *name) {
    PyObject *found = PyObject_GetAttrString(object, name);
    if (!found && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return found;
}

/* object.__cuda_stream__() is (0, handle). Some libraries have it as an attribute. */
static int take_protocol(PyObject *object, PyObject *protocol, void **stream) {
    PyObject *answer =
        PyCallable_Check(protocol) ? PyObject_CallNoArgs(protocol) : PySequence_Tuple(protocol);
    if (!answer) return -1;
    int version, status = -1;
    PyObject *handle, *pair = PySequence_Tuple(answer);
    Py_DECREF(answer);
    if (!pair) return -1;
    if (PyTuple_GET_SIZE(pair) != 2)
        PyErr_Format(PyExc_TypeError, "__cuda_stream__ of %R gives %R: expected (0, handle)",
                     object, pair);
    else if (PyArg_ParseTuple(pair, "iO", &version, &handle)) {
        if (version != 0)
            PyErr_Format(PyExc_ValueError,
                         "__cuda_stream__ of %R has version %d: expected version 0", object,
                         version);
        else
            status = take_handle(object, handle, stream);
    }
    Py_DECREF(pair);
    return status;
}

int ons_take_stream(PyObject *object, void **stream) {
    if (PyLong_Check(object) && !PyBool_Check(object)) return take_handle(object, object, stream);
    PyObject *found = attribute(object, "__cuda_stream__");
    int status = -1;
    if (found) {
        status = take_protocol(object, found, stream);
    } else {
        if (!PyErr_Occurred()) found = attribute(object, "cuda_stream");
        if (!found && !PyErr_Occurred()) found = attribute(object, "ptr");
        if (found)
            status = take_handle(object, found, stream);
        else if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError,
                         "stream is %R: expected an object with __cuda_stream__, cuda_stream or "
                         "ptr, or an int",
                         object);
    }
    Py_XDECREF(found);
    return status;
}
