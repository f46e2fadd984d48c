/* panel.c - how rows arrive at the primitives and leave them. */
#include "panel.h"

#include <string.h>

static int64_t padded(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

static int64_t item_size(const ons_plan *plan) { return ons_dtype_size(plan->compute); }

static int64_t staging_bytes(const ons_plan *plan) {
    int64_t n = plan->tile < plan->N ? plan->tile : plan->N;
    return padded(n * plan->width * item_size(plan));
}

static int64_t kept_bytes(const ons_plan *plan) {
    bool apart =
        ons_methods[plan->method].keeps == ONS_KEEPS_ROW && (!plan->y_direct || plan->past_caches);
    return apart ? padded(plan->N * plan->width * item_size(plan)) : 0;
}

/* Six arrays with at most 8 bytes a row beside the states. */
int64_t ons_panel_bytes(const ons_plan *plan) {
    int64_t width = plan->width;
    return padded(width * (int64_t)sizeof(ons_state)) + 6 * padded(width * 8) +
           staging_bytes(plan) + kept_bytes(plan);
}

static int outer_dims(const ons_problem *problem) { return problem->dims - problem->reduced_dims; }

/* In the column form the last outer dimension is the one across the panel. */
static int64_t panels_across(const ons_problem *problem, const ons_plan *plan) {
    if (plan->form == ONS_ROW_FORM) return 1;
    return (problem->extent[outer_dims(problem) - 1] + plan->width - 1) / plan->width;
}

int64_t ons_panel_count(const ons_problem *problem, const ons_plan *plan) {
    if (plan->form == ONS_ROW_FORM) return plan->rows;
    return plan->rows / problem->extent[outer_dims(problem) - 1] * panels_across(problem, plan);
}

ons_panel ons_panel_of(const ons_job *job, int worker) {
    const ons_problem *problem = job->problem;
    const ons_plan *plan = job->plan;
    ons_panel panel = {.problem = problem, .plan = plan, .move = &job->kernels->move};
    panel.primitives = plan->form == ONS_ROW_FORM ? &job->kernels->row : &job->kernels->column;
    char *next = job->workspace + worker * ons_panel_bytes(plan);
    void **arrays[] = {&panel.rows.shift,         &panel.rows.floor,     &panel.rows.factor,
                       &panel.rows.factor_beyond, (void **)&panel.scale, (void **)&panel.anchor};
    panel.rows.past_caches = plan->past_caches;
    panel.rows.state = (ons_state *)next;
    next += padded(plan->width * (int64_t)sizeof(ons_state));
    for (int i = 0; i < 6; i++, next += padded(plan->width * 8)) *arrays[i] = next;
    panel.staging = next;
    panel.kept = next + staging_bytes(plan);
    if (plan->form == ONS_COLUMN_FORM) {
        int across = outer_dims(problem) - 1;
        panel.x_across = problem->x.stride[across];
        panel.y_across = problem->y.stride[across];
        panel.where_across = problem->where.stride[across];
    }
    for (int64_t i = 0; i < plan->width; i++) panel.scale[i] = problem->scale_by;
    return panel;
}

void ons_panel_at(ons_panel *panel, int64_t index) {
    const ons_problem *problem = panel->problem;
    int64_t x = 0, y = 0, where = 0, scale = 0, scale_across = 0;
    int last = outer_dims(problem) - 1;
    panel->rows.width = 1;
    if (panel->plan->form == ONS_COLUMN_FORM) {
        int64_t across = panels_across(problem, panel->plan), width = panel->plan->width;
        int64_t first = index % across * width, left = problem->extent[last] - first;
        index /= across;
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
    for (int64_t i = 0; i < panel->rows.width; i++) {
        panel->rows.state[i] = ons_state_empty();
        if (problem->scale.data)
            memcpy(&panel->scale[i], problem->scale.data + scale + i * scale_across,
                   sizeof(double));
    }
}

int64_t ons_panel_next_row(const ons_panel *panel) {
    int outer = outer_dims(panel->problem);
    bool known = panel->plan->form == ONS_ROW_FORM && panel->plan->x_direct && outer > 0;
    return known ? panel->problem->x.stride[outer - 1] : 0;
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

/* A line: elements that lie one step apart in every operand. In the row form a stretch of the row,
 * up to where its innermost dimension ends; in the column form one element of each row. */
typedef struct {
    int64_t elements, count; /* of the row that it advances; in the line */
    int64_t x_step, y_step, where_step;
} line;

static line line_at(const ons_panel *panel, int64_t j, int64_t n) {
    const ons_problem *problem = panel->problem;
    if (panel->plan->form == ONS_COLUMN_FORM)
        return (line){1, panel->rows.width, panel->x_across, panel->y_across, panel->where_across};
    int inner = problem->dims - 1;
    int64_t left = problem->extent[inner] - j % problem->extent[inner], count = left < n ? left : n;
    return (line){count, count, problem->x.stride[inner], problem->y.stride[inner],
                  problem->where.stride[inner]};
}

ons_tile ons_panel_scratch(const ons_panel *panel) {
    return (ons_tile){panel->staging, panel->plan->width * item_size(panel->plan)};
}

static bool is_scaled(const ons_panel *panel) {
    return panel->problem->scale.data || panel->problem->scale_by != 1.0;
}

ons_tile ons_panel_load(ons_panel *panel, int64_t j, int64_t n) {
    const ons_problem *problem = panel->problem;
    if (panel->plan->x_direct && !panel->anchored) {
        int inner = problem->dims - 1;
        int64_t step = problem->x.stride[inner];
        return (ons_tile){(char *)panel->x + j * step, step};
    }
    ons_tile tile = ons_panel_scratch(panel);
    bool each = panel->plan->form == ONS_COLUMN_FORM;
    for (int64_t k = 0; k < n;) {
        line at = line_at(panel, j + k, n - k);
        char *to = (char *)tile.data + k * tile.pitch;
        panel->move->load(to, panel->x + offset_of(problem, &problem->x, j + k), at.x_step,
                          problem->x.dtype, at.count);
        if (is_scaled(panel)) panel->move->multiply(to, panel->scale, each, at.count);
        if (panel->anchored) panel->move->subtract(to, panel->anchor, each, at.count);
        if (panel->where)
            panel->move->exclude(to, panel->where + offset_of(problem, &problem->where, j + k),
                                 at.where_step, -INFINITY, at.count);
        k += at.elements;
    }
    return tile;
}

ons_tile ons_panel_result(ons_panel *panel, int64_t j) {
    if (!panel->plan->y_direct) return ons_panel_scratch(panel);
    int64_t step = panel->problem->y.stride[panel->problem->dims - 1];
    return (ons_tile){panel->y + j * step, step};
}

void ons_panel_store(ons_panel *panel, int64_t j, int64_t n) {
    const ons_problem *problem = panel->problem;
    if (panel->plan->y_direct) return;
    ons_tile tile = ons_panel_scratch(panel);
    for (int64_t k = 0; k < n;) {
        line at = line_at(panel, j + k, n - k);
        char *from = (char *)tile.data + k * tile.pitch;
        if (panel->where)
            panel->move->exclude(from, panel->where + offset_of(problem, &problem->where, j + k),
                                 at.where_step, 0.0, at.count);
        panel->move->store(panel->y + offset_of(problem, &problem->y, j + k), at.y_step,
                           problem->y.dtype, from, at.count);
        k += at.elements;
    }
}

ons_tile ons_panel_kept(ons_panel *panel, int64_t j) {
    if (panel->plan->y_direct && !panel->plan->past_caches) return ons_panel_result(panel, j);
    int64_t pitch = panel->plan->width * item_size(panel->plan);
    return (ons_tile){panel->kept + j * pitch, pitch};
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
