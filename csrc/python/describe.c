/* describe.c - plan() and methods() as dicts, from which onsoftmax/_describe.py makes objects, and
 * an array as softmax sees it, for explain. */
#include "arguments.h"

#include "planned.h"

#include <string.h>

static const char *const keeps_names[] = {"nothing", "tile", "row"};

/* An array that exists only for a plan gets an address like those of allocators. */
static char *const NOWHERE = (char *)4096;

/* A view of a C-ordered array of that shape. Nobody reads it. */
static int view_of_shape(PyObject *shape, ons_dtype dtype, ons_view *view) {
    ons_no_view(view);
    view->data = NOWHERE;
    view->gpu = 0;
    view->dtype = dtype;
    view->ndim = (int)PyTuple_GET_SIZE(shape);
    if (PyTuple_GET_SIZE(shape) > ONS_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "the shape has %zd dimensions: at most %d are supported",
                     PyTuple_GET_SIZE(shape), ONS_MAX_DIMS);
        return -1;
    }
    for (int i = 0; i < view->ndim; i++) {
        PyObject *item = PyTuple_GET_ITEM(shape, i);
        view->shape[i] = PyNumber_AsSsize_t(item, PyExc_OverflowError);
        if (view->shape[i] == -1 && PyErr_Occurred()) {
            if (PyErr_ExceptionMatches(PyExc_OverflowError))
                PyErr_Format(PyExc_ValueError, "the shape is %R: expected at most 2^%d elements",
                             shape, ONS_MAX_ELEMENTS_LOG2);
            else if (PyErr_ExceptionMatches(PyExc_TypeError))
                PyErr_Format(PyExc_TypeError, "the shape is %R: expected a tuple of ints", shape);
            return -1;
        }
        if (view->shape[i] < 0) {
            PyErr_Format(PyExc_ValueError, "the shape is %R: expected no negative length", shape);
            return -1;
        }
    }
    ons_put_in_c_order(view);
    return 0;
}

/* The device, or the GPU that is named instead. */
static int take_device(PyObject *object, ons_device *device, const ons_gpu **gpu) {
    const char *name = object && !PyUnicode_Check(object) ? "" : "cpu";
    Py_ssize_t size = 0;
    if (object && *name && !(name = PyUnicode_AsUTF8AndSize(object, &size))) return -1;
    if (size > (Py_ssize_t)strlen(name)) name = "";
    *device = strcmp(name, "cpu") == 0 ? ONS_CPU : ONS_CUDA;
    if (*device == ONS_CPU || strcmp(name, "cuda") == 0 || (*gpu = ons_gpu_named(name))) return 0;
    PyObject *known = PyUnicode_FromString("");
    for (const ons_gpu *one = ons_known_gpus; known && *one->name; one++)
        Py_SETREF(known,
                  PyUnicode_FromFormat("%U %s%s", known, one->name, one[1].name[0] ? "," : ""));
    if (known)
        PyErr_Format(PyExc_ValueError,
                     "device is %R: expected 'cpu', 'cuda', None, or a GPU to plan for:%U", object,
                     known);
    Py_XDECREF(known);
    return -1;
}

/* Makes views of the array, or of an array of the given shape, and of its result. Finds the GPU
 * that is named. */
static int take_views(ons_module *module, PyObject *object, PyObject *given[KEYWORDS], ons_view *x,
                      ons_view *y, const ons_gpu **gpu) {
    const ons_caller caller = {.module = module};
    ons_library library;
    ons_device device;
    ons_dtype dtype = ONS_FLOAT32;
    if (take_device(given[DEVICE], &device, gpu) < 0) return -1;
    int typed = ons_take_dtype(module, given[DTYPE], &dtype);
    if (typed < 0) return -1;
    if (PyTuple_Check(object)) {
        if (view_of_shape(object, dtype, x) < 0) return -1;
        x->device = device;
        *y = *x;
    } else {
        if (ons_take(&caller, object, ONS_X, x, &library) < 0) return -1;
        if (given[DEVICE] && device != x->device) {
            PyErr_Format(PyExc_ValueError, "device is %R, but the array is on %s: expected None",
                         given[DEVICE], x->device == ONS_CPU ? "the CPU" : "a GPU");
            return -1;
        }
        *y = *x;
        if (typed) y->dtype = dtype;
        for (int i = 0; i < y->ndim; i++)
            y->strides[i] = y->strides[i] / ons_dtype_size(x->dtype) * ons_dtype_size(y->dtype);
    }
    y->data = NOWHERE;
    return 0;
}

/* Adds the facts of a plan on a GPU. Facts that only a driver knows are None without a driver, if
 * the GPU was named, or if the call is more than one kernel. */
