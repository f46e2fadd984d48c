/* exact_passes.cuh - the walks of `exact` over a row that is read several times, and what its
 * kernels share. */
#ifndef ONS_EXACT_PASSES_CUH
#define ONS_EXACT_PASSES_CUH

#include "passes.cuh"
#include "../statistic/rounded.cuh"
#include "../statistic/sums.cuh"
#include "../team/block.cuh"

/* Numbers from registers, in local memory. */
template <typename T, int n>
struct in_memory {
    T x[n];

    __device__ __forceinline__ explicit in_memory(const T (&from)[n]) {
#pragma unroll
        for (int i = 0; i < n; i++) x[i] = from[i];
    }
    __device__ __forceinline__ void to(T (&registers)[n]) const {
#pragma unroll
        for (int i = 0; i < n; i++) registers[i] = x[i];
    }
};

/* The sum of a row's exponentials, or its logarithm, from the sum of this thread. `sums_apart`
 * finds the sums without the largest exponentials. It is called if the first sums show that a row
 * of this warp needs them. */
template <bool LOG, typename Team, typename SumsApart>
__device__ __forceinline__ double whole_sum(const Team &team,
                                            const exponentials_in_double &exponential, float m,
                                            double sum, SumsApart sums_apart) {
    sum = team.near(sum_in_double<float>(sum)).d;
    if (!LOG) return sum;
    const double top = exponential(m);
    /* log(d) of a d near 1 needs all digits of d - 1 */
    const bool needed = sum < 2 * top;
    double others = sum / top - 1;
    if (__any_sync(~0u, needed)) {
        const sum_apart all = team.near(sums_apart(top));
        if (needed) others = (all.n - 1) + all.s / top;
    }
    return log_of_1_and(others);
}

/* The sum of some elements of a row. It is relative to the maximum of the first ones, until an
 * element lies so far above it that its exponential might overflow. */
class running_in_double {
   public:
    __device__ running_in_double() : exponential(0) { m = relative_to = -CUDART_INF_F; }

    template <typename Tile, int n>
    __device__ void add(const Tile &tile, const float (&x)[n]) {
        const float largest = tile.largest();
        m = larger(m, largest);
        if (largest > -CUDART_INF_F && !(largest - relative_to < 600)) {
            const double factor = factor_in_double(relative_to, largest);
            sum.d *= factor, sum.d_low *= factor;
            relative_to = largest;
            exponential = exponentials_in_double(largest);
        }
        sum.add(sum_as_tree<n>(0, [&](int i) { return exponential(x[i]); }));
    }
    __device__ float maximum() const { return m; }
    __device__ double relative(float to) const {
        return sum.rounded() * factor_in_double(relative_to, to);
    }

   private:
    float m, relative_to;
    exponentials_in_double exponential;
    long_sum<double> sum;
};

/* A row that a block reads several times. The constructor reads it once. */
template <typename Row>
struct exact_passes {
    static constexpr int N = TILE_CHUNKS * Row::V;

    /* All threads of the block must call it. */
    __device__ __forceinline__ explicit exact_passes(const Row &row_) : row(row_), exponential(0) {
        sixteenths::ready();
        __syncthreads();
        for_each([&](int64_t, const auto &tile, const auto &x) { running.add(tile, x); });
        m = team.near(largest{running.maximum()});
        exponential = exponentials_in_double(isfinite(m) ? m : 0);
    }

    /* Calls visit(chunk, tile, x) with this thread's chunks of every tile, and their elements. */
    template <typename Visit>
    __device__ __forceinline__ void for_each(Visit visit) const {
        for_each_tile<block_a_row, TILE_CHUNKS>(row, 0, chunks_of(row),
                                                [&](int64_t chunk, const auto &tile) {
                                                    float x[N];
                                                    tile.take(x);
                                                    visit(chunk, tile, x);
                                                });
    }

    template <bool LOG>
    __device__ __forceinline__ double sum() const {
        return whole_sum<LOG>(team, exponential, m, running.relative(m), [&](double top) {
            sum_apart all;
            for_each([&](int64_t, const auto &, const auto &x) {
                all = add_apart(exponential, top, all, in_memory<float, N>(x).x, N);
            });
            return all;
        });
    }
    template <bool LOG>
    __device__ __forceinline__ row_in_double in_double() const {
        if (!isfinite(m)) return {exponential, m, 0};
        const double d = sum<LOG>();
        return {exponential, m, LOG ? d : 1 / d};
    }
    __device__ __forceinline__ ons_two_row in_two() const {
        ons_two_row mine = ons_two_row_of((double)m);
        for_each([&](int64_t, const auto &, const auto &x) {
            mine = add_in_two(mine, in_memory<float, N>(x).x, N);
        });
        return whole_in_two(team, mine);
    }

    const Row &row;
    block<WARP> team;
    float m;

   private:
    exponentials_in_double exponential;
    running_in_double running;
};

#endif
