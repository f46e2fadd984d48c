/* traced.c - functions that onsoftmax/jax.py calls with arrays that have no values yet: the checks
 * of a call, and the target that XLA will call. */
#include "call_views.h"

#include "../xla/ffi.h"

#include <string.h>

enum {
    OF_TRACED = 1 << AXIS | 1 << METHOD | 1 << DTYPE | 1 << WHERE | 1 << SCALE | 1 << NUM_THREADS |
                1 << DEVICE | 1 << OPERATION | 1 << K | 1 << OTHER
};

/* The reduced axes, counted from the end. */
static PyObject *reduced_axes(const ons_view *x, const bool *reduced) {
    PyObject *axes = PyList_New(0);
    for (int i = 0; axes && i < x->ndim; i++) {
        PyObject *axis = reduced[i] ? PyLong_FromLong(i - x->ndim) : NULL;
        if (reduced[i] && (!axis || PyList_Append(axes, axis) < 0)) Py_CLEAR(axes);
        Py_XDECREF(axis);
    }
    PyObject *all = axes ? PyList_AsTuple(axes) : NULL;
    Py_XDECREF(axes);
    return all;
}

static int check_plan(const ons_problem *problem, ons_method method, int threads) {
    ons_plan plan;
    const ons_machine machine = ons_this_machine(threads);
    const ons_status status = ons_make_plan(problem, method, &machine, &plan);
    if (status == ONS_OK) return 0;
    ons_set_error(status, method, problem, &machine, &plan);
    return -1;
}

PyObject *ons_check_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    ons_module *module = PyModule_GetState(self);
    PyObject *given[KEYWORDS], *axes = NULL, *plain = NULL, *result = NULL;
    ons_view operand[ONS_OPERANDS];
    ons_view *const x = &operand[ONS_X];
    const ons_caller caller = {.module = module};
    ons_library library;
    ons_operation operation;
    ons_method method;
    ons_dtype dtype;
    ons_problem problem;
    bool reduced[ONS_MAX_DIMS];
    int threads = module->num_threads;
    static const ons_signature takes = {"check_call", "an array", 1, OF_TRACED};
    ons_selection selection = {.k = 0};
    if (ons_take_arguments(&takes, args, count, names, given) < 0 ||
        ons_take_operation(given[OPERATION], &operation) < 0 ||
        ons_take_threads(given[NUM_THREADS], &threads) < 0 ||
        ons_take_dtype(module, given[DTYPE], &dtype) < 0)
        return NULL;
    const ons_device device = given[DEVICE] ? ONS_CUDA : ONS_CPU;
    memset(operand, 0, sizeof operand);
    if ((given[K] && !(plain = ons_plain_k(given[K]))) ||
        (given[AXIS] && !(axes = ons_plain_axes(given[AXIS]))) ||
        ons_take(&caller, args[0], ONS_X, x, &library) < 0 ||
        ons_take_method(given[METHOD], device, operation, &method) < 0 ||
        ons_take_axes(module, axes, x->ndim, reduced) < 0 ||
        (given[K] && ons_take_selection(plain, axes, x, reduced, &selection) < 0))
        goto done;
    if (given[K]) ons_view_selected(x, &selection, ONS_INT64, &operand[ONS_INDICES]);
    problem.scale_by = 1.0;
    if ((given[WHERE] && ons_take_mask(&caller, given[WHERE], x, &operand[ONS_WHERE]) < 0) ||
        (given[SCALE] &&
         ons_take_scale(&caller, given[SCALE], x, &operand[ONS_SCALE], &problem.scale_by) < 0) ||
        (given[OTHER] &&
         (ons_take(&caller, given[OTHER], ONS_X, &operand[ONS_GRADIENT], &library) < 0 ||
          ons_check_shape("grad", &operand[ONS_GRADIENT], x) < 0)))
        goto done;
    for (int i = 0; i < ONS_OPERANDS; i++) /* XLA will lay them out like this */
        if (operand[i].data) ons_put_in_c_order(&operand[i]);
    if (ons_make_problem(operation, operand, x, reduced, &problem) < 0) goto done;
    problem.device = device;
    problem.k = selection.k;
    if (check_plan(&problem, method, threads) == 0) result = reduced_axes(x, reduced);
done:
    Py_XDECREF(plain);
    Py_XDECREF(axes);
    for (int i = 0; i < ONS_OPERANDS; i++) ons_release_view(&operand[i]);
    return result;
}

PyObject *ons_xla_target(PyObject *self, PyObject *platform) {
    (void)self;
    const bool cuda = PyUnicode_CompareWithASCIIString(platform, "CUDA") == 0;
    /* a function's address as the pointer in a capsule */
    union {
        xla_error *(*handler)(xla_frame *);
        void *address;
    } target = {.handler = cuda ? ons_xla_on_cuda : ons_xla_on_cpu};
    return PyCapsule_New(target.address, "xla._CUSTOM_CALL_TARGET", NULL);
}

const char ons_check_call_doc[] =
    "check_call($module, array, /, axis=-1, *, operation='softmax', other=None, k=None, "
    "method='auto',\n           dtype=None, where=None, scale=1.0, num_threads=None, "
    "device=None)\n--\n\n"
    "The axes that a call reduces, counted from the end. Only the shapes and types of the\n"
    "arrays count, and the arrays are on the CPU. other: the gradient; array is then the\n"
    "output. device: where the call will run, None (the CPU) or 'cuda'.\n"
    "\n"
    "Raises what the call would.";
const char ons_xla_target_doc[] =
    "xla_target($module, platform, /)\n--\n\n"
    "The handler that XLA calls on a platform, 'cpu' or 'CUDA', as the capsule that "
    "jax.ffi.register_ffi_target\ntakes.";
