/* strip.c - the rows of a strip, and the buffers of a thread. */
#include "strip.h"

#include <string.h>

static int64_t item_size(const ons_plan *plan) { return ons_dtype_size(plan->compute); }

/* Bytes between the elements of a column in scratch: an odd number of cache lines. Otherwise a
 * column's elements would all fall into a few sets of the caches. */
static int64_t column_pitch(const ons_plan *plan) {
    return ons_padded(plan->width * item_size(plan)) | 64;
}

/* Bytes of n elements of each row of the strip. */
static int64_t room_bytes(const ons_plan *plan, int64_t n) {
    return plan->form == ONS_ROW_FORM ? ons_padded(n * plan->width * item_size(plan))
                                      : n * column_pitch(plan);
}

static int64_t staging_bytes(const ons_plan *plan) {
    int64_t n = plan->tile < plan->N ? plan->tile : plan->N;
    if (plan->whole_rows || plan->whole_columns) return 0;
    return room_bytes(plan, n);
}

static int64_t gradient_staging_bytes(const ons_plan *plan) {
    return plan->stages_gradient ? staging_bytes(plan) : 0;
}

static int64_t kept_rows(const ons_plan *plan) {
    bool wide = plan->compute == ONS_FLOAT64;
    int64_t batched = wide ? ONS_BATCHED_F64 : ONS_BATCHED_F32;
    int64_t converted = ons_has_short_rows(plan) ? ONS_CONVERTED_SHORT_ROWS : ONS_CONVERTED_ROWS;
    if (plan->N > batched) return ONS_KEPT_ROWS;
    return ONS_KEPT_SHORT_ROWS + (plan->brings_rows ? converted : 0);
}

/* Number of rows that have a state and other buffers of their own. */
static int64_t rows_with_states(const ons_plan *plan) {
    return plan->whole_columns || (plan->whole_rows && !plan->brings_rows) ? 0 : plan->width;
}

static int64_t strips_bytes(const ons_plan *plan) {
    return ons_has_short_rows(plan) ? 0 : ONS_STRIPS_BYTES;
}

static int64_t kept_bytes(const ons_plan *plan) {
    if (plan->whole_rows) return kept_rows(plan) * ons_padded(plan->N * item_size(plan)) + 192;
    if (plan->whole_columns)
        return ONS_KEPT_STRIPS * plan->N * (ons_padded(plan->width * item_size(plan)) + 64) + 64 +
               strips_bytes(plan);
    if (plan->keeps_apart && plan->in_double)
        return ons_padded((plan->N + ONS_ROUNDED_ROOM) * (int64_t)sizeof(double));
    return plan->keeps_apart ? room_bytes(plan, plan->N) : 0;
}

/* Doubles in each running sum in the column form: one a row, rounded up to whole vectors. */
static int64_t sums_across_columns(const ons_plan *plan) { return (plan->width + 15) & ~15; }

static int64_t sums_bytes(const ons_plan *plan) {
    int64_t rows = plan->form == ONS_ROW_FORM ? plan->width : sums_across_columns(plan);
    return rows_with_states(plan) == 0 ? 0
                                       : ons_padded(2 * ONS_SUMS * rows * (int64_t)sizeof(double));
}

/* Beside the states and the sums there are six arrays of at most 8 bytes a row. Whole rows that are
 * processed in memory need none of them. */
int64_t ons_strip_bytes(const ons_plan *plan) {
    int64_t width = rows_with_states(plan);
    return ons_padded(width * (int64_t)sizeof(ons_state)) + sums_bytes(plan) +
           6 * ons_padded(width * 8) + staging_bytes(plan) + gradient_staging_bytes(plan) +
           ons_candidates_bytes(plan) + kept_bytes(plan);
}

/* The last outer dimension is the one across the strip. */
static int64_t rows_across(const ons_problem *problem) {
    return ons_outer_dims(problem) > 0 ? problem->extent[ons_outer_dims(problem) - 1] : 1;
}

