/* logprob.c - log-probabilities, entropy, argmax and rank of each row (api/logprob.h), and their
 * gradient. The sums of a strip's rows are found as in online.c. A second walk over each row finds
 * the mean of x - m, argmax and rank. Short rows are still in a cache then. */
#include "logprob.h"

#include "../api/logprob.h"
#include "../api/loss.h"
#include "online.h"

#include <string.h>

/* Room for a tile of one row, in the compute type. */
typedef struct {
    _Alignas(64) char data[ONS_ROW_TILE * sizeof(double)];
} tile_room;

static ons_tile tile_in(tile_room *room, int64_t size) {
    return (ons_tile){room->data, size, ONS_ROW_TILE * size};
}

/* Computes softmax of some elements of a row from the state of the whole row. */
typedef struct {
    const ons_kernels *kernels;
    ons_state state;
    double shift, floor, first, second; /* each has room for one number of the compute type */
    ons_rows rows;
} softmax_of_row;

static void begin_softmax(softmax_of_row *of, const ons_strip *strip, int64_t i) {
    of->kernels = strip->kernels;
    of->state = strip->rows.state[i];
    of->rows = (ons_rows){.width = 1,
                          .state = &of->state,
                          .shift = &of->shift,
                          .floor = &of->floor,
                          .first = &of->first,
                          .second = &of->second};
    of->kernels->row.set_references(&of->rows);
    of->kernels->end_row[ONS_OPERATION_softmax].end_rows(&of->rows);
}

static void softmax_of_tile(const softmax_of_row *of, ons_tile p, ons_tile x, int64_t n) {
    of->kernels->end_row[ONS_OPERATION_softmax].finish(&of->rows, p, x, n);
}

/* Copies n elements of row i, from element j on, to `room`, unless they lie side by side. */
static ons_tile tile_of_row(ons_strip *strip, int64_t i, int64_t j, int64_t n, tile_room *room) {
    const int64_t size = ons_dtype_size(strip->plan->compute);
    const ons_tile x = ons_strip_load(strip, j, n), copy = tile_in(room, size);
    const char *from = (const char *)x.data + i * x.across;
    if (x.along == size) return (ons_tile){(char *)from, size, x.across};
    for (int64_t k = 0; k < n; k++) memcpy(room->data + k * size, from + k * x.along, (size_t)size);
    return copy;
}

/* The gradient of an element x is p (all - slope (x - m)). A chosen element gets its own gradient
 * in addition. */
typedef struct {
    double all, slope;
} row_gradient;

/* Functions for both types of arithmetic. The shortest loops are unrolled. Without that, a loop
 * takes up to a fifth longer if the compiler puts it across two cache lines. */
#define FOR_TYPE(T, name)                                                                          \
    /* x - m. For -inf it is `least`, since -inf times p = 0 is NaN. gcc vectorizes this form. */  \
    static void subtract_##name(void *restrict to, const void *from, double m, int64_t n) {        \
        const T *x = from, largest = (T)m, least = -10000;                                         \
        T *apart = to;                                                                             \
        for (int64_t k = 0; k < n; k++) {                                                          \
            const T difference = x[k] - largest;                                                   \
            apart[k] = difference > least ? difference : least;                                    \
        }                                                                                          \
    }                                                                                              \
    static int64_t count_above_##name(const void *from, double than, int64_t n) {                  \
        const T *x = from, chosen = (T)than;                                                       \
        int count = 0; /* of one tile */                                                           \
        _Pragma("GCC unroll 4") for (int64_t k = 0; k < n; k++) count += x[k] > chosen;            \
        return count;                                                                              \
    }                                                                                              \
    static int64_t first_of_##name(const void *from, double m, int64_t n) {                        \
        const T *x = from, largest = (T)m;                                                         \
        for (int64_t k = 0; k < n; k++)                                                            \
            if (x[k] == largest || (isnan(m) && isnan(x[k]))) return k;                            \
        return -1;                                                                                 \
    }                                                                                              \
    /* Turns p into the gradient, without the own gradients of the chosen elements. */             \
    static void multiply_##name(void *restrict p, const void *apart, row_gradient by, int64_t n) { \
        const T *of = apart, all = (T)by.all, slope = (T)by.slope;                                 \
        T *y = p;                                                                                  \
        _Pragma("GCC unroll 4") for (int64_t k = 0; k < n; k++) y[k] *= all - slope * of[k];       \
    }
