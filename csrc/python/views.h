/* views.h - what the files of this folder share: an array as C sees it, and where it came from. */
#ifndef ONS_PYTHON_VIEWS_H
#define ONS_PYTHON_VIEWS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL onsoftmax_numpy_api
#ifndef ONS_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "../onsoftmax.h"

typedef enum { ONS_NUMPY, ONS_TORCH, ONS_JAX } ons_library;

/* An array of any library: address, type, shape and byte strides. `owner` keeps the memory alive.
 */
typedef struct {
    PyObject *owner;
    char *data;
    ons_dtype dtype;
    int ndim;
    bool readonly;
    int64_t shape[ONS_MAX_DIMS], strides[ONS_MAX_DIMS];
} ons_view;

typedef struct {
    int num_threads; /* by default: set_num_threads, else ONSOFTMAX_NUM_THREADS, else the processors
                      */
    PyObject *axis_error;    /* numpy's AxisError */
    PyObject *masked_array;  /* numpy.ma.MaskedArray */
    PyObject *libraries;     /* onsoftmax._libraries, imported when first needed */
    PyArray_Descr *bfloat16; /* ml_dtypes.bfloat16, likewise */
} ons_module;

/* ------- numpy_view.c: all return 0, or -1 with an exception set ------- */

/* The type of a NumPy array; TypeError, naming `what`, where it is none of ours. */
int ons_dtype_of_numpy(ons_module *module, PyArray_Descr *descr, ons_dtype *dtype);
/* A new reference to NumPy's name for a type; TypeError for bfloat16 without ml_dtypes. */
PyArray_Descr *ons_numpy_dtype(ons_module *module, ons_dtype dtype);
/* Looks at an array of one of our types, or of bool, in place. */
int ons_view_numpy(ons_module *module, PyArrayObject *array, ons_view *view);
/* A NumPy array of numbers as one of our types in native byte order: itself where it is, else
 * converted. */
PyArrayObject *ons_numpy_floating(ons_module *module, PyArrayObject *array);
/* Puts a copy of what the view shows in its place. */
int ons_view_copy(ons_view *view);
/* Whether the memory that two views reach overlaps, by their bounds; and whether they are one
 * array. */
bool ons_views_overlap(const ons_view *a, const ons_view *b);
bool ons_views_same(const ons_view *a, const ons_view *b);

/* ------- dlpack_view.c ------- */

/* Takes the capsule of array.__dlpack__(). */
int ons_view_dlpack(PyObject *array, ons_view *view);

/* ------- exchange.c: any array -> view, and the result -> the caller's own type ------- */

int ons_take(ons_module *module, PyObject *object, ons_view *view, ons_library *library);
int ons_take_out(ons_module *module, PyObject *object, ons_view *view);
int ons_take_mask(ons_module *module, PyObject *object, ons_view *view);
/* A number in *number and view->owner NULL; or a view of float64. */
int ons_take_scale(ons_module *module, PyObject *object, ons_view *view, double *number);
/* dtype= of a call; *dtype stays where the object is None. */
int ons_take_dtype(ons_module *module, PyObject *object, ons_dtype *dtype);
/* A new array for the result, and after the run what the caller gets for it (steals the view's
 * owner). */
int ons_new_result(ons_module *module, const ons_view *like, ons_library library, ons_dtype dtype,
                   ons_view *view);
PyObject *ons_hand_over(ons_module *module, ons_library library, ons_view *view);

/* ------- problem.c: a problem from views ------- */

/* axis= of a call: which dimensions are reduced. */
int ons_take_axes(ons_module *module, PyObject *object, int ndim, bool reduced[ONS_MAX_DIMS]);
int ons_make_problem(const ons_view *x, const ons_view *y, const ons_view *where,
                     const ons_view *scale, const bool reduced[ONS_MAX_DIMS], ons_problem *problem);
/* "(2, 3)": a new string. */
PyObject *ons_shape_text(const ons_view *view);

#endif
