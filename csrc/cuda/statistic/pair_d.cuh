/* pair_d.cuh - the d of a pair, for callers. */
#ifndef ONS_PAIR_D_CUH
#define ONS_PAIR_D_CUH

#include "pair.cuh"

/* sum(e^(x - m)) of a pair whose exponentials were computed in Real. It is relative to e^m as
 * Real's arithmetic computes it. */
template <typename Real>
__device__ inline double d_of(const ons_pair &pair) {
    using A = arithmetic<Real>;
    const Real m = (Real)pair.m;
    if (!isfinite(m)) return pair.d;
    const reference<Real> to(m);
    const double largest = (double)(to.exponential(m - to.anchor) * A::LOWERED) * factor_to_pair(m);
    return ons_count_or_d(pair.d / largest, ldexp(1.0, -A::BITS));
}

#endif
