/* plan/gpu_choice.c - the method that `auto` chooses on a GPU, and why. plan/gpu_shape.c has the
 * shapes of methods. */
#include "../api/packed.h"
#include "gpu.h"

#include <stdlib.h>

typedef struct {
    ons_method method;
    const char *reason, *measured;
} choice;

/* The plan with this method. Its method is ONS_METHOD_AUTO if the method cannot take such rows. */
static ons_plan with_method(ons_method method, const gpu_row *row, const ons_plan *plan) {
    ons_plan made = *plan;
    made.method = method;
    if (ons_shape_on_gpu(row, &made) != ONS_OK) made.method = ONS_METHOD_AUTO;
    return made;
}

static bool fits(ons_method method, const gpu_row *row, const ons_plan *plan) {
    return with_method(method, row, plan).method == method;
}

/* The thresholds of `auto` on a GPU. The measurements beside each choice are relative to a copy. */
#define RESULTS "benchmarks/results/cuda-h200-2026-11-22.json on an NVIDIA H200: "
enum {
    /* The most rows for each multiprocessor that get a block of several warps each, even if a warp
     * could hold such a row. The first number is for rows of 5 to 8 chunks a lane, the second for
     * longer rows. */
    BLOCK_ROWS_A_MULTIPROCESSOR = 2,
    BLOCK_LONGER_ROWS_A_MULTIPROCESSOR = 8,
    /* Rows of more bytes than this go to a cluster, even if a block could hold them, if the GPU
     * has a multiprocessor for each of CLUSTER_BLOCKS_A_ROW blocks a row. */
    CLUSTER_ROW_BYTES = 1 << 14,
    CLUSTER_BLOCKS_A_ROW = 4,
    /* The longest rows that go to a block although a cluster could hold them, in bytes of the
     * input. The block of a longer row is alone on its multiprocessor, or nearly. */
    BLOCK_ROW_BYTES_16_BIT = 1 << 15,
    BLOCK_ROW_BYTES = 1 << 16,
    /* The longest 16-bit rows in packs of columns. */
    BLOCK_COLUMN_LENGTH_16_BIT = 320,
    /* The longest row with one value, in chunks, that goes to a block if rows are few. */
    VALUE_BLOCK_CHUNKS = 1 << 11,
    /* The longest row that goes to the grid, if it is the only row. This threshold, both SMEM_ROWS
     * and ONLINE_ROWS are scaled. For two rows `split` is faster. */
    GRID_ROW_LENGTH = 1 << 25,
    /* The fewest rows for which clusters pay if each of their blocks has a multiprocessor to
     * itself. The threshold also grows with the memory's bandwidth, since that makes `split`
     * faster. */
    SMEM_ROWS_16_BIT = 45,
    SMEM_ROWS = 22,
    /* The fewest rows that keep all multiprocessors busy with a block each. */
    ONLINE_ROWS = 256,
    /* The longest 16-bit row that goes to `online` regardless of the size of L2. */
    ONLINE_ROW_16_BIT = 1 << 18
};

/* Whether `online` is faster than `split`. Both read and write as much. `split` divides the work
 * evenly, and `online` gives each block one row. For softmax of 16-bit rows `online` computes less.
 * If such rows begin inside a pack, the two are equally fast, and above ONLINE_ROW_16_BIT `online`
 * is slower (bfloat16 1023x262145). For other rows, the second read of `online` comes from L2 if
 * the rows in flight are not much larger than L2. */
static bool online_is_ahead(const gpu_row *row, int64_t row_bytes, const ons_plan *plan) {
    bool short_16_bit =
        !has_one_a_row(row) && row->contiguous && row->is_16_bit && plan->N <= ONLINE_ROW_16_BIT;
    return plan->rows >= scaled(ONLINE_ROWS, row->gpu) &&
           (short_16_bit ||
            blocks_in_flight(row->gpu, PASS_THREADS) * row_bytes <= 2 * row->gpu->l2_bytes);
}