static int add_gpu_facts(PyObject *facts, const ons_problem *problem, const ons_machine *machine,
                         const ons_plan *plan) {
    ons_kernel_facts kernel;
    int count;
    ons_step steps[ONS_MOST_STEPS];
    const bool is_one_kernel = !ons_operations[problem->operation].loss && /* losses have parts */
                               ons_steps(problem, plan, steps) == 0;
    bool known = is_one_kernel && !machine->gpu && ons_gpu_count(&count) == ONS_OK && count > 0 &&
                 ons_describe_kernel(problem, plan, &kernel) == ONS_OK;
    PyObject *more = Py_BuildValue(
        "{s:L,s:i,s:i,s:L,s:d,s:d,s:d,s:d,s:d}", "blocks_a_row", (long long)ons_blocks_a_row(plan),
        "elements_a_thread", plan->elements_a_thread, "warps", plan->threads / 32, "longest_row",
        (long long)plan->longest_row, "copy_speed", plan->copy_speed, "measured_seconds",
        ons_measured_seconds(problem, machine, plan), "measured_copy_seconds",
        ons_measured_copy_seconds(problem, machine, plan), "launch_seconds",
        ons_launch_seconds(problem, plan), "arithmetic_seconds",
        ons_arithmetic_seconds(problem, machine, plan));
    int status = more ? PyDict_Update(facts, more) : -1;
    Py_XDECREF(more);
    if (status < 0 || !known) return status;
    more = Py_BuildValue("{s:i,s:i,s:i,s:i}", "registers", kernel.registers, "spilled_bytes",
                         kernel.spilled_bytes, "shared_bytes", kernel.shared_bytes,
                         "blocks_a_multiprocessor", kernel.blocks_a_multiprocessor);
    status = more ? PyDict_Update(facts, more) : -1;
    Py_XDECREF(more);
    return status;
}

/* The facts of a plan, as a dict. */
static PyObject *facts_of(const ons_view *x, const ons_problem *problem, const ons_machine *machine,
                          const ons_plan *made, int reads, int64_t least_bytes) {
    PyObject *facts = Py_BuildValue(
        "{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:L,s:L,s:L,s:L,s:L,s:i,s:L,s:L,s:L,s:i,s:L,s:L,s:O,s:L}",
        "operation", ons_operations[problem->operation].name, "device",
        machine->gpu           ? machine->gpu->name
        : x->device == ONS_CPU ? "cpu"
                               : "cuda",
        "method", ons_method_name(made->method), "reason", made->reason, "measured",
        made->measured ? made->measured : "", "dtype", ons_dtype_name(x->dtype), "form",
        made->form == ONS_ROW_FORM ? "row" : "column", "compute",
        ons_dtype_name(made->in_double ? ONS_FLOAT64 : made->compute), "rows",
        (long long)made->rows, "N", (long long)made->N, "k",
        problem->sample ? 0LL : (long long)problem->k, "tile", (long long)made->tile, "width",
        (long long)made->width, "reads_again", reads - ons_first_reads(problem->operation),
        "bytes_moved", (long long)made->bytes_moved, "on_chip_bytes",
        (long long)made->on_chip_bytes, "workspace_bytes", (long long)made->workspace_bytes,
        "threads", made->threads, "read_bytes", (long long)ons_read_bytes(problem, made),
        "least_bytes", (long long)least_bytes, "past_caches",
        made->past_caches ? Py_True : Py_False, "last_cache", (long long)machine->last_cache);
    if (facts && x->device == ONS_CUDA && add_gpu_facts(facts, problem, machine, made) < 0)
        Py_CLEAR(facts);
    return facts;
}

/* The facts of a call that takes more than a method. */
static PyObject *facts_by_terms(ons_operation operation, PyObject *terms, PyObject *k,
                                const ons_view *x, const ons_view *result, const bool *reduced,
                                ons_method method, const ons_machine *machine) {
    ons_planned *planned = PyMem_Malloc(sizeof *planned);
    PyObject *facts = NULL, *steps = NULL;
    int reads = 0;
    if (!planned) return PyErr_NoMemory();
    if (ons_plan_by_terms(operation, terms, k, x, result, reduced, method, machine, planned) == 0) {
        for (int i = 0; i < planned->steps; i++) reads += planned->step[i].reads;
        facts =
            facts_of(x, &planned->problem, machine, &planned->plan, reads, planned->least_bytes);
        steps = ons_steps_as_dicts(planned);
    }
    if (facts && (!steps || PyDict_SetItemString(facts, "steps", steps) < 0)) Py_CLEAR(facts);
    Py_XDECREF(steps);
    PyMem_Free(planned);
    return facts;
}

