/* views.h - shared by the files of this folder: an array as C sees it, and where it came from. */
#ifndef ONS_PYTHON_VIEWS_H
#define ONS_PYTHON_VIEWS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "limited_api.h"

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL onsoftmax_numpy_api
#ifndef ONS_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "../api/onsoftmax.h"
#include "dlpack_abi.h"

/* The library of an array, and so of the result. ONS_NUMPY on a GPU: an unknown library, so the
 * result is a DeviceArray. ONS_NUMBER: one number, for which NumPy gives a scalar. _libraries may
 * return ONS_BY_OPERATOR instead, with a ByOperator instead of an array. */
typedef enum { ONS_NUMPY, ONS_TORCH, ONS_JAX, ONS_CUPY, ONS_NUMBER, ONS_BY_OPERATOR } ons_library;

enum { ONS_UNKNOWN_GPU = -1 };

/* An array of any library: device, address, type, shape and byte strides. */
typedef struct {
    PyObject *owner;        /* the array that keeps the memory alive; NULL: no array */
    PyObject *held;         /* a DLPack capsule that must live as long; or NULL */
    PyObject *stream_owner; /* keeps the stream alive; or NULL */
    char *data;
    ons_dtype dtype;
    ons_device device;
    int gpu;      /* on ONS_CUDA, like stream; ONS_UNKNOWN_GPU: ask CUDA by the address */
    void *stream; /* orders writes and frees of its memory; NULL: the legacy default stream */
    int ndim;
    bool readonly;
    int64_t shape[ONS_MAX_DIMS], strides[ONS_MAX_DIMS];
} ons_view;

/* Lets only one thread at a time use the content of an object, if there is no GIL. */
#ifdef Py_GIL_DISABLED
#define ONS_LOCKED(object) Py_BEGIN_CRITICAL_SECTION(object)
#define ONS_UNLOCKED() Py_END_CRITICAL_SECTION()
#else
#define ONS_LOCKED(object) {
#define ONS_UNLOCKED() }
#endif

/* Objects of torch that every call uses, kept from the first tensor on. */
typedef struct {
    PyObject *tensor, *parameter;               /* the types that use the exchange API */
    const dlpack_exchange *exchange;            /* NULL: this torch has none */
    PyObject *requires_grad, *layout, *is_neg;  /* descriptors of the type Tensor */
    descrgetfunc get_requires_grad, get_layout; /* read them from a tensor */
    PyObject *empty_like, *is_grad_enabled, *increment_version, *strided, *contiguous, *dtypes;
    PyObject *forward_ad; /* variables of the module torch.autograd.forward_ad */
    PyObject *modes;      /* variables of torch.utils._python_dispatch */
    PyObject *in_mode, *is_autocast_enabled, *is_tracing;
    PyObject *profiler;     /* variables of torch.autograd.profiler */
    PyObject *for_gradient; /* the ByOperator for a tensor that requires grad */
    /* shortcuts to a new tensor, from (shape, strides, dtype); the second on the current GPU; or
     * None */
    PyObject *empty_on_cpu, *empty_on_gpu;
} ons_torch;

/* Interned names that calls look up. */
typedef struct {
    PyObject *dlpack, *dlpack_device, *current_level, *in_mode, *is_profiled, *minus_one;
    /* tuples of keywords of calls */
    PyObject *dlpack_keywords, *dlpack_keywords_gpu, *dlpack_keywords_old, *empty_like_keywords;
} ons_names;

typedef struct {
    int num_threads; /* the default: set_num_threads, else ONSOFTMAX_NUM_THREADS, else the
                      * processors */
    int gpus;        /* number of GPUs; 0: not asked yet */
    ons_torch torch;
    ons_names names;
    PyObject *axis_error;    /* numpy's AxisError */
    PyObject *masked_array;  /* numpy.ma.MaskedArray */
    PyObject *libraries;     /* onsoftmax._libraries, imported when first needed */
    PyObject *device_array;  /* the type DeviceArray */
    PyObject *topk;          /* the type TopK */
    PyArray_Descr *bfloat16; /* ml_dtypes.bfloat16, imported when first needed */
} ons_module;

/* What other libraries must do or see of a call. */
typedef struct {
    /* A ByOperator of _libraries may be left here. It says why the core does not take an array, and
     * which operator does. */
    PyObject *by_operator;
    const char *row; /* the call's name in torch's profiler; NULL: an operator already shows it */
} ons_outside;

