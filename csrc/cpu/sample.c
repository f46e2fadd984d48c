/* sample.c - the sampler of a language model, and its filters alone (api/sample.h). A thread takes
 * a piece of the rows at a time. softmax_topk gives the first tokens of each row with their
 * probabilities. If the filters do not end among them, sample_masses.c takes the row. For rows
 * without filters, softmax gives the probabilities of all tokens. */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

#include "../api/onsoftmax.h"
#include "part.h"

enum {
    PIECE_BYTES = 1 << 18, /* about the bytes of a piece's arrays, if rows are short */
    FIRST_LIST = 256,      /* tokens of a row's list, if top_p or min_p may end in it */
    LONGEST_LIST = 4096,   /* the most tokens of a list that top_k alone ends */
    BLOCK = 256,           /* tokens whose masses are added up before they are compared */
    CHAINS = 8             /* independent sums, of which compilers make vectors */
};

/* A row's first tokens in order. Their probabilities are of the compute type. */
typedef struct {
    const void *p;
    const int64_t *index;
    int64_t count;
} token_list;

/* ------- A row with filters ------- */

/* Whether the filters may end before top_k does. */
static bool may_end_early(const ons_sampling *of, const ons_row_filters *filters) {
    const bool of_k = filters->top_p < 1 && !of->sample->joint && filters->top_k < of->plan->N;
    return (filters->top_p < 1 || filters->min_p > 0) && !of_k;
}

/* The tokens that the first list must have. */
static int64_t first_list(const ons_sampling *of, const ons_row_filters *filters) {
    const int64_t most = may_end_early(of, filters) ? FIRST_LIST : LONGEST_LIST;
    if (filters->top_k <= most) return filters->top_k;
    return may_end_early(of, filters) ? FIRST_LIST : 1;
}

static uint64_t mass_at(const ons_sampling *of, const token_list *list, int64_t i) {
    return ons_mass_of(ons_sample_p_at(of, list->p, i));
}

/* What the filters keep of a list. */
typedef struct {
    int64_t tokens; /* 0: the row is not valid */
    uint64_t mass;
    bool ends; /* false: the filters end after the list */
} kept_of_list;

static kept_of_list keep_of_list(const ons_sampling *of, const ons_row_filters *filters,
                                 const token_list *list) {
    const int64_t N = of->plan->N;
    const double largest = ons_sample_p_at(of, list->p, 0);
    kept_of_list kept = {0, 0, true};
    if (!(largest > 0)) return kept;
    kept.ends = list->count >= filters->top_k || may_end_early(of, filters);
    if (!kept.ends) return kept;
    const int64_t count = list->count < filters->top_k ? list->count : filters->top_k;
    const bool of_k = !of->sample->joint && filters->top_k < N;
    double enough = INFINITY;
    if (filters->top_p < 1) {
        uint64_t mass = 0;
        for (int64_t i = 0; of_k && i < count; i++) mass += mass_at(of, list, i);
        enough = ons_share_of_mass(filters->top_p, of_k ? (double)mass : ONS_WHOLE_MASS,
                                   of->plan->compute == ONS_FLOAT64);
    }
    int64_t tokens = 0;
    for (; tokens < count && (tokens == 0 || (double)kept.mass < enough); tokens++) {
        if (ons_sample_p_at(of, list->p, tokens) < filters->min_p * largest) break;
        kept.mass += mass_at(of, list, tokens);
    }
    kept.tokens = tokens;
    kept.ends = tokens < list->count || tokens == filters->top_k || (double)kept.mass >= enough;
    return kept;
}

static ons_drawn_token draw_from_list(const ons_sampling *of, const kept_of_list *kept,
                                      const token_list *list, int64_t row) {
    if (kept->tokens == 0) return ONS_NOT_VALID;
    const uint64_t at = ons_mass_below(ons_random_of_row(of->sample, row), kept->mass);
    int64_t token = 0;
    for (uint64_t passed = mass_at(of, list, 0); passed <= at; passed += mass_at(of, list, token))
        token++;
    return ons_drawn_of(list->index[token], ons_sample_p_at(of, list->p, token), kept->mass);
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
#undef FOR_TYPE

/* The sum of the block that begins at p[begin], of n numbers in all. */
static double sum_of_block(const ons_sampling *of, const void *p, int64_t n, int64_t begin) {
    const int64_t end = begin + BLOCK < n ? begin + BLOCK : n;
    return of->plan->compute == ONS_FLOAT64 ? sum_f64(p, begin, end) : sum_f32(p, begin, end);
}

static double sum_of(const ons_sampling *of, const void *p, int64_t n) {
    double all = 0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) all += sum_of_block(of, p, n, begin);
    return all;
}

