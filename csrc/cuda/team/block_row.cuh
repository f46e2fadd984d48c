/* block_row.cuh - the maximum and the normalizer of a row that the warps of a block share: each by
 * one exchange through shared memory. How many warps they are is not in the result. */
#ifndef ONS_BLOCK_ROW_CUH
#define ONS_BLOCK_ROW_CUH

#include <type_traits>

#include "../statistic/lanes.cuh"

/* In shared memory, for at most so many warps. All threads of the block come to max once, then once
 * to normalizer. */
template <typename Real, int WARPS>
class block_row {
    static_assert(WARPS <= WARP);

   public:
    __device__ Real max(Real v) {
        v = max_over_lanes<WARP>(v);
        if (blockDim.x == WARP) return v;
        if (threadIdx.x % WARP == 0) maxima[warp_of_block()] = v;
        __syncthreads();
        return max_over_lanes<WARP>(maxima[min((int)threadIdx.x % WARP, warps_of_block() - 1)]);
    }

    /* d, of what exponentiate<in_any_order> gives for at most 2^15 elements a row. */
    template <typename Sum>
    __device__ Real normalizer(const Sum &lifted) {
        Part sum = sum_of_warp(lifted);
        if (blockDim.x == WARP) return rounded(sum);
        if (threadIdx.x % WARP == 0) sums[warp_of_block()] = sum;
        __syncthreads();
        sum = {};
        if (threadIdx.x % WARP < warps_of_block()) sum = sums[threadIdx.x % WARP];
        return rounded(sum_of_parts(sum));
    }

   private:
    /* Of a sum in fixed point the digits are added up further. */
    using Part = std::conditional_t<std::is_same_v<Real, float>, int2, Real>;

    /* Carried first: the digits of a warp's 512 chunks could be more than an int holds. */
    __device__ static int2 sum_of_warp(const fixed_sum &sum) {
        return sum_of_parts(fixed_sum::carried(sum.digits()));
    }
    __device__ static double sum_of_warp(double lifted) {
        return normalizer_over_lanes<WARP>(lifted);
    }
    __device__ static int2 sum_of_parts(int2 part) {
        return fixed_sum::carried(fixed_sum::digits_over_lanes<WARP>(part));
    }
    __device__ static double sum_of_parts(double part) { return sum_over_lanes<WARP>(part); }
    __device__ static float rounded(int2 sum) { return fixed_sum::rounded(sum); }
    __device__ static double rounded(double sum) { return sum; }

    Real maxima[WARPS];
    Part sums[WARPS];
};

#endif
