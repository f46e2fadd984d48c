/* topk/sample.cuh - shared by the kernels of the sampler (api/sample.h). */
#ifndef ONS_TOPK_SAMPLE_CUH
#define ONS_TOPK_SAMPLE_CUH

#include "launch.cuh"
#include "sample_list.h"
#include "scan.cuh"

typedef unsigned long long mass_type; /* what shared memory adds up */

__device__ inline mass_type mass_of_warp(mass_type mine) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) mine += __shfl_xor_sync(~0u, mine, apart);
    return mine;
}

/* The factor of the logits in the arithmetic's type. */
template <typename Real>
__device__ inline double scale_of(double temperature) {
    return ons_sample_scale(temperature, std::is_same_v<Real, double>);
}

/* Writes the results of a row. They are the results of `args`, if these are not a list. */
template <typename Rows>
__device__ inline void write_drawn(const topk_arguments<Rows> &args, const ons_sample &sample,
                                   int64_t row, const ons_drawn_token &drawn,
                                   const results_at &indices, const results_at &values) {
    char *const index = results_of(args, indices, ONS_INDICES, row);
    if (indices.dtype == ONS_INT64)
        *(int64_t *)index = drawn.index;
    else
        *(int32_t *)index = (int32_t)drawn.index;
    if (sample.valid) sample.valid[row] = drawn.index >= 0;
    if (sample.logprob != ONS_NO_LOGPROB)
        write_as(results_of(args, values, ONS_Y, row), values.dtype,
                 ons_drawn_logprob(&sample, &drawn));
}
template <typename Rows>
__device__ inline void write_drawn(const topk_arguments<Rows> &args, const ons_sample &sample,
                                   int64_t row, const ons_drawn_token &drawn) {
    write_drawn(args, sample, row, drawn, args.indices, args.values);
}

/* sample_all.cu: samples rows without filters. */
ons_status launch_sample_all(const launch_request &request, const ons_sample &sample);

/* The first tokens of each row. */
template <typename Real>
struct token_lists {
    Real *p;
    const uint32_t *index;
    int length;
    bool finds_p;  /* the kernel finds p from the logits, relative to the largest logit */
    bool *goes_on; /* a row whose filters do not end in its list; null if all end there */
    /* of filtered_softmax: the number of kept tokens of a row, and the sum of their p */
    int *kept;
    double *sums;
    /* memory of the teams in sample_team.cu */
    char *teams;
    int64_t team_count;
};

/* sample_team.cu: finishes the rows that go on. */
template <typename Real>
ons_status launch_sample_team(const launch_request &request, const ons_sample &sample,
                              const token_lists<Real> &lists);
extern template ons_status launch_sample_team(const launch_request &, const ons_sample &,
                                              const token_lists<float> &);
extern template ons_status launch_sample_team(const launch_request &, const ons_sample &,
                                              const token_lists<double> &);
#endif
