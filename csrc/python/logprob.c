/* logprob.c - logprob and its gradient for onsoftmax/_logprob.py. */
#include "row_call.h"

#include <string.h>

enum { ENTROPY, LSE, ARGMAX, RANK, MOMENTS, EXTRAS };

/* Takes logits and indices. Returns the indices, or NULL with an exception. */
static ons_view *take(ons_row_call *call, int axis, PyObject *index, ons_logprob *terms) {
    if (ons_take_logits(call, axis) < 0) return NULL;
    ons_view *of_index = ons_take_indices(call, "index", index, true);
    if (!of_index) return NULL;
    terms->index = of_index->data;
    terms->wide_index = of_index->dtype == ONS_INT64;
    terms->count = of_index->ndim > call->rows.ndim ? of_index->shape[call->rows.ndim] : 1;
    terms->in_double = call->real == ONS_FLOAT64;
    if (terms->count > 0) return of_index;
    PyErr_SetString(PyExc_ValueError, "index has 0 elements of each row: expected at least one");
    return NULL;
}

static ons_view moments_of_rows(const ons_row_call *call) {
    ons_view view = call->rows;
    view.ndim = 1;
    view.shape[0] = ONS_MOMENTS * call->count;
    return view;
}

/* Makes the results that are wanted. Returns the array of the log-probabilities. */
static ons_view *make_results(ons_row_call *call, const ons_view *of_index, const int *wants,
                              ons_view **extra, ons_logprob *terms) {
    const ons_view moments = moments_of_rows(call);
    const struct {
        const ons_view *like;
        ons_dtype dtype;
        void **to;
    } results[EXTRAS] = {[ENTROPY] = {&call->rows, call->real, &terms->entropy},
                         [LSE] = {&call->rows, call->real, &terms->lse},
                         [ARGMAX] = {&call->rows, ONS_INT64, (void **)&terms->argmax},
                         [RANK] = {of_index, ONS_INT64, (void **)&terms->rank},
                         [MOMENTS] = {&moments, ONS_FLOAT64, (void **)&terms->moments}};
    if (wants[RANK] && terms->count != 1) {
        PyErr_Format(PyExc_ValueError,
                     "rank is wanted, and index has %lld elements of each row: expected one",
                     (long long)terms->count);
        return NULL;
    }
    ons_view *chosen = ons_new_row_result(call, of_index, call->real);
    if (chosen) terms->chosen = chosen->data;
    for (int i = 0; i < EXTRAS && chosen; i++) {
        if (!wants[i]) continue;
        extra[i] = ons_new_row_result(call, results[i].like, results[i].dtype);
        if (!extra[i]) return NULL;
        *results[i].to = extra[i]->data;
    }
    return chosen;
}

PyObject *ons_logprob_call(PyObject *self, PyObject *args) {
    ons_row_call call;
    ons_logprob terms = {.count = 0};
    PyObject *index, *stream, *threads, *result = NULL;
    int axis, wants[EXTRAS];
    ons_view *extra[EXTRAS] = {NULL}, *of_index, *chosen = NULL;
    memset(&call, 0, sizeof call);
    call.caller.outside = &call.outside;
    if (!PyArg_ParseTuple(args, "OOipppppOO:logprob", &call.logits, &index, &axis, &wants[ENTROPY],
                          &wants[LSE], &wants[ARGMAX], &wants[RANK], &wants[MOMENTS], &stream,
                          &threads) ||
        ons_begin_rows(&call, self, stream, threads) < 0)
        return NULL;
    if ((of_index = take(&call, axis, index, &terms)) &&
        ons_check_indices(&call, of_index, NULL) == 0 && ons_join_rows(&call) == 0 &&
        (chosen = make_results(&call, of_index, wants, extra, &terms))) {
        ons_view y = call.x; /* one value a row, which takes no memory of its own */
        y.data = chosen->data;
        y.dtype = call.real;
        for (int i = 0; i < y.ndim; i++) y.strides[i] = 0;
        if (ons_run_rows(&call, ONS_OPERATION_logprob, &y, NULL, NULL, &terms) == 0 &&
            ons_leave_rows(&call) == 0)
            result = Py_BuildValue(
                "(NNNNNN)", ons_hand_over_rows(&call, chosen),
                ons_hand_over_rows(&call, extra[ENTROPY]), ons_hand_over_rows(&call, extra[LSE]),
                ons_hand_over_rows(&call, extra[ARGMAX]), ons_hand_over_rows(&call, extra[RANK]),
                ons_hand_over_rows(&call, extra[MOMENTS]));
    }
    ons_release_rows(&call);
    PyObject *const by = call.outside.by_operator;
    return by ? ons_operator_of(call.caller.module, by, "logprob") : result;
}

