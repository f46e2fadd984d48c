/* loss_gradient.cuh - the gradient of a loss (api/loss.h): softmax, then what its target, weights
 * and smoothing change. loss_sum is its statistic, for rows that are held. */
#ifndef ONS_LOSS_GRADIENT_CUH
#define ONS_LOSS_GRADIENT_CUH

#include "../../api/loss.h"
#include "../rows/elements.cuh"
#include "../statistic/max_sum.cuh"

template <typename Real>
__device__ inline Real lse_of(const state<Real> &row) {
    return isinf(row.m) ? row.m : row.m + log_of_sum(row);
}

/* The gradient of a row's loss, over the divisor of a mean. */
template <typename Real>
__device__ inline Real given_of(const ons_loss &loss, int64_t row) {
    const Real by = loss.given ? ((const Real *)loss.given)[row * loss.given_step] : (Real)1;
    return loss.divisor ? by / (Real)*loss.divisor : by;
}

/* The number that is subtracted at the target's class. */
template <typename Real>
__device__ inline Real own_of(const ons_loss &loss, int64_t row, int64_t target) {
    if (target < 0) return 0;
    return given_of<Real>(loss, row) * (Real)(1 - loss.smoothing) *
           (Real)ons_class_weight(&loss, target);
}

/* The gradient of a row's elements, from its softmax. SMOOTHED: with label smoothing or given
 * factors, for which held rows have no registers. */
template <typename Real, bool SMOOTHED>
class gradient_of_loss {
   public:
    __device__ gradient_of_loss(const ons_loss &loss_, int64_t row, int64_t target_, int64_t N,
                                Real own_, const state<Real> &whole)
        : loss(loss_), target(target_), all(own_), each(0), own(own_) {
        if (target < 0) return;
        if (SMOOTHED && loss.factors) {
            const double *of = loss.factors + 3 * row;
            all = (Real)of[0], each = (Real)of[1], own = (Real)of[2];
            return;
        }
        if (SMOOTHED && loss.smoothing != 0) {
            each = given_of<Real>(loss, row) * (Real)(loss.smoothing / (double)N);
            all = fma(each, (Real)ons_weight_sum(&loss, N), all);
        }
        if (loss.z_loss != 0)
            all = fma(2 * (Real)loss.z_loss * given_of<Real>(loss, row), lse_of(whole), all);
    }

    /* The constants of softmax, multiplied. */
    __device__ row_constants<Real> constants(const state<Real> &whole) const {
        row_constants<Real> of_row = constants_of<softmax>(whole);
        const Real product = of_row.first * all, rest = fma(of_row.first, all, -product);
        of_row.second = fma(of_row.second, all, rest);
        of_row.first = product;
        return of_row;
    }

    /* Turns such results into the gradient. Their chunks begin at element `first`. `at` is the
     * target minus `first`. */
    template <int STRIDE, int V, int n>
    __device__ __forceinline__ void finish(int64_t first, int at, int64_t N, Real (&y)[n]) const {
        if (target < 0) {
#pragma unroll
            for (int e = 0; e < n; e++)
                y[e] = target == ONS_IGNORED ? (Real)0 : arithmetic<Real>::nan();
            return;
        }
        if (SMOOTHED && each != 0) {
#pragma unroll
            for (int e = 0; e < n; e++) {
                const int64_t j = first + place<STRIDE, V>(e);
                if (j < N) y[e] -= each * (Real)ons_class_weight(&loss, j);
            }
        }
        if (at < 0 || at > place<STRIDE, V>(n - 1)) return;
#pragma unroll
        for (int e = 0; e < n; e++)
            if (at == place<STRIDE, V>(e)) y[e] -= own;
    }

   private:
    const ons_loss &loss;
    const int64_t target;
    Real all, each, own;
};

/* A held row of a loss, as one of its threads sees it. Such a row has fewer than 2^31 elements. */
template <int K, int STRIDE, typename Row, typename Chunk>
class beside_loss {
    using Real = typename Row::Real;
    static constexpr int V = Row::V;

