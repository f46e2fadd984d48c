/* fused.c - the row is read from memory once and stays in the caches: its maximum, then one
 * exponential an element, kept and summed, then divide. Rows that outgrow the caches come out
 * right, only slower. */
#include "panel.h"

/* Fewer rows than these leave most of a group empty; rows of more than a block lose by what begins
 * and ends a run of groups unless they are more. */
enum { GROUPED_ROWS = 6, GROUPED_LONG_ROWS = 64 };

static void fused(ons_panel *panel) {
    const ons_primitives *primitives = panel->primitives;
    int64_t N = panel->plan->N;
    do {
        ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
            ons_tile x = ons_panel_load_to_keep(panel, j, n);
            primitives->max(&panel->rows, ons_panel_kept(panel, j), x, n);
        }
    } while (ons_panel_anchor(panel));
    ons_panel_refer(panel);

    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        ons_tile x = ons_panel_kept(panel, j);
        panel->rows.next = ons_panel_next_panel(panel, j); /* fetched while the core is busy */
        primitives->exp_store_sum(&panel->rows, x, x, n);
    }
    primitives->normalize(&panel->rows);

    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        primitives->scale(&panel->rows, ons_panel_result(panel, j), ons_panel_kept(panel, j), n);
        ons_panel_store(panel, j, n);
    }
    if (panel->rows.past_caches) primitives->settle();
}

static void whole_rows(ons_panel *panel) {
    ons_run_of_rows run = ons_panel_run(panel);
    const ons_kernels *kernels = panel->kernels;
    ons_dtype dtype = panel->problem->y.dtype;
    bool wide = panel->plan->compute == ONS_FLOAT64;
    int64_t block = wide ? ONS_BLOCK_F64 : ONS_BLOCK_F32;
    int64_t fewest = run.N > block ? GROUPED_LONG_ROWS : GROUPED_ROWS;
    ons_softmax_rows_fn *softmax = ons_has_short_rows(panel->plan) ? kernels->softmax_short_rows
                                   : run.N > kernels->longest_grouped || run.count < fewest
                                       ? kernels->softmax_rows[dtype]
                                   : run.N > block ? kernels->softmax_long_groups[dtype]
                                                   : kernels->softmax_groups[dtype];
    if (softmax(&run)) ons_panel_exclude_from_nan(panel);
}

static void whole_columns(ons_panel *panel, int64_t begin, int64_t end) {
    ons_run_of_columns run = ons_panel_columns(panel, begin, end);
    const ons_kernels *kernels = panel->kernels;
    bool nan = (ons_has_short_rows(panel->plan) ? kernels->softmax_short_columns
                                                : kernels->softmax_columns)(&run);
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
