/* plan/gpu_topk.c - the method and the shape of the operation that selects, on a GPU. The lanes,
 * chunks and blocks of a row depend on N, k, the types and the GPU. For short rows they also depend
 * on the number of rows. In float32 that changes no bits, since rows are added up in fixed point.
 * In float64 it changes the method (is_for_block), unless the plan is invariant. */
#include "../api/route.h"
#include "../cuda/topk/sample_list.h"
#include "../cuda/topk/shapes.h"
#include "gpu.h"

/* An index has 32 bits. This also holds for the places of the last tile beyond the row's end. */
#define LONGEST_ROW (((int64_t)1 << 32) - (1 << 16))

/* Elements of a part of a row in split. Parts are longer if there would be too many. */
enum { PART = 1 << 14, MAX_PARTS = 256 };

/* Whether kernels that know no scale would need one. */
static bool has_scale(const ons_sample *sample, int64_t N) {
    return sample && !ons_sample_takes_all(sample, N) && !ons_sample_knows_no_d(sample, N) &&
           (sample->temperature.of_rows || ons_sample_scale(sample->temperature.number, true) != 1);
}

/* Rows without gaps that need no change, in the arithmetic of their own type. */
static bool is_contiguous_for_topk(const ons_problem *problem, const ons_plan *plan) {
    return ons_sample_is_contiguous(problem, plan->compute) && !problem->operand[ONS_SCALE].data &&
           problem->scale_by == 1.0 && !has_scale(problem->sample, plan->N);
}

/* Whether masked_rows can read the rows. */
static bool is_masked_for_topk(const ons_problem *problem, const ons_plan *plan) {
    return plan->compute == ONS_FLOAT32 && problem->operand[ONS_X].dtype != ONS_FLOAT64 &&
           has_masked_rows(problem);
}
/* Kernels that take a row, or a part of a row, by a block have masked_rows. */
static bool has_masked_family(const ons_plan *plan) {
    return plan->family == ONS_FAMILY_topk_block || plan->family == ONS_FAMILY_topk_cluster ||
           plan->family == ONS_FAMILY_topk_online || plan->family == ONS_FAMILY_topk_split;
}

/* An entry takes 8 bytes, or 16 for float64, as a pair does. */
static int64_t entry_bytes(const ons_plan *plan) { return 2 * ons_dtype_size(plan->compute); }

/* A launch has few rows if it has at most this many rows for each multiprocessor. topk/warp.cu and
 * topk/route.cu need more time for a row than topk/sorted.cu, so they have a lower limit. */
enum { ROWS_A_MULTIPROCESSOR = 64, SLOW_ROWS_A_MULTIPROCESSOR = 16 };

static bool has_few_slow_rows(const gpu_row *row, const ons_plan *plan) {
    return plan->rows <= (int64_t)SLOW_ROWS_A_MULTIPROCESSOR * row->gpu->multiprocessors;
}

static bool wants_most(int64_t k, const ons_plan *plan) { return 4 * k > 3 * plan->N; }

/* A shape of topk/warp.cu or topk/route.cu, and of topk/sorted.cu. */
typedef struct {
    topk_rows rows;
    int lanes, chunks;
} listed_shape;
typedef struct {
    topk_rows rows;
    int lanes, chunks, kept;
} sorted_shape;

static bool is_for(topk_rows rows, const gpu_row *row, const ons_plan *plan) {
    const bool few = plan->rows <= (int64_t)ROWS_A_MULTIPROCESSOR * row->gpu->multiprocessors;
    switch (rows) {
    case TOPK_FEW_ROWS: return few;
    case TOPK_MANY_ROWS: return !few && row->contiguous;
    case TOPK_MANY_16_BIT_ROWS: return !few && row->contiguous && row->is_16_bit;
    default: return true;
    }
}

