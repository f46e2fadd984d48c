/* safe.c - three passes: the maximum; the sum of e^(x - m); divide. Each reads the row from memory.
 * Milakov and Gimelshein, arXiv 1805.02867, algorithm 2. Any row length. */
#include "panel.h"

static void safe(ons_panel *panel) {
    const ons_primitives *primitives = panel->primitives;
    int64_t N = panel->plan->N;
    do {
        ONS_FOR_EACH_TILE(panel, 0, N, j, n)
        primitives->max(&panel->rows, ONS_NO_TILE, ons_panel_load(panel, j, n), n);
    } while (ons_panel_anchor(panel));
    ons_panel_refer(panel);

    ONS_FOR_EACH_TILE(panel, 0, N, j, n)
    primitives->sum_exp(&panel->rows, ons_panel_load(panel, j, n), n);
    primitives->normalize(&panel->rows);

    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        ons_tile x = ons_panel_load(panel, j, n);
        primitives->finish(&panel->rows, ons_panel_result(panel, j), x, n);
        ons_panel_store(panel, j, n);
    }
    if (panel->rows.past_caches) primitives->settle();
}

void ons_cpu_safe(const ons_job *job) { ons_for_each_panel(job, safe); }
