/* sample.h - what a sampler and its filters take besides the logits, and the steps that the CPU and
 * a GPU share.
 *
 * Let p be the softmax of a row divided by its temperature. The tokens are in order of their
 * logits, the largest first. If two logits are equal, the lower index comes first. Logits that the
 * division makes equal may be in either order. Each filter keeps the first tokens of this order:
 *
 *     top_k    the first top_k tokens
 *     top_p    the fewest tokens that have the share top_p of the mass that top_k keeps, or if
 *              `joint` of the mass of the whole row
 *     min_p    the tokens with p >= min_p times the largest p
 *
 * The first token is always kept. The draw takes one of the kept tokens, each with the probability
 * p / (sum of the kept p). It takes the token at which the running mass passes a random number
 * below the kept mass. The running mass of a row without filters is in the order of indices, and of
 * any other row in the order of logits.
 *
 * filtered_softmax does not draw. Its result is a row of these probabilities. All excluded tokens
 * have 0.
 *
 * A temperature of 0, or too small to divide by, takes the first token. Its log-probability is at
 * temperature 1.
 *
 * A row is valid if no logit is NaN, if its largest logit divided by the temperature is finite, and
 * if its parameters are in range: temperature >= 0 and finite, 0 <= top_p <= 1, 0 <= min_p <= 1.
 * Any other row has index -1, and the log-probability NaN. All its filtered
 * probabilities are NaN. */
#ifndef ONS_SAMPLE_H
#define ONS_SAMPLE_H

#include <math.h>

#include "problem.h"
#include "state.h"

/* A number for each row, or one number for all rows. */
typedef struct {
    const void *of_rows; /* without gaps; NULL: `number` is for all rows */
    int64_t step;        /* 1, or 0 if of_rows has one number for all rows */
    ons_dtype dtype;     /* the type of of_rows */
    double number;
} ons_row_real;
typedef struct {
    const void *of_rows;
    int64_t step;
    bool is_wide; /* int64, else int32 */
    int64_t number;
} ons_row_integer;

/* What y receives: nothing, or the log-probability of the drawn token in the softmax of the row
 * divided by its temperature, or among the kept tokens. */
typedef enum { ONS_NO_LOGPROB, ONS_LOGPROB_UNFILTERED, ONS_LOGPROB_FILTERED } ons_sample_logprob;

/* For a sampler, y and ONS_INDICES of the problem have one element a row. For filtered_softmax, y
 * has a row, and there are no indices. The problem's k is 1. */
typedef struct ons_sample {
    ons_row_real temperature, top_p, min_p;
    ons_row_integer top_k, seed, offset; /* top_k below 1: off */
    int64_t period; /* rows have the numbers 0 to period - 1, again and again */
    bool draws;     /* false for filtered_softmax */
    bool joint;
    ons_sample_logprob logprob;
    bool *valid; /* an entry for each row, in the order of the rows; NULL: not wanted */
} ons_sample;

ONS_INLINE double ons_row_real_of(const ons_row_real *all, int64_t row) {
    if (!all->of_rows) return all->number;
    return all->dtype == ONS_FLOAT64 ? ((const double *)all->of_rows)[row * all->step]
                                     : (double)((const float *)all->of_rows)[row * all->step];
}
ONS_INLINE int64_t ons_row_integer_of(const ons_row_integer *all, int64_t row) {
    if (!all->of_rows) return all->number;
    return all->is_wide ? ((const int64_t *)all->of_rows)[row * all->step]
                        : (int64_t)((const int32_t *)all->of_rows)[row * all->step];
}

ONS_INLINE bool ons_is_greedy(double temperature) { return temperature < 1e-30; }

/* The factor of the logits. It is a float32, unless the arithmetic is in double. */
ONS_INLINE double ons_sample_scale(double temperature, bool in_double) {
    const double least = 0x1p-149; /* 0 times -inf would be NaN */
    if (temperature == 1 || ons_is_greedy(temperature)) return 1;
    return in_double ? 1 / temperature : (double)(float)fmax(1 / temperature, least);
}

/* The parameters of one row. */
typedef struct {
    double temperature, top_p, min_p;
    int64_t top_k; /* N: off */
    bool in_range;
} ons_row_filters;

ONS_INLINE ons_row_filters ons_filters_of(const ons_sample *sample, int64_t row, int64_t N) {
    const int64_t k = ons_row_integer_of(&sample->top_k, row);
    ons_row_filters of = {ons_row_real_of(&sample->temperature, row),
                          ons_row_real_of(&sample->top_p, row),
                          ons_row_real_of(&sample->min_p, row), k < 1 || k > N ? N : k, true};
    of.in_range = of.temperature >= 0 && isfinite(of.temperature) && of.top_p >= 0 &&
                  of.top_p <= 1 && of.min_p >= 0 && of.min_p <= 1;
    if (ons_is_greedy(of.temperature)) of.top_k = 1;
    return of;
}
ONS_INLINE bool ons_filters_are_off(const ons_row_filters *filters, int64_t N) {
    return filters->top_k == N && filters->top_p == 1 && filters->min_p == 0;
}