/* The first shape of topk/sorted.cu that holds the row, or NULL. */
static const sorted_shape *find_sorted(const gpu_row *row, int64_t k, const ons_plan *plan) {
    static const sorted_shape shapes[] = {
#define ONS_TOPK_SORTED_SHAPE(rows, lanes, chunks, kept) {TOPK_##rows##_ROWS, lanes, chunks, kept},
#include "../cuda/kernels.def"
#undef ONS_TOPK_SORTED_SHAPE
    };
    if (plan->compute == ONS_FLOAT64) return NULL;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const sorted_shape *shape = &shapes[i];
        if (is_for(shape->rows, row, plan) && shape->lanes * shape->chunks >= row->chunks &&
            shape->kept == topk_kept(k, shape->chunks * row->chunk))
            return shape;
    }
    return NULL;
}

/* Whether a whole warp takes a row, even if fewer lanes hold it. More lanes give more tops, which
 * bound the k-th element better. Many rows of more than SORTED_CHUNKS chunks take it if k is 17 to
 * 32, since half a warp has only 32 tops. Few rows take it if they have more than SHORT_CHUNKS
 * chunks. But up to SORTED_CHUNKS chunks without gaps, topk/sorted.cu is sooner for 16-bit rows of
 * whole packs, for a small k of longer rows of whole packs, and for a large k. float32 rows that
 * want most elements take a whole warp again. In float64 the number of lanes changes bits, so no
 * row takes it. */
static bool is_for_whole_warp(const gpu_row *row, int64_t k, const ons_plan *plan) {
    enum { SHORT_CHUNKS = 16, SORTED_CHUNKS = 64, ELEMENTS_A_WANTED = 5, SMALL = 8 };
    if (plan->compute != ONS_FLOAT32) return false;
    const bool few = has_few_slow_rows(row, plan);
    if (row->chunks > SORTED_CHUNKS) return few || (k > WARP / 2 && k <= WARP);
    if (!few || row->chunks <= SHORT_CHUNKS) return false;
    if (!row->contiguous) return true;
    const bool small_of_longer = k <= SMALL && row->chunks > SORTED_CHUNKS / 2;
    if (plan->N % row->chunk == 0 && (row->is_16_bit || small_of_longer)) return false;
    return k * ELEMENTS_A_WANTED <= plan->N || (!row->is_16_bit && wants_most(k, plan));
}

/* Takes the first shape that holds the row: of topk/warp.cu if it is for a whole warp, else of
 * topk/sorted.cu if that has one. Returns false if no shape holds the row. */
static bool shape_warp(const gpu_row *row, int64_t k, ons_plan *plan) {
    static const listed_shape shapes[] = {
#define ONS_TOPK_SHAPE(rows, lanes, chunks) {TOPK_##rows##_ROWS, lanes, chunks},
#include "../cuda/kernels.def"
#undef ONS_TOPK_SHAPE
    };
    const int last = sizeof shapes / sizeof *shapes - 1;
    const bool whole_warp = is_for_whole_warp(row, k, plan);
    int i = 0;
    while (i < last && ((shapes[i].rows == TOPK_WHOLE_WARP_ROWS && !whole_warp) ||
                        shapes[i].lanes * shapes[i].chunks < row->chunks))
        i++;
    const sorted_shape *sorted = whole_warp ? NULL : find_sorted(row, k, plan);
    plan->longest_row = (int64_t)shapes[last].lanes * shapes[last].chunks * row->chunk;
    if (plan->N > plan->longest_row) return false;
    if (sorted) plan->family = ONS_FAMILY_topk_sorted;
    plan->lanes = sorted ? sorted->lanes : shapes[i].lanes;
    plan->elements_a_thread = (sorted ? sorted->chunks : shapes[i].chunks) * row->chunk;
    plan->tile = plan->lanes * plan->elements_a_thread;
    plan->threads = ons_threads_of_warps(row, plan->rows * plan->lanes, WARP_ROW_THREADS);
    /* an upper bound: a row has its elements, two lists, and buckets in shared memory */
    enum { BESIDE_LIST = 3 * WARP };
    const int64_t row_bytes =
        plan->tile * ons_dtype_size(plan->compute) +
        2 * (topk_warp_room(k, plan->lanes) + BESIDE_LIST) * entry_bytes(plan);
    while (plan->threads > WARP && plan->threads / plan->lanes * row_bytes > row->gpu->shared_bytes)
        plan->threads /= 2;
    plan->width = plan->threads / plan->lanes;
    return true;
}

