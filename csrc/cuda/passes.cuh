/* passes.cuh - what the methods that read a row several times share: a walk over its tiles. */
#ifndef ONS_PASSES_CUH
#define ONS_PASSES_CUH

#include "rows/finish.cuh"
#include "launch.cuh"

template <typename Real>
constexpr int TILE = TILE_CHUNKS * CHUNK<Real>;

/* Calls visit(chunk, tile) with this thread's chunks of every tile from chunk `first` to `end` that
 * the block's warps take in turn. */
template <typename Form, int K, typename Rows, typename Visit>
__device__ inline void for_each_tile(const Rows &row, int64_t first, int64_t end, Visit visit) {
    constexpr int WARP_TILE = K * Form::LANES_ALONG; /* chunks that a warp's lanes take at once */
    int64_t from = first + warp_of_block() * WARP_TILE, step = warps_of_block() * WARP_TILE;
    for (; from < end; from += step) {
        int64_t chunk = from + Form::template chunk<K>(0);
        visit(chunk, opened(row.template load<K, Form::STRIDE>(chunk)));
    }
}

/* A block's part of its row, in chunks; a strip has `parts` blocks. */
struct part_of_row {
    int64_t strip, first, end;

    __device__ part_of_row(int parts, int64_t chunks_a_part, int64_t chunks)
        : strip(blockIdx.x / parts),
          first(blockIdx.x % parts * chunks_a_part),
          end(first + chunks_a_part < chunks ? first + chunks_a_part : chunks) {}
};

template <typename Rows>
__device__ inline int64_t chunks_of(const Rows &row) {
    return (row.N + Rows::V - 1) / Rows::V;
}

/* One tile of Algorithm 3: the maximum so far, the sum moved to it, and the tile added, of which x
 * gets the exponentials relative to it. */
template <typename Tile, typename Real, int n>
__device__ inline void online_step(running_state<Real> &so_far, const Tile &tile, Real (&x)[n]) {
    Real m = larger(so_far.m, tile.largest());
    if (m != so_far.m) so_far.raise(m);
    so_far.sum.add(exponentiate(tile, reference<Real>(m), x) * arithmetic<Real>::LOWERED);
}

template <typename Tile, typename Real>
__device__ inline void online_step(running_state<Real> &so_far, const Tile &tile) {
    Real x[Tile::K * Tile::V];
    online_step(so_far, tile, x);
}

/* Reads the tiles again, and writes the results. */
template <typename Op, typename Form, int K = TILE_CHUNKS, typename Rows>
__device__ inline void finish_tiles(const Rows &row, int64_t first, int64_t end,
                                    state<typename Rows::Real> total) {
    using Real = typename Rows::Real;
    finish_of<Op, Real> finish(total);
    reference<Real> to(total.m);
    for_each_tile<Form, K>(row, first, end, [&](int64_t chunk, auto tile) {
        Real x[K * CHUNK<Real>];
        keep<Op>(tile, to, x);
        finish(x);
        row.template store<K, Form::STRIDE, true>(chunk, x, tile.kept(), Op::EXCLUDED);
    });
}

/* The row `index` of this launch, which a block has alone, once its state is known. */
template <typename Ops, typename Form, typename Arguments, typename Rows, typename Real>
__device__ inline void finish_row(const Arguments &args, int64_t index, const Rows &row,
                                  const state<Real> &total) {
    with_operation<Ops>(args.operation(), [&](auto op) {
        using Op = decltype(op);
        if constexpr (Op::ONE_A_ROW)
            put_value<Op>(args, index, warp_of_block() == 0 && Form::writes(), row, total);
        else
            finish_tiles<Op, Form>(row, 0, chunks_of(row), total);
    });
}

#endif
