/* plan/cpu.c - the method, the form and the tiles on the CPU. The thresholds were found by trying
 * values on a Zen 4 and an Emerald Rapids that also did other work. benchmarks/bench_cpu.py shows
 * their effect. */
#include "../api/route.h"
#include "../cpu/cpu.h"
#include "../cuda/topk/sample_list.h"
#include "plan.h"

/* With fewer columns than this, they are gathered one by one, since most of each vector would be
 * empty. */
enum { COLUMNS = 6, COLUMNS_CONVERTED = 16 };

/* Short rows are processed together, as a strip of about this many bytes of the compute type. */
enum { ROW_STRIP_BYTES = 1 << 14 };

/* The same for each input of an operation that takes a gradient. With strips of 16 KiB a call takes
 * 1.0 to 1.1 times as long, the longest at 1000 x 333 and 16384 x 1024. */
enum { GRADIENT_STRIP_BYTES = 1 << 17 };

/* Approximate bytes of whole rows that a thread processes at a time. The beginning and the end of a
 * run of rows are then a small part. */
enum { RUN_BYTES = 1 << 18 };

/* The largest rows, in bytes of the compute type, that `fused` keeps in the caches. A thread has
 * three rows there: it loads the first row, computes the second, and keeps a part of the third.
 * Strips of columns are half as large. */
enum { FUSED_ROW_BYTES = 1 << 20, ROWS_IN_CACHES = 3 };

/* The most scratch memory of all threads for rows of `fused`. The C library keeps this much from
 * call to call (glibc's DEFAULT_MMAP_THRESHOLD_MAX). With more, each call gets pages that the
 * system has to clear, and `online` is faster. An example is 64 rows of 262144 floats on two cores:
 * a call takes 600 to 1000 page faults with 12 threads, and at most 50 with 8 threads. */
enum { SCRATCH_BYTES = 1 << 25 };

/* If a strip of columns is larger than `bytes`, it gets narrower. It keeps at least `least` bytes
 * of each row of memory. Two such strips fill about the first-level cache, or a part of the
 * second. */
typedef struct {
    int64_t bytes, least;
} strip_size;
static const strip_size STRIP_IN_CACHES = {1 << 15, 128}, STRIP_FROM_MEMORY = {1 << 17, 256};
/* For short columns: while a strip is computed, the previous strip is written, from the first-level
 * cache. */
static const strip_size STRIP_OF_SHORT = {1 << 14, 256};

/* A y of at least this many bytes is written past the caches. In the caches it would displace more
 * data than a later read of y would find there. In benchmarks/results/cpu-*.json, 32 x 1000 x 64
 * and all larger shapes have such a y. 64 x 1024 and all smaller shapes do not. Columns are written
 * to as many places as a row has elements, and the caches are slower with many places. An example
 * is 700 x 1300 along axis 0 in benchmarks/results/cpu-avx512-2026-11-23-unnamed-16-cores.json. */
static const int64_t PAST_CACHES_BYTES = 1 << 22, COLUMNS_PAST_CACHES_BYTES = 1 << 20;

static bool is_large(const ons_problem *problem, const ons_plan *plan) {
    bool long_columns = plan->form == ONS_COLUMN_FORM && !ons_has_short_rows(plan);
    return plan->rows * plan->N * ons_dtype_size(problem->operand[ONS_Y].dtype) >=
           (long_columns ? COLUMNS_PAST_CACHES_BYTES : PAST_CACHES_BYTES);
}

/* Shortest rows that are split, if there are fewer than two for each thread. */
enum { SPLIT_N = 65536 };

/* Fewest elements that threads share, and fewest elements of each thread. With fewer elements,
 * waking a thread costs more than it saves. If the threads are still awake, half as many elements
 * are enough. Measured: benchmarks/results/cpu-threads-2026-11-22.json. */
enum { ELEMENTS_SHARED = 1 << 16, ELEMENTS_A_THREAD = 1 << 13 };

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

static bool fits_kernels(const ons_plan *plan, ons_dtype dtype) {
    return dtype == plan->compute ||
           (plan->compute == ONS_FLOAT32 && (dtype == ONS_FLOAT16 || dtype == ONS_BFLOAT16));
}

/* A thread's part of the caches, in rows that `fused` keeps. */
static int64_t longest_in_caches(const ons_machine *machine, const ons_plan *plan) {
    int64_t sharers = larger(1, min_of(plan->threads, machine->last_cache_sharers));
    int64_t cache = machine->core_cache + machine->last_cache / sharers;
    return min_of(FUSED_ROW_BYTES, cache / ROWS_IN_CACHES);
}

