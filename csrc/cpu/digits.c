/* digits.c - adds up the states of rows without rounding (digits.h), tile by tile. Parts of rows
 * have states too. The elements are read once. Threads share the rows. */
#include "../api/digits.h"
#include "strip/strip.h"

#include <string.h>

/* Elements of a row that are copied side by side at a time. */
enum { SIDE_BY_SIDE = 256 };

static double element_at(const void *x, int64_t j, ons_dtype compute) {
    return compute == ONS_FLOAT32 ? (double)((const float *)x)[j] : ((const double *)x)[j];
}

/* Adds the elements of x that are too large for add_digits, and sets them to -inf. */
static void take_far(ons_packed *state, void *x, int64_t n, ons_dtype compute) {
    const double c = ons_digits_power(state->m), base = ons_digits_base(state->m);
    for (int64_t j = 0; j < n; j++) {
        const double element = element_at(x, j, compute);
        if (fabs(element) <= ONS_LARGEST_REFERENCE) continue;
        ons_add_digits(state->digit, ons_far_exponential(element - base, c), 1.0);
        if (compute == ONS_FLOAT32)
            ((float *)x)[j] = -INFINITY;
        else
            ((double *)x)[j] = -INFINITY;
    }
}

/* Whether add_digits can take all elements of a row with this maximum, except elements far below
 * it. */
static bool has_near_elements(double m) {
    return m <= ONS_LARGEST_REFERENCE && m >= ONS_FAR_BELOW - ONS_LARGEST_REFERENCE;
}

/* Adds n elements, `along` bytes apart: at most SIDE_BY_SIDE, unless they are near and lie side by
 * side. */
static void take_some(const ons_strip *strip, ons_packed *state, const char *x, int64_t along,
                      int64_t n) {
    const ons_dtype compute = strip->plan->compute;
    const size_t size = (size_t)ons_dtype_size(compute);
    const bool near = has_near_elements(state->m);
    _Alignas(64) char side_by_side[SIDE_BY_SIDE * sizeof(double)];
    if (!near || along != (int64_t)size) {
        for (int64_t j = 0; j < n; j++)
            memcpy(side_by_side + (size_t)j * size, x + j * along, size);
        x = side_by_side;
    }
    if (!near) take_far(state, side_by_side, n, compute);
    if (state->m <= ONS_LARGEST_REFERENCE + ONS_FAR_BELOW)
        strip->kernels->add_digits(state->digit, ons_digits_power(state->m), x, n);
}

static void take_tile(ons_strip *strip, ons_packed *states, ons_tile x, int64_t n) {
    strip->primitives->max(&strip->rows, ONS_NO_TILE, x, n);
    for (int64_t i = 0; i < strip->rows.width; i++) {
        states[i] = ons_packed_raise(states[i], strip->rows.state[i].m);
        if (!isfinite(states[i].m)) continue;
        const char *row = (const char *)x.data + i * x.across;
        const bool in_place = x.along == ons_dtype_size(strip->plan->compute);
        const int64_t most = in_place && has_near_elements(states[i].m) ? n : SIDE_BY_SIDE;
        for (int64_t j = 0; j < n; j += most)
            take_some(strip, &states[i], row + j * x.along, x.along, n - j < most ? n - j : most);
    }
}

static void digits(ons_strip *strip) {
    ons_packed states[ONS_MAX_WIDTH];
    for (int64_t i = 0; i < strip->rows.width; i++)
        states[i] = (ons_packed){-INFINITY, {0.0, 0.0, 0.0, 0.0}};
    ONS_FOR_EACH_TILE(strip, 0, strip->plan->N, j, n)
    take_tile(strip, states, ons_strip_load(strip, j, n), n);
    for (int64_t i = 0; i < strip->rows.width; i++) {
        ons_packed state = ons_packed_of_digits(states[i].m, states[i].digit);
        memcpy(strip->y + i * strip->y_across, &state, sizeof state);
    }
}

void ons_cpu_digits(const ons_job *job) { ons_for_each_strip(job, digits); }

/* Rounds away the bits that dividing by `one` and multiplying again may change. */
double ons_cpu_pair_d(ons_pair pair, ons_dtype compute) {
    if (!isfinite(pair.m)) return pair.d;
    const ons_kernels *kernels = ons_kernels_for(compute);
    const double largest = kernels->top_exponential(ons_needs_anchor(pair.m) ? 0.0 : pair.m);
    const double d = ons_without_bits(pair.d * kernels->one / largest, kernels->one != 1 ? 5 : 0);
    return ons_count_or_d(d, compute == ONS_FLOAT32 ? 0x1p-23 : 0x1p-52);
}
