/* module.c - the method table of onsoftmax._core: arguments, the GIL, status -> exception. */
#define ONS_IMPORTS_NUMPY
#include "views.h"

#include <stdlib.h>
#include <string.h>

/* Elements from which on a call gives up the GIL: below it the two hand-overs cost more than the
 * run (benchmarks/bench_cpu.py, the rows of one small array). */
enum { GIL_ELEMENTS = 16384 };

/* ------------------------------------------------ status -> exception
 * ------------------------------------- */

/* The names of the methods that run here, auto first. */
static PyObject *names_here(void) {
    PyObject *text = PyUnicode_FromString("auto");
    for (int i = 0; text && i < ONS_METHOD_COUNT; i++)
        if (ons_methods[i].on_cpu)
            Py_SETREF(text, PyUnicode_FromFormat("%U, %s", text, ons_methods[i].name));
    return text;
}

static void set_error(ons_status status, ons_method method, const ons_plan *plan) {
    if (status == ONS_E_MEMORY) {
        PyErr_Format(PyExc_MemoryError,
                     "no memory for the %lld bytes of scratch that method %s needs",
                     (long long)plan->workspace_bytes, ons_method_name(plan->method));
    } else if (status == ONS_E_METHOD_NOT_ON_DEVICE) {
        PyObject *names = names_here();
        if (names)
            PyErr_Format(PyExc_ValueError,
                         "method '%s' runs on CUDA arrays alone (%s), and this array is on the "
                         "CPU: use one of %U",
                         ons_method_name(method), ons_methods[method].summary, names);
        Py_XDECREF(names);
    } else {
        PyErr_Format(PyExc_SystemError, "internal error %d", (int)status);
    }
}

/* ------------------------------------------------ arguments
 * ----------------------------------------------- */

enum { AXIS, METHOD, DTYPE, OUT, WHERE, SCALE, STREAM, NUM_THREADS, KEYWORDS };
static const char *const keyword_names[KEYWORDS] = {"axis",  "method", "dtype",  "out",
                                                    "where", "scale",  "stream", "num_threads"};

/* The value of each keyword, NULL where it was not given: borrowed. */
static int take_arguments(const char *function, PyObject *const *args, Py_ssize_t count,
                          PyObject *names, PyObject *values[KEYWORDS]) {
    memset(values, 0, KEYWORDS * sizeof *values);
    if (count < 1 || count > 2) {
        PyErr_Format(PyExc_TypeError,
                     "%s() takes an array and an axis by position, %zd values were given", function,
                     count);
        return -1;
    }
    if (count == 2) values[AXIS] = args[1];
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int k = 0;
        while (k < KEYWORDS && PyUnicode_CompareWithASCIIString(name, keyword_names[k]) != 0) k++;
        if (k == KEYWORDS) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", function,
                         name);
            return -1;
        }
        if (values[k]) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", function,
                         name);
            return -1;
        }
        values[k] = args[count + i];
    }
    for (int k = METHOD; k < KEYWORDS; k++)
        if (values[k] == Py_None && k != DTYPE && k != METHOD && k != SCALE) values[k] = NULL;
    return 0;
}

static int take_method(PyObject *object, ons_method *method) {
    *method = ONS_METHOD_AUTO;
    if (!object) return 0;
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "method is %R: expected a string", object);
        return -1;
    }
    const char *name = PyUnicode_AsUTF8(object);
    if (!name) return -1;
    *method = ons_method_by_name(name);
    if (*method != ONS_METHOD_COUNT) return 0;
    PyObject *names = names_here();
    if (names) PyErr_Format(PyExc_ValueError, "method is %R: expected one of %U", object, names);
    Py_XDECREF(names);
    return -1;
}

static int take_threads(PyObject *object, int *threads) {
    if (!object) return 0;
    Py_ssize_t count = PyNumber_AsSsize_t(object, NULL);
    if (count == -1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "num_threads is %R: expected an int of at least 1", object);
        return -1;
    }
    if (count < 1) {
        PyErr_Format(PyExc_ValueError, "num_threads is %R: expected at least 1", object);
        return -1;
    }
    *threads = count < 1024 ? (int)count : 1024;
    return 0;
}

/* ------------------------------------------------ softmax
 * ------------------------------------------------- */

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
            Py_BEGIN_ALLOW_THREADS status = ons_run(problem, &plan);
            Py_END_ALLOW_THREADS
        } else {
            status = ons_run(problem, &plan);
        }
    }
    if (status == ONS_OK) return 0;
    set_error(status, method, &plan);
    return -1;
}

