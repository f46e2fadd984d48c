/* views.h - what the files of this folder share: an array as C sees it, and where it came from. */
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

/* Whose array it is, and so what the result will be. ONS_NUMPY on a GPU: of no library that we
 * know, the result is a DeviceArray. ONS_NUMBER: one number, for which NumPy gives a scalar.
 * _libraries says ONS_BY_OPERATOR in place of a library, beside a ByOperator in place of an array.
 */
typedef enum { ONS_NUMPY, ONS_TORCH, ONS_JAX, ONS_CUPY, ONS_NUMBER, ONS_BY_OPERATOR } ons_library;

enum { ONS_UNKNOWN_GPU = -1 };

/* An array of any library: where it lies, address, type, shape and byte strides. */
typedef struct {
    PyObject *owner;        /* the array that keeps the memory alive; NULL: no array */
    PyObject *held;         /* what else must live as long, a DLPack capsule; or NULL */
    PyObject *stream_owner; /* keeps the stream alive; or NULL */
    char *data;
    ons_dtype dtype;
    ons_device device;
    int gpu;      /* on ONS_CUDA, as is stream; ONS_UNKNOWN_GPU: CUDA knows it by the address */
    void *stream; /* in whose order its memory is written and freed; NULL: the legacy default one */
    int ndim;
    bool readonly;
    int64_t shape[ONS_MAX_DIMS], strides[ONS_MAX_DIMS];
} ons_view;

/* One thread at a time for what an object holds, where there is no GIL to see to it. */
#ifdef Py_GIL_DISABLED
#define ONS_LOCKED(object) Py_BEGIN_CRITICAL_SECTION(object)
#define ONS_UNLOCKED() Py_END_CRITICAL_SECTION()
#else
#define ONS_LOCKED(object) {
#define ONS_UNLOCKED() }
#endif

/* What is asked of torch in every call, kept from the first tensor on. */
typedef struct {
    PyObject *tensor, *parameter;               /* the types that the exchange is taken for */
    const dlpack_exchange *exchange;            /* NULL: this torch has none */
    PyObject *requires_grad, *layout, *is_neg;  /* as the type Tensor has them */
    descrgetfunc get_requires_grad, get_layout; /* what reads such of a tensor */
    PyObject *empty_like, *is_grad_enabled, *increment_version, *strided, *contiguous, *dtypes;
    PyObject *forward_ad; /* the variables of the module torch.autograd.forward_ad */
    PyObject *modes;      /* those of torch.utils._python_dispatch */
    PyObject *in_mode, *is_autocast_enabled, *is_tracing;
    PyObject *profiler;     /* those of torch.autograd.profiler */
    PyObject *for_gradient; /* the ByOperator of a tensor that requires grad */
    /* shortcuts to a new tensor: of (shape, strides, dtype), a GPU's on the current one; or None */
    PyObject *empty_on_cpu, *empty_on_gpu;
} ons_torch;

/* Names that calls look up, interned. */
typedef struct {
    PyObject *dlpack, *dlpack_device, *current_level, *in_mode, *is_profiled, *minus_one;
    /* tuples of the keywords of a call */
    PyObject *dlpack_keywords, *dlpack_keywords_gpu, *dlpack_keywords_old, *empty_like_keywords;
} ons_names;

typedef struct {
    int num_threads; /* by default: set_num_threads, else ONSOFTMAX_NUM_THREADS, else the processors
                      */
    int gpus;        /* how many there are; 0: not asked yet */
    ons_torch torch;
    ons_names names;
    PyObject *axis_error;    /* numpy's AxisError */
    PyObject *masked_array;  /* numpy.ma.MaskedArray */
    PyObject *libraries;     /* onsoftmax._libraries, imported when first needed */
    PyObject *device_array;  /* the type DeviceArray */
    PyObject *topk;          /* the type TopK */
    PyArray_Descr *bfloat16; /* ml_dtypes.bfloat16, likewise */
} ons_module;

/* What others have to do with a call. */
typedef struct {
    /* A ByOperator of _libraries is left here: it says why the core does not take an array, and
     * which operator does. */
    PyObject *by_operator;
    const char *row; /* the call's name in torch's profiler; NULL: an operator has it there */
} ons_outside;