/* Whether the tops and the queue of a block fit its shared memory, beside the kernel's own
 * variables. In float64 they fit only on some GPUs. */
static bool fits_tiles(const gpu_row *row, const ons_plan *plan) {
    enum { BESIDES = 8192 };
    const int64_t a_thread =
        TOPK_KEPT * ons_dtype_size(plan->compute) + TOPK_QUEUED * entry_bytes(plan);
    return TOPK_TILE_THREADS * a_thread + BESIDES <= row->gpu->shared_bytes;
}

/* The warps of a block that reads a row or a part tile by tile. A multiprocessor has room for a
 * fixed number of warps. The block size is the one whose last wave over the rows is the fullest. If
 * two sizes are equal in this, the smaller size is taken. With small blocks, some blocks read while
 * other blocks are at the end of their rows. In float64 the number of warps changes bits, so it
 * depends on N alone. */
static int64_t tile_warps(const gpu_row *row, const ons_plan *plan) {
    enum { SHORT_ROW = 1 << 16, MIN_WARPS = 3, MAX_WARPS = TOPK_TILE_THREADS / WARP };
    if (plan->method == ONS_METHOD_split) return MAX_WARPS;
    if (plan->compute == ONS_FLOAT64 || plan->invariant)
        return plan->N <= SHORT_ROW ? MAX_WARPS / 2 : MAX_WARPS;
    const int blocks = row->contiguous ? TOPK_TILE_BLOCKS : TOPK_TILE_BLOCKS_OF_OTHERS;
    int64_t warps = MAX_WARPS, least_slots = INT64_MAX;
    for (int size = MIN_WARPS; size <= MAX_WARPS; size++) {
        const int64_t wave = (int64_t)row->gpu->multiprocessors * (blocks * MAX_WARPS / size);
        const int64_t slots = ceil_div(max_of(plan->rows, 1), wave) * wave;
        if (blocks * MAX_WARPS % size != 0 || slots >= least_slots) continue;
        least_slots = slots;
        warps = size;
    }
    return warps;
}