FOR_TYPE(float, f32)
FOR_TYPE(double, f64)
#define OF_TYPE(wide, name, ...) ((wide) ? name##_f64(__VA_ARGS__) : name##_f32(__VA_ARGS__))

/* Index number k of a row, or -1 if it is out of range. */
static int64_t index_of(const ons_logprob *of, int64_t row, int64_t k, int64_t N) {
    const int64_t at = row * of->count + k;
    const int64_t index =
        of->wide_index ? ((const int64_t *)of->index)[at] : ((const int32_t *)of->index)[at];
    return index >= 0 && index < N ? index : -1;
}

/* Element j of row i, or NaN for j = -1. */
static double element_of(const ons_strip *strip, int64_t i, int64_t j) {
    const ons_problem *problem = strip->problem;
    const ons_operand *x = &problem->operand[ONS_X];
    double wide;
    float single;
    const bool is_wide = problem->logprob->in_double;
    if (j < 0) return (double)NAN;
    strip->move->load(is_wide ? (void *)&wide : &single,
                      strip->x + i * strip->x_across + j * x->stride[problem->dims - 1], 0,
                      x->dtype, 1);
    return is_wide ? wide : (double)single;
}

static void set_real(const ons_logprob *of, void *array, int64_t at, double value) {
    if (!array) return;
    if (of->in_double)
        ((double *)array)[at] = value;
    else
        ((float *)array)[at] = (float)value;
}

/* Adds n elements to the mean of x - m under the softmax of the row. */
static void add_to_mean(const softmax_of_row *of, ons_state *mean, ons_tile x, int64_t n,
                        bool wide) {
    tile_room p, apart;
    const int64_t size = wide ? sizeof(double) : sizeof(float);
    const ons_rows rows = {.width = 1, .state = mean};
    softmax_of_tile(of, tile_in(&p, size), x, n);
    OF_TYPE(wide, subtract, apart.data, x.data, of->state.m, n);
    of->kernels->end_row[ONS_OPERATION_softmax_backward].add_gradient(&rows, tile_in(&apart, size),
                                                                      tile_in(&p, size), n);
}

/* Walks over row i once more if its results need it. Returns the mean of x - m. */
static double second_walk(ons_strip *strip, int64_t i) {
    const ons_logprob *of = strip->problem->logprob;
    const int64_t N = strip->plan->N, row = strip->first_row + i;
    const double m = strip->rows.state[i].m, anchor = strip->anchored ? strip->anchor[i] : 0.0;
    const int64_t at = of->rank ? index_of(of, row, 0, N) : -1;
    const double chosen = of->rank ? element_of(strip, i, at) - anchor : 0.0;
    const bool wide = of->in_double, is_nan = isnan(m) || isinf(m);
    const bool finds_mean = of->entropy && !is_nan;
    int64_t first = -1, above = 0;
    ons_state mean = {0.0, 0.0, 0.0, 0.0};
    softmax_of_row softmax;
    tile_room room;
    begin_softmax(&softmax, strip, i);
    ONS_FOR_EACH_TILE(strip, 0, N, j, n) {
        if (!finds_mean && !of->rank && (!of->argmax || first >= 0)) break;
        const ons_tile x = tile_of_row(strip, i, j, n, &room);
        if (of->rank) above += OF_TYPE(wide, count_above, x.data, chosen, n);
        if (of->argmax && first < 0) {
            first = OF_TYPE(wide, first_of, x.data, m, n);
            if (first >= 0) first += j;
        }
        if (finds_mean) add_to_mean(&softmax, &mean, x, n, wide);
    }
    if (of->rank) of->rank[row] = at < 0 ? -1 : above;
    if (of->argmax) of->argmax[row] = first;
    return is_nan ? (double)NAN : mean.d + mean.d_low;
}

