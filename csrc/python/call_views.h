/* call_views.h - the views of a call of an operation: looked at, put in order, run, let go. */
#ifndef ONS_PYTHON_CALL_VIEWS_H
#define ONS_PYTHON_CALL_VIEWS_H

#include "arguments.h"

/* Elements from which on a call gives up the GIL. Giving it up and taking it back was seen to cost
 * 0.04 us, of the 5.6 us that so many take; found by timing calls with 0 here, and with no limit.
 */
enum { ONS_GIL_ELEMENTS = 16384 };

/* By their roles; those but x may be of nothing. */
typedef struct {
    ons_view operand[ONS_OPERANDS];
} ons_call_views;

void ons_no_call_views(ons_call_views *views);
void ons_release_call_views(ons_call_views *views);

/* ValueError unless y, which is called so, has x's shape. */
int ons_check_shape(const char *name, const ons_view *y, const ons_view *x);
/* Leaves a ByOperator if a number, which may be NULL, is a symbolic int of torch. */
int ons_check_symbolic(const ons_caller *caller, PyObject *array, PyObject *number);
/* stream= and num_threads= are each for one device. */
int ons_check_device(const ons_view *x, PyObject *const given[KEYWORDS]);
/* All arrays are looked at by now; they must be what they were when they were. */
int ons_check_all_unchanged(ons_module *module, PyObject *const given[KEYWORDS],
                            const ons_call_views *views);
/* where= and scale=. */
int ons_take_where_and_scale(const ons_caller *caller, PyObject *const given[KEYWORDS],
                             ons_call_views *views, double *scale_by);

/* An operand must lie where x does, if it is there. An array in the order of another stream joins
 * this one; afterwards (ons_leave) it goes on behind it, and a DeviceArray, which the result may
 * be, keeps what it needs. */
int ons_join(const char *name, const ons_view *view, const ons_view *x, void *stream);
int ons_leave(ons_module *module, const ons_call_views *views, PyObject *const given[KEYWORDS],
              void *stream);

/* Whether rows of that type alone have other products with the scale than the problem, of which x
 * or y may have a wider type: products round in the arithmetic's type. */
bool ons_has_other_products(const ons_problem *problem, ons_dtype dtype);

/* Puts the name of x's type into the list of DTYPES. */
int ons_say_dtype(PyObject *const given[KEYWORDS], const ons_view *x);

/* Plans and runs. The scratch is memory of the caller's library. */
int ons_run_call(const ons_caller *caller, const ons_problem *problem, ons_method method,
                 int threads);

/* With a stream other than torch's or CuPy's current one the call is made again under it, so that
 * all that the library allocates and converts is in its order. NotImplemented: not so here. */
PyObject *ons_call_on_stream(const ons_caller *caller, PyObject *self, const ons_signature *takes,
                             PyObject *const *args, PyObject *const given[KEYWORDS]);

#endif
