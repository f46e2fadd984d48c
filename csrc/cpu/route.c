/* route.c - the router of a mixture of experts (api/route.h). A thread takes a piece of the rows at
 * a time. Experts can be chosen from the open groups alone. If the logits are not the keys, or if
 * there are groups, the thread fills its scratch with the keys of the open groups, side by side.
 * softmax_topk finds the k largest keys. The weights then come from the k logits, in double. */
#include "../api/route.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../api/plan_facts.h"
#include "cpu.h"
#include "part.h"
#include "running_sum.h"

/* About the bytes of a thread's scratch, if rows are short. */
enum { PIECE_BYTES = 1 << 18, ALIGNMENT = 64 };

typedef struct {
    const ons_problem *problem;
    const ons_plan *plan;
    const ons_route *route;
    const ons_kernels *kernels;
    ons_run_part *run_part;
    bool has_keys;          /* in scratch; otherwise the logits are the keys */
    bool has_probabilities; /* needs softmax of the whole row */
    int64_t size;           /* of a number of the compute type */
    int64_t in_group, open; /* the number of experts in a group, and in all open groups */
    int64_t piece;          /* rows */
    char *scratch;
    atomic_int status;
} routing;

/* The value of a group. */
typedef struct {
    double number;
    bool has_some; /* allowed experts */
    bool is_open;  /* experts can be chosen from it */
} group;

/* The arrays of a thread: for one row, and for each row of its piece. */
typedef struct {
    char *keys_of_row, *room; /* N, in the compute type */
    bool *allowed_of_row;
    group *groups;
    double *weight; /* k */
    char *scores;   /* N, softmax of the row */
    char *keys;     /* of the open groups */
    bool *allowed;  /* by `where`, of the open groups */
    char *best;     /* k of softmax of the keys */
    int64_t *index; /* k */
    int64_t *open;  /* the first experts of the open groups */
} row_scratch;

static int64_t rounded_up(int64_t bytes) {
    return (bytes + ALIGNMENT - 1) & ~(int64_t)(ALIGNMENT - 1);
}

/* The arrays of a piece of `rows` rows, from `at` on. Returns their end. */
static char *cut(const routing *of, char *at, int64_t rows, row_scratch *to) {
    const ons_route *route = of->route;
    const int64_t N = of->plan->N, k = of->plan->k;
    const int64_t keys = of->has_keys ? N : 0, rows_of_keys = of->has_keys ? rows : 0;
#define TAKE(array, count, size) \
    at = (char *)(to->array = (void *)at) + rounded_up((count) * (int64_t)(size))
    TAKE(keys_of_row, keys, of->size);
    TAKE(room, keys, of->size);
    TAKE(allowed_of_row, keys, sizeof(bool));
    TAKE(groups, route->groups, sizeof(group));
    TAKE(weight, k, sizeof(double));
    TAKE(scores, of->has_probabilities ? rows_of_keys * N : 0, of->size);
    TAKE(keys, rows_of_keys * of->open, of->size);
    TAKE(allowed, rows_of_keys * of->open, sizeof(bool));
    TAKE(best, rows * k, of->size);
    TAKE(index, rows * k, sizeof(int64_t));
    TAKE(open, rows_of_keys * route->top_groups, sizeof(int64_t));
#undef TAKE
    return at;
}

/* ------- Keys, for both types of arithmetic ------- */

/* Independent comparisons, of which compilers make vectors. */
enum { CHAINS = 8 };

enum { FAR_BELOW = -40 };

