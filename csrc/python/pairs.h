/* pairs.h - the functions of the module's table on pairs (m, d). */
#ifndef ONS_PYTHON_PAIRS_H
#define ONS_PYTHON_PAIRS_H

#include "views.h"

PyObject *ons_call_pair_of(PyObject *self, PyObject *args);
PyObject *ons_call_pair_merge(PyObject *self, PyObject *args);
PyObject *ons_call_pair_d(PyObject *self, PyObject *pair);
PyObject *ons_call_pair_anchor(PyObject *self, PyObject *m);
extern const char ons_pair_of_doc[], ons_pair_merge_doc[], ons_pair_d_doc[], ons_pair_anchor_doc[];

#endif
