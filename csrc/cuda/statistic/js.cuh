/* js.cuh - the terms of js_divergence and its gradient (api/loss.h), from the pairs of both rows.
 * Let p and q be the softmax of the two rows, with the shares a = beta and b = 1 - beta in the
 * mixture a p + b q. Let r = log2(p / q). If a is at least b, then
 *
 *     log2(p / mixture) = -log2(a + b 2^-r)        log2(q / mixture) = log2(p / mixture) - r
 *
 * Else p and q change places, and so do their shares. If r is near 0, float32 takes a series in r
 * for the logarithm. Then both terms are as exact as r, and nearly equal rows lose no digits. If r
 * is 0, both terms are 0. */
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

/* A number for p, and one for q. */
template <typename Sum>
struct alignas(2 * sizeof(Sum)) of_both {
    Sum p, q;

    template <typename Other>
    __device__ void operator+=(const of_both<Other> &other) {
        p += other.p;
        q += other.q;
    }
    template <int LANES>
    __device__ of_both over_lanes() const {
        of_both all = *this;
#pragma unroll
        for (int apart = LANES / 2; apart > 0; apart /= 2)
            all += of_both{__shfl_xor_sync(~0u, all.p, apart), __shfl_xor_sync(~0u, all.q, apart)};
        return all;
    }
};

/* The shares of p and q in the mixture. `first` is the side with the larger share. */
class js_mixture {
   public:
    __host__ explicit js_mixture(double beta_)
        : beta(beta_),
          larger(fmax(beta, 1 - beta)),
          smaller(fmin(beta, 1 - beta)),
          float_of_p((float)beta),
          float_of_q((float)(1 - beta)),
          float_larger((float)larger),
          float_smaller((float)smaller),
          sign(beta < 0.5 ? -1 : 1),
          p_lacks(beta < 0.5),
          q_lacks(!(beta < 0.5)) {
        /* The series has the coefficients of r, r^2, and so on. The derivative of
         * log(first / mixture) with respect to log(first / second) is y, with y' = y^2 - y. The
         * series converges for abs(r) < pi / ln2. */
        double y[TERMS] = {smaller}, power = 1;
        for (int n = 0; n < TERMS; n++) {
            series[n] = (float)(y[n] / (n + 1) * power);
            power *= arithmetic<double>::LN2;
            double sum = -y[n];
            for (int i = 0; i <= n; i++) sum += y[i] * y[n - i];
            if (n + 1 < TERMS) y[n + 1] = sum / (n + 1);
        }
    }

    /* The logarithms over the mixture, both base 2, from log2(p / q). */
    template <typename Real>
    __device__ __forceinline__ of_both<Real> logs(Real log2_ratio) const {
        /* If abs(r) is FAR, the smaller of p and q is 0, or nearly. */
        const Real r = fmin(fmax(log2_ratio * (Real)sign, -FAR<Real>), FAR<Real>);
        const Real log = of_first(r);
        return {fma((Real)-p_lacks, r, log), fma((Real)-q_lacks, r, log)};
    }

    /* The mixture over p, from q / p. */
    __device__ __forceinline__ float over_p(float q) const {
        return fmaf(float_of_q, q, float_of_p);
    }
    __device__ __forceinline__ double over_p(double q) const { return fma(1 - beta, q, beta); }

    template <typename Real>
    static constexpr Real FAR = sizeof(Real) == sizeof(float) ? 120 : 1000;

    double beta;

   private:
    static constexpr int TERMS = 8;
    static constexpr float NEAR = 0.5f; /* the first omitted term is below 2^-24 of the sum */

    /* log2(first / mixture), from r = log2(first / second). */
    __device__ __forceinline__ float of_first(float r) const {
        float near = series[TERMS - 1];
#pragma unroll
        for (int n = TERMS - 2; n >= 0; n--) near = fmaf(near, r, series[n]);
        const float sum = fmaf(float_smaller, power_of_two(-r), float_larger);
        return at_most(fabs(r), NEAR, near * r, -quick_log2(sum));
    }
    __device__ __noinline__ double of_first(double r) const {
        const double c = r > 0 ? smaller : larger;
        const double less = log1p(c * expm1(-fabs(r) * arithmetic<double>::LN2));
        return fmin(r, 0.0) - less * arithmetic<double>::LOG2_E;
    }

    double larger, smaller; /* the shares of the first side and of the second side */
    float float_of_p, float_of_q, float_larger, float_smaller;
    float sign, p_lacks, q_lacks; /* 1 if p is the first side, else -1; how many r to subtract */
    float series[TERMS];
};

/* A warp adds up all parts. */
__device__ inline of_both<double> merge_held_by_warp(const of_both<double> *parts, int count) {
    of_both<double> mine = {0, 0};
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
__device__ __forceinline__ of_both<Real> exponentials_of_tile(const Tile &tile,
                                                              const largest_of_two<Real> &m) {
    of_both<Real> sum = {0, 0};
    with_references(m, [&](auto u_of_weights, auto u_of_rest) {
#pragma unroll
        for (int e = 0; e < Tile::K * Tile::V; e++) {
            sum.p += power_of_two(u_of_weights(tile.weights.element(e)));
            sum.q += power_of_two(u_of_rest(tile.rest.element(e)));
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
    __device__ __forceinline__ of_both<Real> terms(const Tile &tile) const {
        of_both<Real> sum = {0, 0};
        with_references(m, [&](auto u_of_weights, auto u_of_rest) {
#pragma unroll
            for (int e = 0; e < Tile::K * Tile::V; e++) {
                const Real u = u_of_weights(tile.weights.element(e)),
                           v = u_of_rest(tile.rest.element(e));
                const of_both<Real> log = mixture.logs((u - v) - apart);
                sum.p = fma(power_of_two(u), log.p, sum.p);
                sum.q = fma(power_of_two(v), log.q, sum.q);
            }
        });
        return sum;
    }

    /* From the sums of all terms. */
    __device__ double value(const of_both<double> &terms) const {
        const double of_q = (1 - mixture.beta) * (terms.q / (double)d_of_rest);
        const double sum = mixture.beta * (terms.p / (double)d) + of_q;
        return is_finite() ? (1 / ONS_LOG2_E) * sum : arithmetic<double>::nan();
    }
    /* The sum of p log2(p / mixture). */
    __device__ Real mean(const of_both<double> &terms) const {
        return is_finite() ? (Real)terms.p / d : arithmetic<Real>::nan();
    }

   private:
    template <typename, bool>
    friend class gradient_of_js;

    __device__ bool is_finite() const { return isfinite(m.weights) && isfinite(m.rest); }

    const js_mixture &mixture;
    largest_of_two<Real> m;
    Real d, d_of_rest, apart; /* apart: log2(d) - log2(d of the rest) */
};

/* The gradient of a row, `by` times. QUICK: its results have 16 bits. Then p is relative to c, as
 * in quick_gradient_of_divergence. */
template <typename Real, bool QUICK>
class gradient_of_js {
   public:
    __device__ gradient_of_js(const js_of_row<Real> &row_, const of_both<double> &terms, Real by)
        : row(row_),
          p(divergence_reference<Real>(row.m.weights).state_of_row(row.m.weights, (double)row.d)),
          slope(by * (Real)row.mixture.beta * arithmetic<Real>::LN2 / (QUICK ? row.d : 1)),
          less(slope * row.mean(terms)) {}

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