static ons_status shape(const gpu_row *row, int64_t k, ons_plan *plan) {
    const int blocks = row->contiguous ? row->gpu->cluster_blocks : row->gpu->cluster_blocks_any;
    plan->lanes = 0;
    plan->width = 1;
    plan->workspace_bytes = 0;
    plan->family = plan->method == ONS_METHOD_fused_warp    ? ONS_FAMILY_topk_warp
                   : plan->method == ONS_METHOD_fused_block ? ONS_FAMILY_topk_block
                   : plan->method == ONS_METHOD_cluster     ? ONS_FAMILY_topk_cluster
                   : plan->method == ONS_METHOD_split       ? ONS_FAMILY_topk_split
                                                            : ONS_FAMILY_topk_online;
    plan->blocks_a_row = 1;
    plan->longest_row = LONGEST_ROW;
    plan->elements_a_thread = TOPK_CHUNKS * row->chunk;
    if (plan->N > LONGEST_ROW) return ONS_E_ROW_TOO_LONG;
    const bool by_tiles = plan->method == ONS_METHOD_split || plan->method == ONS_METHOD_online;
    if (by_tiles && k <= ONS_LARGEST_K && fits_tiles(row, plan)) {
        /* twice as many tops as k, so that their bound is close to the k-th element */
        const bool long_tiles =
            row->is_16_bit && !plan->invariant && row->chunks >= 2 * k * TOPK_TILE_CHUNKS_16_BIT;
        const int in_tile = long_tiles ? TOPK_TILE_CHUNKS_16_BIT : TOPK_TILE_CHUNKS;
        const int64_t warps = ceil_div(ceil_div(row->chunks, in_tile), WARP);
        const int64_t for_list = ceil_div(2 * k, TOPK_QUEUED * WARP);
        plan->threads = WARP * (int)max_of(min_of(warps, tile_warps(row, plan)), for_list);
        plan->elements_a_thread = in_tile * row->chunk;
        plan->tile = (int64_t)plan->threads * plan->elements_a_thread;
        if (plan->method == ONS_METHOD_split) {
            const int64_t tiles = ceil_div(ceil_div(plan->N, plan->tile), MAX_PARTS);
            plan->tile *= tiles * plan->tile < PART ? ceil_div(PART, plan->tile) : tiles;
            plan->blocks_a_row = ceil_div(plan->N, plan->tile);
            plan->workspace_bytes = plan->rows * plan->blocks_a_row * (k + 1) * entry_bytes(plan);
        }
        return ONS_OK;
    }
    if (plan->method == ONS_METHOD_online) {
        plan->family = ONS_FAMILY_topk_large;
        plan->threads = PASS_THREADS;
        plan->elements_a_thread = TILE_CHUNKS * row->chunk;
        plan->tile = (int64_t)plan->threads * plan->elements_a_thread;
        plan->blocks_a_row = min_of(plan->rows, 2 * row->gpu->multiprocessors);
        plan->workspace_bytes = plan->blocks_a_row * power_of_two_from(k) * entry_bytes(plan);
        return ONS_OK;
    }
    if (k > ONS_LARGEST_K) return ONS_E_K_TOO_LARGE;
    if (plan->method == ONS_METHOD_fused_warp) {
        plan->blocks_a_row = 0;
        return shape_warp(row, k, plan) ? ONS_OK : ONS_E_ROW_TOO_LONG;
    }
    if (plan->method == ONS_METHOD_fused_block) {
        plan->longest_row = (int64_t)TOPK_BLOCK_THREADS * TOPK_CHUNKS * row->chunk;
        const int64_t warps = ceil_div(row->chunks, TOPK_CHUNKS * WARP);
        plan->threads = (int)(warps > 1 ? warps : 2) * WARP; /* one warp has no barrier */
        return plan->N > plan->longest_row ? ONS_E_ROW_TOO_LONG : ONS_OK;
    }
    if (plan->method == ONS_METHOD_split || blocks < 2) return ONS_E_NO_CLUSTERS;
    plan->longest_row = (int64_t)blocks * TOPK_THREADS * TOPK_CHUNKS * row->chunk;
    plan->threads = TOPK_THREADS;
    ons_share_out(ceil_div(row->chunks, TOPK_CHUNKS * WARP), TOPK_THREADS / WARP,
                  TOPK_THREADS / WARP, blocks, false, plan);
    plan->tile = plan->blocks_a_row * plan->threads * plan->elements_a_thread;
    return plan->N > plan->longest_row ? ONS_E_ROW_TOO_LONG : ONS_OK;
}

/* Takes the first shape of topk/route.cu that holds the row. Returns false if there is none. */
static bool take_route_shape(const gpu_row *row, int64_t groups, ons_plan *plan) {
    static const listed_shape shapes[] = {
#define ONS_ROUTE_SHAPE(rows, lanes, chunks) {TOPK_##rows##_ROWS, lanes, chunks},
#include "../cuda/kernels.def"
#undef ONS_ROUTE_SHAPE
    };
    const bool many =
        row->contiguous && plan->compute == ONS_FLOAT32 && !has_few_slow_rows(row, plan);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (shapes[i].rows == TOPK_MANY_ROWS && !many) continue;
        plan->lanes = shapes[i].lanes;
        plan->elements_a_thread = shapes[i].chunks * row->chunk;
        if (groups <= plan->lanes && row->chunks <= shapes[i].lanes * shapes[i].chunks) return true;
    }
    return false;
}