static PyObject *softmax(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
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
    if (take_arguments("softmax", args, count, names, given) < 0) return NULL;
    if (take_method(given[METHOD], &method) < 0 || take_threads(given[NUM_THREADS], &threads) < 0)
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

PyDoc_STRVAR(
    softmax_doc,
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
    "array([0.0061, 0.0167, 0.0453, 0.9092, 0.0167, 0.0061])\n");

/* ------------------------------------------------ plan, methods, settings
 * --------------------------------- */

static const char *const keeps_names[] = {"nothing", "tile", "row"};

/* A view of a C-ordered array of that shape which nobody will read. */
static int view_of_shape(PyObject *shape, ons_dtype dtype, ons_view *view) {
    view->owner = NULL;
    view->data = (char *)view;
    view->dtype = dtype;
    view->ndim = (int)PyTuple_GET_SIZE(shape);
    int64_t stride = ons_dtype_size(dtype);
    if (PyTuple_GET_SIZE(shape) > ONS_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "the shape has %zd dimensions: at most %d are supported",
                     PyTuple_GET_SIZE(shape), ONS_MAX_DIMS);
        return -1;
    }
    for (int i = view->ndim - 1; i >= 0; i--) {
        PyObject *item = PyTuple_GET_ITEM(shape, i);
        view->shape[i] = PyNumber_AsSsize_t(item, PyExc_OverflowError);
        if (view->shape[i] == -1 && PyErr_Occurred()) return -1;
        if (view->shape[i] < 0) {
            PyErr_Format(PyExc_ValueError, "the shape is %R: expected no negative length", shape);
            return -1;
        }
        view->strides[i] = stride;
        if (__builtin_mul_overflow(stride, view->shape[i] ? view->shape[i] : 1, &stride)) {
            PyErr_Format(PyExc_ValueError,
                         "the shape is %R: more elements than an address can reach", shape);
            return -1;
        }
    }
    return 0;
}

static PyObject *plan(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    ons_module *module = PyModule_GetState(self);
    PyObject *given[KEYWORDS], *result = NULL;
    ons_view x, y, absent;
    ons_library library;
    ons_method method;
    ons_problem problem;
    ons_plan made;
    bool reduced[ONS_MAX_DIMS];
    int threads = module->num_threads;

    x.owner = absent.owner = NULL;
    problem.scale_by = 1.0;
    if (take_arguments("plan", args, count, names, given) < 0) return NULL;
    if (take_method(given[METHOD], &method) < 0 || take_threads(given[NUM_THREADS], &threads) < 0)
        return NULL;
    if (PyTuple_Check(args[0])) {
        ons_dtype dtype = ONS_FLOAT32;
        if (given[DTYPE] && ons_take_dtype(module, given[DTYPE], &dtype) < 0) return NULL;
        if (view_of_shape(args[0], dtype, &x) < 0) return NULL;
        y = x;
    } else {
        if (ons_take(module, args[0], &x, &library) < 0) goto done;
        y = x;
        if (given[DTYPE] && ons_take_dtype(module, given[DTYPE], &y.dtype) < 0) goto done;
        for (int i = 0; i < y.ndim; i++)
            y.strides[i] = y.strides[i] / ons_dtype_size(x.dtype) * ons_dtype_size(y.dtype);
    }
    if (ons_take_axes(module, given[AXIS], x.ndim, reduced) < 0) goto done;
    if (ons_make_problem(&x, &y, &absent, &absent, reduced, &problem) < 0) goto done;
    ons_status status = ons_make_plan(&problem, method, threads, &made);
    if (status != ONS_OK) {
        set_error(status, method, &made);
        goto done;
    }
    result = Py_BuildValue(
        "{s:s,s:s,s:s,s:s,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:i}", "method", ons_method_name(made.method),
        "reason", made.reason, "form", made.form == ONS_ROW_FORM ? "row" : "column", "compute",
        ons_dtype_name(made.compute), "rows", (long long)made.rows, "N", (long long)made.N, "tile",
        (long long)made.tile, "width", (long long)made.width, "bytes_moved",
        (long long)made.bytes_moved, "on_chip_bytes", (long long)made.on_chip_bytes,
        "workspace_bytes", (long long)made.workspace_bytes, "threads", made.threads);
done:
    Py_XDECREF(x.owner);
    return result;
}

