/* panel_lines.c - the elements of a panel's rows between the arrays and the arithmetic: converted,
 * scaled, masked; rounded and stored. */
#include "panel.h"

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

/* A line: elements that lie one step apart in every operand. In the row form a stretch of one row,
 * up to where its innermost dimension ends; in the column form one element of each row. */
typedef struct {
    int64_t row, j;   /* where it begins */
    int64_t elements; /* of the row that it advances */
    int64_t count;    /* in the line */
    int64_t x_step, y_step, where_step;
} line;

static line line_at(const ons_panel *panel, int64_t row, int64_t j, int64_t end) {
    const ons_problem *problem = panel->problem;
    if (panel->plan->form == ONS_COLUMN_FORM)
        return (line){
            0, j, 1, panel->rows.width, panel->x_across, panel->y_across, panel->where_across};
    int inner = problem->dims - 1;
    int64_t left = problem->extent[inner] - j % problem->extent[inner];
    int64_t count = left < end - j ? left : end - j;
    return (line){row,
                  j,
                  count,
                  count,
                  problem->operand[ONS_X].stride[inner],
                  problem->operand[ONS_Y].stride[inner],
                  problem->operand[ONS_WHERE].stride[inner]};
}

/* for (line at) over elements [begin, end) of one row, in the column form of all of the panel */
#define FOR_EACH_LINE_OF(panel, row, begin, end, at)                                    \
    for (line at = line_at(panel, row, begin, end); at.j < (end);                       \
         at = at.j + at.elements < (end) ? line_at(panel, row, at.j + at.elements, end) \
                                         : (line){.j = (end)})

/* for (line at) over elements [begin, end) of all rows of the panel */
#define FOR_EACH_LINE(panel, begin, end, at)                                                       \
    for (int64_t row_ = 0; row_ < ((panel)->plan->form == ONS_ROW_FORM ? (panel)->rows.width : 1); \
         row_++)                                                                                   \
    FOR_EACH_LINE_OF(panel, row_, begin, end, at)

static bool is_scaled(const ons_panel *panel) {
    return panel->problem->operand[ONS_SCALE].data || panel->problem->scale_by != 1.0;
}

/* The line's mask, or NULL. */
static const char *mask_of(const ons_panel *panel, const line *at) {
    if (!panel->where) return NULL;
    return panel->where + at->row * panel->where_across +
           offset_of(panel->problem, &panel->problem->operand[ONS_WHERE], at->j);
}

/* The result of an element that the mask excludes. */
static double excluded(const ons_panel *panel) {
    return ons_operations[panel->problem->operation].excluded;
}

/* Makes the line's elements at `values` the given value where the mask is 0. */
static void exclude(const ons_panel *panel, const line *at, char *values, double value) {
    const char *where = mask_of(panel, at);
    if (where) panel->move->exclude(values, where, at->where_step, value, at->count);
}

/* A line as the arithmetic sees it. */
static void load_line(const ons_panel *panel, const line *at, char *to) {
    const ons_problem *problem = panel->problem;
    bool each = panel->plan->form == ONS_COLUMN_FORM;
    const char *x =
        panel->x + at->row * panel->x_across + offset_of(problem, &problem->operand[ONS_X], at->j);
    if (!each && !panel->anchored) {
        panel->move->bring(to, x, at->x_step, problem->operand[ONS_X].dtype, panel->scale[at->row],
                           mask_of(panel, at), at->where_step, at->count);
        return;
    }
    panel->move->load(to, x, at->x_step, problem->operand[ONS_X].dtype, at->count);
    if (is_scaled(panel)) panel->move->multiply(to, panel->scale + at->row, each, at->count);
    if (panel->anchored) panel->move->subtract(to, panel->anchor + at->row, each, at->count);
    exclude(panel, at, to, -INFINITY);
}

static ons_tile load_into(ons_panel *panel, ons_tile tile, int64_t j, int64_t n) {
    FOR_EACH_LINE(panel, j, j + n, at)
    load_line(panel, &at, (char *)tile.data + at.row * tile.across + (at.j - j) * tile.along);
    return tile;
}

void ons_panel_bring(const void *from, int64_t first, int64_t count, void *to, int64_t pitch) {
    const ons_panel *panel = from;
    const ons_problem *problem = panel->problem;
    int inner = problem->dims - 1;
    int64_t N = panel->plan->N, size = ons_dtype_size(panel->plan->compute);
    int64_t step = problem->operand[ONS_X].stride[inner],
            where_step = problem->operand[ONS_WHERE].stride[inner];
    /* rows without a gap, alike in all: one line */
    bool joined = pitch == N && panel->x_across == N * step && !problem->operand[ONS_SCALE].data &&
                  (!panel->where || panel->where_across == N * where_step);
    int64_t at_once = joined ? count : 1;
    for (int64_t i = 0; i < count; i += at_once) {
        int64_t row = first + i;
        const char *where = panel->where ? panel->where + row * panel->where_across : NULL;
        panel->move->bring((char *)to + i * pitch * size, panel->x + row * panel->x_across, step,
                           problem->operand[ONS_X].dtype, panel->scale[row], where, where_step,
                           at_once * N);
    }
}

