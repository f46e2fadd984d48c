/* topk/state.cuh - the pair (m, d) of a row that a block reads tile by tile. For float elements d
 * is a double: the sum of each tile is a float relative to a power of two, so nothing is rounded
 * off unless sums lie 2^29 apart. So d does not depend on the number of threads, and a plan may
 * choose this number by the number of rows. In float64 the sums have one order. */
#ifndef ONS_TOPK_STATE_CUH
#define ONS_TOPK_STATE_CUH

#include "../team/forms.cuh"
#include "shapes.h"

template <typename Real>
struct sum_of_tiles {
    long_sum<Real> sum;

    __device__ void add(double term) { sum.add(term); }
    __device__ void scale(Real by) {
        sum.d *= by;
        sum.d_low *= by;
    }
    __device__ double rounded() const { return sum.rounded(); }
};
template <>
struct sum_of_tiles<float> {
    double sum = 0;

    __device__ void add(double term) { sum += term; }
    __device__ void scale(float by) { sum *= (double)by; }
    __device__ double rounded() const { return sum; }
};

/* The state of one thread's elements. */
template <typename Real>
struct state_of_tiles {
    Real m = -arithmetic<Real>::infinity();
    sum_of_tiles<Real> d;

    __device__ void raise(Real to) {
        d.scale(rescale(m, to));
        m = to;
    }
};

template <typename Real>
struct state_of_warp {
    Real m;
    double d;
};
template <typename Real>
__device__ inline state_of_warp<Real> merge_warp(const state_of_tiles<Real> &mine) {
    const Real m = max_over_lanes<WARP>(mine.m);
    const double d = mine.d.rounded() * (double)rescale(mine.m, m);
    return {m, sum_over_lanes<WARP>(d)};
}

template <typename Real>
__device__ inline state_of_warp<Real> *states_of_warps() {
    __shared__ state_of_warp<Real> states[TOPK_TILE_THREADS / WARP];
    return states;
}

/* The state of a block, after all its warps have written theirs. */
template <typename Real>
__device__ inline state<Real> state_of_block() {
    const state_of_warp<Real> *const states = states_of_warps<Real>();
    Real m = states[0].m;
#pragma unroll 1
    for (int i = 1; i < warps_of_block(); i++) m = larger(m, states[i].m);
    sum_of_tiles<Real> d;
#pragma unroll 1
    for (int i = 0; i < warps_of_block(); i++) d.add(states[i].d * (double)rescale(states[i].m, m));
    return {m, (Real)d.rounded()};
}

#endif
