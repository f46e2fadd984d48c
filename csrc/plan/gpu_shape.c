/* plan/gpu_shape.c - the shape of a method on a GPU. The lanes, chunks and blocks of a row depend
 * only on N, the types and the GPU, so a row's bits do too. The number of rows in a block may
 * depend on the number of rows. */
#include "gpu.h"

/* The family of kernels with a method's name. */
static ons_family own_family(ons_method method) {
#define ONS_FAMILY_EVERYWHERE(name) ONS_FAMILY_##name
#define ONS_FAMILY_CUDA_ONLY(name) ONS_FAMILY_##name
#define ONS_FAMILY_CPU_ONLY(name) ONS_FAMILIES
#define ONS_FAMILY_ALIAS_ON_CUDA(name) ONS_FAMILIES
    static const ons_family families[] = {
#define ONS_METHOD(name, devices, reads, writes, on_chip, summary) ONS_FAMILY_##devices(name),
#include "../api/methods.def"
#undef ONS_METHOD
    };
    return families[method];
}

/* A row as a family sees it. Some families have kernels only for some kinds of rows, and treat
 * other rows as general rows. */
static gpu_row seen_by(ons_family family, const gpu_row *row) {
    static const ons_kinds_of_rows kinds[][2] = {
#define ONS_FAMILY(name, rows, aligned_rows, values, aligned_values) \
    {ONS_##rows##_ROWS, ONS_##values##_ROWS},
#include "../cuda/kernels.def"
#undef ONS_FAMILY
    };
    ons_kinds_of_rows kind = kinds[family][has_one_a_row(row)];
    gpu_row seen = *row;
    if (kind == ONS_EVERY_ROWS) return seen;
    seen.contiguous &= kind == ONS_CONTIGUOUS_ROWS || kind == ONS_PACKED_ROWS;
    seen.is_16_bit &= seen.contiguous;
    seen.unaligned &= seen.contiguous;
    seen.packed &= kind == ONS_PACKED_ROWS;
    seen.beside = seen.masked = false;
    seen.staged &= seen.contiguous;
    return seen;
}

int ons_threads_of_warps(const gpu_row *row, int64_t together, int limit) {
    int64_t share = ceil_div(together, row->gpu->multiprocessors);
    return (int)max_of(WARP, min_of(limit, power_of_two_from(share)));
}

enum { ROWS_FOR_BLOCKS_OF_A_WARP = 1 << 16 }; /* scaled */

/* Blocks that a multiprocessor begins in a second, with some room: an H200 begins 0.8 blocks a
 * nanosecond. */
static const double BLOCKS_A_SECOND = 5e6;

/* Whether blocks of so many rows end faster than the GPU begins blocks. */
static bool ends_too_soon(const gpu_row *row, const ons_plan *plan, int64_t rows) {
    const int64_t arrays = row->gradient ? 3 : has_one_a_row(row) ? 1 : 2;
    const double bytes = (double)(rows * plan->N * row->element_bytes * arrays),
                 blocks = BLOCKS_A_SECOND * row->gpu->multiprocessors,
                 bandwidth =
                     COPY_SHARE * (row->gpu->bandwidth ? row->gpu->bandwidth : BANDWIDTH_OF_H200);
    return bandwidth > blocks * bytes;
}

/* The most threads of a block in fused_warp, if a row fills a warp. Small blocks are better: few
 * warps then wait for the last warp of their block. 16-bit rows have two warps, and other rows have
 * one. They have two if blocks of one warp would end too soon, and WARP_ROW_THREADS if they are
 * few. */
static int limit_of_warps(const gpu_row *row, const ons_plan *plan) {
    if (!row->is_16_bit && plan->rows < scaled(ROWS_FOR_BLOCKS_OF_A_WARP, row->gpu))
        return WARP_ROW_THREADS;
    return row->is_16_bit || ends_too_soon(row, plan, 1) ? 2 * WARP : WARP;
}

/* The most threads of a block in fused_warp, if `lanes` lanes have a row: more than usual if a
 * block would end too soon. */
static int limit_of_threads(const gpu_row *row, const ons_plan *plan, int64_t lanes) {
    int threads = WARP_ROW_THREADS;
    while (threads < MOST_WARP_ROW_THREADS && ends_too_soon(row, plan, threads / lanes))
        threads *= 2;
    return threads;
}

/* The rows that plan->lanes lanes take one after the other, if rows are staged. The launch of a
 * block costs as much as some rows. Few rows are taken one by one, so that they fill the GPU. */
static int64_t staged_rows_of_lanes(const gpu_row *row, const ons_plan *plan) {
    enum { ELEMENTS = 16, ELEMENTS_OF_MORE = 48, MOST_ROWS = 16 };
    const bool more = row->is_16_bit || has_one_a_row(row);
    const int64_t threads = (int64_t)row->gpu->threads_a_multiprocessor * row->gpu->multiprocessors;
    const int64_t rows =
        min_of((more ? ELEMENTS_OF_MORE : ELEMENTS) * plan->lanes / max_of(plan->N, 1),
               plan->rows * plan->lanes / threads);
    return max_of(1, min_of(rows, MOST_ROWS));
}

/* The most chunks of a lane, if a row has a warp to itself. */
static int warp_chunks(const gpu_row *row) {
    return row->is_16_bit ? WARP_CHUNKS_16_BIT : WARP_CHUNKS;
}

/* The entry `rows` of the shapes in kernels.def that serve this row. */
static ons_warp_rows shapes_of(const gpu_row *row) {
    return row->is_16_bit ? ONS_16_BIT_ROWS : ONS_ALL_ROWS;
}

/* The lanes of a row and the chunks of each: the first shape that holds it. */
static void shape_warp(const gpu_row *row, const ons_plan *plan, int64_t *lanes, int64_t *chunks) {
    static const struct {
        bool one_a_row;
        ons_warp_rows rows;
        int lanes, chunks;
    } shapes[] = {
#define ONS_WARP_SHAPE(operations, rows, lanes, chunks) \
    {ONS_OF_##operations, ONS_##rows##_ROWS, lanes, chunks},
#include "../cuda/kernels.def"
#undef ONS_WARP_SHAPE
    };
    const int64_t fills =
        (int64_t)row->gpu->threads_a_multiprocessor / 4 * row->gpu->multiprocessors;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (shapes[i].rows != shapes_of(row) || shapes[i].one_a_row != has_one_a_row(row)) continue;
        /* a lane would write float32 in parts of sectors, and other lanes would wait */
        const bool few_lanes = shapes[i].lanes <= 2 && row->chunks > 2 * shapes[i].lanes;
        if (row->widened && few_lanes) continue;
        /* few rows with more chunks a lane would leave a part of the GPU empty */
        if (shapes[i].chunks > WARP_CHUNKS_16_BIT && plan->rows * shapes[i].lanes < fills) continue;
        *lanes = shapes[i].lanes;
        *chunks = shapes[i].chunks;
        if (*lanes * *chunks >= row->chunks) return;
    }
}

/* Whether many rows that all begin and end with a pack gain if they are staged. Rows of a lane
 * gain, since a lane then takes several. Longer rows gain if their shape would leave many of the
 * lanes' chunks empty, but not if they give one value. Rows of a multiple of 32 bytes meet in the
 * same banks of shared memory. Of them only longer 16-bit rows gain. log_softmax reads its elements
 * twice and gains less. */
static bool gains_staged(const gpu_row *row, const ons_plan *plan) {
    enum {
        MANY_ELEMENTS = 1 << 22, /* scaled */
        BANKS_MEET = 32,
        PACK = 16,
        LONGEST_OF_LANE = 24,
        LONGER_BEGIN = 33,
        LONGEST = 172 /* softmax of 16-bit rows has no such limit */
    };
    const bool is_16_bit = row->is_16_bit;
    const bool keeps_elements = ons_operations[row->operation].keeps == ONS_KEEP_ELEMENTS;
    const int64_t N = plan->N, bytes = N * (is_16_bit ? 2 : 4);
    const bool meet = bytes % BANKS_MEET == 0;
    if (plan->rows * N < scaled(MANY_ELEMENTS, row->gpu)) return false;
    if (N <= LONGEST_OF_LANE)
        return !meet && (!(is_16_bit && keeps_elements) || bytes <= PACK || bytes % PACK != 0);
    if (has_one_a_row(row) || N < LONGER_BEGIN) return false;
    int64_t lanes, chunks;
    shape_warp(row, plan, &lanes, &chunks);
    const double filled = (double)row->chunks / (double)(lanes * chunks);
    if ((meet || N > LONGEST) && !is_16_bit) return false;
    return filled < (meet ? 0.84 : 0.965) && (N <= LONGEST || !keeps_elements);
}

/* With fewer rows than this, staging makes two kinds of rows slower: long rows, and rows whose
 * elements the operation needs again. */
enum { MIN_STAGED_ROWS = 8192 };

/* Whether a block's rows are staged in shared memory. If they are, `lanes` becomes the number of
 * lanes of a row. */
static bool shape_staged(const gpu_row *row, const ons_plan *plan, int64_t *lanes) {
    static const struct {
        ons_warp_rows rows;
        int lanes, max_chunks;
    } shapes[] = {
#define ONS_STAGED_SHAPES(rows, lanes, least, most) {ONS_##rows##_ROWS, lanes, most},
#include "../cuda/kernels.def"
#undef ONS_STAGED_SHAPES
    };
    const bool many = plan->rows >= MIN_STAGED_ROWS;
    const bool keeps_elements = ons_operations[row->operation].keeps == ONS_KEEP_ELEMENTS;
    if (!row->staged || (!many && (keeps_elements || row->chunks > WARP * 2)) ||
        (plan->all_aligned && !gains_staged(row, plan)))
        return false;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        *lanes = shapes[i].lanes;
        if (shapes[i].rows == shapes_of(row) && *lanes * shapes[i].max_chunks >= row->chunks)
            return true;
    }
    return false;
}

