/* panel.c - which rows a panel has, and where what is done with them is kept. */
#include "panel.h"

#include <string.h>

static int64_t item_size(const ons_plan *plan) { return ons_dtype_size(plan->compute); }

/* Bytes from element to element of a column in scratch: an odd number of cache lines, so that the
 * elements of a column do not all fall into the same few sets of the caches. */
static int64_t column_pitch(const ons_plan *plan) {
    return ons_padded(plan->width * item_size(plan)) | 64;
}

/* Of n elements of each row of the panel. */
static int64_t room_bytes(const ons_plan *plan, int64_t n) {
    return plan->form == ONS_ROW_FORM ? ons_padded(n * plan->width * item_size(plan))
                                      : n * column_pitch(plan);
}

static int64_t staging_bytes(const ons_plan *plan) {
    int64_t n = plan->tile < plan->N ? plan->tile : plan->N;
    if (plan->whole_rows || plan->whole_columns) return 0;
    return room_bytes(plan, n);
}

static int64_t kept_rows(const ons_plan *plan) {
    bool wide = plan->compute == ONS_FLOAT64;
    int64_t grouped = wide ? ONS_GROUPED_F64 : ONS_GROUPED_F32;
    int64_t brought = ons_has_short_rows(plan) ? ONS_BROUGHT_SHORT_ROWS : ONS_BROUGHT_ROWS;
    if (plan->N > grouped) return ONS_KEPT_ROWS;
    return ONS_KEPT_SHORT_ROWS + (plan->brings_rows ? brought : 0);
}

/* Rows for which there is a state, and what else each has of its own. */
static int64_t rows_with_states(const ons_plan *plan) {
    return plan->whole_columns || (plan->whole_rows && !plan->brings_rows) ? 0 : plan->width;
}

static int64_t panels_bytes(const ons_plan *plan) {
    return ons_has_short_rows(plan) ? 0 : ONS_PANELS_BYTES;
}

static int64_t kept_bytes(const ons_plan *plan) {
    if (plan->whole_rows) return kept_rows(plan) * ons_padded(plan->N * item_size(plan)) + 192;
    if (plan->whole_columns)
        return ONS_KEPT_PANELS * plan->N * (ons_padded(plan->width * item_size(plan)) + 64) + 64 +
               panels_bytes(plan);
    return plan->keeps_apart ? room_bytes(plan, plan->N) : 0;
}

/* The running sums of a panel: in the column form a line for each, of whole vectors. */
static int64_t sums_across_columns(const ons_plan *plan) { return (plan->width + 15) & ~15; }

static int64_t sums_bytes(const ons_plan *plan) {
    int64_t rows = plan->form == ONS_ROW_FORM ? plan->width : sums_across_columns(plan);
    return rows_with_states(plan) == 0 ? 0
                                       : ons_padded(2 * ONS_SUMS * rows * (int64_t)sizeof(double));
}

/* Six arrays with at most 8 bytes a row beside the states and the sums; whole rows as they lie in
 * memory need none of them. */
int64_t ons_panel_bytes(const ons_plan *plan) {
    int64_t width = rows_with_states(plan);
    return ons_padded(width * (int64_t)sizeof(ons_state)) + sums_bytes(plan) +
           6 * ons_padded(width * 8) + staging_bytes(plan) + kept_bytes(plan);
}

/* The last outer dimension is the one across the panel. */
static int64_t rows_across(const ons_problem *problem) {
    return ons_outer_dims(problem) > 0 ? problem->extent[ons_outer_dims(problem) - 1] : 1;
}

/* Rows that the first panel has less than the others, so that those begin with a line of y. */
static int64_t rows_less(const ons_problem *problem, const ons_plan *plan) {
    int64_t size = ons_dtype_size(problem->operand[ONS_Y].dtype);
    uintptr_t first = (uintptr_t)problem->operand[ONS_Y].data % 64;
    if (!plan->whole_columns || !plan->past_caches || plan->width == rows_across(problem)) return 0;
    return first % (uintptr_t)size == 0 ? (int64_t)first / size % plan->width : 0;
}

