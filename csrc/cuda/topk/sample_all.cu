/* topk/sample_all.cu - the sampler of a language model (api/sample.h), for rows without filters. A
 * warp takes a part of a row, and writes its pair. Then a block takes a row: it draws a part by the
 * pairs, reads this part again, and draws the token. The parts depend on N alone, so a row has the
 * same token in any batch.
 *
 * Reads N once. */
#include "../kernel/launch_rows.cuh"
#include "route_weights.cuh"
#include "sample.cuh"

constexpr int DRAW_THREADS = ONS_DRAW_THREADS, DRAW_WARPS = DRAW_THREADS / WARP;
constexpr int PART_CHUNKS = ONS_PART_CHUNKS;                      /* of a lane */
constexpr int RUN_CHUNKS = PART_CHUNKS / DRAW_WARPS; /* of a lane, if a block has the part */

/* The largest logit of a part, and the sum of e^(x - m). */
struct part_pair {
    double m, d;
};

/* K chunks of each lane of a warp. */
template <typename Rows, int K>
struct some_tokens {
    using Real = typename Rows::Real;
    static constexpr int V = Rows::V;
    Real x[K * V];

    __device__ some_tokens(const topk_arguments<Rows> &args, int64_t row, int64_t chunk,
                           double scale) {
        known(Rows::template row<false>(args, row), [&](const auto &row) {
            const auto tile = converted(row.template load<K, WARP>(chunk));
#pragma unroll
            for (int e = 0; e < K * V; e++)
                x[e] = chunk * V + place<WARP, V>(e) < args.N ? tile.element(e)
                                                              : -arithmetic<Real>::infinity();
        });
        if (scale != 1) scale_all(x, scale);
    }
    __device__ Real largest() const {
        Real m = x[0];
#pragma unroll
        for (int e = 1; e < K * V; e++) m = larger(m, x[e]);
        return m;
    }
    /* e^(x - m) of element e. */
    __device__ Real exponential(int e, Real m) const {
        return x[e] > -arithmetic<Real>::infinity() ? exponential_of(x[e] - m) : 0;
    }
    /* The sum of e^(x - m) of chunk k. */
    __device__ double of_chunk(int k, Real m) const {
        Real sum = 0;
#pragma unroll
        for (int i = 0; i < V; i++) sum += exponential(k * V + i, m);
        return (double)sum;
    }
};

template <typename Rows>
__global__ void __launch_bounds__(DRAW_THREADS)
    sample_parts_kernel(const __grid_constant__ topk_arguments<Rows> args,
                        const __grid_constant__ ons_sample sample, int64_t parts,
                        part_pair *pairs) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    const int64_t blocks = (parts + DRAW_WARPS - 1) / DRAW_WARPS, in_launch = blockIdx.x / blocks,
                  row = args.launch.first_row + in_launch,
                  part = blockIdx.x % blocks * DRAW_WARPS + warp_of_block();
    if (part >= parts) return;
    const double scale = ons_sample_scale(ons_row_real_of(&sample.temperature, row));
    const some_tokens<Rows, PART_CHUNKS> tokens(
        args, in_launch, part * (PART_CHUNKS * WARP) + threadIdx.x % WARP, scale);
    const Real m = max_over_lanes<WARP>(tokens.largest());
    double d = 0;
#pragma unroll
    for (int k = 0; k < PART_CHUNKS; k++) d += tokens.of_chunk(k, m);
    d = sum_over_lanes<WARP>(d);
    const bool none = m == -arithmetic<Real>::infinity();
    if (threadIdx.x % WARP == 0) pairs[row * parts + part] = {(double)m, none ? 0 : d};
}

/* The first of a warp's lanes whose running sum passes `at`; if rounding leaves none, the last one
 * that has a mass. */
__device__ inline int lane_that_passes(double upto, double own, double at) {
    const unsigned beyond = __ballot_sync(~0u, upto > at && own > 0),
                   some = __ballot_sync(~0u, own > 0);
    return beyond ? __ffs((int)beyond) - 1 : 31 - __clz((int)some);
}