/* What the arrays of a call share. */
typedef struct {
    ons_module *module;
    void *stream;         /* on a GPU: in whose order the call works */
    ons_library library;  /* of the array, and so of the result and the scratch */
    ons_outside *outside; /* NULL: no operator takes over, and no profiler shows the call */
} ons_caller;

/* ------- libraries.c ------- */

/* Finds NumPy's functions, for the whole folder. */
int ons_import_numpy(void);
/* An attribute of a module, which is imported. */
PyObject *ons_attribute_of(const char *module, const char *name);
/* Calls a function of _libraries; the arguments as Py_BuildValue takes a tuple's. */
PyObject *ons_call_library(ons_module *module, const char *function, const char *format, ...);
/* Leaves a ByOperator to the caller, or raises it. -1, as for an exception: the call ends here. */
int ons_leave_by_operator(const ons_caller *caller, PyObject *by_operator);
/* Raises what a ByOperator says. */
void ons_raise_by_operator(PyObject *by_operator);

/* ------- numpy_view.c: all return 0, or -1 with an exception set ------- */

/* A view of nothing; and one of nothing again. */
void ons_no_view(ons_view *view);
void ons_release_view(ons_view *view);

/* The type of a NumPy array; TypeError, naming `what`, where it is none of ours. */
int ons_dtype_of_numpy(ons_module *module, PyArray_Descr *descr, ons_dtype *dtype);
/* A new reference to NumPy's name for a type; TypeError for bfloat16 without ml_dtypes. */
PyArray_Descr *ons_numpy_dtype(ons_module *module, ons_dtype dtype);
/* Looks at an array of one of our types, or of bool, in place. */
int ons_view_numpy(ons_module *module, PyArrayObject *array, ons_view *view);
/* The same of a new array, whose type is known, and may be that of indices. */
void ons_view_new_numpy(PyArrayObject *array, ons_dtype dtype, ons_view *view);
/* A NumPy array of numbers as one of our types in native byte order: itself where it is, else
 * converted. */
PyArrayObject *ons_numpy_floating(ons_module *module, PyArrayObject *array);
/* An array over the memory that a view shows, which it does not keep alive; of NumPy's type with
 * that number. */
PyObject *ons_numpy_of(const ons_view *view, int type);
/* Puts a copy of what the view shows in its place. */
int ons_view_copy(ons_view *view);
/* The bytes [*low, *high) that a view reaches; false where it has no elements. */
bool ons_view_bounds(const ons_view *view, uintptr_t *low, uintptr_t *high);
/* Whether the memory that two views reach overlaps, by their bounds; and whether they are one
 * array. */
bool ons_views_overlap(const ons_view *a, const ons_view *b);
bool ons_views_same(const ons_view *a, const ons_view *b);
/* Whether elements of a view share memory with each other: 1, 0, or -1 with an exception. */
int ons_overlaps_itself(ons_module *module, const ons_view *view);

/* ------- numpy_memory.c ------- */

/* From the first call to the second the memory of new NumPy arrays is that for large results, where
 * there are that many bytes; *before keeps what it was. */
int ons_use_large_memory(int64_t bytes, PyObject **before);
void ons_use_memory_as_before(PyObject *before);

/* ------- dlpack_view.c ------- */

/* Takes the capsule of array.__dlpack__(). On a GPU its library is asked to have it ready on
 * view->stream; or, where `own_stream`, view->stream is the library's current one already. */
int ons_view_dlpack(ons_module *module, PyObject *array, ons_role role, bool own_stream,
                    ons_view *view);
/* What to drop to release a tensor; NULL, and it is released, with an exception. */
PyObject *ons_hold_managed(dlpack_managed_versioned *managed);
/* Whether a tensor has elements, but no data. */
bool ons_has_no_memory(const dlpack_tensor *tensor);
/* The role of a new array of that type. */
static inline ons_role ons_role_of_result(ons_dtype dtype) {
    return dtype == ONS_INT32 || dtype == ONS_INT64 ? ONS_INDICES : ONS_Y;
}
/* Fills in all but owner, held, stream and readonly. */
int ons_view_tensor(ons_module *module, const dlpack_tensor *tensor, ons_role role, ons_view *view);

