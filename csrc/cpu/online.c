/* online.c - two passes: the running (m, d), tile by tile; divide. Milakov and Gimelshein, arXiv
 * 1805.02867, algorithm 3, with a tile in the place of an element. Any row length. */
#include "online.h"

void ons_online_statistics(ons_panel *panel, int64_t begin, int64_t end) {
    ons_rows *rows = &panel->rows;
    ONS_FOR_EACH_TILE(panel, begin, end, j, n) {
        ons_tile x = ons_panel_load(panel, j, n);
        panel->primitives->max(rows, ONS_NO_TILE, x, n);
        ons_panel_refer(panel); /* d * e^(m - m'): the same sum, relative to the new maximum */
        rows->next = ons_panel_next_tile(panel, j + n); /* fetched while the core is busy */
        panel->primitives->sum_exp(rows, x, n);
        ons_panel_end_tile(panel, j + n, end, false);
    }
}

void ons_online_finish(ons_panel *panel, int64_t begin, int64_t end) {
    if (!panel->ending->finish) {
        if (begin == 0) ons_panel_store_values(panel);
        return;
    }
    panel->primitives->refer(&panel->rows);
    panel->ending->end_rows(&panel->rows);
    ONS_FOR_EACH_TILE(panel, begin, end, j, n) {
        ons_tile x = ons_panel_load(panel, j, n);
        panel->rows.next = ons_panel_next_tile(panel, j + n);
        panel->ending->finish(&panel->rows, ons_panel_result(panel, j), x, n);
        ons_panel_store(panel, j, n);
    }
    if (panel->rows.past_caches) panel->primitives->settle();
}

static void online(ons_panel *panel) {
    do {
        ons_online_statistics(panel, 0, panel->plan->N);
    } while (ons_panel_anchor(panel));
    ons_online_finish(panel, 0, panel->plan->N);
}

void ons_cpu_online(const ons_job *job) { ons_for_each_panel(job, online); }
