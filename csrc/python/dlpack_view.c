/* dlpack_view.c - makes a view of an array that its library lends by DLPack. */
#include "views.h"

static const char HELD[] = "onsoftmax_dlpack";

/* The capsule of a consumed tensor frees it by its producer's function. This may run Python, so a
 * pending exception is put aside. */
static void release_legacy(PyObject *capsule) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    dlpack_managed *managed = PyCapsule_GetPointer(capsule, HELD);
    if (managed->deleter) managed->deleter(managed);
    PyErr_Restore(type, value, trace);
}

static void release_versioned(PyObject *capsule) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    dlpack_managed_versioned *managed = PyCapsule_GetPointer(capsule, HELD);
    if (managed->deleter) managed->deleter(managed);
    PyErr_Restore(type, value, trace);
}

PyObject *ons_hold_managed(dlpack_managed_versioned *managed) {
    PyObject *held = PyCapsule_New(managed, HELD, release_versioned);
    if (!held && managed->deleter) managed->deleter(managed);
    return held;
}

/* Whether __dlpack_device__ says that the array is on a GPU, and on which one. An array without it
 * is on the CPU. */
static int is_on_gpu(ons_module *module, PyObject *array, int *number) {
    PyObject *place = PyObject_CallMethodNoArgs(array, module->names.dlpack_device);
    int type = 0;
    if (!place && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return 0;
    }
    PyObject *plain = place ? PySequence_Tuple(place) : NULL;
    bool known = plain && PyArg_ParseTuple(plain, "ii", &type, number);
    Py_XDECREF(place);
    Py_XDECREF(plain);
    return known ? type == DLPACK_CUDA || type == DLPACK_CUDA_MANAGED : -1;
}

/* DLPack's number of a stream: 1 is the legacy default stream, -1 asks for no order. */
static PyObject *stream_number(bool own_stream, void *stream) {
    if (own_stream) return PyLong_FromLong(-1);
    return stream ? PyLong_FromVoidPtr(stream) : PyLong_FromLong(1);
}

/* array.__dlpack__(max_version=(1, 3)), on a GPU with stream=. The array's GPU is the current one
 * meanwhile, since torch refuses otherwise. If the array does not know these keywords, calls it as
 * before DLPack had versions. */
static PyObject *capsule_of(ons_module *module, PyObject *array, bool own_stream, void *stream) {
    int number_of_gpu, before = -1;
    int gpu = is_on_gpu(module, array, &number_of_gpu);
    PyObject *capsule = NULL, *number = NULL, *version = NULL;
    PyObject *method = gpu < 0 ? NULL : PyObject_GetAttr(array, module->names.dlpack);
    if (!method) return NULL;
    if (gpu) number = stream_number(own_stream, stream);
    if (!gpu || number) version = Py_BuildValue("(ii)", 1, 3);
    if (version) {
        if (gpu) before = ons_gpu_make_current(number_of_gpu);
        PyObject *arguments[] = {version, number};
        capsule =
            ons_vectorcall(method, arguments, 0,
                           gpu ? module->names.dlpack_keywords_gpu : module->names.dlpack_keywords);
        if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            capsule =
                ons_vectorcall(method, &number, 0, gpu ? module->names.dlpack_keywords_old : NULL);
        }
        if (before >= 0) ons_gpu_make_current(before);
    }
    Py_DECREF(method);
    Py_XDECREF(number);
    Py_XDECREF(version);
    return capsule;
}

/* NumPy's number of an integer type or bool, or -1. */
static int count_type(dlpack_dtype given) {
    static const int ints[] = {NPY_INT8, NPY_INT16, NPY_INT32, NPY_INT64};
    static const int uints[] = {NPY_UINT8, NPY_UINT16, NPY_UINT32, NPY_UINT64};
    int width = given.bits == 8    ? 0
                : given.bits == 16 ? 1
                : given.bits == 32 ? 2
                : given.bits == 64 ? 3
                                   : -1;
    if (given.lanes != 1 || width < 0) return -1;
    if (given.code == DLPACK_BOOL) return width == 0 ? NPY_BOOL : -1;
    return given.code == DLPACK_INT ? ints[width] : given.code == DLPACK_UINT ? uints[width] : -1;
}