/* Shared by the arrays of a call. */
typedef struct {
    ons_module *module;
    void *stream;         /* on a GPU, the stream of the call */
    ons_library library;  /* of the array, and so of the result and the scratch */
    ons_outside *outside; /* NULL: no operator takes over, and no profiler shows the call */
} ons_caller;

/* ------- libraries.c ------- */

/* Imports NumPy's functions, for the whole folder. */
int ons_import_numpy(void);
/* An attribute of a module. Imports the module. */
PyObject *ons_attribute_of(const char *module, const char *name);
/* Calls a function of _libraries. The arguments are those of Py_BuildValue for a tuple. */
PyObject *ons_call_library(ons_module *module, const char *function, const char *format, ...);
/* Leaves a ByOperator to the caller, or raises it. Returns -1 in both cases: the call ends here. */
int ons_leave_by_operator(const ons_caller *caller, PyObject *by_operator);
/* The operator that a ByOperator has for a function, or its exception. Drops the ByOperator. */
PyObject *ons_operator_of(ons_module *module, PyObject *by_operator, const char *function);
/* Raises the exception of a ByOperator. */
void ons_raise_by_operator(PyObject *by_operator);

/* ------- numpy_view.c: all return 0, or -1 with an exception set ------- */

/* Makes a view empty; the second releases it first. */
void ons_no_view(ons_view *view);
void ons_release_view(ons_view *view);

/* The type of a NumPy dtype. TypeError if it is none of ours. */
int ons_dtype_of_numpy(ons_module *module, PyArray_Descr *descr, ons_dtype *dtype);
/* A new reference to NumPy's dtype of a type. TypeError for bfloat16 without ml_dtypes. */
PyArray_Descr *ons_numpy_dtype(ons_module *module, ons_dtype dtype);
/* Views an array of one of our types, or of bool, in place. */
int ons_view_numpy(ons_module *module, PyArrayObject *array, ons_view *view);
/* The same for a new array, whose type is known; it may be a type of indices. */
void ons_view_new_numpy(PyArrayObject *array, ons_dtype dtype, ons_view *view);
/* A NumPy array of numbers as one of our types in native byte order: itself if it is one, else
 * converted. */
PyArrayObject *ons_numpy_floating(ons_module *module, PyArrayObject *array);
/* An array over the memory of a view, which it does not keep alive. `type` is NumPy's number of its
 * type. */
PyObject *ons_numpy_of(const ons_view *view, int type);
/* Replaces the array of a view by a copy. */
int ons_view_copy(ons_view *view);
/* The bytes [*low, *high) that a view reaches. False if it has no elements. */
bool ons_view_bounds(const ons_view *view, uintptr_t *low, uintptr_t *high);
/* Whether the memory of two views overlaps, by their bounds; and whether they are the same
 * array. */
bool ons_views_overlap(const ons_view *a, const ons_view *b);
bool ons_views_same(const ons_view *a, const ons_view *b);
/* Whether elements of a view share memory with each other: 1, 0, or -1 with an exception. */
int ons_overlaps_itself(ons_module *module, const ons_view *view);

/* ------- numpy_memory.c ------- */

/* Between the two calls, new NumPy arrays of that many bytes use the memory for large results.
 * *before keeps the handler to restore. */
int ons_use_large_memory(int64_t bytes, PyObject **before);
void ons_use_memory_as_before(PyObject *before);

/* ------- dlpack_view.c ------- */

/* Takes the capsule of array.__dlpack__(). On a GPU it asks the library to make the array ready on
 * view->stream. With `own_stream`, view->stream is already the library's current stream. */
int ons_view_dlpack(ons_module *module, PyObject *array, ons_role role, bool own_stream,
                    ons_view *view);
/* An object whose deletion releases the tensor. On failure it releases the tensor, and returns NULL
 * with an exception. */
PyObject *ons_hold_managed(dlpack_managed_versioned *managed);
/* Whether a tensor has elements, but no data. */
bool ons_has_no_memory(const dlpack_tensor *tensor);
/* The role of a new array of that type. */
static inline ons_role ons_role_of_result(ons_dtype dtype) {
    if (dtype == ONS_BOOL) return ONS_WHERE;
    return dtype == ONS_INT32 || dtype == ONS_INT64 ? ONS_INDICES : ONS_Y;
}
/* Fills in everything but owner, held, stream and readonly. */
int ons_view_tensor(ons_module *module, const dlpack_tensor *tensor, ons_role role, ons_view *view);

