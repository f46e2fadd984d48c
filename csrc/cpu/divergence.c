/* divergence.c - divergences between rows, and their gradients. A thread takes a piece of the rows
 * at a time. It runs softmax and log_softmax on this piece, and their results fill its scratch.
 * kl_divergence needs softmax of one input and log_softmax of both. js_divergence needs softmax of
 * both. The terms come from these numbers. */
#include "cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../api/loss.h"
#include "../api/onsoftmax.h"
#include "part.h"
#include "running_sum.h"

/* The arrays of a thread's piece, in the compute type. P is the softmax that weights the terms. In
 * reverse_kl_divergence this is the softmax of ONS_GRADIENT. */
typedef enum { P, LOG_P, LOG_Q, Q, ARRAYS = ONS_DIVERGENCE_ARRAYS } array;

typedef struct {
    const ons_problem *problem;
    const ons_plan *plan;
    ons_movers move;
    ons_run_part *run_part;
    int64_t piece; /* rows */
    char *scratch;
    atomic_int status;
} divergences;

/* ------- The terms of a row, for both types of arithmetic ------- */

/* Adds up n terms in a fixed order, in a form of which compilers make vectors. For terms of type
 * double, the rounding errors are added up too (running_sum.h). */
enum { CHAINS = 8 };
#define ADD_UP(T, sum, n, term)                                                                 \
    do {                                                                                        \
        const bool wide = sizeof(T) == sizeof(double);                                          \
        double chain[CHAINS] = {0}, low[CHAINS] = {0};                                          \
        int64_t k = 0;                                                                          \
        for (; k + CHAINS <= (n); k += CHAINS)                                                  \
            for (int i = 0; i < CHAINS; i++) ons_add_to(&chain[i], &low[i], term(k + i), wide); \
        for (; k < (n); k++) ons_add_to(&chain[0], &low[0], term(k), wide);                     \
        for (int i = 0; i < CHAINS; i++) (sum) += ons_total(chain[i], low[i], wide);            \
    } while (0)

/* A term with p = 0 is 0, whatever its logarithms are. */
#define FOR_TYPE(T, name, LOG, LARGEST)                                                          \
    static double kl_##name(const void *of_p, const void *of_log_p, const void *of_log_q,        \
                            int64_t N) {                                                         \
        const T *p = of_p, *log_p = of_log_p, *log_q = of_log_q;                                 \
        double sum = 0.0;                                                                        \
        ADD_UP(T, sum, N, TERM_OF_KL);                                                           \
        return sum;                                                                              \
    }                                                                                            \
    /* log(p / r) with r = beta p + (1 - beta) q. The last term corrects the rounding of 1 + x.  \
     * If q is much larger than p, q / p would overflow. */                                      \
    static T over_mixture_##name(T p, T q, T beta) {                                             \
        const T x = (1 - beta) * ((q - p) / p), finite = x > LARGEST ? LARGEST : x,              \
                sum = 1 + finite;                                                                \
        return -(LOG(sum) + (finite - (sum - 1)) / sum);                                         \
    }                                                                                            \
    /* Writes log(p / r). Returns the sum of both kinds of terms, and in of_p_alone the sum of p \
     * log(p / r). */                                                                            \
    static double js_##name(const void *of_p, const void *of_q, double beta, void *over_r,       \
                            double *of_p_alone, int64_t N) {                                     \
        const T *p = of_p, *q = of_q;                                                            \
        T *log_p = over_r;                                                                       \
        const bool wide = sizeof(T) == sizeof(double);                                           \
        double p_sum = 0, p_low = 0, q_sum = 0, q_low = 0;                                       \
        for (int64_t k = 0; k < N; k++) {                                                        \
            log_p[k] = over_mixture_##name(p[k], q[k], (T)beta);                                 \
            const T log_q = over_mixture_##name(q[k], p[k], (T)(1 - beta));                      \
            ons_add_to(&p_sum, &p_low, p[k] == 0 ? 0.0 : (double)(p[k] * log_p[k]), wide);       \
            ons_add_to(&q_sum, &q_low, q[k] == 0 ? 0.0 : (double)(q[k] * log_q), wide);          \
        }                                                                                        \
        *of_p_alone = ons_total(p_sum, p_low, wide);                                             \
        return beta * *of_p_alone + (1 - beta) * ons_total(q_sum, q_low, wide);                  \
    }                                                                                            \
    /* Replaces `terms`, the logarithms, by by * p * (terms - less - mean). */                   \
    static void gradient_##name(void *terms, const void *less, const void *of_p, double mean,    \
                                double by, int64_t N) {                                          \
        const T *p = of_p, *apart = less;                                                        \
        T *y = terms;                                                                            \
        for (int64_t k = 0; k < N; k++) {                                                        \
            const T term = (apart ? y[k] - apart[k] : y[k]) - (T)mean;                           \
            y[k] = p[k] == 0 ? 0 : (T)by * (p[k] * term);                                        \
        }                                                                                        \
    }                                                                                            \
    /* Replaces q by by * (q - p). */                                                            \
    static void difference_##name(void *of_q, const void *of_p, double by, int64_t N) {          \
        const T *p = of_p;                                                                       \
        T *q = of_q;                                                                             \
        for (int64_t k = 0; k < N; k++) q[k] = (T)by * (q[k] - p[k]);                            \
    }
