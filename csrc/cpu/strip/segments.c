/* segments.c - moves the elements of a strip's rows between the arrays and the arithmetic. It
 * converts, scales and masks them, and rounds and stores the results. */
#include "strip.h"

#include <string.h>

/* Bytes from element 0 of a row to element j. */
static int64_t offset_of(const ons_problem *problem, const ons_operand *operand, int64_t j) {
    int first = ons_outer_dims(problem);
    int64_t offset = 0;
    for (int dim = problem->dims - 1; dim >= first; dim--) {
        int64_t i = dim == first ? j : j % problem->extent[dim];
        if (dim > first) j /= problem->extent[dim];
        offset += i * operand->stride[dim];
    }
    return offset;
}

/* Elements that lie at a constant step in every operand. In the row form they are part of one row,
 * up to the end of its innermost dimension. In the column form they are one element of each row. */
typedef struct {
    int64_t row, j;   /* its first element */
    int64_t elements; /* elements of the row from this segment to the next */
    int64_t count;    /* elements in the segment */
    int64_t x_step, y_step, where_step;
} segment;

static segment segment_at(const ons_strip *strip, int64_t row, int64_t j, int64_t end) {
    const ons_problem *problem = strip->problem;
    if (strip->plan->form == ONS_COLUMN_FORM)
        return (segment){
            0, j, 1, strip->rows.width, strip->x_across, strip->y_across, strip->where_across};
    int inner = problem->dims - 1;
    int64_t left = problem->extent[inner] - j % problem->extent[inner];
    int64_t count = left < end - j ? left : end - j;
    return (segment){row,
                     j,
                     count,
                     count,
                     problem->operand[ONS_X].stride[inner],
                     problem->operand[ONS_Y].stride[inner],
                     problem->operand[ONS_WHERE].stride[inner]};
}

/* for (segment at) over elements [begin, end) of one row; in the column form, of all rows of the
 * strip */
#define FOR_EACH_SEGMENT_OF(strip, row, begin, end, at)                                    \
    for (segment at = segment_at(strip, row, begin, end); at.j < (end);                    \
         at = at.j + at.elements < (end) ? segment_at(strip, row, at.j + at.elements, end) \
                                         : (segment){.j = (end)})

/* for (segment at) over elements [begin, end) of all rows of the strip */
#define FOR_EACH_SEGMENT(strip, begin, end, at)                                                    \
    for (int64_t row_ = 0; row_ < ((strip)->plan->form == ONS_ROW_FORM ? (strip)->rows.width : 1); \
         row_++)                                                                                   \
    FOR_EACH_SEGMENT_OF(strip, row_, begin, end, at)

static bool is_scaled(const ons_strip *strip) {
    return strip->problem->operand[ONS_SCALE].data || strip->problem->scale_by != 1.0;
}

static ons_mask mask_of(const ons_strip *strip, const segment *at) {
    if (!strip->where) return (ons_mask){NULL, 0};
    int64_t offset = offset_of(strip->problem, &strip->problem->operand[ONS_WHERE], at->j);
    return (ons_mask){strip->where + at->row * strip->where_across + offset, at->where_step};
}

/* The result of an element that the mask excludes. */
static double excluded(const ons_strip *strip) {
    return ons_operations[strip->problem->operation].excluded;
}

/* Sets the segment's elements at `values` to `value` where the mask is 0. */
static void exclude(const ons_strip *strip, const segment *at, char *values, double value) {
    ons_mask where = mask_of(strip, at);
    if (where.data) strip->move->exclude(values, where, value, at->count);
}

/* Loads a segment, converted, scaled and masked. */
static void load_segment(const ons_strip *strip, const segment *at, char *to) {
    const ons_problem *problem = strip->problem;
    bool each = strip->plan->form == ONS_COLUMN_FORM;
    const char *x =
        strip->x + at->row * strip->x_across + offset_of(problem, &problem->operand[ONS_X], at->j);
    if (!each && !strip->anchored) {
        ons_change by = {strip->scale[at->row], mask_of(strip, at)};
        strip->move->convert(to, x, at->x_step, problem->operand[ONS_X].dtype, by, at->count);
        return;
    }
    strip->move->load(to, x, at->x_step, problem->operand[ONS_X].dtype, at->count);
    if (is_scaled(strip)) strip->move->multiply(to, strip->scale + at->row, each, at->count);
    if (strip->anchored) strip->move->subtract(to, strip->anchor + at->row, each, at->count);
    exclude(strip, at, to, -INFINITY);
}

