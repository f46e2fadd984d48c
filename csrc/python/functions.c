/* functions.c - the operations as functions of the module. What is an operation's own of a
 * docstring stands in its file. */
#include "arguments.h"

#define SIGNATURE_OF_ROW                                                                \
    "($module, array, /, axis=-1, *, method='auto', dtype=None, out=None, where=None, " \
    "scale=1.0, stream=None, num_threads=None)\n--\n\n"
#define SIGNATURE_OF_VALUE                                                                   \
    "($module, array, /, axis=-1, *, keepdims=False, method='auto', where=None, scale=1.0, " \
    "stream=None, num_threads=None)\n--\n\n"

#define SIGNATURE_OF_GRADIENT                                                                  \
    "($module, grad, output, /, axis=-1, *, method='auto', dtype=None, out=None, where=None, " \
    "scale=1.0, stream=None, num_threads=None)\n--\n\n"

#define SIGNATURE_OF_PAIR                                                  \
    "($module, array, /, axis=-1, *, where=None, scale=1.0, stream=None, " \
    "num_threads=None, dtypes=None)\n--\n\n"

#define SIGNATURE_OF_TOPK                                                                  \
    "($module, array, /, k, axis=-1, *, log=False, sorted=True, return_normalizer=False, " \
    "method='auto', dtype=None, where=None, scale=1.0, stream=None, num_threads=None)\n--\n\n"

#define ARRAY_AND_AXIS                                                                           \
    "Parameters\n"                                                                               \
    "----------\n"                                                                               \
    "array : array_like, any shape\n"                                                            \
    "    Logits, dimensionless: a NumPy array of any strides, alignment and byte order, a list " \
    "or number; a\n"                                                                             \
    "    torch tensor, CuPy or JAX array; an object with ``__dlpack__``, "                       \
    "``__cuda_array_interface__``\n"                                                             \
    "    or ``__array__``.\n"                                                                    \
    "    float16, bfloat16, float32, float64; integers and bool are taken as the library's "     \
    "default float.\n"                                                                           \
    "    On the CPU or a GPU, where the work is then done. Never written to.\n"                  \
    "axis : int, tuple of ints, or None\n"                                                       \
    "    What is taken as one row: one axis, several, or all. The last by default.\n"

#define INPUTS_AND_AXIS                                                                           \
    "Parameters\n"                                                                                \
    "----------\n"                                                                                \
    "grad, output : array_like, of one shape\n"                                                   \
    "    The gradient of the loss, and the result of the forward operation, both dimensionless; " \
    "kinds and\n"                                                                                 \
    "    types as softmax takes them, on one device. Each is read once where a row fits "         \
    "(see plan).\n"                                                                               \
    "axis : int, tuple of ints, or None\n"                                                        \
    "    What was taken as one row: one axis, several, or all. The last by default.\n"

#define METHOD_OF_GRADIENT                                                                       \
    "method : str\n"                                                                             \
    "    fused or split; on the CPU online too, and on a GPU fused_warp, fused_block, cluster; " \
    "auto picks for\n"                                                                           \
    "    the shape.\n"

#define METHOD_TEXT                                                                      \
    "method : str\n"                                                                     \
    "    One of methods(): naive, safe, online, fused, split, and on a GPU fused_warp, " \
    "fused_block,\n"                                                                     \
    "    online_block, cluster, grid; auto picks for the shape (see plan()).\n"

#define DTYPE_AND_OUT                                                                              \
    "dtype : dtype, optional\n"                                                                    \
    "    The result's type, one of the four. The arithmetic is done in the wider of input and "    \
    "result, at\n"                                                                                 \
    "    least float32; `naive` alone works in the array's own type.\n"                            \
    "out : array of the same shape, optional\n"                                                    \
    "    Where the result goes, and what is returned; may be the array itself, or overlap it. On " \
    "the\n"                                                                                        \
    "    array's device, as where is, and scale where it is an array.\n"

#define DTYPE_AND_OUT_OF_GRADIENT                                                                \
    "dtype : dtype, optional\n"                                                                  \
    "    The result's type, one of the four; by default that of the inputs, where they differ "  \
    "float32, or\n"                                                                              \
    "    float64 where one of them is. The arithmetic is done in the widest of the three.\n"     \
    "out : array of the same shape, optional\n"                                                  \
    "    Where the result goes, and what is returned; may be grad or output itself, or overlap " \
    "them.\n"

#define KEEPDIMS_TEXT   \
    "keepdims : bool\n" \
    "    Whether the result has axis too, with length 1.\n"

#define WHERE_AND_SCALE                                                       \
    "where : array of bool that broadcasts to the array, optional\n"          \
    "    False excludes an element: the others are as if it was not there.\n" \
    "scale : float, or array that broadcasts with length 1 along axis\n"      \
    "    Multiplies the logits first, as 1 / temperature does; the product is rounded once.\n"