#define TERM_OF_KL(k) (p[k] == 0 ? 0.0 : (double)(p[k] * (log_p[k] - log_q[k])))
FOR_TYPE(float, f32, logf, 0x1p126f)
FOR_TYPE(double, f64, log, 0x1p1022)
#define OF_TYPE(wide, name, ...) ((wide) ? name##_f64(__VA_ARGS__) : name##_f32(__VA_ARGS__))

/* ------- A piece of the rows ------- */

static int64_t row_bytes(const divergences *of) {
    return of->plan->N * ons_dtype_size(of->plan->compute);
}

static char *array_of(const divergences *of, int worker, array which) {
    return of->scratch + (worker * ARRAYS + (int)which) * of->piece * row_bytes(of);
}

/* Rows of one input that differ in the last outer dimension alone, as a problem of `operation`
 * whose result goes to scratch. */
static void fill(divergences *of, ons_operation operation, ons_role from, int64_t row, int64_t rows,
                 char *to) {
    ons_problem part;
    ons_take_part(of->problem, row, rows, &part);
    part.operation = operation;
    part.loss = NULL;
    part.operand[ONS_X] = part.operand[from];
    part.operand[ONS_GRADIENT] = (ons_operand){NULL, ONS_FLOAT32, {0}};
    ons_place_rows(&part, ONS_Y, to, of->plan->compute, of->plan->N);
    const ons_status status = of->run_part(&part);
    if (status != ONS_OK) atomic_store(&of->status, status);
}

/* Writes the gradient of a row. The elements of a row may lie in several dimensions. */
static void store(const divergences *of, int64_t row, const char *from) {
    const ons_problem *problem = of->problem;
    const ons_operand *y = &problem->operand[ONS_Y];
    const int last = problem->dims - 1, first = problem->dims - problem->reduced_dims;
    const int64_t n = problem->extent[last], bytes = n * ons_dtype_size(of->plan->compute);
    for (int64_t j = 0; j < of->plan->N; j += n, from += bytes) {
        char *to = y->data + ons_offset_of_row(problem, ONS_Y, row);
        int64_t index = j / n;
        for (int dim = last - 1; dim >= first; dim--) {
            to += index % problem->extent[dim] * y->stride[dim];
            index /= problem->extent[dim];
        }
        of->move.store(to, y->stride[last], y->dtype, from, n);
    }
}

static double scale_of(const ons_problem *problem, int64_t row) {
    const ons_operand *scale = &problem->operand[ONS_SCALE];
    if (!scale->data) return problem->scale_by;
    return *(const double *)(const void *)(scale->data +
                                           ons_offset_of_row(problem, ONS_SCALE, row));
}