/* ------- torch_view.c ------- */

/* Whether an object is simply a tensor of torch. False before torch is known. */
static inline bool ons_is_tensor(const ons_module *module, PyObject *object) {
    PyObject *type = (PyObject *)Py_TYPE(object);
    return type == __atomic_load_n(&module->torch.tensor, __ATOMIC_ACQUIRE) ||
           type == __atomic_load_n(&module->torch.parameter, __ATOMIC_ACQUIRE);
}
/* Returns 1 if the tensor was viewed, 0 if it needs the slow way through _libraries, and -1 for an
 * exception or a ByOperator. */
int ons_view_torch(const ons_caller *caller, PyObject *object, ons_role role, ons_view *view);
/* The same for a tensor that is known to be plain memory. */
int ons_view_plain_tensor(ons_module *module, PyObject *object, ons_role role, ons_view *view);
/* Fills ons_torch, at the first tensor. */
int ons_know_torch(ons_module *module);
int ons_torch_stream(ons_module *module, int gpu, void **stream);
/* Each leaves a ByOperator: if torch.autocast wants a wider result for such a tensor; if a
 * TorchDispatchMode wants to see operations on tensors; if torch.jit.trace records operators, and
 * would not see this call. */
int ons_check_autocast(const ons_caller *caller, const ons_view *view);
int ons_check_modes(const ons_caller *caller);
/* Begin and end the row of a call on tensors in torch's profiler. The row is NULL without a
 * profiler. */
int ons_begin_row(const ons_caller *caller, PyObject **row);
void ons_end_row(PyObject *row);
int ons_check_tracing(const ons_caller *caller);
int ons_new_tensor(ons_module *module, const ons_view *like, bool own_shape, ons_dtype dtype,
                   ons_view *view);
/* Memory of torch's allocator, in the order of its current stream. Deleting the returned object
 * frees it. */
PyObject *ons_torch_memory(ons_module *module, int gpu, int64_t bytes, void **memory);
/* Tells autograd that a tensor was written to. */
int ons_torch_written(ons_module *module, PyObject *tensor);

/* ------- gpu.c ------- */

/* RuntimeError without CUDA, driver or any GPU. ValueError if no GPU has this number. */
int ons_check_gpu(ons_module *module, int gpu);
/* ValueError unless every element lies at a multiple of its size, which a GPU needs. */
int ons_check_alignment(const char *name, const ons_view *view);
/* ValueError for a negative length, which no library makes. */
int ons_check_lengths(const ons_view *view);
/* How to build with CUDA. */
#define ONS_TO_HAVE_CUDA "in the checkout: ONSOFTMAX_CUDA=1 pip install -v -e ."
/* Raises the exception of a status that is not about the method. */
void ons_set_gpu_error(ons_status status);
/* "the CPU" or "cuda:0": a new string. */
PyObject *ons_device_text(const ons_view *view);
/* ValueError unless both are on one device. */
int ons_check_same_device(const char *name, const ons_view *view, const ons_view *x);
/* Views what _libraries describes: (array, address, shape, strides or None, dtype, read-only, gpu,
 * stream or None, what keeps the stream alive). */
int ons_view_described(ons_module *module, PyObject *description, ons_role role, ons_view *view);
/* Makes later work on `then` wait for the work so far on `first`. */
int ons_order(int gpu, void *first, void *then);

/* ------- gpu_memory.c ------- */

/* Memory of x's library, in the order of its stream. Deleting the returned object frees it in that
 * order too. */
PyObject *ons_gpu_memory(ons_module *module, ons_library library, int gpu, void *stream,
                         int64_t bytes, void **memory);
/* Replaces the memory that the view reaches by a copy. */
int ons_gpu_copy_view(ons_module *module, ons_library library, void *stream, ons_view *view);

/* ------- stream.c ------- */

/* stream= of a call; NULL for the legacy default stream. */
int ons_take_stream(PyObject *object, void **stream);

/* ------- device_array.c ------- */

/* A new DeviceArray, its memory allocated in the order of the stream. */
PyObject *ons_new_device_array(ons_module *module, int gpu, void *stream, ons_dtype dtype, int ndim,
                               const int64_t *shape);
