/* pair.cuh - the pair (m, d) of a row or of a part, the pair that callers exchange, and the
 * constants of a row. */
#ifndef ONS_PAIR_CUH
#define ONS_PAIR_CUH

#include "parts.cuh"

/* The largest element, NaN if any element is, and the sum of the exponentials relative to it. */
template <typename Real>
struct state {
    Real m, d;
};
template <typename Real>
state(Real, Real) -> state<Real>;

template <typename Real>
__device__ inline state<Real> empty_state() {
    return {-arithmetic<Real>::infinity(), 0};
}

/* The state of a near group, from the values of its two parts. */
template <typename M>
__device__ inline state<M> whole(const M &m, const M &d) {
    return {m, d};
}
template <typename Sum>
__device__ inline Sum whole(nothing, const Sum &sum) {
    return sum;
}
template <typename Pair>
__device__ inline Pair whole(const Pair &pair, nothing) {
    return pair;
}

/* ------- The pair that callers exchange (state.h). Its d has another reference ------- */

/* The factor that moves d from the GPU's reference of m to the reference of state.h. It is exact if
 * both are powers of two. */
template <typename Real>
__device__ inline double factor_to_pair(Real m, bool back = false) {
    using A = arithmetic<Real>;
    const bool ordinary = is_ordinary(m), far = ons_needs_anchor((double)m);
    const int c = ordinary ? A::difference(A::biased_c(m), A::MAGIC) : 0;
    const int steps = c - (far ? 0 : (int)ons_reference((double)m));
    if (ordinary && !far) return ldexp(1.0, back ? -steps : steps);
    const double apart = (ordinary ? 0.0 : (double)anchor_of(m)) - (far ? (double)m : 0.0);
    const double log = (apart + steps * ONS_LN2_HIGH) + steps * ONS_LN2_LOW;
    return exp(back ? -log : log);
}

template <typename Real>
__device__ inline ons_pair pair_of(const state<Real> &row) {
    const double factor = isfinite(row.m) ? factor_to_pair(row.m) : 1.0;
    return ons_pair_of((double)row.m, (double)row.d * factor);
}

/* Rounds m to the arithmetic's type first. */
template <typename Real>
__device__ inline state<Real> state_of(const ons_pair &pair) {
    const Real m = (Real)pair.m;
    const double factor = isfinite(m) ? factor_to_pair(m, true) : 1.0;
    return {m, (Real)(pair.d * ons_pair_factor(pair.m, (double)m) * factor)};
}

/* ------- The constants of a row. Op is an operation (operations.cuh) ------- */

template <typename Real>
struct alignas(16) row_constants {
    Real m, first, second; /* the operation defines first and second */
    Real biased_c;         /* of an ordinary m, else NOT_ORDINARY */

    /* A biased c far above that of every ordinary m, so that no exponential can be moved to it. */
    static constexpr Real NOT_ORDINARY = arithmetic<Real>::MAGIC + (Real)0x1p23;
};

template <typename Op, typename Real>
__device__ inline row_constants<Real> constants_of(const state<Real> &row) {
    row_constants<Real> constants;
    constants.m = row.m;
    Op::row(row, &constants.first, &constants.second);
    constants.biased_c =
        is_ordinary(row.m) ? arithmetic<Real>::biased_c(row.m) : constants.NOT_ORDINARY;
    return constants;
}

#endif
