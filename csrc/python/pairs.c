/* pairs.c - the pair (m, d) of state.h for onsoftmax/_explain, as a tuple (m, c, d, d_low). The
 * functions make a pair from elements, merge two pairs, and convert a pair to the form of the
 * papers. */
#include "pairs.h"

#include "../api/exponential.h"
#include "../api/float_mode.h"
#include "../api/state.h"

static PyObject *tuple_of(const ons_state *state) {
    return Py_BuildValue("(dddd)", state->m, state->c, state->d, state->d_low);
}

static int take_state(PyObject *object, ons_state *state) {
    if (!PyTuple_Check(object)) {
        PyErr_Format(PyExc_TypeError, "a pair is a tuple (m, c, d, d_low), not %R", object);
        return -1;
    }
    if (!PyArg_ParseTuple(object, "dddd", &state->m, &state->c, &state->d, &state->d_low))
        return -1;
    if (state->c == ons_reference(state->m) || state->d == 0.0) return 0;
    PyErr_Format(PyExc_ValueError, "the pair %R has a c that does not belong to its m", object);
    return -1;
}

/* e^x relative to 2^c, as 2^n * p with p in the compute type. So another c gives the same p. x is
 * not above the m of c. */
static double exponential(double x, double c, bool in_float) {
    if (isnan(x) || x == INFINITY) return NAN;
    double n = nearbyint(x * ONS_LOG2_E);
    if (n - c < -4000.0) return 0.0; /* far below every number of either type, or -inf */
    double p = exp((x - n * ONS_LN2_HIGH) - n * ONS_LN2_LOW);
    return ldexp(in_float ? (double)(float)p : p, (int)(n - c));
}

/* As online.c processes a tile: first the maximum, then the exponentials relative to its c. */
PyObject *ons_call_pair_of(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *row;
    int in_float;
    if (!PyArg_ParseTuple(args, "O!p:pair_of", &PyTuple_Type, &row, &in_float)) return NULL;
    ons_state state = ons_state_empty();
    Py_ssize_t count = PyTuple_GET_SIZE(row);
    const ons_float_mode theirs = ons_float_mode_enter();
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++)
        ons_state_raise(&state, ons_larger(state.m, PyFloat_AsDouble(PyTuple_GET_ITEM(row, i))));
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        double x = PyFloat_AsDouble(PyTuple_GET_ITEM(row, i));
        ons_state_add(&state, exponential(x, state.c, in_float));
    }
    ons_float_mode_leave(theirs);
    return PyErr_Occurred() ? NULL : tuple_of(&state);
}

PyObject *ons_call_pair_merge(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *first, *second;
    ons_state a, b;
    if (!PyArg_ParseTuple(args, "OO:pair_merge", &first, &second)) return NULL;
    if (take_state(first, &a) < 0 || take_state(second, &b) < 0) return NULL;
    const ons_float_mode theirs = ons_float_mode_enter();
    ons_state merged = ons_state_merge(a, b);
    ons_float_mode_leave(theirs);
    return tuple_of(&merged);
}

PyObject *ons_call_pair_d(PyObject *Py_UNUSED(self), PyObject *pair) {
    ons_state state;
    if (take_state(pair, &state) < 0) return NULL;
    if (state.d == 0.0) return PyFloat_FromDouble(0.0);
    const ons_float_mode theirs = ons_float_mode_enter();
    double above = (state.c * ONS_LN2_HIGH - state.m) + state.c * ONS_LN2_LOW;
    double d = (state.d + state.d_low) * exp(above);
    ons_float_mode_leave(theirs);
    return PyFloat_FromDouble(d);
}

PyObject *ons_call_pair_anchor(PyObject *Py_UNUSED(self), PyObject *object) {
    double m = PyFloat_AsDouble(object);
    if (m == -1.0 && PyErr_Occurred()) return NULL;
    return PyFloat_FromDouble(ons_needs_anchor(m) ? m : 0.0);
}

const char ons_pair_of_doc[] =
    "pair_of($module, row, in_float, /)\n--\n\n"
    "The pair (m, c, d, d_low) of a tuple of floats, with d = sum(e^x * 2^-c). The\n"
    "exponentials are rounded to float if `in_float`, and to double otherwise.";
const char ons_pair_merge_doc[] =
    "pair_merge($module, a, b, /)\n--\n\nThe pair of two parts of a row: ons_state_merge.";
const char ons_pair_d_doc[] = "pair_d($module, pair, /)\n--\n\nd relative to m: sum(e^(x - m)).";
const char ons_pair_anchor_doc[] =
    "pair_anchor($module, m, /)\n--\n\n"
    "The anchor of a row with the maximum m: the number that is subtracted from its elements\n"
    "first. It is m if m is large, and 0 otherwise.";
