/* arguments.h - the arguments that softmax and plan share, and status -> exception. */
#ifndef ONS_PYTHON_ARGUMENTS_H
#define ONS_PYTHON_ARGUMENTS_H

#include "views.h"

enum { AXIS, METHOD, DTYPE, OUT, WHERE, SCALE, STREAM, NUM_THREADS, DEVICE, KEYWORDS };

/* The value of each of the first `keywords`, NULL where it was not given: borrowed. `function` is
 * named in errors. */
int ons_take_arguments(const char *function, int keywords, PyObject *const *args, Py_ssize_t count,
                       PyObject *names, PyObject *values[KEYWORDS]);
/* Those that were given, as a new dict. */
PyObject *ons_keywords_but_stream(PyObject *const values[KEYWORDS]);
/* Each leaves what it fills as it was where the object is NULL, auto for the method. An unknown
 * name is answered by those of the device. */
int ons_take_method(PyObject *object, ons_device device, ons_method *method);
int ons_take_threads(PyObject *object, int *threads);

void ons_set_error(ons_status status, ons_method method, const ons_problem *problem,
                   const ons_plan *plan);

/* The functions of the module's table, beside the settings. */
PyObject *ons_softmax(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
extern const char ons_softmax_doc[];
PyObject *ons_plan_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_list_methods(PyObject *self, PyObject *none);

#endif