/* Draws a token by the probabilities of all tokens. The running sum is in the order of indices. */
static ons_drawn_token draw_from_all(const ons_sampling *of, const void *p, int64_t row) {
    const int64_t N = of->plan->N;
    const double all = sum_of(of, p, N);
    if (!(all > 0)) return ONS_NOT_VALID;
    const double at = (double)(ons_random_of_row(of->sample, row) >> 11) * 0x1p-53 * all;
    double passed = 0;
    int64_t token = -1;
    for (int64_t begin = 0; begin < N && passed <= at; begin += BLOCK) {
        const double with_block = passed + sum_of_block(of, p, N, begin);
        if (with_block > at || begin + BLOCK >= N) {
            /* if rounding leaves the sum below the block's mass, the last token with a mass */
            for (int64_t i = begin; i < N && i < begin + BLOCK && passed <= at; i++) {
                if (ons_sample_p_at(of, p, i) > 0) token = i;
                passed += ons_sample_p_at(of, p, i);
            }
            break;
        }
        passed = with_block;
    }
    for (int64_t i = N - 1; i >= 0 && token < 0; i--) /* the last block has no mass */
        if (ons_sample_p_at(of, p, i) > 0) token = i;
    return (ons_drawn_token){token, ons_sample_p_at(of, p, token), all};
}

/* ------- A piece of the rows ------- */

/* Runs an operation on rows that differ in the last outer dimension alone. `scale` has a number for
 * each row. The results have n elements a row. Returns whether it has run. */
static bool run(ons_sampling *of, ons_operation operation, int64_t row, int64_t rows, double *scale,
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

/* Memory for the probabilities and the indices of some tokens. The caller frees `index`. */
typedef struct {
    void *p;
    int64_t *index;
} token_room;

static bool take_room(ons_sampling *of, int64_t tokens, token_room *to) {
    to->index = malloc((size_t)(1 + tokens * ((int64_t)sizeof(int64_t) + of->size)));
    if (!to->index) {
        atomic_store(&of->status, ONS_E_MEMORY);
        return false;
    }
    to->p = to->index + tokens;
    return true;
}

static void store(const ons_sampling *of, int64_t row, const ons_drawn_token *drawn) {
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
    const double logprob = ons_drawn_logprob(sample, drawn);
    if (problem->operand[ONS_Y].dtype == ONS_FLOAT64)
        *(double *)y = logprob;
    else
        *(float *)y = (float)logprob;
}

/* A row of the result of filtered_softmax. */
typedef struct {
    char *data;
    int64_t step; /* bytes */
} filtered_row;

#define FOR_TYPE(T, name) /* The probabilities p divided by the sum of the kept ones. */     \
    static void write_##name(const filtered_row *y, const void *p, double kept, int64_t n) { \
        const double factor = 1 / kept;                                                      \
        const T *from = p;                                                                   \
        for (int64_t i = 0; i < n; i++)                                                      \
            *(T *)(void *)(y->data + i * y->step) = (T)((double)from[i] * factor);           \
    }                                                                                        \
    static void fill_##name(const filtered_row *y, double value, int64_t n) {                \
        for (int64_t i = 0; i < n; i++) *(T *)(void *)(y->data + i * y->step) = (T)value;    \
    }
FOR_TYPE(float, f32)
FOR_TYPE(double, f64)
#undef FOR_TYPE

static void fill(const ons_sampling *of, const filtered_row *y, double value) {
    const int64_t N = of->plan->N;
    if (value == 0 && y->step == of->size)
        memset(y->data, 0, (size_t)(N * of->size));
    else if (of->plan->compute == ONS_FLOAT64)
        fill_f64(y, value, N);
    else
        fill_f32(y, value, N);
}
static void write_all(const ons_sampling *of, const filtered_row *y, const void *p, double kept) {
    if (of->plan->compute == ONS_FLOAT64)
        write_f64(y, p, kept, of->plan->N);
    else
        write_f32(y, p, kept, of->plan->N);
}
static void write_list(const ons_sampling *of, const filtered_row *y, const kept_of_list *kept,
                       const token_list *list) {
    const double sum = sum_of(of, list->p, kept->tokens);
    fill(of, y, kept->tokens == 0 ? (double)NAN : 0);
    for (int64_t i = 0; i < kept->tokens; i++) {
        const double p = ons_sample_p_at(of, list->p, i) / sum;
        void *const to = y->data + list->index[i] * y->step;
        if (of->plan->compute == ONS_FLOAT64)
            *(double *)to = p;
        else
            *(float *)to = (float)p;
    }
}