static choice choose_in_row_form(const gpu_row *row, ons_dtype dtype, const ons_plan *plan) {
    int64_t bytes = plan->N * ons_dtype_size(dtype);
    bool clusters = row->gpu->cluster_blocks >= 2, is_16_bit = ons_dtype_size(dtype) == 2;
    int block_bytes = is_16_bit ? BLOCK_ROW_BYTES_16_BIT : BLOCK_ROW_BYTES;
    double bandwidth = row->gpu->bandwidth ? row->gpu->bandwidth / BANDWIDTH_OF_H200 : 1;
    double smem_rows =
        (double)scaled(is_16_bit ? SMEM_ROWS_16_BIT : SMEM_ROWS, row->gpu) * bandwidth;
    int few = row->chunks > WARP * WARP_CHUNKS ? BLOCK_LONGER_ROWS_A_MULTIPROCESSOR
                                               : BLOCK_ROWS_A_MULTIPROCESSOR;
    bool few_rows = plan->rows <= few * row->gpu->multiprocessors;
    bool few_long_rows = clusters && bytes > CLUSTER_ROW_BYTES && bytes <= block_bytes &&
                         CLUSTER_BLOCKS_A_ROW * plan->rows <= row->gpu->multiprocessors;
    if (few_rows && 2 * row->chunks > WARP * WARP_CHUNKS &&
        fits(ONS_METHOD_fused_warp, row, plan) && fits(ONS_METHOD_fused_block, row, plan))
        return (choice){
            ONS_METHOD_fused_block,
            "a warp could hold a row, but there are few rows: several warps finish a row sooner",
            RESULTS
            "float32 1x1024: fused_block 0.67, fused_warp 0.62; bfloat16 64x1024: fused_block "
            "0.71, fused_warp 0.71"};
    if (fits(ONS_METHOD_fused_warp, row, plan))
        return (choice){
            ONS_METHOD_fused_warp, "the row fits the registers of a warp: one read, no barrier",
            RESULTS
            "float32 1048576x256: fused_warp 1.00, fused_block 0.80; float32 262144x1024: "
            "fused_warp 1.00, fused_block 1.01; bfloat16 4096x1024: fused_warp 0.95, fused_block "
            "0.78"};
    if (few_long_rows && fits(ONS_METHOD_cluster, row, plan))
        return (choice){
            ONS_METHOD_cluster,
            "few rows that a block could hold: several blocks finish a row sooner than one block",
            RESULTS
            "float32 8x16384: cluster 0.65, fused_block 0.44; bfloat16 8x16384: cluster 0.70, "
            "fused_block 0.53"};
    if ((!clusters || bytes <= block_bytes) && fits(ONS_METHOD_fused_block, row, plan))
        return (choice){
            ONS_METHOD_fused_block, "the row fits the registers of a block: one read",
            RESULTS
            "float32 16384x16384: fused_block 1.00, cluster 1.00; bfloat16 32768x8192: fused_block "
            "1.02, cluster 1.01; bfloat16 65520x4097: fused_block 0.98, cluster 0.45"};
    const ons_plan clustered = with_method(ONS_METHOD_cluster, row, plan);
    if (clustered.method == ONS_METHOD_cluster && clustered.family != ONS_FAMILY_cluster_smem)
        return (choice){
            ONS_METHOD_cluster, "the row fits the registers of a cluster: one read",
            RESULTS
            "float32 8192x32768: cluster 1.00, fused_block 1.00; bfloat16 8192x32768: cluster "
            "1.01, fused_block 0.93; float32 1024x262144: cluster 0.93, online 0.64"};
    if ((double)plan->rows >= smem_rows && clustered.method == ONS_METHOD_cluster)
        return (choice){
            ONS_METHOD_cluster,
            "the row fits the registers and shared memory of a cluster: one read",
            RESULTS
            "float32 512x524288: cluster 0.88, split 0.66; float32 256x1048576: cluster 0.77, "
            "split 0.66; bfloat16 512x524288: cluster 0.79, online 0.58"};
    const ons_plan in_grid = with_method(ONS_METHOD_grid, row, plan);
    if (plan->rows == 1 && plan->N <= scaled(GRID_ROW_LENGTH, row->gpu) &&
        in_grid.method == ONS_METHOD_grid && in_grid.loader == ONS_CONTIGUOUS)
        return (choice){
            ONS_METHOD_grid, "one row, too long to be held elsewhere: the whole GPU takes it",
            RESULTS
            "float32 1x16777216: grid 0.58, split 0.53; bfloat16 1x16777216: grid 0.49, split "
            "0.46"};
    if (online_is_ahead(row, bytes, plan))
        return (choice){
            ONS_METHOD_online, "rows too long to be held, and enough of them for a block each",
            RESULTS
            "bfloat16 1024x262144: online 0.63, split 0.55; bfloat16 4096x65536: online 0.67, "
            "split 0.55; float32 5341x50257: online 0.65, split 0.62; float32 1024x262144: split "
            "0.66, online 0.64"};
    return (choice){
        ONS_METHOD_split, "the rows are too long to be held on the chip: blocks share each row",
        RESULTS
        "float32 64x4194304: split 0.65, online 0.45; float32 1x268435456: split 0.64, grid "
        "0.63"};
}