/* ------- torch_view.c ------- */

/* Whether an object is simply a tensor, of torch once that is known: no other library's array. */
static inline bool ons_is_tensor(const ons_module *module, PyObject *object) {
    PyObject *type = (PyObject *)Py_TYPE(object);
    return type == __atomic_load_n(&module->torch.tensor, __ATOMIC_ACQUIRE) ||
           type == __atomic_load_n(&module->torch.parameter, __ATOMIC_ACQUIRE);
}
/* 1: the tensor was looked at; 0: it needs the slow way, by _libraries; -1: an exception, or a
 * ByOperator. */
int ons_view_torch(const ons_caller *caller, PyObject *object, ons_role role, ons_view *view);
/* The same for one that is known to be plain memory. */
int ons_view_plain_tensor(ons_module *module, PyObject *object, ons_role role, ons_view *view);
/* Keeps what ons_torch holds, at the first tensor that comes. */
int ons_know_torch(ons_module *module);
int ons_torch_stream(ons_module *module, int gpu, void **stream);
/* Each leaves a ByOperator: where torch.autocast wants a wider result for such a tensor; where a
 * TorchDispatchMode wants to see what is done with tensors; where torch.jit.trace records
 * operators, and would not see this call. */
int ons_check_autocast(const ons_caller *caller, const ons_view *view);
int ons_check_modes(const ons_caller *caller);
/* Begins the row of a call on tensors in torch's profiler, and ends it. NULL: no profiler is on. */
int ons_begin_row(const ons_caller *caller, PyObject **row);
void ons_end_row(PyObject *row);
int ons_check_tracing(const ons_caller *caller);
int ons_new_tensor(ons_module *module, const ons_view *like, bool own_shape, ons_dtype dtype,
                   ons_view *view);
/* Memory of torch's allocator, in the order of its current stream; what to drop to free it. */
PyObject *ons_torch_memory(ons_module *module, int gpu, int64_t bytes, void **memory);
/* Tells autograd that a tensor was written to. */
int ons_torch_written(ons_module *module, PyObject *tensor);

/* ------- gpu.c ------- */

/* RuntimeError, unless there is that GPU and this build has CUDA. */
int ons_check_gpu(ons_module *module, int gpu);
/* ValueError, unless every element lies at a multiple of its size, as a GPU reads it. */
int ons_check_alignment(const char *name, const ons_view *view);
/* ValueError for a negative length, which no library makes. */
int ons_check_lengths(const ons_view *view);
/* How a build without CUDA gets it. */
#define ONS_TO_HAVE_CUDA "in the checkout: ONSOFTMAX_CUDA=1 pip install -v -e ."
/* The exception for a status that is not about the method. */
void ons_set_gpu_error(ons_status status);
/* "the CPU" or "cuda:0": a new string. */
PyObject *ons_device_text(const ons_view *view);
/* ValueError unless both are on one device. */
int ons_check_same_device(const char *name, const ons_view *view, const ons_view *x);
/* Looks at what _libraries describes: (array, address, shape, strides or None, dtype, read-only,
 * gpu, stream or None, what keeps the stream alive). */
int ons_view_described(ons_module *module, PyObject *description, ons_role role, ons_view *view);
/* What is done on the first stream from now on comes before what is done on the other. */
int ons_order(int gpu, void *first, void *then);

/* ------- gpu_memory.c ------- */

/* Memory of x's library, in the order of its stream; what to drop to free it, in that order too. */
PyObject *ons_gpu_memory(ons_module *module, ons_library library, int gpu, void *stream,
                         int64_t bytes, void **memory);
/* Puts a copy of the memory that the view reaches in its place. */
int ons_gpu_copy_view(ons_module *module, ons_library library, void *stream, ons_view *view);

/* ------- stream.c ------- */

/* stream= of a call; the legacy default one is NULL. */
int ons_take_stream(PyObject *object, void **stream);

/* ------- device_array.c ------- */