/* Chunks of a lane that holds a column: 1, 2, 4, 6 or 8. */
static int64_t chunks_of_column(const gpu_row *row) {
    return row->chunks == 5 || row->chunks == 6 ? 6 : power_of_two_from(row->chunks);
}

static void take_warp(const gpu_row *row, ons_plan *plan) {
    bool in_rows = plan->form == ONS_ROW_FORM;
    int64_t lanes = 1, chunks = chunks_of_column(row);
    const bool staged = in_rows && shape_staged(row, plan, &lanes);
    if (staged)
        chunks = ceil_div(row->chunks, lanes);
    else if (in_rows)
        shape_warp(row, plan, &lanes, &chunks);
    bool full = !staged && lanes * chunks >= WARP * WARP_CHUNKS;
    int limit = staged ? WARP_ROW_THREADS
                : full ? limit_of_warps(row, plan)
                       : limit_of_threads(row, plan, lanes);
    plan->threads = ons_threads_of_warps(row, plan->rows * lanes, limit);
    if (staged) plan->family = ONS_FAMILY_fused_warp_staged;
    plan->lanes = (int)lanes;
    plan->width = plan->threads / lanes;
    if (staged && lanes == 1) plan->width *= staged_rows_of_lanes(row, plan);
    plan->elements_a_thread = (int)(chunks * row->chunk);
    plan->longest_row = (in_rows ? WARP * warp_chunks(row) : WARP_CHUNKS) * row->chunk;
}

/* Chunks of a row, rounded up to whole warps with `chunks` chunks a thread. */
static int64_t chunks_with(int chunks, const gpu_row *row) {
    return ceil_div(row->chunks, chunks * WARP) * chunks * WARP;
}

/* The cost of an unaligned 16-bit row with `chunks` chunks a thread: the chunks of its warps, and
 * more if warps wait for each other or a part of the multiprocessor stays empty. */