/* The shape of a router. The block's workspace has a list, and the keys of a row and of its
 * groups. */
static ons_status shape_route(const gpu_row *row, const ons_problem *problem, ons_plan *plan) {
    const int64_t key_bytes = ons_dtype_size(plan->compute), groups = problem->route->groups;
    const bool is_plain = row->contiguous && plan->compute == ONS_FLOAT32 &&
                          !problem->route->bias && !ons_route_has_groups(problem->route);
    plan->width = 1;
    if (is_plain && plan->N <= ROUTE_EXPERTS) {
        plan->method = ONS_METHOD_fused_warp;
        plan->reason = "the row fits the registers of a warp: one read, no barrier";
        plan->family = ONS_FAMILY_topk_warp;
        return shape_warp(row, plan->k, plan) ? ONS_OK : ONS_E_ROW_TOO_LONG;
    }
    if (plan->N <= ROUTE_EXPERTS && groups <= WARP) {
        plan->method = ONS_METHOD_fused_warp;
        plan->reason = "the row fits the registers of a warp: one read, no barrier";
        plan->family = ONS_FAMILY_route_in_warp;
        if (!take_route_shape(row, groups, plan)) return ONS_E_ROW_TOO_LONG;
        plan->tile = (int64_t)plan->lanes * plan->elements_a_thread;
        plan->threads = ons_threads_of_warps(row, plan->rows * plan->lanes, WARP_ROW_THREADS);
        const int64_t row_bytes = route_row_bytes(plan->tile, groups, plan->k, key_bytes);
        while (plan->threads > WARP &&
               plan->threads / plan->lanes * row_bytes > row->gpu->shared_bytes)
            plan->threads /= 2;
        plan->width = plan->threads / plan->lanes;
        return ONS_OK;
    }
    plan->method = ONS_METHOD_online;
    plan->reason = "no warp holds the row: a block reads its keys several times";
    plan->family = ONS_FAMILY_route_in_block;
    plan->threads = PASS_THREADS;
    plan->elements_a_thread = TILE_CHUNKS * row->chunk;
    plan->tile = (int64_t)plan->threads * plan->elements_a_thread;
    plan->blocks_a_row = min_of(max_of(plan->rows, 1), 2 * row->gpu->multiprocessors);
    const int64_t a_block =
        power_of_two_from(plan->k) * entry_bytes(plan) + (plan->N + groups) * key_bytes;
    plan->workspace_bytes = plan->blocks_a_row * ceil_div(a_block, 16) * 16;
    return plan->N > LONGEST_ROW ? ONS_E_ROW_TOO_LONG : ONS_OK;
}

/* The number of blocks that share a row in a sampler without filters: what ends first. */
static int64_t blocks_of_draw(const gpu_row *row, const ons_plan *plan) {
    enum {
        BLOCKS_A_MULTIPROCESSOR = 2, /* that read as fast as they can */
        BESIDES = 8000               /* a block reads so many elements while it does other work */
    };
    const int64_t places = BLOCKS_A_MULTIPROCESSOR * row->gpu->multiprocessors;
    int64_t best = 1, least = INT64_MAX;
    for (int64_t blocks = 1; blocks <= max_of(row->gpu->cluster_blocks, 1); blocks *= 2) {
        const int64_t time =
            ceil_div(plan->rows * blocks, places) * (ceil_div(plan->N, blocks) + BESIDES);
        if (time < least) best = blocks;
        least = min_of(least, time);
    }
    return best;
}

