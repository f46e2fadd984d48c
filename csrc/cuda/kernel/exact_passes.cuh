/* exact_passes.cuh - the walks of `exact` over a row that is read several times, and what its
 * kernels share. */
#ifndef ONS_EXACT_PASSES_CUH
#define ONS_EXACT_PASSES_CUH

#include "passes.cuh"
#include "../statistic/rounded.cuh"
#include "../statistic/sums.cuh"
#include "../team/block.cuh"

/* The elements that a thread computes at once, where they are in local memory. A chunk has as many.
 */
constexpr int AT_ONCE = 4;

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

/* The sum of some elements of a row. It is relative to the maximum of the first ones, until an
 * element lies so far above it that its exponential might overflow. */
class running_in_double {
   public:
    __device__ running_in_double() { m = relative_to = -CUDART_INF_F; }

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
        const powers_in_shared_memory powers;
        sum.add(sum_as_tree<n>(0, [&](int i) { return exponential(x[i], powers); }));
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

/* The walk of a block over a row that is not held. */
template <typename Row>
struct exact_walk {
    static constexpr int N = TILE_CHUNKS * Row::V;

    /* All threads of the block must call it. */
    __device__ __forceinline__ explicit exact_walk(const Row &row_) : row(row_) {
        powers.ready();
        __syncthreads();
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

    const Row &row;
    block<WARP> team;
    powers_in_shared_memory powers;
};

static __device__ __noinline__ ons_two_row whole_of_block(ons_two_row mine) {
    block<WARP> team;
    __syncthreads(); /* an earlier call may still read its parts */
    return whole_in_two(team, mine);
}

/* A row that the block reads for its statistics. The constructor reads it once. */
template <typename Row>
struct exact_passes : exact_walk<Row> {
    static constexpr bool GIVEN = false;
    using exact_walk<Row>::N;

    __device__ __forceinline__ explicit exact_passes(const Row &row_) : exact_walk<Row>(row_) {
        this->for_each([&](int64_t, const auto &tile, const auto &x) { running.add(tile, x); });
        m = this->team.near(largest{running.maximum()});
        exponential = exponentials_in_double(isfinite(m) ? m : 0);
    }

    /* The sum of the row's exponentials, or the logarithm of d. */
    template <bool LOG>
    __device__ __forceinline__ double sum() const {
        const double d = this->team.near(sum_in_double<float>(running.relative(m))).d;
        if (!LOG) return d;
        const double top = exponential(m);
        /* log(d) of a d near 1 needs all digits of d - 1 */
        return d < 2 * top ? log_of(in_two(true)) : log_of_1_and(d / top - 1);
    }
    __device__ __forceinline__ ons_two_row in_two(bool nearly = false) const {
        ons_two_row mine = ons_two_row_of((double)m);
        this->for_each([&](int64_t, const auto &, const auto &x) {
            mine = add_in_two<AT_ONCE>(mine, nearly, in_memory<float, N>(x).x, N);
        });
        return whole_of_block(mine);
    }

    float m;
    exponentials_in_double exponential;

   private:
    running_in_double running;
};

/* A row whose state is given. The row may be a part of the row of the state. */
template <typename Row>
struct exact_given : exact_walk<Row> {
    static constexpr bool GIVEN = true;

    __device__ __forceinline__ exact_given(const Row &row_, const double *state_)
        : exact_walk<Row>(row_),
          m((float)state_[0]),
          exponential(isfinite(m) ? m : 0),
          state(ons_two_row_from(state_)) {}

    template <bool LOG>
    __device__ __forceinline__ double sum() const {
        return LOG ? log_of(state) : ons_two_row_d(&state) * exponential(m);
    }
    __device__ __forceinline__ ons_two_row in_two() const { return state; }

    float m;
    exponentials_in_double exponential;

   private:
    ons_two_row state;
};

template <bool LOG, typename Passes>
__device__ __forceinline__ row_in_double in_double(const Passes &passes) {
    row_in_double row;
    row.exponential = passes.exponential, row.m = passes.m;
    if (!isfinite(passes.m)) return row;
    const double sum = passes.template sum<LOG>();
    row.second = LOG ? sum : 1 / sum;
    return row;
}

#endif
