/* running_pair.cuh - one step of a running (m, d), and the statistic of online_block: the pair runs
 * over a thread's chunks one by one (arXiv 1805.02867, algorithm 3). Only the tile is kept. */
#ifndef ONS_RUNNING_PAIR_CUH
#define ONS_RUNNING_PAIR_CUH

#include "finish.cuh"
#include "merge.cuh"

/* One tile of algorithm 3: raises the running maximum, moves the sum to it, and adds the tile. x
 * receives the tile's exponentials, relative to this maximum. */
template <typename Tile, typename Real, int n>
__device__ inline void online_step(running_state<Real> &so_far, const Tile &tile, Real (&x)[n]) {
    Real m = larger(so_far.m, tile.largest());
    if (m != so_far.m) so_far.raise(m);
    so_far.sum.add(exponentiate(tile, reference<Real>(m), x).value());
}

template <typename Tile, typename Real>
__device__ inline void online_step(running_state<Real> &so_far, const Tile &tile) {
    Real x[Tile::K * Tile::V];
    online_step(so_far, tile, x);
}

template <typename Real>
struct pair_part {
    state<Real> pair;

    template <int LANES>
    __device__ pair_part over_lanes() const {
        static_assert(LANES == WARP);
        return {merge_over_lanes(pair)};
    }
    __device__ static pair_part by_warp(const pair_part *parts, int count) {
        return {merge_by_warp(&parts->pair, count)};
    }
    __device__ state<Real> value() const { return pair; }
};

struct running_pair : nothing_beside {
    static constexpr bool FILLS_X = true;

    template <typename Tile>
    __device__ static const Tile &as_held(const Tile &tile) {
        return tile;
    }
    /* The pair of the whole tile. It is the same for all operations. */
    template <typename Tile>
    __device__ __forceinline__ static auto part(const Tile &tile) {
        using Real = typename Tile::Real;
        running_state<Real> so_far;
#pragma unroll
        for (int k = 0; k < Tile::K; k++) online_step(so_far, converted(tile.chunk(k)));
        return pair_part<Real>{so_far.rounded()};
    }
    template <typename Op, typename How, typename Tile, typename Real, int n>
    __device__ static nothing sum(const Tile &, const state<Real> &, Real (&)[n]) {
        return {};
    }
    template <typename Op, typename Real>
    __device__ static state<Real> of_row(const state<Real> &whole) {
        return whole;
    }
    template <typename Op, bool ONE_REFERENCE, typename Tile, typename Real, int n>
    __device__ __forceinline__ static void finish(const Tile &tile, const state<Real> &,
                                                  const state<Real> &of_row, Real (&x)[n],
                                                  nothing) {
        const auto whole = converted(tile);
        finish_tile<Op>(whole, reference<Real>(of_row.m), constants_of<Op>(of_row), x);
    }
};

#endif
