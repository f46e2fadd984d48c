/* plan.c - problem -> plan: which method, why, what it moves, the scratch it needs. The one place
 * that chooses, so all thresholds are here. They were found by trying values on one Zen 4 machine
 * that did other work too; benchmarks/bench_cpu.py shows what they give. */
#include <string.h>

#include "cpu/cpu.h"
#include "onsoftmax.h"

#define ON_CPU_EVERYWHERE true
#define ON_CPU_CUDA_ONLY false
const ons_method_info ons_methods[ONS_METHOD_COUNT] = {
#define ONS_METHOD(name, devices, reads, writes, keeps, summary) \
    {#name, ON_CPU_##devices, reads, writes, ONS_KEEPS_##keeps, summary},
#include "methods.def"
#undef ONS_METHOD
};

/* Elements of a row in a tile: at most 16 KiB in the row form, 256 KiB for ONS_MAX_WIDTH rows in
 * the column form; multiples of both blocks of primitives.h. */
enum { ROW_TILE = 2048, COLUMN_TILE = 256 };

/* Fewer columns than this are gathered one by one instead: most of each vector would be empty. */
enum { COLUMNS = 6, COLUMNS_CONVERTED = 16 };

/* Short rows are taken several at a time, about so many bytes of the compute type. */
enum { ROW_PANEL_BYTES = 1 << 14 };

/* Largest rows, in bytes of the compute type, that `fused` keeps in the caches. */
static const int64_t FUSED_ROW_BYTES = 1 << 20, FUSED_PANEL_BYTES = 1 << 19;

/* Shortest rows that are split, where there are fewer than two for each thread. */
enum { SPLIT_N = 65536 };

/* Elements that a further thread must find to be worth its waking. */
enum { ELEMENTS_A_THREAD = 1 << 18 };

const char *ons_method_name(ons_method method) {
    return method == ONS_METHOD_AUTO ? "auto" : ons_methods[method].name;
}

const char *ons_dtype_name(ons_dtype dtype) {
    static const char *const names[] = {"float16", "bfloat16", "float32", "float64", "bool"};
    return names[dtype];
}

int64_t ons_dtype_size(ons_dtype dtype) {
    static const int64_t sizes[] = {2, 2, 4, 8, 1};
    return sizes[dtype];
}

static ons_operand *operand(ons_problem *problem, int i) {
    ons_operand *const all[] = {&problem->x, &problem->y, &problem->where, &problem->scale};
    return all[i];
}
enum { OPERANDS = 4 };

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

static void swap_dims(ons_problem *problem, int a, int b) {
    int64_t extent = problem->extent[a];
    problem->extent[a] = problem->extent[b];
    problem->extent[b] = extent;
    for (int i = 0; i < OPERANDS; i++) {
        int64_t *stride = operand(problem, i)->stride, kept = stride[a];
        stride[a] = stride[b];
        stride[b] = kept;
    }
}

/* Whether dimension `dim` goes on where `dim + 1` ends, in every operand. */
static bool joins_next(ons_problem *problem, int dim) {
    for (int i = 0; i < OPERANDS; i++) {
        const ons_operand *of = operand(problem, i);
        if (of->data && of->stride[dim] != of->stride[dim + 1] * problem->extent[dim + 1])
            return false;
    }
    return true;
}

static void remove_dim(ons_problem *problem, int dim) {
    for (int k = dim; k + 1 < problem->dims; k++) {
        problem->extent[k] = problem->extent[k + 1];
        for (int i = 0; i < OPERANDS; i++)
            operand(problem, i)->stride[k] = operand(problem, i)->stride[k + 1];
    }
    problem->dims--;
}

/* Joins dimensions begin to begin + count; returns how many are left. */
static int join(ons_problem *problem, int begin, int count, int least) {
    for (int dim = begin; dim < begin + count && count > least;)
        if (problem->extent[dim] == 1) {
            remove_dim(problem, dim);
            count--;
        } else {
            dim++;
        }
    for (int dim = begin + count - 2; dim >= begin; dim--)
        if (joins_next(problem, dim)) {
            problem->extent[dim + 1] *= problem->extent[dim];
            remove_dim(problem, dim);
            count--;
        }
    return count;
}

void ons_coalesce(ons_problem *problem) {
    int outer = problem->dims - problem->reduced_dims;
    for (int i = 1; i < outer; i++)
        for (int k = i; k > 0; k--) {
            const int64_t *stride = problem->x.stride;
            if (magnitude(stride[k - 1]) >= magnitude(stride[k])) break;
            swap_dims(problem, k - 1, k);
        }
    outer = join(problem, 0, outer, 0);
    problem->reduced_dims = join(problem, outer, problem->reduced_dims, 1);
}

static bool is_on_device(ons_method method, ons_device device) {
    return device == ONS_CPU && ons_methods[method].on_cpu;
}

static ons_method choose(const ons_plan *plan, const char **reason) {
    int64_t row = plan->N * ons_dtype_size(plan->compute);
    if (plan->form == ONS_ROW_FORM && plan->rows < 2 * plan->threads && plan->N >= SPLIT_N &&
        plan->threads > 1) {
        *reason = "fewer rows than keep the threads busy: they share each one";
        return ONS_METHOD_split;
    }
    if (plan->form == ONS_ROW_FORM ? row <= FUSED_ROW_BYTES
                                   : row * plan->width <= FUSED_PANEL_BYTES) {
        *reason = "what is worked on at once fits the caches: one read from memory";
        return ONS_METHOD_fused;
    }
    *reason = "rows too long for the caches: two reads from memory";
    return ONS_METHOD_online;
}

static ons_dtype wider(ons_dtype a, ons_dtype b) {
    return a == ONS_FLOAT64 || b == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
}

static void choose_form(const ons_problem *problem, ons_plan *plan) {
    int outer = problem->dims - problem->reduced_dims, inner = problem->dims - 1;
    int64_t size = ons_dtype_size(problem->x.dtype);
    int64_t least = problem->x.dtype == plan->compute ? COLUMNS : COLUMNS_CONVERTED;
    bool columns = problem->reduced_dims == 1 && outer > 0 && plan->N > 1 &&
                   problem->x.stride[inner] != size && problem->x.stride[outer - 1] == size &&
                   problem->extent[outer - 1] >= least;
    plan->form = columns ? ONS_COLUMN_FORM : ONS_ROW_FORM;
    int64_t most = ONS_MAX_WIDTH; /* rows worked on together */
    plan->tile = ROW_TILE;
    int along = inner; /* the dimension whose elements lie side by side */
    if (columns) {
        along = outer - 1;
        plan->tile = COLUMN_TILE;
    } else {
        int64_t fit =
            ROW_PANEL_BYTES / ((plan->N > 0 ? plan->N : 1) * ons_dtype_size(plan->compute));
        /* so that each of several threads finds a few panels */
        int64_t share = plan->threads > 1 ? plan->rows / (4 * plan->threads) : plan->rows;
        most = fit < share ? fit : share;
        if (most > ONS_MAX_WIDTH) most = ONS_MAX_WIDTH;
        if (most < 1) most = 1;
    }
    int64_t across = outer > 0 ? problem->extent[outer - 1] : 1;
    plan->width = across < most ? across : most;
    bool plain = !problem->where.data && problem->reduced_dims == 1;
    plan->x_direct = plain && problem->x.dtype == plan->compute &&
                     problem->x.stride[along] == size && !problem->scale.data &&
                     problem->scale_by == 1.0;
    plan->y_direct = plain && problem->y.dtype == plan->compute &&
                     problem->y.stride[along] == ons_dtype_size(problem->y.dtype);
}

ons_status ons_make_plan(const ons_problem *problem, ons_method method, int threads,
                         ons_plan *plan) {
    memset(plan, 0, sizeof *plan);
    plan->rows = plan->N = 1;
    for (int dim = 0; dim < problem->dims; dim++)
        *(dim < problem->dims - problem->reduced_dims ? &plan->rows : &plan->N) *=
            problem->extent[dim];
    if (method != ONS_METHOD_AUTO && !is_on_device(method, problem->device))
        return ONS_E_METHOD_NOT_ON_DEVICE;

    plan->compute =
        wider(problem->x.dtype, method == ONS_METHOD_naive ? problem->x.dtype : problem->y.dtype);
    int64_t elements = plan->rows * plan->N, useful = elements / ELEMENTS_A_THREAD + 1;
    plan->threads = (int)(useful < threads ? useful : threads);
    choose_form(problem, plan);
    plan->method = method;
    plan->reason = "asked for by name";
    if (method == ONS_METHOD_AUTO) plan->method = choose(plan, &plan->reason);

    bool direct = plan->x_direct && plan->y_direct;
    plan->keeps_apart = ons_methods[plan->method].keeps == ONS_KEEPS_ROW && !direct;

    const ons_method_info *info = &ons_methods[plan->method];
    int64_t size = ons_dtype_size(plan->compute);
    plan->bytes_moved = elements * (info->reads * ons_dtype_size(problem->x.dtype) +
                                    info->writes * ons_dtype_size(problem->y.dtype));
    int64_t tile = plan->tile < plan->N ? plan->tile : plan->N;
    plan->on_chip_bytes = size * (info->keeps == ONS_KEEPS_ROW    ? plan->N
                                  : info->keeps == ONS_KEEPS_TILE ? tile
                                                                  : 0);
    plan->workspace_bytes = elements > 0 ? ons_cpu_workspace_bytes(plan) : 0;
    return ONS_OK;
}
