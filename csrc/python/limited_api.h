/* limited_api.h - what the limited API of CPython 3.10 lacks. A build for 3.10 and later uses only
 * this API (setup.py). A free-threaded build has the whole API. */
#ifndef ONS_PYTHON_LIMITED_API_H
#define ONS_PYTHON_LIMITED_API_H

/* As PyObject_Vectorcall: `count` positional values, followed by the values of `names`, a tuple or
 * NULL. */
PyObject *ons_vectorcall(PyObject *called, PyObject *const *values, size_t count, PyObject *names);
/* Whether Python is about to end. */
int ons_is_finalizing(void);

#ifdef Py_LIMITED_API

#define PyObject_CallOneArg(called, value) ons_vectorcall(called, &(value), 1, NULL)
#define PyObject_CallMethodNoArgs(object, name) PyObject_CallMethodObjArgs(object, name, NULL)
#define PyTuple_GET_SIZE PyTuple_Size
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_SET_ITEM PyTuple_SetItem
#define PyUnicode_AsUTF8(text) PyUnicode_AsUTF8AndSize(text, NULL)

/* Drops the old value last, since dropping it may run Python code. */
#define Py_SETREF(variable, value)                   \
    do {                                             \
        PyObject *replaced = (PyObject *)(variable); \
        (variable) = (value);                        \
        Py_XDECREF(replaced);                        \
    } while (0)
#define Py_XSETREF Py_SETREF

#endif
#endif
