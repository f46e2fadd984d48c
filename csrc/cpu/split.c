/* split.c - several threads share one row. Each block of ONS_BLOCK elements gets its own (m,
 * d); the pairs of a row are merged in the order of its blocks, so the result does not depend on
 * how many threads there were; then the threads divide. Milakov and Gimelshein, arXiv 1805.02867,
 * section 3.1. */
#include "online.h"
#include "split.h"

typedef struct {
    const ons_job *job;
    int64_t first, blocks; /* the batch's first panel; blocks of a row */
    bool anchored;
    ons_state *partial, *merged; /* of each block of each row of the batch; of each row */
    double *anchor;              /* of each row */
} batch;

/* An empty row has one too. */
static int64_t blocks_of(const ons_plan *plan) {
    return plan->N > 0 ? (plan->N + ONS_BLOCK - 1) / ONS_BLOCK : 1;
}

/* Panels whose statistics are taken together: as many as give every thread a few blocks. */
static int64_t panels_in_batch(const ons_plan *plan) {
    return ONS_SPLIT_PAIRS / blocks_of(plan) + 1;
}

int64_t ons_split_shared_bytes(const ons_plan *plan) {
    int64_t rows = panels_in_batch(plan) * plan->width;
    return rows *
           (int64_t)((blocks_of(plan) + 1) * (int64_t)sizeof(ons_state) + (int64_t)sizeof(double));
}

/* The panel and the elements of unit `unit` of the batch: one block of the rows of one panel. */
static void panel_of_unit(const batch *batch, ons_panel *panel, int64_t unit, int64_t *begin,
                          int64_t *end) {
    int64_t index = unit / batch->blocks, width = panel->plan->width;
    ons_panel_at(panel, batch->first + index);
    panel->anchored = batch->anchored;
    for (int64_t i = 0; i < panel->rows.width; i++)
        panel->anchor[i] = batch->anchor[index * width + i];
    *begin = unit % batch->blocks * ONS_BLOCK;
    *end = panel->plan->N - *begin < ONS_BLOCK ? panel->plan->N : *begin + ONS_BLOCK;
}

static void take_statistics(void *context, int worker, int64_t first, int64_t last) {
    const batch *batch = context;
    ons_panel panel = ons_panel_of(batch->job, worker);
    for (int64_t unit = first; unit < last; unit++) {
        int64_t begin, end;
        panel_of_unit(batch, &panel, unit, &begin, &end);
        ons_online_statistics(&panel, begin, end);
        /* the last panel may be of fewer rows: what they lack is empty */
        int64_t width = panel.plan->width;
        for (int64_t i = 0; i < width; i++)
            batch->partial[unit * width + i] =
                i < panel.rows.width ? panel.rows.state[i] : ons_state_empty();
    }
}

static void divide(void *context, int worker, int64_t first, int64_t last) {
    const batch *batch = context;
    ons_panel panel = ons_panel_of(batch->job, worker);
    for (int64_t unit = first; unit < last; unit++) {
        int64_t begin, end, row = unit / batch->blocks * panel.plan->width;
        panel_of_unit(batch, &panel, unit, &begin, &end);
        for (int64_t i = 0; i < panel.rows.width; i++) panel.rows.state[i] = batch->merged[row + i];
        ons_online_finish(&panel, begin, end);
    }
}

/* True where a row must be taken relative to its m (ons_panel_anchor), for which all are taken
 * again. */
static bool merge_and_anchor(batch *batch, int64_t panels) {
    int64_t width = batch->job->plan->width;
    bool far = false;
    for (int64_t row = 0; row < panels * width; row++) {
        ons_state merged = ons_state_empty();
        for (int64_t b = 0; b < batch->blocks; b++)
            merged = ons_state_merge(
                merged, batch->partial[(row / width * batch->blocks + b) * width + row % width]);
        batch->merged[row] = merged;
        if (batch->anchored) continue;
        bool this_one = ons_needs_anchor(merged.m);
        batch->anchor[row] = this_one ? merged.m : 0.0;
        far |= this_one;
    }
    batch->anchored |= far;
    return far;
}

void ons_cpu_split(const ons_job *job) {
    const ons_plan *plan = job->plan;
    int64_t count = ons_panel_count(job->problem, plan), most = panels_in_batch(plan);
    int64_t rows = most * plan->width;
    batch batch = {.job = job, .blocks = blocks_of(plan)};
    batch.partial = (ons_state *)(job->workspace + plan->threads * ons_panel_bytes(plan));
    batch.merged = batch.partial + rows * batch.blocks;
    batch.anchor = (double *)(batch.merged + rows);
    for (int64_t first = 0; first < count; first += most) {
        int64_t panels = count - first < most ? count - first : most, units = panels * batch.blocks;
        int64_t grain = units / (8 * plan->threads) + 1;
        batch.first = first;
        batch.anchored = false;
        for (int64_t row = 0; row < rows; row++) batch.anchor[row] = 0.0;
        do {
            ons_parallel_for(units, grain, plan->threads, take_statistics, &batch);
        } while (merge_and_anchor(&batch, panels));
        ons_parallel_for(units, grain, plan->threads, divide, &batch);
    }
}
