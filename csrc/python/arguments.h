/* arguments.h - the arguments that the functions share, and status -> exception. */
#ifndef ONS_PYTHON_ARGUMENTS_H
#define ONS_PYTHON_ARGUMENTS_H

#include "views.h"

enum {
    AXIS,
    METHOD,
    DTYPE,
    OUT,
    WHERE,
    SCALE,
    STREAM,
    NUM_THREADS,
    DEVICE,
    KEEPDIMS,
    OPERATION,
    PAIRS,
    K,
    LOG,
    SORTED,
    RETURN_NORMALIZER,
    OTHER,
    GIVES,
    COMPUTE, /* the type of the rows that the pairs are of */
    DTYPES,  /* a list that the name of the array's type is put into */
    CACHES,  /* of a machine to plan for, by tests and for the page: not in onsoftmax.plan */
    KEYWORDS
};

/* Those that a function takes, a bit each: of an operation whose result has the array's shape, of
 * one with a value a row, or a pair; of finish, which is given pairs; of sums, gradient_sums and
 * gradient_finish; of one that selects; of merge, pack and empty; and plan's. */
enum {
    OF_ALL = 1 << AXIS | 1 << METHOD | 1 << WHERE | 1 << SCALE | 1 << STREAM | 1 << NUM_THREADS,
    OF_ROWS = OF_ALL | 1 << DTYPE | 1 << OUT,
    OF_VALUES = OF_ALL | 1 << KEEPDIMS,
    OF_PART = 1 << AXIS | 1 << WHERE | 1 << SCALE | 1 << STREAM | 1 << NUM_THREADS,
    OF_PAIRS = OF_PART | 1 << DTYPES,
    OF_FINISH = OF_PART | 1 << DTYPE | 1 << OUT | 1 << OPERATION | 1 << PAIRS | 1 << COMPUTE,
    OF_SUMS = 1 << AXIS | 1 << STREAM | 1 << NUM_THREADS,
    OF_GRADIENT_SUMS = OF_SUMS | 1 << OPERATION,
    OF_GRADIENT_FINISH = OF_GRADIENT_SUMS | 1 << DTYPE | 1 << OUT | 1 << PAIRS,
    OF_TOPK = OF_ALL | 1 << DTYPE | 1 << K | 1 << LOG | 1 << SORTED | 1 << RETURN_NORMALIZER,
    OF_MERGE = 1 << AXIS | 1 << DTYPE | 1 << OTHER | 1 << GIVES | 1 << STREAM,
    OF_EMPTY = 1 << DTYPE,
    OF_PLAN = 1 << AXIS | 1 << METHOD | 1 << DTYPE | 1 << NUM_THREADS | 1 << DEVICE |
              1 << OPERATION | 1 << K | 1 << CACHES
};

/* What a function takes. */
typedef struct {
    const char *function; /* its name */
    const char *arrays;   /* what it takes by position before axis, in words */
    int count;            /* how many arrays these are; k of OF_TOPK comes behind them */
    int keywords;         /* OF_ROWS or another of these */
} ons_signature;

/* The value of each keyword, borrowed; NULL if it was not given. */
int ons_take_arguments(const ons_signature *takes, PyObject *const *args, Py_ssize_t count,
                       PyObject *names, PyObject *values[KEYWORDS]);
/* Those that were given, as a new dict. */
PyObject *ons_keywords_but_stream(PyObject *const values[KEYWORDS]);
/* Each leaves what it fills as it was where the object is NULL, auto for the method. An unknown
 * name is answered by those that do the operation on the device. */
int ons_take_method(PyObject *object, ons_device device, ons_operation operation,
                    ons_method *method);
int ons_take_threads(PyObject *object, int *threads);
int ons_take_operation(PyObject *object, ons_operation *operation);
/* suggest.c: of `count` names, of which some may be NULL, the one that is nearly the given string,
 * or NULL; and what to write in place of a keyword that other libraries have, or NULL. */
const char *ons_nearest(PyObject *given, const char *const *names, int count);
const char *ons_keyword_hint(PyObject *name, int keywords);
/* k as an int. That may run Python code: it comes before any array is looked at. */
PyObject *ons_plain_k(PyObject *object);

/* What an operation that selects takes of each row: k elements along one axis. */
typedef struct {
    int axis;
    int64_t k;
} ons_selection;

/* From k and axis, of which axis may be NULL, and what ons_take_axes made of it. */
int ons_take_selection(PyObject *plain_k, PyObject *axes, const ons_view *x,
                       const bool reduced[ONS_MAX_DIMS], ons_selection *selection);
/* Makes x, of which nothing is owned, a result of such a shape, in C order. */
void ons_view_selected(const ons_view *x, const ons_selection *selection, ons_dtype dtype,
                       ons_view *result);

void ons_set_error(ons_status status, ons_method method, const ons_problem *problem,
                   const ons_machine *machine, const ons_plan *plan);

/* The functions of the module's table, beside the settings. Those of an operation may return NULL
 * without an exception, and with outside->by_operator set. */
PyObject *ons_call(ons_operation operation, PyObject *self, PyObject *const *args, Py_ssize_t count,
                   PyObject *names, ons_outside *outside);
/* The call of softmax_topk: a TopK, or a TopKWithNormalizer. */
PyObject *ons_topk_call(ons_operation operation, PyObject *self, PyObject *const *args,
                        Py_ssize_t count, PyObject *names, ons_outside *outside);
/* functions.c: the operations' entries of the module's table, to which it adds. */
int ons_add_operations(PyObject *module);
/* finish: an operation on rows whose pairs are given. */
PyObject *ons_finish_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* What rows, or parts of rows, add up: of the elements; and for a gradient. */
PyObject *ons_sums_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_gradient_sums_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                 PyObject *names);
/* A gradient whose rows' sums are given. */
PyObject *ons_gradient_finish_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names);
/* packed.c */
PyObject *ons_merge_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_pack_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_empty_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
extern const char ons_merge_doc[], ons_pack_doc[], ons_empty_doc[];
/* traced.c */
PyObject *ons_check_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_xla_target(PyObject *self, PyObject *platform);
extern const char ons_check_call_doc[], ons_xla_target_doc[];
PyObject *ons_plan_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_list_methods(PyObject *self, PyObject *operation);
PyObject *ons_as_numpy(PyObject *self, PyObject *object);

#endif
