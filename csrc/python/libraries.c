/* libraries.c - calls of NumPy, through its table of C functions, and of _libraries. */
#define ONS_IMPORTS_NUMPY
#include "views.h"

int ons_import_numpy(void) {
    import_array1(-1);
    return 0;
}

PyObject *ons_attribute_of(const char *module, const char *name) {
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *attribute = imported ? PyObject_GetAttrString(imported, name) : NULL;
    Py_XDECREF(imported);
    return attribute;
}

PyObject *ons_call_library(ons_module *module, const char *function, const char *format, ...) {
    PyObject *libraries = __atomic_load_n(&module->libraries, __ATOMIC_ACQUIRE), *none = NULL;
    if (!libraries) {
        libraries = PyImport_ImportModule("onsoftmax._libraries");
        if (!libraries) return NULL;
        if (!__atomic_compare_exchange_n(&module->libraries, &none, libraries, false,
                                         __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            Py_DECREF(libraries); /* another thread has imported it already */
    }
    va_list values;
    va_start(values, format);
    PyObject *arguments = Py_VaBuildValue(format, values), *result = NULL;
    va_end(values);
    PyObject *called = PyObject_GetAttrString(libraries, function);
    if (arguments && called) result = PyObject_Call(called, arguments, NULL);
    Py_XDECREF(arguments);
    Py_XDECREF(called);
    return result;
}

void ons_raise_by_operator(PyObject *by_operator) {
    PyObject *module, *type, *message;
    if (PyArg_ParseTuple(by_operator, "OOO", &module, &type, &message))
        PyErr_SetObject(type, message);
}

PyObject *ons_operator_of(ons_module *module, PyObject *by_operator, const char *function) {
    PyObject *found = ons_call_library(module, "operator_of", "(Os)", by_operator, function);
    if (found == Py_None) {
        Py_CLEAR(found);
        ons_raise_by_operator(by_operator);
    }
    Py_DECREF(by_operator);
    return found;
}

int ons_leave_by_operator(const ons_caller *caller, PyObject *by_operator) {
    if (caller->outside)
        Py_XSETREF(caller->outside->by_operator, Py_NewRef(by_operator));
    else
        ons_raise_by_operator(by_operator);
    return -1;
}