/* Whether `exact` keeps the exponentials of a row, in double, beyond one tile. In a cache that
 * cores share they would cost more than computing them again. */
static bool keeps_doubles(const ons_machine *machine, const ons_plan *plan) {
    return plan->N > plan->tile && 2 * plan->N * (int64_t)sizeof(double) <= machine->core_cache;
}

/* Whether whole strips of columns are processed one after the other (kernel/fused_columns.h). */
static bool are_whole_columns(const ons_problem *problem, const ons_plan *plan) {
    if (plan->form != ONS_COLUMN_FORM) return false;
    int across = problem->dims - problem->reduced_dims - 1; /* a column form has this dimension */
    const ons_operand *x = &problem->operand[ONS_X], *y = &problem->operand[ONS_Y],
                      *where = &problem->operand[ONS_WHERE];
    return (!where->data || where->stride[across] == 1) && fits_kernels(plan, x->dtype) &&
           fits_kernels(plan, y->dtype) && y->stride[across] == ons_dtype_size(y->dtype);
}

/* The fewest columns of each row of memory that `fused` keeps. */
static int64_t columns_kept(const ons_problem *problem, const ons_plan *plan) {
    int64_t least = STRIP_FROM_MEMORY.least / ons_dtype_size(plan->compute);
    return are_whole_columns(problem, plan) && least < plan->width ? least : plan->width;
}

#define RESULTS \
    "benchmarks/results/cpu-avx512-2026-11-23-16-cores.json on an Intel(R) Xeon(R) Processor: "

/* Whether the result is one value a row. Every method but `safe` then reads the row once. */
static bool has_one_a_row(const ons_problem *problem) {
    return ons_operations[problem->operation].one_a_row || problem->sums;
}

/* Whether rows have one value each, and are so short that several are processed together. */
static bool is_short_value(const ons_problem *problem, const ons_plan *plan) {
    return has_one_a_row(problem) && !ons_operations[problem->operation].pair &&
           plan->N <= (plan->compute == ONS_FLOAT64 ? ONS_BATCHED_F64 : ONS_BATCHED_F32 / 2);
}

/* Approximate bytes of the candidates of a strip's rows: they fit the second-level cache. */
enum { CANDIDATES_BYTES = 1 << 19 };

/* The largest k for which a row is split: each block has so many candidates. */
enum { SPLIT_K = 4096 };

static bool is_split(const ons_plan *plan) {
    return plan->form == ONS_ROW_FORM && plan->rows < 2 * plan->threads && plan->N >= SPLIT_N &&
           plan->threads > 1;
}

/* Whether the rows that `threads` threads work on at once fit the caches. In the column form each
 * thread keeps `columns` columns. */
static bool fits_caches(const ons_machine *machine, const ons_plan *plan, int threads,
                        int64_t columns) {
    const int64_t row = plan->N * ons_dtype_size(plan->compute);
    const int64_t cached = longest_in_caches(machine, plan);
    return plan->form == ONS_ROW_FORM
               ? row <= cached && threads * ONS_KEPT_ROWS * row <= SCRATCH_BYTES
               : row * columns <= cached / 2;
}

static ons_method choose_on_cpu(const ons_problem *problem, const ons_machine *machine,
                                ons_plan *plan) {
    if (plan->k > SPLIT_K || (plan->k > 0 && !is_split(plan))) {
        plan->reason = "the k largest are found in each tile while it is in the first cache";
        return ONS_METHOD_online;
    }
    if (is_split(plan)) {
        plan->reason =
            "there are too few rows to keep the threads busy: several threads share each row";
        plan->measured = RESULTS "float32 1x16777216, 16 threads: split 1.27, online 0.16";
        return ONS_METHOD_split;
    }
    if (plan->form == ONS_ROW_FORM && is_short_value(problem, plan)) {
        plan->reason = "short rows with one value each: several rows run at once";
        return ONS_METHOD_fused;
    }
    if (has_one_a_row(problem)) {
        plan->reason = "one value a row: it is read once, tile by tile";
        return ONS_METHOD_online;
    }
    const int64_t columns = plan->form == ONS_ROW_FORM ? 0 : columns_kept(problem, plan);
    if (fits_caches(machine, plan, plan->threads, columns)) {
        plan->reason = "the rows that are in work at once fit the caches: one read from memory";
        plan->measured = RESULTS
            "float32 16384x1024, 1 thread: fused 1.47, online 0.80; "
            "float32 128x131072, 1 thread: fused 1.21, online 0.69";
        return ONS_METHOD_fused;
    }
    plan->reason = "rows too long for the caches or for so many threads: two reads from memory";
    plan->measured = RESULTS "float32 1x16777216, 1 thread: online 0.66, fused 0.33";
    return ONS_METHOD_online;
}

