/* topk/sample_list.h - what a GPU does for a sampler (api/sample.h), decided from the parameters of
 * all rows. Numbers are known on the host. Arrays are not. */
#ifndef ONS_SAMPLE_LIST_H
#define ONS_SAMPLE_LIST_H

#include "../../api/sample.h"

/* The most tokens that a GPU lists. */
#define ONS_SAMPLE_LIST 1024

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

/* The number of tokens of a row that a GPU lists first; 0: none. */
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

/* The bytes of the workspace. It has a scale and a mark for each row, and a list of k tokens.
 * Without filters it has a pair for each part of a row instead. */
ONS_INLINE int64_t ons_sample_workspace(const ons_sample *sample, int64_t rows, int64_t N,
                                        int64_t k, int64_t number_bytes) {
    enum { TOGETHER = 16, LEAST_PART = 2048 };
    const int64_t parts = (N + LEAST_PART - 1) / LEAST_PART;
    if (ons_sample_takes_all(sample, N)) return rows * parts * 2 * (int64_t)sizeof(double);
    const int64_t bytes = rows * (int64_t)(sizeof(double) + sizeof(bool)) +
                          rows * k * (number_bytes + (int64_t)sizeof(int32_t));
    return (bytes + TOGETHER - 1) / TOGETHER * TOGETHER;
}

#endif
