/* row_call.h - shared by the calls on rows of logits that take and give arrays with entries for
 * each row: losses, log-probabilities, routers and samplers. These arrays have no gaps and are of
 * their final type. */
#ifndef ONS_PYTHON_ROW_CALL_H
#define ONS_PYTHON_ROW_CALL_H

#include "call_views.h"

#include "../api/logprob.h"
#include "../api/loss.h"

/* An array beside the logits. `name` is its name in errors. */
typedef struct {
    const char *name;
    ons_view view;
    bool is_result;
} ons_row_array;

enum { ONS_ROW_ARRAYS = 9 };

typedef struct {
    ons_caller caller;
    ons_outside outside;       /* for the calls that leave a ByOperator to their caller */
    PyObject *logits, *stream; /* stream: None if it is not given */
    PyObject *num_threads;     /* the same */
    int threads;
    ons_view x;
    ons_view rows; /* the shape of the rows; it owns nothing */
    bool along[ONS_MAX_DIMS];
    int64_t N, count; /* of a row, of rows */
    ons_dtype real;   /* the arithmetic's type, of real arrays */
    int arrays;       /* the entries of `array` that are used */
    ons_row_array array[ONS_ROW_ARRAYS];
    ons_call_views masks; /* where and scale alone */
    double scale_by;      /* 1 without a scale */
} ons_row_call;

/* stream and threads may be None. */
int ons_begin_rows(ons_row_call *call, PyObject *self, PyObject *stream, PyObject *threads);
int ons_take_logits(ons_row_call *call, int axis);

/* Whether the elements of a view do not lie side by side in C order. */
bool ons_has_gaps(const ons_view *view);

/* The functions that take an array return its view, or NULL with an exception. None is an empty
 * view. */

/* An array of the given role, of any shape and floating type. */
ons_view *ons_take_operand(ons_row_call *call, const char *name, PyObject *object, ons_role role);
/* Indices of elements, one a row, or with `several` any number of them a row. */
ons_view *ons_take_indices(ons_row_call *call, const char *name, PyObject *object, bool several);
/* A real array of the shape of `like`. `one`: or of one number. */
ons_view *ons_take_real(ons_row_call *call, const char *name, PyObject *object,
                        const ons_view *like, bool one);
/* Numbers of float32 or float64, or integers: one a row (step 1), or one for all rows (step 0). */
ons_view *ons_take_row_numbers(ons_row_call *call, const char *name, PyObject *object,
                               bool integers, int64_t *step);
/* The same of doubles, for any logits. */
ons_view *ons_take_doubles(ons_row_call *call, const char *name, PyObject *object,
                           const ons_view *like);
/* where and scale, or NULL. Call it after ons_take_logits. */
int ons_take_row_masks(ons_row_call *call, PyObject *where, PyObject *scale);
/* A new result of the shape of `like`. */
ons_view *ons_new_row_result(ons_row_call *call, const ons_view *like, ons_dtype dtype);
/* The array that receives a gradient: a new one for True. Inputs that overlap it are copied, so
 * call ons_join_rows first. */
ons_view *ons_take_gradient(ons_row_call *call, PyObject *grad_out);

/* On the CPU, IndexError for an index that is no element's, and not `ignored` if this is given. */
int ons_check_indices(const ons_row_call *call, const ons_view *indices, const long long *ignored);

/* Runs an operation on the logits. `pairs`: what a gradient is computed from, else NULL. */
int ons_run_rows(const ons_row_call *call, ons_operation operation, const ons_view *y,
                 const ons_view *pairs, const ons_loss *loss, const ons_logprob *logprob);

/* The work of ons_join and of ons_leave, for all arrays; then ons_release_rows. */
int ons_join_rows(ons_row_call *call);
int ons_leave_rows(ons_row_call *call);
void ons_release_rows(ons_row_call *call);

/* A result in the caller's type. None for an empty view. */
PyObject *ons_hand_over_rows(const ons_row_call *call, const ons_view *view);

#endif
