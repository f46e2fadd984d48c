/* panel.c - how rows arrive at the primitives and leave them. */
#include "panel.h"

#include <string.h>

static int64_t padded(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

static int64_t item_size(const ons_plan *plan) { return ons_dtype_size(plan->compute); }

/* Bytes from element to element of a column in scratch: an odd number of cache lines, so that the
 * elements of a column do not all fall into the same few sets of the caches. */
static int64_t column_pitch(const ons_plan *plan) {
    return padded(plan->width * item_size(plan)) | 64;
}

/* Of n elements of each row of the panel. */
static int64_t room_bytes(const ons_plan *plan, int64_t n) {
    return plan->form == ONS_ROW_FORM ? padded(n * plan->width * item_size(plan))
                                      : n * column_pitch(plan);
}

static int64_t staging_bytes(const ons_plan *plan) {
    int64_t n = plan->tile < plan->N ? plan->tile : plan->N;
    if (plan->whole_rows) return 0;
    return room_bytes(plan, n);
}

static int64_t kept_rows(const ons_plan *plan) {
    int64_t block = plan->compute == ONS_FLOAT32 ? ONS_BLOCK_F32 : ONS_BLOCK_F64;
    return plan->N <= block ? ONS_KEPT_SHORT_ROWS : ONS_KEPT_ROWS;
}

static int64_t kept_bytes(const ons_plan *plan) {
    if (plan->whole_rows) return kept_rows(plan) * padded(plan->N * item_size(plan)) + 192;
    return plan->keeps_apart ? room_bytes(plan, plan->N) : 0;
}

/* Six arrays with at most 8 bytes a row beside the states; whole rows need none of them. */
int64_t ons_panel_bytes(const ons_plan *plan) {
    int64_t width = plan->whole_rows ? 0 : plan->width;
    return padded(width * (int64_t)sizeof(ons_state)) + 6 * padded(width * 8) +
           staging_bytes(plan) + kept_bytes(plan);
}

static int outer_dims(const ons_problem *problem) { return problem->dims - problem->reduced_dims; }

/* The last outer dimension is the one across the panel. */
static int64_t rows_across(const ons_problem *problem) {
    return outer_dims(problem) > 0 ? problem->extent[outer_dims(problem) - 1] : 1;
}

static int64_t panels_across(const ons_problem *problem, const ons_plan *plan) {
    return (rows_across(problem) + plan->width - 1) / plan->width;
}

int64_t ons_panel_count(const ons_problem *problem, const ons_plan *plan) {
    return plan->rows / rows_across(problem) * panels_across(problem, plan);
}

ons_panel ons_panel_of(const ons_job *job, int worker) {
    const ons_problem *problem = job->problem;
    const ons_plan *plan = job->plan;
    ons_panel panel = {
        .problem = problem, .plan = plan, .kernels = job->kernels, .move = &job->kernels->move};
    panel.primitives = plan->form == ONS_ROW_FORM ? &job->kernels->row : &job->kernels->column;
    char *next = job->workspace + worker * ons_panel_bytes(plan);
    int64_t width = plan->whole_rows ? 0 : plan->width;
    void **arrays[] = {&panel.rows.shift,         &panel.rows.floor,     &panel.rows.factor,
                       &panel.rows.factor_beyond, (void **)&panel.scale, (void **)&panel.anchor};
    panel.rows.state = (ons_state *)next;
    next += padded(width * (int64_t)sizeof(ons_state));
    for (int i = 0; i < 6; i++, next += padded(width * 8)) *arrays[i] = next;
    panel.staging = next;
    panel.kept = next + staging_bytes(plan);
    panel.rows.past_caches = plan->past_caches;
    int across = outer_dims(problem) - 1;
    if (across >= 0) {
        panel.x_across = problem->x.stride[across];
        panel.y_across = problem->y.stride[across];
        panel.where_across = problem->where.stride[across];
    }
    for (int64_t i = 0; i < width; i++) panel.scale[i] = problem->scale_by;
    return panel;
}

void ons_panel_at(ons_panel *panel, int64_t index) {
    const ons_problem *problem = panel->problem;
    int64_t x = 0, y = 0, where = 0, scale = 0, scale_across = 0;
    int last = outer_dims(problem) - 1;
    panel->rows.width = 1;
    if (last >= 0) {
        int64_t count = panels_across(problem, panel->plan), width = panel->plan->width;
        int64_t first = (last > 0 ? index % count : index) * width;
        int64_t left = rows_across(problem) - first;
        if (last > 0) index /= count;
        panel->rows.width = left < width ? left : width;
        x = first * panel->x_across;
        y = first * panel->y_across;
        where = first * panel->where_across;
        scale_across = problem->scale.stride[last];
        scale = first * scale_across;
        last--;
    }
    for (int dim = last; dim >= 0; dim--) {
        int64_t i = dim == 0 ? index : index % problem->extent[dim];
        if (dim > 0) index /= problem->extent[dim];
        x += i * problem->x.stride[dim];
        y += i * problem->y.stride[dim];
        where += i * problem->where.stride[dim];
        scale += i * problem->scale.stride[dim];
    }
    panel->x = problem->x.data + x;
    panel->y = problem->y.data + y;
    panel->where = problem->where.data ? problem->where.data + where : NULL;
    panel->anchored = false;
    for (int64_t i = 0; !panel->plan->whole_rows && i < panel->rows.width; i++) {
        panel->rows.state[i] = ons_state_empty();
        if (problem->scale.data)
            memcpy(&panel->scale[i], problem->scale.data + scale + i * scale_across,
                   sizeof(double));
    }
}

/* Element j of the rows as they lie in x, where they lie as in a tile. */
static ons_tile in_memory(const ons_panel *panel, int64_t j) {
    const ons_problem *problem = panel->problem;
    int64_t along = problem->x.stride[problem->dims - 1];
    bool row_form = panel->plan->form == ONS_ROW_FORM;
    if (problem->reduced_dims > 1) return ONS_NO_TILE;
    if (row_form && along != ons_dtype_size(problem->x.dtype)) return ONS_NO_TILE;
    return (ons_tile){(char *)panel->x + j * along, along, panel->x_across};
}

ons_tile ons_panel_next_tile(const ons_panel *panel, int64_t j) { return in_memory(panel, j); }

/* Across the rows first; from the last of them on to the next in memory, as a rule. */
ons_tile ons_panel_next_panel(const ons_panel *panel, int64_t j) {
    ons_tile next = in_memory(panel, j);
    const ons_problem *problem = panel->problem;
    if (!next.data) return next;
    int last = outer_dims(problem) - 1;
    bool end = last > 0 && panels_across(problem, panel->plan) == 1;
    next.data = (char *)next.data +
                (end ? problem->x.stride[last - 1] : panel->plan->width * panel->x_across);
    return next;
}

typedef struct {
    const ons_job *job;
    ons_panel_body *body;
} each_panel;

static void run_panels(void *context, int worker, int64_t begin, int64_t end) {
    const each_panel *each = context;
    ons_panel panel = ons_panel_of(each->job, worker);
    for (int64_t i = begin; i < end; i++) {
        ons_panel_at(&panel, i);
        each->body(&panel);
    }
}

void ons_for_each_panel(const ons_job *job, ons_panel_body *body) {
    each_panel each = {job, body};
    int64_t count = ons_panel_count(job->problem, job->plan);
    int64_t grain = job->plan->threads > 1 ? count / (8 * job->plan->threads) + 1 : count;
    ons_parallel_for(count, grain, job->plan->threads, run_panels, &each);
}

/* Bytes from element 0 of a row to element j. */
static int64_t offset_of(const ons_problem *problem, const ons_operand *operand, int64_t j) {
    int first = outer_dims(problem);
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
                  problem->x.stride[inner],
                  problem->y.stride[inner],
                  problem->where.stride[inner]};
}

