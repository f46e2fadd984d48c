/* topk/sample_all.cu - the sampler of a language model (api/sample.h), for rows without filters. A
 * block takes a part of a row, and writes its pair. Then a block takes a row: it draws a part by
 * the pairs, reads this part again, and draws the token. The parts depend on N alone, so a row has
 * the same token in any batch.
 *
 * Reads N once. */
#include <climits>

#include "../kernel/launch_rows.cuh"
#include "route_weights.cuh"
#include "sample.cuh"

constexpr int PART_THREADS = ONS_DRAW_THREADS, PART_WARPS = PART_THREADS / WARP,
              PART_CHUNKS = ONS_PART_CHUNKS;

/* The largest logit of a part, and the sum of e^(x - m). */
struct part_pair {
    double m, d;
};

/* A thread's tokens of a part: e^(x - m) of each, relative to the part's m. */
template <typename Rows>
struct part_of_tokens {
    using Real = typename Rows::Real;
    static constexpr int V = Rows::V, LENGTH = PART_THREADS * PART_CHUNKS * V;
    int64_t chunk; /* the first of this thread */
    Real x[PART_CHUNKS * V], m;

    __device__ part_of_tokens(const topk_arguments<Rows> &args, int64_t row, int64_t part,
                              double scale)
        : chunk(part * (LENGTH / V) + (int64_t)warp_of_block() * (PART_CHUNKS * WARP) +
                threadIdx.x % WARP) {
        known(Rows::template row<false>(args, row), [&](const auto &row) {
            const auto tile = converted(row.template load<PART_CHUNKS, WARP>(chunk));
#pragma unroll
            for (int e = 0; e < PART_CHUNKS * V; e++)
                x[e] = chunk * V + place<WARP, V>(e) < args.N ? tile.element(e)
                                                              : -arithmetic<Real>::infinity();
        });
        if (scale != 1) scale_all(x, scale);
        m = x[0];
#pragma unroll
        for (int e = 1; e < PART_CHUNKS * V; e++) m = larger(m, x[e]);
        m = max_over_lanes<WARP>(m);
        __shared__ Real of_warp[PART_WARPS];
        __syncthreads();
        if (threadIdx.x % WARP == 0) of_warp[warp_of_block()] = m;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < PART_WARPS; i++) m = larger(m, of_warp[i]);
    }

    /* Replaces x by e^(x - m), if m is finite. */
    __device__ void exponentiate() {
#pragma unroll
        for (int e = 0; e < PART_CHUNKS * V; e++)
            x[e] = x[e] > -arithmetic<Real>::infinity() ? exponential_of(x[e] - m) : 0;
    }
    /* The sum of chunk k. */
    __device__ double of_chunk(int k) const {
        Real sum = 0;
#pragma unroll
        for (int i = 0; i < V; i++) sum += x[k * V + i];
        return (double)sum;
    }
};

template <typename Rows>
__global__ void __launch_bounds__(PART_THREADS)
    sample_parts_kernel(const __grid_constant__ topk_arguments<Rows> args,
                        const __grid_constant__ ons_sample sample, int64_t parts,
                        part_pair *pairs) {
    await_earlier_work(args.launch.next_may_start);
    using Tokens = part_of_tokens<Rows>;
    __shared__ double of_warp[PART_WARPS];
    const int64_t index = blockIdx.x + args.launch.first_row * parts, row = index / parts;
    const double temperature = ons_row_real_of(&sample.temperature, row);
    Tokens tokens(args, row - args.launch.first_row, index % parts, ons_sample_scale(temperature));
    tokens.exponentiate();
    double d = 0;
#pragma unroll
    for (int k = 0; k < PART_CHUNKS; k++) d += tokens.of_chunk(k);
    d = sum_over_lanes<WARP>(d);
    if (threadIdx.x % WARP == 0) of_warp[warp_of_block()] = d;
    __syncthreads();
    if (threadIdx.x != 0) return;
    d = 0;
    for (int i = 0; i < PART_WARPS; i++) d += of_warp[i];
    const bool none = tokens.m == -arithmetic<typename Rows::Real>::infinity();
    pairs[index] = {(double)tokens.m, none ? 0 : d};
}

