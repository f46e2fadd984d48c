/* safe.c - three passes: the maximum; the sum of e^(x - m); divide. Each reads the row from memory.
 * Milakov and Gimelshein, arXiv 1805.02867, algorithm 2. Any row length. */
#include "online.h"

static void safe(ons_panel *panel) {
    const ons_primitives *primitives = panel->primitives;
    int64_t N = panel->plan->N;
    do {
        ONS_FOR_EACH_TILE(panel, 0, N, j, n)
        primitives->max(&panel->rows, ONS_NO_TILE, ons_panel_load(panel, j, n), n);
    } while (ons_panel_anchor(panel));
    ons_panel_refer(panel);

    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        primitives->sum_exp(&panel->rows, ons_panel_load(panel, j, n), n);
        ons_panel_end_tile(panel, j + n, N, false);
    }
    ons_online_finish(panel, 0, N);
}

void ons_cpu_safe(const ons_job *job) { ons_for_each_panel(job, safe); }
