/* topk/sample.cuh - shared by the kernels of the sampler (api/sample.h). The mass of a token is its
 * probability in fixed point, so that masses add up in any order. */
#ifndef ONS_TOPK_SAMPLE_CUH
#define ONS_TOPK_SAMPLE_CUH

#include "../../api/sample.h"
#include "launch.cuh"

typedef unsigned long long mass_type;

template <typename Real>
__device__ inline mass_type mass_of(Real p) {
    return (mass_type)((double)p * ONS_WHOLE_MASS);
}
__device__ inline mass_type mass_of_warp(mass_type mine) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) mine += __shfl_xor_sync(~0u, mine, apart);
    return mine;
}
/* The sum over this lane and the lanes before it. */
__device__ inline mass_type mass_up_to_lane(mass_type mine) {
#pragma unroll
    for (int apart = 1; apart < WARP; apart *= 2) {
        const mass_type before = __shfl_up_sync(~0u, mine, apart);
        if ((int)threadIdx.x % WARP >= apart) mine += before;
    }
    return mine;
}
/* The result of a row. */
struct drawn_token {
    int64_t index; /* -1: not valid */
    double p, kept;
};

/* The result from the drawn token and the mass of the kept ones. */
template <typename Real>
__device__ inline drawn_token drawn_of(int64_t index, Real p, mass_type kept) {
    return {index, (double)p, ons_kept_probability((double)p, mass_of(p), kept)};
}

/* A row's filters. */
struct row_filters {
    double temperature, top_p, min_p;
    int64_t top_k;
    bool in_range;

    __device__ row_filters(const ons_sample &sample, int64_t row, int64_t N)
        : temperature(ons_row_real_of(&sample.temperature, row)),
          top_p(ons_row_real_of(&sample.top_p, row)),
          min_p(ons_row_real_of(&sample.min_p, row)),
          top_k(ons_row_integer_of(&sample.top_k, row)),
          in_range(temperature >= 0 && isfinite(temperature) && top_p >= 0 && top_p <= 1 &&
                   min_p >= 0 && min_p <= 1) {
        if (top_k < 1 || top_k > N) top_k = N;
        if (ons_is_greedy(temperature)) top_k = 1;
    }

    __device__ bool are_off(int64_t N) const { return top_k == N && top_p == 1 && min_p == 0; }
};

__device__ inline uint64_t random_of(const ons_sample &sample, int64_t row) {
    const bool own_seed = sample.seed.of_rows && sample.seed.step > 0;
    return ons_random_bits((uint64_t)ons_row_integer_of(&sample.seed, row),
                           (uint64_t)ons_row_integer_of(&sample.offset, row),
                           own_seed ? 0 : (uint64_t)row);
}

template <typename Rows>
__device__ inline void write_drawn(const topk_arguments<Rows> &args, const ons_sample &sample,
                                   int64_t row, const drawn_token &drawn) {
    char *const index = results_of(args, args.indices, ONS_INDICES, row);
    if (args.indices.dtype == ONS_INT64)
        *(int64_t *)index = drawn.index;
    else
        *(int32_t *)index = (int32_t)drawn.index;
    if (sample.valid) sample.valid[row] = drawn.index >= 0;
    if (sample.logprob == ONS_NO_LOGPROB) return;
    const double of_all = sample.logprob == ONS_LOGPROB_FILTERED ? drawn.kept : 1;
    write_as(results_of(args, args.values, ONS_Y, row), args.values.dtype,
             drawn.index < 0 ? arithmetic<double>::nan() : log(drawn.p / of_all));
}

/* sample_all.cu: samples rows without filters. */
ons_status launch_sample_all(const launch_request &request, const ons_sample &sample,
                             void *workspace);

/* sample_block.cu: samples the rows that go on; all rows if `goes_on` is null. */
ons_status launch_sample_block(const launch_request &request, const ons_sample &sample,
                               const bool *goes_on, int64_t blocks);

#endif
