/* topk/sample_end.cuh - the end of a sampler (api/sample.h): a warp finds where the filters end in
 * the list of a row, and draws a token. */
#ifndef ONS_TOPK_SAMPLE_END_CUH
#define ONS_TOPK_SAMPLE_END_CUH

#include "sample.cuh"

/* The parameters of a row, and its random number. */
struct draw_of_row {
    ons_row_filters filters;
    uint64_t random;
};

__device__ inline draw_of_row draw_of(const ons_sample &sample, int64_t row, int64_t N) {
    return {ons_filters_of(&sample, row, N), ons_random_of_row(&sample, row)};
}

/* Puts the probabilities of a row's listed tokens into p. With finds_p they are
 * relative to the largest. `step` threads with the numbers `own` from 0 on share the work. */
template <typename Rows, typename Real = typename Rows::Real>
__device__ inline void take_probabilities(const topk_arguments<Rows> &args,
                                          const token_lists<Real> &lists, int64_t row,
                                          double temperature, int own, int step, Real *p) {
    const int64_t begin = row * lists.length;
    const double scale = scale_of<Real>(temperature);
    auto logit = [&](int i) {
        Real x[1] = {element_of(args, row, lists.index[begin + i])};
        if (scale != 1) scale_all(x, scale);
        return (double)x[0];
    };
    const double m = lists.finds_p ? logit(0) : 0;
    for (int i = own; i < lists.length; i += step)
        p[i] = lists.finds_p ? (Real)exp(logit(i) - m) : lists.p[begin + i];
}

/* What the filters keep of a list. */
struct kept_of_list {
    int tokens; /* 0: the row is not valid */
    mass_type mass;
    bool ends; /* false: the filters end after the list */
};

/* A row's list, with its probabilities p. The lanes of a warp share it. */
template <typename Real>
class token_list {
   public:
    __device__ token_list(const Real *p_, const token_lists<Real> &lists)
        : p(p_), length(lists.length), is_last(!lists.goes_on) {}

    __device__ kept_of_list keep(const ons_row_filters &filters, bool joint, int64_t N) const {
        const bool cuts_mass = filters.top_p < 1, of_k = !joint && filters.top_k < N;
        if (!filters.in_range || !(p[0] > 0)) return {0, 0, true};
        bool ends = filters.top_k <= length && (is_last || !ons_filters_are_off(&filters, N));
        if (!ends && (!(cuts_mass || filters.min_p > 0) || (cuts_mass && of_k)))
            return {0, 0, false};
        const int count = (int)min(filters.top_k, (int64_t)length);
        double enough = arithmetic<double>::infinity();
        if (cuts_mass) {
            mass_type all = 0;
            for (int i = lane; of_k && i < count; i += WARP) all += ons_mass_of((double)p[i]);
            all = mass_of_warp(all);
            enough = ons_share_of_mass(filters.top_p, of_k ? (double)all : ONS_WHOLE_MASS,
                                       sizeof(Real) == sizeof(double));
        }
        const double least = filters.min_p * (double)p[0];
        kept_of_list kept = {0, 0, false};
        walk(count, [&](int i, Real own, mass_type upto, mass_type before) {
            const bool keeps =
                i < count && (i == 0 || ((double)before < enough && (double)own >= least));
            const unsigned lanes = __ballot_sync(~0u, keeps);
            if (lanes) {
                const int last = 31 - __clz((int)lanes);
                kept.mass = __shfl_sync(~0u, upto, last);
                kept.tokens = __shfl_sync(~0u, i, last) + 1;
            }
            ends |= i < count && !keeps;
            return keeps;
        });
        kept.ends = __any_sync(~0u, ends || (double)kept.mass >= enough);
        return kept;
    }
    /* The place in the list at which the running mass passes `at`. */
    __device__ int token_at(const kept_of_list &kept, mass_type at) const {
        int token = 0;
        walk(kept.tokens, [&](int i, Real, mass_type upto, mass_type) {
            const unsigned passed = __ballot_sync(~0u, upto > at);
            if (passed) token = __shfl_sync(~0u, i, __ffs((int)passed) - 1);
            return !passed;
        });
        return token;
    }
    __device__ double sum(int tokens) const {
        double mine = 0;
        for (int i = lane; i < tokens; i += WARP) mine += (double)p[i];
        return sum_over_lanes<WARP>(mine);
    }

    const Real *const p;

   private:
    /* visit(i, p, the mass up to this token, and before it) until it returns false in a lane */
    template <typename Visit>
    __device__ void walk(int count, Visit visit) const {
        mass_type before = 0;
        for (int begin = 0; begin < count; begin += WARP) {
            const int i = begin + lane;
            const Real own = i < count ? p[i] : 0;
            const mass_type mass = ons_mass_of((double)own),
                            upto = before + sum_up_to_lane<WARP>(mass, lane);
            if (!__all_sync(~0u, visit(i, own, upto, upto - mass))) return;
            before = __shfl_sync(~0u, upto, WARP - 1);
        }
    }

    const int lane = threadIdx.x % WARP, length;
    const bool is_last; /* no row goes on */
};

/* Draws a token if the filters end in the list of a row. A warp must call it. `p` has the
 * probabilities of the list. */
template <typename Rows, typename Real = typename Rows::Real>
__device__ inline kept_of_list draw_from_list(const topk_arguments<Rows> &args,
                                              const ons_sample &sample,
                                              const token_lists<Real> &lists, int64_t row,
                                              const draw_of_row &draw, const Real *p,
                                              const results_at &indices, const results_at &values) {
    const token_list<Real> list(p, lists);
    const kept_of_list kept = list.keep(draw.filters, sample.joint, args.N);
    if (!sample.draws || !kept.ends) return kept;
    ons_drawn_token drawn = {-1, 0, 0};
    if (kept.tokens > 0) {
        const int token = list.token_at(kept, ons_mass_below(draw.random, kept.mass));
        drawn = ons_drawn_of(lists.index[row * lists.length + token], (double)p[token], kept.mass);
    }
    if (threadIdx.x % WARP == 0) write_drawn(args, sample, row, drawn, indices, values);
    return kept;
}

/* The end of a kernel whose blocks have listed the first tokens of their rows for a sampler. The
 * whole block must call it. Then its dynamic shared memory is free. */
template <typename Rows>
__device__ __noinline__ void end_sample(const topk_arguments<Rows> &args, int64_t row) {
    using Real = typename Rows::Real;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ draw_of_row draw;
    Real *const p = (Real *)shared;
    const sampler_end &end = args.sampler;
    const token_lists<Real> lists = {(Real *)args.values.data, (const uint32_t *)args.indices.data,
                                     args.k, end.finds_p};
    __syncthreads();
    take_probabilities(args, lists, row, ons_row_real_of(&end.sample.temperature, row),
                       (int)threadIdx.x, (int)blockDim.x, p);
    if (threadIdx.x == blockDim.x - 1) draw = draw_of(end.sample, row, args.N);
    __syncthreads();
    if (warp_of_block() == 0)
        draw_from_list(args, end.sample, lists, row, draw, p, end.indices, end.values);
}
template <typename Rows>
__device__ __forceinline__ void end_if_sample(const topk_arguments<Rows> &args, int64_t row) {
    if constexpr (!HAS_PROBLEM<Rows>)
        if (args.sampler.is_given) end_sample(args, row);
}

#endif
