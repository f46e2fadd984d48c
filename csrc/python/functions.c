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

#define SIGNATURE_OF_PAIR                                                    \
    "($module, array, /, axis=-1, *, method='auto', where=None, scale=1.0, " \
    "stream=None, num_threads=None, dtypes=None)\n--\n\n"

#define SIGNATURE_OF_TOPK                                                                  \
    "($module, array, /, k, axis=-1, *, log=False, sorted=True, return_normalizer=False, " \
    "method='auto', dtype=None, where=None, scale=1.0, stream=None, num_threads=None)\n--\n\n"

#define ARRAY_AND_AXIS                                                                           \
    "Parameters\n"                                                                               \
    "----------\n"                                                                               \
    "array : array_like, any shape\n"                                                            \
    "    Logits, dimensionless. A NumPy array of any strides, alignment and byte order; a\n"     \
    "    list or a number; a torch tensor, CuPy or JAX array; an object with ``__dlpack__``,\n"  \
    "    ``__cuda_array_interface__`` or ``__array__``.\n"                                       \
    "    The type is float16, bfloat16, float32 or float64. Integers and bools become the\n"     \
    "    default float of the array's library.\n"                                                \
    "    The call runs on the array's device, the CPU or a GPU. It does not change the array.\n" \
    "axis : int, tuple of ints, or None\n"                                                       \
    "    The axis or axes that form a row. The last axis by default; None means all axes.\n"

#define INPUTS_AND_AXIS                                                                         \
    "Parameters\n"                                                                              \
    "----------\n"                                                                              \
    "grad, output : array_like, of one shape\n"                                                 \
    "    The gradient of the loss, and the result of the forward operation, both\n"             \
    "    dimensionless. They may be any array that softmax takes. Both are on one device. If\n" \
    "    a row fits in fast memory (see plan), each of them is read once.\n"                    \
    "axis : int, tuple of ints, or None\n"                                                      \
    "    The axis or axes that formed a row in the forward operation. The last axis by\n"       \
    "    default; None means all axes.\n"

#define METHOD_OF_GRADIENT                                                                   \
    "method : str\n"                                                                         \
    "    fused or split; on the CPU also online; on a GPU also fused_warp, fused_block and " \
    "cluster.\n"                                                                             \
    "    auto chooses one for the shape, and invariant one for the length, as in softmax.\n"

#define METHOD_TEXT                                                                              \
    "method : str\n"                                                                             \
    "    One of methods(): naive, safe, online, fused, split or exact; on a GPU also\n"          \
    "    fused_warp, fused_block, online_block, cluster and grid. auto chooses one for the\n"    \
    "    shape (see plan()). invariant chooses one for the length of a row alone, so that a\n"   \
    "    row has the same bits in any batch (see set_batch_invariant()). exact gives the\n"      \
    "    exact results, rounded once, with the same bits on the CPU and on a GPU; float64 has\n" \
    "    no such method.\n"

#define DTYPE_AND_OUT                                                                            \
    "dtype : dtype, optional\n"                                                                  \
    "    The type of the result: float16, bfloat16, float32 or float64. The arithmetic uses\n"   \
    "    the wider type of the array and the result, and at least float32. Only `naive` works\n" \
    "    in the array's own type.\n"                                                             \
    "out : array of the same shape, optional\n"                                                  \
    "    Array that receives the result and is returned. It may be the input itself or\n"        \
    "    overlap it. `out`, `where` and an array `scale` must be on the input's device.\n"

#define DTYPE_AND_OUT_OF_GRADIENT                                                               \
    "dtype : dtype, optional\n"                                                                 \
    "    The type of the result: float16, bfloat16, float32 or float64. The default is the\n"   \
    "    type of the inputs. If their types differ, it is float64 if one of them is float64,\n" \
    "    and float32 otherwise. The arithmetic uses the widest type of grad, output and the\n"  \
    "    result.\n"                                                                             \
    "out : array of the same shape, optional\n"                                                 \
    "    Array that receives the result and is returned. It may be grad or output itself, or\n" \
    "    overlap them.\n"

#define KEEPDIMS_TEXT   \
    "keepdims : bool\n" \
    "    Whether the result keeps axis, with length 1.\n"

