/* js.cuh - the terms of js_divergence and its gradient (api/loss.h), from the pairs of both rows.
 * Let p and q be the softmax of the two rows, r = log2(p / q), a = beta and b = 1 - beta. With the
 * mixture a p + b q, the terms need
 *
 *     log2(p / mixture) = -log2(a + b 2^-r)        log2(q / mixture) = log2(p / mixture) - r
 *
 * If r is near 0, float32 takes a series in r for the logarithm. Then all of these are as exact as
 * r, and the terms of nearly equal rows do not cancel. If r is 0, they are 0. */
#ifndef ONS_JS_CUH
#define ONS_JS_CUH

#include "divergence.cuh"

/* Nearly log2(x), with an absolute error of 2^-22 if x is near 1. */
__device__ __forceinline__ float quick_log2(float x) {
    float log;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log) : "f"(x));
    return log;
}
__device__ __noinline__ inline double quick_log2(double x) { return log2(x); }

/* near if x <= limit, else far. Both are computed: a branch for each element would cost more. */
__device__ __forceinline__ float at_most(float x, float limit, float near, float far) {
    float chosen;
    asm("{\n"
        ".reg .pred is_near;\n"
        "setp.le.f32 is_near, %1, %2;\n"
        "selp.f32 %0, %3, %4, is_near;\n"
        "}"
        : "=f"(chosen)
        : "f"(x), "f"(limit), "f"(near), "f"(far));
    return chosen;
}

/* The shares of p and q in the mixture. The series has the coefficients of r, r^2, and so on. */
class js_mixture {
   public:
    __host__ explicit js_mixture(double beta_)
        : beta(beta_), of_p((float)beta), of_q((float)(1 - beta)) {
        /* The derivative of log(p / mixture) with respect to log(p / q) is y, with y' = y^2 - y.
         * The series converges for abs(r) < pi / ln2, whatever beta is. */
        double y[TERMS] = {1 - beta}, power = 1;
        for (int n = 0; n < TERMS; n++) {
            series[n] = (float)(y[n] / (n + 1) * power);
            power *= arithmetic<double>::LN2;
            double sum = -y[n];
            for (int i = 0; i <= n; i++) sum += y[i] * y[n - i];
            if (n + 1 < TERMS) y[n + 1] = sum / (n + 1);
        }
    }

    /* log2(p / mixture), for abs(r) of at most FAR. */
    __device__ __forceinline__ float log2_over(float r) const {
        float near = series[TERMS - 1];
#pragma unroll
        for (int n = TERMS - 2; n >= 0; n--) near = fmaf(near, r, series[n]);
        return at_most(fabs(r), NEAR, near * r, -quick_log2(over_p(power_of_two(-r))));
    }
    __device__ __noinline__ double log2_over(double r) const {
        constexpr double LN2 = arithmetic<double>::LN2;
        const double less = log1p((r > 0 ? 1 - beta : beta) * expm1(-fabs(r) * LN2));
        return fmin(r, 0.0) - less * arithmetic<double>::LOG2_E;
    }

    /* The mixture over p, from q / p. */
    __device__ __forceinline__ float over_p(float q) const { return fmaf(of_q, q, of_p); }
    __device__ __forceinline__ double over_p(double q) const { return fma(1 - beta, q, beta); }

    /* If abs(r) is this number, the smaller of p and q is 0, or nearly. */
    template <typename Real>
    static constexpr Real FAR = sizeof(Real) == sizeof(float) ? 120 : 1000;

    double beta;

   private:
    static constexpr int TERMS = 8;
    static constexpr float NEAR = 0.5f; /* the first omitted term is below 2^-24 of the sum */

    float of_p, of_q, series[TERMS];
};

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
    __device__ js_of_row(const divergence_state<Real, Sum> &row, const js_mixture &mixture_)
        : mixture(mixture_),
          m(row.m),
          d((Real)row.sum.d),
          d_of_rest((Real)row.sum.d_of_rest),
          apart(log2(d) - log2(d_of_rest)) {}

    /* The terms of a tile. They lack the factors 1 / d. */
    template <typename Tile>
    __device__ __forceinline__ js_sums<Real> terms(const Tile &tile) const {
        constexpr Real FAR = js_mixture::FAR<Real>;
        js_sums<Real> sum = {0, 0};
        with_references(m, [&](auto u_of_weights, auto u_of_rest) {
#pragma unroll
            for (int e = 0; e < Tile::K * Tile::V; e++) {
                const Real u = u_of_weights(tile.weights.element(e)),
                           v = u_of_rest(tile.rest.element(e));
                const Real r = fmin(fmax((u - v) - apart, -FAR), FAR), log = mixture.log2_over(r);
                sum.of_p = fma(power_of_two(u), log, sum.of_p);
                sum.of_q = fma(power_of_two(v), log - r, sum.of_q);
            }
        });
        return sum;
    }

    /* From the sums of all terms. */
    __device__ double value(const js_sums<double> &terms) const {
        const double of_q = (1 - mixture.beta) * (terms.of_q / (double)d_of_rest);
        return (1 / ONS_LOG2_E) * (mixture.beta * mean(terms) + of_q);
    }
    /* The sum of p log2(p / mixture). */
    __device__ double mean(const js_sums<double> &terms) const {
        const bool finite = isfinite(m.weights) && isfinite(m.rest);
        return finite ? terms.of_p / (double)d : arithmetic<double>::nan();
    }

   private:
    template <typename, bool>
    friend class gradient_of_js;

    const js_mixture &mixture;
    largest_of_two<Real> m;
    Real d, d_of_rest, apart; /* apart: log2(d) - log2(d of the rest) */
};

/* The gradient of a row, `by` times. QUICK: its results have 16 bits. Then p is relative to c, as
 * in quick_gradient_of_divergence. */
template <typename Real, bool QUICK>
class gradient_of_js {
   public:
    __device__ gradient_of_js(const js_of_row<Real> &row_, const js_sums<double> &terms, Real by)
        : row(row_),
          p(divergence_reference<Real>(row.m.weights).state_of_row(row.m.weights, (double)row.d)),
          slope(by * (Real)row.mixture.beta * arithmetic<Real>::LN2 / (QUICK ? row.d : 1)),
          less(slope * (Real)row.mean(terms)) {}

    /* Calls store(result), where result(e) is the gradient of element e of a tile. */
    template <typename Tile, typename Store>
    __device__ __forceinline__ void of_tile(const Tile &tile, Store store) const {
        with_references(row.m, [&](auto u_of_weights, auto u_of_rest) {
            store([&](int e) {
                const Real x = tile.weights.element(e), u = u_of_weights(x),
                           v = u_of_rest(tile.rest.element(e));
                const Real q = power_of_two(fmin((v - u) + row.apart, js_mixture::FAR<Real>));
                const Real log = quick_log2(row.mixture.over_p(q));
                return (QUICK ? power_of_two(u) : p(x)) * fma(log, -slope, -less);
            });
        });
    }

   private:
    const js_of_row<Real> &row;
    softmax_of<Real> p;
    Real slope, less;
};

#endif