/* Rows processed together, at most `most`. */
static int64_t width_of_rows(const ons_problem *problem, const ons_plan *plan, int64_t most) {
    int outer = problem->dims - problem->reduced_dims;
    int64_t across = outer > 0 ? problem->extent[outer - 1] : 1;
    /* so that each of several threads gets a few strips */
    if (plan->form == ONS_ROW_FORM && plan->threads > 1 && most > plan->rows / (4 * plan->threads))
        most = plan->rows / (4 * plan->threads);
    if (most < 1) most = 1;
    return across < most ? across : most;
}

static void choose_form_on_cpu(const ons_problem *problem, ons_plan *plan) {
    int outer = problem->dims - problem->reduced_dims, inner = problem->dims - 1;
    int64_t size = ons_dtype_size(problem->operand[ONS_X].dtype);
    int64_t fewest = problem->operand[ONS_X].dtype == plan->compute ? COLUMNS : COLUMNS_CONVERTED;
    bool columns = !plan->in_double && problem->reduced_dims == 1 && outer > 0 && plan->N > 1 &&
                   problem->operand[ONS_X].stride[inner] != size &&
                   problem->operand[ONS_X].stride[outer - 1] == size &&
                   problem->extent[outer - 1] >= fewest;
    plan->form = columns ? ONS_COLUMN_FORM : ONS_ROW_FORM;
    int64_t most = ONS_MAX_WIDTH;
    plan->tile = columns ? ONS_COLUMN_TILE : ONS_ROW_TILE;
    int along = columns ? outer - 1 : inner; /* the dimension whose elements lie side by side */
    int64_t row = larger(plan->N, 1) * ons_dtype_size(plan->compute);
    int64_t strip =
        ons_operations[problem->operation].gradient ? GRADIENT_STRIP_BYTES : ROW_STRIP_BYTES;
    if (!columns && strip / row < most) most = strip / row;
    if (plan->k > 0)
        most = min_of(most, larger(1, CANDIDATES_BYTES / (16 * ons_candidates_room(plan))));
    if (plan->in_double && plan->N > plan->tile) most = 1; /* its sums keep no state */
    plan->width = width_of_rows(problem, plan, most);
    bool plain = !problem->operand[ONS_WHERE].data && problem->reduced_dims == 1;
    const ons_operand *gradient = &problem->operand[ONS_GRADIENT];
    /* with a gradient, scale multiplies the result, not x */
    plan->x_direct =
        plain && problem->operand[ONS_X].dtype == plan->compute &&
        problem->operand[ONS_X].stride[along] == size &&
        (gradient->data || (!problem->operand[ONS_SCALE].data && problem->scale_by == 1.0));
    plan->stages_gradient =
        gradient->data && !(plain && gradient->dtype == plan->compute &&
                            gradient->stride[along] == ons_dtype_size(gradient->dtype));
    plan->y_direct =
        plain && !has_one_a_row(problem) && plan->k == 0 &&
        problem->operand[ONS_Y].dtype == plan->compute &&
        problem->operand[ONS_Y].stride[along] == ons_dtype_size(problem->operand[ONS_Y].dtype);
}

/* Columns processed together. Wide strips read more of each row of memory at once, and touch few
 * pages for their size. Narrow strips fit the caches, and keep more threads busy. */
static int64_t width_of_columns(const ons_problem *problem, const ons_plan *plan) {
    int64_t across = problem->extent[problem->dims - problem->reduced_dims - 1];
    int64_t size = ons_dtype_size(plan->compute), most = ONS_MAX_COLUMNS;
    strip_size strip = is_large(problem, plan) ? STRIP_FROM_MEMORY : STRIP_IN_CACHES;
    if (ons_has_short_rows(plan)) {
        most = ONS_MAX_SHORT_COLUMNS;
        strip = STRIP_OF_SHORT;
    }
    while (most * size > strip.least &&
           (plan->N * most * size > strip.bytes ||
            (plan->threads > 1 && plan->rows / most < 4 * plan->threads)))
        most /= 2;
    return across < most ? across : most;
}

