/* arguments.c - reads the arguments of the functions, and raises the exception that belongs to a
 * status. */
#include "arguments.h"

#include <string.h>

/* Whether a device has a method for the operation. */
static bool has(ons_device device, ons_method method, ons_operation operation) {
    const ons_method_info *info = &ons_methods[method];
    return (device == ONS_CPU ? info->on_cpu : info->on_cuda) &&
           ons_method_takes(method, operation, device);
}

/* The names of the device's methods for the operation, after the two choices. */
static PyObject *names_on(ons_device device, ons_operation operation) {
    PyObject *text = PyUnicode_FromString("auto, invariant");
    for (int i = 0; text && i < ONS_METHOD_COUNT; i++)
        if (has(device, (ons_method)i, operation))
            Py_SETREF(text, PyUnicode_FromFormat("%U, %s", text, ons_methods[i].name));
    return text;
}

/* "use one of" and the names of the methods that can run the problem. */
static PyObject *advice(const ons_problem *problem, const ons_machine *machine) {
    ons_plan plan;
    if (ons_make_plan(problem, ONS_METHOD_AUTO, machine, &plan) != ONS_OK)
        return PyUnicode_FromString("no method takes them");
    PyObject *text = PyUnicode_FromString("use one of auto, invariant");
    for (int i = 0; text && i < ONS_METHOD_COUNT; i++)
        if (ons_make_plan(problem, (ons_method)i, machine, &plan) == ONS_OK)
            Py_SETREF(text, PyUnicode_FromFormat("%U, %s", text, ons_methods[i].name));
    return text;
}

/* For a method that cannot do the operation on the device. */
static void refuse_method(ons_method method, const ons_problem *problem, PyObject *names) {
    const bool on_cpu = problem->device == ONS_CPU;
    const char *where = ""; /* nowhere */
    if (has(on_cpu ? ONS_CUDA : ONS_CPU, method, problem->operation))
        where = on_cpu ? " on the CPU" : " on a GPU";
    if (*where && on_cpu && !ons_methods[method].on_cpu)
        PyErr_Format(PyExc_ValueError,
                     "method '%s' runs only on CUDA arrays (%s), and this array is on the CPU: %U",
                     ons_method_name(method), ons_methods[method].summary, names);
    else
        PyErr_Format(PyExc_ValueError, "method '%s' cannot compute %s%s: %U",
                     ons_method_name(method), ons_operations[problem->operation].name, where,
                     names);
}

void ons_set_error(ons_status status, ons_method method, const ons_problem *problem,
                   const ons_machine *machine, const ons_plan *plan) {
    PyObject *names;
    switch ((int)status) {
    case ONS_E_MEMORY:
        PyErr_Format(PyExc_MemoryError,
                     "no memory for the %lld bytes of scratch that method %s needs",
                     (long long)plan->workspace_bytes, ons_method_name(plan->method));
        return;
    case ONS_E_METHOD_NOT_ON_DEVICE:
    case ONS_E_METHOD_NOT_OF_OPERATION:
        names = advice(problem, machine);
        if (names) refuse_method(method, problem, names);
        break;
    case ONS_E_METHOD_NOT_OF_TYPE:
        PyErr_Format(
            PyExc_ValueError,
            "method '%s' takes and gives float32, float16 and bfloat16, and here %s is float64",
            ons_method_name(plan->method),
            problem->operand[ONS_X].dtype == ONS_FLOAT64 ? "the array" : "the result");
        return;
    case ONS_E_ROW_TOO_LONG:
        names = advice(problem, machine);
        if (names)
            PyErr_Format(PyExc_ValueError,
                         "method '%s' holds rows of at most %lld elements of this type on this "
                         "GPU, and these rows have %lld: %U",
                         ons_method_name(method), (long long)plan->longest_row, (long long)plan->N,
                         names);
        break;
    case ONS_E_NO_CLUSTERS:
    case ONS_E_NO_GRID:
        names = advice(problem, machine);
        if (names)
            PyErr_Format(PyExc_ValueError, "method '%s' does not run here: %s; %U",
                         ons_method_name(method), ons_status_text(status), names);
        break;
    case ONS_E_K_TOO_LARGE:
        names = advice(problem, machine);
        if (names)
            PyErr_Format(PyExc_ValueError,
                         "method '%s' gives at most %d of each row, and k is %lld: %U",
                         ons_method_name(method), ONS_LARGEST_K, (long long)problem->k, names);
        break;
    default: ons_set_gpu_error(status); return;
    }
    Py_XDECREF(names);
}

static const char *const keyword_names[KEYWORDS] = {
    "axis",   "method",   "dtype",     "out",    "where",  "scale", "stream", "num_threads",
    "device", "keepdims", "operation", "pairs",  "k",      "log",   "sorted", "return_normalizer",
    "other",  "gives",    "compute",   "dtypes", "caches", "terms"};