static choice choose_in_column_form(const gpu_row *row, ons_dtype dtype, const ons_plan *plan) {
    int64_t strips = ceil_div(plan->rows, row->threads_a_lane);
    bool is_16_bit = row->packed && ons_dtype_size(dtype) == 2 && row->gpu->cluster_blocks_any >= 2;
    if (fits(ONS_METHOD_fused_warp, row, plan))
        return (choice){ONS_METHOD_fused_warp,
                        "a row fits the registers of a lane: one read, no barrier", NULL};
    if (!(is_16_bit && plan->N > BLOCK_COLUMN_LENGTH_16_BIT) &&
        fits(ONS_METHOD_fused_block, row, plan))
        return (choice){ONS_METHOD_fused_block,
                        "rows side by side fit the registers of a block: one read", NULL};
    if (fits(ONS_METHOD_cluster, row, plan))
        return (choice){ONS_METHOD_cluster, "32 rows fit the registers of a cluster: one read",
                        RESULTS "float32 4096x4096 axis 0: cluster 0.83, online 0.55"};
    /* `online` takes packs of columns, and `split` does not. Otherwise `split` is faster. */
    if (row->packed && strips >= ceil_div(row->gpu->multiprocessors, 2))
        return (choice){ONS_METHOD_online,
                        "rows too long to be held, and enough of them for blocks of 32", NULL};
    return (choice){ONS_METHOD_split,
                    "rows too long to be held on the chip: blocks share each 32 rows", NULL};
}

/* Nothing is kept of a row, so reading it tile by tile is enough. */
static choice choose_for_values(const gpu_row *row, const ons_plan *plan) {
    const int64_t blocks = ceil_div(plan->rows, row->threads_a_lane);
    /* So many threads read at the speed of the memory: half of the threads that fit, or an eighth
     * if a thread reads many tiles of a column. */
    const bool many_tiles = plan->form == ONS_COLUMN_FORM && row->chunk == CHUNK_OF_FLOATS;
    const int64_t enough = (int64_t)row->gpu->threads_a_multiprocessor / (many_tiles ? 8 : 2) *
                           row->gpu->multiprocessors;
    if (fits(ONS_METHOD_fused_warp, row, plan))
        return (choice){ONS_METHOD_fused_warp,
                        plan->form == ONS_ROW_FORM
                            ? "a warp reads the row at once: no barrier"
                            : "a row fits the registers of a few lanes: no barrier",
                        NULL};
    const ons_plan online = with_method(ONS_METHOD_online, row, plan);
    if (row->beside && online.loader != ONS_PACKED && fits(ONS_METHOD_fused_block, row, plan))
        return (choice){ONS_METHOD_fused_block,
                        "rows side by side, not in whole packs: a block reads 32 rows at once",
                        NULL};
    if (blocks * online.threads >= enough)
        return (choice){ONS_METHOD_online, "one read, tile by tile", NULL};
    if (row->chunks > VALUE_BLOCK_CHUNKS &&
        with_method(ONS_METHOD_cluster, row, plan).family == ONS_FAMILY_cluster_few_rows)
        return (choice){ONS_METHOD_cluster, "few rows: the blocks of a cluster share each one",
                        NULL};
    if (fits(ONS_METHOD_fused_block, row, plan))
        return (choice){ONS_METHOD_fused_block, "few rows: a block reads a whole row at once",
                        NULL};
    return (choice){ONS_METHOD_split, "few long rows: blocks share each one", NULL};
}

