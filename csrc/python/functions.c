/* functions.c - the operations as functions of the module. The file of an operation has its own
 * part of the docstring. */
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

#define ARRAY_AND_AXIS                                                                             \
    "Parameters\n"                                                                                 \
    "----------\n"                                                                                 \
    "array : array_like, any shape\n"                                                              \
    "    Logits, dimensionless. A NumPy array of any strides, alignment and byte order; a list "   \
    "or a\n"                                                                                       \
    "    number; a torch tensor, CuPy or JAX array; an object with ``__dlpack__``,\n"              \
    "    ``__cuda_array_interface__`` or ``__array__``.\n"                                         \
    "    float16, bfloat16, float32 or float64. Integers and bool become the library's default "   \
    "float.\n"                                                                                     \
    "    The work is done on the array's device, the CPU or a GPU. The array is not written to.\n" \
    "axis : int, tuple of ints, or None\n"                                                         \
    "    The axis or axes that form a row. The last axis by default; None means all axes.\n"

#define INPUTS_AND_AXIS                                                                            \
    "Parameters\n"                                                                                 \
    "----------\n"                                                                                 \
    "grad, output : array_like, of one shape\n"                                                    \
    "    The gradient of the loss, and the result of the forward operation, both dimensionless. "  \
    "Kinds\n"                                                                                      \
    "    and types are those of softmax. Both are on one device. Each is read once if a row fits " \
    "(see\n"                                                                                       \
    "    plan).\n"                                                                                 \
    "axis : int, tuple of ints, or None\n"                                                         \
    "    The axis or axes that formed a row in the forward operation. The last axis by default; "  \
    "None\n"                                                                                       \
    "    means all axes.\n"

#define METHOD_OF_GRADIENT                                                                   \
    "method : str\n"                                                                         \
    "    fused or split; on the CPU also online; on a GPU also fused_warp, fused_block and " \
    "cluster.\n"                                                                             \
    "    auto chooses one for the shape.\n"

#define METHOD_TEXT                                                                                \
    "method : str\n"                                                                               \
    "    One of methods(): naive, safe, online, fused or split; on the CPU also exact; on a GPU "  \
    "also\n"                                                                                       \
    "    fused_warp, fused_block, online_block, cluster and grid. auto chooses one for the shape " \
    "(see\n"                                                                                       \
    "    plan()). exact gives the exact results, rounded once; float64 has no such method.\n"

#define DTYPE_AND_OUT                                                                            \
    "dtype : dtype, optional\n"                                                                  \
    "    The type of the result, one of the four. The arithmetic uses the wider type of input "  \
    "and\n"                                                                                      \
    "    result, and at least float32. Only `naive` works in the array's own type.\n"            \
    "out : array of the same shape, optional\n"                                                  \
    "    Array that receives the result and is returned. It may be the input itself or overlap " \
    "it.\n"                                                                                      \
    "    `out`, `where` and an array `scale` must be on the input's device.\n"

#define DTYPE_AND_OUT_OF_GRADIENT                                                                  \
    "dtype : dtype, optional\n"                                                                    \
    "    The type of the result, one of the four. By default it is the type of the inputs; if "    \
    "these\n"                                                                                      \
    "    differ, float64 if one of them is float64, else float32. The arithmetic uses the widest " \
    "of the\n"                                                                                     \
    "    three types.\n"                                                                           \
    "out : array of the same shape, optional\n"                                                    \
    "    Array that receives the result and is returned. It may be grad or output itself, or "     \
    "overlap\n"                                                                                    \
    "    them.\n"

#define KEEPDIMS_TEXT   \
    "keepdims : bool\n" \
    "    Whether the result keeps axis, with length 1.\n"

#define WHERE_AND_SCALE                                                               \
    "where : array of bool that broadcasts to the array, optional\n"                  \
    "    False excludes an element. The result is as if the element did not exist.\n" \
    "scale : float, or array that broadcasts with length 1 along axis\n"              \
    "    Multiplies the logits first, as 1 / temperature does. The product is rounded once.\n"

#define WHERE_AND_SCALE_OF_GRADIENT                                                            \
    "where : array of bool that broadcasts to the inputs, optional\n"                          \
    "    The mask of the forward operation. False excludes an element from the sums.\n"        \
    "scale : float, or array that broadcasts with length 1 along axis\n"                       \
    "    The scale of the forward operation. It multiplies the result, which is rounded once " \
    "more.\n"