static ons_tile load_into(ons_strip *strip, ons_tile tile, int64_t j, int64_t n) {
    FOR_EACH_SEGMENT(strip, j, j + n, at)
    load_segment(strip, &at, (char *)tile.data + at.row * tile.across + (at.j - j) * tile.along);
    return tile;
}

void ons_strip_convert(const void *from, int64_t first, int64_t count, void *to, int64_t pitch) {
    const ons_strip *strip = from;
    const ons_problem *problem = strip->problem;
    int inner = problem->dims - 1;
    int64_t N = strip->plan->N, size = ons_dtype_size(strip->plan->compute);
    int64_t step = problem->operand[ONS_X].stride[inner],
            where_step = problem->operand[ONS_WHERE].stride[inner];
    /* rows without a gap in every operand are one segment */
    bool joined = pitch == N && strip->x_across == N * step && !problem->operand[ONS_SCALE].data &&
                  (!strip->where || strip->where_across == N * where_step);
    int64_t at_once = joined ? count : 1;
    for (int64_t i = 0; i < count; i += at_once) {
        int64_t row = first + i;
        const char *where = strip->where ? strip->where + row * strip->where_across : NULL;
        strip->move->convert((char *)to + i * pitch * size, strip->x + row * strip->x_across, step,
                             problem->operand[ONS_X].dtype,
                             (ons_change){strip->scale[row], {where, where_step}}, at_once * N);
    }
}

ons_run_of_rows ons_strip_as_run(const ons_strip *strip) {
    const ons_plan *plan = strip->plan;
    int64_t size = ons_dtype_size(plan->compute);
    const ons_operand *x = &strip->problem->operand[ONS_X], *y = &strip->problem->operand[ONS_Y];
    return (ons_run_of_rows){.x = {(char *)strip->x, ons_dtype_size(x->dtype), strip->x_across},
                             .y = {strip->y, ons_dtype_size(y->dtype), strip->y_across},
                             .count = strip->rows.width,
                             .dtype = y->dtype,
                             .convert = plan->brings_rows ? ons_strip_convert : NULL,
                             .from = strip,
                             .N = plan->N,
                             .kept = strip->kept,
                             .pitch = ons_padded(plan->N * size) / size,
                             .past_caches = plan->past_caches};
}

void ons_strip_exclude_from_nan(const ons_strip *strip) {
    const ons_problem *problem = strip->problem;
    int64_t size = ons_dtype_size(strip->plan->compute), N = strip->plan->N;
    if (!strip->where || N == 0) return;
    for (int64_t row = 0; row < strip->rows.width; row++) {
        char *y = strip->y + row * strip->y_across, *values = strip->kept;
        int64_t step = problem->operand[ONS_Y].stride[problem->dims - 1];
        strip->move->load(values, y + (N - 1) * step, step, problem->operand[ONS_Y].dtype, 1);
        double last = size == 4 ? *(float *)(void *)values : *(double *)(void *)values;
        if (!isnan(last)) continue;
        strip->move->load(values, y, step, problem->operand[ONS_Y].dtype, N);
        FOR_EACH_SEGMENT_OF(strip, row, 0, N, at)
        exclude(strip, &at, values + at.j * size, excluded(strip));
        strip->move->store(y, step, problem->operand[ONS_Y].dtype, values, N);
    }
}

void ons_strip_exclude_from_columns(const ons_strip *strip) {
    ons_dtype dtype = strip->problem->operand[ONS_Y].dtype;
    if (!strip->where) return;
    FOR_EACH_SEGMENT(strip, 0, strip->plan->N, at) {
        char *y = strip->y + offset_of(strip->problem, &strip->problem->operand[ONS_Y], at.j);
        strip->move->load(strip->kept, y, at.y_step, dtype, at.count);
        exclude(strip, &at, strip->kept, excluded(strip));
        strip->move->store(y, at.y_step, dtype, strip->kept, at.count);
    }
}