/* Replaces the view of integers by a view of float64 numbers, which NumPy converts. */
static int float_counts(ons_module *module, int type, ons_view *view) {
    PyObject *shown = ons_numpy_of(view, type);
    PyArrayObject *floating = shown ? ons_numpy_floating(module, (PyArrayObject *)shown) : NULL;
    ons_view converted;
    int status = floating ? ons_view_numpy(module, floating, &converted) : -1;
    if (status == 0) {
        ons_release_view(view);
        *view = converted;
    }
    Py_XDECREF(shown);
    Py_XDECREF(floating);
    return status;
}

/* The name of a type in NumPy, ml_dtypes and torch, as a new string. */
static PyObject *dtype_text(dlpack_dtype given) {
    enum { OTHERS = 7 };
    static const char *const kinds[OTHERS] = {[DLPACK_INT] = "int",
                                              [DLPACK_UINT] = "uint",
                                              [DLPACK_FLOAT] = "float",
                                              [DLPACK_BFLOAT] = "bfloat",
                                              [DLPACK_COMPLEX] = "complex"};
    static const char *const others[] = {
        "float8_e3m4",     "float8_e4m3",   "float8_e4m3b11fnuz", "float8_e4m3fn",
        "float8_e4m3fnuz", "float8_e5m2",   "float8_e5m2fnuz",    "float8_e8m0fnu",
        "float6_e2m3fn",   "float6_e3m2fn", "float4_e2m1fn"}; /* by codes from 7 on */
    PyObject *text;
    if (given.code == DLPACK_BOOL && given.bits == 8)
        text = PyUnicode_FromString("bool");
    else if (given.code < OTHERS && kinds[given.code])
        text = PyUnicode_FromFormat("%s%d", kinds[given.code], given.bits);
    else if (given.code >= OTHERS && given.code - OTHERS < (int)(sizeof others / sizeof *others))
        text = PyUnicode_FromString(others[given.code - OTHERS]);
    else
        text = PyUnicode_FromFormat("of DLPack's code %d and %d bits", given.code, given.bits);
    if (text && given.lanes != 1)
        Py_SETREF(text, PyUnicode_FromFormat("%U in groups of %d", text, given.lanes));
    return text;
}

/* TypeError for a type that an array's role does not allow. */
static int refuse_dtype(dlpack_dtype given, ons_role role) {
    PyObject *text = dtype_text(given);
    const char *const floats = "expected float16, bfloat16, float32 or float64";
    if (text && role == ONS_WHERE)
        PyErr_Format(PyExc_TypeError, "where has dtype %U: expected a mask of bool", text);
    else if (text && role == ONS_Y)
        PyErr_Format(PyExc_TypeError, "out has dtype %U: %s", text, floats);
    else if (text)
        PyErr_Format(PyExc_TypeError, "%sdtype %U is not supported: %s",
                     role == ONS_SCALE ? "scale: " : "", text, floats);
    Py_XDECREF(text);
    return -1;
}

static int dtype_of(dlpack_dtype given, ons_role role, ons_dtype *dtype) {
    if (given.lanes == 1 && given.code == DLPACK_FLOAT && given.bits == 16)
        *dtype = ONS_FLOAT16;
    else if (given.lanes == 1 && given.code == DLPACK_FLOAT && given.bits == 32)
        *dtype = ONS_FLOAT32;
    else if (given.lanes == 1 && given.code == DLPACK_FLOAT && given.bits == 64)
        *dtype = ONS_FLOAT64;
    else if (given.lanes == 1 && given.code == DLPACK_BFLOAT && given.bits == 16)
        *dtype = ONS_BFLOAT16;
    else if (role == ONS_INDICES && count_type(given) == NPY_INT32)
        *dtype = ONS_INT32;
    else if (role == ONS_INDICES && count_type(given) == NPY_INT64)
        *dtype = ONS_INT64;
    else
        return refuse_dtype(given, role);
    return 0;
}

/* Integers and bool in the input become float64 if NumPy can read them. */
static int take_type(const dlpack_tensor *tensor, ons_role role, ons_view *view, int *counts) {
    *counts = -1;
    if (role == ONS_WHERE) {
        view->dtype = ONS_BOOL;
        if (count_type(tensor->dtype) == NPY_BOOL) return 0;
        return refuse_dtype(tensor->dtype, role);
    }
    if (role == ONS_X || role == ONS_SCALE) *counts = count_type(tensor->dtype);
    if (*counts < 0) return dtype_of(tensor->dtype, role, &view->dtype);
    if (view->device == ONS_CPU) return 0;
    PyErr_SetString(PyExc_TypeError,
                    "got an array of integers or bool on a GPU, and onsoftmax does not ask its "
                    "library to convert it: expected float16, bfloat16, float32 or float64");
    return -1;
}