/* Raises TypeError for an unknown keyword. */
static void refuse_keyword(const char *function, PyObject *name, int keywords) {
    const char *known[KEYWORDS], *hint = ons_keyword_hint(name, keywords);
    for (int k = 0; k < KEYWORDS; k++)
        known[k] = keywords >> k & 1 && k < OTHER ? keyword_names[k] : NULL;
    const char *near = hint ? NULL : ons_nearest(name, known, KEYWORDS);
    if (near)
        PyErr_Format(PyExc_TypeError,
                     "%s() got an unexpected keyword argument '%U': did you mean %s?", function,
                     name, near);
    else
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'%s%s", function,
                     name, hint ? ": " : "", hint ? hint : "");
}

int ons_take_arguments(const ons_signature *takes, PyObject *const *args, Py_ssize_t count,
                       PyObject *names, PyObject *values[KEYWORDS]) {
    const char *function = takes->function, *what = takes->arrays;
    const int first = takes->count, keywords = takes->keywords;
    memset(values, 0, KEYWORDS * sizeof *values);
    const int selects = keywords == OF_TOPK, places[] = {selects ? K : AXIS, AXIS};
    if (count < first) {
        PyErr_Format(PyExc_TypeError, "%s() needs %s as its first %s%s", function,
                     selects ? "an array" : what, first == 1 ? "argument" : "two arguments",
                     names ? ", by position" : "");
        return -1;
    }
    if (count > first + selects + 1) {
        PyErr_Format(PyExc_TypeError,
                     "%s() takes %s%s and an axis by position, but %zd values were given", function,
                     what, first == 1 ? "" : ",", count);
        return -1;
    }
    for (Py_ssize_t i = first; i < count; i++) values[places[i - first]] = args[i];
    int next = 0; /* names in the table's order are found at once */
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int tried = 0, k = next;
        for (; tried < KEYWORDS; tried++, k = (k + 1) % KEYWORDS)
            if (PyUnicode_CompareWithASCIIString(name, keyword_names[k]) == 0) break;
        next = (k + 1) % KEYWORDS;
        if (tried == KEYWORDS || !(keywords >> k & 1)) {
            refuse_keyword(function, name, keywords);
            return -1;
        }
        if (values[k]) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", function,
                         name);
            return -1;
        }
        values[k] = args[count + i];
    }
    for (int k = METHOD; k < KEYWORDS; k++)
        if (values[k] == Py_None && k != DTYPE && k != METHOD && k != SCALE && !(k == K && selects))
            values[k] = NULL;
    return 0;
}

PyObject *ons_keywords_but_stream(PyObject *const values[KEYWORDS]) {
    PyObject *keywords = PyDict_New();
    for (int k = 0; keywords && k < KEYWORDS; k++)
        if (values[k] && k != STREAM &&
            PyDict_SetItemString(keywords, keyword_names[k], values[k]) < 0)
            Py_CLEAR(keywords);
    return keywords;
}

int ons_take_method(PyObject *object, ons_device device, ons_operation operation,
                    ons_method *method) {
    *method = ONS_METHOD_AUTO;
    if (!object) return 0;
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "method is %R: expected a string", object);
        return -1;
    }
    for (int i = ONS_METHOD_INVARIANT; i < ONS_METHOD_COUNT; i++)
        if (PyUnicode_CompareWithASCIIString(object, ons_method_name((ons_method)i)) == 0) {
            *method = (ons_method)i;
            return 0;
        }
    enum { FIRST = ONS_METHOD_INVARIANT, COUNT = ONS_METHOD_COUNT - FIRST };
    const char *known[COUNT];
    for (int i = FIRST; i < ONS_METHOD_COUNT; i++)
        known[i - FIRST] =
            i < 0 || has(device, (ons_method)i, operation) ? ons_method_name((ons_method)i) : NULL;
    const char *near = ons_nearest(object, known, COUNT);
    PyObject *names = names_on(device, operation);
    if (names)
        PyErr_Format(PyExc_ValueError, "method is %R: expected one of %U%s%s%s", object, names,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    Py_XDECREF(names);
    return -1;
}

/* The names of operations that errors list, in the order of the table. A divergence has a second
 * name, with its gradient. onsoftmax/_plan/terms.py replaces this name by the core's own. */
