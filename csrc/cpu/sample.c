/* sample.c - the sampler of a language model (api/sample.h). A thread takes a piece of the rows at
 * a time. softmax_topk gives the first tokens of each row with their probabilities. If the filters
 * do not end among them, the masses of all tokens by the digits of their probabilities tell where
 * they end. softmax gives these probabilities, and the ones of rows without filters. */
#include "../api/sample.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../api/onsoftmax.h"
#include "cpu.h"
#include "part.h"

enum {
    PIECE_BYTES = 1 << 18, /* about the bytes of a piece's arrays, if rows are short */
    FIRST_LIST = 256,      /* tokens of a row's list, if top_p or min_p may end in it */
    LONGEST_LIST = 4096,   /* if top_k alone ends it */
    BLOCK = 256,           /* tokens whose masses are added up before they are compared */
    CHAINS = 8             /* independent sums, of which compilers make vectors */
};

typedef struct {
    const ons_problem *problem;
    const ons_plan *plan;
    const ons_sample *sample;
    ons_run_part *run_part;
    const ons_kernels *kernels;
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

/* Whether the filters may end before top_k does. */
static bool may_end_early(const sampling *of, const row_filters *filters) {
    const bool of_k = filters->top_p < 1 && !of->sample->joint && filters->top_k < of->plan->N;
    return (filters->top_p < 1 || filters->min_p > 0) && !of_k;
}

/* The tokens that the first list must have. */
static int64_t first_list(const sampling *of, const row_filters *filters) {
    const int64_t most = may_end_early(of, filters) ? FIRST_LIST : LONGEST_LIST;
    if (filters->top_k <= most) return filters->top_k;
    return may_end_early(of, filters) ? FIRST_LIST : 1;
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
    if (list->count < filters->top_k && !may_end_early(of, filters)) return false;
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

/* ------- A row whose filters end after its list ------- */

/* The bits of a probability, which are in its order. */
static uint64_t key_at(const sampling *of, const void *p, int64_t i) {
    uint64_t wide;
    uint32_t single;
    if (of->plan->compute == ONS_FLOAT64) {
        memcpy(&wide, (const double *)p + i, sizeof wide);
        return wide;
    }
    memcpy(&single, (const float *)p + i, sizeof single);
    return (uint64_t)single << 32;
}

static double p_of_key(const sampling *of, uint64_t key) {
    const uint32_t high = (uint32_t)(key >> 32);
    double wide;
    float single;
    memcpy(&wide, &key, sizeof wide);
    memcpy(&single, &high, sizeof single);
    return of->plan->compute == ONS_FLOAT64 ? wide : (double)single;
}

static uint64_t mass_of_key(const sampling *of, uint64_t key) {
    return (uint64_t)(p_of_key(of, key) * ONS_WHOLE_MASS);
}

/* Tokens by a digit of their keys, the first digit on top. */
enum { DIGIT = 11, DIGITS = 1 << DIGIT };
typedef struct {
    uint64_t mass[DIGITS], count[DIGITS];
} tokens_by_digit;

static int digit_of(uint64_t key, int level) {
    const int below = 64 - DIGIT * (level + 1);
    return (int)((below >= 0 ? key >> below : key << -below) & (DIGITS - 1));
}

static void add_token(const sampling *of, tokens_by_digit *to, uint64_t key, int level) {
    const int digit = digit_of(key, level);
    to->mass[digit] += mass_of_key(of, key);
    to->count[digit]++;
}

/* A place in the order of a row's tokens: the key of its token, and what the tokens with larger
 * keys amount to. */
typedef struct {
    uint64_t key, mass_above, count_above;
} place_in_order;

/* A row's tokens. `first` has all of them; the arrays have room for N keys and N indices. */
typedef struct {
    const void *p;
    uint64_t *keys;
    int64_t *index;
    tokens_by_digit *first, *next;
} row_tokens;

/* The token with which the first tokens reach a mass, or their number. There is as much. */
static place_in_order place_of(const sampling *of, const row_tokens *row, bool by_count,
                               uint64_t wanted) {
    const int levels = of->plan->compute == ONS_FLOAT64 ? 6 : 3;
    const tokens_by_digit *from = row->first;
    place_in_order place = {0, 0, 0};
    int64_t count = 0;
    for (int level = 0; level < levels; level++) {
        int digit = DIGITS - 1;
        for (;; digit--) {
            const uint64_t above = by_count ? place.count_above : place.mass_above;
            const uint64_t amount = by_count ? from->count[digit] : from->mass[digit];
            if (above + amount >= wanted || digit == 0) break;
            place.mass_above += from->mass[digit];
            place.count_above += from->count[digit];
        }
        int64_t kept = 0;
        if (level == 0) {
            for (int64_t i = 0; i < of->plan->N; i++) {
                const uint64_t key = key_at(of, row->p, i);
                if (digit_of(key, 0) == digit) row->keys[kept++] = key;
            }
        } else {
            for (int64_t i = 0; i < count; i++)
                if (digit_of(row->keys[i], level) == digit) row->keys[kept++] = row->keys[i];
        }
        count = kept;
        place.key = row->keys[0];
        if (level + 1 == levels) break;
        memset(row->next, 0, sizeof *row->next);
        for (int64_t i = 0; i < count; i++) add_token(of, row->next, row->keys[i], level + 1);
        from = row->next;
    }
    return place;
}

/* The mass of the tokens that the filters keep. */
static uint64_t kept_mass(const sampling *of, const row_filters *filters, const row_tokens *row,
                          double largest) {
    const int64_t N = of->plan->N;
    uint64_t all = 0;
    for (int digit = 0; digit < DIGITS; digit++) all += row->first->mass[digit];
    uint64_t of_k = all;
    if (filters->top_k < N) {
        const place_in_order last = place_of(of, row, true, (uint64_t)filters->top_k);
        of_k = last.mass_above +
               ((uint64_t)filters->top_k - last.count_above) * mass_of_key(of, last.key);
    }
    uint64_t end = of_k;
    if (filters->top_p < 1) {
        const double share =
            ons_share_of_mass(filters->top_p, (double)(of->sample->joint ? all : of_k),
                              of->plan->compute == ONS_FLOAT64);
        const uint64_t wanted = share > 1 ? (uint64_t)share : 1;
        const place_in_order last = place_of(of, row, false, wanted);
        const uint64_t one = mass_of_key(of, last.key);
        const uint64_t mass = last.mass_above + (wanted - last.mass_above + one - 1) / one * one;
        if (mass < end) end = mass;
    }
    if (filters->min_p > 0) {
        uint64_t mass = 0;
        for (int64_t i = 0; i < N; i++)
            if (p_at(of, row->p, i) >= filters->min_p * largest)
                mass += mass_of_key(of, key_at(of, row->p, i));
        if (mass < end) end = mass;
    }
    return end;
}

/* A logit as the order of tokens has it. */
typedef struct {
    double logit;
    int64_t index;
} ordered_token;

static int by_order(const void *a_, const void *b_) {
    const ordered_token *a = a_, *b = b_;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* The token number `order` of those with this key: they have one probability, but not always one
 * logit. Returns -1 if there is no memory. */
static int64_t token_of_equal(sampling *of, const row_tokens *row, int64_t number, uint64_t key,
                              uint64_t order) {
    int64_t count = 0;
    for (int64_t i = 0; i < of->plan->N; i++)
        if (key_at(of, row->p, i) == key) row->index[count++] = i;
    ordered_token *const tokens = malloc((size_t)count * sizeof *tokens);
    if (!tokens) {
        atomic_store(&of->status, ONS_E_MEMORY);
        return -1;
    }
    const ons_problem *problem = of->problem;
    const ons_operand *x = &problem->operand[ONS_X];
    const char *const from = x->data + ons_offset_of_row(problem, ONS_X, number);
    bool differ = false;
    for (int64_t i = 0; i < count; i++) {
        double wide;
        float single;
        const bool in_double = of->plan->compute == ONS_FLOAT64;
        of->kernels->move.load(in_double ? (void *)&wide : (void *)&single,
                               from + row->index[i] * x->stride[problem->dims - 1], 0, x->dtype, 1);
        tokens[i] = (ordered_token){in_double ? wide : (double)single, row->index[i]};
        differ |= tokens[i].logit != tokens[0].logit;
    }
    if (differ) qsort(tokens, (size_t)count, sizeof *tokens, by_order);
    const int64_t token = tokens[order < (uint64_t)count ? order : (uint64_t)count - 1].index;
    free(tokens);
    return token;
}

/* Draws by the masses of all tokens. */
static drawn_token draw_by_masses(sampling *of, const row_filters *filters, int64_t number,
                                  double *scale) {
    const int64_t N = of->plan->N;
    drawn_token drawn = NOT_VALID;
    const size_t bytes = (size_t)N * (sizeof(uint64_t) + sizeof(int64_t) + (size_t)of->size) +
                         2 * sizeof(tokens_by_digit);
    tokens_by_digit *const first = malloc(bytes);
    if (!first) {
        atomic_store(&of->status, ONS_E_MEMORY);
        return drawn;
    }
    uint64_t *const keys = (uint64_t *)(first + 2);
    int64_t *const index = (int64_t *)(keys + N);
    void *const p = index + N;
    const row_tokens row = {p, keys, index, first, first + 1};
    if (run(of, ONS_OPERATION_softmax, number, 1, scale, p, NULL, N)) {
        double largest = 0;
        memset(first, 0, sizeof *first);
        for (int64_t i = 0; i < N; i++) {
            if (p_at(of, p, i) > largest) largest = p_at(of, p, i);
            add_token(of, first, key_at(of, p, i), 0);
        }
        const uint64_t kept = kept_mass(of, filters, &row, largest);
        const uint64_t at = ons_mass_below(random_of(of, number), kept);
        const place_in_order place = place_of(of, &row, false, at + 1);
        const uint64_t mass = mass_of_key(of, place.key);
        drawn = (drawn_token){
            token_of_equal(of, &row, number, place.key, (at - place.mass_above) / mass),
            p_of_key(of, place.key), ons_kept_probability(p_of_key(of, place.key), mass, kept)};
    }
    free(first);
    return drawn;
}

/* ------- A piece of the rows, continued ------- */

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
                drawn = draw_by_masses(of, &filters[i], row + i, &scale[i]);
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
                   .kernels = ons_kernels_for(plan->compute),
                   .size = ons_dtype_size(plan->compute),
                   .status = ONS_OK};
    const int64_t a_row = plan->N * (of.size + (int64_t)sizeof(int64_t));
    of.piece = a_row < PIECE_BYTES ? PIECE_BYTES / a_row : 1;
    if (of.piece > plan->rows) of.piece = plan->rows;
    ons_parallel_for(plan->rows, of.piece, plan->threads, sample_rows, &of);
    return of.status;
}
