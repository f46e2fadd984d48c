/* softmax.c - the call: arrays to views, views to a problem, the run, the result. */
#include "arguments.h"

/* Elements from which on a call gives up the GIL. Giving it up and taking it back was seen to cost
 * 0.04 us, of the 5.6 us that so many take; found by timing calls with 0 here, and with no limit.
 */
enum { GIL_ELEMENTS = 16384 };

static int check_out(const ons_view *out, const ons_view *x, bool dtype_given, ons_dtype dtype) {
    bool same = out->ndim == x->ndim;
    for (int i = 0; same && i < x->ndim; i++) same = out->shape[i] == x->shape[i];
    if (!same) {
        PyObject *given = ons_shape_text(out), *wanted = ons_shape_text(x);
        if (given && wanted)
            PyErr_Format(PyExc_ValueError, "out has shape %U: expected %U", given, wanted);
        Py_XDECREF(given);
        Py_XDECREF(wanted);
        return -1;
    }
    if (dtype_given && out->dtype != dtype) {
        PyErr_Format(PyExc_ValueError,
                     "out has dtype %s, and dtype is %s: expected the same, or one of them",
                     ons_dtype_name(out->dtype), ons_dtype_name(dtype));
        return -1;
    }
    return 0;
}

/* What is read must not change while out is written: copies what out overlaps, but for x itself. */
static int keep_apart(const ons_view *out, ons_view *x, ons_view *where, ons_view *scale) {
    if (ons_views_overlap(x, out) && !ons_views_same(x, out) && ons_view_copy(x) < 0) return -1;
    if (where->owner && ons_views_overlap(where, out) && ons_view_copy(where) < 0) return -1;
    if (scale->owner && ons_views_overlap(scale, out) && ons_view_copy(scale) < 0) return -1;
    return 0;
}

static int run(const ons_problem *problem, ons_method method, int threads) {
    ons_plan plan;
    ons_status status = ons_make_plan(problem, method, threads, &plan);
    if (status == ONS_OK) {
        if (plan.rows * plan.N >= GIL_ELEMENTS) {
            Py_BEGIN_ALLOW_THREADS status = ons_run(problem, &plan, NULL);
            Py_END_ALLOW_THREADS
        } else {
            status = ons_run(problem, &plan, NULL);
        }
    }
    if (status == ONS_OK) return 0;
    ons_set_error(status, method, &plan);
    return -1;
}

PyObject *ons_softmax(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    ons_module *module = PyModule_GetState(self);
    PyObject *given[KEYWORDS], *result = NULL;
    ons_view x, y, where, scale;
    ons_library library;
    ons_method method;
    ons_dtype dtype;
    ons_problem problem;
    bool reduced[ONS_MAX_DIMS];
    int threads = module->num_threads;

    x.owner = y.owner = where.owner = scale.owner = NULL;
    problem.scale_by = 1.0;
    if (ons_take_arguments("softmax", args, count, names, given) < 0) return NULL;
    if (ons_take_method(given[METHOD], &method) < 0 ||
        ons_take_threads(given[NUM_THREADS], &threads) < 0)
        return NULL;
    if (ons_take(module, args[0], &x, &library) < 0) goto done;
    if (given[STREAM]) {
        PyErr_SetString(PyExc_ValueError,
                        "stream is given, but the array is on the CPU: expected None");
        goto done;
    }
    dtype = x.dtype;
    if (given[DTYPE] && ons_take_dtype(module, given[DTYPE], &dtype) < 0) goto done;
    if (ons_take_axes(module, given[AXIS], x.ndim, reduced) < 0) goto done;
    if (given[WHERE] && ons_take_mask(module, given[WHERE], &where) < 0) goto done;
    if (given[SCALE] && ons_take_scale(module, given[SCALE], &scale, &problem.scale_by) < 0)
        goto done;
    if (given[OUT]) {
        if (ons_take_out(module, given[OUT], &y) < 0) goto done;
        if (check_out(&y, &x, given[DTYPE] && given[DTYPE] != Py_None, dtype) < 0) goto done;
        if (keep_apart(&y, &x, &where, &scale) < 0) goto done;
    } else if (ons_new_result(module, &x, library, dtype, &y) < 0) {
        goto done;
    }
    if (ons_make_problem(&x, &y, &where, &scale, reduced, &problem) < 0) goto done;
    if (run(&problem, method, threads) < 0) goto done;
    if (given[OUT]) {
        result = given[OUT];
        Py_INCREF(result);
    } else {
        result = ons_hand_over(module, library, &y);
    }
done:
    Py_XDECREF(x.owner);
    Py_XDECREF(y.owner);
    Py_XDECREF(where.owner);
    Py_XDECREF(scale.owner);
    return result;
}