static PyObject *methods(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < ONS_METHOD_COUNT; i++) {
        const ons_method_info *info = &ons_methods[i];
        if (!info->on_cpu) continue;
        PyObject *one = Py_BuildValue("{s:s,s:i,s:i,s:s,s:s}", "name", info->name, "reads",
                                      info->reads, "writes", info->writes, "keeps",
                                      keeps_names[info->keeps], "summary", info->summary);
        if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

static PyObject *set_num_threads(PyObject *self, PyObject *count) {
    ons_module *module = PyModule_GetState(self);
    if (take_threads(count, &module->num_threads) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *get_num_threads(PyObject *self, PyObject *Py_UNUSED(none)) {
    return PyLong_FromLong(((ons_module *)PyModule_GetState(self))->num_threads);
}

static PyObject *isa_names(void) {
    PyObject *names = PyList_New(0);
    for (const char *const *name = ons_isa_available(); names && *name; name++) {
        PyObject *text = PyUnicode_FromString(*name);
        if (!text || PyList_Append(names, text) < 0) Py_CLEAR(names);
        Py_XDECREF(text);
    }
    return names;
}

static PyObject *show(PyObject *self, PyObject *Py_UNUSED(none)) {
    ons_module *module = PyModule_GetState(self);
    return Py_BuildValue("{s:s,s:N,s:i,s:i,s:s,s:s}", "isa", ons_isa_selected(), "isa_available",
                         isa_names(), "num_threads", module->num_threads, "processors",
                         ons_processors(), "cuda", "not built", "compiler", __VERSION__);
}

PyDoc_STRVAR(
    plan_doc,
    "plan($module, array_or_shape, /, axis=-1, *, dtype=None, method='auto', num_threads=None)\n"
    "--\n\nThe plan of a call as a dict: see onsoftmax.plan.");
PyDoc_STRVAR(
    methods_doc,
    "methods($module, /)\n--\n\nThe methods of this build as dicts: see onsoftmax.methods.");
PyDoc_STRVAR(set_doc,
             "set_num_threads($module, n, /)\n--\n\n"
             "Use at most n threads where a call says nothing else.\n\n"
             "n is an int of at least 1: TypeError and ValueError otherwise.");
PyDoc_STRVAR(
    get_doc,
    "get_num_threads($module, /)\n--\n\n"
    "The most threads a call uses where it says nothing else: set_num_threads, else the "
    "environment\n"
    "variable ONSOFTMAX_NUM_THREADS, else the processors that affinity and cgroup quota allow.");
PyDoc_STRVAR(
    show_doc,
    "config($module, /)\n--\n\nThe build and what it found as a dict: see onsoftmax.show_config.");

static PyMethodDef functions[] = {
    {"softmax", (PyCFunction)(void (*)(void))softmax, METH_FASTCALL | METH_KEYWORDS, softmax_doc},
    {"plan", (PyCFunction)(void (*)(void))plan, METH_FASTCALL | METH_KEYWORDS, plan_doc},
    {"methods", methods, METH_NOARGS, methods_doc},
    {"set_num_threads", set_num_threads, METH_O, set_doc},
    {"get_num_threads", get_num_threads, METH_NOARGS, get_doc},
    {"config", show, METH_NOARGS, show_doc},
    {NULL, NULL, 0, NULL},
};

/* ------------------------------------------------ the module
 * ---------------------------------------------- */

static int take_environment(ons_module *module) {
    const char *isa = getenv("ONSOFTMAX_ISA"), *threads = getenv("ONSOFTMAX_NUM_THREADS");
    if (isa && *isa && !ons_isa_select(isa)) {
        PyObject *names = isa_names();
        if (names)
            PyErr_Format(PyExc_ValueError,
                         "ONSOFTMAX_ISA is '%s': expected one that this processor runs, of %R", isa,
                         names);
        Py_XDECREF(names);
        return -1;
    }
    module->num_threads = ons_processors();
    if (threads && *threads) {
        char *end;
        long count = strtol(threads, &end, 10);
        if (*end || count < 1) {
            PyErr_Format(PyExc_ValueError,
                         "ONSOFTMAX_NUM_THREADS is '%s': expected an int of at least 1", threads);
            return -1;
        }
        module->num_threads = count < 1024 ? (int)count : 1024;
    }
    return 0;
}

static PyObject *attribute_of(const char *module, const char *name) {
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *attribute = imported ? PyObject_GetAttrString(imported, name) : NULL;
    Py_XDECREF(imported);
    return attribute;
}

static int module_exec(PyObject *self) {
    ons_module *module = PyModule_GetState(self);
    memset(module, 0, sizeof *module);
    import_array1(-1);
    if (take_environment(module) < 0) return -1;
    module->masked_array = attribute_of("numpy.ma", "MaskedArray");
    module->axis_error = attribute_of("numpy.exceptions", "AxisError"); /* from NumPy 1.25 on */
    if (!module->axis_error && PyErr_ExceptionMatches(PyExc_ImportError)) {
        PyErr_Clear();
        module->axis_error = attribute_of("numpy", "AxisError");
    }
    return module->masked_array && module->axis_error ? 0 : -1;
}

static int module_traverse(PyObject *self, visitproc visit, void *arg) {
    ons_module *module = PyModule_GetState(self);
    Py_VISIT(module->axis_error);
    Py_VISIT(module->masked_array);
    Py_VISIT(module->libraries);
    return 0;
}

static int module_clear(PyObject *self) {
    ons_module *module = PyModule_GetState(self);
    Py_CLEAR(module->axis_error);
    Py_CLEAR(module->masked_array);
    Py_CLEAR(module->libraries);
    Py_CLEAR(module->bfloat16);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,         .m_name = "onsoftmax._core", .m_doc = "The C core of onsoftmax.",
    .m_size = sizeof(ons_module),  .m_methods = functions,      .m_slots = slots,
    .m_traverse = module_traverse, .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