static double cost_unaligned(int chunks, const gpu_row *row) {
    int64_t warps = ceil_div(row->chunks, chunks * WARP);
    int64_t room = chunks > BLOCK_CHUNKS ? UNALIGNED_WARPS : BLOCK_THREADS / WARP;
    double waits = (double)warps / 64, empty = (double)(room % warps) / (double)room;
    return (double)(warps * chunks) * (1 + waits) * (1 + empty / 2);
}

/* The chunks of a thread of an unaligned 16-bit row. The code for more chunks than BLOCK_CHUNKS
 * fills the instruction caches. With two warps it is not taken, because two warps differ too much
 * to share the code in these caches. */
static int chunks_unaligned(const gpu_row *row) {
    if (row->chunks > UNALIGNED_ROW_CHUNKS) return BLOCK_CHUNKS;
    int best = BLOCK_CHUNKS;
    for (int chunks = BLOCK_CHUNKS + MEDIUM_CHUNKS; chunks <= UNALIGNED_CHUNKS_16_BIT;
         chunks += MEDIUM_CHUNKS)
        if (ceil_div(row->chunks, chunks * WARP) != 2 &&
            cost_unaligned(chunks, row) < cost_unaligned(best, row))
            best = chunks;
    return best;
}

/* The chunks of a thread in fused_block. Short rows have fewer, so that their blocks end soon. */
static int block_chunks(const gpu_row *row) {
    if (has_one_a_row(row)) return BLOCK_CHUNKS;
    if (row->chunks <= WARP * WARP_CHUNKS) return SHORT_CHUNKS;
    if (row->unaligned && row->is_16_bit) return chunks_unaligned(row);
    if (row->unaligned && row->chunks <= WARP * UNALIGNED_CHUNKS) return UNALIGNED_CHUNKS;
    if (row->chunks > MEDIUM_WARPS * WARP * MEDIUM_CHUNKS) return BLOCK_CHUNKS;
    if (!row->is_16_bit) return MEDIUM_CHUNKS;
    int64_t few = chunks_with(MEDIUM_CHUNKS, row), more = chunks_with(BLOCK_CHUNKS, row);
    return 5 * few <= 4 * more ? MEDIUM_CHUNKS : BLOCK_CHUNKS;
}

static void take_block(const gpu_row *row, ons_plan *plan) {
    bool fused = plan->method == ONS_METHOD_fused_block;
    int64_t max_lanes = (row->contiguous ? BLOCK_THREADS : ANY_BLOCK_THREADS) / row->threads_a_lane;
    bool in_rows = fused && plan->form == ONS_ROW_FORM;
    if (fused && !in_rows) plan->family = ONS_FAMILY_fused_block_of_columns;
    int chunks = in_rows ? block_chunks(row) : BLOCK_CHUNKS;
    int64_t threads = ceil_div(row->chunks, chunks) * row->threads_a_lane;
    plan->threads = (int)ceil_div(threads, WARP) * WARP;
    plan->elements_a_thread = chunks * row->chunk;
    plan->blocks_a_row = 1;
    plan->longest_row = max_lanes * BLOCK_CHUNKS * row->chunk;
}

static void take_passes(const gpu_row *row, ons_plan *plan) {
    const bool value = plan->method == ONS_METHOD_online && has_one_a_row(row) &&
                       row->chunk == CHUNK_OF_FLOATS,
               in_rows = plan->form == ONS_ROW_FORM;
    const int chunks = value && in_rows ? VALUE_CHUNKS : TILE_CHUNKS;
    /* The row is read once. If a thread has more elements, there is less to merge. In the column
     * form one warp takes up to twice VALUE_TILES tiles, if it then has the whole column. */
    const bool in_one_warp = !in_rows && row->chunks <= 2 * VALUE_TILES * chunks;
    const int64_t tiles = !value ? 1 : in_one_warp ? 2 * VALUE_TILES : VALUE_TILES;
    const int64_t threads = ceil_div(row->chunks, tiles * chunks) * row->threads_a_lane;
    plan->threads = (int)min_of(PASS_THREADS, ceil_div(threads, WARP) * WARP);
    plan->elements_a_thread = chunks * row->chunk;
    plan->blocks_a_row = 1;
}

/* Returns whether a cluster holds the row. Blocks of few warps finish sooner, so a cluster has as
 * many blocks as possible. */
static bool take_exact_cluster(const gpu_row *row, ons_plan *plan) {
    const int max_blocks =
        row->contiguous ? row->gpu->cluster_blocks : row->gpu->cluster_blocks_any;
    const int64_t most = (int64_t)max_blocks * EXACT_BLOCK_THREADS;
    const int chunks = row->chunks > most * EXACT_CHUNKS ? LONG_EXACT_CHUNKS : EXACT_CHUNKS;
    if (has_one_a_row(row) || max_blocks < 2 || row->chunks > most * chunks) return false;
    const int64_t warps = ceil_div(row->chunks, chunks * WARP);
    plan->family = ONS_FAMILY_exact_in_cluster;
    plan->blocks_a_row = max_of(2, min_of(max_blocks, ceil_div(warps, EXACT_WARPS)));
    plan->threads = (int)ceil_div(warps, plan->blocks_a_row) * WARP;
    plan->elements_a_thread = chunks * row->chunk;
    return true;
}

