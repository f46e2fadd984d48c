/* module.c - the method table of onsoftmax._core: settings, and the module itself. */
#include "arguments.h"
#include "device_array.h"
#include "pairs.h"

#include "../api/packed.h"
#include "../xla/ffi.h"

#include <stdlib.h>
#include <string.h>

static PyObject *set_num_threads(PyObject *self, PyObject *count) {
    ons_module *module = PyModule_GetState(self);
    if (ons_take_threads(count, &module->num_threads) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *get_num_threads(PyObject *self, PyObject *Py_UNUSED(none)) {
    return PyLong_FromLong(((ons_module *)PyModule_GetState(self))->num_threads);
}

static PyObject *set_batch_invariant(PyObject *Py_UNUSED(self), PyObject *invariant) {
    if (!PyBool_Check(invariant))
        return PyErr_Format(PyExc_TypeError, "invariant is %R: expected a bool", invariant);
    return PyBool_FromLong(ons_set_batch_invariant(invariant == Py_True));
}

static PyObject *get_batch_invariant(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
    return PyBool_FromLong(ons_batch_invariant());
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

/* Whether the build has machine code for a GPU. Code of the same major version and of no later
 * minor version runs on it. The driver compiles PTX for other GPUs. */
static bool has_machine_code(const char *architectures, int gpu) {
    for (const char *at = architectures; *at; at += strcspn(at, ";"), at += *at == ';') {
        char *end;
        const long one = strtol(at, &end, 10);
        if (one / 10 == gpu / 10 && one <= gpu && strncmp(end, "-virtual", 8) != 0) return true;
    }
    return false;
}

/* What was found of CUDA: whether it is built in, and the GPUs' names. It calls CUDA. */
static PyObject *cuda_found(void) {
    int count;
    if (!ons_has_cuda()) return PyUnicode_FromString("not built; to have it, " ONS_TO_HAVE_CUDA);
    ons_status status = ons_gpu_count(&count);
    const char *built = ons_cuda_architectures();
    if (status != ONS_OK)
        return PyUnicode_FromFormat("built for %s; %s", built, ons_status_text(status));
    PyObject *text = PyUnicode_FromFormat("built for %s; %d GPUs", built, count);
    for (int i = 0; text && i < count; i++) {
        ons_gpu gpu;
        status = ons_gpu_describe(i, &gpu);
        if (status == ONS_OK)
            Py_SETREF(text, PyUnicode_FromFormat("%U; cuda:%d %s, sm_%d, %s", text, i, gpu.name,
                                                 gpu.architecture,
                                                 has_machine_code(built, gpu.architecture)
                                                     ? "machine code"
                                                     : "compiled by the driver at the first call"));
        else
            Py_SETREF(text,
                      PyUnicode_FromFormat("%U; cuda:%d %s", text, i, ons_status_text(status)));
    }
    return text;
}

static PyObject *caches(void) {
    ons_machine here = ons_this_machine(1);
    return PyUnicode_FromFormat("%lld kB a core, %lld kB shared by %d",
                                (long long)here.core_cache / 1000,
                                (long long)here.last_cache / 1000, here.last_cache_sharers);
}

static PyObject *show(PyObject *self, PyObject *Py_UNUSED(none)) {
    ons_module *module = PyModule_GetState(self);
    return Py_BuildValue("{s:s,s:N,s:i,s:i,s:O,s:N,s:N,s:s}", "isa", ons_isa_selected(),
                         "isa_available", isa_names(), "num_threads", module->num_threads,
                         "processors", ons_processors(), "batch_invariant",
                         ons_batch_invariant() ? Py_True : Py_False, "caches", caches(), "cuda",
                         cuda_found(), "compiler", __VERSION__);
}

PyDoc_STRVAR(
    plan_doc,
    "plan($module, array_or_shape, /, axis=-1, *, dtype=None, device=None, method='auto',\n     "
    "num_threads=None, operation='softmax', k=None, caches=None, terms=None)\n--\n\n"
    "The plan of a call as a dict: see onsoftmax.plan. caches: three numbers in place of this\n"
    "machine's: the bytes of a core's own cache, the bytes of the last cache, and the number\n"
    "of processors that share the last cache. terms: what onsoftmax/_plan/terms.py makes of the\n"
    "operation's arguments.");
PyDoc_STRVAR(methods_doc,
             "methods($module, operation, /)\n--\n\nThe methods of an operation as dicts: see "
             "onsoftmax.methods.");
PyDoc_STRVAR(
    as_numpy_doc,
    "as_numpy($module, array, /)\n--\n\n"
    "A read-only NumPy array of the elements that softmax would read from an array on the\n"
    "CPU. It shows the memory of the array, or a copy if softmax converts the array.");
PyDoc_STRVAR(
    set_doc,
    "set_num_threads($module, n, /)\n--\n\n"
    "Sets the largest number of threads for calls without num_threads.\n"
    "\n"
    "n is an int of at least 1. Another type raises TypeError, a smaller number ValueError.");
PyDoc_STRVAR(get_doc,
             "get_num_threads($module, /)\n--\n\n"
             "The largest number of threads for a call without num_threads.\n"
             "\n"
             "set_num_threads sets it. Before that it comes from the environment variable\n"
             "ONSOFTMAX_NUM_THREADS. Without this variable it is the number of processors that\n"
             "affinity and cgroup quota allow.");
PyDoc_STRVAR(
    set_invariant_doc,
    "set_batch_invariant($module, invariant, /)\n--\n\n"
    "Whether calls without a method take ``method='invariant'``. Returns the setting before.\n"
    "\n"
    "A row then has the same bits in a batch of any size, at any place in it, along any axis,\n"
    "whatever the strides and the alignment. So each function takes a method that depends on\n"
    "the row's length, the types and the kind of device alone. Some shapes take longer on a\n"
    "GPU (docs/contract.md). Nothing changes on the CPU, where all results have this\n"
    "property.\n"
    "\n"
    "The setting belongs to the process and counts when a call runs, in every thread. So it\n"
    "also reaches programs that torch.compile or jax.jit compiled before, backward steps, and\n"
    "Dask's tasks in this process. It does not reach a CUDA graph that was captured before.\n"
    "The environment variable ONSOFTMAX_BATCH_INVARIANT=1 sets it at the first import, in all\n"
    "processes that inherit the variable. A call that names its method keeps that method.\n"
    "\n"
    "invariant is a bool; anything else raises TypeError.\n"
    "\n"
    "Examples\n"
    "--------\n"
    ">>> import onsoftmax as ons\n"
    ">>> before = ons.set_batch_invariant(True)\n"
    ">>> ons.plan((1, 4096), device=\"H100\").method, ons.plan((8192, 4096), "
    "device=\"H100\").method\n"
    "('fused_block', 'fused_block')\n"
    ">>> ons.set_batch_invariant(before)\n"
    "True\n");
PyDoc_STRVAR(get_invariant_doc,
             "get_batch_invariant($module, /)\n--\n\n"
             "Whether calls without a method take ``method='invariant'``. set_batch_invariant\n"
             "sets it. Before that it comes from the environment variable\n"
             "ONSOFTMAX_BATCH_INVARIANT, 0 or 1. Without this variable it is False.");
PyDoc_STRVAR(show_doc,
             "config($module, /)\n--\n\n"
             "The facts of the build and of this machine as a dict: see onsoftmax.show_config.");

static PyMethodDef functions[] = {
    {"plan", (PyCFunction)(void (*)(void))ons_plan_call, METH_FASTCALL | METH_KEYWORDS, plan_doc},
    {"merge", (PyCFunction)(void (*)(void))ons_merge_call, METH_FASTCALL | METH_KEYWORDS,
     ons_merge_doc},
    {"pack", (PyCFunction)(void (*)(void))ons_pack_call, METH_FASTCALL | METH_KEYWORDS,
     ons_pack_doc},
    {"empty", (PyCFunction)(void (*)(void))ons_empty_call, METH_FASTCALL | METH_KEYWORDS,
     ons_empty_doc},
    {"check_call", (PyCFunction)(void (*)(void))ons_check_call, METH_FASTCALL | METH_KEYWORDS,
     ons_check_call_doc},
    {"xla_target", ons_xla_target, METH_O, ons_xla_target_doc},
    {"cross_entropy", ons_loss_call, METH_VARARGS, ons_loss_doc},
    {"loss_gradient", ons_loss_gradient_call, METH_VARARGS, ons_loss_gradient_doc},
    {"multiply", ons_multiply_call, METH_VARARGS, ons_multiply_doc},
    {"divergence", ons_divergence_call, METH_VARARGS, ons_divergence_doc},
    {"route", ons_route_call, METH_VARARGS, ons_route_doc},
    {"sample", ons_sample_call, METH_VARARGS, ons_sample_doc},
    {"filtered_softmax", ons_filtered_softmax_call, METH_VARARGS, ons_filtered_softmax_doc},
    {"logprob", ons_logprob_call, METH_VARARGS, ons_logprob_doc},
    {"logprob_backward", ons_logprob_gradient_call, METH_VARARGS, ons_logprob_gradient_doc},
    {"methods", ons_list_methods, METH_O, methods_doc},
    {"as_numpy", ons_as_numpy, METH_O, as_numpy_doc},
    {"set_num_threads", set_num_threads, METH_O, set_doc},
    {"get_num_threads", get_num_threads, METH_NOARGS, get_doc},
    {"set_batch_invariant", set_batch_invariant, METH_O, set_invariant_doc},
    {"get_batch_invariant", get_batch_invariant, METH_NOARGS, get_invariant_doc},
    {"config", show, METH_NOARGS, show_doc},
    {"pair_of", ons_call_pair_of, METH_VARARGS, ons_pair_of_doc},
    {"pair_merge", ons_call_pair_merge, METH_VARARGS, ons_pair_merge_doc},
    {"pair_d", ons_call_pair_d, METH_O, ons_pair_d_doc},
    {"pair_anchor", ons_call_pair_anchor, METH_O, ons_pair_anchor_doc},
    {NULL, NULL, 0, NULL},
};

static int take_environment(ons_module *module) {
    const char *isa = getenv("ONSOFTMAX_ISA"), *threads = getenv("ONSOFTMAX_NUM_THREADS");
    if (isa && *isa && !ons_isa_select(isa)) {
        PyObject *names = isa_names();
        if (names)
            PyErr_Format(
                PyExc_ValueError,
                "ONSOFTMAX_ISA is '%s': expected an instruction set of this processor, one of %R",
                isa, names);
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
    const char *invariant = getenv("ONSOFTMAX_BATCH_INVARIANT");
    if (invariant && *invariant) {
        const bool is_set = strcmp(invariant, "1") == 0;
        if (!is_set && strcmp(invariant, "0") != 0) {
            PyErr_Format(PyExc_ValueError, "ONSOFTMAX_BATCH_INVARIANT is '%s': expected 0 or 1",
                         invariant);
            return -1;
        }
        ons_set_batch_invariant(is_set);
    }
    return 0;
}

static int intern_names(ons_names *names) {
    const struct {
        PyObject **name;
        const char *text;
    } interned[] = {{&names->dlpack, "__dlpack__"},
                    {&names->dlpack_device, "__dlpack_device__"},
                    {&names->current_level, "_current_level"},
                    {&names->in_mode, "_is_in_torch_dispatch_mode"},
                    {&names->is_profiled, "_is_profiler_enabled"}};
    for (size_t i = 0; i < sizeof interned / sizeof *interned; i++)
        if (!(*interned[i].name = PyUnicode_InternFromString(interned[i].text))) return -1;
    names->minus_one = PyLong_FromLong(-1);
    names->dlpack_keywords = Py_BuildValue("(s)", "max_version");
    names->dlpack_keywords_gpu = Py_BuildValue("(ss)", "max_version", "stream");
    names->dlpack_keywords_old = Py_BuildValue("(s)", "stream");
    names->empty_like_keywords = Py_BuildValue("(ss)", "dtype", "memory_format");
    return PyErr_Occurred() ? -1 : 0;
}

/* Numbers that Python and C share. */
static int add_constants(PyObject *module) {
    static const struct {
        const char *name;
        long value;
    } constants[] = {
        {"NUMPY", ONS_NUMPY},
        {"TORCH", ONS_TORCH},
        {"JAX", ONS_JAX},
        {"CUPY", ONS_CUPY},
        {"BY_OPERATOR", ONS_BY_OPERATOR},
        {"X", ONS_X},
        {"Y", ONS_Y},
        {"WHERE", ONS_WHERE},
        {"SCALE", ONS_SCALE},
        {"INDICES", ONS_INDICES},
        {"UNKNOWN_GPU", ONS_UNKNOWN_GPU},
        {"MAX_ELEMENTS_LOG2", ONS_MAX_ELEMENTS_LOG2},
        {"PACKED_VALUES", ONS_PACKED_VALUES},
        {"XLA_LOG", ONS_XLA_LOG},
        {"XLA_SORTED", ONS_XLA_SORTED},
        {"XLA_SUMS", ONS_XLA_SUMS},
        {"XLA_ENTROPY", ONS_XLA_ENTROPY},
        {"XLA_LSE", ONS_XLA_LSE},
        {"XLA_ARGMAX", ONS_XLA_ARGMAX},
        {"XLA_RANK", ONS_XLA_RANK},
        {"XLA_MOMENTS", ONS_XLA_MOMENTS},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0) return -1;
    PyObject *names = PyTuple_New(ONS_INT64 + 1);
    for (int i = 0; names && i <= ONS_INT64; i++) {
        PyObject *name = PyUnicode_FromString(ons_dtype_name((ons_dtype)i));
        if (name)
            PyTuple_SET_ITEM(names, i, name);
        else
            Py_CLEAR(names);
    }
    const int status = names ? PyModule_AddObjectRef(module, "DTYPES", names) : -1;
    Py_XDECREF(names);
    return status;
}

static int module_exec(PyObject *self) {
    ons_module *module = PyModule_GetState(self);
    memset(module, 0, sizeof *module);
    if (ons_import_numpy() < 0 || take_environment(module) < 0) return -1;
    module->masked_array = ons_attribute_of("numpy.ma", "MaskedArray");
    module->axis_error = ons_attribute_of("numpy.exceptions", "AxisError"); /* from NumPy 1.25 on */
    if (!module->axis_error && PyErr_ExceptionMatches(PyExc_ImportError)) {
        PyErr_Clear();
        module->axis_error = ons_attribute_of("numpy", "AxisError");
    }
    if (!module->masked_array || !module->axis_error || intern_names(&module->names) < 0) return -1;
    module->topk = ons_attribute_of("onsoftmax._topk", "TopK");
    if (!module->topk) return -1;
    module->device_array = PyType_FromModuleAndSpec(self, &ons_device_array_spec, NULL);
    if (!module->device_array) return -1;
    if (PyModule_AddType(self, (PyTypeObject *)module->device_array) < 0) return -1;
    return add_constants(self) < 0 ? -1 : ons_add_operations(self);
}

/* All objects that the module holds, for the two functions of Python's garbage collector. */
static PyObject **const *held(ons_module *module, PyObject **all[36]) {
    ons_torch *torch = &module->torch;
    ons_names *names = &module->names;
    PyObject **const list[] = {
        &module->axis_error,
        &module->masked_array,
        &module->libraries,
        &module->device_array,
        &module->topk,
        &torch->tensor,
        &torch->parameter,
        &torch->requires_grad,
        &torch->layout,
        &torch->is_neg,
        &torch->empty_like,
        &torch->is_grad_enabled,
        &torch->increment_version,
        &torch->strided,
        &torch->contiguous,
        &torch->dtypes,
        &torch->empty_on_cpu,
        &torch->empty_on_gpu,
        &torch->forward_ad,
        &torch->modes,
        &torch->in_mode,
        &torch->is_tracing,
        &torch->profiler,
        &torch->is_autocast_enabled,
        &torch->for_gradient,
        &names->dlpack,
        &names->dlpack_device,
        &names->current_level,
        &names->in_mode,
        &names->is_profiled,
        &names->minus_one,
        &names->dlpack_keywords,
        &names->dlpack_keywords_gpu,
        &names->dlpack_keywords_old,
        &names->empty_like_keywords,
    };
    int count = sizeof list / sizeof *list;
    for (int i = 0; i < count; i++) all[i] = list[i];
    all[count] = NULL;
    return all;
}

static int module_traverse(PyObject *self, visitproc visit, void *arg) {
    PyObject **all[36];
    for (PyObject **const *each = held(PyModule_GetState(self), all); *each; each++)
        Py_VISIT(**each);
    return 0;
}

static int module_clear(PyObject *self) {
    ons_module *module = PyModule_GetState(self);
    PyObject **all[36];
    for (PyObject **const *each = held(module, all); *each; each++) Py_CLEAR(**each);
    module->torch.exchange = NULL;
    Py_CLEAR(module->bfloat16);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
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
