/* limited_api.c - functions that some versions of CPython export, but the limited API of 3.10
 * lacks. They are weak, so that the module loads without them. */
#include "views.h"

/* From 3.11 on. */
__attribute__((weak)) PyObject *PyObject_Vectorcall(PyObject *called, PyObject *const *values,
                                                    size_t count, PyObject *names);

PyObject *ons_vectorcall(PyObject *called, PyObject *const *values, size_t count, PyObject *names) {
    if (PyObject_Vectorcall) return PyObject_Vectorcall(called, values, count, names);
    PyObject *tuple = PyTuple_New((Py_ssize_t)count), *named = names ? PyDict_New() : NULL;
    PyObject *result = NULL;
    if (!tuple || (names && !named)) goto done;
    for (size_t i = 0; i < count; i++) PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, Py_NewRef(values[i]));
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++)
        if (PyDict_SetItem(named, PyTuple_GET_ITEM(names, i), values[count + (size_t)i]) < 0)
            goto done;
    result = PyObject_Call(called, tuple, named);
done:
    Py_XDECREF(tuple);
    Py_XDECREF(named);
    return result;
}

/* The first exists from 3.13 on, the second before. */
__attribute__((weak)) int Py_IsFinalizing(void);
__attribute__((weak)) int _Py_IsFinalizing(void);

int ons_is_finalizing(void) { return Py_IsFinalizing ? Py_IsFinalizing() : _Py_IsFinalizing(); }
