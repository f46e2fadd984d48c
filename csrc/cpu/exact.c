/* exact.c - the exact values, rounded once: three passes in double, for the maximum, the sum of
 * e^(x - m) and the results. Where a double is too close to the middle of two results, two doubles
 * decide (api/rounding.h). So neither the order of the sum nor the exponential shows in a result.
 * Row form. */
#include "online.h"
#include "topk.h"

#include <string.h>

typedef struct {
    ons_strip *strip;
    const ons_rounded_kernels *kernels;
    bool log;      /* the results are logarithms */
    bool given;    /* the states of the rows are given */
    bool anchored; /* the maxima in the states are relative to the strip's anchors */
    /* All elements of the strip, if its rows fit in one tile. Longer rows have a strip each. */
    ons_tile tile;
    double *e; /* room for the exponentials of a row, or NULL */
} exact_job;

static float *row_of(ons_tile tile, int64_t i) {
    return (float *)(void *)((char *)tile.data + i * tile.across);
}

/* Elements j to j + n of row i. */
static const float *elements(const exact_job *job, int64_t i, int64_t j, int64_t n) {
    return row_of(job->tile.data ? job->tile : ons_strip_load(job->strip, j, n), i);
}

/* The given state of row i. */
static ons_two_row given_row(const exact_job *job, int64_t i) {
    double state[ONS_TWO_ROW_VALUES];
    memcpy(state, job->strip->pairs + i * job->strip->pairs_across, sizeof state);
    return ons_two_row_from(state);
}

static double maximum(const exact_job *job, int64_t i) {
    if (job->given) return given_row(job, i).m;
    return job->strip->rows.state[i].m + (job->anchored ? job->strip->anchor[i] : 0.0);
}

static void add_up(const exact_job *job, int64_t i, ons_rounded_row *row, ons_rounded_sum_fn *sum) {
    ONS_FOR_EACH_TILE(job->strip, 0, job->strip->plan->N, j, n)
    sum(row, job->e ? job->e + j : NULL, elements(job, i, j, n), n);
}

static ons_rounded_row row_in_double(const exact_job *job, int64_t i) {
    ons_rounded_row row =
        ons_rounded_row_of(maximum(job, i), job->strip->problem->operand[ONS_Y].dtype);
    if (job->given) {
        const ons_two_row state = given_row(job, i);
        row.top = job->kernels->top(&row);
        row.n = state.n;
        row.s = ons_two_times(state.s, ons_two_of(row.top));
        row.second = job->log ? ons_rounded_log(&row) : ons_rounded_inverse(&row);
        return row;
    }
    add_up(job, i, &row, job->kernels->sum);
    if (job->log) {
        row.top = job->kernels->top(&row);
        /* log(d) of a d near 1 needs all digits of d - 1 */
        if (row.s.high < 2 * row.top) {
            row.s = ons_two_of(0.0);
            add_up(job, i, &row, job->kernels->sum_apart);
        }
    }
    row.second = job->log ? ons_rounded_log(&row) : ons_rounded_inverse(&row);
    return row;
}

static ons_two_row row_in_two(const exact_job *job, int64_t i) {
    if (job->given) return given_row(job, i);
    ons_two_row row = ons_two_row_of(maximum(job, i));
    ONS_FOR_EACH_TILE(job->strip, 0, job->strip->plan->N, j, n)
    job->kernels->two_sum(&row, elements(job, i, j, n), n);
    ons_two_row_end(&row);
    return row;
}

/* The row in two doubles. It is computed when a result first needs it. */
typedef struct {
    bool known;
    ons_two_row row;
} in_two;

static void know(in_two *two, const exact_job *job, int64_t i) {
    if (!two->known) two->row = row_in_two(job, i);
    two->known = true;
}

/* Computes n results. A result that a double cannot decide is NaN. Returns whether there is one. */
static bool finish(const exact_job *job, const ons_rounded_row *row, float *y, const double *e,
                   const float *x, int64_t n) {
    return (job->log ? job->kernels->log_softmax : job->kernels->softmax)(row, y, e, x, n);
}

/* Replaces each NaN by the result from two doubles. */
static void decide(const exact_job *job, const in_two *two, ons_rounding to, float *y,
                   const float *x, int64_t n) {
    for (int64_t j = 0; j < n; j++)
        if (isnan(y[j]))
            y[j] = (float)(job->log ? ons_two_log_softmax : ons_two_softmax)(&two->row,
                                                                             (double)x[j], to);
}

static void fill(float *y, int64_t n, float value) {
    for (int64_t j = 0; j < n; j++) y[j] = value;
}

