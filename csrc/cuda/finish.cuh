/* finish.cuh - what becomes of a row's lifted exponentials once its state is known. */
#ifndef ONS_FINISH_CUH
#define ONS_FINISH_CUH

#include "reduce.cuh"

/* What a row's exponentials are multiplied by, 1 / d, in two parts: so that the quotient is rounded
 * once and an element alone in its row gives 1. NaN where the row's results are. */
template <typename Real>
struct alignas(16) divisor {
    Real m, whole, rest;
    Real steps; /* of an ordinary m, else BEYOND */

    /* Farther above the steps of every ordinary m than exponentials can be moved. */
    static constexpr Real BEYOND = arithmetic<Real>::MAGIC + (Real)0x1p23;

    divisor() = default;
    __device__ explicit divisor(state<Real> row) : m(row.m) {
        using A = arithmetic<Real>;
        whole = A::reciprocal(row.d);
        rest = fma(-whole, row.d, (Real)1) * whole;
        if (!isfinite(m)) whole = A::nan();
        steps = is_ordinary(m) ? A::steps(m) : BEYOND;
    }
};

/* e^x / (d * e^m), for exponentials that are relative to the maximum `own`. */
template <typename Real>
class softmax_finish {
    using A = arithmetic<Real>;

   public:
    softmax_finish() = default;

    /* Where they are relative to the row's own maximum. */
    __device__ explicit softmax_finish(const divisor<Real> &row)
        : fold(1), factor(row.whole * A::LOWERED), factor_beyond(row.rest * A::LOWERED) {}

    __device__ softmax_finish(Real own, const divisor<Real> &row) {
        if (is_near(own, row)) {
            *this = near(own, row);
            return;
        }
        /* Where the exponentials lie far below the row's, they are moved first: were the factor
         * moved, it would leave the normal numbers before its product with them does. */
        constexpr int UP = A::SUBNORMAL;
        const Real moved = rescale<UP>(own, row.m);
        Real with_factor = A::power(-UP) * A::LOWERED;
        fold = moved < 1 ? moved : 1;
        if (moved >= 1) with_factor *= moved;
        factor = row.whole * with_factor;
        factor_beyond = row.rest * with_factor;
    }

    __device__ explicit softmax_finish(state<Real> row) : softmax_finish(divisor<Real>(row)) {}
    __device__ softmax_finish(Real own, state<Real> row)
        : softmax_finish(own, divisor<Real>(row)) {}

    /* The same where is_near holds. */
    __device__ static softmax_finish near(Real own, const divisor<Real> &row) {
        softmax_finish finish;
        const Real with_factor = A::power(A::apart(A::steps(own), row.steps) - A::LIFT);
        finish.fold = 1;
        finish.factor = row.whole * with_factor;
        finish.factor_beyond = row.rest * with_factor;
        return finish;
    }

    /* Two ordinary maxima, and what lies between their references can be moved with the factor. */
    __device__ static bool is_near(Real own, const divisor<Real> &row) {
        return is_ordinary(own) && A::apart(A::steps(own), row.steps) >= -A::SUBNORMAL;
    }

    __device__ bool folds() const { return fold != 1; }
    __device__ Real folded(Real e) const { return e * fold; }
    __device__ Real quotient(Real e) const { return fma(e, factor, e * factor_beyond); }

    /* Replaces lifted exponentials by results. */
    template <int n>
    __device__ void operator()(Real (&e)[n]) const {
        if (folds()) {
#pragma unroll
            for (int i = 0; i < n; i++) e[i] = folded(e[i]);
        }
#pragma unroll
        for (int i = 0; i < n; i++) e[i] = quotient(e[i]);
    }

   private:
    Real fold, factor, factor_beyond;
};

#endif
