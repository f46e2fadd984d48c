/* limited_api.h - what the limited API of CPython 3.10 lacks, in which a build for 3.10 and later
 * is written (see setup.py). A free-threaded build has the whole API, and these names with it. */
#ifndef ONS_PYTHON_LIMITED_API_H
#define ONS_PYTHON_LIMITED_API_H

/* Each CPython exports one of the two, the first from 3.13 on. */
__attribute__((weak)) int Py_IsFinalizing(void);
__attribute__((weak)) int _Py_IsFinalizing(void);
static inline int ons_is_finalizing(void) {
    return Py_IsFinalizing ? Py_IsFinalizing() : _Py_IsFinalizing();
}

#ifdef Py_LIMITED_API

/* Every CPython from 3.9 on exports it; the limited API has it from 3.12 on. */
PyAPI_FUNC(PyObject *)
    PyObject_Vectorcall(PyObject *called, PyObject *const *values, size_t count, PyObject *names);

static inline PyObject *PyObject_CallOneArg(PyObject *called, PyObject *value) {
    return PyObject_Vectorcall(called, &value, 1, NULL);
}

#define PyObject_CallMethodNoArgs(object, name) PyObject_CallMethodObjArgs(object, name, NULL)
#define PyTuple_GET_SIZE PyTuple_Size
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_SET_ITEM PyTuple_SetItem
#define PyUnicode_AsUTF8(text) PyUnicode_AsUTF8AndSize(text, NULL)

/* The old value last: to drop it may run Python code. */
#define Py_SETREF(variable, value)                   \
    do {                                             \
        PyObject *replaced = (PyObject *)(variable); \
        (variable) = (value);                        \
        Py_XDECREF(replaced);                        \
    } while (0)
#define Py_XSETREF Py_SETREF

#endif
#endif