/* Computes the value of a row. If a gradient is wanted, it replaces one of the row's arrays. */
static void finish_row(const divergences *of, int worker, int64_t i, int64_t row) {
    const ons_operation operation = of->problem->operation;
    const ons_loss *loss = of->problem->loss;
    const bool wide = loss->in_double, js = operation == ONS_OPERATION_js_divergence;
    const int64_t N = of->plan->N;
    char *at[ARRAYS], *gradient = NULL;
    for (int which = 0; which < ARRAYS; which++)
        at[which] = array_of(of, worker, (array)which) + i * row_bytes(of);
    double of_p = 0.0, by = loss->share * scale_of(of->problem, row);
    const double value = js ? OF_TYPE(wide, js, at[P], at[Q], loss->beta, at[LOG_P], &of_p, N)
                            : OF_TYPE(wide, kl, at[P], at[LOG_P], at[LOG_Q], N);
    ons_set_real(loss, loss->loss, row, value);
    if (!loss->gradient) return;
    if (loss->given) by *= ons_real_at(loss, loss->given, row * loss->given_step);
    if (operation == ONS_OPERATION_reverse_kl_divergence) {
        OF_TYPE(wide, difference, gradient = at[Q], at[P], by, N);
    } else {
        gradient = at[LOG_P];
        OF_TYPE(wide, gradient, gradient, js ? NULL : at[LOG_Q], at[P], js ? of_p : value,
                js ? by * loss->beta : by, N);
    }
    store(of, row, gradient);
}

static void finish_rows(void *context, int worker, int64_t begin, int64_t end) {
    divergences *of = context;
    const ons_problem *problem = of->problem;
    const bool reverse = problem->operation == ONS_OPERATION_reverse_kl_divergence;
    const bool js = problem->operation == ONS_OPERATION_js_divergence;
    const ons_role of_p = reverse ? ONS_GRADIENT : ONS_X, of_q = reverse ? ONS_X : ONS_GRADIENT;
    for (int64_t row = begin, rows; row < end; row += rows) {
        rows = ons_rows_together(problem, row, end, of->piece);
        if (of->plan->N > 0) {
            fill(of, ONS_OPERATION_softmax, of_p, row, rows, array_of(of, worker, P));
            if (!js) {
                fill(of, ONS_OPERATION_log_softmax, of_p, row, rows, array_of(of, worker, LOG_P));
                fill(of, ONS_OPERATION_log_softmax, of_q, row, rows, array_of(of, worker, LOG_Q));
            }
            if (js || (reverse && problem->loss->gradient))
                fill(of, ONS_OPERATION_softmax, of_q, row, rows, array_of(of, worker, Q));
        }
        for (int64_t i = 0; i < rows; i++) finish_row(of, worker, i, row + i);
    }
}

ons_status ons_cpu_divergences(const ons_problem *problem, const ons_plan *plan,
                               ons_run_part *run_part) {
    const ons_loss *loss = problem->loss;
    const ons_kernels *kernels = ons_kernels_for(plan->compute);
    divergences of = {problem, plan, kernels->move, run_part, 1, NULL, ONS_OK};
    of.piece = ons_divergence_piece(plan);
    const size_t room = (size_t)plan->workspace_bytes;
    of.scratch = aligned_alloc(64, (room + 64) & ~(size_t)63);
    if (!of.scratch) return ONS_E_MEMORY;
    ons_parallel_for(plan->rows, of.piece, plan->threads, finish_rows, &of);
    free(of.scratch);
    if (!loss->reduced) return of.status;
    double sum = 0.0, low = 0.0;
    for (int64_t row = 0; row < plan->rows; row++)
        ons_add_to(&sum, &low, ons_real_at(loss, loss->loss, row), true);
    ons_set_real(loss, loss->reduced, 0, loss->share * ons_total(sum, low, true));
    return of.status;
}