/* for (line at) over elements [begin, end) of all rows of the panel */
#define FOR_EACH_LINE(panel, begin, end, at)                                                       \
    for (int64_t row_ = 0; row_ < ((panel)->plan->form == ONS_ROW_FORM ? (panel)->rows.width : 1); \
         row_++)                                                                                   \
        for (line at = line_at(panel, row_, begin, end); at.j < (end);                             \
             at = at.j + at.elements < (end) ? line_at(panel, row_, at.j + at.elements, end)       \
                                             : (line){.j = (end)})

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

static bool is_scaled(const ons_panel *panel) {
    return panel->problem->scale.data || panel->problem->scale_by != 1.0;
}

/* Makes the line's elements at `values` the given value where the mask is 0. */
static void exclude(const ons_panel *panel, const line *at, char *values, double value) {
    if (!panel->where) return;
    const char *where = panel->where + at->row * panel->where_across +
                        offset_of(panel->problem, &panel->problem->where, at->j);
    panel->move->exclude(values, where, at->where_step, value, at->count);
}

static ons_tile load_into(ons_panel *panel, ons_tile tile, int64_t j, int64_t n) {
    const ons_problem *problem = panel->problem;
    bool each = panel->plan->form == ONS_COLUMN_FORM;
    FOR_EACH_LINE(panel, j, j + n, at) {
        char *to = (char *)tile.data + at.row * tile.across + (at.j - j) * tile.along;
        const char *x = panel->x + at.row * panel->x_across + offset_of(problem, &problem->x, at.j);
        panel->move->load(to, x, at.x_step, problem->x.dtype, at.count);
        if (is_scaled(panel)) panel->move->multiply(to, panel->scale + at.row, each, at.count);
        if (panel->anchored) panel->move->subtract(to, panel->anchor + at.row, each, at.count);
        exclude(panel, &at, to, -INFINITY);
    }
    return tile;
}

