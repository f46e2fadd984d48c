/* passes.cuh - what the methods that read a row several times share: a walk over its tiles. */
#ifndef ONS_PASSES_CUH
#define ONS_PASSES_CUH

#include "finish.cuh"
#include "launch.cuh"

/* Chunks of a tile that a thread holds at once, and the most threads of a block. */
enum { TILE_CHUNKS = 4, PASS_THREADS = 512 };

template <typename Real>
constexpr int TILE = TILE_CHUNKS * CHUNK<Real>;

/* Calls visit(chunk, tile, keep) with every tile of a row's chunks first, first + lanes, ... below
 * `end`. */
template <typename Rows, typename Visit>
__device__ inline void for_each_tile(const Rows &row, int64_t first, int lanes, int64_t end,
                                     Visit visit) {
    using Real = typename Rows::Real;
    for (int64_t chunk = first; chunk < end; chunk += (int64_t)lanes * TILE_CHUNKS) {
        Real tile[TILE<Real>];
        unsigned keep = row.template load<TILE_CHUNKS>(chunk, lanes, tile);
        visit(chunk, tile, keep);
    }
}

template <typename Rows>
__device__ inline int64_t chunks_of(const Rows &row) {
    return (row.N + Rows::V - 1) / Rows::V;
}

/* One tile of Algorithm 3: the maximum so far, the sum moved to it, and the tile added. */
template <typename Real, int n>
__device__ inline void online_step(running_state<Real> &so_far, Real (&tile)[n]) {
    Real m = larger(so_far.m, largest(tile));
    if (m != so_far.m) so_far.raise(m);
    so_far.add(exponentiate(tile, reference<Real>(m)) * arithmetic<Real>::LOWERED);
}

/* Reads the tiles again, and writes the results. */
template <typename Rows>
__device__ inline void finish_tiles(const Rows &row, int64_t first, int lanes, int64_t end,
                                    state<typename Rows::Real> total) {
    using Real = typename Rows::Real;
    softmax_finish<Real> finish(total.m, total);
    reference<Real> to(total.m);
    for_each_tile(row, first, lanes, end,
                  [&](int64_t chunk, Real(&tile)[TILE<Real>], unsigned keep) {
                      exponentiate(tile, to);
                      finish(tile);
                      row.template store<TILE_CHUNKS>(chunk, lanes, tile, keep);
                  });
}

#endif
