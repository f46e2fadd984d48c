/* finish.cuh - what becomes of a row's lifted exponentials once its state is known. */
#ifndef ONS_FINISH_CUH
#define ONS_FINISH_CUH

#include "reduce.cuh"

/* e^x / (d * e^m), for exponentials that are relative to the maximum `own`. 1 / d is kept in two
 * parts, so that the quotient is rounded once and an element alone in its row gives 1. */
template <typename Real>
class softmax_finish {
    using A = arithmetic<Real>;

   public:
    softmax_finish() = default;

    /* Where they are relative to the row's own maximum. */
    __device__ explicit softmax_finish(state<Real> row) : fold(1) {
        Real whole = A::reciprocal(row.d), rest = fma(-whole, row.d, (Real)1) * whole;
        factor = isfinite(row.m) ? whole * A::LOWERED : A::nan();
        factor_beyond = rest * A::LOWERED;
    }

    __device__ softmax_finish(Real own, state<Real> row) {
        Real whole = A::reciprocal(row.d), rest = fma(-whole, row.d, (Real)1) * whole;
        /* Where the exponentials lie far below the row's, they are moved first: were the factor
         * moved, it would leave the normal numbers before its product with them does. */
        constexpr int UP = A::SUBNORMAL;
        Real with_factor;
        fold = 1;
        if (is_near(own, row.m)) {
            with_factor = A::power(A::apart(A::steps(own), A::steps(row.m)));
        } else {
            Real moved = rescale<UP>(own, row.m);
            with_factor = A::power(-UP);
            fold = moved < 1 ? moved : 1;
            if (moved >= 1) with_factor *= moved;
        }
        factor = isfinite(row.m) ? whole * (with_factor * A::LOWERED) : A::nan();
        factor_beyond = rest * (with_factor * A::LOWERED);
    }

    /* Replaces lifted exponentials by results. */
    template <int n>
    __device__ void operator()(Real (&e)[n]) const {
        if (fold != 1) {
#pragma unroll
            for (int i = 0; i < n; i++) e[i] *= fold;
        }
#pragma unroll
        for (int i = 0; i < n; i++) e[i] = fma(e[i], factor, e[i] * factor_beyond);
    }

   private:
    /* Two ordinary maxima: what lies between their references can be moved with the factor. */
    __device__ static bool is_near(Real own, Real whole) {
        return is_ordinary(own) && is_ordinary(whole) &&
               A::apart(A::steps(own), A::steps(whole)) >= -A::SUBNORMAL;
    }

    Real fold, factor, factor_beyond;
};

#endif
