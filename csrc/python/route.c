/* route.c - the router of a mixture of experts, for onsoftmax/_route.py. */
#include "row_call.h"

#include <string.h>

#include "../api/route.h"

/* The views are entries of `rows`. */
typedef struct {
    ons_row_call rows;
    PyObject *k, *bias, *where;
    int axis, index_bits; /* 0: the library's own */
    ons_view *of_bias, *weights, *indices;
    ons_selection selection;
    ons_method method;
    ons_route route;
} route_call;

static int take_k(route_call *call) {
    const ons_row_call *rows = &call->rows;
    PyObject *plain = ons_plain_k(call->k);
    if (!plain) return -1;
    const int status = ons_take_selection(plain, NULL, &rows->x, rows->along, &call->selection);
    Py_DECREF(plain);
    return status;
}

int ons_check_groups(const ons_route *route, int64_t N, int64_t k) {
    if (route->groups < 1 || N % route->groups != 0) {
        PyErr_Format(PyExc_ValueError, "groups is %lld: expected a divisor of the %lld experts",
                     (long long)route->groups, (long long)N);
        return -1;
    }
    if (route->top_groups < 1 || route->top_groups > route->groups) {
        PyErr_Format(PyExc_ValueError,
                     "top_groups is %lld: expected 1 to %lld, the number of groups",
                     (long long)route->top_groups, (long long)route->groups);
        return -1;
    }
    const long long most = N / route->groups * route->top_groups;
    if (k <= most) return 0;
    PyErr_Format(PyExc_ValueError,
                 "k is %lld, and %lld groups of %lld experts have %lld experts: expected "
                 "at most %lld",
                 (long long)k, (long long)route->top_groups, (long long)(N / route->groups), most,
                 most);
    return -1;
}

static int take_arrays(route_call *call) {
    ons_row_call *rows = &call->rows;
    if (ons_take_logits(rows, call->axis) < 0 || take_k(call) < 0) return -1;
    if (call->route.top_groups == ONS_ALL_GROUPS) call->route.top_groups = call->route.groups;
    const ons_view experts = {.ndim = 1, .shape = {rows->N}};
    if (ons_check_groups(&call->route, rows->N, call->selection.k) < 0 ||
        ons_take_row_masks(rows, call->where, Py_None) < 0)
        return -1;
    call->of_bias = ons_take_real(rows, "bias", call->bias, &experts, false);
    return !call->of_bias || ons_join_rows(rows) < 0 ? -1 : 0;
}

static int make_results(route_call *call) {
    ons_row_call *rows = &call->rows;
    ons_view chosen;
    ons_dtype indices = call->index_bits == 32 ? ONS_INT32 : ONS_INT64;
    ons_view_selected(&rows->x, &call->selection, rows->real, &chosen);
    if (call->index_bits == 0 && ons_index_type(&rows->caller, rows->N, &indices) < 0) return -1;
    call->weights = ons_new_row_result(rows, &chosen, rows->real);
    if (!call->weights) return -1;
    call->indices = ons_new_row_result(rows, &chosen, indices);
    return call->indices ? 0 : -1;
}

static int run(route_call *call) {
    ons_view operand[ONS_OPERANDS];
    ons_problem problem;
    const ons_row_call *rows = &call->rows;
    memcpy(operand, rows->masks.operand, sizeof operand);
    operand[ONS_X] = rows->x;
    operand[ONS_INDICES] = *call->indices;
    if (ons_make_problem(ONS_OPERATION_route, operand, call->weights, rows->along, &problem) < 0)
        return -1;
    call->route.bias = call->of_bias->data;
    problem.route = &call->route;
    problem.k = call->selection.k;
    problem.scale_by = 1.0;
    problem.stream = rows->caller.stream;
    return ons_run_call(&rows->caller, &problem, call->method, rows->threads);
}

PyObject *ons_route_call(PyObject *self, PyObject *args) {
    route_call call;
    ons_row_call *rows = &call.rows;
    ons_route *route = &call.route;
    PyObject *stream, *threads, *result = NULL;
    long long groups, top_groups;
    int score, renormalize, is_invariant;
    memset(&call, 0, sizeof call);
    rows->caller.outside = &rows->outside;
    if (!PyArg_ParseTuple(args, "OOiiOLLpdOipOO:route", &rows->logits, &call.k, &call.axis, &score,
                          &call.bias, &groups, &top_groups, &renormalize, &route->scale,
                          &call.where, &call.index_bits, &is_invariant, &stream, &threads) ||
        ons_begin_rows(rows, self, stream, threads) < 0)
        return NULL;
    route->score = (ons_score)score;
    route->renormalize = renormalize;
    route->groups = groups;
    route->top_groups = top_groups;
    call.method = is_invariant ? ONS_METHOD_INVARIANT : ONS_METHOD_AUTO;
    if (take_arrays(&call) == 0 && make_results(&call) == 0 && run(&call) == 0 &&
        ons_leave_rows(rows) == 0)
        result = Py_BuildValue("(NN)", ons_hand_over_rows(rows, call.weights),
                               ons_hand_over_rows(rows, call.indices));
    ons_release_rows(rows);
    PyObject *const by = rows->outside.by_operator;
    return by ? ons_operator_of(rows->caller.module, by, "route") : result;
}

const char ons_route_doc[] =
    "route($module, logits, k, axis, score, bias, groups, top_groups, renormalize, scale, where,\n"
    "      index_bits, is_invariant, stream, num_threads, /)\n--\n\n"
    "(weights, indices) for onsoftmax/_route.py. score: 0 softmax, 1 sigmoid, 2 sqrtsoftplus,\n"
    "3 none. bias comes without gaps, in the arithmetic's type. top_groups: -2^63 for\n"
    "all groups. index_bits: 32, 64, or 0 for the library's own type.\n"
    "\n"
    "If an operator must take the arrays, such as tensors that require grad, the result is\n"
    "this operator instead.";