/* Whether a filter may end before the tokens that top_k keeps. */
ONS_INLINE bool ons_sample_cuts_mass(const ons_sample *sample) {
    return sample->top_p.of_rows || sample->top_p.number < 1 || sample->min_p.of_rows ||
           sample->min_p.number > 0;
}

/* Whether no filter can exclude a token of any row, and not all rows are greedy. */
ONS_INLINE bool ons_sample_has_no_filter(const ons_sample *sample, int64_t N) {
    const int64_t top_k = sample->top_k.number;
    const bool greedy = !sample->temperature.of_rows && ons_is_greedy(sample->temperature.number);
    return !sample->top_k.of_rows && (top_k < 1 || top_k >= N) && !ons_sample_cuts_mass(sample) &&
           !greedy;
}

/* Makes filtered_softmax a softmax if all rows have one temperature, no mask and no filter. With a
 * mask, softmax gives other rows that are not valid. The row has one dimension. */
ONS_INLINE void ons_filtered_softmax_without_filter(ons_problem *problem) {
    const ons_sample *sample = problem->sample;
    if (sample->draws || sample->temperature.of_rows || problem->operand[ONS_WHERE].data ||
        !ons_sample_has_no_filter(sample, problem->extent[problem->dims - 1]))
        return;
    problem->operation = ONS_OPERATION_softmax;
    problem->scale_by =
        ons_sample_scale(sample->temperature.number, problem->operand[ONS_X].dtype == ONS_FLOAT64);
    problem->sample = NULL;
}

/* A random number of 64 bits: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", 2011) with the seed as key and (offset, number of the row) as counter. */
ONS_INLINE uint64_t ons_random_bits(uint64_t seed, uint64_t offset, uint64_t number) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t c[4] = {(uint32_t)offset, (uint32_t)(offset >> 32), (uint32_t)number,
                     (uint32_t)(number >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53 * c[0], b = (uint64_t)0xCD9E8D57 * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};
        for (int i = 0; i < 4; i++) c[i] = next[i];
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    return (uint64_t)c[1] << 32 | c[0];
}

/* The random number of a row. */
ONS_INLINE uint64_t ons_random_of_row(const ons_sample *sample, int64_t row) {
    const uint64_t period = (uint64_t)sample->period, number = (uint64_t)row;
    return ons_random_bits((uint64_t)ons_row_integer_of(&sample->seed, row),
                           (uint64_t)ons_row_integer_of(&sample->offset, row),
                           number < period ? number : number % period);
}

/* The mass of a token is its probability in fixed point, so sums of masses have no rounding error.
 * The masses of a row add up to about this number. */
#define ONS_WHOLE_MASS 0x1p50
ONS_INLINE uint64_t ons_mass_of(double p) { return (uint64_t)(p * ONS_WHOLE_MASS); }

/* The mass that has the share top_p of `mass`. `mass` is the mass of the tokens that top_k keeps,
 * or ONS_WHOLE_MASS, the mass of a row. Probabilities are rounded, so a slightly smaller mass is
 * enough. For example, two of four equal tokens have the share 0.5. */
ONS_INLINE double ons_share_of_mass(double top_p, double mass, bool in_double) {
    return ceil(top_p * mass * (1 - (in_double ? 0x1p-40 : 0x1p-22)));
}

/* A random number below `mass`: the high 64 bits of their product. */
ONS_INLINE uint64_t ons_mass_below(uint64_t random, uint64_t mass) {
    const uint64_t low = (uint32_t)random, high = random >> 32, mass_low = (uint32_t)mass,
                   mass_high = mass >> 32;
    const uint64_t middle = high * mass_low + (low * mass_low >> 32);
    const uint64_t other = low * mass_high + (uint32_t)middle;
    return high * mass_high + (middle >> 32) + (other >> 32);
}

/* The result of a row: its token, the token's probability, and the sum of all kept tokens'
 * probabilities. */
typedef struct {
    int64_t index; /* -1: the row is not valid */
    double p, kept;
} ons_drawn_token;

ONS_INLINE ons_drawn_token ons_drawn_of(int64_t index, double p, uint64_t kept) {
    const ons_drawn_token drawn = {index, p,
                                   kept == ons_mass_of(p) ? p : (double)kept / ONS_WHOLE_MASS};
    return drawn;
}
ONS_INLINE double ons_drawn_logprob(const ons_sample *sample, const ons_drawn_token *drawn) {
    if (drawn->index < 0) return (double)NAN;
    return log(drawn->p / (sample->logprob == ONS_LOGPROB_FILTERED ? drawn->kept : 1));
}

#endif
