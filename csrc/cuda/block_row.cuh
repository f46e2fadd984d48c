/* block_row.cuh - the maximum and the normalizer of a row that the warps of a block share: each by
 * one exchange through shared memory. How many warps they are is not in the result. */
#ifndef ONS_BLOCK_ROW_CUH
#define ONS_BLOCK_ROW_CUH

#include "reduce.cuh"

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

    /* d, of the lifted exponentials of at most 32 elements a group, of at most 2^15 a row. */
    template <int GROUPS>
    __device__ Real normalizer(const group_sums<Real, GROUPS> &lifted) {
        Part sum = sum_of_warp(lifted);
        if (blockDim.x == WARP) return rounded(sum);
        if (threadIdx.x % WARP == 0) sums[warp_of_block()] = sum;
        __syncthreads();
        sum = {};
        if (threadIdx.x % WARP < warps_of_block()) sum = sums[threadIdx.x % WARP];
        return rounded(sum_of_parts(sum));
    }

   private:
    /* float is added up in fixed point, whose digits are added up further. */
    static constexpr bool FIXED = std::is_same_v<Real, float>;
    using Part = std::conditional_t<FIXED, int2, Real>;

    template <int GROUPS>
    __device__ static Part sum_of_warp(const group_sums<Real, GROUPS> &lifted) {
        if constexpr (FIXED) {
            fixed_sum sum;
#pragma unroll
            for (int g = 0; g < GROUPS; g++) sum.add(lifted.of[g] * arithmetic<Real>::LOWERED);
            return sum_of_parts(sum.digits());
        } else {
            return normalizer_over_lanes<WARP>(lifted);
        }
    }

    __device__ static Part sum_of_parts(Part part) {
        if constexpr (FIXED)
            return fixed_sum::carried(fixed_sum::digits_over_lanes<WARP>(part));
        else
            return sum_over_lanes<WARP>(part);
    }

    __device__ static Real rounded(Part sum) {
        if constexpr (FIXED)
            return fixed_sum::rounded(sum);
        else
            return sum;
    }

    Real maxima[WARPS];
    Part sums[WARPS];
};

#endif
