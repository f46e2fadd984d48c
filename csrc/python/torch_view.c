/* torch_view.c - views of torch's tensors by the DLPack C exchange API, which costs a tenth of
 * __dlpack__. That API checks nothing, and not every torch.Tensor is simply its memory. Anything
 * but plain strided memory of one of our types is left to _libraries. */
#include "views.h"

/* The function that reads a descriptor from an object, or NULL if it is no descriptor. */
static descrgetfunc reader_of(PyObject *descriptor) {
    return (descrgetfunc)PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get);
}

int ons_know_torch(ons_module *module) {
    if (__atomic_load_n(&module->torch.tensor, __ATOMIC_ACQUIRE)) return 0;
    PyObject *known = ons_call_library(module, "torch_knowledge", "()"), *capsule;
    if (!known) return -1;
    int status = -1;
    ons_torch torch;
    PyObject **const kept[] = {&torch.tensor,
                               &torch.parameter,
                               &torch.requires_grad,
                               &torch.layout,
                               &torch.is_neg,
                               &torch.empty_like,
                               &torch.is_grad_enabled,
                               &torch.increment_version,
                               &torch.strided,
                               &torch.contiguous,
                               &torch.dtypes,
                               &torch.empty_on_cpu,
                               &torch.empty_on_gpu,
                               &torch.forward_ad,
                               &torch.modes,
                               &torch.in_mode,
                               &torch.is_autocast_enabled,
                               &torch.is_tracing,
                               &torch.profiler,
                               &torch.for_gradient};
    enum { KEPT = sizeof kept / sizeof *kept };
    if (!PyTuple_Check(known) || PyTuple_GET_SIZE(known) != KEPT + 1) {
        PyErr_SetString(PyExc_SystemError, "torch_knowledge does not say what ons_torch holds");
        goto done;
    }
    for (int i = 0; i < KEPT; i++) *kept[i] = PyTuple_GET_ITEM(known, i);
    capsule = PyTuple_GET_ITEM(known, KEPT);
    const dlpack_exchange *exchange = NULL;
    if (capsule != Py_None) {
        exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        if (!exchange) goto done;
    }
    while (exchange && exchange->major != 1) exchange = exchange->previous;
    torch.get_requires_grad = reader_of(torch.requires_grad);
    torch.get_layout = reader_of(torch.layout);
    bool asked = torch.get_requires_grad && torch.get_layout;
    torch.exchange = exchange && exchange->tensor_from_object && asked ? exchange : NULL;
    ONS_LOCKED(module->device_array);
    if (!module->torch.tensor) {
        for (int i = 0; i < KEPT; i++) Py_INCREF(*kept[i]); /* types live as long as their table */
        PyObject *tensor = torch.tensor, *parameter = torch.parameter;
        torch.tensor = torch.parameter = NULL;
        module->torch = torch;
        /* last: a thread that sees one of them sees everything */
        __atomic_store_n(&module->torch.parameter, parameter, __ATOMIC_RELEASE);
        __atomic_store_n(&module->torch.tensor, tensor, __ATOMIC_RELEASE);
    }
    ONS_UNLOCKED();
    status = 0;
done:
    Py_DECREF(known);
    return status;
}

/* Whether an answer is the wanted one; -1 is an exception. It drops the answer. */
static int is_answer(PyObject *answer, PyObject *wanted) {
    if (!answer) return -1;
    int same = answer == wanted;
    Py_DECREF(answer);
    return same;
}

/* Whether tensors may have tangents: a level of forward-mode differentiation is open, or torch
 * lacks _current_level, which tells this. */
static bool may_have_tangents(const ons_module *module) {
    PyObject *level =
        PyDict_GetItemWithError(module->torch.forward_ad, module->names.current_level);
    if (level == module->names.minus_one) return false; /* Python has only one -1 */
    return !level || !PyLong_Check(level) || PyLong_AsLong(level) >= 0;
}

/* The meaning of a tensor's memory: its values; its values, but a gradient is wanted; or something
 * that only _libraries can tell. */
typedef enum { ITS_VALUES, NO_GRADIENT, ANYTHING } tensor_memory;

static tensor_memory memory_of(const ons_module *module, PyObject *tensor) {
    const ons_torch *torch = &module->torch;
    PyObject *type = (PyObject *)Py_TYPE(tensor);
    if (may_have_tangents(module)) return ANYTHING;
    /* uses the descriptors of the type, so no name is looked up */
    int yes = is_answer(torch->get_requires_grad(torch->requires_grad, tensor, type), Py_False);
    if (yes == 0) {
        yes = is_answer(PyObject_CallNoArgs(torch->is_grad_enabled), Py_False);
        if (yes == 0) return NO_GRADIENT;
    }
    if (yes == 1) yes = is_answer(PyObject_CallOneArg(torch->is_neg, tensor), Py_False);
    if (yes == 1) yes = is_answer(torch->get_layout(torch->layout, tensor, type), torch->strided);
    if (yes < 0) PyErr_Clear(); /* _libraries raises it with a better text */
    return yes == 1 ? ITS_VALUES : ANYTHING;
}

