/* sample.c - the sampler of a language model (api/sample.h). A thread takes a piece of the rows at
 * a time. softmax_topk gives the first tokens of each row with their probabilities. If the filters
 * do not end among them, the row takes a longer list. softmax gives the rows without filters. */
#include "../api/sample.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../api/onsoftmax.h"
#include "cpu.h"
#include "part.h"

enum {
    PIECE_BYTES = 1 << 18, /* about the bytes of a piece's arrays, if rows are short */
    FIRST_LIST = 256,      /* tokens of a row's first list, if top_p or min_p may end it */
    LONGER = 16,           /* the next list has so many times as many */
    BLOCK = 256,           /* tokens whose masses are added up before they are compared */
    CHAINS = 8             /* independent sums, of which compilers make vectors */
};

typedef struct {
    const ons_problem *problem;
    const ons_plan *plan;
    const ons_sample *sample;
    ons_run_part *run_part;
    int64_t size;  /* of a number of the compute type */
    int64_t piece; /* rows */
    atomic_int status;
} sampling;

/* A row's parameters. */
typedef struct {
    double temperature, top_p, min_p;
    int64_t top_k; /* N: off */
    bool in_range;
} row_filters;

/* A row's first tokens in order. Their probabilities are of the compute type. */
typedef struct {
    const void *p;
    const int64_t *index;
    int64_t count;
} token_list;

/* The result of a row. */
typedef struct {
    int64_t index;  /* -1: not valid */
    double p, kept; /* the probability of the token, and of all kept tokens */
} drawn_token;

static const drawn_token NOT_VALID = {-1, NAN, NAN};

static row_filters filters_of(const sampling *of, int64_t row) {
    const ons_sample *sample = of->sample;
    const int64_t N = of->plan->N, k = ons_row_integer_of(&sample->top_k, row);
    row_filters filters = {ons_row_real_of(&sample->temperature, row),
                           ons_row_real_of(&sample->top_p, row),
                           ons_row_real_of(&sample->min_p, row), k < 1 || k > N ? N : k, true};
    filters.in_range = filters.temperature >= 0 && isfinite(filters.temperature) &&
                       filters.top_p >= 0 && filters.top_p <= 1 && filters.min_p >= 0 &&
                       filters.min_p <= 1;
    if (ons_is_greedy(filters.temperature)) filters.top_k = 1;
    return filters;
}

static bool has_filters(const sampling *of, const row_filters *filters) {
    return filters->top_k < of->plan->N || filters->top_p < 1 || filters->min_p > 0;
}

/* The tokens that the first list must have. */
static int64_t first_list(const sampling *of, const row_filters *filters) {
    const bool needs_all_k =
        filters->top_p < 1 && !of->sample->joint && filters->top_k < of->plan->N;
    const bool may_end = filters->top_p < 1 || filters->min_p > 0;
    if (filters->top_k <= FIRST_LIST || needs_all_k || !may_end) return filters->top_k;
    return FIRST_LIST;
}

static double p_at(const sampling *of, const void *array, int64_t i) {
    return of->plan->compute == ONS_FLOAT64 ? ((const double *)array)[i]
                                            : (double)((const float *)array)[i];
}

static uint64_t random_of(const sampling *of, int64_t row) {
    const ons_sample *sample = of->sample;
    const bool own_seed = sample->seed.of_rows && sample->seed.step > 0;
    return ons_random_bits((uint64_t)ons_row_integer_of(&sample->seed, row),
                           (uint64_t)ons_row_integer_of(&sample->offset, row),
                           own_seed ? 0 : (uint64_t)row);
}

/* ------- A row with filters ------- */

/* The mass of a token: its probability in fixed point. Sums of masses have no rounding error. */
static uint64_t mass_at(const sampling *of, const token_list *list, int64_t i) {
    return (uint64_t)(p_at(of, list->p, i) * ONS_WHOLE_MASS);
}

/* Draws from a list. Returns false if the filters end after it. */
static bool draw_from_list(const sampling *of, const row_filters *filters, const token_list *list,
                           int64_t row, drawn_token *to) {
    const int64_t N = of->plan->N;
    const double largest = p_at(of, list->p, 0);
    *to = NOT_VALID;
    if (!(largest > 0)) return true;
    const int64_t count = list->count < filters->top_k ? list->count : filters->top_k;
    const bool of_k = !of->sample->joint && filters->top_k < N;
    double enough = INFINITY;
    if (filters->top_p < 1) {
        uint64_t mass = 0;
        for (int64_t i = 0; i < (of_k ? count : list->count); i++) mass += mass_at(of, list, i);
        enough = ons_share_of_mass(filters->top_p,
                                   of_k || list->count == N ? (double)mass : ONS_WHOLE_MASS,
                                   of->plan->compute == ONS_FLOAT64);
    }
    uint64_t kept = 0;
    int64_t tokens = 0;
    for (; tokens < count && (tokens == 0 || (double)kept < enough); tokens++) {
        if (p_at(of, list->p, tokens) < filters->min_p * largest) break;
        kept += mass_at(of, list, tokens);
    }
    if (tokens == list->count && tokens < filters->top_k && (double)kept < enough) return false;
    const uint64_t at = ons_mass_below(random_of(of, row), kept);
    int64_t token = 0;
    for (uint64_t passed = mass_at(of, list, 0); passed <= at; passed += mass_at(of, list, token))
        token++;
    const double p = p_at(of, list->p, token);
    *to = (drawn_token){list->index[token], p,
                        ons_kept_probability(p, mass_at(of, list, token), kept)};
    return true;
}