/* Rows that are held. The loss of other rows is found before the gradient. */
static choice choose_for_losses(const gpu_row *row, ons_dtype dtype, const ons_plan *plan) {
    const int64_t bytes = plan->N * ons_dtype_size(dtype);
    const int block_bytes = ons_dtype_size(dtype) == 2 ? BLOCK_ROW_BYTES_16_BIT : BLOCK_ROW_BYTES;
    if (fits(ONS_METHOD_fused_warp, row, plan))
        return (choice){ONS_METHOD_fused_warp,
                        "the row fits the registers of a warp: one read, no barrier", NULL};
    if ((row->gpu->cluster_blocks < 2 || bytes <= block_bytes) &&
        fits(ONS_METHOD_fused_block, row, plan))
        return (choice){ONS_METHOD_fused_block, "the row fits the registers of a block: one read",
                        NULL};
    return (choice){ONS_METHOD_cluster, "the row fits the registers of a cluster: one read", NULL};
}

static choice choose_for_gradients(const gpu_row *row, const ons_plan *plan) {
    if (fits(ONS_METHOD_fused_warp, row, plan))
        return (choice){ONS_METHOD_fused_warp,
                        plan->form == ONS_ROW_FORM
                            ? "both rows fit the registers of a warp: one read, no barrier"
                            : "both rows fit the registers of a lane: one read, no barrier",
                        NULL};
    if (fits(ONS_METHOD_fused_block, row, plan))
        return (choice){ONS_METHOD_fused_block, "both rows fit the registers of a block: one read",
                        NULL};
    if (fits(ONS_METHOD_cluster, row, plan))
        return (choice){ONS_METHOD_cluster, "both rows fit the registers of a cluster: one read",
                        NULL};
    return (choice){ONS_METHOD_split, "rows too long to be held: blocks share each one", NULL};
}

/* Rows without gaps are held, if one of these can hold them. */
static choice choose_for_divergences(const gpu_row *row, const ons_plan *plan) {
    if (row->contiguous && row->chunk == 4 && plan->N > 0 && !plan->invariant) {
        if (row->operation == ONS_OPERATION_js_divergence)
            return (choice){ONS_METHOD_cluster,
                            "both rows fit the shared memory of a cluster, or a part of them does",
                            NULL};
        const choice held = choose_for_gradients(row, plan);
        if (held.method != ONS_METHOD_split) return held;
    }
    return (choice){ONS_METHOD_split, "a block reads both rows several times", NULL};
}

/* One choice for any number of rows of any kind. It is the choice of `auto` for many general rows,
 * since general_rows have the fewest kernels. If the result is one value a row, it is the choice
 * for a single row, since `online` adds up unaligned 16-bit rows in an order of their own. */
static choice choose_for_all(const gpu_row *row, ons_dtype dtype, const ons_plan *plan) {
    enum { MANY_ROWS = 1 << 20 };
    gpu_row any = *row;
    ons_plan of_any = *plan;
    any.is_16_bit = any.widened = any.contiguous = any.masked = any.unaligned = any.staged = false;
    of_any.all_aligned = false;
    of_any.rows = has_one_a_row(row) ? 1 : MANY_ROWS;
    return row->gradient        ? choose_for_gradients(&any, &of_any)
           : has_one_a_row(row) ? choose_for_values(&any, &of_any)
                                : choose_in_row_form(&any, dtype, &of_any);
}

/* Whether x and y have one type, or x has 16 bits and y is float32. The arithmetic must be the one
 * that these types ask for. */
static bool has_types_of_rows(const ons_problem *problem) {
    ons_dtype x = problem->operand[ONS_X].dtype, y = problem->operand[ONS_Y].dtype;
    return problem->compute == ONS_FLOAT16 &&
           (x == y || (ons_dtype_size(x) == 2 && y == ONS_FLOAT32));
}

/* Whether rows need no change before the operation. */
static bool is_plain(const ons_problem *problem) {
    return has_types_of_rows(problem) && !problem->operand[ONS_WHERE].data &&
           !problem->operand[ONS_SCALE].data && problem->scale_by == 1.0 &&
           problem->reduced_dims <= 1;
}

static bool has_no_gaps(const ons_problem *problem, int dim) {
    const ons_operand *x = &problem->operand[ONS_X], *y = &problem->operand[ONS_Y];
    return x->stride[dim] == ons_dtype_size(x->dtype) &&
           (ons_operations[problem->operation].one_a_row || problem->sums ||
            y->stride[dim] == ons_dtype_size(y->dtype));
}