/* Whether whole rows must be converted first. Otherwise they are used in x as they are. That
 * includes 16-bit rows, except short rows, which are processed as columns (kernel/short.h). */
static bool are_brought(const ons_problem *problem, const ons_plan *plan) {
    bool converted = ons_has_short_rows(plan) && problem->operand[ONS_X].dtype != plan->compute;
    return converted || problem->operand[ONS_X].dtype != problem->operand[ONS_Y].dtype ||
           problem->operand[ONS_WHERE].data || problem->operand[ONS_SCALE].data ||
           problem->scale_by != 1.0 ||
           problem->operand[ONS_X].stride[problem->dims - 1] !=
               ons_dtype_size(problem->operand[ONS_X].dtype);
}

/* Whether whole rows are processed one after the other. Their elements lie side by side in y, and
 * have the compute type or 16 bits. Short rows, which are computed as columns, must also be a whole
 * number of elements apart, which rows in packed records may not be. */
static bool are_whole_rows(const ons_problem *problem, const ons_plan *plan) {
    ons_dtype dtype = problem->operand[ONS_Y].dtype;
    int64_t size = ons_dtype_size(dtype);
    if (has_one_a_row(problem))
        return plan->form == ONS_ROW_FORM && problem->reduced_dims == 1 &&
               is_short_value(problem, plan) && fits_kernels(plan, dtype);
    int outer = problem->dims - problem->reduced_dims;
    bool side_by_side = plan->N <= 1 || problem->operand[ONS_Y].stride[problem->dims - 1] == size;
    bool whole_steps = !ons_has_short_rows(plan) || outer == 0 ||
                       problem->operand[ONS_Y].stride[outer - 1] % size == 0;
    return plan->form == ONS_ROW_FORM && problem->reduced_dims == 1 && side_by_side &&
           whole_steps && fits_kernels(plan, dtype);
}

/* The plan of a divergence. A thread runs softmax and log_softmax on a piece of the rows at a time
 * (cpu/divergence.c). The method is the one that these calls take. */
static void plan_divergence(const ons_machine *machine, ons_plan *plan) {
    plan->width = ons_divergence_piece(plan);
    plan->threads =
        (int)min_of(plan->threads, (plan->rows + plan->width - 1) / larger(plan->width, 1));
    if (plan->threads < 1) plan->threads = 1;
    ons_plan piece = *plan;
    piece.threads = 1;
    const bool fits = fits_caches(machine, &piece, 1, plan->width);
    plan->method = fits ? ONS_METHOD_fused : ONS_METHOD_online;
    plan->reason =
        fits ? "softmax and log_softmax of some rows at a time fill scratch; the terms come from it"
             : "softmax and log_softmax fill scratch; rows too long for the caches are read twice";
    plan->workspace_bytes = plan->threads * ONS_DIVERGENCE_ARRAYS * plan->width * plan->N *
                            ons_dtype_size(plan->compute);
    plan->on_chip_bytes = fits ? plan->N * ons_dtype_size(plan->compute) : 0;
}

/* The plan of a router. A thread takes a piece of the rows at a time (cpu/route.c), and each call
 * on the piece runs on this thread. The method is the one of the call that reads the logits. */
static void plan_route(const ons_route *route, const ons_machine *machine, ons_plan *plan) {
    const bool has_keys = route->bias || ons_route_has_groups(route);
    ons_plan piece = *plan;
    piece.threads = 1;
    plan->threads = (int)min_of(plan->threads, larger(plan->rows, 1));
    plan->width = 1;
    if (has_keys && ons_route_needs_pair(route)) {
        const bool fits = fits_caches(machine, &piece, 1, 1);
        plan->method = fits ? ONS_METHOD_fused : ONS_METHOD_online;
        plan->reason =
            "softmax and the keys of some rows at a time fill scratch; the k largest "
            "keys are found there";
    } else {
        plan->method = ONS_METHOD_online;
        plan->reason =
            has_keys ? "the keys of some rows at a time fill scratch; the k largest are found there"
                     : "the k largest are found in each tile while it is in the first cache";
    }
    plan->on_chip_bytes =
        (plan->method == ONS_METHOD_fused ? plan->N : min_of(plan->tile, plan->N)) *
        ons_dtype_size(plan->compute);
    plan->workspace_bytes = 0;
}

