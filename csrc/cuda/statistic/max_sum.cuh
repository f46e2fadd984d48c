/* max_sum.cuh - the statistic of softmax: first the largest element, then the sum of the
 * exponentials relative to it. */
#ifndef ONS_MAX_SUM_CUH
#define ONS_MAX_SUM_CUH

#include "finish.cuh"

struct max_sum : nothing_beside {
    /* Whether finish() puts the results into x. Otherwise results() returns them one by one. */
    static constexpr bool FILLS_X = true;

    /* The form in which a tile is held. */
    template <typename Tile>
    __device__ static auto as_held(const Tile &tile) {
        return converted(tile);
    }

    /* The part that a thread finds first: its largest element. */
    template <typename Tile>
    __device__ static auto part(const Tile &tile) {
        return largest{tile.largest()};
    }

    /* The sum, as a part. x receives what Op keeps of the elements, relative to m. */
    template <typename Op, typename How, typename Tile, typename M, typename Real, int n>
    __device__ __forceinline__ static auto sum(const Tile &tile, const M &m, Real (&x)[n]) {
        return keep_and_sum<Op, How>(tile, reference(m), x);
    }

    /* What the results need to know of their row. */
    template <typename Op, typename Real>
    __device__ static auto of_row(const state<Real> &whole) {
        if constexpr (Op::ONE_A_ROW)
            return whole;
        else
            return constants_of<Op>(whole);
    }

    /* Replaces the kept part, which is relative to m, by results. of_row comes from the function of
     * that name. If all threads of a row are near each other, of_row is the row's state. */
    template <typename Op, bool ONE_REFERENCE, typename Tile, typename M, typename OfRow,
              typename Real, int n>
    __device__ __forceinline__ static void finish(const Tile &, const M &m, const OfRow &of_row,
                                                  Real (&x)[n], nothing) {
        if constexpr (ONE_REFERENCE)
            finish_of<Op, M>{of_row}(x);
        else
            finish_of<Op, M>{m, of_row}(x);
    }
};

#endif