/* The pairs of a row's parts, relative to the row's m. */
class pairs_of_row {
   public:
    __device__ pairs_of_row(const part_pair *pairs_, int64_t parts_)
        : m(-arithmetic<double>::infinity()), pairs(pairs_), parts(parts_) {
        for (int64_t i = threadIdx.x; i < parts; i += PART_THREADS) m = larger(m, pairs[i].m);
        m = max_over_lanes<WARP>(m);
        __shared__ double of_warp[PART_WARPS];
        if (threadIdx.x % WARP == 0) of_warp[warp_of_block()] = m;
        __syncthreads();
        for (int i = 0; i < PART_WARPS; i++) m = larger(m, of_warp[i]);
    }

    __device__ double mass(int64_t part) const {
        return part < parts && pairs[part].d > 0 ? pairs[part].d * exp(pairs[part].m - m) : 0;
    }

    /* The whole block walks over the parts in order. visit(part, the mass with it, the mass before
     * it) returns whether this thread has found the part. The walk ends if a thread has found it.
     * Returns the mass so far. */
    template <typename Visit>
    __device__ double walk(Visit visit) const {
        __shared__ double of_warp[PART_WARPS];
        double before = 0;
        for (int64_t begin = 0; begin < parts; begin += PART_THREADS) {
            const int64_t part = begin + threadIdx.x;
            const double upto = sum_up_to_lane<WARP>(mass(part), threadIdx.x % WARP);
            const double below = __shfl_up_sync(~0u, upto, 1);
            __syncthreads();
            if (threadIdx.x % WARP == WARP - 1) of_warp[warp_of_block()] = upto;
            __syncthreads();
            double of_warps = before;
            for (int i = 0; i < warp_of_block(); i++) of_warps += of_warp[i];
            const bool found =
                part < parts &&
                visit(part, of_warps + upto, threadIdx.x % WARP == 0 ? of_warps : of_warps + below);
            for (int i = 0; i < PART_WARPS; i++) before += of_warp[i];
            if (__syncthreads_or(found)) break;
        }
        return before;
    }

    double m;

   private:
    const part_pair *pairs;
    int64_t parts;
};