/* Whether contiguous_rows can take the rows. */
static bool is_contiguous(const ons_problem *problem) {
    int last = problem->dims - 1;
    return is_plain(problem) && problem->dims <= 2 &&
           (problem->extent[last] == 1 || has_no_gaps(problem, last));
}

/* is_plain for an operation that takes a gradient. All three arrays must have one type. The scale
 * may be any number, because it multiplies the result. */
static bool is_plain_gradient(const ons_problem *problem) {
    const ons_dtype dtype = problem->operand[ONS_X].dtype;
    return problem->operand[ONS_Y].dtype == dtype &&
           problem->operand[ONS_GRADIENT].dtype == dtype && !problem->operand[ONS_WHERE].data &&
           !problem->operand[ONS_SCALE].data && problem->reduced_dims <= 1;
}

/* Whether contiguous_gradients can take the rows. */
static bool is_contiguous_gradient(const ons_problem *problem) {
    const ons_operand *gradient = &problem->operand[ONS_GRADIENT];
    int inner = problem->dims - 1;
    return is_plain_gradient(problem) && problem->dims <= 2 &&
           (problem->extent[inner] == 1 ||
            (has_no_gaps(problem, inner) &&
             gradient->stride[inner] == ons_dtype_size(gradient->dtype)));
}

/* Whether both rows of a divergence can be held. Its scale multiplies the inputs. */
static bool is_contiguous_divergence(const ons_problem *problem) {
    return is_contiguous_gradient(problem) && problem->scale_by == 1.0;
}

/* Whether masked_rows can take the rows and their results. */
static bool is_masked(const ons_problem *problem) {
    const ons_operand *y = &problem->operand[ONS_Y];
    const int inner = problem->dims - 1;
    return has_types_of_rows(problem) && has_masked_rows(problem) &&
           (problem->extent[inner] == 1 || y->stride[inner] == ons_dtype_size(y->dtype));
}

/* Whether every row begins and ends with a pack, in all arrays that have its shape. A pack has as
 * many elements as 16 bytes of the arithmetic's type. */
static bool are_all_aligned(const ons_problem *problem, const ons_plan *plan) {
    const ons_operation_info *info = &ons_operations[problem->operation];
    const int64_t elements = 16 / ons_dtype_size(plan->compute);
    const bool has_role[ONS_OPERANDS] = {
        [ONS_X] = true,
        [ONS_Y] = !info->one_a_row && !info->selects && !problem->sums,
        [ONS_GRADIENT] = info->gradient};
    if (plan->N % elements != 0) return false;
    for (int role = 0; role < ONS_OPERANDS; role++) {
        const ons_operand *operand = &problem->operand[role];
        const int64_t pack = elements * ons_dtype_size(operand->dtype);
        if (!has_role[role]) continue;
        if ((uintptr_t)operand->data % (uintptr_t)pack) return false;
        for (int dim = 0; dim < problem->dims - problem->reduced_dims; dim++)
            if (operand->stride[dim] % pack) return false;
    }
    return true;
}

/* Whether rows can be staged (staged.cuh): contiguous rows of one type, one after the other, that
 * begin at the same place in a pack in x and in y. */
static bool can_be_staged(const ons_problem *problem, const ons_plan *plan) {
    const ons_operand *x = &problem->operand[ONS_X], *y = &problem->operand[ONS_Y];
    const int64_t size = ons_dtype_size(x->dtype), N = plan->N;
    return is_contiguous(problem) && problem->dims == 2 && x->dtype == y->dtype &&
           size <= ons_dtype_size(ONS_FLOAT32) && x->stride[0] == N * size &&
           (ons_operations[problem->operation].one_a_row ||
            (((uintptr_t)x->data - (uintptr_t)y->data) % 16 == 0 && y->stride[0] == N * size));
}

