/* logprob.c - log-probabilities, entropy, argmax and rank of each row (api/logprob.h), and their
 * gradient. A strip's rows are added up as in online.c. What needs the softmax of a row comes from a
 * second walk over its tiles, which are then in a cache. */
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

/* Softmax of the elements of one row, for which the state of the whole row is known. */
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
    for (int64_t k = 0; k < n; k++)
        memcpy(room->data + k * size, from + k * x.along, (size_t)size);
    return copy;
}

/* Functions for both types of arithmetic. */
#define FOR_TYPE(T, suffix)                                                                       \
    /* x - m, and 0 for -inf, whose softmax is 0 */                                               \
    static void subtract_##suffix(T *to, const T *x, double m, int64_t n) {                       \
        const T largest = (T)m;                                                                   \
        for (int64_t k = 0; k < n; k++) to[k] = x[k] == (T)-INFINITY ? 0 : x[k] - largest;        \
    }                                                                                             \
    static int64_t count_above_##suffix(const T *x, double than, int64_t n) {                     \
        int64_t count = 0;                                                                        \
        const T chosen = (T)than;                                                                 \
        for (int64_t k = 0; k < n; k++) count += x[k] > chosen;                                   \
        return count;                                                                             \
    }                                                                                             \
    static int64_t first_of_##suffix(const T *x, double m, int64_t n) {                           \
        const T largest = (T)m;                                                                   \
        for (int64_t k = 0; k < n; k++)                                                           \
            if (x[k] == largest || (isnan(m) && isnan(x[k]))) return k;                           \
        return -1;                                                                                \
    }                                                                                             \
    /* y = p (all - slope (x - m)) */                                                             \
    static void gradient_##suffix(T *y, const T *p, const T *apart, double all, double slope,     \
                                  int64_t n) {                                                    \
        for (int64_t k = 0; k < n; k++) y[k] = p[k] * (T)(all - slope * (double)apart[k]);        \
    }
FOR_TYPE(float, f32)
FOR_TYPE(double, f64)
#define OF_TYPE(wide, name, to, ...) \
    ((wide) ? name##_f64((double *)(to), __VA_ARGS__) : name##_f32((float *)(to), __VA_ARGS__))

/* Index number k of a row. */
static int64_t index_of(const ons_logprob *of, int64_t row, int64_t k) {
    const int64_t at = row * of->count + k;
    return of->wide_index ? ((const int64_t *)of->index)[at] : ((const int32_t *)of->index)[at];
}

static double element_of(const ons_strip *strip, int64_t i, int64_t j) {
    const ons_problem *problem = strip->problem;
    const ons_operand *x = &problem->operand[ONS_X];
    double room;
    strip->move->load(&room, strip->x + i * strip->x_across + j * x->stride[problem->dims - 1], 0,
                      x->dtype, 1);
    return problem->logprob->in_double ? room : (double)*(const float *)(const void *)&room;
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
    if (wide)
        subtract_f64((double *)(void *)apart.data, x.data, of->state.m, n);
    else
        subtract_f32((float *)(void *)apart.data, x.data, of->state.m, n);
    of->kernels->end_row[ONS_OPERATION_softmax_backward].add_gradient(
        &rows, tile_in(&apart, size), tile_in(&p, size), n);
}

/* The walk over the elements of row i, if its results need one. */
static double second_walk(ons_strip *strip, int64_t i) {
    const ons_logprob *of = strip->problem->logprob;
    const int64_t N = strip->plan->N, row = strip->first_row + i;
    const double m = strip->rows.state[i].m, anchor = strip->anchored ? strip->anchor[i] : 0.0;
    const double chosen = of->rank ? element_of(strip, i, index_of(of, row, 0)) - anchor : 0.0;
    const bool wide = of->in_double, is_nan = isnan(m) || isinf(m);
    bool finds_mean = (of->entropy || of->moments) && !is_nan;
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
    if (of->rank) of->rank[row] = above;
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
        const double x = element_of(strip, i, index_of(of, row, k));
        set_real(of, of->chosen, row * of->count + k,
                 is_nan ? (double)NAN : (x - pair.m) - log_d);
    }
    set_real(of, of->entropy, row, log_d - mean);
    set_real(of, of->lse, row, ons_lse_of(pair));
    if (!of->moments) return;
    double *const moments = of->moments + row * ONS_MOMENTS;
    moments[0] = exchanged.m, moments[1] = exchanged.d, moments[2] = mean;
}

static void logprobs(ons_strip *strip) {
    do {
        ons_online_statistics(strip, 0, strip->plan->N);
    } while (ons_strip_anchor(strip));
    for (int64_t i = 0; i < strip->rows.width; i++) finish_row(strip, i);
}

void ons_cpu_logprob(const ons_job *job) { ons_for_each_strip(job, logprobs); }
