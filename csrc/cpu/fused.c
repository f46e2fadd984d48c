/* fused.c - the row is read from memory once and stays in the caches: its maximum, then one
 * exponential an element, kept and summed, then divide. Rows that outgrow the caches come out
 * right, only slower. */
#include "panel.h"

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
    int64_t block = panel->plan->compute == ONS_FLOAT32 ? ONS_BLOCK_F32 : ONS_BLOCK_F64;
    bool short_rows = run.N <= block && panel->plan->x_direct;
    (short_rows ? panel->kernels->softmax_short_rows
                : panel->kernels->softmax_rows[panel->problem->x.dtype])(&run);
}

void ons_cpu_fused(const ons_job *job) {
    ons_for_each_panel(job, job->plan->whole_rows ? whole_rows : fused);
}
