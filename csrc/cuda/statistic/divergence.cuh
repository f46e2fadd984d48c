/* divergence.cuh - the statistic of a divergence between two rows (op/divergence.h): the pairs of
 * both, and the mean that the terms need, from one read. The softmax of one row weights the terms.
 * This row is called the weights, and the other row the rest. In kl_divergence x is the weights, in
 * reverse_kl_divergence x is the rest.
 *
 * Let u = x log2(e) - c for each row, with c = m log2(e) rounded once. Then d = sum(2^u) and
 * s = sum(2^u (u - u of the rest)) over the weights, and
 *
 *     divergence = ln2 s / d - log(d) + log(d of the rest)
 *
 * In this formula the rounding of c cancels, so no common offset of a row enters the result. */
#ifndef ONS_DIVERGENCE_CUH
#define ONS_DIVERGENCE_CUH

#include "../../api/logprob.h"
#include "../../api/loss.h"
#include "finish.cuh"
#include "merge.cuh"

/* 2^u. */
__device__ __forceinline__ float power_of_two(float u) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(u));
    return power;
}
__device__ __forceinline__ double power_of_two(double u) { return exp2(u); }

/* The reference of a row or of a part of it. A part of nothing but -inf has c = 0. If m is not
 * ordinary, the rounding of c could be as large as an exponent. Then u is (x - m) log2(e). */
template <typename Real>
struct divergence_reference {
    Real m, c;

    __device__ explicit divergence_reference(Real m_)
        : m(m_ == -arithmetic<Real>::infinity() ? (Real)0 : m_), c(times_log2_e(m)) {}

    __device__ Real u(Real x) const {
        return is_ordinary(m) ? quick_u(x) : (x - m) * arithmetic<Real>::LOG2_E;
    }
    /* If m is ordinary. */
    __device__ Real quick_u(Real x) const { return fma(x, arithmetic<Real>::LOG2_E, -c); }
    /* u of `other` minus u of this reference, for the same x. */
    __device__ Real above(const divergence_reference &other) const {
        if (is_ordinary(m) && is_ordinary(other.m)) return c - other.c;
        return (m - other.m) * arithmetic<Real>::LOG2_E - of_m() + other.of_m();
    }
    /* u of x = m. */
    __device__ Real of_m() const { return is_ordinary(m) ? quick_u(m) : 0; }

    /* c is rounded at each use: it must not be fused with an addition. */
    __device__ static float times_log2_e(float m) {
        return __fmul_rn(m, arithmetic<float>::LOG2_E);
    }
    __device__ static double times_log2_e(double m) {
        return __dmul_rn(m, arithmetic<double>::LOG2_E);
    }

    /* The row's state, from its d. */
    __device__ state<Real> state_of_row(Real given_m, double d) const {
        using A = arithmetic<Real>;
        if (is_ordinary(given_m)) {
            const Real apart = (c - (A::biased_c(m) - A::MAGIC)) + m * A::LOG2_E_LOW;
            return {given_m, (Real)(d * (double)exp2(apart))};
        }
        return state_of<Real>(ons_pair_of_sum((double)given_m, d * exp2(-(double)of_m())));
    }
};

/* The part that a thread finds first: the largest element of each row. */
template <typename Real>
struct largest_of_two {
    Real weights, rest;

    template <int LANES>
    __device__ largest_of_two over_lanes() const {
        return {max_over_lanes<LANES>(weights), max_over_lanes<LANES>(rest)};
    }
    __device__ static largest_of_two by_warp(const largest_of_two *parts, int count) {
        return parts[min((int)threadIdx.x % WARP, count - 1)].template over_lanes<WARP>();
    }
    __device__ largest_of_two value() const { return *this; }
};

/* The sums of a part. */
template <typename Sum>
struct divergence_sums {
    Sum d, d_of_rest, s;

    __device__ void operator+=(const divergence_sums &other) {
        d += other.d;
        d_of_rest += other.d_of_rest;
        s += other.s;
    }
    template <int LANES>
    __device__ divergence_sums over_lanes() const {
        divergence_sums all = *this;
#pragma unroll
        for (int apart = LANES / 2; apart > 0; apart /= 2)
            all += {__shfl_xor_sync(~0u, all.d, apart), __shfl_xor_sync(~0u, all.d_of_rest, apart),
                    __shfl_xor_sync(~0u, all.s, apart)};
        return all;
    }
    __device__ static divergence_sums by_warp(const divergence_sums *parts, int count) {
        divergence_sums mine = {0, 0, 0};
        if (threadIdx.x % WARP < (unsigned)count) mine = parts[threadIdx.x % WARP];
        return mine.template over_lanes<WARP>();
    }
    __device__ divergence_sums value() const { return *this; }
};

/* A part: its largest elements and its sums. */
template <typename Real, typename Sum>
struct alignas(16) divergence_state {
    largest_of_two<Real> m;
    divergence_sums<Sum> sum;
    Sum unused; /* makes it a multiple of 16 bytes */