#define STREAM_TO_THREADS                                                                          \
    "stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional\n"                 \
    "    The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the "     \
    "legacy\n"                                                                                     \
    "    default stream. By default it is the current stream of torch or CuPy, or the stream of "  \
    "a\n"                                                                                          \
    "    DeviceArray or of the CUDA Array Interface, else the legacy default stream. The call "    \
    "does not\n"                                                                                   \
    "    wait for the GPU.\n"                                                                      \
    "num_threads : int, optional\n"                                                                \
    "    The most threads to use, for a CPU array only; get_num_threads() by default. The number " \
    "does\n"                                                                                       \
    "    not change the result.\n"                                                                 \
    "\n"                                                                                           \
    "Returns\n"                                                                                    \
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

/* Its own part has everything. */
#define PARAMETERS_OF_TOPK ""

#define KINDS                                                                                     \
    "    A NumPy array for NumPy, torch for torch, CuPy for CuPy, JAX for JAX. For other arrays " \
    "on a GPU it\n"                                                                               \
    "    is a DeviceArray.\n"

#define ERRORS                                                                                     \
    "\n"                                                                                           \
    "Raises\n"                                                                                     \
    "------\n"                                                                                     \
    "AxisError\n"                                                                                  \
    "    axis is out of bounds.\n"                                                                 \
    "ValueError\n"                                                                                 \
    "    The method is unknown, or this device or row length cannot run it. The shape of out, "    \
    "where or\n"                                                                                   \
    "    scale does not fit. An int scale is above float64. The arrays are on different devices. " \
    "out is\n"                                                                                     \
    "    read-only, is a copy, or has elements that overlap. out and dtype disagree. A CPU array " \
    "has a\n"                                                                                      \
    "    stream; a GPU array has num_threads, or num_threads is below 1.\n"                        \
    "TypeError\n"                                                                                  \
    "    A longdouble, complex, object, string or masked array; a mask that is not bool; an "      \
    "object that\n"                                                                                \
    "    is not a CUDA stream; out with a JAX tracer; a float64 result in JAX without "            \
    "jax_enable_x64.\n"                                                                            \
    "BufferError\n"                                                                                \
    "    A DLPack capsule that was used already, or has an unknown version or device.\n"           \
    "RuntimeError\n"                                                                               \
    "    A GPU array, but the build has no CUDA, or there is no driver or no GPU. An error of "    \
    "CUDA. A\n"                                                                                    \
    "    tensor with a tangent, or with a gradient that does not flow through this function. An "  \
    "array\n"                                                                                      \
    "    that the conversion of another argument reshapes or moves.\n"                             \
    "MemoryError\n"                                                                                \
    "    There is no memory for the result or the scratch.\n"                                      \
    "\n"                                                                                           \
    "References\n"                                                                                 \
    "----------\n"                                                                                 \
    "M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 "   \
    "(2018):\n"                                                                                    \
    "naive, safe and online are its algorithms 1 to 3 (pages 2 and 3), split is its section 3.1 "  \
    "(page\n"                                                                                      \
    "4).\n"                                                                                        \
    "\n"                                                                                           \
    "Examples\n"                                                                                   \
    "--------\n"                                                                                   \
    ">>> import onsoftmax as ons\n"

/* Calls the operator that a ByOperator names, or raises its exception. It drops the ByOperator. */
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
#define ONS_OPERATION_IN_PYTHON(name, result, what, returns, example)                          \
    static const char name##_doc[] = #name SIGNATURE_OF_##result what                          \
        "\n\n" PARAMETERS_OF_##result REST_OF_##result(returns) example;                       \
    static PyObject *name##_of_memory(PyObject *self, PyObject *const *args, Py_ssize_t count, \
                                      PyObject *names) {                                       \
        ons_outside outside = {NULL, NULL};                                                    \
        PyObject *made =                                                                       \
            CALL_OF_##result(ONS_OPERATION_##name, self, args, count, names, &outside);        \
        if (!outside.by_operator) return made;                                                 \
        Py_DECREF(outside.by_operator);                                                        \
        Py_RETURN_NOTIMPLEMENTED;                                                              \
    }                                                                                          \
    static PyObject *call_##name(PyObject *self, PyObject *const *args, Py_ssize_t count,      \
                                 PyObject *names) {                                            \
        ons_outside outside = {NULL, "onsoftmax::" #name};                                     \
        PyObject *made =                                                                       \
            CALL_OF_##result(ONS_OPERATION_##name, self, args, count, names, &outside);        \
        PyObject *const by = outside.by_operator;                                              \
        return by ? call_operator(self, by, #name, args, count, names) : made;                 \
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