#define WHERE_AND_SCALE                                                                        \
    "where : array of bool that broadcasts to the array, optional\n"                           \
    "    False excludes an element. The result is as if the element did not exist.\n"          \
    "scale : float, or array that broadcasts with length 1 along axis\n"                       \
    "    The logits are multiplied by scale first. 1 / temperature is a typical scale. Each\n" \
    "    product is rounded once.\n"

#define WHERE_AND_SCALE_OF_GRADIENT                                                            \
    "where : array of bool that broadcasts to the inputs, optional\n"                          \
    "    The mask of the forward operation. False excludes an element from the sums.\n"        \
    "scale : float, or array that broadcasts with length 1 along axis\n"                       \
    "    The scale of the forward operation. The result is multiplied by it, and so rounded\n" \
    "    once more.\n"

#define STREAM_TO_THREADS                                                                       \
    "stream : object with __cuda_stream__, cuda_stream or ptr, or int, optional\n"              \
    "    The CUDA stream to work on, for a GPU array only. An int is CUDA's handle; 0 is the\n" \
    "    legacy default stream. By default it is the current stream of torch or CuPy for\n"     \
    "    their arrays, and the array's own stream for a DeviceArray or the CUDA Array\n"        \
    "    Interface. For other arrays it is the legacy default stream. The call does not wait\n" \
    "    for the GPU.\n"                                                                        \
    "num_threads : int, optional\n"                                                             \
    "    The largest number of threads to use, for a CPU array only. The default is\n"          \
    "    get_num_threads(). The number does not change the result.\n"                           \
    "\n"                                                                                        \
    "Returns\n"                                                                                 \
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
#define PARAMETERS_OF_PAIR                                                                  \
    ARRAY_AND_AXIS                                                                          \
    "method : str\n"                                                                        \
    "    As softmax takes it, except naive. exact gives states in place of pairs: m, the\n" \
    "    number of elements equal to m, and the sum of the other exponentials in two\n"     \
    "    doubles.\n" WHERE_AND_SCALE STREAM_TO_THREADS                                      \
    "float64 array of the input's kind. Its shape is the input's shape without axis, "      \
    "followed by 2, or by 4 for exact\n"

/* The operation's own part of the docstring has everything. */
#define PARAMETERS_OF_TOPK ""

#define KINDS                                                                                  \
    "    A NumPy, torch, CuPy or JAX array gives an array of the same library. Other arrays\n" \
    "    on a GPU give a DeviceArray.\n"

/* Of functions with `out`. */
#define VALUE_ERRORS_OF_OUT                                                                     \
    "    out has another shape than the result, or another type than dtype. It is read-only,\n" \
    "    has elements that overlap, or comes by DLPack as a copy.\n"
#define TYPE_ERRORS_OF_OUT "    out is given with a JAX tracer.\n"

#define ERRORS(values_of_out, types_of_out)                                                        \
    "\n"                                                                                           \
    "Raises\n"                                                                                     \
    "------\n"                                                                                     \
    "AxisError\n"                                                                                  \
    "    axis is out of bounds.\n"                                                                 \
    "ValueError\n"                                                                                 \
    "    The method is unknown, or cannot run on this device or with rows of this length. The\n"   \
    "    shape of where or scale does not fit. An int scale is too large for a float64. The\n"     \
    "    arrays are on different devices. stream is given for a CPU array, or num_threads for a\n" \
    "    GPU array. num_threads is below 1.\n" values_of_out                                       \
    "TypeError\n"                                                                                  \
    "    An array is longdouble, complex, object, string or masked. The mask is not bool.\n"       \
    "    stream is not a CUDA stream. The result would be float64 in JAX without\n"                \
    "    jax_enable_x64.\n" types_of_out                                                           \
    "BufferError\n"                                                                                \
    "    A DLPack capsule was used already, or has an unknown version or device.\n"                \
    "RuntimeError\n"                                                                               \
    "    An array is on a GPU, but the build has no CUDA, or the machine has no driver or no\n"    \
    "    GPU. CUDA reports an error. A tensor has a tangent, or a gradient that cannot flow\n"     \
    "    through this function. The code of another argument, such as its __array__, reshapes\n"   \
    "    or moves an array that the call has already taken.\n"                                     \
    "MemoryError\n"                                                                                \
    "    There is no memory for the result or the scratch.\n"                                      \
    "\n"                                                                                           \
    "References\n"                                                                                 \
    "----------\n"                                                                                 \
    "M. Milakov and N. Gimelshein, Online normalizer calculation for softmax,\n"                   \
    "arXiv:1805.02867 (2018): naive, safe and online are its algorithms 1 to 3 (pages 2 and\n"     \
    "3), split is its section 3.1 (page 4).\n"                                                     \
    "\n"                                                                                           \
    "Examples\n"                                                                                   \
    "--------\n"                                                                                   \
    ">>> import onsoftmax as ons\n"