bool ons_has_no_memory(const dlpack_tensor *tensor) {
    enum { LOWEST_ADDRESS = 4096 }; /* an offset may have been added to NULL */
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->shape[i] == 0) return false;
    return (uintptr_t)tensor->data < LOWEST_ADDRESS;
}

int ons_view_tensor(ons_module *module, const dlpack_tensor *tensor, ons_role role,
                    ons_view *view) {
    int counts;
    view->device = tensor->device.type == DLPACK_CUDA || tensor->device.type == DLPACK_CUDA_MANAGED
                       ? ONS_CUDA
                       : ONS_CPU;
    view->gpu = tensor->device.id;
    if (view->device == ONS_CUDA && ons_check_gpu(module, view->gpu) < 0) return -1;
    if (view->device == ONS_CPU && tensor->device.type != DLPACK_CPU &&
        tensor->device.type != DLPACK_CUDA_HOST) {
        PyErr_Format(PyExc_BufferError,
                     "DLPack device type %d is not supported: expected the CPU (1) or CUDA (2)",
                     tensor->device.type);
        return -1;
    }
    if (tensor->ndim < 0 || tensor->ndim > ONS_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "array has %d dimensions: at most %d are supported",
                     tensor->ndim, ONS_MAX_DIMS);
        return -1;
    }
    if (take_type(tensor, role, view, &counts) < 0) return -1;
    view->ndim = tensor->ndim;
    view->data = (char *)tensor->data + tensor->byte_offset;
    int64_t size = tensor->dtype.bits / 8, c_stride = size;
    for (int i = view->ndim - 1; i >= 0; i--) {
        view->shape[i] = tensor->shape[i];
        view->strides[i] = tensor->strides ? tensor->strides[i] * size : c_stride;
        c_stride *= tensor->shape[i];
    }
    if (ons_check_lengths(view) < 0) return -1;
    if (ons_has_no_memory(tensor)) {
        PyErr_SetString(PyExc_BufferError, "the DLPack capsule has elements, but no data");
        return -1;
    }
    return counts < 0 ? 0 : float_counts(module, counts, view);
}

/* Takes the content of the capsule. view->held releases it. */
static int take_capsule(PyObject *capsule, ons_role role, ons_view *view,
                        const dlpack_tensor **tensor) {
    if (PyCapsule_IsValid(capsule, DLPACK_VERSIONED)) {
        dlpack_managed_versioned *managed = PyCapsule_GetPointer(capsule, DLPACK_VERSIONED);
        if (managed->major != 1) {
            PyErr_Format(PyExc_BufferError, "DLPack version %u.%u is not supported: expected 1.x",
                         (unsigned)managed->major, (unsigned)managed->minor);
            return -1;
        }
        if (role == ONS_Y && managed->flags & DLPACK_COPIED) {
            PyErr_SetString(PyExc_ValueError,
                            "DLPack gives only a copy of out, and the result would be lost in the "
                            "copy: expected an array that shares its own memory");
            return -1;
        }
        view->held = PyCapsule_New(managed, HELD, release_versioned);
        if (!view->held) return -1;
        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        view->readonly = (managed->flags & DLPACK_READ_ONLY) != 0;
        *tensor = &managed->tensor;
    } else {
        dlpack_managed *managed = PyCapsule_GetPointer(capsule, DLPACK_LEGACY);
        view->held = PyCapsule_New(managed, HELD, release_legacy);
        if (!view->held) return -1;
        PyCapsule_SetName(capsule, "used_dltensor");
        view->readonly = false;
        *tensor = &managed->tensor;
    }
    return 0;
}

int ons_view_dlpack(ons_module *module, PyObject *array, ons_role role, bool own_stream,
                    ons_view *view) {
    PyObject *capsule = capsule_of(module, array, own_stream, view->stream);
    if (!capsule) return -1;
    int status = -1;
    const dlpack_tensor *tensor;
    if (!PyCapsule_IsValid(capsule, DLPACK_VERSIONED) && !PyCapsule_IsValid(capsule, DLPACK_LEGACY))
        PyErr_Format(PyExc_BufferError, "__dlpack__ of %R gave no unused DLPack capsule",
                     (PyObject *)Py_TYPE(array));
    else
        status = take_capsule(capsule, role, view, &tensor);
    Py_DECREF(capsule);
    if (status < 0) return -1;
    Py_INCREF(array);
    view->owner = array;
    if (ons_view_tensor(module, tensor, role, view) == 0) return 0;
    ons_release_view(view);
    return -1;
}