    /* The sums, relative to the maxima larger_m. */
    __device__ divergence_sums<Sum> relative_to(const largest_of_two<Real> &larger_m) const {
        using of = divergence_reference<Real>;
        const Real up = of(m.weights).above(of(larger_m.weights)),
                   up_of_rest = of(m.rest).above(of(larger_m.rest));
        /* a part of nothing but -inf, or far below, adds 0, and not 0 times infinity */
        const Sum factor = sum.d == 0 ? 0 : power_of_two(up);
        const Sum factor_of_rest = sum.d_of_rest == 0 ? 0 : power_of_two(up_of_rest);
        return {sum.d * factor, sum.d_of_rest * factor_of_rest,
                factor == 0 ? 0 : factor * fma(sum.d, (Sum)(up - up_of_rest), sum.s)};
    }
};
template <typename Real>
__device__ inline divergence_state<Real, Real> whole(const largest_of_two<Real> &m,
                                                     const divergence_sums<Real> &sum) {
    return {m, sum, 0};
}

/* A warp merges all parts. */
template <typename Real, typename Sum>
__device__ inline divergence_state<Real, Sum> merge_held_by_warp(
    const divergence_state<Real, Sum> *parts, int count) {
    const int lane = threadIdx.x % WARP;
    largest_of_two<Real> m = {-arithmetic<Real>::infinity(), -arithmetic<Real>::infinity()};
#pragma unroll 1
    for (int i = lane; i < count; i += WARP)
        m = {larger(m.weights, parts[i].m.weights), larger(m.rest, parts[i].m.rest)};
    m = m.template over_lanes<WARP>();
    divergence_sums<Sum> sum = {0, 0, 0};
#pragma unroll 1
    for (int i = lane; i < count; i += WARP) sum += parts[i].relative_to(m);
    return {m, sum.template over_lanes<WARP>(), 0};
}

/* The sums of some elements. u_of_weights(e), u_of_rest(e): the two u of element e. */
template <int n, typename Real, typename OfWeights, typename OfRest>
__device__ __forceinline__ divergence_sums<Real> sums_of(OfWeights u_of_weights, OfRest u_of_rest) {
    divergence_sums<Real> sum = {0, 0, 0};
#pragma unroll
    for (int e = 0; e < n; e++) {
        const Real u = u_of_weights(e), of_rest = u_of_rest(e), power = power_of_two(u);
        sum.d += power;
        sum.d_of_rest += power_of_two(of_rest);
        sum.s = fma(power, u - of_rest, sum.s);
    }
    return sum;
}

/* A tile of at most this many chunks is converted once, and has no loop. */
constexpr int FEW_CHUNKS = 4;

/* Makes the compiler convert 16-bit elements anew, rather than keep them as numbers. */
template <typename X, int K>
__device__ __forceinline__ void forget(raw_tile<X, K> &tile) {
    if constexpr (sizeof(X) == 2 && K > FEW_CHUNKS) {
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int i = 0; i < pack<X, CHUNK<float>>::WORDS; i++)
                asm volatile("" : "+r"(tile.raw[k].word[i]));
    }
}
template <typename Real, int K>
__device__ __forceinline__ void forget(real_tile<Real, K> &) {}

/* Calls visit(x, other) for each chunk: x has the chunk's weights, and other has the rest. If there
 * are many chunks, they rotate through the registers. The loop then has the code of one chunk. */
template <typename Tile, typename Visit>
__device__ __forceinline__ void for_each_chunk(Tile &weights, Tile &rest, Visit visit) {
    constexpr int V = Tile::V, K = Tile::K;
    typename Tile::Real x[V], other[V];
    if constexpr (K <= FEW_CHUNKS) {
#pragma unroll
        for (int k = 0; k < K; k++) {
            weights.take(x, k);
            rest.take(other, k);
            visit(x, other);
        }
    } else {
        auto rotate = [](Tile &tile) {
            const auto first = tile.raw[0];
#pragma unroll
            for (int k = 1; k < K; k++) tile.raw[k - 1] = tile.raw[k];
            tile.raw[K - 1] = first;
        };
#pragma unroll 1
        for (int k = 0; k < K; k++) {
            weights.take(x);
            rest.take(other);
            visit(x, other);
            rotate(weights);
            rotate(rest);
        }
    }
}

/* The sums of a tile. Most tiles have no infinite elements. */
template <typename Tile, typename Real>
__device__ __forceinline__ divergence_sums<Real> sums_of_tile(Tile &weights, Tile &rest,
                                                              const largest_of_two<Real> &m) {
    constexpr int V = Tile::V;
    const divergence_reference<Real> of_weights(m.weights), of_rest(m.rest);
    divergence_sums<Real> sum = {0, 0, 0};
    if (is_ordinary(of_weights.m) && is_ordinary(of_rest.m)) {
#pragma unroll
        for (int k = 0; k < Tile::K; k++)
            sum += sums_of<V, Real>(
                [&](int e) { return of_weights.quick_u(weights.element(k * V + e)); },
                [&](int e) { return of_rest.quick_u(rest.element(k * V + e)); });
        if (isfinite(sum.s)) return sum;
        sum = {0, 0, 0};
    }
    for_each_chunk(weights, rest, [&](const Real(&x)[V], const Real(&of_other)[V]) {
#pragma unroll
        for (int e = 0; e < V; e++) {
            const Real u = of_weights.u(x[e]), u_of_rest = of_rest.u(of_other[e]);
            const Real power = power_of_two(u);
            sum.d += power;
            sum.d_of_rest += power_of_two(u_of_rest);
            if (power != 0) sum.s = fma(power, u - u_of_rest, sum.s);
        }
    });
    return sum;
}

