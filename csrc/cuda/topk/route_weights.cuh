/* topk/route_weights.cuh - the scores of a router (api/route.h), and the weights of the experts
 * that it chooses. */
#ifndef ONS_ROUTE_WEIGHTS_CUH
#define ONS_ROUTE_WEIGHTS_CUH

#include "../../api/route.h"
#include "../statistic/finish.cuh"

/* 1 as lifted_exponential_of() has it. */
template <typename Real>
constexpr Real LIFTED_ONE = 1;
template <>
constexpr float LIFTED_ONE<float> = 1 / arithmetic<float>::LOWERED;
/* e^x for x of at most 0, times LIFTED_ONE. */
__device__ inline float lifted_exponential_of(float x) {
    return exponentials<float>(arithmetic<float>::MAGIC)(x);
}
__device__ inline double lifted_exponential_of(double x) { return exp(x); }
/* e^x for x of at most 0. */
template <typename Real>
__device__ inline Real exponential_of(Real x) {
    return lifted_exponential_of(x) * (1 / LIFTED_ONE<Real>);
}
__device__ inline float log_of_one_and(float e) { return log1pf(e); }
__device__ inline double log_of_one_and(double e) { return log1p(e); }
__device__ inline float nearly_one_over(float x) { return arithmetic<float>::reciprocal(x); }
__device__ inline double nearly_one_over(double x) { return 1 / x; }

template <typename Real>
__device__ inline Real sigmoid(Real x) {
    const Real one = LIFTED_ONE<Real>, e = lifted_exponential_of(-fabs(x));
    const Real y = (x < 0 ? e : one) * nearly_one_over(one + e);
    return isnan(x) ? x : y; /* the floor of exponentials drops NaN */
}
/* Far below 0, log(1 + e^x) is e^x. Its root keeps its digits. */
template <typename Real>
__device__ __noinline__ Real sqrtsoftplus(Real x) {
    if (isnan(x)) return x;
    if (x < -40) return exponential_of(x / 2);
    const Real log_of_sum = log_of_one_and(exponential_of(-fabs(x)));
    return sqrt(x > 0 ? x + log_of_sum : log_of_sum);
}

/* first + second = 1 / d, for lifted exponentials. */
template <typename Real>
__device__ inline void constants_of_softmax(const state<Real> &total, Real *first, Real *second) {
    softmax::row(total, first, second);
    *first *= arithmetic<Real>::LOWERED;
    *second *= arithmetic<Real>::LOWERED;
}

/* The softmax of elements of a row. */
template <typename Real>
class probabilities {
   public:
    __device__ explicit probabilities(const state<Real> &total) : to(total.m) {
        constants_of_softmax(total, &first, &second);
    }
    __device__ Real operator()(Real x) const {
        return softmax::element(to.exponential(x - to.anchor), first, second);
    }

   private:
    reference<Real> to;
    Real first, second;
};

/* Replaces logits by their scores. `total` is the state of the row, if ons_route_needs_pair(). The
 * branch is around the loop, for shorter code. */
template <typename Real, int n>
__device__ __forceinline__ void take_scores(ons_score score, const state<Real> &total,
                                            Real (&x)[n]) {
    auto each = [&](auto score_of) {
#pragma unroll
        for (int e = 0; e < n; e++) x[e] = score_of(x[e]);
    };
    switch (score) {
    case ONS_SCORE_SOFTMAX: each(probabilities<Real>(total)); break;
    case ONS_SCORE_SIGMOID: each(sigmoid<Real>); break;
    case ONS_SCORE_SQRTSOFTPLUS: each(sqrtsoftplus<Real>); break;
    default: break;
    }
}

/* A chosen expert: its logit, its place in the row, and whether `where` allows it. */
template <typename Real>
struct chosen_expert {
    Real x;
    uint32_t place;
    bool is_allowed;
};

/* The weights of a row's chosen experts, before they are divided by their sum. With OF_K,
 * ons_route_is_softmax_of_k(): the weights are lifted exponentials. With PLAIN, the router has no
 * bias, no mask and no closed groups. */
template <typename Real, bool OF_K, bool PLAIN>
class weights_of_row {
   public:
    /* m is the largest of the experts' logits. `total` is the state of the row, if
     * ons_route_needs_pair(). */
    __device__ weights_of_row(const ons_route &route, const state<Real> &total, Real m)
        : score(route.score),
          to(OF_K                         ? m
             : score == ONS_SCORE_SOFTMAX ? total.m
                                          : (Real)0) {
        first = second = poison = 0;
        if constexpr (OF_K && PLAIN) {
            if (!isfinite(m)) poison = arithmetic<Real>::nan();
        } else if constexpr (OF_K) {
            /* a bias may choose experts whose probabilities are all 0 */
            const bool is_nan = ons_route_needs_pair(&route) && !isfinite(total.m);
            const bool none = m == -arithmetic<Real>::infinity() && route.bias &&
                              score == ONS_SCORE_SOFTMAX && !is_nan;
            if (is_nan || (!isfinite(m) && !none)) poison = arithmetic<Real>::nan();
        } else if (score == ONS_SCORE_SOFTMAX) {
            constants_of_softmax(total, &first, &second);
        }
    }

    __device__ Real operator()(const chosen_expert<Real> &one) const {
        if (!PLAIN && !one.is_allowed) return 0;
        if constexpr (OF_K) {
            const Real e = to.exponential(one.x - to.anchor);
            return (one.x > -arithmetic<Real>::infinity() ? e : 0) + poison;
        }
        switch (score) {
        case ONS_SCORE_SOFTMAX:
            return softmax::element(to.exponential(one.x - to.anchor), first, second);
        case ONS_SCORE_SIGMOID: return sigmoid(one.x);
        case ONS_SCORE_SQRTSOFTPLUS: return sqrtsoftplus(one.x);
        default: return one.x + 0; /* -0 as 0, as keys have it */
        }
    }

    /* A weight divided by the sum of the weights. */
    __device__ Real share(Real weight, Real sum) const {
        if (std::is_same_v<Real, double> || !OF_K) return sum != 0 ? weight / sum : weight;
        /* sum is at least 2^63, or 0 if a bias chose the experts */
        const Real by = nearly_one_over(sum), nearly = weight * by;
        return PLAIN || sum != 0 ? fma(fma(-nearly, sum, weight), by, nearly) : weight;
    }

   private:
    ons_score score;
    reference<Real> to;
    Real first, second, poison;
};

#endif
