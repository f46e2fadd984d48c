/* call_views.h - the views of a call of an operation: made, put in order, run and released. */
#ifndef ONS_PYTHON_CALL_VIEWS_H
#define ONS_PYTHON_CALL_VIEWS_H

#include "arguments.h"

/* From this number of elements on, a call releases the GIL. Releasing and taking it back costs 0.04
 * us, and a call of this size takes 5.6 us. To measure it, time calls with 0 here, and with no
 * limit. */
enum { ONS_GIL_ELEMENTS = 16384 };

/* By role. All but x may be empty. */
typedef struct {
    ons_view operand[ONS_OPERANDS];
} ons_call_views;

void ons_no_call_views(ons_call_views *views);
void ons_release_call_views(ons_call_views *views);

/* ValueError unless y has x's shape. `name` is y's name in the error. */
int ons_check_shape(const char *name, const ons_view *y, const ons_view *x);
/* Leaves a ByOperator if a number is a symbolic int of torch. It may be NULL. */
int ons_check_symbolic(const ons_caller *caller, PyObject *array, PyObject *number);
/* stream= works on a GPU only, and num_threads= on the CPU only. */
int ons_check_device(const ons_view *x, PyObject *const given[KEYWORDS]);
/* Checks that no array has changed since it was viewed. Call it after all arrays were viewed. */
int ons_check_all_unchanged(ons_module *module, PyObject *const given[KEYWORDS],
                            const ons_call_views *views);
int ons_take_where_and_scale(const ons_caller *caller, PyObject *const given[KEYWORDS],
                             ons_call_views *views, double *scale_by);

/* ons_join checks that an operand, if given, is on x's device. If an array belongs to another
 * stream, this stream waits for that one. After the run, ons_leave makes that stream wait for this
 * one. A DeviceArray, which may be the result, then keeps alive what it needs. */
int ons_join(const char *name, const ons_view *view, const ons_view *x, void *stream);
int ons_leave(ons_module *module, const ons_call_views *views, PyObject *const given[KEYWORDS],
              void *stream);

/* Whether rows of type `dtype` have other products with the scale than the problem. Its x or y may
 * have a wider type, and products round in the arithmetic's type. */
bool ons_has_other_products(const ons_problem *problem, ons_dtype dtype);

/* The library's own type of indices: int64, but int32 in JAX without 64 bits. */
int ons_index_type(const ons_caller *caller, int64_t N, ons_dtype *dtype);

/* Adds the name of x's type to the list of DTYPES. */
int ons_say_dtype(PyObject *const given[KEYWORDS], const ons_view *x);

/* Makes a plan and runs it. The scratch is memory of the caller's library. */
int ons_run_call(const ons_caller *caller, const ons_problem *problem, ons_method method,
                 int threads);

/* If the stream is not torch's or CuPy's current one, calls the function again under it, so that
 * all allocations and conversions of the library are in its order. Returns NotImplemented
 * otherwise. */
PyObject *ons_call_on_stream(const ons_caller *caller, PyObject *self, const ons_signature *takes,
                             PyObject *const *args, PyObject *const given[KEYWORDS]);

#endif