/* ------- A piece of the rows ------- */

/* The probabilities of a row's tokens, or NULL. The caller frees them. */
static void *probabilities(ons_sampling *of, int64_t row, double *scale) {
    const int64_t N = of->plan->N;
    void *const p = malloc((size_t)(N * of->size));
    if (!p) atomic_store(&of->status, ONS_E_MEMORY);
    if (p && run(of, ONS_OPERATION_softmax, row, 1, scale, p, NULL, N)) return p;
    free(p);
    return NULL;
}

/* In the next two functions, `list` is for a row with filters. p has all probabilities of a row
 * without filters. */
static ons_drawn_token draw(ons_sampling *of, const ons_row_filters *filters,
                            const token_list *list, const void *p, int64_t row, double *scale) {
    if (!filters->in_range) return ONS_NOT_VALID;
    if (ons_filters_are_off(filters, of->plan->N)) return draw_from_all(of, p, row);
    const kept_of_list kept = keep_of_list(of, filters, list);
    if (kept.ends) return draw_from_list(of, &kept, list, row);
    void *const all = probabilities(of, row, scale);
    const ons_drawn_token drawn =
        all ? ons_draw_by_masses(of, filters, row, *scale, all) : ONS_NOT_VALID;
    free(all);
    return drawn;
}

static void write_filtered(ons_sampling *of, const ons_row_filters *filters, const token_list *list,
                           const void *p, int64_t row, double *scale) {
    const int64_t N = of->plan->N;
    const ons_operand *to = &of->problem->operand[ONS_Y];
    const filtered_row y = {to->data + ons_offset_of_row(of->problem, ONS_Y, row),
                            to->stride[of->problem->dims - 1]};
    if (!filters->in_range) {
        fill(of, &y, (double)NAN);
    } else if (ons_filters_are_off(filters, N)) {
        if (sum_of(of, p, N) > 0)
            write_all(of, &y, p, 1);
        else
            fill(of, &y, (double)NAN);
    } else {
        const kept_of_list kept = keep_of_list(of, filters, list);
        if (kept.ends) {
            write_list(of, &y, &kept, list);
            return;
        }
        void *const all = probabilities(of, row, scale);
        if (all) {
            ons_keep_by_masses(of, filters, row, *scale, all);
            write_all(of, &y, all, sum_of(of, all, N));
        }
        free(all);
    }
}

static void sample_piece(ons_sampling *of, int64_t row, int64_t rows, ons_row_filters *filters,
                         double *scale) {
    const int64_t N = of->plan->N;
    int64_t in_list = 0;
    bool any_without = false;
    for (int64_t i = 0; i < rows; i++) {
        filters[i] = ons_filters_of(of->sample, row + i, N);
        scale[i] = filters[i].in_range
                       ? ons_sample_scale(filters[i].temperature, of->plan->compute == ONS_FLOAT64)
                       : 1;
        if (!filters[i].in_range) continue;
        const bool filtered = !ons_filters_are_off(&filters[i], N);
        const int64_t tokens = filtered ? first_list(of, &filters[i]) : 0;
        if (tokens > in_list) in_list = tokens;
        any_without |= !filtered;
    }
    const bool draws = of->sample->draws;
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
            const token_list list = {(const char *)lists.p + i * in_list * of->size,
                                     lists.index + i * in_list, in_list};
            const void *const p = (const char *)all.p + i * N * of->size;
            if (draws) {
                const ons_drawn_token drawn = draw(of, &filters[i], &list, p, row + i, &scale[i]);
                store(of, row + i, &drawn);
            } else {
                write_filtered(of, &filters[i], &list, p, row + i, &scale[i]);
            }
        }
        free(all.index);
    }
    free(lists.index);
}

static void sample_rows(void *context, int worker, int64_t begin, int64_t end) {
    ons_sampling *of = context;
    (void)worker;
    ons_row_filters *filters = malloc((size_t)of->piece * (sizeof *filters + sizeof(double)));
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
    ons_sampling of = {.problem = problem,
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
