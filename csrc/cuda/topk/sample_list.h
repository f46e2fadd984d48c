/* topk/sample_list.h - what a GPU does for a sampler or its filters (api/sample.h), decided from
 * the parameters of all rows. Numbers are known on the host. Arrays are not. */
#ifndef ONS_SAMPLE_LIST_H
#define ONS_SAMPLE_LIST_H

#include "../../api/sample.h"

/* The most tokens that a GPU lists. */
#define ONS_SAMPLE_LIST 1024

/* Whether all filters of all rows end among the first k tokens. */
ONS_INLINE bool ons_sample_ends_in_list(const ons_sample *sample, int64_t N, int64_t k) {
    const bool greedy = !sample->temperature.of_rows && ons_is_greedy(sample->temperature.number);
    const int64_t top_k = sample->top_k.number;
    return greedy || (!sample->top_k.of_rows && top_k >= 1 && top_k < N && top_k <= k);
}

/* For a draw from all tokens of each row (sample_all.cu): the threads of a block, the chunks of a
 * thread that a warp reads at once, and the most parts of a row. */
enum { ONS_DRAW_THREADS = 256, ONS_DRAW_CHUNKS = 8, ONS_MOST_PARTS = 2048 };

/* Whether a draw is from all tokens of each row. */
ONS_INLINE bool ons_sample_takes_all(const ons_sample *sample, int64_t N) {
    return sample->draws && ons_sample_has_no_filter(sample, N);
}

/* The number of tokens of a row that a GPU lists first; 0: none. A row whose filters do not end in
 * its list needs the first token all the same. */
ONS_INLINE int64_t ons_sample_list(const ons_sample *sample, int64_t N) {
    const int64_t top_k = sample->top_k.number, most = sample->top_k.of_rows ? 256 : 64,
                  first = N < most ? N : most;
    if (ons_sample_takes_all(sample, N)) return 0;
    if (ons_sample_ends_in_list(sample, N, 1)) return 1;
    if (ons_sample_ends_in_list(sample, N, ONS_SAMPLE_LIST)) return top_k;
    if (sample->top_k.of_rows) return first;
    const bool needs_all_k = top_k >= 1 && top_k < N && !sample->joint &&
                             (sample->top_p.of_rows || sample->top_p.number < 1);
    return ons_sample_cuts_mass(sample) && !needs_all_k ? first : 1;
}

/* Whether the kernel that lists the tokens also draws. `by_blocks`: a block or a cluster lists a
 * row. */
ONS_INLINE bool ons_sample_ends_listing(const ons_sample *sample, const ons_plan *plan,
                                        bool by_blocks) {
    return by_blocks && plan->loader == ONS_CONTIGUOUS && sample->draws &&
           ons_sample_ends_in_list(sample, plan->N, plan->k);
}

/* Whether the list of a row has all that the draw needs. Then d of the row is not found, so the
 * temperature matters for the listed tokens alone. */
ONS_INLINE bool ons_sample_knows_no_d(const ons_sample *sample, int64_t N) {
    const bool whole = sample->joint && (sample->top_p.of_rows || sample->top_p.number < 1);
    return ons_sample_ends_in_list(sample, N, ONS_SAMPLE_LIST) && !whole &&
           sample->logprob != ONS_LOGPROB_UNFILTERED;
}

/* Whether the rows have no gaps and no mask, and the type of the arithmetic. */
static inline bool ons_sample_is_contiguous(const ons_problem *problem, ons_dtype compute) {
    const ons_operand *x = &problem->operand[ONS_X];
    const int last = problem->dims - 1;
    return (x->dtype == ONS_FLOAT64) == (compute == ONS_FLOAT64) && problem->dims <= 2 &&
           !problem->operand[ONS_WHERE].data &&
           (problem->extent[last] == 1 || x->stride[last] == ons_dtype_size(x->dtype));
}

/* A team of blocks takes a row whose filters do not end in its list (sample_team.cu). */
enum {
    ONS_TEAM_RANGES = 1024,
    ONS_TEAM_ROOM = 512,
    ONS_TEAM_HELD = 9216,
    ONS_MOST_TEAM_BLOCKS = 128
};
/* The most teams that need memory. A team of a single block does not. */
ONS_INLINE int64_t ons_sample_teams(int64_t rows, int multiprocessors) {
    return rows < multiprocessors ? rows : multiprocessors;
}
ONS_INLINE int64_t ons_sample_team_bytes(int64_t number_bytes) {
    enum { MESSAGES = 3, A_RANGE = 12, A_BLOCK = 16, OTHERS = 32, SUMS = 48 };
    const int64_t message = ONS_TEAM_RANGES * A_RANGE + ONS_MOST_TEAM_BLOCKS * A_BLOCK +
                            ONS_TEAM_ROOM * 2 * number_bytes + OTHERS;
    return MESSAGES * message + ONS_TEAM_HELD * 2 * number_bytes + SUMS;
}

/* The parts of the workspace, in bytes from its beginning. A draw without filters needs none. */
typedef struct {
    int64_t teams, scales, sums, p, index, kept, goes_on, end;
} ons_sample_workspace;

ONS_INLINE ons_sample_workspace ons_sample_workspace_of(const ons_sample *sample, int64_t rows,
                                                        int64_t N, int64_t k, int64_t number_bytes,
                                                        int multiprocessors) {
    enum { TOGETHER = 16, REAL = sizeof(double), INDEX = sizeof(int32_t) };
    ons_sample_workspace of = {0, 0, 0, 0, 0, 0, 0, 0};
    if (ons_sample_takes_all(sample, N)) return of;
    const int64_t written = sample->draws ? 0 : rows; /* rows of filtered_softmax */
    if (!ons_sample_ends_in_list(sample, N, k))
        of.scales = ons_sample_teams(rows, multiprocessors) * ons_sample_team_bytes(number_bytes);
    of.sums = of.scales + rows * REAL;
    of.p = of.sums + written * REAL;
    of.index = of.p + rows * k * number_bytes;
    of.kept = of.index + rows * k * INDEX;
    of.goes_on = of.kept + written * INDEX;
    of.end = (of.goes_on + rows + TOGETHER - 1) / TOGETHER * TOGETHER;
    return of;
}

#endif
