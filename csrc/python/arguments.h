/* arguments.h - the arguments that the functions share, and the exceptions that belong to a
 * status. */
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
    COMPUTE, /* type of the rows that the pairs belong to */
    DTYPES,  /* a list that receives the name of the array's type */
    CACHES,  /* of a machine to plan for; used by tests and the page, not in onsoftmax.plan */
    TERMS,   /* of a plan: the arguments that only its operation takes (planned.h) */
    KEYWORDS
};

/* The keywords of a function, a bit each. The groups are: operations whose result has the array's
 * shape; operations with a value or a pair a row; finish, which is given pairs; sums, gradient_sums
 * and gradient_finish; the operation that selects; merge, pack and empty; plan. */
enum {
    OF_ALL = 1 << AXIS | 1 << METHOD | 1 << WHERE | 1 << SCALE | 1 << STREAM | 1 << NUM_THREADS,
    OF_ROWS = OF_ALL | 1 << DTYPE | 1 << OUT,
    OF_VALUES = OF_ALL | 1 << KEEPDIMS,
    OF_PART = 1 << AXIS | 1 << WHERE | 1 << SCALE | 1 << STREAM | 1 << NUM_THREADS,
    OF_PAIRS = OF_ALL | 1 << DTYPES,
    OF_FINISH = OF_PART | 1 << DTYPE | 1 << OUT | 1 << OPERATION | 1 << PAIRS | 1 << COMPUTE,
    OF_SUMS = 1 << AXIS | 1 << STREAM | 1 << NUM_THREADS,
    OF_GRADIENT_SUMS = OF_SUMS | 1 << OPERATION | 1 << METHOD,
    OF_GRADIENT_FINISH = OF_SUMS | 1 << OPERATION | 1 << DTYPE | 1 << OUT | 1 << PAIRS,
    OF_TOPK = OF_ALL | 1 << DTYPE | 1 << K | 1 << LOG | 1 << SORTED | 1 << RETURN_NORMALIZER,
    OF_MERGE = 1 << AXIS | 1 << DTYPE | 1 << OTHER | 1 << GIVES | 1 << STREAM,
    OF_EMPTY = 1 << DTYPE,
    OF_PLAN = 1 << AXIS | 1 << METHOD | 1 << DTYPE | 1 << NUM_THREADS | 1 << DEVICE |
              1 << OPERATION | 1 << K | 1 << CACHES | 1 << TERMS
};

/* The parameters of a function. */
typedef struct {
    const char *function; /* its name */
    const char *arrays;   /* in words, what it takes by position before axis */
    int count;            /* the number of these arrays; k of OF_TOPK comes after them */
    int keywords;         /* OF_ROWS or another of the groups */
} ons_signature;

/* Fills `values` with the value of each keyword, borrowed; NULL if it was not given. */
int ons_take_arguments(const ons_signature *takes, PyObject *const *args, Py_ssize_t count,
                       PyObject *names, PyObject *values[KEYWORDS]);
/* The keywords that were given, except stream, as a new dict. */
PyObject *ons_keywords_but_stream(PyObject *const values[KEYWORDS]);
/* If the object is NULL, the method becomes auto, the operation softmax, and the threads stay. For
 * an unknown method the error names the methods for the operation on the device. */
int ons_take_method(PyObject *object, ons_device device, ons_operation operation,
                    ons_method *method);
int ons_take_threads(PyObject *object, int *threads);
/* An operation whose calls take a method by its name. */
int ons_take_operation(PyObject *object, ons_operation *operation);
/* Any operation that has a plan. */
int ons_take_planned_operation(PyObject *object, ons_operation *operation);
/* suggest.c: ons_nearest finds the name that is nearly the given string. `names` has `count` names,
 * and some of them may be NULL. ons_keyword_hint says what to write instead of another library's
 * keyword. Both may return NULL. */