static int64_t panels_across(const ons_problem *problem, const ons_plan *plan) {
    int64_t rows = rows_less(problem, plan) + rows_across(problem);
    return (rows + plan->width - 1) / plan->width;
}

int64_t ons_panel_count(const ons_problem *problem, const ons_plan *plan) {
    return plan->rows / rows_across(problem) * panels_across(problem, plan);
}

ons_panel ons_panel_of(const ons_job *job, int worker) {
    const ons_problem *problem = job->problem;
    const ons_plan *plan = job->plan;
    ons_panel panel = {
        .problem = problem, .plan = plan, .kernels = job->kernels, .move = &job->kernels->move};
    bool row_form = plan->form == ONS_ROW_FORM;
    panel.primitives = row_form ? &job->kernels->row : &job->kernels->column;
    panel.ending =
        (row_form ? job->kernels->end_row : job->kernels->end_column) + problem->operation;
    panel.pipelines = job->kernels->pipelines + problem->operation;
    char *next = job->workspace + worker * ons_panel_bytes(plan);
    int64_t width = rows_with_states(plan);
    void **arrays[] = {&panel.rows.shift,  &panel.rows.floor,     &panel.rows.first,
                       &panel.rows.second, (void **)&panel.scale, (void **)&panel.anchor};
    panel.rows.state = (ons_state *)next;
    next += ons_padded(width * (int64_t)sizeof(ons_state));
    panel.rows.sums = (double *)next;
    panel.rows.sums_along = row_form ? 1 : sums_across_columns(plan);
    panel.rows.sums_across = row_form ? 2 * ONS_SUMS : 1;
    panel.rows.few = ons_has_short_rows(plan);
    next += sums_bytes(plan);
    for (int i = 0; i < 6; i++, next += ons_padded(width * 8)) *arrays[i] = next;
    panel.staging = next;
    panel.kept = next + staging_bytes(plan);
    panel.rows.past_caches = plan->past_caches;
    int across = ons_outer_dims(problem) - 1;
    if (across >= 0) {
        panel.x_across = problem->operand[ONS_X].stride[across];
        panel.y_across = problem->operand[ONS_Y].stride[across];
        panel.where_across = problem->operand[ONS_WHERE].stride[across];
        panel.scale_across = problem->operand[ONS_SCALE].stride[across];
    }
    for (int64_t i = 0; i < width; i++) panel.scale[i] = problem->scale_by;
    return panel;
}

static void empty_states(ons_panel *panel) {
    for (int64_t i = 0; i < panel->rows.width; i++) panel->rows.state[i] = ons_state_empty();
    memset(panel->rows.sums, 0, (size_t)sums_bytes(panel->plan));
}

void ons_panel_at(ons_panel *panel, int64_t index) {
    const ons_problem *problem = panel->problem;
    int64_t x = 0, y = 0, where = 0, scale = 0;
    int last = ons_outer_dims(problem) - 1;
    panel->rows.width = 1;
    if (last >= 0) {
        int64_t count = panels_across(problem, panel->plan), width = panel->plan->width;
        int64_t first =
            (last > 0 ? index % count : index) * width - rows_less(problem, panel->plan);
        int64_t across = rows_across(problem);
        int64_t end = first + width < across ? first + width : across;
        if (first < 0) first = 0;
        if (last > 0) index /= count;
        panel->rows.width = end - first;
        x = first * panel->x_across;
        y = first * panel->y_across;
        where = first * panel->where_across;
        scale = first * panel->scale_across;
        last--;
    }
    for (int dim = last; dim >= 0; dim--) {
        int64_t i = dim == 0 ? index : index % problem->extent[dim];
        if (dim > 0) index /= problem->extent[dim];
        x += i * problem->operand[ONS_X].stride[dim];
        y += i * problem->operand[ONS_Y].stride[dim];
        where += i * problem->operand[ONS_WHERE].stride[dim];
        scale += i * problem->operand[ONS_SCALE].stride[dim];
    }
    panel->x = problem->operand[ONS_X].data + x;
    panel->y = problem->operand[ONS_Y].data + y;
    panel->where =
        problem->operand[ONS_WHERE].data ? problem->operand[ONS_WHERE].data + where : NULL;
    panel->anchored = false;
    bool whole = panel->plan->whole_rows || panel->plan->whole_columns;
    if (!whole) empty_states(panel);
    panel->scale_in_memory =
        problem->operand[ONS_SCALE].data ? problem->operand[ONS_SCALE].data + scale : NULL;
    if (!problem->operand[ONS_SCALE].data || panel->plan->whole_columns) return;
    for (int64_t i = 0; i < panel->rows.width; i++)
        memcpy(&panel->scale[i], panel->scale_in_memory + i * panel->scale_across, sizeof(double));
}