/* ------- A row without filters ------- */

#define FOR_TYPE(T, name)                                                     \
    static double sum_##name(const void *array, int64_t begin, int64_t end) { \
        const T *p = array;                                                   \
        double sum[CHAINS] = {0}, all = 0;                                    \
        int64_t i = begin;                                                    \
        for (; i + CHAINS <= end; i += CHAINS)                                \
            for (int c = 0; c < CHAINS; c++) sum[c] += (double)p[i + c];      \
        for (; i < end; i++) sum[i % CHAINS] += (double)p[i];                 \
        for (int c = 0; c < CHAINS; c++) all += sum[c];                       \
        return all;                                                           \
    }
FOR_TYPE(float, f32)
FOR_TYPE(double, f64)

/* The mass of the block that begins at token `begin`. */
static double mass_of_block(const sampling *of, const void *p, int64_t begin) {
    const int64_t N = of->plan->N, end = begin + BLOCK < N ? begin + BLOCK : N;
    return of->plan->compute == ONS_FLOAT64 ? sum_f64(p, begin, end) : sum_f32(p, begin, end);
}

/* Draws from the probabilities of all tokens, in the order of their indices. */
static drawn_token draw_from_all(const sampling *of, const void *p, int64_t row) {
    const int64_t N = of->plan->N;
    double all = 0;
    for (int64_t begin = 0; begin < N; begin += BLOCK) all += mass_of_block(of, p, begin);
    if (!(all > 0)) return NOT_VALID;
    const double at = (double)(random_of(of, row) >> 11) * 0x1p-53 * all;
    double passed = 0;
    int64_t token = -1;
    for (int64_t begin = 0; begin < N && passed <= at; begin += BLOCK) {
        const double with_block = passed + mass_of_block(of, p, begin);
        if (with_block > at || begin + BLOCK >= N) {
            /* the last token with a mass, if rounding leaves the sum below the block's */
            for (int64_t i = begin; i < N && i < begin + BLOCK && passed <= at; i++) {
                if (p_at(of, p, i) > 0) token = i;
                passed += p_at(of, p, i);
            }
            break;
        }
        passed = with_block;
    }
    for (int64_t i = N - 1; i >= 0 && token < 0; i--) /* the last block has no mass */
        if (p_at(of, p, i) > 0) token = i;
    return (drawn_token){token, p_at(of, p, token), all};
}

/* ------- A piece of the rows ------- */

/* Runs an operation on rows that differ in the last outer dimension alone. `scale`: of each row.
 * The results have n elements a row. */
static bool run(sampling *of, ons_operation operation, int64_t row, int64_t rows, double *scale,
                void *p, int64_t *index, int64_t n) {
    ons_problem part;
    ons_take_part(of->problem, row, rows, &part);
    part.operation = operation;
    part.sample = NULL;
    part.k = n;
    part.sorted = true;
    ons_place_rows(&part, ONS_SCALE, scale, ONS_FLOAT64, 1);
    part.operand[ONS_SCALE].stride[part.dims - 1] = 0;
    ons_place_rows(&part, ONS_Y, p, of->plan->compute, n);
    part.operand[ONS_INDICES].data = NULL;
    if (index) ons_place_rows(&part, ONS_INDICES, index, ONS_INT64, n);
    const ons_status status = of->run_part(&part);
    if (status != ONS_OK) atomic_store(&of->status, status);
    return status == ONS_OK;
}

/* Memory for n tokens of each row. The caller frees p. */
typedef struct {
    void *p;
    int64_t *index;
} token_room;

static bool take_room(sampling *of, int64_t tokens, token_room *to) {
    to->index = malloc((size_t)(tokens * ((int64_t)sizeof(int64_t) + of->size)));
    to->p = to->index + tokens;
    if (!to->index) atomic_store(&of->status, ONS_E_MEMORY);
    return to->index;
}

