/* near_zero.c - all digits of logarithms near 0. log(1 + e^-40) is e^-40, but 1 + e^-40 is 1 in
 * double. So a sum in two doubles leaves out the maximum (api/rounding.h). If logsumexp is near 0,
 * m and log(d) may cancel each other. So its exponentials and its logarithm are two doubles too. */
#include "near_zero.h"

static bool is_logsumexp(const ons_strip *strip) {
    return strip->problem->operation == ONS_OPERATION_logsumexp;
}

static bool is_near_zero(const ons_strip *strip, int64_t i) {
    const ons_state *row = &strip->rows.state[i];
    if (!isfinite(row->m)) return false;
    const double value = log(row->d) + row->c * ONS_LN2_HIGH;
    return ons_log_is_near_zero(!is_logsumexp(strip) ? value - row->m
                                : strip->anchored    ? value + strip->anchor[i]
                                                     : value);
}

static ons_two_row row_in_two(ons_strip *strip, int64_t i) {
    ons_two_row row = ons_two_row_of(strip->rows.state[i].m);
    const bool in_two = is_logsumexp(strip);
    ONS_FOR_EACH_TILE(strip, 0, strip->plan->N, j, n) {
        const ons_tile tile = ons_strip_load(strip, j, n);
        const char *x = (const char *)tile.data + i * tile.across;
        for (int64_t k = 0; k < n; k++, x += tile.along)
            ons_two_row_add_to_log(&row,
                                   strip->plan->compute == ONS_FLOAT64
                                       ? *(const double *)(const void *)x
                                       : (double)*(const float *)(const void *)x,
                                   in_two);
    }
    return row;
}

/* A row with a result near 0 gets an anchor (ons_strip_anchor). For log_softmax the anchor is m,
 * and d_low is the sum without the maximum. For logsumexp the anchor is the result, and the state
 * is the state of one element. */
void ons_near_zero_keep_digits(ons_strip *strip) {
    if (!is_logsumexp(strip) && strip->problem->operation != ONS_OPERATION_log_softmax) return;
    const double one = strip->kernels->top_exponential(0.0);
    bool anchored = strip->anchored;
    for (int64_t i = 0; i < strip->rows.width; i++) {
        double *anchor = &strip->anchor[i];
        ons_state *state = &strip->rows.state[i];
        if (!strip->anchored) *anchor = 0.0;
        if (!is_near_zero(strip, i)) continue;
        const ons_two_row row = row_in_two(strip, i);
        if (is_logsumexp(strip)) {
            *anchor = ons_two_logsumexp_in_double(&row);
            *state = (ons_state){0.0, 0.0, one, 0.0};
        } else {
            *anchor += row.m;
            *state = (ons_state){0.0, 0.0, row.n * one, (row.s.high + row.s.low) * one};
        }
        anchored = true;
    }
    strip->anchored = anchored;
}