const char ons_softmax_doc[] =
    "softmax($module, array, /, axis=-1, *, method='auto', dtype=None, out=None, where=None, "
    "scale=1.0,\n"
    "        stream=None, num_threads=None)\n--\n\n"
    "exp(scale * array) / sum(exp(scale * array)) along axis, for logits of any size.\n\n"
    "Parameters\n"
    "----------\n"
    "array : array_like, any shape\n"
    "    Logits, dimensionless: a NumPy array of any strides, alignment and byte order, a list or "
    "number, a\n"
    "    torch tensor or JAX array on the CPU, an object with __dlpack__ or __array__. float16, "
    "bfloat16,\n"
    "    float32, float64; integers and bool are taken as the library's default float. Never "
    "written to.\n"
    "axis : int, tuple of ints, or None\n"
    "    What is normalized together: one axis, several, or all. The last by default.\n"
    "method : str\n"
    "    One of methods(): naive, safe, online, fused, split; auto picks for the shape (see "
    "plan()).\n"
    "dtype : dtype, optional\n"
    "    The result's type, one of the four. The arithmetic is done in the wider of input and "
    "result, at\n"
    "    least float32; `naive` alone works in the array's own type.\n"
    "out : array of the same shape, optional\n"
    "    Where the result goes, and what is returned; may be the array itself, or overlap it.\n"
    "where : array of bool that broadcasts to the array, optional\n"
    "    False excludes an element: its result is 0, and the others are as if it was not there.\n"
    "scale : float, or array that broadcasts with length 1 along axis\n"
    "    Multiplies the logits first, as 1 / temperature does; the product is rounded once.\n"
    "stream : None\n"
    "    For CUDA arrays alone.\n"
    "num_threads : int, optional\n"
    "    The most threads to use; get_num_threads() by default. Does not change the result.\n\n"
    "Returns\n"
    "-------\n"
    "array of the input's shape and kind\n"
    "    NumPy for NumPy, torch for torch, JAX for JAX. Along axis it sums to 1. A row with a NaN "
    "or +inf,\n"
    "    or with nothing but -inf, is NaN. float32 and float64 lie within 4 eps of the exact "
    "value; float16\n"
    "    and bfloat16 are that float32 result rounded to nearest even.\n\n"
    "Raises\n"
    "------\n"
    "AxisError\n"
    "    axis is out of bounds.\n"
    "ValueError\n"
    "    An unknown method, or one for CUDA arrays; the shape of out, where or scale; a read-only "
    "out; out\n"
    "    and dtype that disagree; a stream; num_threads below 1.\n"
    "TypeError\n"
    "    longdouble, complex, object, string and masked arrays; a mask that is not bool; a JAX "
    "tracer.\n"
    "RuntimeError\n"
    "    A CUDA array; a tensor that requires grad.\n"
    "MemoryError\n"
    "    No memory for the result or the scratch.\n\n"
    "References\n"
    "----------\n"
    "M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 "
    "(2018):\n"
    "naive, safe, online are its algorithms 1 to 3 (pages 2 and 3), split its section 3.1 (page "
    "4).\n\n"
    "Examples\n"
    "--------\n"
    ">>> import onsoftmax as ons\n"
    ">>> ons.softmax([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).round(4)\n"
    "array([0.0061, 0.0167, 0.0453, 0.9092, 0.0167, 0.0061])\n";