/* By how many rows the first strip is shorter, so that the others begin at a cache line of y. */
static int64_t rows_less(const ons_problem *problem, const ons_plan *plan) {
    int64_t size = ons_dtype_size(problem->operand[ONS_Y].dtype);
    uintptr_t first = (uintptr_t)problem->operand[ONS_Y].data % 64;
    if (!plan->whole_columns || !plan->past_caches || plan->width == rows_across(problem)) return 0;
    return first % (uintptr_t)size == 0 ? (int64_t)first / size % plan->width : 0;
}

static int64_t strips_across(const ons_problem *problem, const ons_plan *plan) {
    int64_t rows = rows_less(problem, plan) + rows_across(problem);
    return (rows + plan->width - 1) / plan->width;
}

int64_t ons_strip_count(const ons_problem *problem, const ons_plan *plan) {
    return plan->rows / rows_across(problem) * strips_across(problem, plan);
}

ons_strip ons_strip_of(const ons_job *job, int worker) {
    const ons_problem *problem = job->problem;
    const ons_plan *plan = job->plan;
    ons_strip strip = {
        .problem = problem, .plan = plan, .kernels = job->kernels, .move = &job->kernels->move};
    bool row_form = plan->form == ONS_ROW_FORM;
    strip.primitives = row_form ? &job->kernels->row : &job->kernels->column;
    const ons_operation ends_as = ons_operations[problem->operation].loss
                                      ? (ons_operation)ONS_OPERATION_softmax
                                      : problem->operation; /* loss.c has the rest */
    strip.epilogue = (row_form ? job->kernels->end_row : job->kernels->end_column) + ends_as;
    strip.pipelines = job->kernels->pipelines + problem->operation;
    char *next = job->workspace + worker * ons_strip_bytes(plan);
    int64_t width = rows_with_states(plan);
    void **arrays[] = {&strip.rows.shift,  &strip.rows.floor,     &strip.rows.first,
                       &strip.rows.second, (void **)&strip.scale, (void **)&strip.anchor};
    strip.rows.state = (ons_state *)next;
    next += ons_padded(width * (int64_t)sizeof(ons_state));
    strip.rows.sums = (double *)next;
    strip.rows.sums_along = row_form ? 1 : sums_across_columns(plan);
    strip.rows.sums_across = row_form ? 2 * ONS_SUMS : 1;
    strip.rows.short_rows = ons_has_short_rows(plan);
    next += sums_bytes(plan);
    for (int i = 0; i < 6; i++, next += ons_padded(width * 8)) *arrays[i] = next;
    strip.staging = next;
    strip.gradient_staging = next + staging_bytes(plan);
    next += staging_bytes(plan) + gradient_staging_bytes(plan);
    if (plan->k > 0) {
        strip.candidates = (ons_candidates *)next;
        ons_place_candidates(plan, strip.candidates, &strip.selected);
    }
    strip.kept = next + ons_candidates_bytes(plan);
    strip.rows.past_caches = plan->past_caches;
    strip.rows.sums_in_double = problem->sums;
    int across = ons_outer_dims(problem) - 1;
    if (across >= 0) {
        strip.x_across = problem->operand[ONS_X].stride[across];
        strip.y_across = problem->operand[ONS_Y].stride[across];
        strip.where_across = problem->operand[ONS_WHERE].stride[across];
        strip.scale_across = problem->operand[ONS_SCALE].stride[across];
        strip.pairs_across = problem->operand[ONS_STATISTIC].stride[across];
        strip.gradient_across = problem->operand[ONS_GRADIENT].stride[across];
        strip.indices_across = problem->operand[ONS_INDICES].stride[across];
    }
    for (int64_t i = 0; i < width; i++) strip.scale[i] = problem->scale_by;
    return strip;
}

static void empty_states(ons_strip *strip) {
    for (int64_t i = 0; i < strip->rows.width; i++) strip->rows.state[i] = ons_state_empty();
    if (!strip->epilogue->add_gradient)
        memset(strip->rows.sums, 0, (size_t)sums_bytes(strip->plan));
}

