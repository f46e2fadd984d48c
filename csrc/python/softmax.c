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

/* The views of a call; those but x may be of nothing. */
typedef struct {
    ons_view x, y, where, scale;
    ons_library library;
} call_views;

static void release(call_views *views) {
    ons_release_view(&views->x);
    ons_release_view(&views->y);
    ons_release_view(&views->where);
    ons_release_view(&views->scale);
}

static int copy_view(ons_module *module, const call_views *views, void *stream, ons_view *view) {
    return view->device == ONS_CPU ? ons_view_copy(view)
                                   : ons_gpu_copy_view(module, views->library, stream, view);
}

/* What is read must not change while out is written: copies what out overlaps, but for x itself. */
static int keep_apart(ons_module *module, call_views *views, void *stream) {
    ons_view *const read[] = {&views->x, &views->where, &views->scale};
    for (int i = 0; i < 3; i++)
        if (read[i]->owner && ons_views_overlap(read[i], &views->y) &&
            !(i == 0 && ons_views_same(read[i], &views->y)) &&
            copy_view(module, views, stream, read[i]) < 0)
            return -1;
    return 0;
}

/* The operand must lie where x does. An array in the order of another stream joins this one, and
 * afterwards (`leave`) goes on behind it. */
static int join(const char *name, const ons_view *view, const ons_view *x, void *stream) {
    if (!view->owner) return 0;
    if (ons_check_place(name, view, x) < 0) return -1;
    if (view->device == ONS_CPU) return 0;
    if (ons_check_alignment(name, view) < 0) return -1;
    return ons_order(view->gpu, view->stream, stream);
}

static int leave(const call_views *views, void *stream) {
    const ons_view *const all[] = {&views->x, &views->y, &views->where, &views->scale};
    for (int i = 0; i < 4; i++)
        if (all[i]->owner && all[i]->device == ONS_CUDA &&
            ons_order(all[i]->gpu, stream, all[i]->stream) < 0)
            return -1;
    return 0;
}

static int run(ons_module *module, const ons_problem *problem, ons_method method, int threads,
               ons_library library) {
    ons_plan plan;
    void *workspace = NULL;
    PyObject *scratch = NULL;
    ons_status status = ons_make_plan(problem, method, threads, &plan);
    if (status == ONS_OK && problem->device == ONS_CUDA && plan.workspace_bytes > 0) {
        scratch = ons_gpu_memory(module, library, problem->gpu, problem->stream,
                                 plan.workspace_bytes, &workspace);
        if (!scratch) return -1;
    }
    if (status == ONS_OK) {
        /* a launch waits where the GPU's queue is full */
        if (problem->device == ONS_CUDA || plan.rows * plan.N >= GIL_ELEMENTS) {
            Py_BEGIN_ALLOW_THREADS status = ons_run(problem, &plan, workspace);
            Py_END_ALLOW_THREADS
        } else {
            status = ons_run(problem, &plan, NULL);
        }
    }
    Py_XDECREF(scratch); /* free for what comes after on the stream */
    if (status == ONS_OK) return 0;
    ons_set_error(status, method, problem, &plan);
    return -1;
}

/* With a stream other than torch's or CuPy's current one the call is made again under it, so that
 * all that the library allocates and converts is in its order. NotImplemented: not so here. */
