/* libraries.c - what is called of NumPy, by its table of C functions, and of _libraries.py. */
#define ONS_IMPORTS_NUMPY
#include "views.h"

int ons_import_numpy(void) {
    import_array1(-1);
    return 0;
}

PyObject *ons_call_library(ons_module *module, const char *function, const char *format, ...) {
    if (!module->libraries) {
        module->libraries = PyImport_ImportModule("onsoftmax._libraries");
        if (!module->libraries) return NULL;
    }
    va_list values;
    va_start(values, format);
    PyObject *arguments = Py_VaBuildValue(format, values), *result = NULL;
    va_end(values);
    PyObject *called = PyObject_GetAttrString(module->libraries, function);
    if (arguments && called) result = PyObject_Call(called, arguments, NULL);
    Py_XDECREF(arguments);
    Py_XDECREF(called);
    return result;
}