/* Some lanes of a warp, a block or a cluster hold the row, if it fits. */
static void take_exact(const gpu_row *row, ons_plan *plan) {
    static const struct {
        int lanes, chunks;
    } shapes[] = {
#define ONS_EXACT_SHAPE(lanes, chunks) {lanes, chunks},
#include "../cuda/kernels.def"
#undef ONS_EXACT_SHAPE
    };
    if (plan->family != ONS_FAMILY_exact) {
        take_passes(row, plan);
        return;
    }
    if (row->chunks > EXACT_BLOCK_THREADS * EXACT_CHUNKS) {
        if (!take_exact_cluster(row, plan)) take_passes(row, plan);
        return;
    }
    plan->family = ONS_FAMILY_exact_held;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t lanes = shapes[i].lanes;
        if (lanes * shapes[i].chunks < row->chunks) continue;
        plan->threads = ons_threads_of_warps(row, plan->rows * lanes, WARP_ROW_THREADS);
        plan->lanes = (int)lanes;
        plan->width = plan->threads / lanes;
        plan->elements_a_thread = shapes[i].chunks * row->chunk;
        return;
    }
    plan->threads = (int)ceil_div(row->chunks, EXACT_CHUNKS * WARP) * WARP;
    plan->elements_a_thread = EXACT_CHUNKS * row->chunk;
    plan->blocks_a_row = 1;
}

/* The number of parts of a row, their fewest and most chunks, and the most parts that are still
 * cheap to merge. */
enum {
    SPLIT_PARTS = 512,
    SPLIT_PART_CHUNKS = 1 << 12,
    SPLIT_LONG_PART_CHUNKS = 1 << 14,
    SPLIT_MAX_PARTS = 1 << 12
};

static void take_split(const gpu_row *row, ons_plan *plan) {
    bool in_row_form = plan->form == ONS_ROW_FORM;
    int64_t shortest = SPLIT_PART_CHUNKS / row->threads_a_lane;
    int64_t chunks = max_of(min_of(ceil_div(row->chunks, SPLIT_PARTS), SPLIT_LONG_PART_CHUNKS),
                            ceil_div(row->chunks, SPLIT_MAX_PARTS));
    chunks = ceil_div(chunks, shortest) * shortest;
    plan->threads = in_row_form ? SPLIT_THREADS : PASS_THREADS;
    plan->elements_a_thread =
        (in_row_form && row->chunk == CHUNK_OF_FLOATS ? SPLIT_CHUNKS : TILE_CHUNKS) * row->chunk;
    plan->tile = chunks * row->chunk;
    plan->blocks_a_row = ceil_div(row->chunks, chunks);
    plan->workspace_bytes =
        ceil_div(plan->rows, plan->width) * plan->width * plan->blocks_a_row * row->part_bytes;
}

/* A block for a row. If rows are so few that multiprocessors would be idle, a cluster for a row. */
static void take_logprob(const gpu_row *row, ons_plan *plan) {
    /* INVARIANT_TILES: the tiles of a warp, by `invariant`. FEW_ROWS_WARPS: the warps that few rows
     * fill on each multiprocessor. Clusters seldom find room for more warps. */
    enum { INVARIANT_TILES = 4, FEW_ROWS_WARPS = 16 };
    const bool few_registers = row->contiguous && row->is_16_bit && plan->all_aligned;
    const int64_t chunks = row->chunk == CHUNK_OF_FLOATS ? LOGPROB_CHUNKS : TILE_CHUNKS;
    const int64_t tiles = ceil_div(row->chunks, chunks * WARP);
    const int64_t most = plan->invariant ? LOGPROB_WARPS
                         : few_registers ? LOGPROB_THREADS_16_BIT / WARP
                                         : LOGPROB_THREADS / WARP;
    const int64_t room = FEW_ROWS_WARPS * row->gpu->multiprocessors;
    const int cluster = row->contiguous ? row->gpu->cluster_blocks : row->gpu->cluster_blocks_any;
    int64_t warps = min_of(LOGPROB_WARPS, power_of_two_from(ceil_div(tiles, LOGPROB_TILES)));
    if (warps > ceil_div(tiles, LOGPROB_TILES)) warps /= 2; /* blocks fill a multiprocessor */
    /* between the shapes for few rows and for many */
    warps = max_of(warps, plan->invariant ? ceil_div(tiles, INVARIANT_TILES)
                                          : min_of(tiles, room / max_of(plan->rows, 1)));
    plan->blocks_a_row = min_of(max_of(cluster, 1), ceil_div(warps, LOGPROB_WARPS));
    warps = min_of(most, ceil_div(warps, plan->blocks_a_row));
    plan->threads = (int)warps * WARP;
    plan->elements_a_thread = (int)chunks * row->chunk;
    plan->tile = ceil_div(tiles, plan->blocks_a_row) * chunks * WARP * row->chunk;
}

/* The most threads of a block in a cluster. */
static int longest_block(const gpu_row *row) {
    return row->contiguous && row->chunk == CHUNK_OF_FLOATS ? LONG_CLUSTER_THREADS
                                                            : CLUSTER_THREADS;
}

void ons_share_out(int64_t filled, int room, int max_warps, int64_t max_blocks, bool twice,
                   ons_plan *plan) {
    double best = 0;
    for (int warps = 1; warps <= max_warps; warps++) {
        int64_t blocks = max_of(2, ceil_div(filled, warps));
        if (blocks > max_blocks || (blocks > 2 && warps < MIN_CLUSTER_WARPS)) continue;
        double share = (double)filled / (double)(blocks * warps);
        double busy = room / warps * warps * share * (twice ? share : 1);
        if (busy <= best) continue;
        best = busy;
        plan->blocks_a_row = blocks;
        plan->threads = warps * WARP;
    }
}

/* The blocks of a cluster, and the warps of each. In 16-bit rows that are not whole packs, the work
 * of the warps limits the speed. Warps without elements work too, so they count double in such
 * rows. */
static void shape_cluster(const gpu_row *row, int64_t max_blocks, ons_plan *plan) {
    int64_t filled = ceil_div(row->chunks * row->threads_a_lane, CLUSTER_CHUNKS * WARP);
    bool is_16_bit = (row->contiguous || row->masked) && row->is_16_bit;
    int room = plan->form == ONS_COLUMN_FORM ? COLUMN_CLUSTER_WARPS
               : is_16_bit                   ? CLUSTER_WARPS_16_BIT
                                             : CLUSTER_WARPS;
    int max_warps = CLUSTER_THREADS / WARP;
    if (max_blocks * max_warps < filled && longest_block(row) > CLUSTER_THREADS) {
        bool some_more = !is_16_bit && max_blocks * CLUSTER_WARPS_OF_320_THREADS / 2 >= filled;
        room = some_more ? CLUSTER_WARPS_OF_320_THREADS : CLUSTER_WARPS_OF_384_THREADS;
        max_warps = room / 2;
    }
    ons_share_out(filled, room, max_warps, max_blocks, is_16_bit && !row->whole_packs, plan);
}