/* Draws from ever longer lists. */
static drawn_token draw_from_longer(sampling *of, const row_filters *filters, int64_t row,
                                    double *scale, int64_t count) {
    drawn_token drawn = NOT_VALID;
    for (bool ends = false; !ends;) {
        token_room room;
        count = count > filters->top_k / LONGER ? filters->top_k : count * LONGER;
        if (!take_room(of, count, &room)) return NOT_VALID;
        const token_list list = {room.p, room.index, count};
        ends = !run(of, ONS_OPERATION_softmax_topk, row, 1, scale, room.p, room.index, count) ||
               draw_from_list(of, filters, &list, row, &drawn);
        free(room.index);
    }
    return drawn;
}

static void store(const sampling *of, int64_t row, const drawn_token *drawn) {
    const ons_problem *problem = of->problem;
    const ons_sample *sample = of->sample;
    void *const index =
        problem->operand[ONS_INDICES].data + ons_offset_of_row(problem, ONS_INDICES, row);
    void *const y = problem->operand[ONS_Y].data + ons_offset_of_row(problem, ONS_Y, row);
    if (problem->operand[ONS_INDICES].dtype == ONS_INT64)
        *(int64_t *)index = drawn->index;
    else
        *(int32_t *)index = (int32_t)drawn->index;
    if (sample->valid) sample->valid[row] = drawn->index >= 0;
    if (sample->logprob == ONS_NO_LOGPROB) return;
    const double of_all = sample->logprob == ONS_LOGPROB_FILTERED ? drawn->kept : 1;
    const double logprob = log(drawn->p / of_all);
    if (problem->operand[ONS_Y].dtype == ONS_FLOAT64)
        *(double *)y = logprob;
    else
        *(float *)y = (float)logprob;
}

static void sample_piece(sampling *of, int64_t row, int64_t rows, row_filters *filters,
                         double *scale) {
    const int64_t N = of->plan->N;
    int64_t in_list = 0;
    bool any_without = false;
    for (int64_t i = 0; i < rows; i++) {
        filters[i] = filters_of(of, row + i);
        scale[i] = filters[i].in_range ? ons_sample_scale(filters[i].temperature) : 1;
        if (!filters[i].in_range) continue;
        const bool filtered = has_filters(of, &filters[i]);
        const int64_t tokens = filtered ? first_list(of, &filters[i]) : 0;
        if (tokens > in_list) in_list = tokens;
        any_without |= !filtered;
    }
    token_room lists, all;
    if (!take_room(of, rows * in_list, &lists)) return;
    if (take_room(of, any_without ? rows * N : 0, &all)) {
        bool runs = true;
        if (in_list > 0)
            runs = run(of, ONS_OPERATION_softmax_topk, row, rows, scale, lists.p, lists.index,
                       in_list);
        if (any_without)
            runs = runs && run(of, ONS_OPERATION_softmax, row, rows, scale, all.p, NULL, N);
        for (int64_t i = 0; i < rows && runs; i++) {
            drawn_token drawn = NOT_VALID;
            const token_list list = {(const char *)lists.p + i * in_list * of->size,
                                     lists.index + i * in_list, in_list};
            if (!filters[i].in_range)
                ;
            else if (!has_filters(of, &filters[i]))
                drawn = draw_from_all(of, (const char *)all.p + i * N * of->size, row + i);
            else if (!draw_from_list(of, &filters[i], &list, row + i, &drawn))
                drawn = draw_from_longer(of, &filters[i], row + i, &scale[i], in_list);
            store(of, row + i, &drawn);
        }
        free(all.index);
    }
    free(lists.index);
}

static void sample_rows(void *context, int worker, int64_t begin, int64_t end) {
    sampling *of = context;
    (void)worker;
    row_filters *filters = malloc((size_t)of->piece * (sizeof *filters + sizeof(double)));
    if (!filters) {
        atomic_store(&of->status, ONS_E_MEMORY);
        return;
    }
    double *scale = (double *)(filters + of->piece);
    for (int64_t row = begin, rows; row < end; row += rows) {
        rows = ons_rows_together(of->problem, row, end, of->piece);
        sample_piece(of, row, rows, filters, scale);
    }
    free(filters);
}

ons_status ons_cpu_sample(const ons_problem *problem, const ons_plan *plan,
                          ons_run_part *run_part) {
    sampling of = {.problem = problem,
                   .plan = plan,
                   .sample = problem->sample,
                   .run_part = run_part,
                   .size = ons_dtype_size(plan->compute),
                   .status = ONS_OK};
    const int64_t a_row = plan->N * (of.size + (int64_t)sizeof(int64_t));
    of.piece = a_row < PIECE_BYTES ? PIECE_BYTES / a_row : 1;
    if (of.piece > plan->rows) of.piece = plan->rows;
    ons_parallel_for(plan->rows, of.piece, plan->threads, sample_rows, &of);
    return of.status;
}