/* Calls the operator that a ByOperator names, or raises its exception. It drops the ByOperator. */
static PyObject *call_operator(PyObject *self, PyObject *by_operator, const char *name,
                               PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *called = ons_operator_of(PyModule_GetState(self), by_operator, name);
    PyObject *made = called ? ons_vectorcall(called, args, (size_t)count, names) : NULL;
    Py_XDECREF(called);
    return made;
}

#define REST_OF_ROW(returns) KINDS returns ERRORS(VALUE_ERRORS_OF_OUT, TYPE_ERRORS_OF_OUT)
#define REST_OF_VALUE(returns) KINDS returns ERRORS("", "")
#define REST_OF_PAIR(returns) REST_OF_VALUE(returns)
#define REST_OF_GRADIENT(returns) REST_OF_ROW(returns)
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
    "Finishes an operation on rows, or on parts of rows. `pairs` are from normalizer, or from\n"
    "merge with gives='pair'. No element may be above the m of its row. compute: the type of\n"
    "the rows from which the pairs were made. Products with scale are rounded to it. The\n"
    "other parameters are softmax's.";

static const char sums_doc[] =
    "sums($module, array, /, axis=-1, *, stream=None, num_threads=None)\n--\n\n"
    "Adds up the state of each row, or part of a row, without rounding (csrc/api/digits.h).\n"
    "The result is float64. Its shape is the rows' shape, followed by 5. merge takes it. The\n"
    "place where a row is cut does not change the bits.";
static const char gradient_sums_doc[] =
    "gradient_sums($module, grad, output, /, axis=-1, *, method='auto', "
    "operation='softmax_backward', stream=None, num_threads=None)\n--\n\n"
    "Adds up each row for the gradient of an operation. The result is float64. Its shape is\n"
    "the rows' shape, followed by 2: the sum, and the rest that rounding removed from it.";
static const char gradient_finish_doc[] =
    "gradient_finish($module, grad, output, /, axis=-1, *, pairs, operation='softmax_backward', "
    "dtype=None, out=None, stream=None, num_threads=None)\n--\n\n"
    "The gradient of rows, or of parts of rows. `pairs` are from gradient_sums, and added up\n"
    "if the rows have several parts.";

static const char of_memory_doc[] =
    "The function without `_of_memory` in its name, for the operator that calls it. Returns\n"
    "NotImplemented for an array that another library must handle, such as a tensor that\n"
    "requires grad.";

/* The functions of each kind of operation. loss.c has those of losses. */
#define FUNCTIONS(name)                                                                           \
    {#name, (PyCFunction)(void (*)(void))call_##name, METH_FASTCALL | METH_KEYWORDS, name##_doc}, \
        {"_" #name "_of_memory", (PyCFunction)(void (*)(void))name##_of_memory,                   \
         METH_FASTCALL | METH_KEYWORDS, of_memory_doc},
#define FUNCTIONS_OF_ROW FUNCTIONS
#define FUNCTIONS_OF_VALUE FUNCTIONS
#define FUNCTIONS_OF_PAIR FUNCTIONS
#define FUNCTIONS_OF_GRADIENT FUNCTIONS
#define FUNCTIONS_OF_TOPK FUNCTIONS
#define FUNCTIONS_OF_LOSS(name)
#define FUNCTIONS_OF_LOSS_GRADIENT(name)
#define FUNCTIONS_OF_DIVERGENCE(name)
#define FUNCTIONS_OF_ROUTE(name)

static PyMethodDef functions[] = {
#define ONS_OPERATION(name, result, keeps, excluded, summary) FUNCTIONS_OF_##result(name)
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
