/* naive.c - exp, sum, divide, without the maximum and in the array's own type: e^x is inf from 88.8
 * in float32 and from 11.1 in float16, and inf / inf is NaN. The other methods are measured against
 * it. Milakov and Gimelshein, arXiv 1805.02867, algorithm 1. */
#include "strip/strip.h"

static ons_tile elements(ons_strip *strip, int64_t j, int64_t n);
static void exponentials_of(ons_strip *strip, ons_tile to, ons_tile x, int64_t n);
static void round_to_own(const ons_strip *strip, ons_tile tile, int64_t n);
static void end_rows(ons_strip *strip);
static void store_values(ons_strip *strip);

static void naive(ons_strip *strip) {
    bool exponentials = ons_operations[strip->problem->operation].keeps == ONS_KEEP_EXPONENTIALS;
    int64_t N = strip->plan->N;
    ons_tile e = ons_strip_scratch(strip);
    ONS_FOR_EACH_TILE(strip, 0, N, j, n) {
        exponentials_of(strip, e, elements(strip, j, n), n);
        strip->primitives->sum(&strip->rows, e, n);
        ons_strip_end_tile(strip, j + n, N, true);
    }
    end_rows(strip);
    if (!strip->epilogue->finish_plain) {
        store_values(strip);
        return;
    }
    ONS_FOR_EACH_TILE(strip, 0, N, j, n) {
        ons_tile y = ons_strip_result(strip, j), kept = elements(strip, j, n);
        if (exponentials) {
            exponentials_of(strip, y, kept, n);
            kept = y;
        }
        strip->epilogue->finish_plain(&strip->rows, y, kept, n);
        round_to_own(strip, y, n);
        ons_strip_store(strip, j, n);
    }
}

void ons_cpu_naive(const ons_job *job) { ons_for_each_strip(job, naive); }

/* Rounds a tile of the compute type to the array's own. */
static void round_to_own(const ons_strip *strip, ons_tile tile, int64_t n) {
    ons_dtype own = strip->problem->operand[ONS_X].dtype;
    if (own == strip->plan->compute) return;
    bool row_form = strip->plan->form == ONS_ROW_FORM;
    int64_t segments = row_form ? strip->rows.width : n, count = row_form ? n : strip->rows.width;
    int64_t pitch = row_form ? tile.across : tile.along;
    int64_t size = ons_dtype_size(strip->plan->compute);
    char rounded[2 * ONS_MAX_WIDTH];
    for (int64_t k = 0; k < segments; k++)
        for (int64_t i = 0; i < count; i += ONS_MAX_WIDTH) {
            char *part = (char *)tile.data + k * pitch + i * size;
            int64_t some = count - i < ONS_MAX_WIDTH ? count - i : ONS_MAX_WIDTH;
            strip->move->store(rounded, 2, own, part, some);
            strip->move->load(part, rounded, 2, own, some);
        }
}

/* Elements j to j + n in the array's own type. */
static ons_tile elements(ons_strip *strip, int64_t j, int64_t n) {
    ons_tile x = ons_strip_load(strip, j, n);
    if (!strip->plan->x_direct) round_to_own(strip, x, n); /* scaling has changed x */
    return x;
}

static void exponentials_of(ons_strip *strip, ons_tile to, ons_tile x, int64_t n) {
    strip->primitives->exp(&strip->rows, to, x, n);
    round_to_own(strip, to, n);
}

static double rounded(const ons_strip *strip, double value) {
    ons_dtype own = strip->problem->operand[ONS_X].dtype;
    if (ons_dtype_size(own) != 2) return value; /* the caller rounds it to the compute type */
    char bits[2];
    float v = (float)value;
    strip->move->store(bits, 2, own, &v, 1);
    strip->move->load(&v, bits, 2, own, 1);
    return (double)v;
}

/* Turns each row's sum into the number that its results need. */
static void end_rows(ons_strip *strip) {
    for (int64_t i = 0; i < strip->rows.width; i++) {
        ons_state *state = &strip->rows.state[i];
        double d = isfinite(state->d) ? state->d + state->d_low : state->d;
        if (strip->plan->compute == ONS_FLOAT32) d = (double)(float)d;
        state->d = rounded(strip, strip->epilogue->plain_row(rounded(strip, d)));
    }
}

static void store_values(ons_strip *strip) {
    for (int64_t i = 0; i < strip->rows.width; i++) {
        double value = strip->rows.state[i].d;
        float nearest = (float)value;
        const void *from = strip->plan->compute == ONS_FLOAT32 ? (void *)&nearest : (void *)&value;
        ons_strip_store_value(strip, i, from);
    }
}
