/* plan.c - problem -> plan: which method, why, what it moves, the scratch it needs. The one place
 * that chooses, so all thresholds are here. Those of the CPU were found by trying values on one Zen
 * 4 machine that did other work too; benchmarks/bench_cpu.py shows what they give. */
#include <string.h>

#include "cpu/cpu.h"
#include "onsoftmax.h"

#define DEVICES_EVERYWHERE true, true
#define DEVICES_ALIAS_ON_CUDA true, true
#define DEVICES_CPU_ONLY true, false
#define DEVICES_CUDA_ONLY false, true
const ons_method_info ons_methods[ONS_METHOD_COUNT] = {
#define ONS_METHOD(name, devices, reads, writes, keeps, summary) \
    {#name, DEVICES_##devices, reads, writes, ONS_KEEPS_##keeps, summary},
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

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

static ons_dtype wider(ons_dtype a, ons_dtype b) {
    return a == ONS_FLOAT64 || b == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
}

/* ------- The CPU ------- */

static ons_method choose_on_cpu(const ons_plan *plan, const char **reason) {
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

static void choose_form_on_cpu(const ons_problem *problem, ons_plan *plan) {
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

static ons_status plan_on_cpu(const ons_problem *problem, ons_method method, int threads,
                              ons_plan *plan) {
    int64_t elements = plan->rows * plan->N, useful = elements / ELEMENTS_A_THREAD + 1;
    plan->threads = (int)(useful < threads ? useful : threads);
    choose_form_on_cpu(problem, plan);
    if (method == ONS_METHOD_AUTO) plan->method = choose_on_cpu(plan, &plan->reason);

    const ons_method_info *info = &ons_methods[plan->method];
    bool direct = plan->x_direct && plan->y_direct;
    plan->keeps_apart = info->keeps == ONS_KEEPS_ROW && !direct;
    int64_t tile = plan->tile < plan->N ? plan->tile : plan->N;
    plan->on_chip_bytes = ons_dtype_size(plan->compute) * (info->keeps == ONS_KEEPS_ROW    ? plan->N
                                                           : info->keeps == ONS_KEEPS_TILE ? tile
                                                                                           : 0);
    plan->workspace_bytes = elements > 0 ? ons_cpu_workspace_bytes(plan) : 0;
    return ONS_OK;
}

/* ------- A GPU. A method's lanes, chunks and blocks of a row are functions of N, the types and the
 * GPU alone, so that a row's bits are; the rows in a block may depend on their number ------- */

enum {
    WARP = 32,
    WARP_CHUNKS = 8,  /* the most chunks of a lane in fused_warp */
    WARP_LANES = 4,   /* the fewest lanes of a row that has so many chunks: 32 bytes side by side */
    BLOCK_CHUNKS = 8, /* of a thread in fused_block and online_block */
    TILE_CHUNKS = 4,  /* of a thread in the methods that pass several times */
    PASS_THREADS = 512,
    BLOCK_THREADS = 1024,
    BLOCK_THREADS_INDIRECT = 512, /* Rows::BLOCK_THREADS of load.cuh */
    SPLIT_THREADS = 512,
    CLUSTER_THREADS = 256,
    CLUSTER_CHUNKS = 16 /* of a thread in cluster and grid */
};

/* A GPU to plan for where there is none: an H200. */
static const ons_gpu usual_gpu = {"none here; an H200 is assumed", 90, 132, 2048, 232448, 16, true};

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t power_of_two_from(int64_t n) {
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

/* What the functions below share: a row in chunks, and how many of a block's threads share one. */
typedef struct {
    int64_t chunks;
    int chunk;          /* elements */
    int threads_a_lane; /* 1 in the row form, 32 in the column form */
    const ons_gpu *gpu;
} row_of_chunks;

static void take_warp(const row_of_chunks *row, ons_plan *plan) {
    int64_t lanes = 1;
    if (plan->form == ONS_ROW_FORM) {
        lanes = most(power_of_two_from(ceil_div(row->chunks, WARP_CHUNKS)),
                     least(power_of_two_from(row->chunks), WARP_LANES));
        lanes = least(lanes, WARP);
    }
    int64_t chunks = power_of_two_from(ceil_div(row->chunks, lanes));
    /* blocks small enough that every multiprocessor has one */
    int64_t share = ceil_div(plan->rows * lanes, row->gpu->multiprocessors);
    plan->threads = (int)most(WARP, least(256, power_of_two_from(share)));
    plan->width = plan->threads / lanes;
    plan->elements_a_thread = (int)(chunks * row->chunk);
    plan->longest_row = (plan->form == ONS_ROW_FORM ? WARP : 1) * WARP_CHUNKS * row->chunk;
}

static void take_block(const row_of_chunks *row, ons_plan *plan) {
    int64_t most_lanes =
        (plan->x_direct ? BLOCK_THREADS : BLOCK_THREADS_INDIRECT) / row->threads_a_lane;
    int64_t threads = ceil_div(row->chunks, BLOCK_CHUNKS) * row->threads_a_lane;
    plan->threads = (int)ceil_div(threads, WARP) * WARP;
    plan->elements_a_thread = BLOCK_CHUNKS * row->chunk;
    plan->blocks_a_row = 1;
    plan->longest_row = most_lanes * BLOCK_CHUNKS * row->chunk;
}

static void take_passes(const row_of_chunks *row, ons_plan *plan) {
    int64_t threads = ceil_div(row->chunks, TILE_CHUNKS) * row->threads_a_lane;
    plan->threads = (int)least(PASS_THREADS, ceil_div(threads, WARP) * WARP);
    plan->elements_a_thread = TILE_CHUNKS * row->chunk;
    plan->blocks_a_row = 1;
}

/* The most parts of a row, so that merging them stays cheap; and the shortest part. */
enum { SPLIT_PARTS = 1024, SPLIT_PART_CHUNKS = 8 * SPLIT_THREADS };

static void take_split(const row_of_chunks *row, ons_plan *plan) {
    int64_t shortest = SPLIT_PART_CHUNKS / row->threads_a_lane;
    int64_t chunks = ceil_div(ceil_div(row->chunks, SPLIT_PARTS), shortest) * shortest;
    plan->threads = SPLIT_THREADS;
    plan->elements_a_thread = TILE_CHUNKS * row->chunk;
    plan->tile = chunks * row->chunk;
    plan->blocks_a_row = ceil_div(row->chunks, chunks);
    plan->workspace_bytes = ceil_div(plan->rows, plan->width) * plan->width * plan->blocks_a_row *
                            2 * ons_dtype_size(plan->compute);
}

static ons_status take_cluster(const row_of_chunks *row, ons_plan *plan) {
    int64_t chunks_a_block = CLUSTER_CHUNKS * CLUSTER_THREADS / row->threads_a_lane;
    plan->blocks_a_row = most(2, power_of_two_from(ceil_div(row->chunks, chunks_a_block)));
    int64_t lanes = ceil_div(row->chunks, plan->blocks_a_row * CLUSTER_CHUNKS);
    plan->threads = (int)ceil_div(lanes * row->threads_a_lane, WARP) * WARP;
    plan->elements_a_thread = CLUSTER_CHUNKS * row->chunk;
    plan->longest_row = row->gpu->cluster_blocks * chunks_a_block * row->chunk;
    return row->gpu->cluster_blocks >= 2 ? ONS_OK : ONS_E_NO_CLUSTERS;
}

static ons_status take_grid(const row_of_chunks *row, ons_plan *plan) {
    int64_t chunks_a_block = CLUSTER_CHUNKS * CLUSTER_THREADS / row->threads_a_lane;
    plan->threads = CLUSTER_THREADS;
    plan->blocks_a_row = least(row->gpu->multiprocessors, ceil_div(row->chunks, chunks_a_block));
    plan->elements_a_thread = CLUSTER_CHUNKS * row->chunk;
    /* twice, since one row's are read while the next row's are written */
    plan->workspace_bytes =
        2 * plan->blocks_a_row * plan->width * 2 * ons_dtype_size(plan->compute);
    return row->gpu->cooperative ? ONS_OK : ONS_E_NO_GRID;
}

static ons_status take_on_gpu(const row_of_chunks *row, ons_plan *plan) {
    plan->longest_row = plan->workspace_bytes = 0;
    plan->width = row->threads_a_lane;
    ons_status status = ONS_OK;
    switch (plan->method) {
    case ONS_METHOD_fused_warp: take_warp(row, plan); break;
    case ONS_METHOD_fused_block:
    case ONS_METHOD_online_block: take_block(row, plan); break;
    case ONS_METHOD_split: take_split(row, plan); break;
    case ONS_METHOD_cluster: status = take_cluster(row, plan); break;
    case ONS_METHOD_grid: status = take_grid(row, plan); break;
    default: take_passes(row, plan);
    }
    if (plan->method != ONS_METHOD_split)
        plan->tile =
            plan->elements_a_thread * (plan->threads / plan->width) * most(plan->blocks_a_row, 1);
    if (status == ONS_OK && plan->longest_row && plan->N > plan->longest_row)
        status = ONS_E_ROW_TOO_LONG;
    return status;
}

/* The longest rows that a block takes where a cluster could, in bytes of the input: a longer row's
 * block is alone on its multiprocessor, or nearly. */
static int64_t longest_in_block(ons_dtype dtype) {
    return ons_dtype_size(dtype) == 2 ? 1 << 14 : 1 << 16;
}

static ons_method choose_on_gpu(const row_of_chunks *row, ons_dtype dtype, ons_plan *plan) {
    static const struct {
        ons_method method;
        const char *reason;
    } ladder[] = {
        {ONS_METHOD_fused_warp, "the row fits the registers of a warp: one read, no barrier"},
        {ONS_METHOD_fused_block, "the row fits the registers of a block: one read"},
        {ONS_METHOD_cluster, "the row fits the registers of a cluster: one read"}};
    for (size_t i = 0; i < sizeof ladder / sizeof *ladder; i++) {
        plan->method = ladder[i].method;
        plan->reason = ladder[i].reason;
        if (plan->method == ONS_METHOD_fused_block && row->gpu->cluster_blocks >= 2 &&
            plan->N * ons_dtype_size(dtype) > longest_in_block(dtype))
            continue;
        if (take_on_gpu(row, plan) == ONS_OK) return plan->method;
    }
    if (ceil_div(plan->rows, row->threads_a_lane) >= 2 * row->gpu->multiprocessors) {
        plan->reason = "rows too long to be held, and enough of them for a block each";
        return ONS_METHOD_online;
    }
    plan->reason = "few rows, too long to be held: blocks share each one";
    return ONS_METHOD_split;
}

/* Rows without gaps and without anything to be done to them, of one type or of 16 bits that become
 * float32: contiguous_rows. */
static bool is_contiguous(const ons_problem *problem) {
    int last = problem->dims - 1;
    const ons_operand *x = &problem->x, *y = &problem->y;
    bool types = x->dtype == y->dtype || (ons_dtype_size(x->dtype) == 2 && y->dtype == ONS_FLOAT32);
    if (!types || problem->where.data || problem->scale.data || problem->scale_by != 1.0 ||
        problem->reduced_dims > 1 || problem->dims > 2)
        return false;
    return problem->extent[last] == 1 || (x->stride[last] == ons_dtype_size(x->dtype) &&
                                          y->stride[last] == ons_dtype_size(y->dtype));
}

static ons_status plan_on_gpu(const ons_problem *problem, ons_method method, ons_plan *plan) {
    ons_gpu gpu;
    if (ons_gpu_describe(problem->gpu, &gpu) != ONS_OK) gpu = usual_gpu;
    int inner = problem->dims - 1, outer = problem->dims - problem->reduced_dims;
    bool columns = problem->reduced_dims == 1 && outer > 0 && plan->N > 1 &&
                   problem->x.stride[inner] != ons_dtype_size(problem->x.dtype) &&
                   magnitude(problem->x.stride[outer - 1]) < magnitude(problem->x.stride[inner]);
    plan->form = columns ? ONS_COLUMN_FORM : ONS_ROW_FORM;
    plan->x_direct = plan->y_direct = !columns && is_contiguous(problem);
    int chunk = 16 / (int)ons_dtype_size(plan->compute);
    row_of_chunks row = {ceil_div(plan->N, chunk), chunk, columns ? WARP : 1, &gpu};
    if (row.chunks == 0) row.chunks = 1;

    if (method == ONS_METHOD_AUTO) plan->method = choose_on_gpu(&row, problem->x.dtype, plan);
    if (method == ONS_METHOD_fused) {
        plan->method = ONS_METHOD_fused_warp;
        if (take_on_gpu(&row, plan) != ONS_OK) plan->method = ONS_METHOD_fused_block;
    }
    ons_status status = take_on_gpu(&row, plan);
    if (ons_methods[plan->method].keeps != ONS_KEEPS_NOTHING)
        plan->on_chip_bytes = least(plan->tile, row.chunks * chunk) * ons_dtype_size(plan->compute);
    return status;
}

ons_status ons_make_plan(const ons_problem *problem, ons_method method, int threads,
                         ons_plan *plan) {
    memset(plan, 0, sizeof *plan);
    plan->rows = plan->N = 1;
    for (int dim = 0; dim < problem->dims; dim++)
        *(dim < problem->dims - problem->reduced_dims ? &plan->rows : &plan->N) *=
            problem->extent[dim];
    bool on_cpu = problem->device == ONS_CPU;
    if (method != ONS_METHOD_AUTO &&
        !(on_cpu ? ons_methods[method].on_cpu : ons_methods[method].on_cuda))
        return ONS_E_METHOD_NOT_ON_DEVICE;
    plan->compute =
        wider(problem->x.dtype, method == ONS_METHOD_naive ? problem->x.dtype : problem->y.dtype);
    plan->method = method;
    plan->reason = "asked for by name";
    ons_status status =
        on_cpu ? plan_on_cpu(problem, method, threads, plan) : plan_on_gpu(problem, method, plan);
    if (status != ONS_OK) return status;
    const ons_method_info *info = &ons_methods[plan->method];
    plan->bytes_moved = plan->rows * plan->N *
                        (info->reads * ons_dtype_size(problem->x.dtype) +
                         info->writes * ons_dtype_size(problem->y.dtype));
    return ONS_OK;
}