/* The chunks that a cluster of `blocks` holds in cluster_smem; 0: no cluster fits. */
static int64_t smem_chunks(const gpu_row *row, int blocks, const ons_plan *plan) {
    int64_t size = ons_dtype_size(plan->compute), held = MAX_SMEM_TILES;
    if ((blocks == 8 ? row->gpu->clusters_of_8 : row->gpu->clusters_of_16) == 0) return 0;
    while (ons_smem_bytes(blocks, size, held, MIN_SLOTS) > row->gpu->shared_bytes)
        if (--held < 0) return 0;
    return (int64_t)blocks * SMEM_THREADS * (CLUSTER_CHUNKS + held * SMEM_CHUNKS);
}

/* Takes the fewest blocks that hold the row, since clusters of 8 blocks find more multiprocessors
 * than clusters of 16. */
static void take_smem(const gpu_row *row, ons_plan *plan) {
    int64_t of_8 = smem_chunks(row, 8, plan), of_16 = smem_chunks(row, 16, plan);
    if (max_of(of_8, of_16) * row->chunk <= plan->longest_row) return;
    bool registers = plan->N <= plan->longest_row;
    plan->longest_row = max_of(of_8, of_16) * row->chunk;
    if (registers) return;
    plan->threads = SMEM_THREADS;
    plan->blocks_a_row = row->chunks <= of_8 ? 8 : 16;
    plan->tile = (row->chunks <= of_8 ? of_8 : of_16) * row->chunk;
    plan->family = ONS_FAMILY_cluster_smem;
    const int64_t warps = plan->blocks_a_row * (SMEM_THREADS / WARP);
    const int64_t tiles = ceil_div(row->chunks, SMEM_CHUNKS * WARP);
    const int64_t in_registers = warps * (CLUSTER_CHUNKS / SMEM_CHUNKS);
    plan->smem_tiles = (int)ceil_div(max_of(tiles - in_registers, 0), warps);
    plan->slots = MIN_SLOTS;
    while (plan->slots < MAX_SLOTS &&
           ons_smem_bytes(plan->blocks_a_row, ons_dtype_size(plan->compute), plan->smem_tiles,
                          plan->slots + 1) <= row->gpu->shared_bytes)
        plan->slots++;
    plan->clusters = min_of(
        plan->rows, plan->blocks_a_row == 8 ? row->gpu->clusters_of_8 : row->gpu->clusters_of_16);
}

/* If rows are few, each row gets as many blocks as possible, with at most one block for each
 * multiprocessor. Several warps then share the part that is one warp's part otherwise
 * (cluster_few_rows.cu). */
static void share_among_few(const gpu_row *row, int64_t max_blocks, ons_plan *plan) {
    int64_t blocks = min_of(max_blocks, row->gpu->multiprocessors / max_of(plan->rows, 1));
    if (blocks < plan->blocks_a_row) return;
    int64_t parts = ceil_div(row->chunks, CLUSTER_CHUNKS * WARP),
            of_block = ceil_div(parts, blocks);
    const int64_t at_once = blocks > 8 ? row->gpu->clusters_of_16 : row->gpu->clusters_of_8;
    const int64_t limit = CLUSTER_FEW_ROWS_THREADS / (plan->rows <= at_once ? 1 : 2);
    int64_t sharers = MAX_SHARERS;
    while (sharers > 2 && sharers * of_block * WARP > CLUSTER_FEW_ROWS_THREADS / 2) sharers /= 2;
    if (sharers * of_block * WARP > limit) return;
    plan->blocks_a_row = max_of(2, ceil_div(parts, of_block));
    plan->threads = (int)(of_block * sharers) * WARP;
    plan->elements_a_thread = (int)(CLUSTER_CHUNKS / sharers) * row->chunk;
    plan->family = ONS_FAMILY_cluster_few_rows;
    plan->loader = ONS_CONTIGUOUS; /* also for one value, unlike cluster */
}

static ons_status take_cluster(const gpu_row *row, bool contiguous, ons_plan *plan) {
    int blocks = row->contiguous ? row->gpu->cluster_blocks : row->gpu->cluster_blocks_any;
    int64_t chunks_a_block = CLUSTER_CHUNKS * longest_block(row) / row->threads_a_lane;
    plan->blocks_a_row = max_of(blocks, 1);
    plan->threads = CLUSTER_THREADS;
    plan->elements_a_thread = CLUSTER_CHUNKS * row->chunk;
    plan->longest_row = blocks * chunks_a_block * row->chunk;
    if (blocks < 2) return ONS_E_NO_CLUSTERS;
    shape_cluster(row, blocks, plan);
    if (row->contiguous && !row->held_loss) take_smem(row, plan);
    if (contiguous && plan->family != ONS_FAMILY_cluster_smem) share_among_few(row, blocks, plan);
    return ONS_OK;
}

static ons_status take_grid(const gpu_row *row, ons_plan *plan) {
    int64_t chunks_a_block = CLUSTER_CHUNKS * CLUSTER_THREADS / row->threads_a_lane;
    plan->threads = CLUSTER_THREADS;
    plan->blocks_a_row = min_of(row->gpu->multiprocessors, ceil_div(row->chunks, chunks_a_block));
    plan->elements_a_thread = CLUSTER_CHUNKS * row->chunk;
    /* twice, since one row is read while the next is written */
    plan->workspace_bytes =
        2 * plan->blocks_a_row * plan->width * 2 * ons_dtype_size(plan->compute);
    return row->gpu->cooperative ? ONS_OK : ONS_E_NO_GRID;
}

