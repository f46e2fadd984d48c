/* exact.c - the exact values, rounded once: three passes in double, for the maximum, the sum of e^(x - m) and the
 * results. Where a double is too close to the middle of two results, two doubles decide (api/rounding.h). So
 * neither the order of the sum nor the exponential shows in a result. Row form. */
#include "online.h"
#include "topk.h"

#include <string.h>

typedef struct {
    ons_rounded_row in_double;
    ons_two_row in_two; /* once `decides` */
    bool finite;        /* its maximum is */
    bool undecided;     /* one of its results is */
    bool decides;
} exact_row;

static bool is_log(const ons_strip *strip) {
    return strip->problem->operation == ONS_OPERATION_log_softmax || strip->problem->log;
}

/* Element j of row i of a tile. */
static float *at(ons_tile tile, int64_t i, int64_t j) {
    return (float *)(void *)((char *)tile.data + i * tile.across) + j;
}

static void find_maxima(ons_strip *strip) {
    if (strip->candidates) {
        do {
            ons_online_statistics(strip, 0, strip->plan->N);
        } while (ons_strip_anchor(strip));
        return;
    }
    ONS_FOR_EACH_TILE(strip, 0, strip->plan->N, j, n)
    strip->primitives->max(&strip->rows, ONS_NO_TILE, ons_strip_load(strip, j, n), n);
}

static void add_up(ons_strip *strip, exact_row *rows) {
    const ons_rounded_kernels *kernels = strip->kernels->rounded;
    for (int64_t i = 0; i < strip->rows.width; i++) {
        const double m = strip->rows.state[i].m + (strip->anchored ? strip->anchor[i] : 0.0);
        rows[i].in_double = ons_rounded_row_of(m, strip->problem->operand[ONS_Y].dtype);
        rows[i].undecided = rows[i].decides = false;
        rows[i].finite = isfinite(m);
        if (rows[i].finite) rows[i].in_double.top = kernels->top(&rows[i].in_double);
    }
    strip->anchored = false; /* the sums take elements as they are */
    ONS_FOR_EACH_TILE(strip, 0, strip->plan->N, j, n) {
        const ons_tile x = ons_strip_load(strip, j, n);
        for (int64_t i = 0; i < strip->rows.width; i++)
            if (rows[i].finite) kernels->sum(&rows[i].in_double, at(x, i, 0), n);
    }
    for (int64_t i = 0; i < strip->rows.width; i++)
        rows[i].in_double.second =
            is_log(strip) ? ons_rounded_log(&rows[i].in_double) : ons_rounded_inverse(&rows[i].in_double);
}

/* Adds up the rows that have undecided results in two doubles. */
static void add_up_undecided(ons_strip *strip, exact_row *rows) {
    for (int64_t i = 0; i < strip->rows.width; i++)
        if (rows[i].undecided) rows[i].in_two = ons_two_row_of(rows[i].in_double.m);
    ONS_FOR_EACH_TILE(strip, 0, strip->plan->N, j, n) {
        const ons_tile x = ons_strip_load(strip, j, n);
        for (int64_t i = 0; i < strip->rows.width; i++)
            if (rows[i].undecided) strip->kernels->rounded->two_sum(&rows[i].in_two, at(x, i, 0), n);
    }
    for (int64_t i = 0; i < strip->rows.width; i++) {
        if (rows[i].undecided) ons_two_row_end(&rows[i].in_two);
        rows[i].decides = rows[i].undecided;
    }
}

static bool any_undecided(const ons_strip *strip, const exact_row *rows) {
    bool any = false;
    for (int64_t i = 0; i < strip->rows.width; i++) any |= rows[i].undecided;
    return any;
}