static void finish_row(ons_strip *strip, int64_t i) {
    const ons_logprob *of = strip->problem->logprob;
    const int64_t row = strip->first_row + i;
    const double mean = second_walk(strip, i);
    const ons_pair exchanged = ons_strip_pair(strip, i);
    const ons_pair pair = {exchanged.m, ons_cpu_pair_d(exchanged, strip->plan->compute)};
    const double log_d = log(pair.d);
    const bool is_nan = isnan(pair.m) || isinf(pair.m);
    for (int64_t k = 0; k < of->count; k++) {
        const double x = element_of(strip, i, index_of(of, row, k, strip->plan->N));
        set_real(of, of->chosen, row * of->count + k, is_nan ? (double)NAN : (x - pair.m) - log_d);
    }
    set_real(of, of->entropy, row, log_d - mean);
    set_real(of, of->lse, row, ons_lse_of(pair));
    if (!of->moments) return;
    of->moments[2 * row] = exchanged.m;
    of->moments[2 * row + 1] = exchanged.d;
    of->moments[2 * strip->plan->rows + row] = mean;
}

static void logprobs(ons_strip *strip) {
    do {
        ons_online_statistics(strip, 0, strip->plan->N);
    } while (ons_strip_anchor(strip));
    for (int64_t i = 0; i < strip->rows.width; i++) finish_row(strip, i);
}

void ons_cpu_logprob(const ons_job *job) { ons_for_each_strip(job, logprobs); }

/* ------- The gradient ------- */

static double real_at(const ons_logprob *of, const void *array, int64_t at) {
    return !array          ? 0.0
           : of->in_double ? ((const double *)array)[at]
                           : (double)((const float *)array)[at];
}

static row_gradient gradient_of(const ons_logprob *of, int64_t row, const ons_plan *plan) {
    const double slope = real_at(of, of->of_entropy, row);
    row_gradient gradient = {real_at(of, of->of_lse, row), slope};
    for (int64_t k = 0; k < of->count; k++)
        gradient.all -= index_of(of, row, k, plan->N) < 0
                            ? (double)NAN
                            : real_at(of, of->of_chosen, row * of->count + k);
    if (slope != 0.0) gradient.all += slope * of->moments[2 * plan->rows + row];
    return gradient;
}

/* Adds the own gradients of the chosen elements among elements j to j + n. */
static void add_at_indices(const ons_logprob *of, int64_t row, int64_t N, int64_t j, int64_t n,
                           void *y) {
    for (int64_t k = 0; k < of->count; k++) {
        const int64_t at = index_of(of, row, k, N) - j;
        const double more = real_at(of, of->of_chosen, row * of->count + k);
        if (at < 0 || at >= n) continue;
        if (of->in_double)
            ((double *)y)[at] += more;
        else
            ((float *)y)[at] = (float)((double)((float *)y)[at] + more);
    }
}

static void gradient_of_row(ons_strip *strip, int64_t i) {
    const ons_problem *problem = strip->problem;
    const ons_logprob *of = problem->logprob;
    const ons_operand *to = &problem->operand[ONS_Y];
    const int64_t N = strip->plan->N, row = strip->first_row + i;
    const int64_t step = to->stride[problem->dims - 1];
    const int64_t size = ons_dtype_size(strip->plan->compute);
    const row_gradient gradient = gradient_of(of, row, strip->plan);
    const double m = strip->rows.state[i].m;
    softmax_of_row softmax;
    tile_room room, p, apart;
    begin_softmax(&softmax, strip, i);
    ONS_FOR_EACH_TILE(strip, 0, N, j, n) {
        const ons_tile x = tile_of_row(strip, i, j, n, &room);
        softmax_of_tile(&softmax, tile_in(&p, size), x, n);
        OF_TYPE(of->in_double, subtract, apart.data, x.data, m, n);
        OF_TYPE(of->in_double, multiply, p.data, (const void *)apart.data, gradient, n);
        add_at_indices(of, row, N, j, n, p.data);
        strip->move->store(strip->y + i * strip->y_across + j * step, step, to->dtype, p.data, n);
    }
}

static void gradients(ons_strip *strip) {
    ons_strip_take_pairs(strip);
    for (int64_t i = 0; i < strip->rows.width; i++) gradient_of_row(strip, i);
}

void ons_cpu_logprob_backward(const ons_job *job) { ons_for_each_strip(job, gradients); }