/* The results of row i. They are stored tile by tile, if the row has several. */
static void finish_row(const exact_job *job, int64_t i) {
    ons_strip *strip = job->strip;
    const int64_t N = strip->plan->N;
    const bool finite = isfinite(maximum(job, i)), in_place = strip->problem->operand[ONS_X].data ==
                                                              strip->problem->operand[ONS_Y].data;
    in_two two = {.known = false};
    ons_rounded_row row;
    float room[ONS_ROW_TILE];
    if (finite) row = row_in_double(job, i);
    if (finite && in_place && !job->tile.data) /* later the row's elements are no longer there */
        ONS_FOR_EACH_TILE(strip, 0, N, j, n)
    if (finish(job, &row, room, job->e ? job->e + j : NULL, elements(job, i, j, n), n))
        know(&two, job, i);
    ONS_FOR_EACH_TILE(strip, 0, N, j, n) {
        const float *x = elements(job, i, j, n);
        float *to = row_of(ons_strip_result(strip, j), i), *y = to == x ? room : to;
        if (!finite) {
            fill(to, n, NAN);
        } else if (finish(job, &row, y, job->e ? job->e + j : NULL, x, n)) {
            know(&two, job, i);
            decide(job, &two, row.to, y, elements(job, i, j, n), n);
        }
        if (finite && y != to) memcpy(to, y, (size_t)n * sizeof *y);
        if (!job->tile.data) ons_strip_store(strip, j, n);
    }
}

/* logsumexp of row i. */
static void store_value(const exact_job *job, int64_t i) {
    float value = (float)maximum(job, i);
    if (isfinite(value)) {
        const ons_rounded_row row = row_in_double(job, i);
        value = (float)ons_rounded_logsumexp(&row);
        if (isnan(value)) {
            const ons_two_row in_two = row_in_two(job, i);
            value = (float)ons_two_logsumexp(&in_two, row.to);
        }
    }
    ons_strip_store_value(job->strip, i, &value);
}

/* The state of row i, which may be a part of a row. */
static void store_state(const exact_job *job, int64_t i) {
    const double m = maximum(job, i);
    const ons_two_row row = isfinite(m) ? row_in_two(job, i) : ons_two_row_of_none(m);
    double state[ONS_TWO_ROW_VALUES];
    ons_two_row_to(&row, state);
    memcpy(job->strip->y + i * job->strip->y_across, state, sizeof state);
}

/* The results of the k largest elements of row i. */
static void finish_selected(const exact_job *job, int64_t i) {
    const int64_t k = job->strip->plan->k;
    float *x = (float *)(void *)job->strip->selected.values + i * k, y[ONS_ROW_TILE];
    if (!isfinite(maximum(job, i))) {
        fill(x, k, NAN);
        return;
    }
    const ons_rounded_row row = row_in_double(job, i);
    in_two two = {.known = false};
    for (int64_t j = 0, n; j < k; j += n) {
        n = k - j < ONS_ROW_TILE ? k - j : ONS_ROW_TILE;
        if (finish(job, &row, y, NULL, x + j, n)) {
            know(&two, job, i);
            decide(job, &two, row.to, y, x + j, n);
        }
        memcpy(x + j, y, (size_t)n * sizeof *y);
    }
}

static void exact(ons_strip *strip) {
    const ons_problem *problem = strip->problem;
    const int64_t N = strip->plan->N;
    const ons_operation_info *operation = &ons_operations[problem->operation];
    const bool value = operation->one_a_row, selects = strip->candidates != NULL;
    double room[ONS_ROW_TILE + ONS_ROUNDED_ROOM];
    exact_job job = {.strip = strip,
                     .kernels = strip->kernels->rounded,
                     .log = selects ? problem->log : problem->operation != ONS_OPERATION_softmax,
                     .given = problem->operand[ONS_STATISTIC].data && !selects};
    if (selects) {
        do {
            ons_online_statistics(strip, 0, N);
        } while (ons_strip_anchor(strip));
        ons_topk_select(strip);
    } else if (!job.given) {
        ONS_FOR_EACH_TILE(strip, 0, N, j, n)
        strip->primitives->max(&strip->rows, ONS_NO_TILE, ons_strip_load(strip, j, n), n);
    }
    job.anchored = strip->anchored;
    strip->anchored = false; /* from here on elements are loaded as they are */
    if (N > 0 && N <= strip->plan->tile) job.tile = ons_strip_load(strip, 0, N);
    if (!job.log && !selects && !job.given)
        job.e = job.tile.data              ? room
                : strip->plan->keeps_apart ? (double *)(void *)strip->kept
                                           : NULL;
    for (int64_t i = 0; i < strip->rows.width; i++)
        (operation->pair ? store_state
         : value         ? store_value
         : selects       ? finish_selected
                         : finish_row)(&job, i);
    strip->anchored = job.anchored;
    if (selects)
        ons_topk_store(strip);
    else if (!value && job.tile.data)
        ons_strip_store(strip, 0, N);
}

void ons_cpu_exact(const ons_job *job) { ons_for_each_strip(job, exact); }