/* The shape of a sampler without filters. */
static ons_status shape_sample(const gpu_row *row, ons_plan *plan) {
    plan->width = 1;
    plan->method = ONS_METHOD_online;
    plan->reason = "one read, a part of a row for each warp";
    plan->family = ONS_FAMILY_topk_cluster;
    plan->threads = ONS_DRAW_THREADS;
    plan->elements_a_thread = ONS_DRAW_CHUNKS * row->chunk;
    plan->blocks_a_row = blocks_of_draw(row, plan);
    return plan->N > LONGEST_ROW ? ONS_E_ROW_TOO_LONG : ONS_OK;
}

static ons_status take(ons_method method, const char *reason, const gpu_row *row, int64_t k,
                       ons_plan *plan) {
    plan->method = method;
    plan->reason = reason;
    return shape(row, k, plan);
}

enum {
    /* Up to this many rows (scaled), several blocks finish a row sooner than one block. The second
     * limit is for short rows, and for rows that one block reads slowly: 16-bit rows that are not
     * whole packs. */
    MAX_SHARED_ROWS = 64,
    MAX_SHARED_SHORT_ROWS = 128,
    SHARED_SHORT_ROW = 1 << 16,
    /* The blocks of a cluster share a row only if N is at least this number times k. The bound
     * comes from the largest element of each thread, so a row should have 2 k threads. */
    ELEMENTS_A_K = 50,
    /* The most rows of float64 for each multiprocessor that get a block each, even if the lanes of
     * a warp could hold such a row. The second limit applies if k is more than three quarters of
     * the row, since lanes take long for a large k. */
    BLOCK_ROWS_A_MULTIPROCESSOR = 4,
    BLOCK_WHOLE_ROWS_A_MULTIPROCESSOR = 8,
    SMALL_K = 20,
    LARGE_K = 80
};

/* Whether rows of float64 are so few that a block ends sooner than the lanes of a warp. A row
 * that needs half a warp is for a block if k is above SMALL_K. A shorter row is for a block if k is
 * at least LARGE_K and more than three quarters of N. */
static bool is_for_block(const gpu_row *row, int64_t k, const ons_plan *plan) {
    const int64_t half_warp_has = WARP / 2 * WARP_CHUNKS;
    const bool whole = wants_most(k, plan);
    const int a_multiprocessor =
        whole ? BLOCK_WHOLE_ROWS_A_MULTIPROCESSOR : BLOCK_ROWS_A_MULTIPROCESSOR;
    if (plan->compute != ONS_FLOAT64 || row->chunks > half_warp_has) return false;
    if (plan->rows > (int64_t)a_multiprocessor * row->gpu->multiprocessors) return false;
    return row->chunks > half_warp_has / 2 ? k > SMALL_K : whole && k >= LARGE_K;
}

