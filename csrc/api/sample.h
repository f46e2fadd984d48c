/* sample.h - what a sampler takes besides its logits, and the steps that the CPU and a GPU share.
 *
 * Let p be the softmax of a row divided by its temperature. The tokens are in order of their
 * logits, the largest first; of equal logits the one with the lower index comes first. Logits that
 * the division makes equal may be in either order. Each filter keeps the first tokens of this
 * order:
 *
 *     top_k    as many
 *     top_p    the fewest that have the share top_p of the mass: of the tokens that top_k keeps, or
 *              if `joint` of the whole row
 *     min_p    those with p >= min_p times the largest p
 *
 * The first token is always kept. The draw is one of the kept tokens, each with its p over the
 * kept ones' sum. It is the token at which the running mass passes a random number below the kept
 * mass. A row without filters runs in the order of indices, any other row in the order of logits.
 *
 * A temperature of 0, or too small to divide by, takes the first token. Its log-probability is at
 * temperature 1. A row is valid
 * if its largest logit is finite and no logit is NaN, and if its parameters are in range:
 * temperature >= 0 and finite, 0 <= top_p <= 1, 0 <= min_p <= 1. Any other row has index -1, and
 * the log-probability NaN. */
#ifndef ONS_SAMPLE_H
#define ONS_SAMPLE_H

#include <math.h>

#include "problem.h"
#include "state.h"

/* A number for each row, or one for all. */
typedef struct {
    const void *of_rows; /* without gaps; NULL: `number` is for all rows */
    int64_t step;        /* 1, or 0 if of_rows has one number for all rows */
    ons_dtype dtype;     /* of of_rows */
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

/* y and ONS_INDICES of the problem have one element a row, and its k is 1. */
typedef struct ons_sample {
    ons_row_real temperature, top_p, min_p;
    ons_row_integer top_k, seed, offset; /* top_k below 1: off */
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
/* The most tokens that a GPU lists. */
#define ONS_SAMPLE_LIST 1024

/* What logits are multiplied by. */
ONS_INLINE double ons_sample_scale(double temperature) {
    return ons_is_greedy(temperature) ? 1 : 1 / temperature;
}

/* Whether a filter may end before the tokens that top_k keeps. */
ONS_INLINE bool ons_sample_cuts_mass(const ons_sample *sample) {
    return sample->top_p.of_rows || sample->top_p.number < 1 || sample->min_p.of_rows ||
           sample->min_p.number > 0;
}
/* Whether all filters of all rows end among the first k tokens. */
ONS_INLINE bool ons_sample_ends_in_list(const ons_sample *sample, int64_t N, int64_t k) {
    const bool greedy = !sample->temperature.of_rows && ons_is_greedy(sample->temperature.number);
    const int64_t top_k = sample->top_k.number;
    return greedy || (!sample->top_k.of_rows && top_k >= 1 && top_k < N && top_k <= k);
}
/* Whether no filter can exclude a token of any row, and not all rows are greedy. */
ONS_INLINE bool ons_sample_takes_all(const ons_sample *sample, int64_t N) {
    const int64_t top_k = sample->top_k.number;
    return !sample->top_k.of_rows && (top_k < 1 || top_k >= N) && !ons_sample_cuts_mass(sample) &&
           !ons_sample_ends_in_list(sample, N, 1);
}
/* The tokens of a row that a GPU lists first; 0: none. */
ONS_INLINE int64_t ons_sample_list(const ons_sample *sample, int64_t N) {
    const int64_t top_k = sample->top_k.number, first = N < 256 ? N : 256;
    if (ons_sample_ends_in_list(sample, N, 1)) return 1;
    if (ons_sample_ends_in_list(sample, N, ONS_SAMPLE_LIST)) return top_k;
    if (sample->top_k.of_rows) return first;
    const bool needs_all_k = top_k >= 1 && top_k < N && !sample->joint &&
                             (sample->top_p.of_rows || sample->top_p.number < 1);
    return ons_sample_cuts_mass(sample) && !needs_all_k ? first : 0;
}
/* Whether the list of a row has all that the draw needs. Then d of the row is not found, so the
 * temperature matters for the listed tokens alone. */
ONS_INLINE bool ons_sample_knows_no_d(const ons_sample *sample, int64_t N) {
    const bool whole = sample->joint && (sample->top_p.of_rows || sample->top_p.number < 1);
    return ons_sample_ends_in_list(sample, N, ONS_SAMPLE_LIST) && !whole &&
           sample->logprob != ONS_LOGPROB_UNFILTERED;
}
/* Bytes for the scales of all rows, for lists of k tokens, and for a mark of each row. Without
 * filters: for the pairs of parts of all rows. */
ONS_INLINE int64_t ons_sample_workspace(const ons_sample *sample, int64_t rows, int64_t N,
                                        int64_t k, int64_t number_bytes) {
    enum { TOGETHER = 16, LEAST_PART = 2048 };
    const int64_t parts = (N + LEAST_PART - 1) / LEAST_PART;
    if (ons_sample_takes_all(sample, N)) return rows * parts * 2 * (int64_t)sizeof(double);
    const int64_t bytes = rows * (int64_t)(sizeof(double) + sizeof(bool)) +
                          rows * k * (number_bytes + (int64_t)sizeof(int32_t));
    return (bytes + TOGETHER - 1) / TOGETHER * TOGETHER;
}

/* A random number of 64 bits: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", 2011) with the seed as key and (offset, row) as counter. A row with a seed of its own
 * counts as row 0. */
ONS_INLINE uint64_t ons_random_bits(uint64_t seed, uint64_t offset, uint64_t row) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t c[4] = {(uint32_t)offset, (uint32_t)(offset >> 32), (uint32_t)row,
                     (uint32_t)(row >> 32)};
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

/* What the probabilities of a row amount to in fixed point, about. */
#define ONS_WHOLE_MASS 0x1p50

/* The probability of all kept tokens, from the probability of the drawn one and both masses. */
ONS_INLINE double ons_kept_probability(double p, uint64_t mass, uint64_t kept) {
    return kept == mass ? p : (double)kept / ONS_WHOLE_MASS;
}

/* The mass that has the share top_p of `mass`. Probabilities are rounded, so a little less counts:
 * then half of some equal tokens have the share 0.5. */
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

#endif