const char ons_logprob_doc[] =
    "logprob($module, logits, index, axis, entropy, lse, argmax, rank, moments, stream,\n"
    "        num_threads, /)\n--\n\n"
    "(logprob, entropy, lse, argmax, rank, moments) for onsoftmax/_logprob.py. A result that is\n"
    "not wanted is None. index comes without gaps. It has the shape of the rows, or one\n"
    "dimension more. moments has the pairs of all rows. If entropy is wanted, the mean of x - m\n"
    "of each row follows.\n"
    "\n"
    "If an operator must take the arrays, such as tensors that require grad, the result is\n"
    "this operator instead.";

/* ------- The gradient ------- */

/* Takes the moments that a call of logprob gave. */
static ons_view *take_moments(ons_row_call *call, PyObject *object) {
    const ons_view wanted = moments_of_rows(call);
    return ons_take_doubles(call, "moments", object, &wanted);
}

/* Takes the gradients of the results. */
static int take_gradients(ons_row_call *call, const ons_view *of_index, PyObject *const given[3],
                          ons_logprob *terms) {
    static const char *const names[] = {"grad_logprob", "grad_entropy", "grad_lse"};
    const void **const to[] = {&terms->of_chosen, &terms->of_entropy, &terms->of_lse};
    for (int i = 0; i < 3; i++) {
        const ons_view *view =
            ons_take_real(call, names[i], given[i], i == 0 ? of_index : &call->rows, false);
        if (!view) return -1;
        *to[i] = view->data;
    }
    return 0;
}

PyObject *ons_logprob_gradient_call(PyObject *self, PyObject *args) {
    ons_row_call call;
    ons_logprob terms = {.count = 0};
    PyObject *index, *of_moments, *given[3], *stream, *threads, *result = NULL;
    int axis;
    ons_view *of_index, *moments, *gradient;
    memset(&call, 0, sizeof call);
    if (!PyArg_ParseTuple(args, "OOiOOOOOO:logprob_backward", &call.logits, &index, &axis,
                          &of_moments, &given[0], &given[1], &given[2], &stream, &threads) ||
        ons_begin_rows(&call, self, stream, threads) < 0)
        return NULL;
    if ((of_index = take(&call, axis, index, &terms)) &&
        ons_check_indices(&call, of_index, NULL) == 0 &&
        (moments = take_moments(&call, of_moments)) &&
        take_gradients(&call, of_index, given, &terms) == 0 && ons_join_rows(&call) == 0 &&
        (gradient = ons_take_gradient(&call, Py_True))) {
        ons_view pairs = *moments; /* the first two doubles of each row's three */
        pairs.ndim = call.rows.ndim + 1;
        memcpy(pairs.shape, call.rows.shape, sizeof pairs.shape);
        pairs.shape[pairs.ndim - 1] = 2;
        ons_put_in_c_order(&pairs);
        terms.moments = (double *)(void *)moments->data;
        if (ons_run_rows(&call, ONS_OPERATION_logprob_backward, gradient, &pairs, NULL, &terms) ==
                0 &&
            ons_leave_rows(&call) == 0)
            result = ons_hand_over_rows(&call, gradient);
    }
    ons_release_rows(&call);
    return result;
}

const char ons_logprob_gradient_doc[] =
    "logprob_backward($module, logits, index, axis, moments, grad_logprob, grad_entropy, "
    "grad_lse,\n"
    "                 stream, num_threads, /)\n--\n\n"
    "The gradient of the logits for onsoftmax/_logprob.py, from the moments that logprob gave.\n"
    "A gradient that is None is 0.";