static ons_status choose(const ons_problem *problem, const ons_gpu *gpu, ons_plan *plan) {
    const int64_t chunk = 16 / ons_dtype_size(plan->compute), k = plan->k;
    gpu_row row = {.chunks = plan->N > 0 ? ceil_div(plan->N, chunk) : 1,
                   .chunk = (int)chunk,
                   .threads_a_lane = 1,
                   .contiguous = is_contiguous_for_topk(problem, plan),
                   .masked = is_masked_for_topk(problem, plan),
                   .operation = problem->operation,
                   .gpu = gpu};
    row.is_16_bit =
        (row.contiguous || row.masked) && ons_dtype_size(problem->operand[ONS_X].dtype) == 2;
    plan->form = ONS_ROW_FORM;
    plan->loader = row.contiguous ? ONS_CONTIGUOUS : row.masked ? ONS_MASKED : ONS_GENERAL;
    if (problem->operation == ONS_OPERATION_route) return shape_route(&row, problem, plan);
    if (problem->sample && k == 0) return shape_sample(&row, plan);
    if (plan->method == ONS_METHOD_fused)
        plan->method = row.chunks <= WARP * WARP_CHUNKS                 ? ONS_METHOD_fused_warp
                       : row.chunks <= TOPK_BLOCK_THREADS * TOPK_CHUNKS ? ONS_METHOD_fused_block
                                                                        : ONS_METHOD_cluster;
    if (plan->method != ONS_METHOD_AUTO) return shape(&row, k, plan);
    if (k > ONS_LARGEST_K)
        return take(ONS_METHOD_online,
                    "more elements wanted than a block puts in order: 3 to 14 reads", &row, k,
                    plan);
    const bool for_block = !plan->invariant && is_for_block(&row, k, plan);
    if (!for_block &&
        take(ONS_METHOD_fused_warp, "the row fits the registers of a warp: one read, no barrier",
             &row, k, plan) == ONS_OK)
        return ONS_OK;
    if (take(ONS_METHOD_fused_block,
             for_block
                 ? "few rows and a large k: a block finishes a row sooner than the lanes of a warp"
                 : "the row fits the registers of a block: one read",
             &row, k, plan) == ONS_OK)
        return ONS_OK;
    /* `invariant` takes one method for 1 and for 1024 rows. In cuda-h100-2026-11-27-topk.json, if
     * blocks share each row of 128256 elements, 1024 rows take up to 2.2 times as long. If they do
     * not, one row takes up to 4.2 times as long. */
    const bool few = plan->invariant || plan->rows <= scaled(MAX_SHARED_ROWS, gpu);
    const bool slow_alone =
        plan->N <= SHARED_SHORT_ROW || (row.is_16_bit && plan->N % row.chunk != 0);
    const bool shared = few || (slow_alone && plan->rows <= scaled(MAX_SHARED_SHORT_ROWS, gpu));
    const bool bounded = k * ELEMENTS_A_K <= plan->N;
    if (shared && bounded &&
        take(ONS_METHOD_cluster, "few rows: the blocks of a cluster share each one", &row, k,
             plan) == ONS_OK)
        return ONS_OK;
    if (few && (bounded || gpu->cluster_blocks < 2) &&
        take(ONS_METHOD_split, "few rows, too long for a cluster: blocks share each one", &row, k,
             plan) == ONS_OK)
        return ONS_OK;
    return take(ONS_METHOD_online,
                fits_tiles(&row, plan)
                    ? "one read, tile by tile"
                    : "no room in shared memory for the largest of the tiles: 3 to 14 reads",
                &row, k, plan);
}

ons_status ons_topk_on_gpu(const ons_problem *problem, const ons_gpu *gpu, ons_plan *plan) {
    const bool exact = plan->method == ONS_METHOD_exact;
    const char *const reason = plan->reason;
    /* `exact` has one kernel of its own (topk/exact.cu), after the kernel that selects */
    if (exact) plan->method = ONS_METHOD_AUTO;
    const ons_sample *sample = problem->sample;
    if (sample) { /* d of float64 rows would depend on the number of rows */
        plan->k = ons_sample_list(sample, plan->N);
        plan->invariant |= plan->compute == ONS_FLOAT64;
    }
    const ons_status status = choose(problem, gpu, plan);
    if (exact) plan->method = ONS_METHOD_exact, plan->reason = reason;
    if (plan->loader == ONS_MASKED && !has_masked_family(plan)) plan->loader = ONS_GENERAL;
    const int64_t chunk = 16 / ons_dtype_size(plan->compute);
    if (plan->tile == 0) plan->tile = (int64_t)plan->threads * plan->elements_a_thread;
    if (sample)
        plan->workspace_bytes =
            ceil_div(plan->workspace_bytes, 16) * 16 +
            ons_sample_workspace_of(sample, plan->rows, plan->N, plan->k,
                                    ons_dtype_size(plan->compute), gpu->multiprocessors)
                .end;
    plan->on_chip_bytes = min_of(plan->tile, ceil_div(max_of(plan->N, 1), chunk) * chunk) *
                          ons_dtype_size(plan->compute);
    return status;
}

int ons_topk_reads(const ons_plan *plan) {
    return (plan->family == ONS_FAMILY_topk_large ? 3 : 1) + plan->in_double;
}
