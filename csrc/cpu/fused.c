/* fused.c - the row is read from memory once and stays in the caches: its maximum, then one
 * exponential an element, kept and summed, then divide. Rows that outgrow the caches come out
 * right, only slower. */
#include "panel.h"

static void fused(ons_panel *panel) {
    const ons_primitives *primitives = panel->primitives;
    int64_t N = panel->plan->N;
    do {
        ONS_FOR_EACH_TILE(panel, 0, N, j, n)
        primitives->max(&panel->rows, ons_panel_load(panel, j, n), n);
    } while (ons_panel_anchor(panel));
    for (int64_t i = 0; i < panel->rows.width; i++)
        ons_state_raise(&panel->rows.state[i], panel->rows.state[i].m);
    primitives->refer(&panel->rows);
    panel->rows.ahead =
        ons_panel_next_row(panel); /* read while the exponentials keep the core busy */

    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        ons_tile x = ons_panel_load(panel, j, n);
        primitives->exp_store_sum(&panel->rows, ons_panel_kept(panel, j), x, n);
    }
    primitives->normalize(&panel->rows);

    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        primitives->scale(&panel->rows, ons_panel_result(panel, j), ons_panel_kept(panel, j), n);
        ons_panel_store(panel, j, n);
    }
}

void ons_cpu_fused(const ons_job *job) { ons_for_each_panel(job, fused); }