ons_tile ons_panel_load(ons_panel *panel, int64_t j, int64_t n) {
    if (!panel->plan->x_direct || panel->anchored)
        return load_into(panel, ons_panel_scratch(panel), j, n);
    int64_t along = panel->problem->x.stride[panel->problem->dims - 1];
    return (ons_tile){(char *)panel->x + j * along, along, panel->x_across};
}

ons_tile ons_panel_load_to_keep(ons_panel *panel, int64_t j, int64_t n) {
    if (panel->plan->x_direct && !panel->anchored) return ons_panel_load(panel, j, n);
    return load_into(panel, ons_panel_kept(panel, j), j, n);
}

ons_tile ons_panel_result(ons_panel *panel, int64_t j) {
    if (!panel->plan->y_direct) return ons_panel_scratch(panel);
    int64_t along = panel->problem->y.stride[panel->problem->dims - 1];
    return (ons_tile){panel->y + j * along, along, panel->y_across};
}

void ons_panel_store(ons_panel *panel, int64_t j, int64_t n) {
    const ons_problem *problem = panel->problem;
    if (panel->plan->y_direct) return;
    ons_tile tile = ons_panel_scratch(panel);
    FOR_EACH_LINE(panel, j, j + n, at) {
        char *from = (char *)tile.data + at.row * tile.across + (at.j - j) * tile.along;
        char *y = panel->y + at.row * panel->y_across + offset_of(problem, &problem->y, at.j);
        exclude(panel, &at, from, 0.0);
        panel->move->store(y, at.y_step, problem->y.dtype, from, at.count);
    }
}

ons_tile ons_panel_kept(ons_panel *panel, int64_t j) {
    if (!panel->plan->keeps_apart) return ons_panel_result(panel, j);
    ons_tile kept = room_at(panel, panel->kept, panel->plan->N);
    kept.data = (char *)kept.data + j * kept.along;
    return kept;
}

ons_run_of_rows ons_panel_run(const ons_panel *panel) {
    const ons_plan *plan = panel->plan;
    int64_t size = item_size(plan);
    int64_t stored = ons_dtype_size(panel->problem->x.dtype);
    return (ons_run_of_rows){.x = {(char *)panel->x, stored, panel->x_across},
                             .y = {panel->y, stored, panel->y_across},
                             .count = panel->rows.width,
                             .N = plan->N,
                             .kept = panel->kept,
                             .pitch = padded(plan->N * size) / size,
                             .past_caches = plan->past_caches};
}

void ons_panel_refer(ons_panel *panel) {
    ons_rows *rows = &panel->rows;
    for (int64_t i = 0; i < rows->width; i++) ons_state_raise(&rows->state[i], rows->state[i].m);
    panel->primitives->refer(rows);
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
    for (int64_t i = 0; i < panel->rows.width; i++) panel->rows.state[i] = ons_state_empty();
    return true;
}
