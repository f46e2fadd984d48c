/* finish.cuh - keeps a row's elements or exponentials until its state is known, and turns them into
 * results. */
#ifndef ONS_FINISH_CUH
#define ONS_FINISH_CUH

#include "operations.cuh"
#include "sums.cuh"

/* Fills x with what Op keeps of a tile: its lifted exponentials, or its elements. Returns the sum
 * of the exponentials. */
template <typename Op, typename How = in_a_tree, typename Tile, typename Reference, typename Real,
          int n>
__device__ __forceinline__ auto keep_and_sum(const Tile &tile, const Reference &to, Real (&x)[n]) {
    if constexpr (Op::KEEPS == ONS_KEEP_EXPONENTIALS)
        return exponentiate<How>(tile, to, x);
    else if constexpr (Op::KEEPS == ONS_KEEP_ELEMENTS)
        return take_and_sum<How>(tile, to, x);
    else
        return sum_exponentials<How>(tile, to);
}

/* Makes results from the kept part of a row, which is relative to the maximum `own`. */
template <typename Op, typename Real, ons_keep = Op::KEEPS>
class finish_of;

template <typename Op, typename Real>
class finish_of<Op, Real, ONS_KEEP_EXPONENTIALS> {
    using A = arithmetic<Real>;

   public:
    finish_of() = default;

    /* If the kept part is relative to the row's own maximum. */
    __device__ explicit finish_of(const row_constants<Real> &row)
        : factor(1), first(row.first * A::LOWERED), second(row.second * A::LOWERED) {}

    __device__ finish_of(Real own, const row_constants<Real> &row) {
        if (is_near(own, row)) {
            *this = near(own, row);
            return;
        }
        /* If the exponentials lie far below the row's reference, `factor` moves them first. The
         * whole factor may be too small for a normal number, so the constants take 2^-UP of it. */
        constexpr int UP = A::SUBNORMAL;
        const Real moved = rescale<UP>(own, row.m);
        Real with_factor = A::power(-UP) * A::LOWERED;
        factor = moved < 1 ? moved : 1;
        if (moved >= 1) with_factor *= moved;
        first = row.first * with_factor;
        second = row.second * with_factor;
    }

    __device__ explicit finish_of(state<Real> row) : finish_of(constants_of<Op>(row)) {}
    __device__ finish_of(Real own, state<Real> row) : finish_of(own, constants_of<Op>(row)) {}

    /* The same if is_near() is true. */
    __device__ static finish_of near(Real own, const row_constants<Real> &row) {
        finish_of finish;
        const Real with_factor = A::power(A::difference(A::biased_c(own), row.biased_c) - A::LIFT);
        finish.factor = 1;
        finish.first = row.first * with_factor;
        finish.second = row.second * with_factor;
        return finish;
    }

    /* Whether both maxima are ordinary, and the factor can absorb the distance of their
     * references. */
    __device__ static bool is_near(Real own, const row_constants<Real> &row) {
        return is_ordinary(own) && A::difference(A::biased_c(own), row.biased_c) >= -A::SUBNORMAL;
    }

    __device__ bool moves() const { return factor != 1; }
    __device__ Real moved_by_factor(Real e) const { return e * factor; }
    __device__ Real element(Real e) const { return Op::element(e, first, second); }

    /* Replaces lifted exponentials by results. */
    template <int n>
    __device__ void operator()(Real (&e)[n]) const {
        if (moves()) {
#pragma unroll
            for (int i = 0; i < n; i++) e[i] = moved_by_factor(e[i]);
        }
#pragma unroll
        for (int i = 0; i < n; i++) e[i] = element(e[i]);
    }

   private:
    Real factor, first, second;
};

/* Elements have no reference. */
template <typename Op, typename Real>
class finish_of<Op, Real, ONS_KEEP_ELEMENTS> {
   public:
    finish_of() = default;
    __device__ explicit finish_of(const row_constants<Real> &row)
        : first(row.first), second(row.second) {}
    __device__ finish_of(Real, const row_constants<Real> &row) : finish_of(row) {}
    __device__ explicit finish_of(const state<Real> &row) { Op::row(row, &first, &second); }
    __device__ finish_of(Real, const state<Real> &row) : finish_of(row) {}

    __device__ Real element(Real x) const { return Op::element(x, first, second); }

    template <int n>
    __device__ void operator()(Real (&x)[n]) const {
#pragma unroll
        for (int i = 0; i < n; i++) x[i] = element(x[i]);
    }

   private:
    Real first, second;
};

/* Turns what an operation of Ops keeps of a row, or of columns, into results. `row` is passed to
 * finish_of. Returns the result of an excluded element. */
template <typename Ops, typename M, typename Real, int n, typename... Of>
__device__ __forceinline__ Real finish_kept(ons_operation operation, Real (&x)[n],
                                            const Of &...row) {
    Real excluded = 0;
    with_operation<Ops>(operation, [&](auto op) {
        finish_of<decltype(op), M>{row...}(x);
        excluded = decltype(op)::EXCLUDED;
    });
    return excluded;
}

/* Fills x with the results of a tile in Op. `row` has the constants of its row, or of each of its
 * columns, and `to` is the reference of their maxima. */
template <typename Op, typename Tile, typename M, typename Constants, typename Real, int n>
__device__ __forceinline__ void finish_tile(const Tile &tile, const reference<M> &to,
                                            const Constants &row, Real (&x)[n]) {
    if constexpr (Op::KEEPS == ONS_KEEP_EXPONENTIALS)
        exponentiate(tile, to, x);
    else
        tile.take(x);
    finish_of<Op, M>{row}(x);
}

template <typename Ops, typename Real>
__device__ inline row_constants<Real> constants_in(ons_operation operation,
                                                   const state<Real> &row) {
    row_constants<Real> constants;
    with_operation<Ops>(operation, [&](auto op) { constants = constants_of<decltype(op)>(row); });
    constants.m = row.m;
    return constants;
}

/* Writes the value of row `index` of this launch, if the row exists. */
template <typename Op, typename Arguments, typename Row, typename Real>
__device__ __forceinline__ void put_value(const Arguments &args, int64_t index, bool writes,
                                          const Row &row, const state<Real> &total) {
    if (writes && index + args.launch.first_row < args.rows)
        Op::value(args.operation(), total, [&](auto value) { row.put(value); });
}

#endif