#define FOR_TYPE(T, name, EXP, LOG, SQRT)                                                       \
    static void below_zero_##name(void *to, const void *from, int64_t n) {                      \
        const T *x = from;                                                                      \
        T *y = to;                                                                              \
        for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0 ? x[i] : -x[i];                         \
    }                                                                                           \
    /* From e^-abs(x) and x. */                                                                 \
    static void sigmoid_##name(void *of_e, const void *of_x, int64_t n) {                       \
        const T *x = of_x;                                                                      \
        T *e = of_e;                                                                            \
        for (int64_t i = 0; i < n; i++) e[i] = (x[i] < 0 ? e[i] : 1) / (1 + e[i]);              \
    }                                                                                           \
    static T log1p_##name(T e) {                                                                \
        const T sum = 1 + e;                                                                    \
        return LOG(sum) + (e - (sum - 1)) / sum;                                                \
    }                                                                                           \
    /* From the same. Far below 0, log(1 + e^x) is e^x, and e^(x / 2) is its root. */           \
    static void sqrtsoftplus_##name(void *of_e, const void *of_x, int64_t n) {                  \
        const T *x = of_x;                                                                      \
        T *e = of_e;                                                                            \
        for (int64_t i = 0; i < n; i++)                                                         \
            e[i] = x[i] < FAR_BELOW                                                             \
                       ? EXP(x[i] / 2)                                                          \
                       : SQRT(x[i] > 0 ? x[i] + log1p_##name(e[i]) : log1p_##name(e[i]));       \
    }                                                                                           \
    static void add_bias_##name(void *keys, const void *scores, const void *bias, int64_t n) {  \
        const T *x = scores, *b = bias;                                                         \
        T *key = keys;                                                                          \
        for (int64_t i = 0; i < n; i++) key[i] = x[i] + b[i];                                   \
    }                                                                                           \
    static double number_##name(const void *array, int64_t i) { return ((const T *)array)[i]; } \
    /* The value of a group of n experts: its largest key, or the sum of its two largest. */    \
    static group count_##name(const void *keys, const bool *allowed, int64_t n, bool two) {     \
        const T *key = keys;                                                                    \
        T best[CHAINS], second[CHAINS], largest = -(T)INFINITY, next = -(T)INFINITY;            \
        int64_t some = 0, nans = 0;                                                             \
        for (int c = 0; c < CHAINS; c++) best[c] = second[c] = -(T)INFINITY;                    \
        for (int64_t i = 0; i < n; i += CHAINS) {                                               \
            T x[CHAINS];                                                                        \
            for (int c = 0; c < CHAINS; c++) x[c] = -(T)INFINITY;                               \
            for (int c = 0; c < CHAINS && i + c < n; c++)                                       \
                if (allowed[i + c]) x[c] = key[i + c], some++, nans += x[c] != x[c];            \
            for (int c = 0; c < CHAINS; c++) {                                                  \
                const T less = x[c] < best[c] ? x[c] : best[c];                                 \
                best[c] = x[c] > best[c] ? x[c] : best[c];                                      \
                second[c] = less > second[c] ? less : second[c];                                \
            }                                                                                   \
        }                                                                                       \
        for (int c = 0; c < CHAINS; c++) {                                                      \
            const T less = best[c] < largest ? best[c] : largest;                               \
            largest = best[c] > largest ? best[c] : largest;                                    \
            next = second[c] > next ? second[c] : next;                                         \
            next = less > next ? less : next;                                                   \
        }                                                                                       \
        const double number = two && some > 1 ? (double)(T)(largest + next) : (double)largest;  \
        return (group){nans > 0 ? (double)NAN : number, some > 0, false};                       \
    }