/* Columns in packs: a thread has as many rows as a chunk has elements, and a smaller part of each
 * row. The sums have the same order as without packs. */
static void take_packs(const gpu_row *row, ons_plan *plan) {
    if (plan->method == ONS_METHOD_fused_warp) {
        const int64_t most = row->gradient ? GRADIENT_PACKS_A_LANE : PACKS_A_LANE;
        const int lanes = (int)power_of_two_from(ceil_div(plan->tile, most));
        plan->threads =
            ons_threads_of_warps(row, ceil_div(plan->rows * lanes, row->chunk), WARP_ROW_THREADS);
        plan->lanes = lanes;
        plan->width = plan->threads / lanes * row->chunk;
        plan->elements_a_thread = (int)plan->tile / lanes;
    } else {
        plan->elements_a_thread /= row->chunk;
    }
}

typedef struct {
    int64_t parts; /* of a column: threads that share it */
    int64_t most;  /* columns of a block */
    bool fits;     /* it is faster than other ways */
} wide_strip;

/* The wide strip (team/wide_strip.cuh) of a block of fused_block. Only float32 gains. A warp may
 * have threads of two parts, and takes the time of both if the last part is shorter. So the parts
 * must be nearly full. With a gradient, only whole slices of full parts gain. */
static wide_strip wide_strip_of(const gpu_row *row, const ons_plan *plan) {
    const int64_t threads = row->gradient ? GRADIENT_THREADS : WIDE_STRIP_THREADS;
    wide_strip strip = {1, 0, false};
    if (plan->method != ONS_METHOD_fused_block || row->element_bytes != sizeof(float) ||
        !row->beside || row->widened || row->slice == 0 || plan->N > plan->longest_row)
        return strip;
    strip.parts = plan->threads / WARP;
    strip.most = threads / max_of(strip.parts, 2);
    const double filled = (double)plan->N / (double)plan->tile;
    strip.fits = row->gradient ? filled == 1 && row->slice <= strip.most
                               : filled >= 0.75 && min_of(row->slice, WARP) <= strip.most;
    return strip;
}

/* The columns of a wide strip: whole slices, if they are narrow and there are enough blocks. */
static void take_wide_strip(const gpu_row *row, const wide_strip *strip, ons_plan *plan) {
    enum { MOST_COLUMNS = 128, LEAST_BLOCKS = 2 /* a multiprocessor */ };
    const int64_t threads = row->gradient ? 64 : 96; /* at least, of whole slices */
    const int64_t share = plan->rows / (LEAST_BLOCKS * row->gpu->multiprocessors);
    const int64_t slices = ceil_div(threads, strip->parts * row->slice);
    const int64_t most = min_of(strip->most, row->gradient ? WARP : MOST_COLUMNS);
    if (row->slice <= strip->most && row->slice <= max_of(share, WARP))
        plan->width = min_of(slices * row->slice, strip->most);
    else
        plan->width = max_of(1, min_of(most, share) / WARP) * WARP;
    plan->threads = (int)ceil_div(strip->parts * plan->width, WARP) * WARP;
}

/* How columns arrive. `fused_warp`, `fused_block`, `cluster` and `online` take whole packs. If the
 * result is one value a row, only `fused_warp` and `online` do, and all other columns take the
 * general kernels. Otherwise softmax of more than LONGEST_BESIDE elements takes the general
 * kernels, unless a wide strip holds its columns: kernels of their own made some of them slower. */
static void take_loader_of_columns(const gpu_row *row, ons_plan *plan) {
    enum {
        STRIDED_THREADS = 256,    /* of a block, but for 16-bit gradients */
        LEAST_APART = 256,        /* columns of a slice; fewer leave lanes idle */
        LONGEST_PACKED = 1 << 30, /* packed_columns counts elements in an int */
        SECTOR = 32               /* bytes of memory that arrive together */
    };
    const wide_strip strip = wide_strip_of(row, plan);
    const bool in_warp = plan->method == ONS_METHOD_fused_warp;
    const bool held =
        in_warp || plan->method == ONS_METHOD_fused_block || plan->method == ONS_METHOD_cluster;
    const bool online = plan->method == ONS_METHOD_online && plan->N <= LONGEST_PACKED;
    const bool gains = row->gradient || strip.fits || (in_warp && plan->tile <= LONGEST_BESIDE);
    /* some warps of packs would begin inside a sector */
    const bool uneven = row->slice * row->element_bytes % SECTOR != 0;
    plan->loader = ONS_GENERAL;
    if (row->packed && (held || online) && !(strip.fits && uneven))
        plan->loader = ONS_PACKED;
    else if (row->beside && in_warp && gains && row->slice >= LEAST_APART && !row->gradient)
        plan->loader = ONS_PACKED_APART;
    else if (row->beside && held && gains && !row->widened)
        plan->loader = ONS_STRIDED;
    if (plan->loader == ONS_PACKED || plan->loader == ONS_PACKED_APART) take_packs(row, plan);
    if (plan->loader == ONS_STRIDED && strip.fits) take_wide_strip(row, &strip, plan);
    if (plan->loader == ONS_STRIDED && in_warp && !(row->gradient && row->element_bytes == 2))
        plan->width = plan->threads = ons_threads_of_warps(row, plan->rows, STRIDED_THREADS);
}

/* Whether rows of an operation that takes a gradient gain if they are staged. Rows that may begin
 * inside a pack always gain. If rows are many, the shortest gain too. So do 16-bit rows whose shape
 * would leave many chunks empty, and short rows of other types, whose lanes would read parts of
 * sectors. Rows of a multiple of 32 bytes meet in the same banks of shared memory, so only the
 * shortest of them gain. */