enum { NAMES = ONS_OPERATION_COUNT + 2 };
static void list_names(bool all, const char *names[NAMES]) {
    int count = 0;
    memset(names, 0, NAMES * sizeof *names);
    for (int i = 0; i < ONS_OPERATION_COUNT; i++) {
        const bool takes_terms =
            ons_operations[i].loss || i == ONS_OPERATION_route || ons_is_sampler((ons_operation)i);
        if ((takes_terms && !all) || i == ONS_OPERATION_logprob_backward ||
            i == ONS_OPERATION_reverse_kl_divergence || i == ONS_OPERATION_filtered_softmax)
            continue;
        names[count++] = ons_operations[i].name;
        if (i == ONS_OPERATION_kl_divergence) names[count++] = "kl_divergence_with_grad";
        if (i == ONS_OPERATION_js_divergence) names[count++] = "js_divergence_with_grad";
    }
}

static int take_operation(PyObject *object, bool all, ons_operation *operation) {
    const char *known[NAMES];
    PyObject *names = PyUnicode_FromString("");
    *operation = ONS_OPERATION_softmax;
    list_names(all, known);
    for (int i = 0; object && PyUnicode_Check(object) && i < ONS_OPERATION_COUNT; i++) {
        const char *name = ons_operations[i].name;
        bool is_known = all && i == ONS_OPERATION_reverse_kl_divergence;
        for (int place = 0; place < NAMES && known[place]; place++)
            is_known |= strcmp(known[place], name) == 0;
        if (!is_known || PyUnicode_CompareWithASCIIString(object, name) != 0) continue;
        *operation = (ons_operation)i;
        object = NULL;
    }
    for (int i = 0; names && object && i < NAMES && known[i]; i++)
        Py_SETREF(names, PyUnicode_FromFormat("%U%s%s", names, i > 0 ? ", " : "", known[i]));
    const char *near = object ? ons_nearest(object, known, NAMES) : NULL;
    if (names && object)
        PyErr_Format(PyExc_ValueError, "operation is %R: expected one of %U%s%s%s", object, names,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    int status = names && !object ? 0 : -1;
    Py_XDECREF(names);
    return status;
}

int ons_take_operation(PyObject *object, ons_operation *operation) {
    return take_operation(object, false, operation);
}

int ons_take_planned_operation(PyObject *object, ons_operation *operation) {
    return take_operation(object, true, operation);
}

PyObject *ons_plain_k(PyObject *object) {
    PyObject *k = ons_plain_int(object);
    if (!k && PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "k is %R: expected an int of at least 1", object);
    return k;
}

/* The only reduced axis; 0 for a 0-d array. */
static int take_one_axis(PyObject *axes, const ons_view *x, const bool *reduced, int *axis) {
    if (axes == Py_None) {
        PyErr_SetString(PyExc_TypeError, "axis is None: expected one axis");
        return -1;
    }
    if (axes && PyTuple_Check(axes) && PyTuple_GET_SIZE(axes) != 1) {
        PyErr_Format(PyExc_ValueError, "axis is %R: expected one axis", axes);
        return -1;
    }
    for (*axis = 0; *axis + 1 < x->ndim && !reduced[*axis];) ++*axis;
    return 0;
}

int ons_take_selection(PyObject *plain_k, PyObject *axes, const ons_view *x,
                       const bool reduced[ONS_MAX_DIMS], ons_selection *selection) {
    int overflow;
    if (take_one_axis(axes, x, reduced, &selection->axis) < 0) return -1;
    const int64_t N = x->ndim > 0 ? x->shape[selection->axis] : 1;
    selection->k = PyLong_AsLongLongAndOverflow(plain_k, &overflow);
    if (overflow == 0 && selection->k >= 1 && selection->k <= N) return 0;
    if (N == 0)
        PyErr_Format(PyExc_ValueError,
                     "k is %R, and axis %d has length 0: expected an axis with elements", plain_k,
                     selection->axis);
    else
        PyErr_Format(PyExc_ValueError, "k is %R: expected 1 to %lld, the length of axis %d",
                     plain_k, (long long)N, selection->axis);
    return -1;
}

void ons_view_selected(const ons_view *x, const ons_selection *selection, ons_dtype dtype,
                       ons_view *result) {
    *result = *x;
    result->owner = result->held = result->stream_owner = NULL;
    result->dtype = dtype;
    if (x->ndim > 0) result->shape[selection->axis] = selection->k;
    ons_put_in_c_order(result);
}

int ons_take_threads(PyObject *object, int *threads) {
    if (!object) return 0;
    Py_ssize_t count = PyNumber_AsSsize_t(object, NULL);
    if (count == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) /* other exceptions of its __index__ stay */
            PyErr_Format(PyExc_TypeError, "num_threads is %R: expected an int of at least 1",
                         object);
        return -1;
    }
    if (count < 1) {
        PyErr_Format(PyExc_ValueError, "num_threads is %R: expected at least 1", object);
        return -1;
    }
    *threads = count < 1024 ? (int)count : 1024;
    return 0;
}