void ons_strip_at(ons_strip *strip, int64_t index) {
    const ons_problem *problem = strip->problem;
    int64_t x = 0, y = 0, where = 0, scale = 0, pairs = 0, gradient = 0, indices = 0;
    int last = ons_outer_dims(problem) - 1;
    strip->rows.width = 1;
    strip->first_row = index;
    if (last >= 0) {
        int64_t count = strips_across(problem, strip->plan), width = strip->plan->width;
        int64_t first =
            (last > 0 ? index % count : index) * width - rows_less(problem, strip->plan);
        int64_t across = rows_across(problem);
        int64_t end = first + width < across ? first + width : across;
        if (first < 0) first = 0;
        if (last > 0) index /= count;
        strip->first_row = (last > 0 ? index * across : 0) + first;
        strip->rows.width = end - first;
        x = first * strip->x_across;
        y = first * strip->y_across;
        where = first * strip->where_across;
        scale = first * strip->scale_across;
        pairs = first * strip->pairs_across;
        gradient = first * strip->gradient_across;
        indices = first * strip->indices_across;
        last--;
    }
    for (int dim = last; dim >= 0; dim--) {
        int64_t i = dim == 0 ? index : index % problem->extent[dim];
        if (dim > 0) index /= problem->extent[dim];
        x += i * problem->operand[ONS_X].stride[dim];
        y += i * problem->operand[ONS_Y].stride[dim];
        where += i * problem->operand[ONS_WHERE].stride[dim];
        scale += i * problem->operand[ONS_SCALE].stride[dim];
        pairs += i * problem->operand[ONS_STATISTIC].stride[dim];
        gradient += i * problem->operand[ONS_GRADIENT].stride[dim];
        indices += i * problem->operand[ONS_INDICES].stride[dim];
    }
    strip->x = problem->operand[ONS_X].data + x;
    strip->y = problem->operand[ONS_Y].data + y;
    strip->where =
        problem->operand[ONS_WHERE].data ? problem->operand[ONS_WHERE].data + where : NULL;
    strip->pairs =
        problem->operand[ONS_STATISTIC].data ? problem->operand[ONS_STATISTIC].data + pairs : NULL;
    strip->gradient =
        problem->operand[ONS_GRADIENT].data ? problem->operand[ONS_GRADIENT].data + gradient : NULL;
    if (strip->candidates) {
        strip->indices = problem->operand[ONS_INDICES].data + indices;
        ons_no_candidates(strip->candidates, strip->rows.width);
    }
    strip->anchored = false;
    bool whole = strip->plan->whole_rows || strip->plan->whole_columns;
    if (!whole) empty_states(strip);
    strip->scale_in_memory =
        problem->operand[ONS_SCALE].data ? problem->operand[ONS_SCALE].data + scale : NULL;
    if (!problem->operand[ONS_SCALE].data || strip->plan->whole_columns) return;
    for (int64_t i = 0; i < strip->rows.width; i++)
        memcpy(&strip->scale[i], strip->scale_in_memory + i * strip->scale_across, sizeof(double));
}

/* Element j of the rows in x itself, if they lie there as in a tile. */
static ons_tile in_memory(const ons_strip *strip, int64_t j) {
    const ons_problem *problem = strip->problem;
    int64_t along = problem->operand[ONS_X].stride[problem->dims - 1];
    bool row_form = strip->plan->form == ONS_ROW_FORM;
    if (problem->reduced_dims > 1) return ONS_NO_TILE;
    if (row_form && along != ons_dtype_size(problem->operand[ONS_X].dtype)) return ONS_NO_TILE;
    return (ons_tile){(char *)strip->x + j * along, along, strip->x_across};
}

ons_tile ons_strip_next_tile(const ons_strip *strip, int64_t j) { return in_memory(strip, j); }