#define WHERE_AND_SCALE_OF_GRADIENT                                                               \
    "where : array of bool that broadcasts to the inputs, optional\n"                             \
    "    As it was given to the forward operation: False excludes an element from the sums.\n"    \
    "scale : float, or array that broadcasts with length 1 along axis\n"                          \
    "    As it was given to the forward operation: multiplies the result, which is rounded once " \
    "more.\n"

#define STREAM_TO_THREADS                                                                         \
    "stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional\n"                \
    "    The CUDA stream to work on, for a GPU array alone; an int is CUDA's handle, 0 the "      \
    "legacy default\n"                                                                            \
    "    stream. By default the current one of torch or CuPy, that of a DeviceArray or of the "   \
    "CUDA Array\n"                                                                                \
    "    Interface, else the legacy default one. Nothing waits for the GPU.\n"                    \
    "num_threads : int, optional\n"                                                               \
    "    The most threads to use, for a CPU array alone; get_num_threads() by default. Does not " \
    "change the\n"                                                                                \
    "    result.\n"                                                                               \
    "\n"                                                                                          \
    "Returns\n"                                                                                   \
    "-------\n"

#define PARAMETERS_OF_ROW                                                      \
    ARRAY_AND_AXIS METHOD_TEXT DTYPE_AND_OUT WHERE_AND_SCALE STREAM_TO_THREADS \
        "array of the input's shape and kind\n"
#define PARAMETERS_OF_VALUE                                                    \
    ARRAY_AND_AXIS KEEPDIMS_TEXT METHOD_TEXT WHERE_AND_SCALE STREAM_TO_THREADS \
        "array of the input's shape without axis, and of its kind and type\n"

#define PARAMETERS_OF_GRADIENT                                   \
    INPUTS_AND_AXIS METHOD_OF_GRADIENT DTYPE_AND_OUT_OF_GRADIENT \
        WHERE_AND_SCALE_OF_GRADIENT STREAM_TO_THREADS            \
        "array of the inputs' shape, and of output's kind\n"
#define PARAMETERS_OF_PAIR                           \
    ARRAY_AND_AXIS WHERE_AND_SCALE STREAM_TO_THREADS \
        "array of float64, of the input's kind, and of its shape without axis, with 2 behind\n"

/* Its own text says all. */
#define PARAMETERS_OF_TOPK ""

#define KINDS                                                                                      \
    "    NumPy for NumPy, torch for torch, CuPy for CuPy, JAX for JAX; DeviceArray for others on " \
    "a GPU.\n"

#define ERRORS                                                                                     \
    "\n"                                                                                           \
    "Raises\n"                                                                                     \
    "------\n"                                                                                     \
    "AxisError\n"                                                                                  \
    "    axis is out of bounds.\n"                                                                 \
    "ValueError\n"                                                                                 \
    "    An unknown method, or one that this device or row length cannot run; the shape of out, "  \
    "where or\n"                                                                                   \
    "    scale; an int scale above float64; arrays on different devices; an out that is "          \
    "read-only, a copy,\n"                                                                         \
    "    or whose elements overlap; out and dtype that disagree; a stream for a CPU array, "       \
    "num_threads for a\n"                                                                          \
    "    GPU array or below 1.\n"                                                                  \
    "TypeError\n"                                                                                  \
    "    longdouble, complex, object, string and masked arrays; a mask that is not bool; what is " \
    "no stream;\n"                                                                                 \
    "    out with a JAX tracer; a float64 result in JAX without jax_enable_x64.\n"                 \
    "BufferError\n"                                                                                \
    "    A DLPack capsule that was used already, or of an unknown version or device.\n"            \
    "RuntimeError\n"                                                                               \
    "    A GPU array in a build without CUDA, without a driver or without a GPU; an error of "     \
    "CUDA; a tensor\n"                                                                             \
    "    that has a tangent, or a gradient that does not flow through here; an array that "        \
    "converting\n"                                                                                 \
    "    another argument reshapes or moves.\n"                                                    \
    "MemoryError\n"                                                                                \
    "    No memory for the result or the scratch.\n"                                               \
    "\n"                                                                                           \
    "References\n"                                                                                 \
    "----------\n"                                                                                 \
    "M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 "   \
    "(2018):\n"                                                                                    \
    "naive, safe, online are its algorithms 1 to 3 (pages 2 and 3), split its section 3.1 (page "  \
    "4).\n"                                                                                        \
    "\n"                                                                                           \
    "Examples\n"                                                                                   \
    "--------\n"                                                                                   \
    ">>> import onsoftmax as ons\n"

/* The call by the operator that a ByOperator, which is dropped, names; else its exception. */
static PyObject *call_operator(PyObject *self, PyObject *by_operator, const char *name,
                               PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *called =
        ons_call_library(PyModule_GetState(self), "operator_of", "(Os)", by_operator, name);
    PyObject *made = NULL;
    if (called && called != Py_None)
        made = ons_vectorcall(called, args, (size_t)count, names);
    else if (called)
        ons_raise_by_operator(by_operator);
    Py_XDECREF(called);
    Py_DECREF(by_operator);
    return made;
}