ons_tile ons_strip_load(ons_strip *strip, int64_t j, int64_t n) {
    if (!strip->plan->x_direct || strip->anchored)
        return load_into(strip, ons_strip_scratch(strip), j, n);
    int64_t along = strip->problem->operand[ONS_X].stride[strip->problem->dims - 1];
    return (ons_tile){(char *)strip->x + j * along, along, strip->x_across};
}

ons_tile ons_strip_load_input(ons_strip *strip, ons_role role, int64_t j, int64_t n) {
    const ons_operand *operand = &strip->problem->operand[role];
    const char *first = role == ONS_X ? strip->x : strip->gradient;
    int64_t across = role == ONS_X ? strip->x_across : strip->gradient_across;
    int64_t along = operand->stride[strip->problem->dims - 1];
    if (role == ONS_X ? strip->plan->x_direct : !strip->plan->stages_gradient)
        return (ons_tile){(char *)first + j * along, along, across};
    ons_tile tile = role == ONS_X ? ons_strip_scratch(strip) : ons_strip_gradient_scratch(strip);
    int64_t step = strip->plan->form == ONS_COLUMN_FORM ? across : along;
    FOR_EACH_SEGMENT(strip, j, j + n, at) {
        char *to = (char *)tile.data + at.row * tile.across + (at.j - j) * tile.along;
        const char *from = first + at.row * across + offset_of(strip->problem, operand, at.j);
        strip->move->load(to, from, step, operand->dtype, at.count);
        exclude(strip, &at, to, 0.0);
    }
    return tile;
}

ons_tile ons_strip_load_to_keep(ons_strip *strip, int64_t j, int64_t n) {
    if (strip->plan->x_direct && !strip->anchored) return ons_strip_load(strip, j, n);
    return load_into(strip, ons_strip_kept(strip, j), j, n);
}

void ons_strip_store(ons_strip *strip, int64_t j, int64_t n) {
    const ons_problem *problem = strip->problem;
    if (strip->plan->y_direct) return;
    ons_tile tile = ons_strip_scratch(strip);
    FOR_EACH_SEGMENT(strip, j, j + n, at) {
        char *from = (char *)tile.data + at.row * tile.across + (at.j - j) * tile.along;
        char *y = strip->y + at.row * strip->y_across +
                  offset_of(problem, &problem->operand[ONS_Y], at.j);
        exclude(strip, &at, from, excluded(strip));
        strip->move->store(y, at.y_step, problem->operand[ONS_Y].dtype, from, at.count);
    }
}

void ons_strip_store_value(const ons_strip *strip, int64_t row, const void *value) {
    const ons_operand *y = &strip->problem->operand[ONS_Y];
    strip->move->store(strip->y + row * strip->y_across, ons_dtype_size(y->dtype), y->dtype, value,
                       1);
}

/* The state of an anchored row is already relative to e^m. */
ons_pair ons_strip_pair(const ons_strip *strip, int64_t i) {
    const ons_state *state = &strip->rows.state[i];
    const double m = state->m + (strip->anchored ? strip->anchor[i] : 0.0);
    return ons_pair_of(m, (state->d + state->d_low) / strip->kernels->one);
}

static void store_pairs(const ons_strip *strip, char *to, int64_t across) {
    for (int64_t i = 0; i < strip->rows.width; i++) {
        const ons_pair pair = ons_strip_pair(strip, i);
        memcpy(to + i * across, &pair, sizeof pair);
    }
}

void ons_strip_store_pairs(const ons_strip *strip) {
    store_pairs(strip, strip->pairs, strip->pairs_across);
}

void ons_strip_store_values(ons_strip *strip) {
    int64_t size = ons_dtype_size(strip->plan->compute);
    if (ons_operations[strip->problem->operation].pair) {
        store_pairs(strip, strip->y, strip->y_across);
        return;
    }
    double values[ONS_MAX_WIDTH];
    strip->epilogue->values(&strip->rows, strip->anchored ? strip->anchor : NULL, values);
    for (int64_t i = 0; i < strip->rows.width; i++)
        ons_strip_store_value(strip, i, (char *)values + i * size);
}
