/* scan.cuh - prefix sums over the lanes of a warp. */
#ifndef ONS_SCAN_CUH
#define ONS_SCAN_CUH

#include <cstdint>

/* The sum of n over LANES neighbouring lanes up to this one, which has number `lane`. All lanes of
 * `mask` must call it. */
template <int LANES, typename T>
__device__ inline T sum_up_to_lane(T n, int lane, unsigned mask = ~0u) {
#pragma unroll
    for (int apart = 1; apart < LANES; apart *= 2) {
        const T before = __shfl_up_sync(mask, n, apart, LANES);
        if (lane >= apart) n += before;
    }
    return n;
}

#endif