FOR_TYPE(float, f32, expf, logf, sqrtf)
FOR_TYPE(double, f64, exp, log, sqrt)
#define OF_TYPE(of, name, ...) \
    ((of)->plan->compute == ONS_FLOAT64 ? name##_f64(__VA_ARGS__) : name##_f32(__VA_ARGS__))

/* A row's operands: the first element of each, and the step to the next one. */
typedef struct {
    char *first[ONS_OPERANDS]; /* NULL: not given */
    int64_t step[ONS_OPERANDS];
} row_operands;

static row_operands operands_of(const routing *of, int64_t row) {
    row_operands at = {{NULL}, {0}};
    for (int role = 0; role < ONS_OPERANDS; role++) {
        const ons_operand *operand = &of->problem->operand[role];
        if (!operand->data) continue;
        at.first[role] = operand->data + ons_offset_of_row(of->problem, (ons_role)role, row);
        at.step[role] = operand->stride[of->problem->dims - 1];
    }
    return at;
}

static char *element_at(const row_operands *row, ons_role role, int64_t i) {
    return row->first[role] + i * row->step[role];
}

static bool is_excluded(const row_operands *row, int64_t i) {
    return row->first[ONS_WHERE] && !*element_at(row, ONS_WHERE, i);
}

/* Computes the keys of row i of a piece. `room` has space for a row. */
static void find_keys(const routing *of, const row_operands *row, const char *scores, char *keys,
                      char *room) {
    const ons_route *route = of->route;
    const int64_t N = of->plan->N;
    if (route->bias && route->score == ONS_SCORE_SOFTMAX) {
        OF_TYPE(of, add_bias, keys, scores, route->bias, N);
        return;
    }
    of->kernels->move.load(keys, row->first[ONS_X], row->step[ONS_X],
                           of->problem->operand[ONS_X].dtype, N);
    if (!route->bias) return;
    if (route->score != ONS_SCORE_NONE) {
        const ons_rows one = {.width = 1};
        const ons_tile e = {room, of->size, N * of->size};
        OF_TYPE(of, below_zero, room, keys, N);
        of->kernels->row.exp(&one, e, e, N);
        if (route->score == ONS_SCORE_SIGMOID)
            OF_TYPE(of, sigmoid, room, keys, N);
        else
            OF_TYPE(of, sqrtsoftplus, room, keys, N);
    }
    OF_TYPE(of, add_bias, keys, route->score != ONS_SCORE_NONE ? room : keys, route->bias, N);
}

static bool counts_more(const group *a, const group *b) {
    if (a->has_some != b->has_some) return a->has_some;
    return !isnan(b->number) && (isnan(a->number) || a->number > b->number);
}

/* Opens the groups with the largest values. */
static void open_groups(const routing *of, const char *keys, const bool *allowed, group *groups) {
    const ons_route *route = of->route;
    const int64_t n = of->in_group;
    for (int64_t g = 0; g < route->groups; g++)
        groups[g] = OF_TYPE(of, count, keys + g * n * of->size, allowed + g * n, n, route->bias);
    for (int64_t opened = 0; opened < route->top_groups; opened++) {
        group *next = NULL;
        for (group *g = groups; g < groups + route->groups; g++)
            if (!g->is_open && (!next || counts_more(g, next))) next = g;
        next->is_open = true;
    }
}

/* ------- Weights ------- */

static double score_of(ons_score score, double x) {
    if (score == ONS_SCORE_SOFTMAX || score == ONS_SCORE_NONE) return x;
    const double e = exp(-fabs(x));
    if (score == ONS_SCORE_SIGMOID) return (x < 0 ? e : 1) / (1 + e);
    if (x < FAR_BELOW) return exp(x / 2);
    return sqrt(x > 0 ? x + log1p(e) : log1p(e));
}

/* Replaces logits by their exponentials relative to the largest of them. */
static void exponentiate(double *weight, int64_t count) {
    double m = -(double)INFINITY;
    for (int64_t j = 0; j < count; j++) m = weight[j] > m || isnan(weight[j]) ? weight[j] : m;
    for (int64_t j = 0; j < count; j++) {
        const ons_two apart = ons_two_sum(weight[j], -m);
        const double e = exp(apart.high);
        weight[j] = isfinite(apart.low) ? e + e * apart.low : e;
    }
}

static double sum_of(const double *weight, int64_t count) {
    double sum = 0, low = 0;
    for (int64_t j = 0; j < count; j++) ons_add_to(&sum, &low, weight[j], true);
    return ons_total(sum, low, true);
}

/* Logit i of a row. */
static double logit_of(const routing *of, const row_operands *row, int64_t i) {
    const ons_dtype dtype = of->problem->operand[ONS_X].dtype;
    double wide;
    float single;
    if (of->plan->compute == ONS_FLOAT64) {
        of->kernels->move.load(&wide, element_at(row, ONS_X, i), 0, dtype, 1);
        return wide;
    }
    of->kernels->move.load(&single, element_at(row, ONS_X, i), 0, dtype, 1);
    return (double)single;
}

/* The weights of a row's k experts. Excluded experts come last among them. `scores` is the softmax
 * of the row's N experts if there are keys, else the softmax of the k experts. */
static void weigh(const routing *of, const row_operands *row, const int64_t *index,
                  const void *scores, double *weight) {
    const ons_route *route = of->route;
    const int64_t k = of->plan->k;
    const bool of_k = ons_route_is_softmax_of_k(route);
    int64_t count = 0;
    bool any_above = false; /* -inf */
    for (; count < k && !is_excluded(row, index[count]); count++) {
        const int64_t i = index[count];
        double score = score_of(route->score, logit_of(of, row, i));
        if (of->has_probabilities) {
            const double p = OF_TYPE(of, number, scores, of->has_keys ? i : count);
            if (!of_k || isnan(p)) score = p;
        }
        weight[count] = score;
        any_above |= !(score == -(double)INFINITY);
    }
    for (int64_t j = count; j < k; j++) weight[j] = 0;
    /* a bias may choose experts whose probabilities are all 0 */
    const bool all_zero = route->score == ONS_SCORE_SOFTMAX && route->bias && !any_above;
    for (int64_t j = 0; j < count && of_k && all_zero; j++) weight[j] = 0;
    if (of_k && !all_zero) exponentiate(weight, count);
    const double sum = route->renormalize ? sum_of(weight, count) : 0;
    for (int64_t j = 0; j < count; j++)
        weight[j] = (sum != 0 ? weight[j] / sum : weight[j]) * route->scale;
}

/* ------- A piece of the rows ------- */

static void run(routing *of, ons_operation operation, ons_problem *part) {
    part->operation = operation;
    part->route = NULL;
    const ons_status status = of->run_part(part);
    if (status != ONS_OK) atomic_store(&of->status, status);
}

/* Fills keys and scores of rows that differ in the last outer dimension alone. */
static void fill_keys(routing *of, int64_t row, int64_t rows, const row_scratch *to) {
    const ons_route *route = of->route;
    const int64_t N = of->plan->N, n = of->in_group, size = of->size;
    const bool has_groups = ons_route_has_groups(route);
    if (of->has_probabilities) {
        ons_problem part;
        ons_take_part(of->problem, row, rows, &part);
        part.operand[ONS_INDICES].data = NULL;
        ons_place_rows(&part, ONS_Y, to->scores, of->plan->compute, N);
        run(of, ONS_OPERATION_softmax, &part);
    }
    for (int64_t i = 0; i < rows; i++) {
        const row_operands at = operands_of(of, row + i);
        char *keys = to->keys + i * of->open * size, *all = has_groups ? to->keys_of_row : keys;
        bool *allowed = to->allowed + i * of->open;
        bool *all_allowed = has_groups ? to->allowed_of_row : allowed;
        int64_t *open = to->open + i * route->top_groups;
        find_keys(of, &at, to->scores + i * N * size, all, to->room);
        for (int64_t j = 0; j < N; j++) all_allowed[j] = !is_excluded(&at, j);
        *open = 0;
        if (!has_groups) continue;
        open_groups(of, all, all_allowed, to->groups);
        for (int64_t g = 0; g < route->groups; g++) {
            if (!to->groups[g].is_open) continue;
            memcpy(keys, all + g * n * size, (size_t)(n * size));
            memcpy(allowed, all_allowed + g * n, (size_t)n);
            keys += n * size;
            allowed += n;
            *open++ = g * n;
        }
    }
}

static void store(const routing *of, const row_operands *row, const int64_t *index,
                  const double *weight) {
    const bool wide_y = of->problem->operand[ONS_Y].dtype == ONS_FLOAT64;
    const bool wide_index = of->problem->operand[ONS_INDICES].dtype == ONS_INT64;
    for (int64_t j = 0; j < of->plan->k; j++) {
        void *y = element_at(row, ONS_Y, j), *place = element_at(row, ONS_INDICES, j);
        if (wide_y)
            *(double *)y = weight[j];
        else
            *(float *)y = (float)weight[j];
        if (wide_index)
            *(int64_t *)place = index[j];
        else
            *(int32_t *)place = (int32_t)index[j];
    }
}

static int64_t piece_bytes(const routing *of, int64_t rows) {
    char *const nowhere = (char *)(uintptr_t)ALIGNMENT;
    row_scratch sizes;
    return cut(of, nowhere, rows, &sizes) - nowhere;
}

static void route_rows(void *context, int worker, int64_t begin, int64_t end) {
    routing *of = context;
    const int64_t k = of->plan->k, groups = of->route->top_groups;
    const bool has_groups = ons_route_has_groups(of->route);
    row_scratch in;
    cut(of, of->scratch + worker * piece_bytes(of, of->piece), of->piece, &in);
    for (int64_t row = begin, rows; row < end; row += rows) {
        ons_problem part;
        rows = ons_rows_together(of->problem, row, end, of->piece);
        ons_take_part(of->problem, row, rows, &part);
        if (of->has_keys) {
            fill_keys(of, row, rows, &in);
            part.extent[part.dims - 1] = of->open;
            ons_place_rows(&part, ONS_X, in.keys, of->plan->compute, of->open);
            if (part.operand[ONS_WHERE].data)
                ons_place_rows(&part, ONS_WHERE, in.allowed, ONS_BOOL, of->open);
        }
        ons_place_rows(&part, ONS_Y, in.best, of->plan->compute, k);
        ons_place_rows(&part, ONS_INDICES, in.index, ONS_INT64, k);
        run(of, ONS_OPERATION_softmax_topk, &part);
        for (int64_t i = 0; i < rows; i++) {
            const row_operands at = operands_of(of, row + i);
            int64_t *index = in.index + i * k;
            for (int64_t j = 0; j < k && has_groups; j++)
                index[j] = in.open[i * groups + index[j] / of->in_group] + index[j] % of->in_group;
            const char *scores =
                of->has_keys ? in.scores + i * of->plan->N * of->size : in.best + i * k * of->size;
            weigh(of, &at, index, scores, in.weight);
            store(of, &at, index, in.weight);
        }
    }
}

static routing routing_of(const ons_problem *problem, const ons_plan *plan,
                          ons_run_part *run_part) {
    const ons_route *route = problem->route;
    routing of = {.problem = problem,
                  .plan = plan,
                  .route = route,
                  .kernels = ons_kernels_for(plan->compute),
                  .run_part = run_part,
                  .has_keys = route->bias || ons_route_has_groups(route),
                  .has_probabilities = ons_route_needs_pair(route),
                  .size = ons_dtype_size(plan->compute),
                  .in_group = plan->N / route->groups,
                  .open = plan->N / route->groups * route->top_groups,
                  .status = ONS_OK};
    const int64_t a_row = piece_bytes(&of, 1);
    of.piece = a_row < PIECE_BYTES ? PIECE_BYTES / a_row : 1;
    if (of.piece > plan->rows) of.piece = plan->rows;
    return of;
}

int64_t ons_route_scratch(const ons_problem *problem, const ons_plan *plan, int64_t *piece) {
    const routing of = routing_of(problem, plan, NULL);
    *piece = of.piece;
    return plan->threads * piece_bytes(&of, of.piece);
}

ons_status ons_cpu_route(const ons_problem *problem, const ons_plan *plan, ons_run_part *run_part) {
    routing of = routing_of(problem, plan, run_part);
    of.scratch = aligned_alloc(ALIGNMENT, (size_t)(plan->threads * piece_bytes(&of, of.piece)));
    if (!of.scratch) return ONS_E_MEMORY;
    ons_parallel_for(plan->rows, of.piece, plan->threads, route_rows, &of);
    free(of.scratch);
    return of.status;
}