/* A new DeviceArray, its memory allocated in the order of the stream. */
PyObject *ons_new_device_array(ons_module *module, int gpu, void *stream, ons_dtype dtype, int ndim,
                               const int64_t *shape);
void ons_view_device_array(PyObject *array, ons_view *view);
/* What the array, a DeviceArray or not, needs of those it was computed from: see device_array.c. */
int ons_device_array_keep(ons_module *module, PyObject *array, PyObject *stream_owner,
                          const ons_view *const from[], int count);

/* ------- exchange.c: any array -> view, and the result -> the caller's own type ------- */

/* TypeError for a list, or lists in it, of Dask arrays. */
int ons_check_list(ons_module *module, PyObject *object);
/* On a GPU: an array that is in the order of no stream of its own is made ready on the caller's. */
int ons_take(const ons_caller *caller, PyObject *object, ons_role role, ons_view *view,
             ons_library *library);
/* The name of an object's type: a new string. */
static inline PyObject *ons_type_name(PyObject *object) {
    return PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
}
/* Whether NumPy made an array of objects or texts of what it was given. */
static inline bool ons_holds_no_numbers(PyArrayObject *array) {
    const int type = PyArray_TYPE(array);
    return type == NPY_OBJECT || type == NPY_UNICODE || type == NPY_STRING;
}
/* Whether the object is a plain Python value that NumPy makes an array of: no library to give it
 * back to. */
bool ons_is_plain(PyObject *object);
int ons_take_out(const ons_caller *caller, PyObject *object, ons_view *view, ons_library *library);
/* TypeError for a masked array of NumPy's. */
int ons_refuse_masked(const ons_module *module, const char *name, PyObject *object);
/* RuntimeError where an array is no longer what it was when it was looked at: what converts another
 * argument may run Python code, which can reshape arrays in place and free their memory. */
int ons_check_unchanged(ons_module *module, const char *name, const ons_view *view);
/* A new array for the result, of `like`'s shape; `own_shape`: which is that of the array behind it,
 * or of a part of NumPy's, and then in its memory order.
 * And after the run what the caller gets for it, who has given an array of that library. */
int ons_new_result(const ons_caller *caller, const ons_view *like, bool own_shape, ons_dtype dtype,
                   ons_view *view);
PyObject *ons_hand_over(ons_module *module, ons_library library, PyObject *given,
                        const ons_view *view);

/* ------- operands.c ------- */

/* A mask where x is; view->owner NULL where it excludes nothing. */
int ons_take_mask(const ons_caller *caller, PyObject *object, const ons_view *x, ons_view *view);
/* A number in *number and view->owner NULL; or a view: of float64 on the CPU. */
int ons_take_scale(const ons_caller *caller, PyObject *object, const ons_view *x, ons_view *view,
                   double *number);
/* dtype= of a call: 1; or 0 where the object is NULL or None, and *dtype stays. */
int ons_take_dtype(ons_module *module, PyObject *object, ons_dtype *dtype);

/* ------- problem.c: a problem from views ------- */

/* An int; TypeError for what is none, and for a bool, which Python would take for one. */
PyObject *ons_plain_int(PyObject *object);
/* axis= of a call as None, an int or a tuple of ints. That may run Python code: it comes before any
 * array is looked at. */
PyObject *ons_plain_axes(PyObject *object);
/* Which dimensions such axes reduce; the last one where the object is NULL. */
int ons_take_axes(ons_module *module, PyObject *object, int ndim, bool reduced[ONS_MAX_DIMS]);
/* Strides for a C-ordered array of the view's shape. */
void ons_put_in_c_order(ons_view *view);
/* All but scale_by, what an operation that selects is told, and, on a GPU, the stream; from the
 * views by their roles, but for y, which has x's dimensions. Pairs have a dimension of 2 behind
 * those of the rows. */
int ons_make_problem(ons_operation operation, const ons_view operand[ONS_OPERANDS],
                     const ons_view *y, const bool reduced[ONS_MAX_DIMS], ons_problem *problem);
/* (2, 3) and "(2, 3)": a new tuple, a new string. */
PyObject *ons_shape_of(const ons_view *view);
PyObject *ons_shape_text(const ons_view *view);

#endif