static bool is_ours(dlpack_dtype dtype, ons_role role) {
    if (dtype.lanes != 1) return false;
    if (role == ONS_WHERE) return dtype.code == DLPACK_BOOL && dtype.bits == 8;
    if (role == ONS_INDICES) return dtype.code == DLPACK_INT && dtype.bits >= 32;
    return (dtype.code == DLPACK_FLOAT && dtype.bits >= 16) ||
           (dtype.code == DLPACK_BFLOAT && dtype.bits == 16);
}

/* Views a tensor through the table. */
int ons_view_plain_tensor(ons_module *module, PyObject *object, ons_role role, ons_view *view) {
    dlpack_tensor tensor;
    if (module->torch.exchange->tensor_from_object(object, &tensor) < 0) {
        PyErr_Clear(); /* _libraries raises it with a better text */
        return 0;
    }
    if (!is_ours(tensor.dtype, role) || ons_has_no_memory(&tensor)) return 0;
    if (tensor.device.type != DLPACK_CPU && tensor.device.type != DLPACK_CUDA) return 0;
    if (ons_view_tensor(module, &tensor, role, view) < 0) return -1;
    view->readonly = false;
    Py_INCREF(object);
    view->owner = object;
    return 1;
}

static bool has_table(const ons_module *module, PyObject *object) {
    return module->torch.exchange && ons_is_tensor(module, object);
}

int ons_view_torch(const ons_caller *caller, PyObject *object, ons_role role, ons_view *view) {
    ons_module *module = caller->module;
    if (!has_table(module, object)) return 0;
    const tensor_memory memory = memory_of(module, object);
    if (memory == NO_GRADIENT) return ons_leave_by_operator(caller, module->torch.for_gradient);
    if (memory == ANYTHING) return 0;
    int seen = ons_view_plain_tensor(module, object, role, view);
    if (seen == 1 && view->device == ONS_CUDA &&
        ons_torch_stream(module, view->gpu, &view->stream) < 0) {
        ons_release_view(view);
        return -1;
    }
    return seen;
}

int ons_torch_stream(ons_module *module, int gpu, void **stream) {
    if (module->torch.exchange)
        return module->torch.exchange->current_stream(DLPACK_CUDA, gpu, stream);
    PyObject *handle = ons_call_library(module, "torch_stream", "(i)", gpu);
    if (!handle) return -1;
    *stream = PyLong_AsVoidPtr(handle);
    Py_DECREF(handle);
    return *stream || !PyErr_Occurred() ? 0 : -1;
}

static int leave(const ons_caller *caller, const char *message) {
    PyObject *way = Py_BuildValue("(sOs)", "onsoftmax.torch", PyExc_RuntimeError, message);
    if (way) ons_leave_by_operator(caller, way);
    Py_XDECREF(way);
    return -1;
}

int ons_check_autocast(const ons_caller *caller, const ons_view *view) {
    const ons_torch *torch = &caller->module->torch;
    if (view->device != ONS_CUDA || (view->dtype != ONS_FLOAT16 && view->dtype != ONS_BFLOAT16))
        return 0;
    int off = is_answer(PyObject_CallNoArgs(torch->is_autocast_enabled), Py_False);
    if (off == 0) return leave(caller, "got a tensor under autocast");
    return off == 1 ? 0 : -1;
}

int ons_check_tracing(const ons_caller *caller) {
    const ons_torch *torch = &caller->module->torch;
    int traced = torch->is_tracing ? is_answer(PyObject_CallNoArgs(torch->is_tracing), Py_True) : 0;
    if (traced <= 0) return traced;
    return leave(caller,
                 "got a tensor under torch.jit.trace, or under an exporter that uses it. The trace "
                 "would keep the result as a constant: expected a call outside of the trace");
}

/* torch's variable tells whether any thread is in a mode. Asking about this thread takes longer:
 * every call would take 2 % longer. */
int ons_check_modes(const ons_caller *caller) {
    const ons_torch *torch = &caller->module->torch;
    if (!torch->modes) return 0;
    if (PyDict_GetItemWithError(torch->modes, caller->module->names.in_mode) == Py_False) return 0;
    int in_none = is_answer(PyObject_CallNoArgs(torch->in_mode), Py_False);
    if (in_none == 0) return leave(caller, "got a tensor under a TorchDispatchMode");
    return in_none == 1 ? 0 : -1;
}

int ons_begin_row(const ons_caller *caller, PyObject **row) {
    const ons_module *module = caller->module;
    *row = NULL;
    if (caller->library != ONS_TORCH || !caller->outside || !caller->outside->row) return 0;
    if (!module->torch.profiler) return 0;
    if (PyDict_GetItemWithError(module->torch.profiler, module->names.is_profiled) != Py_True)
        return 0;
    *row = ons_call_library(caller->module, "begin_row", "(s)", caller->outside->row);
    return *row ? 0 : -1;
}