/* Results of n elements of a row. y may be x, and NULL. */
static void finish(const ons_strip *strip, exact_row *row, float *y, const float *x, int64_t n) {
    enum { AT_ONCE = 256 };
    const ons_rounded_kernels *kernels = strip->kernels->rounded;
    ons_rounded_finish_fn *in_double = is_log(strip) ? kernels->log_softmax : kernels->softmax;
    if (!row->finite) {
        for (int64_t j = 0; y && j < n; j++) y[j] = NAN;
    } else if (y && !row->decides) {
        row->undecided |= in_double(&row->in_double, y, x, n);
    } else {
        for (int64_t first = 0, some; first < n; first += some) {
            float done[AT_ONCE];
            some = n - first < AT_ONCE ? n - first : AT_ONCE;
            row->undecided |= in_double(&row->in_double, done, x + first, some);
            for (int64_t j = 0; row->decides && j < some; j++)
                if (isnan(done[j]))
                    done[j] = (float)(is_log(strip) ? ons_two_log_softmax : ons_two_softmax)(
                        &row->in_two, (double)x[first + j], row->in_double.to);
            if (y) memcpy(y + first, done, (size_t)some * sizeof *y);
        }
    }
}

/* All results; with `stores` they are stored. */
static void finish_tiles(ons_strip *strip, exact_row *rows, bool stores) {
    ONS_FOR_EACH_TILE(strip, 0, strip->plan->N, j, n) {
        const ons_tile x = ons_strip_load(strip, j, n);
        const ons_tile y = stores ? ons_strip_result(strip, j) : ONS_NO_TILE;
        for (int64_t i = 0; i < strip->rows.width; i++)
            finish(strip, &rows[i], stores ? at(y, i, 0) : NULL, at(x, i, 0), n);
        if (stores) ons_strip_store(strip, j, n);
    }
}

static void finish_rows(ons_strip *strip, exact_row *rows) {
    /* in place, the elements are needed until all results are known to be decided */
    const bool in_place = strip->problem->operand[ONS_X].data == strip->problem->operand[ONS_Y].data;
    finish_tiles(strip, rows, !in_place);
    const bool undecided = any_undecided(strip, rows);
    if (undecided) add_up_undecided(strip, rows);
    if (undecided || in_place) finish_tiles(strip, rows, true);
}

static void finish_selected(ons_strip *strip, exact_row *rows) {
    const int64_t k = strip->plan->k;
    ons_topk_select(strip);
    const ons_tile x = {strip->selected.values, sizeof(float), k * (int64_t)sizeof(float)};
    for (int64_t i = 0; i < strip->rows.width; i++) finish(strip, &rows[i], NULL, at(x, i, 0), k);
    if (any_undecided(strip, rows)) add_up_undecided(strip, rows);
    for (int64_t i = 0; i < strip->rows.width; i++)
        finish(strip, &rows[i], at(x, i, 0), at(x, i, 0), k);
}

static void store_values(ons_strip *strip, exact_row *rows) {
    float value[ONS_MAX_WIDTH];
    for (int64_t i = 0; i < strip->rows.width; i++) {
        const double m = rows[i].in_double.m;
        value[i] = (float)(rows[i].finite ? ons_rounded_logsumexp(&rows[i].in_double) : m);
        rows[i].undecided = rows[i].finite && isnan(value[i]);
    }
    if (any_undecided(strip, rows)) add_up_undecided(strip, rows);
    for (int64_t i = 0; i < strip->rows.width; i++) {
        if (rows[i].decides)
            value[i] = (float)ons_two_logsumexp(&rows[i].in_two, rows[i].in_double.to);
        ons_strip_store_value(strip, i, &value[i]);
    }
}

static void exact(ons_strip *strip) {
    exact_row rows[ONS_MAX_WIDTH];
    find_maxima(strip);
    const bool anchored = strip->anchored;
    add_up(strip, rows);
    if (strip->candidates) {
        finish_selected(strip, rows);
        strip->anchored = anchored;
        ons_topk_store(strip);
    } else if (ons_operations[strip->problem->operation].one_a_row) {
        store_values(strip, rows);
    } else {
        finish_rows(strip, rows);
    }
}

void ons_cpu_exact(const ons_job *job) { ons_for_each_strip(job, exact); }