/* Element j of the rows as they lie in x, where they lie as in a tile. */
static ons_tile in_memory(const ons_panel *panel, int64_t j) {
    const ons_problem *problem = panel->problem;
    int64_t along = problem->operand[ONS_X].stride[problem->dims - 1];
    bool row_form = panel->plan->form == ONS_ROW_FORM;
    if (problem->reduced_dims > 1) return ONS_NO_TILE;
    if (row_form && along != ons_dtype_size(problem->operand[ONS_X].dtype)) return ONS_NO_TILE;
    return (ons_tile){(char *)panel->x + j * along, along, panel->x_across};
}

ons_tile ons_panel_next_tile(const ons_panel *panel, int64_t j) { return in_memory(panel, j); }

/* Across the rows first; from the last of them on to the next in memory, as a rule. */
ons_tile ons_panel_next_panel(const ons_panel *panel, int64_t j) {
    ons_tile next = in_memory(panel, j);
    const ons_problem *problem = panel->problem;
    if (!next.data) return next;
    int last = ons_outer_dims(problem) - 1;
    bool end = last > 0 && panels_across(problem, panel->plan) == 1;
    next.data = (char *)next.data + (end ? problem->operand[ONS_X].stride[last - 1]
                                         : panel->plan->width * panel->x_across);
    return next;
}

typedef struct {
    const ons_job *job;
    ons_panel_body *body;
    ons_stretch_body *stretch;
} each_panel;

static void run_panels(void *context, int worker, int64_t begin, int64_t end) {
    const each_panel *each = context;
    ons_panel panel = ons_panel_of(each->job, worker);
    if (each->stretch) {
        each->stretch(&panel, begin, end);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        ons_panel_at(&panel, i);
        each->body(&panel);
    }
}

static void for_each(each_panel each) {
    const ons_job *job = each.job;
    int64_t count = ons_panel_count(job->problem, job->plan);
    /* stretches are longer: each begins and ends with panels that overlap with no other */
    int64_t pieces = (each.stretch ? 4 : 8) * job->plan->threads;
    int64_t grain = job->plan->threads > 1 ? count / pieces + 1 : count;
    ons_parallel_for(count, grain, job->plan->threads, run_panels, &each);
}

void ons_for_each_panel(const ons_job *job, ons_panel_body *body) {
    for_each((each_panel){job, body, NULL});
}

void ons_for_each_stretch(const ons_job *job, ons_stretch_body *body) {
    for_each((each_panel){job, NULL, body});
}

/* Room for n elements of each row of the panel. */
static ons_tile room_at(const ons_panel *panel, void *data, int64_t n) {
    int64_t size = item_size(panel->plan);
    if (panel->plan->form == ONS_ROW_FORM) return (ons_tile){data, size, n * size};
    return (ons_tile){data, column_pitch(panel->plan), size};
}

ons_tile ons_panel_scratch(const ons_panel *panel) {
    const ons_plan *plan = panel->plan;
    return room_at(panel, panel->staging, plan->tile < plan->N ? plan->tile : plan->N);
}

ons_tile ons_panel_result(ons_panel *panel, int64_t j) {
    if (!panel->plan->y_direct) return ons_panel_scratch(panel);
    int64_t along = panel->problem->operand[ONS_Y].stride[panel->problem->dims - 1];
    return (ons_tile){panel->y + j * along, along, panel->y_across};
}

ons_tile ons_panel_kept(ons_panel *panel, int64_t j) {
    if (!panel->plan->keeps_apart) return ons_panel_result(panel, j);
    ons_tile kept = room_at(panel, panel->kept, panel->plan->N);
    kept.data = (char *)kept.data + j * kept.along;
    return kept;
}