void ons_end_row(PyObject *row) {
    PyObject *type, *value, *traceback;
    if (!row) return;
    PyErr_Fetch(&type, &value, &traceback); /* an exception of the call in this row */
    PyObject *ended = PyObject_CallMethod(row, "__exit__", "OOO", Py_None, Py_None, Py_None);
    if (!ended) PyErr_WriteUnraisable(row);
    Py_XDECREF(ended);
    Py_DECREF(row);
    PyErr_Restore(type, value, traceback);
}

/* A contiguous tensor of like's shape by torch's shortcut, which takes 0.6 of the time of
 * torch.empty_like. NULL without an exception if there is none for this tensor. */
static PyObject *empty_strided(ons_module *module, const ons_view *like, PyObject *dtype) {
    bool on_gpu = like->device == ONS_CUDA;
    PyObject *shortcut = on_gpu ? module->torch.empty_on_gpu : module->torch.empty_on_cpu;
    if (shortcut == Py_None || !has_table(module, like->owner)) return NULL;
    if (on_gpu && !ons_gpu_is_current(like->gpu)) return NULL;
    PyObject *shape = PyTuple_New(like->ndim), *strides = PyTuple_New(like->ndim), *tensor = NULL;
    int64_t stride = 1;
    for (int i = like->ndim - 1; shape && strides && i >= 0; i--) {
        PyTuple_SET_ITEM(shape, i, PyLong_FromLongLong(like->shape[i]));
        PyTuple_SET_ITEM(strides, i, PyLong_FromLongLong(stride));
        stride *= like->shape[i] > 1 ? like->shape[i] : 1;
    }
    if (!PyErr_Occurred())
        tensor = PyObject_CallFunctionObjArgs(shortcut, shape, strides, dtype, NULL);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return tensor;
}

/* Views a new tensor and drops it: the view keeps it. */
static int view_new(ons_module *module, PyObject *tensor, ons_dtype dtype, void *stream,
                    ons_view *view) {
    const ons_role role = ons_role_of_result(dtype);
    view->stream = stream;
    int seen = has_table(module, tensor) ? ons_view_plain_tensor(module, tensor, role, view) : 0;
    if (seen == 0) /* it has a subclass, or no table */
        seen = ons_view_dlpack(module, tensor, role, true, view);
    Py_DECREF(tensor);
    return seen < 0 ? -1 : 0;
}

/* Uses torch's own functions, not the table's allocator. For torch the allocator's result is a view
 * of foreign memory, which Tensor.record_stream silently ignores. */
int ons_new_tensor(ons_module *module, const ons_view *like, bool own_shape, ons_dtype dtype,
                   ons_view *view) {
    const ons_torch *torch = &module->torch;
    PyObject *type = PyTuple_GET_ITEM(torch->dtypes, dtype);
    PyObject *tensor = empty_strided(module, like, type);
    if (tensor) {
        if (view_new(module, tensor, dtype, like->stream, view) < 0) return -1;
        if (view->gpu == like->gpu) return 0;
        ons_release_view(view); /* torch's current GPU differs from CUDA's */
    } else if (PyErr_Occurred()) {
        return -1;
    }
    PyObject *arguments[] = {like->owner, type, torch->contiguous};
    PyObject *shape = own_shape ? NULL : ons_shape_of(like);
    if (own_shape)
        tensor = ons_vectorcall(torch->empty_like, arguments, 1, module->names.empty_like_keywords);
    else
        tensor = shape ? ons_call_library(module, "torch_empty", "(OOO)", like->owner, shape, type)
                       : NULL;
    Py_XDECREF(shape);
    if (!tensor || view_new(module, tensor, dtype, like->stream, view) < 0) return -1;
    return ons_check_same_device("the result of torch.empty_like", view, like);
}

static void set_error(void *Py_UNUSED(context), const char *kind, const char *message) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_Format(PyExc_RuntimeError, "torch gives no scratch memory: %s: %s", kind, message);
    PyGILState_Release(state);
}

PyObject *ons_torch_memory(ons_module *module, int gpu, int64_t bytes, void **memory) {
    dlpack_tensor wanted = {
        .device = {DLPACK_CUDA, gpu}, .ndim = 1, .dtype = {DLPACK_UINT, 8, 1}, .shape = &bytes};
    dlpack_managed_versioned *managed = NULL;
    if (module->torch.exchange->allocate(&wanted, &managed, NULL, set_error) < 0) return NULL;
    *memory = (char *)managed->tensor.data + managed->tensor.byte_offset;
    return ons_hold_managed(managed);
}

int ons_torch_written(ons_module *module, PyObject *tensor) {
    PyObject *tensors = PyTuple_Pack(1, tensor);
    PyObject *done = tensors ? PyObject_CallOneArg(module->torch.increment_version, tensors) : NULL;
    Py_XDECREF(tensors);
    Py_XDECREF(done);
    return done ? 0 : -1;
}
