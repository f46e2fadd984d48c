/* few_warps.cuh - the maximum and the normalizer of a row that the few warps of a block share: each
 * by one exchange through shared memory. How many warps they are is not in the result. */
#ifndef ONS_FEW_WARPS_CUH
#define ONS_FEW_WARPS_CUH

#include "reduce.cuh"

/* In shared memory. All threads of the block come to max once, then once to normalizer. */
template <typename Real>
class few_warps {
   public:
    __device__ Real max(Real v) {
        v = max_over_lanes<WARP>(v);
        if (blockDim.x == WARP) return v;
        if (threadIdx.x % WARP == 0) maxima[warp_of_block()] = v;
        __syncthreads();
        return max_over_lanes<WARP>(maxima[min((int)threadIdx.x % WARP, warps_of_block() - 1)]);
    }

    /* d, of threads of which each has the lifted exponentials of at most 32 elements. */
    template <int GROUPS>
    __device__ Real normalizer(group_sums<Real, GROUPS> lifted) {
        if (blockDim.x == WARP) return normalizer_over_lanes<WARP>(lifted);
        auto sum = digits_of_warp(lifted);
        if (threadIdx.x % WARP == 0) sums[warp_of_block()] = sum;
        __syncthreads();
        if (threadIdx.x % WARP < warps_of_block())
            sum = sums[threadIdx.x % WARP];
        else
            sum = {};
        return sum_of_digits(sum);
    }

   private:
    static constexpr bool FIXED = std::is_same_v<Real, float>;

    template <int GROUPS>
    __device__ static auto digits_of_warp(const group_sums<Real, GROUPS> &lifted) {
        if constexpr (FIXED) {
            fixed_sum sum;
#pragma unroll
            for (int g = 0; g < GROUPS; g++) sum.add(lifted.of[g] * arithmetic<Real>::LOWERED);
            return fixed_sum::digits_over_lanes<WARP>(sum.digits());
        } else {
            return normalizer_over_lanes<WARP>(lifted);
        }
    }

    template <typename Digits>
    __device__ static Real sum_of_digits(Digits digits) {
        if constexpr (FIXED) {
            fixed_sum sum;
            sum.add(digits);
            return sum.over_lanes<WARP>();
        } else {
            return sum_over_lanes<WARP>(digits);
        }
    }

    Real maxima[FEW_WARPS];
    std::conditional_t<FIXED, int2, Real> sums[FEW_WARPS];
};

#endif