/* The same for a row and its gradient: all three begin at the same place in a pack. */
static bool can_be_staged_twice(const ons_problem *problem, const ons_plan *plan) {
    const ons_role roles[] = {ONS_X, ONS_Y, ONS_GRADIENT};
    int64_t size = ons_dtype_size(problem->operand[ONS_X].dtype);
    uintptr_t x = (uintptr_t)problem->operand[ONS_X].data;
    if (!is_contiguous_gradient(problem) || problem->dims != 2 || size > 4) return false;
    for (int i = 0; i < 3; i++) {
        const ons_operand *operand = &problem->operand[roles[i]];
        if ((x - (uintptr_t)operand->data) % 16 || operand->stride[0] != plan->N * size)
            return false;
    }
    return true;
}

/* Whether packed_columns can take the columns, in the column form. */
static bool is_beside(const ons_problem *problem) {
    const bool has_gradient = ons_operations[problem->operation].gradient;
    const ons_operand *gradient = &problem->operand[ONS_GRADIENT];
    const int inner = problem->dims - 2;
    return (has_gradient ? is_plain_gradient(problem) : is_plain(problem)) &&
           problem->operand[ONS_X].dtype != ONS_FLOAT64 && problem->dims <= 3 &&
           has_no_gaps(problem, inner) &&
           (!has_gradient || gradient->stride[inner] == ons_dtype_size(gradient->dtype));
}

/* Whether all packs of such columns are whole, and lie at multiples of their size. A pack has as
 * many columns as a chunk has elements. If the result is one value a row, only x has packs. */
static bool has_whole_packs(const ons_problem *problem) {
    const ons_role roles[] = {ONS_X, ONS_Y, ONS_GRADIENT};
    const int inner = problem->dims - 2, pack = 4;
    bool whole = problem->extent[inner] % pack == 0;
    const ons_operation_info *info = &ons_operations[problem->operation];
    for (int i = 0; i < (info->one_a_row ? 1 : 2 + info->gradient); i++) {
        const ons_operand *operand = &problem->operand[roles[i]];
        const int64_t size = pack * ons_dtype_size(operand->dtype);
        whole = whole && (uintptr_t)operand->data % (uintptr_t)size == 0;
        for (int dim = 0; dim < problem->dims; dim++)
            whole = whole && (dim == inner || operand->stride[dim] % size == 0);
    }
    return whole;
}

/* A gradient's column that a lane does not hold has the row form in fused_warp. */
static bool has_row_form_alone(const ons_plan *plan, bool gradient, bool loss) {
    const ons_method method = plan->method;
    const bool is_long = plan->N * ons_dtype_size(plan->compute) > WARP_CHUNKS * 16;
    return loss || method == ONS_METHOD_online_block || method == ONS_METHOD_exact ||
           (gradient && method == ONS_METHOD_fused_warp && is_long);
}

void ons_gpu_to_plan_for(const ons_problem *problem, const ons_machine *machine, ons_gpu *gpu) {
    if (machine->gpu)
        *gpu = *machine->gpu;
    else if (ons_gpu_describe(problem->gpu, gpu) != ONS_OK)
        *gpu = ons_known_gpus[0];
}