PyObject *ons_plan_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    ons_module *module = PyModule_GetState(self);
    PyObject *given[KEYWORDS], *axes = NULL, *k = NULL, *result = NULL;
    ons_view operand[ONS_OPERANDS], *const x = &operand[ONS_X], *const y = &operand[ONS_Y];
    ons_method method;
    ons_operation operation;
    ons_problem problem;
    ons_plan made;
    static const ons_signature takes = {"plan", "an array", 1, OF_PLAN};
    bool reduced[ONS_MAX_DIMS];
    ons_machine machine = ons_this_machine(module->num_threads);

    ons_selection selection = {.k = 0};
    long long core = machine.core_cache, last = machine.last_cache;
    for (int role = 0; role < ONS_OPERANDS; role++) ons_no_view(&operand[role]);
    problem.scale_by = 1.0;
    if (ons_take_arguments(&takes, args, count, names, given) < 0) return NULL;
    if (ons_take_threads(given[NUM_THREADS], &machine.threads) < 0) return NULL;
    if (given[CACHES] &&
        !PyArg_ParseTuple(given[CACHES], "LLi;caches: expected of a core, of the last, its sharers",
                          &core, &last, &machine.last_cache_sharers))
        return NULL;
    machine.core_cache = core;
    machine.last_cache = last;
    if (ons_take_planned_operation(given[OPERATION], &operation) < 0) return NULL;
    const ons_operation_info *info = &ons_operations[operation];
    const bool by_terms = ons_is_planned_by_terms(operation);
    if (by_terms != (given[TERMS] != NULL)) {
        PyErr_Format(PyExc_TypeError, "plan() of %s %s terms", info->name,
                     by_terms ? "needs" : "takes no");
        return NULL;
    }
    const bool takes_k = info->selects && operation != ONS_OPERATION_sample;
    if (takes_k != (given[K] != NULL)) {
        PyErr_Format(PyExc_TypeError, "plan() of %s %s", info->name,
                     takes_k ? "needs k" : "takes no k: operation='softmax_topk' does");
        return NULL;
    }
    if (given[K] && !(k = ons_plain_k(given[K]))) return NULL;
    if (given[AXIS] && !(axes = ons_plain_axes(given[AXIS]))) goto done;
    if (take_views(module, args[0], given, x, y, &machine.gpu) < 0) goto done;
    if (ons_take_method(given[METHOD], x->device, operation, &method) < 0) goto done;
    if (ons_take_axes(module, axes, x->ndim, reduced) < 0) goto done;
    if (by_terms) {
        result = facts_by_terms(operation, given[TERMS], k, x, y, reduced, method, &machine);
        goto done;
    }
    if (info->selects) {
        if (ons_take_selection(k, axes, x, reduced, &selection) < 0) goto done;
        ons_view_selected(x, &selection, y->dtype, y);
        ons_view_selected(x, &selection, ONS_INT64, &operand[ONS_INDICES]);
        y->data = NOWHERE;
    }
    for (int i = 0; i < y->ndim && info->one_a_row; i++)
        if (reduced[i]) y->strides[i] = 0;
    if (info->gradient) operand[ONS_GRADIENT] = *x;
    if (ons_make_problem(operation, operand, y, reduced, &problem) < 0) goto done;
    problem.k = selection.k;
    problem.stream = NULL;
    ons_status status = ons_make_plan(&problem, method, &machine, &made);
    if (status != ONS_OK) {
        ons_set_error(status, method, &problem, &machine, &made);
        goto done;
    }
    result = facts_of(x, &problem, &machine, &made, ons_plan_reads(&problem, &made),
                      ons_least_bytes(&problem, &machine, &made));
done:
    Py_XDECREF(axes);
    Py_XDECREF(k);
    ons_release_view(x);
    return result;
}

PyObject *ons_list_methods(PyObject *Py_UNUSED(self), PyObject *name) {
    ons_operation operation;
    if (ons_take_operation(name, &operation) < 0) return NULL;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < ONS_METHOD_COUNT; i++) {
        const ons_method_info *info = &ons_methods[i];
        const bool on_cpu = info->on_cpu && ons_method_takes(i, operation, ONS_CPU);
        const bool on_cuda = info->on_cuda && ons_method_takes(i, operation, ONS_CUDA);
        if (!on_cpu && !on_cuda) continue;
        PyObject *one = Py_BuildValue(
            "{s:s,s:O,s:O,s:i,s:i,s:s,s:s}", "name", info->name, "on_cpu",
            on_cpu ? Py_True : Py_False, "on_cuda", on_cuda ? Py_True : Py_False, "reads",
            ons_method_reads(i, operation), "writes", ons_method_writes(i, operation), "keeps",
            keeps_names[info->on_chip], "summary", info->summary);
        if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

PyObject *ons_as_numpy(PyObject *self, PyObject *object) {
    ons_module *module = PyModule_GetState(self);
    const ons_caller caller = {.module = module};
    ons_view view;
    ons_library library;
    PyObject *array = NULL;
    if (ons_take(&caller, object, ONS_X, &view, &library) < 0) return NULL;
    PyArray_Descr *descr = ons_numpy_dtype(module, view.dtype);
    if (view.device == ONS_CUDA)
        PyErr_Format(PyExc_TypeError, "the array is on cuda:%d: expected one on the CPU", view.gpu);
    else if (descr)
        array = ons_numpy_of(&view, descr->type_num);
    Py_XDECREF(descr);
    PyObject *keeper = view.held ? view.held : view.owner;
    if (array && PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(keeper)) < 0)
        Py_CLEAR(array);
    ons_release_view(&view);
    return array;
}
