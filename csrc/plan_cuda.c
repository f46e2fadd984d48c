/* plan_cuda.c - the method and its shape on a GPU. A method's lanes, chunks and blocks of a row are
 * functions of N, the types and the GPU alone, so that a row's bits are; the rows in a block may
 * depend on their number. */
#include "cuda/cuda.h"
#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* A GPU to plan for where there is none: an H200. */
static const ons_gpu usual_gpu = {
    "none here; an H200 is assumed", 90, 132, 16, 16, true, 232448, 15, 7};

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t power_of_two_from(int64_t n) {
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

enum { CHUNK_OF_FLOATS = 4 };

/* Which methods take columns in packs. */
static bool has_packs(ons_method method) {
    return method == ONS_METHOD_fused_warp || method == ONS_METHOD_fused_block ||
           method == ONS_METHOD_cluster;
}

/* What the functions below share: a row in chunks, and how many of a block's threads share one. */
typedef struct {
    int64_t chunks;
    int chunk;          /* elements */
    int threads_a_lane; /* 1 in the row form, 32 in the column form */
    bool narrow;        /* Rows::NARROW: its elements are of one type of 16 bits */
    bool whole;         /* packs, of a chunk's elements each */
    bool contiguous;    /* rows without gaps, in the row form */
    bool packed;        /* columns side by side, in the column form */
    const ons_gpu *gpu;
} row_of_chunks;

/* The threads of a block in fused_warp, of so many together and not more than `limit`: so that
 * every multiprocessor has one. */
static int threads_of_warps(const row_of_chunks *row, int64_t together, int limit) {
    int64_t share = ceil_div(together, row->gpu->multiprocessors);
    return (int)most(WARP, least(limit, power_of_two_from(share)));
}

enum { MANY_WARP_ROWS = 1 << 16 };

/* Of rows that fill a warp's lanes fewer than of others: the less waits for the last of a block. A
 * GPU begins some 1.4 blocks a nanosecond, too few for 16-bit rows of 520 in a block each. */
static int limit_of_warps(const row_of_chunks *row, int64_t rows) {
    return row->narrow ? 2 * WARP : rows >= MANY_WARP_ROWS ? WARP : WARP_ROW_THREADS;
}

/* The chunks of a lane that has `needed`: of the numbers for which there are kernels. */
static int64_t chunks_of_lane(int64_t needed, bool whole_warp) {
    int64_t power = power_of_two_from(needed), less = power / 4 * 3;
    return whole_warp && needed > 2 && needed <= less ? less : power;
}

static void take_warp(const row_of_chunks *row, ons_plan *plan) {
    int64_t lanes = 1;
    if (plan->form == ONS_ROW_FORM && row->chunks <= 2) {
        lanes = row->chunks;
    } else if (plan->form == ONS_ROW_FORM) {
        lanes = least(power_of_two_from(ceil_div(row->chunks, FEW_WARP_CHUNKS)), WARP);
        /* half of them, with the same bits (fused_warp.cu) */
        if (row->narrow && row->chunks <= FEW_WARP_CHUNKS * WARP) lanes /= 2;
    }
    int64_t chunks = chunks_of_lane(ceil_div(row->chunks, lanes), lanes == WARP);
    bool full = lanes * chunks == WARP * WARP_CHUNKS;
    int limit = full ? limit_of_warps(row, plan->rows) : WARP_ROW_THREADS;
    plan->threads = threads_of_warps(row, plan->rows * lanes, limit);
    plan->width = plan->threads / lanes;
    plan->elements_a_thread = (int)(chunks * row->chunk);
    plan->longest_row = (plan->form == ONS_ROW_FORM ? WARP : 1) * WARP_CHUNKS * row->chunk;
}

/* Those that all threads of whole warps have together, so many each. */
static int64_t chunks_with(int chunks, const row_of_chunks *row) {
    return ceil_div(row->chunks, chunks * WARP) * chunks * WARP;
}

/* The chunks of a thread. In short rows it has fewer, so that its block is soon done. */
static int block_chunks(const row_of_chunks *row, const ons_plan *plan) {
    if (plan->method != ONS_METHOD_fused_block || plan->form == ONS_COLUMN_FORM ||
        row->chunks > FEW_WARPS * WARP * FEW_CHUNKS)
        return BLOCK_CHUNKS;
    if (row->chunks <= WARP * WARP_CHUNKS) return SHORT_CHUNKS;
    if (!row->narrow) return FEW_CHUNKS;
    int64_t few = chunks_with(FEW_CHUNKS, row), more = chunks_with(FEW_CHUNKS_16_BIT, row);
    return 5 * few <= 4 * more ? FEW_CHUNKS : FEW_CHUNKS_16_BIT;
}

static void take_block(const row_of_chunks *row, ons_plan *plan) {
    int64_t most_lanes =
        (row->contiguous ? BLOCK_THREADS : ANY_BLOCK_THREADS) / row->threads_a_lane;
    int chunks = block_chunks(row, plan);
    int64_t threads = ceil_div(row->chunks, chunks) * row->threads_a_lane;
    plan->threads = (int)ceil_div(threads, WARP) * WARP;
    plan->elements_a_thread = chunks * row->chunk;
    plan->blocks_a_row = 1;
    plan->longest_row = most_lanes * BLOCK_CHUNKS * row->chunk;
}

static void take_passes(const row_of_chunks *row, ons_plan *plan) {
    int64_t threads = ceil_div(row->chunks, TILE_CHUNKS) * row->threads_a_lane;
    plan->threads = (int)least(PASS_THREADS, ceil_div(threads, WARP) * WARP);
    plan->elements_a_thread = TILE_CHUNKS * row->chunk;
    plan->blocks_a_row = 1;
}

/* The parts of a row: so many, of at least and at most so many chunks each; and the most there may
 * be, so that merging them stays cheap. */
enum {
    SPLIT_PARTS = 512,
    SPLIT_PART_CHUNKS = 1 << 12,
    SPLIT_LONG_PART_CHUNKS = 1 << 14,
    SPLIT_MOST_PARTS = 1 << 12
};

static void take_split(const row_of_chunks *row, ons_plan *plan) {
    bool in_row_form = plan->form == ONS_ROW_FORM;
    int64_t shortest = SPLIT_PART_CHUNKS / row->threads_a_lane;
    int64_t chunks = most(least(ceil_div(row->chunks, SPLIT_PARTS), SPLIT_LONG_PART_CHUNKS),
                          ceil_div(row->chunks, SPLIT_MOST_PARTS));
    chunks = ceil_div(chunks, shortest) * shortest;
    plan->threads = in_row_form ? SPLIT_THREADS : PASS_THREADS;
    plan->elements_a_thread =
        (in_row_form && row->chunk == CHUNK_OF_FLOATS ? SPLIT_CHUNKS : TILE_CHUNKS) * row->chunk;
    plan->tile = chunks * row->chunk;
    plan->blocks_a_row = ceil_div(row->chunks, chunks);
    plan->workspace_bytes = ceil_div(plan->rows, plan->width) * plan->width * plan->blocks_a_row *
                            2 * ons_dtype_size(plan->compute);
}

/* The most threads of a cluster's block. */
static int longest_block(const row_of_chunks *row) {
    return row->contiguous && row->chunk == CHUNK_OF_FLOATS ? LONG_CLUSTER_THREADS
                                                            : CLUSTER_THREADS;
}

/* The blocks of a cluster, and the warps of each: so that of the warps that find room on a
 * multiprocessor the most have elements of a row. 16-bit rows that are not whole packs are bound by
 * what their warps do, those without elements too: fewer of these then count twice. */
static void shape_cluster(const row_of_chunks *row, int64_t most_blocks, ons_plan *plan) {
    int64_t filled = ceil_div(row->chunks * row->threads_a_lane, CLUSTER_CHUNKS * WARP);
    bool narrow = row->contiguous && row->narrow;
    int room = plan->form == ONS_COLUMN_FORM ? COLUMN_CLUSTER_WARPS
               : narrow                      ? CLUSTER_WARPS_16_BIT
                                             : CLUSTER_WARPS;
    int most_warps = CLUSTER_THREADS / WARP;
    if (most_blocks * most_warps < filled && longest_block(row) > CLUSTER_THREADS) {
        bool some_more = !narrow && most_blocks * MORE_CLUSTER_WARPS / 2 >= filled;
        room = some_more ? MORE_CLUSTER_WARPS : MOST_CLUSTER_WARPS;
        most_warps = room / 2;
    }
    double best = 0;
    for (int warps = 1; warps <= most_warps; warps++) {
        int64_t blocks = most(2, ceil_div(filled, warps));
        if (blocks > most_blocks || (blocks > 2 && warps < FEW_CLUSTER_WARPS)) continue;
        double share = (double)filled / (double)(blocks * warps);
        double busy = room / warps * warps * share * (narrow && !row->whole ? share : 1);
        if (busy <= best) continue;
        best = busy;
        plan->blocks_a_row = blocks;
        plan->threads = warps * WARP;
    }
}

/* Of rows that land in shared memory, the chunks that a cluster of so many blocks holds. */
static int64_t landing_chunks(const row_of_chunks *row, int blocks, const ons_plan *plan) {
    int64_t size = ons_dtype_size(plan->compute), held = MOST_HELD;
    if ((blocks == 8 ? row->gpu->clusters_of_8 : row->gpu->clusters_of_16) == 0) return 0;
    while (ons_landing_bytes(blocks, size, held, FEW_SLOTS) > row->gpu->shared_bytes)
        if (--held < 0) return 0;
    return (int64_t)blocks * LANDING_THREADS * (CLUSTER_CHUNKS + held * HELD_CHUNKS);
}

/* The fewest blocks that hold the row: of 8 blocks more find a multiprocessor than of 16. */
static void take_landing(const row_of_chunks *row, ons_plan *plan) {
    int64_t of_8 = landing_chunks(row, 8, plan), of_16 = landing_chunks(row, 16, plan);
    if (most(of_8, of_16) * row->chunk <= plan->longest_row) return;
    bool registers = plan->N <= plan->longest_row;
    plan->longest_row = most(of_8, of_16) * row->chunk;
    if (registers) return;
    plan->threads = LANDING_THREADS;
    plan->blocks_a_row = row->chunks <= of_8 ? 8 : 16;
    plan->tile = (row->chunks <= of_8 ? of_8 : of_16) * row->chunk;
}

static ons_status take_cluster(const row_of_chunks *row, ons_plan *plan) {
    int blocks = row->contiguous ? row->gpu->cluster_blocks : row->gpu->cluster_blocks_any;
    int64_t chunks_a_block = CLUSTER_CHUNKS * longest_block(row) / row->threads_a_lane;
    plan->blocks_a_row = most(blocks, 1);
    plan->threads = CLUSTER_THREADS;
    plan->elements_a_thread = CLUSTER_CHUNKS * row->chunk;
    plan->longest_row = blocks * chunks_a_block * row->chunk;
    if (blocks < 2) return ONS_E_NO_CLUSTERS;
    shape_cluster(row, blocks, plan);
    if (row->contiguous) take_landing(row, plan);
    return ONS_OK;
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

/* Columns in packs: a thread has as many rows as a chunk has elements, and the less of each. Which
 * elements of a row are added up together stays what it is. */
static void take_packs(const row_of_chunks *row, ons_plan *plan) {
    if (plan->method == ONS_METHOD_fused_warp) {
        int lanes = plan->tile > PACKS_A_LANE ? 2 : 1;
        plan->threads =
            threads_of_warps(row, ceil_div(plan->rows * lanes, row->chunk), WARP_ROW_THREADS);
        plan->width = plan->threads / lanes * row->chunk;
        plan->elements_a_thread = (int)plan->tile / lanes;
    } else {
        plan->elements_a_thread /= row->chunk;
    }
}

static ons_status take_on_gpu(const row_of_chunks *row, ons_plan *plan) {
    plan->longest_row = plan->workspace_bytes = plan->tile = 0;
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
    if (plan->tile == 0)
        plan->tile =
            plan->elements_a_thread * (plan->threads / plan->width) * most(plan->blocks_a_row, 1);
    if (plan->form == ONS_COLUMN_FORM) {
        plan->x_direct = plan->y_direct = row->packed && has_packs(plan->method);
        if (plan->x_direct) take_packs(row, plan);
    }
    if (status == ONS_OK && plan->longest_row && plan->N > plan->longest_row)
        status = ONS_E_ROW_TOO_LONG;
    return status;
}

/* Whether a method can take such rows; it is the plan's then. */
static bool fits(ons_method method, const row_of_chunks *row, ons_plan *plan) {
    plan->method = method;
    return take_on_gpu(row, plan) == ONS_OK;
}

/* The thresholds of `auto` on a GPU. What they rest on stands beside each choice, as x copy. */
#define RESULTS "benchmarks/results/cuda-h200-2026-11-22.json: "
enum {
    /* The most rows for each multiprocessor that blocks of several warps take where a warp could
     * with more than half of the chunks it may have. */
    FEW_ROWS_A_MULTIPROCESSOR = 2,
    /* The longest rows that a block takes where a cluster could, in bytes of the input: a longer
     * row's block is alone on its multiprocessor, or nearly. */
    BLOCK_ROW_BYTES_16_BIT = 1 << 14,
    BLOCK_ROW_BYTES_16_BIT_ODD = 1 << 15, /* not of whole packs */
    BLOCK_ROW_BYTES = 1 << 16,
    /* The longest of 16 bits in packs of columns. */
    BLOCK_COLUMN_LENGTH_16_BIT = 320,
    /* The most rows, and their longest, that the grid takes one after the other; of 16 bits, the
     * most elements of all rows. */
    GRID_ELEMENTS_16_BIT = 1 << 23,
    GRID_ROWS = 4,
    /* Up to here the grid takes one row alone: `split` is faster for two. */
    GRID_LONE_ROW = 1 << 20,
    /* The fewest rows for which clusters pay whose blocks have a multiprocessor each. */
    LANDING_ROWS_16_BIT = 48,
    LANDING_ROWS = 24,
    GRID_ROW_LENGTH = 1 << 25
};

/* Bytes a second that a copy moves, reads and writes together, in the same run. */
static double copy_speed_of(const ons_gpu *gpu) { return strstr(gpu->name, "H200") ? 4.23e12 : 0; }

static ons_method choose_in_row_form(const row_of_chunks *row, ons_dtype dtype, ons_plan *plan) {
    int64_t bytes = plan->N * ons_dtype_size(dtype);
    bool clusters = row->gpu->cluster_blocks >= 2, narrow = ons_dtype_size(dtype) == 2;
    int block_bytes = !narrow      ? BLOCK_ROW_BYTES
                      : row->whole ? BLOCK_ROW_BYTES_16_BIT
                                   : BLOCK_ROW_BYTES_16_BIT_ODD;
    int landing_rows = narrow ? LANDING_ROWS_16_BIT : LANDING_ROWS;
    int64_t grid_rows = plan->N <= GRID_LONE_ROW ? 1
                        : narrow                 ? ceil_div(GRID_ELEMENTS_16_BIT, plan->N)
                                                 : GRID_ROWS;
    bool few_rows = plan->rows <= FEW_ROWS_A_MULTIPROCESSOR * row->gpu->multiprocessors;
    if (few_rows && 2 * row->chunks > WARP * WARP_CHUNKS && row->chunks <= WARP * WARP_CHUNKS &&
        fits(ONS_METHOD_fused_block, row, plan)) {
        plan->reason = "few rows that a warp could hold: four are sooner done";
        plan->measured = RESULTS
            "float32 1x1024: fused_block 0.68, fused_warp 0.62; bfloat16 64x1024: fused_block "
            "0.73, fused_warp 0.71";
    } else if (fits(ONS_METHOD_fused_warp, row, plan)) {
        plan->reason = "the row fits the registers of a warp: one read, no barrier";
        plan->measured = RESULTS
            "float32 1048576x256: fused_warp 1.00, fused_block 0.81; float32 262144x1024: "
            "fused_warp 1.00, fused_block 1.02; bfloat16 4096x1024: fused_warp 0.96, fused_block "
            "0.79";
    } else if ((!clusters || bytes <= block_bytes) && fits(ONS_METHOD_fused_block, row, plan)) {
        plan->reason = "the row fits the registers of a block: one read";
        plan->measured = RESULTS
            "float32 16384x16384: fused_block 1.01, cluster 1.00; bfloat16 32768x8192: fused_block "
            "1.02, cluster 1.01; bfloat16 65520x4097: fused_block 0.91, cluster 0.43";
    } else if (fits(ONS_METHOD_cluster, row, plan) && plan->threads != LANDING_THREADS) {
        plan->reason = "the row fits the registers of a cluster: one read";
        plan->measured = RESULTS
            "float32 8192x32768: cluster 1.01, fused_block 1.01; bfloat16 8192x32768: cluster "
            "1.01, fused_block 0.95; float32 1024x262144: cluster 0.93, online 0.65";
    } else if (plan->rows >= landing_rows && fits(ONS_METHOD_cluster, row, plan)) {
        plan->reason = "the row fits the registers and shared memory of a cluster: one read";
        plan->measured = RESULTS
            "float32 512x524288: cluster 0.88, split 0.66; float32 256x1048576: cluster 0.78, "
            "split 0.66; bfloat16 512x524288: cluster 0.79, online 0.58";
    } else if (plan->rows <= grid_rows && plan->N <= GRID_ROW_LENGTH &&
               fits(ONS_METHOD_grid, row, plan)) {
        plan->reason = "very few rows, too long to be held elsewhere: the whole GPU takes each";
        plan->measured = RESULTS
            "float32 1x16777216: grid 0.59, split 0.54; bfloat16 1x16777216: grid 0.50, split "
            "0.46; bfloat16 64x4194304: split 0.55, grid 0.38";
    } else {
        plan->method = ONS_METHOD_split;
        plan->reason = "rows too long to be held: blocks share each one";
        plan->measured = RESULTS
            "float32 64x4194304: split 0.66, online 0.45; float32 1x268435456: split 0.65, grid "
            "0.63";
    }
    return plan->method;
}

static ons_method choose_in_column_form(const row_of_chunks *row, ons_dtype dtype, ons_plan *plan) {
    int64_t panels = ceil_div(plan->rows, row->threads_a_lane);
    bool narrow = row->packed && ons_dtype_size(dtype) == 2 && row->gpu->cluster_blocks_any >= 2;
    if (fits(ONS_METHOD_fused_warp, row, plan)) {
        plan->reason = "a row fits the registers of a lane: one read, no barrier";
    } else if (!(narrow && plan->N > BLOCK_COLUMN_LENGTH_16_BIT) &&
               fits(ONS_METHOD_fused_block, row, plan)) {
        plan->reason = "32 rows fit the registers of a block: one read";
    } else if (fits(ONS_METHOD_cluster, row, plan)) {
        plan->reason = "32 rows fit the registers of a cluster: one read";
        plan->measured = RESULTS "float32 4096x4096 axis 0: cluster 0.83, online 0.55";
    } else if (2 * panels >= row->gpu->multiprocessors) {
        plan->method = ONS_METHOD_online;
        plan->reason = "rows too long to be held, and enough of them for blocks of 32";
        plan->measured = RESULTS "float32 4096x4096 axis 0: online 0.55, split 0.45";
    } else {
        plan->method = ONS_METHOD_split;
        plan->reason = "few rows, too long to be held: blocks share each 32";
    }
    return plan->method;
}

/* Nothing is to be done to the rows first, and they are of one type or of 16 bits that become
 * float32. */
static bool is_plain(const ons_problem *problem) {
    ons_dtype x = problem->x.dtype, y = problem->y.dtype;
    bool types = x == y || (ons_dtype_size(x) == 2 && y == ONS_FLOAT32);
    return types && !problem->where.data && !problem->scale.data && problem->scale_by == 1.0 &&
           problem->reduced_dims <= 1;
}

static bool has_no_gaps(const ons_problem *problem, int dim) {
    return problem->x.stride[dim] == ons_dtype_size(problem->x.dtype) &&
           problem->y.stride[dim] == ons_dtype_size(problem->y.dtype);
}

/* contiguous_rows */
static bool is_contiguous(const ons_problem *problem) {
    int last = problem->dims - 1;
    return is_plain(problem) && problem->dims <= 2 &&
           (problem->extent[last] == 1 || has_no_gaps(problem, last));
}

/* packed_columns, of a problem in the column form: all packs of columns, as many as a chunk has
 * elements, lie at multiples of their size. */
static bool is_packed(const ons_problem *problem) {
    const ons_operand *const operands[] = {&problem->x, &problem->y};
    int inner = problem->dims - 2, pack = 4;
    if (!is_plain(problem) || problem->x.dtype == ONS_FLOAT64 || problem->dims > 3 ||
        !has_no_gaps(problem, inner) || problem->extent[inner] % pack)
        return false;
    for (int i = 0; i < 2; i++) {
        int64_t size = pack * ons_dtype_size(operands[i]->dtype);
        if ((uintptr_t)operands[i]->data % (uintptr_t)size) return false;
        for (int dim = 0; dim < problem->dims; dim++)
            if (dim != inner && operands[i]->stride[dim] % size) return false;
    }
    return true;
}

ons_status ons_plan_on_gpu(const ons_problem *problem, ons_plan *plan) {
    ons_gpu gpu;
    if (ons_gpu_describe(problem->gpu, &gpu) != ONS_OK) gpu = usual_gpu;
    plan->copy_speed = copy_speed_of(&gpu);
    int inner = problem->dims - 1, outer = problem->dims - problem->reduced_dims;
    bool columns = problem->reduced_dims == 1 && outer > 0 && plan->N > 1 &&
                   problem->x.stride[inner] != ons_dtype_size(problem->x.dtype) &&
                   llabs(problem->x.stride[outer - 1]) < llabs(problem->x.stride[inner]);
    plan->form = columns ? ONS_COLUMN_FORM : ONS_ROW_FORM;
    plan->x_direct = plan->y_direct = !columns && is_contiguous(problem);
    int chunk = 16 / (int)ons_dtype_size(plan->compute);
    bool narrow = problem->x.dtype == problem->y.dtype && problem->reduced_dims <= 1 &&
                  ons_dtype_size(problem->x.dtype) == 2;
    row_of_chunks row = {ceil_div(plan->N, chunk),
                         chunk,
                         columns ? WARP : 1,
                         narrow,
                         plan->N % chunk == 0,
                         !columns && is_contiguous(problem),
                         columns && is_packed(problem),
                         &gpu};
    if (row.chunks == 0) row.chunks = 1;

    if (plan->method == ONS_METHOD_AUTO)
        plan->method = columns ? choose_in_column_form(&row, problem->x.dtype, plan)
                               : choose_in_row_form(&row, problem->x.dtype, plan);
    if (plan->method == ONS_METHOD_fused)
        plan->method = fits(ONS_METHOD_fused_warp, &row, plan) ? ONS_METHOD_fused_warp
                                                               : ONS_METHOD_fused_block;
    ons_status status = take_on_gpu(&row, plan);
    if (ons_methods[plan->method].keeps != ONS_KEEPS_NOTHING)
        plan->on_chip_bytes = least(plan->tile, row.chunks * chunk) * ons_dtype_size(plan->compute);
    return status;
}