static bool gains_staged_gradient(const gpu_row *row, const ons_plan *plan) {
    enum { MANY_ELEMENTS = 1 << 22 /* scaled */, BANKS_MEET = 32, SHORTEST = 8, LONGEST = 32 };
    const bool meet = plan->N * row->element_bytes % BANKS_MEET == 0;
    const double filled =
        (double)(row->chunks * row->chunk) / (double)(plan->lanes * plan->elements_a_thread);
    if (!row->staged || !plan->all_aligned) return row->staged;
    if (plan->rows * plan->N < scaled(MANY_ELEMENTS, row->gpu)) return false;
    return plan->N <= SHORTEST || (!meet && (row->is_16_bit ? filled < 0.7 : plan->N <= LONGEST));
}

static void shape_staged_gradient(const gpu_row *row, ons_plan *plan) {
    static const int shapes[][2] = {
#define ONS_STAGED_GRADIENT_SHAPES(lanes, least, most) {lanes, most},
#include "../cuda/kernels.def"
#undef ONS_STAGED_GRADIENT_SHAPES
    };
    int i = 0;
    while (shapes[i][0] * shapes[i][1] < row->chunks) i++;
    plan->family = ONS_FAMILY_gradients_in_warp_staged;
    plan->lanes = shapes[i][0];
    plan->threads = ons_threads_of_warps(row, plan->rows * plan->lanes, WARP_ROW_THREADS);
    plan->width = plan->threads / plan->lanes;
    plan->width *= staged_rows_of_lanes(row, plan);
    plan->elements_a_thread = (int)ceil_div(row->chunks, plan->lanes) * row->chunk;
}

/* For operations that take a gradient. The parts of `split` are the same as for other
 * operations. */
static ons_status take_gradient(const gpu_row *row, ons_plan *plan) {
    static const int shapes[][2] = {
#define ONS_GRADIENT_SHAPE(lanes, chunks) {lanes, chunks},
#include "../cuda/kernels.def"
#undef ONS_GRADIENT_SHAPE
    };
    const bool cluster = plan->method == ONS_METHOD_cluster;
    const int64_t threads = GRADIENT_THREADS / row->threads_a_lane;
    int blocks = row->contiguous ? row->gpu->cluster_blocks : row->gpu->cluster_blocks_any, i = 0;
    /* more chunks if there are such kernels, for rows that gain by it or would not fit */
    const bool has_more =
        cluster && row->contiguous && row->chunk == CHUNK_OF_FLOATS && !plan->invariant;
    const bool gains = row->is_16_bit && row->whole_packs;
    const bool more = has_more && (gains || row->chunks > blocks * threads * BLOCK_CHUNKS);
    const int chunks = more ? GRADIENT_CLUSTER_CHUNKS : BLOCK_CHUNKS;
    plan->family = plan->method == ONS_METHOD_split        ? ONS_FAMILY_gradients_in_split
                   : plan->method == ONS_METHOD_fused_warp ? ONS_FAMILY_gradients_in_warp
                   : cluster                               ? ONS_FAMILY_gradients_in_cluster
                   : plan->form == ONS_ROW_FORM            ? ONS_FAMILY_gradients_in_block
                                                : ONS_FAMILY_gradients_in_block_of_columns;
    /* rows that are all aligned have no kernel with fewer chunks */
    if (cluster && plan->invariant) plan->all_aligned = false;
    if (plan->method == ONS_METHOD_split) {
        take_split(row, plan);
        plan->threads = SPLIT_THREADS;
        plan->elements_a_thread = TILE_CHUNKS * row->chunk;
        return ONS_OK;
    }
    if (plan->method == ONS_METHOD_fused_warp && plan->form == ONS_COLUMN_FORM) {
        plan->lanes = 1;
        plan->width = plan->threads =
            ons_threads_of_warps(row, plan->rows, limit_of_threads(row, plan, 1));
        plan->elements_a_thread = (int)min_of(chunks_of_column(row), WARP_CHUNKS) * row->chunk;
        plan->longest_row = WARP_CHUNKS * row->chunk;
        return ONS_OK;
    }
    if (plan->method == ONS_METHOD_fused_warp) {
        while (shapes[i][0] * shapes[i][1] < min_of(row->chunks, WARP * WARP_CHUNKS)) i++;
        plan->lanes = shapes[i][0];
        plan->threads = ons_threads_of_warps(row, plan->rows * plan->lanes,
                                             limit_of_threads(row, plan, plan->lanes));
        plan->width = plan->threads / plan->lanes;
        plan->elements_a_thread = shapes[i][1] * row->chunk;
        plan->longest_row = WARP * WARP_CHUNKS * row->chunk;
        if (plan->N <= plan->longest_row && gains_staged_gradient(row, plan))
            shape_staged_gradient(row, plan);
        return ONS_OK;
    }
    plan->elements_a_thread = chunks * row->chunk;
    plan->longest_row = (cluster ? blocks : 1) * threads *
                        (has_more ? GRADIENT_CLUSTER_CHUNKS : BLOCK_CHUNKS) * row->chunk;
    plan->blocks_a_row = 1;
    plan->threads = (int)ceil_div(ceil_div(row->chunks, chunks) * row->threads_a_lane, WARP) * WARP;
    if (!cluster) return ONS_OK;
    if (blocks < 2) return ONS_E_NO_CLUSTERS;
    const int room = ons_gradient_warps(row->is_16_bit, more);
    ons_share_out(ceil_div(row->chunks * row->threads_a_lane, chunks * WARP), room,
                  GRADIENT_THREADS / WARP, blocks, row->is_16_bit && !row->whole_packs, plan);
    return ONS_OK;
}

/* For js_divergence of rows without gaps. The shape depends on N and the type alone. Rows that are
 * too long for the shared memory of the largest cluster are read again. */