#define REST_OF_ROW(returns) KINDS returns ERRORS
#define REST_OF_VALUE(returns) KINDS returns ERRORS
#define REST_OF_PAIR(returns) KINDS returns ERRORS
#define REST_OF_GRADIENT(returns) KINDS returns ERRORS
#define REST_OF_TOPK(returns) returns
#define CALL_OF_ROW ons_call
#define CALL_OF_VALUE ons_call
#define CALL_OF_PAIR ons_call
#define CALL_OF_GRADIENT ons_call
#define CALL_OF_TOPK ons_topk_call
#define ONS_OPERATION_IN_PYTHON(name, result, what, returns, example)                            \
    static const char name##_doc[] = #name SIGNATURE_OF_##result what                            \
        "\n\n" PARAMETERS_OF_##result REST_OF_##result(returns) example;                         \
    static PyObject *name##_of_memory(PyObject *self, PyObject *const *args, Py_ssize_t count,   \
                                      PyObject *names) {                                         \
        PyObject *by_operator = NULL;                                                            \
        PyObject *made =                                                                         \
            CALL_OF_##result(ONS_OPERATION_##name, self, args, count, names, &by_operator);      \
        if (!by_operator) return made;                                                           \
        Py_DECREF(by_operator);                                                                  \
        Py_RETURN_NOTIMPLEMENTED;                                                                \
    }                                                                                            \
    static PyObject *call_##name(PyObject *self, PyObject *const *args, Py_ssize_t count,        \
                                 PyObject *names) {                                              \
        PyObject *by_operator = NULL;                                                            \
        PyObject *made =                                                                         \
            CALL_OF_##result(ONS_OPERATION_##name, self, args, count, names, &by_operator);      \
        return by_operator ? call_operator(self, by_operator, #name, args, count, names) : made; \
    }
#include "../op/operations.def"
#undef ONS_OPERATION_IN_PYTHON

static const char finish_doc[] =
    "finish($module, array, /, axis=-1, *, pairs, operation='softmax', dtype=None, out=None, "
    "where=None, scale=1.0, stream=None, num_threads=None, compute=None)\n--\n\n"
    "An operation on rows, or on parts of rows, whose pairs are given: those that normalizer "
    "gives, "
    "or merged\n"
    "ones. No element may be above the m of its row. compute: the type of the rows that the pairs "
    "are\n"
    "of, by which products with scale are rounded. The other parameters are softmax's.";

static const char sums_doc[] =
    "sums($module, array, /, axis=-1, *, stream=None, num_threads=None)\n--\n\n"
    "The state of each row, or part of a row, added up without rounding (csrc/api/exact.h), in 5 "
    "float64 behind\nthe rows' shape: merge takes it. Where a row is cut does not show.";
static const char gradient_sums_doc[] =
    "gradient_sums($module, grad, output, /, axis=-1, *, operation='softmax_backward', "
    "stream=None, num_threads=None)\n--\n\n"
    "What the rows of that operation add up, in 2 float64 behind the rows' shape: the sum, and "
    "what it\nrounded away.";
static const char gradient_finish_doc[] =
    "gradient_finish($module, grad, output, /, axis=-1, *, pairs, operation='softmax_backward', "
    "dtype=None, out=None, stream=None, num_threads=None)\n--\n\n"
    "The gradient of rows, or of parts of rows, whose sums are given: those that gradient_sums "
    "gives, or the\nsums of these.";

static const char of_memory_doc[] =
    "The function of that name for its operator: NotImplemented if an array is more than its "
    "values.";

static PyMethodDef functions[] = {
#define ONS_OPERATION(name, result, keeps, excluded, summary)                                     \
    {#name, (PyCFunction)(void (*)(void))call_##name, METH_FASTCALL | METH_KEYWORDS, name##_doc}, \
        {"_" #name "_of_memory", (PyCFunction)(void (*)(void))name##_of_memory,                   \
         METH_FASTCALL | METH_KEYWORDS, of_memory_doc},
#include "../op/operations.def"
#undef ONS_OPERATION
    {"finish", (PyCFunction)(void (*)(void))ons_finish_call, METH_FASTCALL | METH_KEYWORDS,
     finish_doc},
    {"sums", (PyCFunction)(void (*)(void))ons_sums_call, METH_FASTCALL | METH_KEYWORDS, sums_doc},
    {"gradient_sums", (PyCFunction)(void (*)(void))ons_gradient_sums_call,
     METH_FASTCALL | METH_KEYWORDS, gradient_sums_doc},
    {"gradient_finish", (PyCFunction)(void (*)(void))ons_gradient_finish_call,
     METH_FASTCALL | METH_KEYWORDS, gradient_finish_doc},
    {NULL, NULL, 0, NULL},
};

int ons_add_operations(PyObject *module) { return PyModule_AddFunctions(module, functions); }
