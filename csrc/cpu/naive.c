/* naive.c - exp, sum, divide, without the maximum and in the array's own type: e^x is inf from 88.8
 * in float32 and from 11.1 in float16, and inf / inf is NaN. What the other methods are measured
 * against. */
#include "panel.h"

/* Rounds a tile of the compute type to the array's own. */
static void round_to_own(const ons_panel *panel, ons_tile tile, int64_t n) {
    ons_dtype own = panel->problem->x.dtype;
    if (own == panel->plan->compute) return;
    bool row_form = panel->plan->form == ONS_ROW_FORM;
    int64_t lines = row_form ? panel->rows.width : n, count = row_form ? n : panel->rows.width;
    int64_t pitch = row_form ? tile.across : tile.along;
    int64_t size = ons_dtype_size(panel->plan->compute);
    char rounded[2 * ONS_MAX_WIDTH];
    for (int64_t k = 0; k < lines; k++)
        for (int64_t i = 0; i < count; i += ONS_MAX_WIDTH) {
            char *part = (char *)tile.data + k * pitch + i * size;
            int64_t some = count - i < ONS_MAX_WIDTH ? count - i : ONS_MAX_WIDTH;
            panel->move->store(rounded, 2, own, part, some);
            panel->move->load(part, rounded, 2, own, some);
        }
}

/* The exponentials of elements j to j + n, at `to`. */
static void exponentials(ons_panel *panel, ons_tile to, int64_t j, int64_t n) {
    ons_tile x = ons_panel_load(panel, j, n);
    if (!panel->plan->x_direct) round_to_own(panel, x, n); /* a scaled x */
    panel->primitives->exp(&panel->rows, to, x, n);
    round_to_own(panel, to, n);
}

static void round_sum(const ons_panel *panel, ons_state *state) {
    if (isfinite(state->d)) state->d += state->d_beyond;
    if (ons_dtype_size(panel->problem->x.dtype) != 2) return; /* divide rounds to its own type */
    char rounded[2];
    float d = (float)state->d;
    panel->move->store(rounded, 2, panel->problem->x.dtype, &d, 1);
    panel->move->load(&d, rounded, 2, panel->problem->x.dtype, 1);
    state->d = (double)d;
}

static void naive(ons_panel *panel) {
    const ons_primitives *primitives = panel->primitives;
    int64_t N = panel->plan->N;
    ons_tile e = ons_panel_scratch(panel);
    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        exponentials(panel, e, j, n);
        primitives->sum(&panel->rows, e, n);
    }
    for (int64_t i = 0; i < panel->rows.width; i++) round_sum(panel, &panel->rows.state[i]);

    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        ons_tile y = ons_panel_result(panel, j);
        exponentials(panel, y, j, n);
        primitives->divide(&panel->rows, y, y, n);
        round_to_own(panel, y, n);
        ons_panel_store(panel, j, n);
    }
}

void ons_cpu_naive(const ons_job *job) { ons_for_each_panel(job, naive); }
