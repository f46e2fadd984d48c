/* parts.cuh - a part is the maximum or the sum of some threads' elements. Parts merge until every
 * thread of a row has the maximum or the sum of the whole row. A part has
 *
 *   over_lanes<LANES>()          the part of LANES neighbouring lanes, in all of them
 *   by_warp(parts, count)        static: the merged part of `count` parts in shared memory, 32 or
 *                                fewer, in all lanes of a warp
 *   value()                      its number
 *
 * fixed_sum (over_lanes.cuh) and sum_in_double (sum_in_double.cuh) are parts too. */
#ifndef ONS_PARTS_CUH
#define ONS_PARTS_CUH

#include "over_lanes.cuh"

/* For a statistic that needs nothing before the sum. */
struct nothing {
    template <int LANES>
    __device__ nothing over_lanes() const {
        return {};
    }
    __device__ nothing value() const { return {}; }
    __device__ void read_first() const {}
    __device__ void read() const {}
};

/* The base of a statistic that needs nothing but the elements, and has no results beside x. */
struct nothing_beside {
    static constexpr bool LEAVES_MORE = false;
    template <int K, int STRIDE, typename Row, typename Chunk>
    __device__ static nothing beside(const Row &, const Chunk &) {
        return {};
    }
};

/* The largest element. For several columns, the largest of each (rows/columns_of_thread.cuh). */
template <typename M>
struct largest {
    M m;

    template <int LANES>
    __device__ largest over_lanes() const {
        return {max_over_lanes<LANES>(m)};
    }
    __device__ static largest by_warp(const largest *parts, int count) {
        return parts[min((int)threadIdx.x % WARP, count - 1)].template over_lanes<WARP>();
    }
    __device__ M value() const { return m; }
};
template <typename M>
largest(M) -> largest<M>;

/* A sum of exponentials that are not lifted. */
template <typename Real>
struct lowered_sum {
    Real d;

    template <int LANES>
    __device__ lowered_sum over_lanes() const {
        if constexpr (LANES == 1) return *this;
        return {sum_over_lanes<LANES>(d)};
    }
    __device__ static lowered_sum by_warp(const lowered_sum *parts, int count) {
        lowered_sum mine = {};
        if (threadIdx.x % WARP < (unsigned)count) mine = parts[threadIdx.x % WARP];
        return mine.template over_lanes<WARP>();
    }
    __device__ Real value() const { return d; }
};

/* The sum of the lifted exponentials of at most 64 elements. */
template <typename Real>
struct lifted_sum {
    Real d;

    __device__ void operator+=(const lifted_sum &other) { d += other.d; }
    __device__ lowered_sum<Real> lowered() const { return {d * arithmetic<Real>::LOWERED}; }
    template <int LANES>
    __device__ lowered_sum<Real> over_lanes() const {
        return lowered().template over_lanes<LANES>();
    }
    __device__ Real value() const { return lowered().value(); }
};

/* A fixed_sum that is carried after each merge. It holds 2^15 elements. In a plain fixed_sum, the
 * digits of so many elements would overflow an int. */
struct carried_sum : fixed_sum {
    carried_sum() = default;
    __device__ explicit carried_sum(const fixed_sum &sum) : fixed_sum(sum.carried()) {}

    template <int LANES>
    __device__ carried_sum over_lanes() const {
        return carried_sum(fixed_sum::over_lanes<LANES>());
    }
    __device__ static carried_sum by_warp(const carried_sum *parts, int count) {
        carried_sum mine;
        if (threadIdx.x % WARP < (unsigned)count) mine = parts[threadIdx.x % WARP];
        return mine.over_lanes<WARP>();
    }
};

#endif