ons_status ons_plan_on_gpu(const ons_problem *problem, const ons_machine *machine, ons_plan *plan) {
    ons_gpu gpu;
    ons_gpu_to_plan_for(problem, machine, &gpu);
    if (plan->invariant) /* rows of every kind fit the same clusters */
        gpu.cluster_blocks = gpu.cluster_blocks_any =
            (int)min_of(gpu.cluster_blocks, gpu.cluster_blocks_any);
    plan->copy_speed = COPY_SHARE * gpu.bandwidth;
    plan->starts_early = gpu.early_launch;
    plan->all_aligned = are_all_aligned(problem, plan);
    if (ons_operations[problem->operation].selects) return ons_topk_on_gpu(problem, &gpu, plan);
    int inner = problem->dims - 1, outer = problem->dims - problem->reduced_dims;
    const bool gradient = ons_operations[problem->operation].gradient;
    const bool packed_states = problem->sums && !gradient;
    const bool given = problem->operand[ONS_STATISTIC].data;
    /* the column form has its own order of sums; packed states have none */
    const bool in_any_form = !plan->invariant || given || packed_states;
    bool columns =
        in_any_form &&
        !has_row_form_alone(plan, gradient, ons_operations[problem->operation].loss) &&
        problem->reduced_dims == 1 && outer > 0 && plan->N > 1 &&
        problem->operand[ONS_X].stride[inner] != ons_dtype_size(problem->operand[ONS_X].dtype) &&
        llabs(problem->operand[ONS_X].stride[outer - 1]) <
            llabs(problem->operand[ONS_X].stride[inner]);
    plan->form = columns ? ONS_COLUMN_FORM : ONS_ROW_FORM;
    int chunk = 16 / (int)ons_dtype_size(plan->compute);
    const bool divergence = ons_is_divergence(problem->operation);
    bool contiguous = !columns && (divergence ? is_contiguous_divergence(problem)
                                   : gradient ? is_contiguous_gradient(problem)
                                              : is_contiguous(problem));
    bool masked = !columns && !gradient && is_masked(problem);
    const bool beside = columns && !divergence && is_beside(problem);
    bool is_16_bit = (contiguous || masked) && ons_dtype_size(problem->operand[ONS_X].dtype) == 2;
    gpu_row row = {
        .chunks = ceil_div(plan->N, chunk),
        .chunk = chunk,
        .element_bytes = (int)ons_dtype_size(problem->operand[ONS_X].dtype),
        .threads_a_lane = columns ? WARP : 1,
        .is_16_bit = is_16_bit,
        .widened =
            (is_16_bit || beside) && problem->operand[ONS_X].dtype != problem->operand[ONS_Y].dtype,
        .whole_packs = plan->N % chunk == 0,
        .contiguous = contiguous,
        .masked = masked,
        .unaligned = contiguous && !plan->all_aligned &&
                     ons_dtype_size(problem->operand[ONS_X].dtype) <= ons_dtype_size(ONS_FLOAT32),
        .packed = beside && has_whole_packs(problem),
        .beside = beside,
        .slice = beside ? problem->extent[problem->dims - 2] : 0,
        .gradient = gradient,
        .given = given,
        .staged = !columns && !divergence &&
                  (gradient ? can_be_staged_twice : can_be_staged)(problem, plan),
        .part_bytes =
            packed_states ? (int)sizeof(ons_packed) : 2 * (int)ons_dtype_size(plan->compute),
        .operation = problem->operation,
        .gpu = &gpu};
    const bool loss = ons_operations[problem->operation].loss;
    row.held_loss = loss && !gradient && !row.given && !has_one_a_row(&row);
    row.divergence = divergence;
    /* other rows are not held, nor are all layouts of a row */
    if (row.held_loss && (!contiguous || row.chunk != 4 || plan->invariant)) return ONS_E_OPERAND;
    if (row.chunks == 0) row.chunks = 1;

    if (plan->method == ONS_METHOD_AUTO) {
        ons_dtype dtype = problem->operand[ONS_X].dtype;
        choice chosen = divergence            ? choose_for_divergences(&row, plan)
                        : row.held_loss       ? choose_for_losses(&row, dtype, plan)
                        : plan->invariant     ? choose_for_all(&row, dtype, plan)
                        : gradient            ? choose_for_gradients(&row, plan)
                        : has_one_a_row(&row) ? choose_for_values(&row, plan)
                        : columns             ? choose_in_column_form(&row, dtype, plan)
                                              : choose_in_row_form(&row, dtype, plan);
        plan->method = chosen.method;
        plan->reason = chosen.reason;
        plan->measured = chosen.measured;
    }
    /* depends on the length alone, so that 16-bit rows give the float32 result, rounded */
    if (plan->method == ONS_METHOD_fused)
        plan->method = row.chunks <= WARP * WARP_CHUNKS && fits(ONS_METHOD_fused_warp, &row, plan)
                           ? ONS_METHOD_fused_warp
                           : ONS_METHOD_fused_block;
    ons_status status = ons_shape_on_gpu(&row, plan);
    if (packed_states) plan->family = ONS_FAMILY_digits;
    /* exact holds rows, except the rows of its own family, and keeps exponentials in double */
    const bool exact_held =
        plan->family == ONS_FAMILY_exact_held || plan->family == ONS_FAMILY_exact_in_cluster;
    if (ons_methods[plan->method].on_chip != ONS_NOTHING_ON_CHIP || exact_held)
        plan->on_chip_bytes = min_of(plan->tile, row.chunks * chunk) *
                              ons_dtype_size(exact_held ? ONS_FLOAT64 : plan->compute);
    return status;
}
