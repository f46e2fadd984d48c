/* passes.cuh - shared by the methods that read a row several times: a walk over its tiles, and the
 * launch in both forms. */
#ifndef ONS_PASSES_CUH
#define ONS_PASSES_CUH

#include "launch_columns.cuh"
#include "../team/forms.cuh"
#include "../statistic/running_pair.cuh"

template <typename Real>
constexpr int TILE = TILE_CHUNKS * CHUNK<Real>;

/* Tiles that a thread loads before it uses the first of them. Columns often give a multiprocessor
 * few warps. So each of their threads loads 128 bytes at once. */
template <typename Rows>
constexpr int TILES_AT_ONCE = 1;
template <typename X, bool WHOLE>
constexpr int TILES_AT_ONCE<packed_columns<X, WHOLE>> = 8 / (int)sizeof(X);

/* Loads tiles I to TILES - 1. Each tile begins `step` chunks after the tile before it. Then calls
 * before(). Then calls visit(chunk, tile) in order, for each tile that begins inside the row.
 * `first` is this thread's chunk in tile 0. `left` counts the chunks from the warp's tile 0 to the
 * end of the row. */
template <int TILES, int K, int STRIDE, int I = 0, typename Rows, typename Before, typename Visit>
__device__ __forceinline__ void visit_tiles(const Rows &row, int64_t first, int64_t step,
                                            int64_t left, Before before, Visit visit) {
    const int64_t chunk = first + I * step;
    const auto tile = converted(row.template load<K, STRIDE>(chunk));
    auto before_next = [&] {
        before();
        if (I == 0 || I * step < left) visit(chunk, tile);
    };
    if constexpr (I + 1 == TILES)
        before_next();
    else
        visit_tiles<TILES, K, STRIDE, I + 1>(row, first, step, left, before_next, visit);
}

/* Calls visit(chunk, tile) with this thread's chunks of every tile. The block's warps take the
 * tiles from chunk `begin` to `end` in turn. */
template <typename Form, int K, typename Rows, typename Visit>
__device__ inline void for_each_tile(const Rows &row, int64_t begin, int64_t end, Visit visit) {
    constexpr int WARP_TILE = K * Form::LANES_ALONG; /* chunks that a warp's lanes take at once */
    constexpr int TILES = TILES_AT_ONCE<Rows>;
    const int64_t step = warps_of_block() * WARP_TILE;
    known(row, [&](const auto &row) {
        /* If TILES is not 1, `end` is the end of the row. A tile after the end is not visited. */
        for (int64_t from = begin + warp_of_block() * WARP_TILE; from < end; from += TILES * step) {
            int64_t chunk = from + Form::template chunk<K>(0);
            visit_tiles<TILES, K, Form::STRIDE>(row, chunk, step, end - from, [] {}, visit);
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

/* Number of elements that a chunk has of one row. */
template <typename Rows>
constexpr int ELEMENTS_A_CHUNK = Rows::V;
template <typename X, bool WHOLE>
constexpr int ELEMENTS_A_CHUNK<packed_columns<X, WHOLE>> = 1;

/* Number of chunks in a row of N elements. */
template <typename Rows>
__device__ inline int64_t chunks_of(int64_t N) {
    return (N + ELEMENTS_A_CHUNK<Rows> - 1) / ELEMENTS_A_CHUNK<Rows>;
}
/* Number of chunks in this row. A row after the last has no chunks. */
template <typename Rows>
__device__ inline int64_t chunks_of(const Rows &row) {
    return chunks_of<Rows>(row.N);
}

/* The reference of a thread's row, or of its columns. */
template <typename Real>
__device__ inline auto reference_of(const row_constants<Real> &row) {
    return reference<Real>(row.m);
}
template <typename Real, int C>
__device__ inline auto reference_of(const each_column<row_constants<Real>, C> &rows) {
    return reference<each_column<Real, C>>(
        for_each_column<C>([&](int c) { return rows.each[c].m; }));
}

/* Fills x with the results of a tile in an operation of Ops. `row` has the constants of the row,
 * and `to` is the reference of its maximum. Returns the result of an excluded element. The branch
 * on the operation is here: around the loop over tiles it would duplicate each load and store. */
template <typename Ops, typename Tile, typename Reference, typename Constants, typename Real, int n>
__device__ __forceinline__ Real finish_tile_of(ons_operation operation, const Tile &tile,
                                               const Reference &to, const Constants &row,
                                               Real (&x)[n]) {
    Real excluded = 0;
    with_operation<Ops>(operation, [&](auto op) {
        finish_tile<decltype(op)>(tile, to, row, x);
        excluded = decltype(op)::EXCLUDED;
    });
    return excluded;
}

/* Reads the tiles of this thread's rows again and writes the results. */
template <typename Ops, typename Form, int K = TILE_CHUNKS, typename Arguments, typename Rows,
          typename Constants>
__device__ inline void finish_tiles_with(const Arguments &args, const Rows &row, int64_t begin,
                                         int64_t end, const Constants &constants) {
    const auto to = reference_of(constants);
    rewrite_tiles<Form, K>(row, begin, end, [&](const auto &tile, auto &x) {
        return finish_tile_of<Ops>(args.operation(), tile, to, constants, x);
    });
}

/* Writes the results of this thread's rows, or the one value of row `index` of this launch. Ops may
 * be one operation: some kernels are faster if they branch around the loop. */
template <typename Ops, typename Form, int K = TILE_CHUNKS, typename Arguments, typename Rows,
          typename States>
__device__ inline void finish_tiles(const Arguments &args, int64_t index, const Rows &row,
                                    int64_t begin, int64_t end, const States &total) {
    if constexpr (Ops::ONE_A_ROW)
        put_value<Ops>(args, index, warp_of_block() == 0 && Form::writes(), row, total);
    else
        finish_tiles_with<Ops, Form, K>(args, row, begin, end,
                                        Form::of_rows(total, [&](const auto &one) {
                                            return constants_in<Ops>(args.operation(), one);
                                        }));
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