   public:
    __device__ beside_loss(const Row &row_, const Chunk &chunk_)
        : row(row_), chunk(chunk_), low(0), high(0), target((int)ONS_NO_CLASS), logit(0), own(0) {}

    /* Reads the row's target as it lies in memory. Nothing waits for it yet. */
    __device__ void read_first() {
        if (row.N == 0) return; /* after the last row */
        const ons_loss &loss = row.loss();
        const int *const at = (const int *)loss.target + (row.number() << (int)loss.wide_target);
        low = at[0];
        if (loss.wide_target) high = at[1];
    }

    __device__ void read() {
        if (row.N == 0) return;
        const ons_loss &loss = row.loss();
        const int64_t read =
            loss.wide_target ? (int64_t)((uint64_t)high << 32 | (unsigned)low) : (int64_t)low;
        target = (int)ons_class_of(&loss, read, row.N);
        own = own_of<Real>(loss, row.number(), target);
        /* y may be x: the logit is read before results are stored */
        if (has_target()) logit = row.element(target);
    }

    template <bool ONE_REFERENCE, typename M, int n>
    __device__ __forceinline__ void finish(const M &m, const state<Real> &whole,
                                           Real (&x)[n]) const {
        /* This branch makes ptxas spill less in 16 bits, and more in float32. */
        if (Row::IS_16_BIT && row.N == 0) return;
        const gradient_of_loss<Real, false> gradient(row.loss(), row.number(), target, row.N, own,
                                                     whole);
        if constexpr (ONE_REFERENCE)
            finish_of<softmax, M>{gradient.constants(whole)}(x);
        else
            finish_of<softmax, M>{m, gradient.constants(whole)}(x);
        gradient.template finish<STRIDE, V>(chunk * V, target - (int)chunk * V, row.N, x);
    }

    /* The thread that has the target stores the loss; else the first thread. */
    __device__ void leave(const state<Real> &whole) const {
        const ons_loss &loss = row.loss();
        if (row.N == 0 || !(target < 0 ? chunk == 0 : has_target())) return;
        double value = target == ONS_IGNORED ? 0.0 : arithmetic<double>::nan();
        if (target >= 0)
            value = ons_loss_of(&loss, row.number(), target, row.N, (double)whole.m,
                                (double)log_of_sum(whole), (double)logit);
        ons_set_real(&loss, loss.loss, row.number(), value);
        if (loss.lse) ons_set_real(&loss, loss.lse, row.number(), (double)lse_of(whole));
    }

   private:
    __device__ bool has_target() const {
        const int at = target - (int)chunk * V;
        return target >= 0 && at >= 0 && at <= place<STRIDE, V>(K * V - 1) && at / V % STRIDE == 0;
    }

    const Row &row;
    const Chunk chunk;
    int low, high, target;
    Real logit, own;
};

struct loss_sum : max_sum {
    static constexpr bool LEAVES_MORE = true;

    template <int K, int STRIDE, typename Row, typename Chunk>
    __device__ static auto beside(const Row &row, const Chunk &chunk) {
        return beside_loss<K, STRIDE, Row, Chunk>(row, chunk);
    }
    template <typename Op, typename Real>
    __device__ static state<Real> of_row(const state<Real> &whole) {
        return whole;
    }
    template <typename Op, bool ONE_REFERENCE, typename Tile, typename M, typename Real, int n,
              typename Beside>
    __device__ __forceinline__ static void finish(const Tile &, const M &own,
                                                  const state<Real> &whole, Real (&x)[n],
                                                  const Beside &beside) {
        beside.template finish<ONE_REFERENCE>(own, whole, x);
    }
};

/* The one operation of kernels with this statistic. It keeps what softmax keeps. */
struct loss_operation : softmax {
    using statistic = loss_sum;
};

#endif