ons_run_of_rows ons_panel_run(const ons_panel *panel) {
    const ons_plan *plan = panel->plan;
    int64_t size = ons_dtype_size(plan->compute);
    const ons_operand *x = &panel->problem->operand[ONS_X], *y = &panel->problem->operand[ONS_Y];
    return (ons_run_of_rows){.x = {(char *)panel->x, ons_dtype_size(x->dtype), panel->x_across},
                             .y = {panel->y, ons_dtype_size(y->dtype), panel->y_across},
                             .count = panel->rows.width,
                             .dtype = y->dtype,
                             .bring = plan->brings_rows ? ons_panel_bring : NULL,
                             .from = panel,
                             .N = plan->N,
                             .kept = panel->kept,
                             .pitch = ons_padded(plan->N * size) / size,
                             .past_caches = plan->past_caches};
}

void ons_panel_exclude_from_nan(const ons_panel *panel) {
    const ons_problem *problem = panel->problem;
    int64_t size = ons_dtype_size(panel->plan->compute), N = panel->plan->N;
    if (!panel->where || N == 0) return;
    for (int64_t row = 0; row < panel->rows.width; row++) {
        char *y = panel->y + row * panel->y_across, *values = panel->kept;
        int64_t step = problem->operand[ONS_Y].stride[problem->dims - 1];
        panel->move->load(values, y + (N - 1) * step, step, problem->operand[ONS_Y].dtype, 1);
        double last = size == 4 ? *(float *)(void *)values : *(double *)(void *)values;
        if (!isnan(last)) continue;
        panel->move->load(values, y, step, problem->operand[ONS_Y].dtype, N);
        FOR_EACH_LINE_OF(panel, row, 0, N, at)
        exclude(panel, &at, values + at.j * size, excluded(panel));
        panel->move->store(y, step, problem->operand[ONS_Y].dtype, values, N);
    }
}

void ons_panel_exclude_from_columns(const ons_panel *panel) {
    ons_dtype dtype = panel->problem->operand[ONS_Y].dtype;
    if (!panel->where) return;
    FOR_EACH_LINE(panel, 0, panel->plan->N, at) {
        char *y = panel->y + offset_of(panel->problem, &panel->problem->operand[ONS_Y], at.j);
        panel->move->load(panel->kept, y, at.y_step, dtype, at.count);
        exclude(panel, &at, panel->kept, excluded(panel));
        panel->move->store(y, at.y_step, dtype, panel->kept, at.count);
    }
}

ons_tile ons_panel_load(ons_panel *panel, int64_t j, int64_t n) {
    if (!panel->plan->x_direct || panel->anchored)
        return load_into(panel, ons_panel_scratch(panel), j, n);
    int64_t along = panel->problem->operand[ONS_X].stride[panel->problem->dims - 1];
    return (ons_tile){(char *)panel->x + j * along, along, panel->x_across};
}

ons_tile ons_panel_load_to_keep(ons_panel *panel, int64_t j, int64_t n) {
    if (panel->plan->x_direct && !panel->anchored) return ons_panel_load(panel, j, n);
    return load_into(panel, ons_panel_kept(panel, j), j, n);
}

void ons_panel_store(ons_panel *panel, int64_t j, int64_t n) {
    const ons_problem *problem = panel->problem;
    if (panel->plan->y_direct) return;
    ons_tile tile = ons_panel_scratch(panel);
    FOR_EACH_LINE(panel, j, j + n, at) {
        char *from = (char *)tile.data + at.row * tile.across + (at.j - j) * tile.along;
        char *y = panel->y + at.row * panel->y_across +
                  offset_of(problem, &problem->operand[ONS_Y], at.j);
        exclude(panel, &at, from, excluded(panel));
        panel->move->store(y, at.y_step, problem->operand[ONS_Y].dtype, from, at.count);
    }
}

void ons_panel_store_value(const ons_panel *panel, int64_t row, const void *value) {
    const ons_operand *y = &panel->problem->operand[ONS_Y];
    panel->move->store(panel->y + row * panel->y_across, ons_dtype_size(y->dtype), y->dtype, value,
                       1);
}

void ons_panel_store_values(ons_panel *panel) {
    int64_t size = ons_dtype_size(panel->plan->compute);
    double values[ONS_MAX_WIDTH];
    panel->ending->values(&panel->rows, panel->anchored ? panel->anchor : NULL, values);
    for (int64_t i = 0; i < panel->rows.width; i++)
        ons_panel_store_value(panel, i, (char *)values + i * size);
}
