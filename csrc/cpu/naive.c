/* naive.c - exp, sum, divide, without the maximum and in the array's own type: e^x is inf from 88.8
 * in float32 and from 11.1 in float16, and inf / inf is NaN. What the other methods are measured
 * against. */
#include "rows/panel.h"

/* Rounds a tile of the compute type to the array's own. */
static void round_to_own(const ons_panel *panel, ons_tile tile, int64_t n) {
    ons_dtype own = panel->problem->operand[ONS_X].dtype;
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

/* Elements j to j + n in the array's own type. */
static ons_tile elements(ons_panel *panel, int64_t j, int64_t n) {
    ons_tile x = ons_panel_load(panel, j, n);
    if (!panel->plan->x_direct) round_to_own(panel, x, n); /* a scaled x */
    return x;
}

static void exponentials_of(ons_panel *panel, ons_tile to, ons_tile x, int64_t n) {
    panel->primitives->exp(&panel->rows, to, x, n);
    round_to_own(panel, to, n);
}

static double rounded(const ons_panel *panel, double value) {
    ons_dtype own = panel->problem->operand[ONS_X].dtype;
    if (ons_dtype_size(own) != 2) return value; /* to be rounded to the compute type */
    char bits[2];
    float v = (float)value;
    panel->move->store(bits, 2, own, &v, 1);
    panel->move->load(&v, bits, 2, own, 1);
    return (double)v;
}

/* What the results need of each row, from its sum. */
static void end_rows(ons_panel *panel) {
    for (int64_t i = 0; i < panel->rows.width; i++) {
        ons_state *state = &panel->rows.state[i];
        double d = isfinite(state->d) ? state->d + state->d_beyond : state->d;
        if (panel->plan->compute == ONS_FLOAT32) d = (double)(float)d;
        state->d = rounded(panel, panel->ending->plain_row(rounded(panel, d)));
    }
}

static void store_values(ons_panel *panel) {
    for (int64_t i = 0; i < panel->rows.width; i++) {
        double value = panel->rows.state[i].d;
        float nearest = (float)value;
        const void *from = panel->plan->compute == ONS_FLOAT32 ? (void *)&nearest : (void *)&value;
        ons_panel_store_value(panel, i, from);
    }
}

static void naive(ons_panel *panel) {
    bool exponentials = ons_operations[panel->problem->operation].keeps == ONS_KEEP_EXPONENTIALS;
    int64_t N = panel->plan->N;
    ons_tile e = ons_panel_scratch(panel);
    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        exponentials_of(panel, e, elements(panel, j, n), n);
        panel->primitives->sum(&panel->rows, e, n);
        ons_panel_end_tile(panel, j + n, N, true);
    }
    end_rows(panel);
    if (!panel->ending->finish_plain) {
        store_values(panel);
        return;
    }
    ONS_FOR_EACH_TILE(panel, 0, N, j, n) {
        ons_tile y = ons_panel_result(panel, j), kept = elements(panel, j, n);
        if (exponentials) {
            exponentials_of(panel, y, kept, n);
            kept = y;
        }
        panel->ending->finish_plain(&panel->rows, y, kept, n);
        round_to_own(panel, y, n);
        ons_panel_store(panel, j, n);
    }
}

void ons_cpu_naive(const ons_job *job) { ons_for_each_panel(job, naive); }