/* A drawn part of a row. */
struct drawn_part {
    int64_t part;
    double share; /* of the part's mass, at which the token lies */
};

/* The pairs of a row. Each thread has some that lie side by side. */
class pairs_of_row {
   public:
    __device__ pairs_of_row(const part_pair *pairs_, int64_t parts)
        : pairs(pairs_),
          begin(min(threadIdx.x * a_thread(parts), parts)),
          end(min(begin + a_thread(parts), parts)) {
        __shared__ double largest[DRAW_WARPS], of_warp[DRAW_WARPS];
        const int lane = threadIdx.x % WARP;
        m = -arithmetic<double>::infinity();
        for (int64_t i = begin; i < end; i++) m = larger(m, pairs[i].m);
        m = max_over_lanes<WARP>(m);
        if (lane == 0) largest[warp_of_block()] = m;
        __syncthreads();
        for (int i = 0; i < DRAW_WARPS; i++) m = larger(m, largest[i]);
        own = 0;
        for (int64_t i = begin; i < end; i++) own += mass(i);
        upto = sum_up_to_lane<WARP>(own, lane);
        if (lane == WARP - 1) of_warp[warp_of_block()] = upto;
        __syncthreads();
        all = 0;
        for (int i = 0; i < DRAW_WARPS; i++) {
            if (i == warp_of_block()) upto += all;
            all += of_warp[i];
        }
    }

    /* The part at which the running sum passes `at`. A block must call it. */
    __device__ drawn_part draw(double at) const {
        __shared__ int warp_with[2]; /* the first warp that passes, and the last with a mass */
        __shared__ drawn_part drawn;
        const int lane = threadIdx.x % WARP, warp = warp_of_block();
        if (threadIdx.x == 0) {
            warp_with[0] = DRAW_WARPS;
            warp_with[1] = 0;
        }
        __syncthreads();
        const bool passes = __any_sync(~0u, upto > at && own > 0), some = __any_sync(~0u, own > 0);
        if (lane == 0 && passes) atomicMin(&warp_with[0], warp);
        if (lane == 0 && some) atomicMax(&warp_with[1], warp);
        __syncthreads();
        const int from = warp_with[0] < DRAW_WARPS ? warp_with[0] : warp_with[1];
        if (warp == from && lane == lane_that_passes(upto, own, at)) {
            double passed = upto - own;
            for (int64_t i = begin; i < end; i++) {
                const double one = mass(i);
                if (one == 0) continue;
                drawn = {i, (at - passed) / one};
                passed += one;
                if (passed > at) break;
            }
        }
        __syncthreads();
        return drawn;
    }
    /* The first part that has the largest logit. A block must call it. */
    __device__ drawn_part with_largest() const {
        __shared__ unsigned long long first;
        if (threadIdx.x == 0) first = ~0ull;
        __syncthreads();
        for (int64_t i = end - 1; i >= begin; i--)
            if (pairs[i].m == m) atomicMin(&first, (unsigned long long)i);
        __syncthreads();
        return {(int64_t)first, 0};
    }

    double m, all;

   private:
    __device__ static int64_t a_thread(int64_t parts) {
        return (parts + DRAW_THREADS - 1) / DRAW_THREADS;
    }
    __device__ double mass(int64_t i) const {
        return pairs[i].d > 0 ? pairs[i].d * exp(pairs[i].m - m) : 0;
    }

    const part_pair *const pairs;
    const int64_t begin, end;
    double own, upto; /* of this thread's parts, and of all parts up to them */
};

