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
template <typename Rows>
__device__ inline void write_drawn(const topk_arguments<Rows> &args, const ons_sample &sample,
                                   int64_t row, const ons_drawn_token &drawn) {
    char *const index = results_of(args, args.indices, ONS_INDICES, row);
    if (args.indices.dtype == ONS_INT64)
        *(int64_t *)index = drawn.index;
    else
        *(int32_t *)index = (int32_t)drawn.index;
    if (sample.valid) sample.valid[row] = drawn.index >= 0;
    if (sample.logprob != ONS_NO_LOGPROB)
        write_as(results_of(args, args.values, ONS_Y, row), args.values.dtype,
                 ons_drawn_logprob(&sample, &drawn));
}

/* sample_all.cu: samples rows without filters. */
ons_status launch_sample_all(const launch_request &request, const ons_sample &sample,
                             void *workspace);

/* sample_block.cu: samples the rows that go on; all rows if `goes_on` is null. */
ons_status launch_sample_block(const launch_request &request, const ons_sample &sample,
                               const bool *goes_on, int64_t blocks);

#endif