static PyObject *call_on_stream(ons_module *module, PyObject *self, PyObject *array, void *stream,
                                PyObject *given[KEYWORDS]) {
    if (PyArray_Check(array)) Py_RETURN_NOTIMPLEMENTED;
    PyObject *keywords = ons_keywords_but_stream(given);
    PyObject *call = keywords ? PyObject_GetAttrString(self, "softmax") : NULL;
    PyObject *handle = call ? PyLong_FromVoidPtr(stream) : NULL, *result = NULL;
    if (handle)
        result = ons_call_library(module, "on_stream", "(OOOO)", call, array, handle, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(call);
    Py_XDECREF(handle);
    return result;
}

/* stream= and num_threads= are each for one device. */
static int check_device(const ons_view *x, PyObject *given[KEYWORDS]) {
    if (x->device == ONS_CPU && given[STREAM]) {
        PyErr_SetString(PyExc_ValueError,
                        "stream is given, but the array is on the CPU: expected None");
        return -1;
    }
    if (x->device == ONS_CUDA && given[NUM_THREADS]) {
        PyErr_Format(PyExc_ValueError,
                     "num_threads is given, but the array is on cuda:%d: expected None", x->gpu);
        return -1;
    }
    return 0;
}

/* Takes out, or makes the result. */
static int take_result(ons_module *module, PyObject *given[KEYWORDS], call_views *views,
                       void *stream) {
    ons_dtype dtype = views->x.dtype;
    ons_library library;
    if (given[DTYPE] && ons_take_dtype(module, given[DTYPE], &dtype) < 0) return -1;
    if (!given[OUT])
        return ons_new_result(module, &views->x, views->library, dtype, stream, &views->y);
    if (ons_take_out(module, given[OUT], stream, &views->y, &library) < 0) return -1;
    if (check_out(&views->y, &views->x, given[DTYPE] && given[DTYPE] != Py_None, dtype) < 0 ||
        join("out", &views->y, &views->x, stream) < 0 || keep_apart(module, views, stream) < 0)
        return -1;
    return library == ONS_TORCH ? ons_torch_written(module, given[OUT]) : 0;
}

PyObject *ons_softmax(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    ons_module *module = PyModule_GetState(self);
    PyObject *given[KEYWORDS], *result = NULL;
    call_views views;
    const ons_view *x = &views.x;
    ons_method method;
    ons_problem problem;
    bool reduced[ONS_MAX_DIMS];
    int threads = module->num_threads;
    void *stream = NULL;

    if (ons_take_arguments("softmax", DEVICE, args, count, names, given) < 0) return NULL;
    if (ons_take_threads(given[NUM_THREADS], &threads) < 0) return NULL;
    if (given[STREAM]) {
        if (ons_take_stream(given[STREAM], &stream) < 0) return NULL;
        result = call_on_stream(module, self, args[0], stream, given);
        if (result != Py_NotImplemented) return result;
        Py_CLEAR(result);
    }
    ons_no_view(&views.x);
    ons_no_view(&views.y);
    ons_no_view(&views.where);
    ons_no_view(&views.scale);
    problem.scale_by = 1.0;
    if (ons_take(module, args[0], ONS_INPUT, stream, &views.x, &views.library) < 0) goto done;
    if (check_device(x, given) < 0) goto done;
    if (ons_take_method(given[METHOD], x->device, &method) < 0) goto done;
    if (x->device == ONS_CUDA && !given[STREAM]) stream = x->stream;
    if (ons_take_axes(module, given[AXIS], x->ndim, reduced) < 0) goto done;
    if (given[WHERE] && ons_take_mask(module, given[WHERE], x, stream, &views.where) < 0) goto done;
    if (given[SCALE] &&
        ons_take_scale(module, given[SCALE], x, stream, &views.scale, &problem.scale_by) < 0)
        goto done;
    if (join("array", x, x, stream) < 0 || join("where", &views.where, x, stream) < 0 ||
        join("scale", &views.scale, x, stream) < 0)
        goto done;
    if (take_result(module, given, &views, stream) < 0) goto done;
    if (ons_make_problem(x, &views.y, &views.where, &views.scale, reduced, &problem) < 0) goto done;
    problem.stream = stream;
    if (run(module, &problem, method, threads, views.library) < 0) goto done;
    if (x->device == ONS_CUDA) {
        const ons_view *const from[] = {x, &views.where, &views.scale};
        if (leave(&views, stream) < 0) goto done;
        PyObject *stream_owner = given[STREAM] ? given[STREAM] : x->stream_owner;
        if (ons_device_array_keep(module, views.y.owner, stream_owner, from, 3) < 0) goto done;
    }
    if (given[OUT]) {
        result = given[OUT];
        Py_INCREF(result);
    } else {
        result = ons_hand_over(module, views.library, &views.y);
    }
done:
    release(&views);
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
    "number; a\n"
    "    torch tensor, CuPy or JAX array; an object with __dlpack__, __cuda_array_interface__ or "
    "__array__.\n"
    "    float16, bfloat16, float32, float64; integers and bool are taken as the library's default "
    "float.\n"
    "    On the CPU or a GPU, where the work is then done. Never written to.\n"
    "axis : int, tuple of ints, or None\n"
    "    What is normalized together: one axis, several, or all. The last by default.\n"
    "method : str\n"
    "    One of methods(): naive, safe, online, fused, split, and on a GPU fused_warp, "
    "fused_block,\n"
    "    online_block, cluster, grid; auto picks for the shape (see plan()).\n"
    "dtype : dtype, optional\n"
    "    The result's type, one of the four. The arithmetic is done in the wider of input and "
    "result, at\n"
    "    least float32; `naive` alone works in the array's own type.\n"
    "out : array of the same shape, optional\n"
    "    Where the result goes, and what is returned; may be the array itself, or overlap it. On "
    "the\n"
    "    array's device, as where is, and scale where it is an array.\n"
    "where : array of bool that broadcasts to the array, optional\n"
    "    False excludes an element: its result is 0, and the others are as if it was not there.\n"
    "scale : float, or array that broadcasts with length 1 along axis\n"
    "    Multiplies the logits first, as 1 / temperature does; the product is rounded once.\n"
    "stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional\n"
    "    The CUDA stream to work on, for a GPU array alone; an int is CUDA's handle, 0 the legacy "
    "default\n"
    "    stream. By default the current one of torch or CuPy, that of a DeviceArray or of the CUDA "
    "Array\n"
    "    Interface, else the legacy default one. Nothing waits for the GPU.\n"
    "num_threads : int, optional\n"
    "    The most threads to use, for a CPU array alone; get_num_threads() by default. Does not "
    "change the\n"
    "    result.\n\n"
    "Returns\n"
    "-------\n"
    "array of the input's shape and kind\n"
    "    NumPy for NumPy, torch for torch, CuPy for CuPy, JAX for JAX; DeviceArray for others on a "
    "GPU.\n"
    "    Along axis it sums to 1. A row with a NaN or +inf, or with nothing but -inf, is NaN. "
    "float32 and\n"
    "    float64 lie within 4 eps of the exact value; float16 and bfloat16 are that float32 result "
    "rounded\n"
    "    to nearest even.\n\n"
    "Raises\n"
    "------\n"
    "AxisError\n"
    "    axis is out of bounds.\n"
    "ValueError\n"
    "    An unknown method, or one that this device or row length cannot run; the shape of out, "
    "where or\n"
    "    scale; arrays on different devices; a read-only out; out and dtype that disagree; a "
    "stream "
    "for a\n"
    "    CPU array, num_threads for a GPU array or below 1.\n"
    "TypeError\n"
    "    longdouble, complex, object, string and masked arrays; a mask that is not bool; what is "
    "no "
    "stream;\n"
    "    a JAX tracer.\n"
    "BufferError\n"
    "    A DLPack capsule that was used already, or of an unknown version or device.\n"
    "RuntimeError\n"
    "    A GPU array in a build without CUDA, without a driver or without a GPU; an error of CUDA; "
    "a tensor\n"
    "    that requires grad.\n"
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
