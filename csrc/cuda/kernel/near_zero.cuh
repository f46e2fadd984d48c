/* near_zero.cuh - all digits of logarithms near 0, for `safe`: a sum in two doubles without the
 * maximum (api/rounding.h). */
#ifndef ONS_NEAR_ZERO_CUH
#define ONS_NEAR_ZERO_CUH

#include "exact_passes.cuh"

/* Few rows need these functions, so they are called, and not inlined. */
template <bool LOGSUMEXP, typename Real>
static __device__ __noinline__ ons_two_row add_to_log(ons_two_row row, const Real *x, int n) {
    for (int i = 0; i < n; i++) ons_two_row_add_to_log(&row, (double)x[i], LOGSUMEXP);
    return row;
}
/* The row's logsumexp, or the logarithm of its d. */
template <bool LOGSUMEXP>
static __device__ __noinline__ double log_near_zero(ons_two_row row) {
    return LOGSUMEXP ? ons_two_logsumexp_in_double(&row) : log1p((row.n - 1) + row.s.high);
}

/* The state of a row with one element. Its logsumexp is this element. */
template <typename Real>
__device__ inline state<Real> state_of_one(Real x) {
    const reference<Real> to(x);
    return {x, to.exponential(x - to.anchor) * arithmetic<Real>::LOWERED};
}

/* Computes the row's logsumexp again, or for log_softmax the logarithm of its d, if it is near 0.
 * Sets *log to it then, and returns true. The whole block must call it. */
template <typename Ops, typename Form, typename Row, typename Real>
__device__ __forceinline__ bool keep_digits(ons_operation operation, const Row &row,
                                            const state<Real> &total, Real *log) {
    constexpr bool LOGSUMEXP = Ops::ONE_A_ROW;
    if (operation != (LOGSUMEXP ? ONS_OPERATION_logsumexp : ONS_OPERATION_log_softmax))
        return false;
    *log = log_of_sum(total) + (LOGSUMEXP ? total.m : 0);
    const bool is_near = isfinite(total.m) && ons_log_is_near_zero((double)*log);
    if (!__syncthreads_or(is_near)) return false;

    ons_two_row mine = ons_two_row_of((double)total.m);
    for_each_tile<Form, TILE_CHUNKS>(row, 0, chunks_of(row), [&](int64_t, const auto &tile) {
        Real x[TILE<Real>];
        tile.take(x);
        if (is_near)
            mine = add_to_log<LOGSUMEXP>(mine, in_memory<Real, TILE<Real>>(x).x, TILE<Real>);
    });
    sum_in_two sum;
    sum.s = mine.s, sum.n = mine.n;
    if (Form::ROWS == 1) sum = sum.template over_lanes<WARP>();
    __shared__ sum_in_two parts[PASS_THREADS / WARP * Form::ROWS];
    if (Form::writes()) parts[Form::slot(warp_of_block())] = sum;
    __syncthreads();
    if (!is_near) return false;
    sum = {};
    for (int warp = 0; warp < warps_of_block(); warp++) sum.add(parts[Form::slot(warp)]);
    mine.s = sum.s, mine.n = sum.n;
    *log = (Real)log_near_zero<LOGSUMEXP>(mine);
    return true;
}

#endif