/* Advances across the rows, or along the dimension before if one strip has all rows across. */
ons_tile ons_strip_next_strip(const ons_strip *strip, int64_t j) {
    ons_tile next = in_memory(strip, j);
    const ons_problem *problem = strip->problem;
    if (!next.data) return next;
    int last = ons_outer_dims(problem) - 1;
    bool end = last > 0 && strips_across(problem, strip->plan) == 1;
    next.data = (char *)next.data + (end ? problem->operand[ONS_X].stride[last - 1]
                                         : strip->plan->width * strip->x_across);
    return next;
}

typedef struct {
    const ons_job *job;
    ons_strip_body *body;
    ons_range_body *range;
} each_strip;

static void run_strips(void *context, int worker, int64_t begin, int64_t end) {
    const each_strip *each = context;
    ons_strip strip = ons_strip_of(each->job, worker);
    if (each->range) {
        each->range(&strip, begin, end);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        ons_strip_at(&strip, i);
        each->body(&strip);
    }
}

static void for_each(each_strip each) {
    const ons_job *job = each.job;
    int64_t count = ons_strip_count(job->problem, job->plan);
    /* a range is longer: only its first and last strip share cache lines with others */
    int64_t pieces = (each.range ? 4 : 8) * job->plan->threads;
    int64_t grain = job->plan->threads > 1 ? count / pieces + 1 : count;
    ons_parallel_for(count, grain, job->plan->threads, run_strips, &each);
}

void ons_for_each_strip(const ons_job *job, ons_strip_body *body) {
    for_each((each_strip){job, body, NULL});
}

void ons_for_each_range(const ons_job *job, ons_range_body *body) {
    for_each((each_strip){job, NULL, body});
}

/* Room for n elements of each row of the strip. */
static ons_tile room_at(const ons_strip *strip, void *data, int64_t n) {
    int64_t size = item_size(strip->plan);
    if (strip->plan->form == ONS_ROW_FORM) return (ons_tile){data, size, n * size};
    return (ons_tile){data, column_pitch(strip->plan), size};
}

static ons_tile staged(const ons_strip *strip, void *staging) {
    const ons_plan *plan = strip->plan;
    return room_at(strip, staging, plan->tile < plan->N ? plan->tile : plan->N);
}

ons_tile ons_strip_scratch(const ons_strip *strip) { return staged(strip, strip->staging); }

ons_tile ons_strip_gradient_scratch(const ons_strip *strip) {
    return staged(strip, strip->gradient_staging);
}

ons_tile ons_strip_result(ons_strip *strip, int64_t j) {
    if (!strip->plan->y_direct) return ons_strip_scratch(strip);
    int64_t along = strip->problem->operand[ONS_Y].stride[strip->problem->dims - 1];
    return (ons_tile){strip->y + j * along, along, strip->y_across};
}

ons_tile ons_strip_kept(ons_strip *strip, int64_t j) {
    if (!strip->plan->keeps_apart) return ons_strip_result(strip, j);
    ons_tile kept = room_at(strip, strip->kept, strip->plan->N);
    kept.data = (char *)kept.data + j * kept.along;
    return kept;
}

/* Whether every strip but the first and the last begins and ends at a cache line in each row of y,
 * wherever y begins (rows_less). */
static bool ends_with_cache_lines(const ons_problem *problem) {
    const ons_operand *y = &problem->operand[ONS_Y];
    int across = ons_outer_dims(problem) - 1;
    bool aligned = y->stride[problem->dims - 1] % 64 == 0;
    for (int dim = 0; dim < across; dim++) aligned &= y->stride[dim] % 64 == 0;
    return aligned;
}

/* The pitch of strips that are stored past the caches. Rows without gaps in y are kept without
 * gaps, if x needs no conversion. But short rows are not, since their vectors reach past the end of
 * a strip. Other rows have a cache line in front, for elements that do not fill one yet, unless all
 * strips end with cache lines. */
static void keep_columns(ons_run_of_columns *run, const ons_problem *problem,
                         const ons_plan *plan) {
    int64_t size = item_size(plan), row = plan->width * size, cache_line = 64 / size;
    bool joined = plan->width == rows_across(problem) && run->y_along == row;
    run->pitch = ons_padded(row) / size;
    if (!plan->past_caches) return;
    if (joined && plan->x_direct && plan->width >= cache_line && !ons_has_short_rows(plan)) {
        run->pitch = plan->width;
    } else if (!ends_with_cache_lines(problem)) {
        run->waits = true;
        run->pitch += cache_line;
    }
}