void ons_view_device_array(PyObject *array, ons_view *view);
/* If the array is a DeviceArray, it keeps alive the capsules of the arrays from which it was
 * computed, and its stream (device_array.c). */
int ons_device_array_keep(ons_module *module, PyObject *array, PyObject *stream_owner,
                          const ons_view *const from[], int count);

/* ------- exchange.c: any array -> view, and the result -> the caller's own type ------- */

/* TypeError for a list of Dask arrays, or for lists that contain them. */
int ons_check_list(ons_module *module, PyObject *object);
/* On a GPU, an array without a stream of its own is made ready on the caller's. */
int ons_take(const ons_caller *caller, PyObject *object, ons_role role, ons_view *view,
             ons_library *library);
/* The name of an object's type: a new string. */
static inline PyObject *ons_type_name(PyObject *object) {
    return PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
}
/* Whether NumPy made an array of objects or texts from its input. */
static inline bool ons_holds_no_numbers(PyArrayObject *array) {
    const int type = PyArray_TYPE(array);
    return type == NPY_OBJECT || type == NPY_UNICODE || type == NPY_STRING;
}
/* Whether the object is a plain Python value, from which NumPy makes an array. The result then
 * belongs to no library. */
bool ons_is_plain(PyObject *object);
int ons_take_out(const ons_caller *caller, PyObject *object, ons_view *view, ons_library *library);
/* TypeError for a masked array of NumPy's. */
int ons_refuse_masked(const ons_module *module, const char *name, PyObject *object);
/* RuntimeError if an array has changed since it was viewed. Converting another argument may run
 * Python code, which can reshape arrays in place and free their memory. */
int ons_check_unchanged(ons_module *module, const char *name, const ons_view *view);
/* ons_new_result makes a new array for the result, of `like`'s shape. `own_shape`: this is the
 * shape of the array behind it, or of a part of a NumPy array, and the new array has its memory
 * order. ons_hand_over turns the result, after the run, into the type for a caller who gave an
 * array of that library. */
int ons_new_result(const ons_caller *caller, const ons_view *like, bool own_shape, ons_dtype dtype,
                   ons_view *view);
PyObject *ons_hand_over(ons_module *module, ons_library library, PyObject *given,
                        const ons_view *view);

/* ------- operands.c ------- */

/* A mask on x's device. view->owner stays NULL for where=True on a GPU. */
int ons_take_mask(const ons_caller *caller, PyObject *object, const ons_view *x, ons_view *view);
/* A number in *number with view->owner NULL, or a view; on the CPU a view of float64. */
int ons_take_scale(const ons_caller *caller, PyObject *object, const ons_view *x, ons_view *view,
                   double *number);
/* dtype= of a call. Returns 1, or 0 and no change of *dtype if the object is NULL or None. */
int ons_take_dtype(ons_module *module, PyObject *object, ons_dtype *dtype);

/* ------- problem.c: a problem from views ------- */

/* An int. TypeError for anything else, even for a bool, which Python accepts as an int. */
PyObject *ons_plain_int(PyObject *object);
/* axis= of a call as None, an int or a tuple of ints. It may run Python code, so call it before
 * looking at any array. */
PyObject *ons_plain_axes(PyObject *object);
/* Sets the dimensions that the axes reduce; the last one if the object is NULL. */
int ons_take_axes(ons_module *module, PyObject *object, int ndim, bool reduced[ONS_MAX_DIMS]);
/* Sets the strides of a C-ordered array of the view's shape. */
void ons_put_in_c_order(ons_view *view);
/* Makes a problem from the views by their roles, except scale_by, the fields of an operation that
 * selects, and on a GPU the stream. y must have x's dimensions. Pairs have the dimensions of the
 * rows, then a dimension of 2. States of `exact` have a dimension of 4 there. */
bool ons_are_exact_states(const ons_view *view);
int ons_make_problem(ons_operation operation, const ons_view operand[ONS_OPERANDS],
                     const ons_view *y, const bool reduced[ONS_MAX_DIMS], ons_problem *problem);
/* The shape, as a new tuple (2, 3) and as a new string "(2, 3)". */
PyObject *ons_shape_of(const ons_view *view);
PyObject *ons_shape_text(const ons_view *view);

#endif