const char *ons_nearest(PyObject *given, const char *const *names, int count);
const char *ons_keyword_hint(PyObject *name, int keywords);
/* k as an int. It may run Python code, so call it before looking at any array. */
PyObject *ons_plain_k(PyObject *object);

/* The selection of a row: k elements along one axis. */
typedef struct {
    int axis;
    int64_t k;
} ons_selection;

/* From k, axis (which may be NULL) and the result of ons_take_axes. */
int ons_take_selection(PyObject *plain_k, PyObject *axes, const ons_view *x,
                       const bool reduced[ONS_MAX_DIMS], ons_selection *selection);
/* Makes `result` a view of a result in C order: x's shape with k elements along the axis. It has no
 * owner. */
void ons_view_selected(const ons_view *x, const ons_selection *selection, ons_dtype dtype,
                       ons_view *result);

void ons_set_error(ons_status status, ons_method method, const ons_problem *problem,
                   const ons_machine *machine, const ons_plan *plan);

/* The functions of the module's table, besides the settings. The function of an operation may
 * return NULL without an exception if it sets outside->by_operator. */
PyObject *ons_call(ons_operation operation, PyObject *self, PyObject *const *args, Py_ssize_t count,
                   PyObject *names, ons_outside *outside);
/* The call of softmax_topk. It returns a TopK or a TopKWithNormalizer. */
PyObject *ons_topk_call(ons_operation operation, PyObject *self, PyObject *const *args,
                        Py_ssize_t count, PyObject *names, ons_outside *outside);
/* functions.c: adds the operations to the module's table. */
int ons_add_operations(PyObject *module);
/* finish: an operation on rows whose pairs are given. */
PyObject *ons_finish_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* The sums of rows, or of parts of rows: of the elements, and for a gradient. */
PyObject *ons_sums_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_gradient_sums_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                 PyObject *names);
/* A gradient of rows whose sums are given. */
PyObject *ons_gradient_finish_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names);
/* packed.c */
PyObject *ons_merge_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_pack_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_empty_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
extern const char ons_merge_doc[], ons_pack_doc[], ons_empty_doc[];
/* loss.c: a loss, its gradient in parts of rows, and a gradient times a number. */
PyObject *ons_loss_call(PyObject *self, PyObject *args);
PyObject *ons_loss_gradient_call(PyObject *self, PyObject *args);
PyObject *ons_multiply_call(PyObject *self, PyObject *args);
extern const char ons_loss_doc[], ons_loss_gradient_doc[], ons_multiply_doc[];

/* logprob.c: logprob and its gradient. */
PyObject *ons_logprob_call(PyObject *self, PyObject *args);
PyObject *ons_logprob_gradient_call(PyObject *self, PyObject *args);
extern const char ons_logprob_doc[], ons_logprob_gradient_doc[];
/* sample.c */
PyObject *ons_sample_call(PyObject *self, PyObject *args);
extern const char ons_sample_doc[];
PyObject *ons_filtered_softmax_call(PyObject *self, PyObject *args);
extern const char ons_filtered_softmax_doc[];

/* route.c */
PyObject *ons_route_call(PyObject *self, PyObject *args);
extern const char ons_route_doc[];
/* Raises an error if the groups do not fit N experts, or have fewer than k. */
#define ONS_ALL_GROUPS INT64_MIN /* in place of top_groups */
struct ons_route;
int ons_check_groups(const struct ons_route *route, int64_t N, int64_t k);

/* divergence.c */
PyObject *ons_divergence_call(PyObject *self, PyObject *args);
extern const char ons_divergence_doc[];

/* traced.c */
PyObject *ons_check_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_xla_target(PyObject *self, PyObject *platform);
extern const char ons_check_call_doc[], ons_xla_target_doc[];
PyObject *ons_plan_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *ons_list_methods(PyObject *self, PyObject *operation);
PyObject *ons_as_numpy(PyObject *self, PyObject *object);

#endif
