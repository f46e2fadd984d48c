/* js.cuh - the terms of js_divergence and its gradient (api/loss.h), from the pairs of both rows.
 * Let p and q be the softmax of the two rows, a and b their shares beta and 1 - beta, and
 * r = log2(p / q). With the mixture a p + b q, the terms need
 *
 *     log2(p / mixture) = min(r, 0) - L        log2(q / mixture) = log2(p / mixture) - r
 *     L = log2(1 + c (2^-|r| - 1))             c = b if r > 0, else a
 *
 * No step cancels: if r is nearly 0, all of these are as exact as r. If r is 0, they are 0. */
#ifndef ONS_JS_CUH
#define ONS_JS_CUH

#include "divergence.cuh"

/* The polynomial with these coefficients, the highest first. */
template <int n>
__device__ __forceinline__ float polynomial(const float (&coefficients)[n], float x) {
    float sum = coefficients[0];
#pragma unroll
    for (int i = 1; i < n; i++) sum = fmaf(sum, x, coefficients[i]);
    return sum;
}

/* Nearly log2(x), with an absolute error of 2^-22 if x is near 1. */
__device__ __forceinline__ float quick_log2(float x) {
    float log;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log) : "f"(x));
    return log;
}
__device__ __noinline__ inline double quick_log2(double x) { return log2(x); }

/* near if x >= limit, else far. Both are computed: a branch for each element would cost more. */
__device__ __forceinline__ float at_least(float x, float limit, float near, float far) {
    float chosen;
    asm("{\n"
        ".reg .pred is_near;\n"
        "setp.ge.f32 is_near, %1, %2;\n"
        "selp.f32 %0, %3, %4, is_near;\n"
        "}"
        : "=f"(chosen)
        : "f"(x), "f"(limit), "f"(near), "f"(far));
    return chosen;
}

/* 2^-x - 1 for x >= 0. The polynomial has a relative error of 2^-26. */
__device__ __forceinline__ float power_less_one(float x) {
    constexpr float TERMS[] = {0x1.e095eap-14f, -0x1.525ec6p-10f, 0x1.3a7366p-7f,
                               -0x1.c6a5bep-5f, 0x1.ebfba4p-3f,   -0x1.62e43p-1f};
    return at_least(x, 1, power_of_two(-x) - 1, polynomial(TERMS, x) * x);
}
__device__ __forceinline__ double power_less_one(double x) {
    return expm1(-x * arithmetic<double>::LN2);
}

/* log2(1 + c (2^-x - 1)) for x >= 0, with c + rest = 1. The polynomial has a relative error
 * of 2^-25. */
__device__ __forceinline__ float log2_of_mixture(float x, float c, float rest) {
    constexpr float TERMS[] = {0x1.0a1f8cp+1f, 0x1.3928c6p+1f,  0x1.d07fb2p+0f,
                               0x1.2cb2e4p-2f, 0x1.8e4e52p-2f,  -0x1.66b352p-2f,
                               0x1.ecfb86p-2f, -0x1.71531cp-1f, 0x1.715476p+0f};
    const float w = c * power_less_one(x);
    return at_least(w, -0.5f, polynomial(TERMS, w) * w,
                    quick_log2(fmaf(c, power_of_two(-x), rest)));
}
__device__ __noinline__ inline double log2_of_mixture(double x, double c, double) {
    return log1p(c * power_less_one(x)) * arithmetic<double>::LOG2_E;
}

/* Sums over p log2(p / mixture) and over q log2(q / mixture). */
template <typename Sum>
struct alignas(2 * sizeof(Sum)) js_sums {
    Sum of_p, of_q;

    template <typename Other>
    __device__ void operator+=(const js_sums<Other> &other) {
        of_p += other.of_p;
        of_q += other.of_q;
    }
    template <int LANES>
    __device__ js_sums over_lanes() const {
        return {sum_over_lanes<LANES>(of_p), sum_over_lanes<LANES>(of_q)};
    }
};

/* A warp adds up all parts. */
__device__ inline js_sums<double> merge_held_by_warp(const js_sums<double> *parts, int count) {
    js_sums<double> mine = {0, 0};
    for (int i = threadIdx.x % WARP; i < count; i += WARP) mine += parts[i];
    return mine.over_lanes<WARP>();
}

/* Calls body(u of an element of the weights, u of an element of the rest) with two functions. Most
 * rows have ordinary maxima. */
template <typename Real, typename Body>
__device__ __forceinline__ void with_references(const largest_of_two<Real> &m, Body body) {
    const divergence_reference<Real> weights(m.weights), rest(m.rest);
    if (is_ordinary(weights.m) && is_ordinary(rest.m))
        body([&](Real x) { return weights.quick_u(x); }, [&](Real x) { return rest.quick_u(x); });
    else
        body([&](Real x) { return weights.u(x); }, [&](Real x) { return rest.u(x); });
}

