/* topk/route.cuh - the router of a mixture of experts (api/route.h): keys, groups, and the weights
 * of the chosen experts.
 *
 * A key is a score, plus a bias if there is one, in the order of key_of(). Two keys lie below those
 * of all numbers: an excluded expert's, and the key of a place that has no expert or whose group is
 * closed. */
#ifndef ONS_ROUTE_CUH
#define ONS_ROUTE_CUH

#include "../../api/route.h"
#include "launch.cuh"

enum : uint32_t { NO_EXPERT, EXCLUDED, LEAST_KEY };

template <typename Rows>
struct route_arguments : topk_arguments<Rows> {
    ons_route route;
};

/* Whether (m, d) of the whole row is needed. */
__device__ inline bool needs_pair(const ons_route &route) {
    return route.score == ONS_SCORE_SOFTMAX && (route.bias || !route.renormalize);
}

__device__ inline float e_to(float x) { return expf(x); }
__device__ inline double e_to(double x) { return exp(x); }
__device__ inline float log_of_one_and(float x) { return log1pf(x); }
__device__ inline double log_of_one_and(double x) { return log1p(x); }

template <typename Real>
__device__ inline Real sigmoid(Real x) {
    const Real e = e_to(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}
/* Far below 0, log(1 + e^x) is e^x. Its root keeps its digits. */
template <typename Real>
__device__ __noinline__ Real sqrtsoftplus(Real x) {
    if (x < -40) return e_to(x / 2);
    const Real log_of_sum = log_of_one_and(e_to(-fabs(x)));
    return sqrt(x > 0 ? x + log_of_sum : log_of_sum);
}

/* The scores of one row. */
template <typename Real>
class scores_of_row {
   public:
    /* `total` is only used if needs_pair(). */
    __device__ scores_of_row(const ons_route &route, const state<Real> &total)
        : score(route.score), to(total.m) {
        softmax::row(total, &first, &second);
        first *= arithmetic<Real>::LOWERED;
        second *= arithmetic<Real>::LOWERED;
    }
    __device__ Real operator()(Real x) const {
        switch (score) {
        case ONS_SCORE_SOFTMAX:
            return softmax::element(to.exponential(x - to.anchor), first, second);
        case ONS_SCORE_SIGMOID: return sigmoid(x);
        case ONS_SCORE_SQRTSOFTPLUS: return sqrtsoftplus(x);
        default: return x;
        }
    }
    /* Replaces logits by their scores. The branch is around the loop, for shorter code. */
    template <int n>
    __device__ __forceinline__ void take(Real (&x)[n]) const {
        auto each = [&](auto score_of) {
#pragma unroll
            for (int e = 0; e < n; e++) x[e] = score_of(x[e]);
        };
        switch (score) {
        case ONS_SCORE_SOFTMAX:
            each([&](Real one) {
                return softmax::element(to.exponential(one - to.anchor), first, second);
            });
            break;
        case ONS_SCORE_SIGMOID: each(sigmoid<Real>); break;
        case ONS_SCORE_SQRTSOFTPLUS: each(sqrtsoftplus<Real>); break;
        default: break;
        }
    }
    __device__ bool is_nan() const { return isnan(first); } /* of softmax */

   private:
    ons_score score;
    reference<Real> to;
    Real first, second;
};

template <typename Real>
__device__ inline Real bias_of(const ons_route &route, uint32_t place) {
    return ((const Real *)route.bias)[place];
}

/* ------- Groups ------- */

/* The two largest of some keys. */
template <typename Key>
struct two_largest {
    Key first = NO_EXPERT, second = NO_EXPERT;

    __device__ void add(Key key) {
        second = max(second, min(first, key));
        first = max(first, key);
    }
    __device__ void merge(const two_largest &other) {
        second = max(min(first, other.first), max(second, other.second));
        first = max(first, other.first);
    }
    /* What the group counts, as a key. */
    __device__ Key counts(const ons_route &route) const {
        if (!route.bias || second < LEAST_KEY) return first;
        return key_of(number_of(first) + number_of(second));
    }
};

/* ------- Weights ------- */

/* The sum over the LANES lanes of a row, or over a block (0). */
template <int LANES, typename Real>
__device__ inline Real sum_of_weights(Real sum) {
    constexpr int TOGETHER = LANES == 0 ? WARP : LANES;
    const unsigned lanes = lanes_of_row<TOGETHER>();
#pragma unroll
    for (int apart = TOGETHER / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(lanes, sum, apart);
    if constexpr (LANES == 0) {
        __shared__ Real of_warps[WARP];
        if (threadIdx.x % WARP == 0) of_warps[warp_of_block()] = sum;
        __syncthreads();
        sum = 0;
        for (int warp = 0; warp < warps_of_block(); warp++) sum += of_warps[warp];
    }
    return sum;
}
template <int LANES, typename Real>
__device__ inline Real max_of_weights(Real m) {
    if constexpr (LANES > 0) {
        return max_over_lanes<LANES>(m);
    } else {
        __shared__ Real of_warps[WARP];
        m = max_over_lanes<WARP>(m);
        if (threadIdx.x % WARP == 0) of_warps[warp_of_block()] = m;
        __syncthreads();
        for (int warp = 0; warp < warps_of_block(); warp++) m = larger(m, of_warps[warp]);
        return m;
    }
}

/* The weights of a row's chosen experts, before they are divided by their sum. */
template <typename Rows>
class weights_of_row {
    using Real = typename Rows::Real;

   public:
    __device__ weights_of_row(const route_arguments<Rows> &args_, int64_t row_,
                              const scores_of_row<Real> &scores_, Real m_)
        : args(args_),
          row(row_),
          scores(scores_),
          of_k(is_softmax_of_k(args_.route)),
          m(m_),
          to(m_) {}

    /* The logit of an entry. */
    __device__ static Real logit(const route_arguments<Rows> &args, int64_t row,
                                 const entry<Real> &one) {
        if (one.key() < LEAST_KEY) return -arithmetic<Real>::infinity();
        return args.route.bias ? element_of(args, row, one.index()) : number_of(one.key());
    }
    __device__ static bool is_softmax_of_k(const ons_route &route) {
        return route.renormalize &&
               (route.score == ONS_SCORE_SOFTMAX || route.score == ONS_SCORE_NONE);
    }

    __device__ Real operator()(const entry<Real> &one) const {
        if (one.key() < LEAST_KEY) return 0;
        const bool softmax = args.route.score == ONS_SCORE_SOFTMAX;
        const Real x = logit(args, row, one);
        if (!of_k) return scores(x);
        if (needs_pair(args.route) && scores.is_nan()) return arithmetic<Real>::nan();
        if (m == -arithmetic<Real>::infinity() && softmax && args.route.bias) return 0;
        if (!isfinite(m)) return arithmetic<Real>::nan();
        return x == -arithmetic<Real>::infinity() ? 0 : to.exponential(x - to.anchor);
    }

   private:
    const route_arguments<Rows> &args;
    int64_t row;
    const scores_of_row<Real> &scores;
    bool of_k;
    Real m; /* of the chosen experts' logits */
    reference<Real> to;
};

/* Writes the weights and indices of a row. `list` has its k entries in order. LANES lanes, or a
 * block (0), must call it. */
template <int LANES, typename Rows>
__device__ inline void write_route(const route_arguments<Rows> &args, int64_t row,
                                   const entry<typename Rows::Real> *list,
                                   const scores_of_row<typename Rows::Real> &scores, bool exists) {
    using Real = typename Rows::Real;
    using Weights = weights_of_row<Rows>;
    const ons_route &route = args.route;
    const uint32_t together = LANES == 0 ? blockDim.x : LANES, own = threadIdx.x % together;
    const uint32_t k = exists ? (uint32_t)args.k : 0;
    Real m = -arithmetic<Real>::infinity();
    if (Weights::is_softmax_of_k(route)) {
        if (!route.bias) {
            if (k > 0) m = Weights::logit(args, row, list[0]);
        } else {
            for (uint32_t j = own; j < k; j += together)
                m = larger(m, Weights::logit(args, row, list[j]));
            m = max_of_weights<LANES>(m);
        }
    }
    const Weights weight(args, row, scores, m);
    const Real first = own < k ? weight(list[own]) : 0;
    Real sum = first;
    for (uint32_t j = own + together; j < k; j += together) sum += weight(list[j]);
    if (route.renormalize) sum = sum_of_weights<LANES>(sum);
    const bool divides = route.renormalize && sum != 0;
    char *const values = results_of(args, args.values, ONS_Y, row);
    char *const indices = results_of(args, args.indices, ONS_INDICES, row);
    for (uint32_t j = own; j < k; j += together) {
        const Real before = j == own ? first : weight(list[j]);
        const Real after = (divides ? before / sum : before) * (Real)route.scale;
        write_result(args, values, indices, j, list[j].key() < LEAST_KEY ? 0 : after,
                     list[j].index());
    }
}

#endif