template <typename Rows>
__global__ void __launch_bounds__(PART_THREADS)
    sample_all_kernel(const __grid_constant__ topk_arguments<Rows> args,
                      const __grid_constant__ ons_sample sample, int64_t parts,
                      const part_pair *pairs) {
    await_earlier_work(args.launch.next_may_start);
    using Tokens = part_of_tokens<Rows>;
    using Real = typename Rows::Real;
    constexpr int V = Rows::V;
    __shared__ double of_chunks[PART_WARPS * PART_CHUNKS], at_in_part, at_in_chunk;
    __shared__ long long chosen_part, last_part;
    __shared__ int chosen_chunk;
    __shared__ int64_t token;
    __shared__ Real logit;
    const int64_t row = args.launch.first_row + blockIdx.x;
    const ons_row_filters filters = ons_filters_of(&sample, row, args.N);
    const pairs_of_row of_row(pairs + row * parts, parts);
    if (!isfinite(of_row.m) || !filters.in_range) {
        if (threadIdx.x == 0) write_drawn(args, sample, row, {-1, 0, 0});
        return;
    }
    const double scale = ons_sample_scale(filters.temperature);
    const bool greedy = ons_is_greedy(filters.temperature);
    if (threadIdx.x == 0) {
        chosen_part = LLONG_MAX;
        last_part = 0;
        at_in_part = arithmetic<double>::infinity();
    }
    __syncthreads();
    const double all = of_row.walk([](int64_t, double, double) { return false; });
    const double at = (double)(ons_random_of_row(&sample, row) >> 11) * 0x1p-53 * all;
    of_row.walk([&](int64_t part, double upto, double before) {
        if (upto > before) atomicMax(&last_part, (long long)part);
        const bool found =
            greedy ? pairs[row * parts + part].m == of_row.m : before <= at && at < upto;
        if (!found) return false;
        if (greedy)
            atomicMin(&chosen_part, (long long)part);
        else {
            chosen_part = part;
            at_in_part = (at - before) / (upto - before);
        }
        return true;
    });
    __syncthreads();
    /* if rounding leaves no part, the last part with a mass */
    const int64_t part = chosen_part == LLONG_MAX ? last_part : chosen_part;
    Tokens tokens(args, blockIdx.x, part, scale);
    Real z[PART_CHUNKS * V];
#pragma unroll
    for (int e = 0; e < PART_CHUNKS * V; e++) z[e] = tokens.x[e];
    const int warp = warp_of_block(), lane = threadIdx.x % WARP;
    if (greedy) {
        if (threadIdx.x == 0) chosen_part = LLONG_MAX;
        __syncthreads();
#pragma unroll
        for (int e = 0; e < PART_CHUNKS * V; e++)
            if (z[e] == tokens.m)
                atomicMin(&chosen_part, (long long)(tokens.chunk * V + place<WARP, V>(e)));
        __syncthreads();
        if (threadIdx.x == 0) write_drawn(args, sample, row, {chosen_part, 1 / all, 1 / all});
        return;
    }
    tokens.exponentiate();
    double upto[PART_CHUNKS];
#pragma unroll
    for (int k = 0; k < PART_CHUNKS; k++) {
        upto[k] = sum_up_to_lane<WARP>(tokens.of_chunk(k), lane);
        if (lane == WARP - 1) of_chunks[warp * PART_CHUNKS + k] = upto[k];
    }
    if (threadIdx.x == 0) token = -1;
    __syncthreads();
    if (warp == 0) { /* chunk k of all lanes of a warp is a run of tokens */
        constexpr int RUNS = PART_WARPS * PART_CHUNKS;
        static_assert(RUNS == WARP, "a lane has a run");
        const double mine = sum_up_to_lane<WARP>(of_chunks[lane], lane);
        const double in_part = __shfl_sync(~0u, mine, WARP - 1) * fmin(at_in_part, 1.0);
        const unsigned beyond = __ballot_sync(~0u, mine > in_part),
                       some = __ballot_sync(~0u, of_chunks[lane] > 0);
        const int run = beyond ? __ffs((int)beyond) - 1 : 31 - __clz((int)some);
        const double below = __shfl_sync(~0u, mine - of_chunks[lane], run);
        if (lane == 0) {
            chosen_chunk = run;
            at_in_chunk = in_part - below;
        }
    }
    __syncthreads();
    if (warp == chosen_chunk / PART_CHUNKS) {
#pragma unroll
        for (int k = 0; k < PART_CHUNKS; k++) {
            if (k != chosen_chunk % PART_CHUNKS) continue;
            const double own = tokens.of_chunk(k);
            const unsigned beyond = __ballot_sync(~0u, upto[k] > at_in_chunk),
                           some = __ballot_sync(~0u, own > 0);
            const int from = beyond ? __ffs((int)beyond) - 1 : 31 - __clz((int)some);
            if (lane != from) continue;
            double passed = upto[k] - own;
            int found = 0;
            bool ends = false;
#pragma unroll
            for (int i = 0; i < V; i++) {
                const Real e = tokens.x[k * V + i];
                if (e > 0 && !ends) {
                    found = i;
                    passed += (double)e;
                    ends = passed > at_in_chunk;
                }
            }
            token = (tokens.chunk + k * WARP) * V + found;
#pragma unroll
            for (int i = 0; i < V; i++)
                if (i == found) logit = z[k * V + i];
        }
    }
    __syncthreads();
    if (threadIdx.x == 0)
        write_drawn(args, sample, row, {token, exp((double)logit - of_row.m) / all, 1});
}

ons_status launch_sample_all(const launch_request &request, const ons_sample &sample,
                             void *workspace) {
    return with_topk_rows(request, 1, [&](auto of_rows, const auto &arguments) {
        using Rows = typename decltype(of_rows)::Rows;
        constexpr int64_t LENGTH = part_of_tokens<Rows>::LENGTH;
        const int64_t parts = (request.plan->N + LENGTH - 1) / LENGTH;
        auto *const pairs = (part_pair *)workspace;
        const ons_status status =
            launch_strips(request, {parts, PART_THREADS}, sample_parts_kernel<Rows>, arguments,
                          sample, parts, pairs);
        if (status != ONS_OK) return status;
        return launch_strips(request, {1, PART_THREADS}, sample_all_kernel<Rows>, arguments, sample,
                             parts, (const part_pair *)pairs);
    });
}
