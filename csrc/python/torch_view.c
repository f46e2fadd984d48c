/* torch_view.c - torch's tensors by the DLPack C exchange API, which costs a tenth of __dlpack__.
 *
 * That API checks nothing, and the type torch.Tensor is also worn by what is not simply its memory:
 * whatever is not plainly strided memory of one of our types is left to _libraries.py. */
#include "views.h"

int ons_know_torch(ons_module *module) {
    if (module->torch.tensor) return 0;
    PyObject *known = ons_call_library(module, "torch_knowledge", "()"), *capsule;
    if (!known) return -1;
    int status = -1;
    ons_torch torch;
    if (!PyArg_ParseTuple(known, "OOOOOOOOO", &torch.tensor, &torch.parameter, &capsule,
                          &torch.empty_like, &torch.is_grad_enabled, &torch.increment_version,
                          &torch.strided, &torch.contiguous, &torch.dtypes))
        goto done;
    const dlpack_exchange *exchange = NULL;
    if (capsule != Py_None) {
        exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        if (!exchange) goto done;
    }
    while (exchange && exchange->major != 1) exchange = exchange->previous;
    torch.exchange = exchange && exchange->tensor_from_object ? exchange : NULL;
    Py_INCREF(torch.tensor); /* the types live as long as the table that was found on them */
    Py_INCREF(torch.parameter);
    Py_INCREF(torch.empty_like);
    Py_INCREF(torch.is_grad_enabled);
    Py_INCREF(torch.increment_version);
    Py_INCREF(torch.strided);
    Py_INCREF(torch.contiguous);
    Py_INCREF(torch.dtypes);
    module->torch = torch;
    status = 0;
done:
    Py_DECREF(known);
    return status;
}

/* Whether object.name, called where `call`, is `wanted`; -1: an exception. */
static int answers(PyObject *object, PyObject *name, bool call, PyObject *wanted) {
    PyObject *answer =
        call ? PyObject_CallMethodNoArgs(object, name) : PyObject_GetAttr(object, name);
    if (!answer) return -1;
    int same = answer == wanted;
    Py_DECREF(answer);
    return same;
}

/* Whether the memory of a tensor is its values, and no gradient is lost by reading it. */
static int is_plain_memory(const ons_module *module, PyObject *tensor) {
    const ons_names *names = &module->names;
    int yes = answers(tensor, names->requires_grad, false, Py_False);
    if (yes == 0) {
        PyObject *enabled = PyObject_CallNoArgs(module->torch.is_grad_enabled);
        yes = enabled ? enabled == Py_False : -1;
        Py_XDECREF(enabled);
    }
    if (yes == 1) yes = answers(tensor, names->is_neg, true, Py_False);
    if (yes == 1) yes = answers(tensor, names->layout, false, module->torch.strided);
    return yes;
}

static bool is_ours(dlpack_dtype dtype, ons_role role) {
    if (dtype.lanes != 1) return false;
    if (role == ONS_WHERE) return dtype.code == DLPACK_BOOL && dtype.bits == 8;
    return (dtype.code == DLPACK_FLOAT && dtype.bits >= 16) ||
           (dtype.code == DLPACK_BFLOAT && dtype.bits == 16);
}

/* What the table says of a tensor that is plain memory. */
static int view_memory(ons_module *module, PyObject *object, ons_role role, ons_view *view) {
    dlpack_tensor tensor;
    if (module->torch.exchange->tensor_from_object(object, &tensor) < 0) {
        PyErr_Clear(); /* _libraries.py finds the words for it */
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

static bool has_table(const ons_torch *torch, PyObject *object) {
    PyObject *type = (PyObject *)Py_TYPE(object);
    return torch->exchange && (type == torch->tensor || type == torch->parameter);
}

int ons_view_torch(ons_module *module, PyObject *object, ons_role role, ons_view *view) {
    if (!has_table(&module->torch, object)) return 0;
    int plain = is_plain_memory(module, object);
    if (plain < 0) PyErr_Clear();
    if (plain != 1) return 0;
    int seen = view_memory(module, object, role, view);
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

static bool is_c_ordered(const ons_view *view) {
    int64_t stride = ons_dtype_size(view->dtype);
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->strides[i] != stride) return false;
        stride *= view->shape[i] > 1 ? view->shape[i] : 1;
    }
    return true;
}

/* torch.empty_like rather than the table's allocator: its result is a view of somebody's memory for
 * torch, which Tensor.record_stream passes over in silence. */
int ons_new_tensor(ons_module *module, const ons_view *like, ons_dtype dtype, ons_view *view) {
    const ons_torch *torch = &module->torch;
    bool plain = like->dtype == dtype && is_c_ordered(like);
    PyObject *arguments[] = {like->owner, PyTuple_GET_ITEM(torch->dtypes, dtype),
                             torch->contiguous};
    PyObject *tensor = PyObject_Vectorcall(torch->empty_like, arguments, 1,
                                           plain ? NULL : module->names.empty_like_keywords);
    if (!tensor) return -1;
    view->stream = like->stream;
    int seen = has_table(torch, tensor) ? view_memory(module, tensor, ONS_OUT, view) : 0;
    if (seen == 0) /* of a subclass, or without the table */
        seen = ons_view_dlpack(module, tensor, ONS_OUT, true, view);
    Py_DECREF(tensor);
    return seen < 0 ? -1 : 0;
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
    PyObject *done = PyObject_CallOneArg(module->torch.increment_version, tensor);
    Py_XDECREF(done);
    return done ? 0 : -1;
}
