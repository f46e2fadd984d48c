/* fused.c - the row is read from memory once and stays in the caches: its maximum, then one
 * exponential an element, summed, then what is kept of it is finished. Rows that outgrow the caches
 * come out right, only slower. */
#include "rows/panel.h"

/* Fewer rows than these leave most of a group empty. */
enum { GROUPED_ROWS = 6 };

static void fused(ons_panel *panel) {
    const ons_primitives *primitives = panel->primitives;
    bool exponentials = ons_operations[panel->problem->operation].keeps == ONS_KEEP_EXPONENTIALS;
    int64_t N = panel->plan->N;
    do {
        ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
            ons_tile x = ons_panel_load_to_keep(panel, j, n);
            primitives->max(&panel->rows, ons_panel_kept(panel, j), x, n);
        }
    } while (ons_panel_anchor(panel));
    ons_panel_refer(panel);

    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        ons_tile kept = ons_panel_kept(panel, j);
        panel->rows.next = ons_panel_next_panel(panel, j); /* fetched while the core is busy */
        if (exponentials)
            primitives->exp_store_sum(&panel->rows, kept, kept, n);
        else
            primitives->sum_exp(&panel->rows, kept, n);
        ons_panel_end_tile(panel, j + n, N, false);
    }
    if (!panel->ending->finish) {
        ons_panel_store_values(panel);
        return;
    }
    panel->ending->end_rows(&panel->rows);
    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        ons_tile kept = ons_panel_kept(panel, j);
        panel->ending->finish_kept(&panel->rows, ons_panel_result(panel, j), kept, n);
        ons_panel_store(panel, j, n);
    }
    if (panel->rows.past_caches) primitives->settle();
}

static void whole_rows(ons_panel *panel) {
    ons_run_of_rows run = ons_panel_run(panel);
    const ons_pipelines *pipelines = panel->pipelines;
    ons_dtype dtype = panel->problem->operand[ONS_Y].dtype;
    bool grouped = run.N <= panel->kernels->longest_grouped &&
                   (run.count >= GROUPED_ROWS || !pipelines->rows[dtype]);
    ons_run_rows_fn *run_rows = ons_has_short_rows(panel->plan) ? pipelines->short_rows
                                : grouped                       ? pipelines->groups[dtype]
                                                                : pipelines->rows[dtype];
    if (run_rows(&run) && panel->ending->finish) ons_panel_exclude_from_nan(panel);
}

static void whole_columns(ons_panel *panel, int64_t begin, int64_t end) {
    ons_run_of_columns run = ons_panel_columns(panel, begin, end);
    const ons_pipelines *pipelines = panel->pipelines;
    bool nan =
        (ons_has_short_rows(panel->plan) ? pipelines->short_columns : pipelines->columns)(&run);
    for (int64_t i = begin; i < end && nan; i++) {
        ons_panel_at(panel, i);
        ons_panel_exclude_from_columns(panel);
    }
}

void ons_cpu_fused(const ons_job *job) {
    if (job->plan->whole_columns)
        ons_for_each_stretch(job, whole_columns);
    else
        ons_for_each_panel(job, job->plan->whole_rows ? whole_rows : fused);
}