/* What the results of a row need: the pairs of both rows, and a mean. Here p is the softmax of the
 * weights. Logarithms are natural. */
template <typename Real>
struct divergence_of_row {
    state<Real> of_weights, of_rest;
    Real mean; /* sum(p t). t is x - m of the weights, less x - m of the rest */

    template <typename Sum>
    __device__ explicit divergence_of_row(const divergence_state<Real, Sum> &row) {
        const divergence_reference<Real> weights(row.m.weights), rest(row.m.rest);
        of_weights = weights.state_of_row(row.m.weights, (double)row.sum.d);
        of_rest = rest.state_of_row(row.m.rest, (double)row.sum.d_of_rest);
        const Sum apart = (Sum)weights.of_m() - (Sum)rest.of_m();
        mean = (Real)((row.sum.s / row.sum.d - apart) * (Sum)(1 / ONS_LOG2_E));
        if (row.m.weights == -arithmetic<Real>::infinity()) mean = arithmetic<Real>::nan();
    }

    /* Both maxima are finite. */
    __device__ bool is_finite() const { return isfinite(of_weights.m) && isfinite(of_rest.m); }
    /* log(d of the weights) - log(d of the rest), with d = sum(e^(x - m)). */
    __device__ Real log_d() const { return log_of_sum(of_weights) - log_of_sum(of_rest); }
    __device__ Real value() const { return is_finite() ? mean - log_d() : arithmetic<Real>::nan(); }
};

/* Softmax of the elements of a row. */
template <typename Real>
struct softmax_of {
    reference<Real> to;
    finish_of<softmax, Real> finish;

    __device__ explicit softmax_of(const state<Real> &row)
        : to(row.m), finish(constants_of<softmax>(row)) {}
    __device__ Real operator()(Real x) const {
        return finish.element(to.exponential(x - to.anchor));
    }
};

/* The terms and the gradient of a row's elements. `by` multiplies the gradient. */
template <typename Real>
struct gradient_of_divergence {
    const divergence_of_row<Real> &row;
    softmax_of<Real> p, q; /* of the weights, of the rest */
    Real by;

    __device__ gradient_of_divergence(const divergence_of_row<Real> &row_, Real by_)
        : row(row_), p(row_.of_weights), q(row_.of_rest), by(by_) {}

    /* x - m of the weights, less x - m of the rest. */
    __device__ Real apart(Real weight, Real rest) const {
        return (weight - row.of_weights.m) - (rest - row.of_rest.m);
    }
    /* With respect to the weights. An element with p = 0 has 0, whatever log(p / q) is. */
    __device__ Real of_weight(Real weight, Real rest) const {
        const Real of_p = p(weight);
        return of_p == 0 ? 0 : by * (of_p * (apart(weight, rest) - row.mean));
    }
    /* With respect to the rest. */
    __device__ Real of_rest(Real weight, Real rest) const { return by * (q(rest) - p(weight)); }
    __device__ Real element(bool is_of_rest, Real weight, Real rest) const {
        return is_of_rest ? of_rest(weight, rest) : of_weight(weight, rest);
    }
};

/* The same for 16-bit elements, relative to c. The rounding of u changes an exponential above 2^-32
 * by up to 6 eps of float32. An eps of the 16-bit result is at least 2^13 times as large. All
 * elements are finite, and at most FAR below ordinary maxima. */
class quick_gradient_of_divergence {
   public:
    static constexpr float FAR = 10000;

    __device__ quick_gradient_of_divergence(const divergence_state<float, float> &row, float by)
        : weights(row.m.weights),
          rest(row.m.rest),
          by_p(by / row.sum.d),
          by_q(by / row.sum.d_of_rest),
          slope(by_p * arithmetic<float>::LN2),
          less(slope * (row.sum.s / row.sum.d)) {}

    __device__ float of_weight(float x, float other) const {
        const float u = weights.quick_u(x);
        return power_of_two(u) * fmaf(u - rest.quick_u(other), slope, -less);
    }
    __device__ float of_rest(float x, float other) const {
        return fmaf(power_of_two(rest.quick_u(other)), by_q,
                    -by_p * power_of_two(weights.quick_u(x)));
    }

   private:
    divergence_reference<float> weights, rest;
    float by_p, by_q, slope, less;
};

/* Whether no element of a tile lies too far below m for the quick gradient. */
template <typename Tile>
__device__ __forceinline__ bool is_near_all(const Tile &tile, float m) {
    return is_ordinary(m) && m - tile.smallest() <= quick_gradient_of_divergence::FAR;
}

#endif