/* The plan of a sampler: the same (cpu/sample.c). */
static void plan_sample(const ons_sample *sample, const ons_machine *machine, ons_plan *plan) {
    const bool takes_all = ons_sample_takes_all(sample, plan->N);
    ons_plan piece = *plan;
    piece.threads = 1;
    plan->threads = (int)min_of(plan->threads, larger(plan->rows, 1));
    plan->width = 1;
    plan->method =
        takes_all && fits_caches(machine, &piece, 1, 1) ? ONS_METHOD_fused : ONS_METHOD_online;
    plan->reason = takes_all
                       ? "softmax of some rows at a time fills scratch; the token comes from there"
                       : "the first tokens are found in each tile while it is in the first cache";
    plan->on_chip_bytes =
        (plan->method == ONS_METHOD_fused ? plan->N : min_of(plan->tile, plan->N)) *
        ons_dtype_size(plan->compute);
    plan->workspace_bytes = 0; /* it takes memory while it runs, as much as the rows need */
}

/* Whether threads take pieces of the rows, and run other operations on them. */
static bool has_pieces(const ons_problem *problem) {
    return ons_is_divergence(problem->operation) ||
           (problem->operation == ONS_OPERATION_route && problem->route) ||
           (problem->operation == ONS_OPERATION_sample && problem->sample);
}

static void plan_pieces(const ons_problem *problem, const ons_machine *machine, ons_plan *plan) {
    if (problem->operation == ONS_OPERATION_route)
        plan_route(problem->route, machine, plan);
    else if (problem->operation == ONS_OPERATION_sample)
        plan_sample(problem->sample, machine, plan);
    else
        plan_divergence(machine, plan);
}

ons_status ons_plan_on_cpu(const ons_problem *problem, const ons_machine *machine, ons_plan *plan) {
    int64_t elements = plan->rows * plan->N;
    int64_t useful = elements < ELEMENTS_SHARED ? 1 : elements / ELEMENTS_A_THREAD;
    plan->threads = (int)min_of(useful, machine->threads);
    choose_form_on_cpu(problem, plan);
    if (has_pieces(problem)) {
        plan_pieces(problem, machine, plan);
        return ONS_OK;
    }
    if (plan->method == ONS_METHOD_AUTO) plan->method = choose_on_cpu(problem, machine, plan);

    /* each thread has its own candidates */
    if (plan->k > 0 && plan->method != ONS_METHOD_split)
        plan->threads = (int)min_of(plan->threads, larger(plan->rows, 1));
    const ons_method_info *info = &ons_methods[plan->method];
    bool direct = plan->x_direct && plan->y_direct;
    /* too long for the caches: scratch memory of this size would cost more than it saves */
    bool huge = plan->N * ons_dtype_size(plan->compute) > longest_in_caches(machine, plan);
    bool gradient = ons_operations[problem->operation].gradient;
    bool pipelines = plan->method == ONS_METHOD_fused && !huge && !gradient;
    plan->whole_rows = pipelines && are_whole_rows(problem, plan);
    plan->brings_rows = plan->whole_rows && are_brought(problem, plan);
    plan->whole_columns = pipelines && !has_one_a_row(problem) && are_whole_columns(problem, plan);
    if (plan->whole_rows) {
        int64_t row = larger(plan->N, 1) * ons_dtype_size(plan->compute);
        plan->width = width_of_rows(problem, plan, larger(ONS_MAX_WIDTH, RUN_BYTES / row));
    }
    bool written_as_computed = problem->operand[ONS_Y].dtype == plan->compute;
    const bool loss = ons_operations[problem->operation].loss; /* it changes results once more */
    plan->past_caches = !loss && !has_one_a_row(problem) && is_large(problem, plan) &&
                        ((direct && !plan->stages_gradient) || plan->brings_rows ||
                         (plan->whole_columns && written_as_computed));
    if (plan->whole_columns) plan->width = width_of_columns(problem, plan);
    plan->keeps_apart = info->on_chip == ONS_ROW_ON_CHIP && !gradient && !plan->whole_rows &&
                        !plan->whole_columns && !(direct && huge);
    if (plan->in_double) plan->keeps_apart = keeps_doubles(machine, plan);
    int64_t tile = plan->tile < plan->N ? plan->tile : plan->N;
    plan->on_chip_bytes =
        ons_dtype_size(plan->compute) * (info->on_chip == ONS_ROW_ON_CHIP    ? plan->N
                                         : info->on_chip == ONS_TILE_ON_CHIP ? tile
                                                                             : 0);
    bool runs = elements > 0 || (has_one_a_row(problem) && plan->rows > 0);
    plan->workspace_bytes = runs ? ons_cpu_workspace_bytes(plan) : 0;
    return ONS_OK;
}
