/* passes.cuh - shared by the methods that read a row several times: a walk over its tiles, and the
 * launch in both forms. */
#ifndef ONS_PASSES_CUH
#define ONS_PASSES_CUH

#include "launch_columns.cuh"
#include "../team/forms.cuh"
#include "../statistic/running_pair.cuh"

template <typename Real>
constexpr int TILE = TILE_CHUNKS * CHUNK<Real>;

/* Calls visit(chunk, tile) with this thread's chunks of every tile. The block's warps take the
 * tiles from chunk `begin` to `end` in turn. */
template <typename Form, int K, typename Rows, typename Visit>
__device__ inline void for_each_tile(const Rows &row, int64_t begin, int64_t end, Visit visit) {
    constexpr int WARP_TILE = K * Form::LANES_ALONG; /* chunks that a warp's lanes take at once */
    const int64_t step = warps_of_block() * WARP_TILE;
    known(row, [&](const auto &row) {
        for (int64_t from = begin + warp_of_block() * WARP_TILE; from < end; from += step) {
            int64_t chunk = from + Form::template chunk<K>(0);
            visit(chunk, converted(row.template load<K, Form::STRIDE>(chunk)));
        }
    });
}

/* The same walk. Writes the x that make(tile, x) fills to each tile's place. make returns the
 * result of excluded elements. */
template <typename Form, int K, typename Rows, typename Make>
__device__ inline void rewrite_tiles(const Rows &row, int64_t begin, int64_t end, Make make) {
    known(row, [&](const auto &row) {
        for_each_tile<Form, K>(row, begin, end, [&](int64_t chunk, const auto &tile) {
            typename Rows::Real x[K * Rows::V];
            const auto excluded = make(tile, x);
            row.template store<K, Form::STRIDE, true>(chunk, x, tile.allowed(), excluded);
        });
    });
}

template <typename Rows>
__device__ inline int64_t chunks_of(const Rows &row) {
    return (row.N + Rows::V - 1) / Rows::V;
}

/* Fills x with the results of a tile in an operation of Ops. `row` has the constants of the row,
 * and `to` is the reference of its maximum. Returns the result of an excluded element. The branch
 * on the operation is here: around the loop over tiles it would duplicate each load and store. */
template <typename Ops, typename Tile, typename Real, int n>
__device__ __forceinline__ Real finish_tile_of(ons_operation operation, const Tile &tile,
                                               const reference<Real> &to,
                                               const row_constants<Real> &row, Real (&x)[n]) {
    Real excluded = 0;
    with_operation<Ops>(operation, [&](auto op) {
        finish_tile<decltype(op)>(tile, to, row, x);
        excluded = decltype(op)::EXCLUDED;
    });
    return excluded;
}

/* Reads the tiles of a row again and writes the results. */
template <typename Ops, typename Form, int K = TILE_CHUNKS, typename Arguments, typename Rows,
          typename Real>
__device__ inline void finish_tiles_with(const Arguments &args, const Rows &row, int64_t begin,
                                         int64_t end, const row_constants<Real> &constants) {
    const reference<Real> to(constants.m);
    rewrite_tiles<Form, K>(row, begin, end, [&](const auto &tile, auto &x) {
        return finish_tile_of<Ops>(args.operation(), tile, to, constants, x);
    });
}

/* Writes the results of row `index` of this launch, or its one value. Ops may be one operation:
 * some kernels are faster if they branch around the loop. */
template <typename Ops, typename Form, int K = TILE_CHUNKS, typename Arguments, typename Rows,
          typename Real>
__device__ inline void finish_tiles(const Arguments &args, int64_t index, const Rows &row,
                                    int64_t begin, int64_t end, const state<Real> &total) {
    if constexpr (Ops::ONE_A_ROW)
        put_value<Ops>(args, index, warp_of_block() == 0 && Form::writes(), row, total);
    else
        finish_tiles_with<Ops, Form, K>(args, row, begin, end,
                                        constants_in<Ops>(args.operation(), total));
}

/* Calls body(operations, rows_of<Rows>, the form) with the Rows that fit. */
template <ons_family FAMILY, typename Body>
ons_status with_rows_or_columns(const launch_request &request, Body body) {
    if (request.plan->form == ONS_COLUMN_FORM)
        return with_columns<FAMILY>(
            request, [&](auto ops, auto rows) { return body(ops, rows, block_of_columns()); });
    return with_rows<FAMILY>(request,
                             [&](auto ops, auto rows) { return body(ops, rows, block_a_row()); });
}

#endif