template <typename Rows>
__global__ void __launch_bounds__(DRAW_THREADS)
    sample_all_kernel(const __grid_constant__ topk_arguments<Rows> args,
                      const __grid_constant__ ons_sample sample, int64_t parts,
                      const part_pair *pairs) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    constexpr int K = RUN_CHUNKS, V = Rows::V, RUNS = DRAW_WARPS * K;
    __shared__ double of_run[RUNS];
    __shared__ unsigned long long first;
    const int64_t row = args.launch.first_row + blockIdx.x;
    const int lane = threadIdx.x % WARP, warp = warp_of_block();
    const ons_row_filters filters = ons_filters_of(&sample, row, args.N);
    const pairs_of_row of_row(pairs + row * parts, parts);
    if (!isfinite(of_row.m) || !filters.in_range) {
        if (threadIdx.x == 0) write_drawn(args, sample, row, {-1, 0, 0});
        return;
    }
    const bool greedy = ons_is_greedy(filters.temperature);
    const double u = (double)(ons_random_of_row(&sample, row) >> 11) * 0x1p-53;
    const drawn_part drawn = greedy ? of_row.with_largest() : of_row.draw(u * of_row.all);
    const Real m = (Real)pairs[row * parts + drawn.part].m;
    /* a run of tokens: chunk k of all lanes of a warp */
    const int64_t chunk = drawn.part * (PART_CHUNKS * WARP) + warp * (K * WARP) + lane;
    const some_tokens<Rows, K> tokens(args, blockIdx.x, chunk,
                                      ons_sample_scale(filters.temperature));
    if (greedy) {
        if (threadIdx.x == 0) first = ~0ull;
        __syncthreads();
#pragma unroll
        for (int e = 0; e < K * V; e++)
            if (tokens.x[e] == m)
                atomicMin(&first, (unsigned long long)(chunk * V + place<WARP, V>(e)));
        __syncthreads();
        if (threadIdx.x == 0)
            write_drawn(args, sample, row, {(int64_t)first, 1 / of_row.all, 1 / of_row.all});
        return;
    }
    double own[K], upto[K];
#pragma unroll
    for (int k = 0; k < K; k++) {
        own[k] = tokens.of_chunk(k, m);
        upto[k] = sum_up_to_lane<WARP>(own[k], lane);
        if (lane == WARP - 1) of_run[warp * K + k] = upto[k];
    }
    __syncthreads();
    static_assert(RUNS <= WARP, "a lane has a run");
    const double mine = lane < RUNS ? of_run[lane] : 0, upto_run = sum_up_to_lane<WARP>(mine, lane),
                 at = __shfl_sync(~0u, upto_run, WARP - 1) * fmin(drawn.share, 1.0);
    const int run = lane_that_passes(upto_run, mine, at);
    const double at_in_run = at - __shfl_sync(~0u, upto_run - mine, run);
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (warp * K + k != run || lane != lane_that_passes(upto[k], own[k], at_in_run)) continue;
        double passed = upto[k] - own[k];
        int64_t token = -1;
        Real logit = 0;
#pragma unroll
        for (int i = 0; i < V; i++) {
            const Real e = tokens.exponential(k * V + i, m);
            if (e > 0 && (token < 0 || passed <= at_in_run)) {
                token = (chunk + k * WARP) * V + i;
                logit = tokens.x[k * V + i];
            }
            passed += (double)e;
        }
        write_drawn(args, sample, row, {token, exp((double)logit - of_row.m) / of_row.all, 1});
    }
}

ons_status launch_sample_all(const launch_request &request, const ons_sample &sample,
                             void *workspace) {
    return with_topk_rows(request, 1, [&](auto of_rows, const auto &arguments) {
        using Rows = typename decltype(of_rows)::Rows;
        constexpr int64_t LENGTH = (int64_t)PART_CHUNKS * WARP * Rows::V;
        const int64_t parts = (request.plan->N + LENGTH - 1) / LENGTH;
        auto *const pairs = (part_pair *)workspace;
        const ons_status status =
            launch_strips(request, {(parts + DRAW_WARPS - 1) / DRAW_WARPS, DRAW_THREADS},
                          sample_parts_kernel<Rows>, arguments, sample, parts, pairs);
        if (status != ONS_OK) return status;
        return launch_strips(request, {1, DRAW_THREADS}, sample_all_kernel<Rows>, arguments, sample,
                             parts, (const part_pair *)pairs);
    });
}