/* The sums of the exponentials of a tile. */
template <typename Tile, typename Real>
__device__ __forceinline__ divergence_sums<Real> exponentials_of_tile(
    const Tile &tile, const largest_of_two<Real> &m) {
    divergence_sums<Real> sum = {0, 0, 0};
    with_references(m, [&](auto u_of_weights, auto u_of_rest) {
#pragma unroll
        for (int e = 0; e < Tile::K * Tile::V; e++) {
            sum.d += power_of_two(u_of_weights(tile.weights.element(e)));
            sum.d_of_rest += power_of_two(u_of_rest(tile.rest.element(e)));
        }
    });
    return sum;
}

/* What a row needs from its pairs. p belongs to the weights, q to the rest. */
template <typename Real>
class js_of_row {
   public:
    template <typename Sum>
    __device__ js_of_row(const divergence_state<Real, Sum> &row, double beta_)
        : m(row.m),
          d((Real)row.sum.d),
          d_of_rest((Real)row.sum.d_of_rest),
          apart(log2(d) - log2(d_of_rest)),
          beta((Real)beta_),
          rest((Real)(1 - beta_)) {}

    /* The terms of a tile. They lack the factors 1 / d. */
    template <typename Tile>
    __device__ __forceinline__ js_sums<Real> terms(const Tile &tile) const {
        constexpr int AT_ONCE = sizeof(Real) == sizeof(float) ? Tile::K * Tile::V : 2;
        js_sums<Real> sum = {0, 0};
        with_references(m, [&](auto u_of_weights, auto u_of_rest) {
#pragma unroll AT_ONCE
            for (int e = 0; e < Tile::K * Tile::V; e++) {
                const Real u = u_of_weights(tile.weights.element(e)),
                           v = u_of_rest(tile.rest.element(e));
                const Real r = fmin(fmax((u - v) - apart, -FAR), FAR);
                const bool p_is_larger = r > 0;
                const Real c = p_is_larger ? rest : beta, other = p_is_larger ? beta : rest;
                const Real of_p = fmin(r, (Real)0) - log2_of_mixture(fabs(r), c, other);
                sum.of_p = fma(power_of_two(u), of_p, sum.of_p);
                sum.of_q = fma(power_of_two(v), of_p - r, sum.of_q);
            }
        });
        return sum;
    }

    /* From the sums of all terms. */
    __device__ double value(const js_sums<double> &terms) const {
        const double of_q = (1 - (double)beta) * (terms.of_q / (double)d_of_rest);
        return (1 / ONS_LOG2_E) * ((double)beta * mean(terms) + of_q);
    }
    /* The sum of p log2(p / mixture). */
    __device__ double mean(const js_sums<double> &terms) const {
        const bool finite = isfinite(m.weights) && isfinite(m.rest);
        return finite ? terms.of_p / (double)d : arithmetic<double>::nan();
    }

   private:
    template <typename, bool>
    friend class gradient_of_js;

    /* If abs(r) is FAR, the smaller of p and q is 0. */
    static constexpr Real FAR = 2500;

    largest_of_two<Real> m;
    Real d, d_of_rest, apart; /* apart: log2(d) - log2(d of the rest) */
    Real beta, rest;
};

/* The gradient of a row, `by` times. QUICK: its results have 16 bits. Then p is relative to c, as in
 * quick_gradient_of_divergence. */
template <typename Real, bool QUICK>
class gradient_of_js {
   public:
    __device__ gradient_of_js(const js_of_row<Real> &row_, const js_sums<double> &terms, Real by)
        : row(row_),
          p(divergence_reference<Real>(row.m.weights).state_of_row(row.m.weights, (double)row.d)),
          slope(by * row.beta * arithmetic<Real>::LN2 / (QUICK ? row.d : 1)),
          less(slope * (Real)row.mean(terms)) {}

    /* Calls store(result), where result(e) is the gradient of element e of a tile. */
    template <typename Tile, typename Store>
    __device__ __forceinline__ void of_tile(const Tile &tile, Store store) const {
        with_references(row.m, [&](auto u_of_weights, auto u_of_rest) {
            store([&](int e) {
                const Real x = tile.weights.element(e), u = u_of_weights(x),
                           v = u_of_rest(tile.rest.element(e));
                const Real q = power_of_two(fmin((v - u) + row.apart, NEAR)); /* over p */
                const Real log = quick_log2(fma(row.rest, q, row.beta));
                return (QUICK ? power_of_two(u) : p(x)) * fma(log, -slope, -less);
            });
        });
    }

   private:
    /* If q / p is 2^NEAR, p is 0 or nearly. */
    static constexpr Real NEAR = sizeof(Real) == sizeof(float) ? 120 : 1000;

    const js_of_row<Real> &row;
    softmax_of<Real> p;
    Real slope, less;
};

#endif