static ons_columns columns_at(const void *from, int64_t index) {
    ons_strip strip = *(const ons_strip *)from;
    ons_strip_at(&strip, index);
    return (ons_columns){strip.x, strip.y, strip.where, strip.scale_in_memory, strip.rows.width};
}

ons_run_of_columns ons_strip_columns(ons_strip *strip, int64_t begin, int64_t end) {
    const ons_plan *plan = strip->plan;
    const ons_problem *problem = strip->problem;
    ons_run_of_columns run = {.at = columns_at,
                              .from = strip,
                              .first = begin,
                              .count = end - begin,
                              .N = plan->N,
                              .x_along = problem->operand[ONS_X].stride[problem->dims - 1],
                              .y_along = problem->operand[ONS_Y].stride[problem->dims - 1],
                              .where_along = problem->operand[ONS_WHERE].stride[problem->dims - 1],
                              .x_dtype = problem->operand[ONS_X].dtype,
                              .y_dtype = problem->operand[ONS_Y].dtype,
                              .scale = problem->scale_by,
                              .scale_across = strip->scale_across,
                              .kept = strip->kept + strips_bytes(plan),
                              .strips = strip->kept,
                              .past_caches = plan->past_caches};
    keep_columns(&run, problem, plan);
    return run;
}

/* Moves the running sums of row i by a power of two. */
static void rescale(const ons_rows *rows, int64_t i, double by) {
    for (int64_t l = 0; l < 2 * ONS_SUMS; l++)
        rows->sums[l * rows->sums_along + i * rows->sums_across] *= by;
}

void ons_strip_rescale(ons_strip *strip, bool empty) {
    ons_rows *rows = &strip->rows;
    for (int64_t i = 0; i < rows->width; i++) {
        double before = rows->state[i].c;
        ons_state_raise(&rows->state[i], rows->state[i].m);
        double shift = before - rows->state[i].c;
        if (shift < 0 && !empty)
            rescale(rows, i, ldexp(1.0, (int)shift)); /* c falls only if the row was empty */
    }
    strip->primitives->set_references(rows);
}

void ons_strip_end_tile(ons_strip *strip, int64_t at, int64_t end, bool plain) {
    if (at % ONS_BLOCK == 0 || at == end) strip->primitives->end_block(&strip->rows, plain);
}

bool ons_strip_anchor(ons_strip *strip) {
    if (strip->anchored) return false;
    for (int64_t i = 0; i < strip->rows.width; i++) {
        double m = strip->rows.state[i].m;
        bool far = ons_needs_anchor(m);
        strip->anchor[i] = far ? m : 0.0;
        strip->anchored |= far;
    }
    if (!strip->anchored) return false;
    empty_states(strip);
    return true;
}

void ons_strip_take_pairs(ons_strip *strip) {
    for (int64_t i = 0; i < strip->rows.width; i++) {
        ons_pair pair;
        memcpy(&pair, strip->pairs + i * strip->pairs_across, sizeof pair);
        if (strip->epilogue->finish_gradient) { /* a sum, and the part that it rounded away */
            strip->rows.state[i] = (ons_state){0.0, 0.0, pair.m, pair.d};
            continue;
        }
        strip->anchor[i] = ons_needs_anchor(pair.m) ? pair.m : 0.0;
        strip->anchored |= strip->anchor[i] != 0.0;
        double m = pair.m - strip->anchor[i];
        /* the sum that was divided by `one`; it may differ in the last bits if it had more than
         * 50 */
        double d = ons_without_bits(pair.d * strip->kernels->one, strip->kernels->one != 1 ? 3 : 0);
        strip->rows.state[i] = (ons_state){m, ons_reference(m), d, 0.0};
    }
}