/* Whether every panel but those at the ends begins and ends each row of y with a line, wherever y
 * begins (rows_less). */
static bool ends_with_lines(const ons_problem *problem) {
    const ons_operand *y = &problem->operand[ONS_Y];
    int across = ons_outer_dims(problem) - 1;
    bool lines = y->stride[problem->dims - 1] % 64 == 0;
    for (int dim = 0; dim < across; dim++) lines &= y->stride[dim] % 64 == 0;
    return lines;
}

/* How rows of panels that go past the caches are kept: without a gap where they follow each other
 * so in y and are in x what is kept, but not short ones, whose vectors end beyond a panel; else
 * with room where what does not fill a line waits, if there may be such. */
static void keep_columns(ons_run_of_columns *run, const ons_problem *problem,
                         const ons_plan *plan) {
    int64_t size = item_size(plan), row = plan->width * size, line = 64 / size;
    bool joined = plan->width == rows_across(problem) && run->y_along == row;
    run->pitch = ons_padded(row) / size;
    if (!plan->past_caches) return;
    if (joined && plan->x_direct && plan->width >= line && !ons_has_short_rows(plan)) {
        run->pitch = plan->width;
    } else if (!ends_with_lines(problem)) {
        run->waits = true;
        run->pitch += line;
    }
}

static ons_columns columns_at(const void *from, int64_t index) {
    ons_panel panel = *(const ons_panel *)from;
    ons_panel_at(&panel, index);
    return (ons_columns){panel.x, panel.y, panel.where, panel.scale_in_memory, panel.rows.width};
}

ons_run_of_columns ons_panel_columns(ons_panel *panel, int64_t begin, int64_t end) {
    const ons_plan *plan = panel->plan;
    const ons_problem *problem = panel->problem;
    ons_run_of_columns run = {.at = columns_at,
                              .from = panel,
                              .first = begin,
                              .count = end - begin,
                              .N = plan->N,
                              .x_along = problem->operand[ONS_X].stride[problem->dims - 1],
                              .y_along = problem->operand[ONS_Y].stride[problem->dims - 1],
                              .where_along = problem->operand[ONS_WHERE].stride[problem->dims - 1],
                              .x_dtype = problem->operand[ONS_X].dtype,
                              .y_dtype = problem->operand[ONS_Y].dtype,
                              .scale = problem->scale_by,
                              .scale_across = panel->scale_across,
                              .kept = panel->kept + panels_bytes(plan),
                              .panels = panel->kept,
                              .past_caches = plan->past_caches};
    keep_columns(&run, problem, plan);
    return run;
}

/* Moves the running sums of row i by a power of two. */
static void rescale(const ons_rows *rows, int64_t i, double by) {
    for (int64_t l = 0; l < 2 * ONS_SUMS; l++)
        rows->sums[l * rows->sums_along + i * rows->sums_across] *= by;
}

void ons_panel_refer(ons_panel *panel) {
    ons_rows *rows = &panel->rows;
    for (int64_t i = 0; i < rows->width; i++) {
        double before = rows->state[i].c;
        ons_state_raise(&rows->state[i], rows->state[i].m);
        double shift = before - rows->state[i].c;
        if (shift < 0)
            rescale(rows, i, ldexp(1.0, (int)shift)); /* c falls from an empty row's alone */
    }
    panel->primitives->refer(rows);
}

void ons_panel_end_tile(ons_panel *panel, int64_t at, int64_t end, bool plain) {
    if (at % ONS_BLOCK == 0 || at == end) panel->primitives->end_block(&panel->rows, plain);
}

bool ons_panel_anchor(ons_panel *panel) {
    if (panel->anchored) return false;
    for (int64_t i = 0; i < panel->rows.width; i++) {
        double m = panel->rows.state[i].m;
        bool far = ons_needs_anchor(m);
        panel->anchor[i] = far ? m : 0.0;
        panel->anchored |= far;
    }
    if (!panel->anchored) return false;
    empty_states(panel);
    return true;
}