static void take_js(const gpu_row *row, ons_plan *plan) {
    enum {
        TILES_OF_WARP = 2, /* if the row is short */
        TILES_OF_BLOCK = 8 /* that its shared memory holds */
    };
    const int element_bytes = row->is_16_bit ? 2 : 4;
    const int64_t tiles = ceil_div(2 * plan->N * element_bytes, JS_TILE_BYTES),
                  blocks =
                      min_of(max_of(row->gpu->cluster_blocks, 1), ceil_div(tiles, TILES_OF_BLOCK)),
                  warps = min_of(JS_THREADS / WARP, ceil_div(tiles, blocks * TILES_OF_WARP));
    plan->family = ONS_FAMILY_js_divergences;
    plan->blocks_a_row = blocks;
    plan->threads = (int)warps * WARP;
    plan->elements_a_thread = JS_TILE_BYTES / (2 * WARP * element_bytes);
    plan->smem_tiles = (int)min_of(ceil_div(tiles, blocks * warps), TILES_OF_BLOCK / warps);
    plan->longest_row = 0;
}

/* For divergences. Held rows have the shapes of gradients. */
static ons_status take_divergence(const gpu_row *row, ons_plan *plan) {
    const bool js = row->operation == ONS_OPERATION_js_divergence;
    const ons_status status = take_gradient(row, plan);
    if (js && plan->method == ONS_METHOD_cluster) {
        take_js(row, plan);
        return ONS_OK;
    }
    switch (plan->method) {
    case ONS_METHOD_fused_warp:
        plan->family = ONS_FAMILY_divergences_in_warp;
        plan->lanes = row->chunks <= DIVERGENCE_LANES * WARP_CHUNKS ? DIVERGENCE_LANES : WARP;
        plan->threads = ons_threads_of_warps(row, plan->rows * plan->lanes, WARP_ROW_THREADS);
        plan->width = plan->threads / plan->lanes;
        plan->elements_a_thread = WARP_CHUNKS * row->chunk;
        return status;
    case ONS_METHOD_fused_block: plan->family = ONS_FAMILY_divergences_in_block; return status;
    case ONS_METHOD_cluster: plan->family = ONS_FAMILY_divergences_in_cluster; return status;
    default:
        plan->family = ONS_FAMILY_divergence;
        plan->workspace_bytes = 0;
        plan->blocks_a_row = 1;
        plan->tile = plan->elements_a_thread = TILE_CHUNKS * row->chunk;
        plan->threads =
            (int)min_of(PASS_THREADS, WARP * max_of(1, ceil_div(row->chunks, TILE_CHUNKS * WARP)));
        return ONS_OK;
    }
}

/* For a loss with its gradient, in rows without gaps. There are fewer shapes than for softmax. */
static ons_status take_loss(const gpu_row *row, ons_plan *plan) {
    gpu_row any = *row;
    ons_status status = ONS_OK;
    any.is_16_bit = any.staged = false;
    switch (plan->method) {
    case ONS_METHOD_fused_warp:
        take_warp(&any, plan);
        plan->family = ONS_FAMILY_losses_in_warp;
        return ONS_OK;
    case ONS_METHOD_fused_block:
        take_block(row, plan);
        plan->family = ONS_FAMILY_losses_in_block;
        plan->elements_a_thread = BLOCK_CHUNKS * row->chunk;
        plan->threads = (int)ceil_div(row->chunks, BLOCK_CHUNKS * WARP) * WARP;
        return ONS_OK;
    case ONS_METHOD_cluster:
        status = take_cluster(row, false, plan);
        plan->family = ONS_FAMILY_losses_in_cluster;
        return status;
    default: return ONS_E_OPERAND;
    }
}

ons_status ons_shape_on_gpu(const gpu_row *as_it_is, ons_plan *plan) {
    plan->family = own_family(plan->method);
    if (plan->method == ONS_METHOD_exact && as_it_is->given) plan->family = ONS_FAMILY_exact_given;
    if (plan->method == ONS_METHOD_exact && ons_operations[as_it_is->operation].pair)
        plan->family = ONS_FAMILY_exact_states;
    const bool finds_moments = as_it_is->operation == ONS_OPERATION_logprob;
    if (finds_moments) plan->family = ONS_FAMILY_logprob;
    if (ons_operations[as_it_is->operation].loss && as_it_is->given)
        plan->family = has_one_a_row(as_it_is) ? ONS_FAMILY_losses : ONS_FAMILY_loss_gradient;
    if (as_it_is->operation == ONS_OPERATION_logprob_backward)
        plan->family = ONS_FAMILY_logprob_gradient;
    const gpu_row seen = seen_by(plan->family, as_it_is), *row = &seen;
    plan->longest_row = plan->workspace_bytes = plan->tile = 0;
    plan->lanes = 0;
    plan->width = row->threads_a_lane;
    plan->loader = row->contiguous ? ONS_CONTIGUOUS : row->masked ? ONS_MASKED : ONS_GENERAL;
    ons_status status = ONS_OK;
    if (row->divergence)
        status = take_divergence(row, plan);
    else if (row->gradient)
        status = take_gradient(row, plan);
    else if (row->held_loss)
        status = take_loss(row, plan);
    else if (finds_moments)
        take_logprob(row, plan);
    else
        switch (plan->method) {
        case ONS_METHOD_fused_warp: take_warp(row, plan); break;
        case ONS_METHOD_fused_block:
        case ONS_METHOD_online_block: take_block(row, plan); break;
        case ONS_METHOD_split: take_split(row, plan); break;
        case ONS_METHOD_exact: take_exact(row, plan); break;
        case ONS_METHOD_cluster: status = take_cluster(row, as_it_is->contiguous, plan); break;
        case ONS_METHOD_grid: status = take_grid(row, plan); break;
        default: take_passes(row, plan);
        }
    if (plan->tile == 0)
        plan->tile =
            plan->elements_a_thread * (plan->threads / plan->width) * max_of(plan->blocks_a_row, 1);
    if (plan->form == ONS_COLUMN_FORM) take_loader_of_columns(row, plan);
    if (status == ONS_OK && plan->longest_row && plan->N > plan->longest_row)
        status = ONS_E_ROW_TOO_LONG;
    return status;
}
