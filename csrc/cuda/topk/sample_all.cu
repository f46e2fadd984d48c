/* topk/sample_all.cu - the sampler of a language model (api/sample.h), for rows without filters.
 * The warps of a block or a cluster read a row in parts, and give the first block a pair for each
 * part. The first block draws a part by the pairs, reads this part again, and draws the token. The
 * parts depend on N and the type alone, so a row has the same token in any batch.
 *
 * Reads N once. */
#include <climits>

#include "blocks_of_row.cuh"
#include "../kernel/launch_rows.cuh"
#include "route_weights.cuh"
#include "sample.cuh"

constexpr int DRAW_THREADS = ONS_DRAW_THREADS, DRAW_WARPS = DRAW_THREADS / WARP,
              DRAW_CHUNKS = ONS_DRAW_CHUNKS;
static_assert(DRAW_CHUNKS == DRAW_WARPS, "a thread has a chunk of a warp's tile");

/* A row of logits. A tile of it has K = DRAW_CHUNKS chunks for each lane of a warp. */
template <typename Rows>
class row_of_tokens {
   public:
    using Real = typename Rows::Real;
    static constexpr int V = Rows::V, TILE = DRAW_CHUNKS * WARP * V;

    __device__ row_of_tokens(const topk_arguments<Rows> &args_, int64_t row, double temperature)
        : args(args_), index(row), scale(scale_of<Real>(temperature)) {}

    /* Calls body(row), where load() knows whether this row is aligned. */
    template <typename Body>
    __device__ __forceinline__ void known_row(Body body) const {
        known(Rows::template row<false>(args, index), body);
    }

    /* This thread's logits of K chunks from `chunk` on. After the end of the row they are -inf. */
    template <int K, typename Row>
    __device__ __forceinline__ void load(const Row &row, int64_t chunk, Real (&x)[K * V]) const {
        converted(row.template load<K, WARP>(chunk)).take(x);
        if (scale != 1) scale_all(x, scale);
    }

    /* The state of the tiles [begin, end). A warp must call it. */
    template <typename Row, typename Loaded>
    __device__ __forceinline__ state<Real> state_of(const Row &row, int64_t begin, int64_t end,
                                                    Loaded loaded) const {
        state<Real> so_far = {-arithmetic<Real>::infinity(), 0};
#pragma unroll 1
        for (int64_t tile = begin; tile < end; tile++) {
            real_tile<Real, DRAW_CHUNKS> logits;
            load<DRAW_CHUNKS>(row, tile * (DRAW_CHUNKS * WARP) + threadIdx.x % WARP, logits.x);
            loaded();
            const Real m = larger(max_over_lanes<WARP>(logits.largest()), so_far.m);
            const reference<Real> to(m);
            if (to.anchor != 0) {
#pragma unroll
                for (int e = 0; e < DRAW_CHUNKS * V; e++) logits.x[e] -= to.anchor;
            }
            const Real d = in_any_order::sum<DRAW_CHUNKS * V>(
                               [&](int e) { return to.exponential(logits.x[e]); }, Real())
                               .template over_lanes<WARP>()
                               .value();
            so_far = {m, so_far.d > 0 ? d + so_far.d * rescale(so_far.m, m) : d};
        }
        return so_far;
    }

   private:
    const topk_arguments<Rows> &args;
    const int64_t index;
    const double scale;
};

/* The sum of e^(x - m) of some tokens, in double. */
template <typename Real>
__device__ inline double mass_of(const state<Real> &tokens, Real m) {
    return tokens.d > 0 ? (double)(tokens.d * rescale(tokens.m, m)) : 0;
}

/* Draws a thread of the block by the threads' masses. The whole block must call it, and meet before
 * the next call. */
struct drawn_thread {
    bool is_mine;
    double all, rest; /* the sum of all masses; the mass of this thread before the drawn place */

    /* place(all) is the place in the sum of all masses */
    template <typename Place>
    __device__ drawn_thread(double mass, Place place) {
        __shared__ double of_warp[DRAW_WARPS];
        __shared__ int first, last;
        const int lane = threadIdx.x % WARP, warp = warp_of_block();
        const double upto = sum_up_to_lane<WARP>(mass, lane);
        if (threadIdx.x == 0) {
            first = INT_MAX;
            last = 0;
        }
        if (lane == WARP - 1) of_warp[warp] = upto;
        __syncthreads();
        double before = 0;
        all = 0;
#pragma unroll
        for (int i = 0; i < DRAW_WARPS; i++) {
            if (i == warp) before = all;
            all += of_warp[i];
        }
        const double at = place(all);
        const unsigned some = __ballot_sync(~0u, mass > 0),
                       passed = __ballot_sync(~0u, mass > 0 && before + upto > at);
        if (lane == 0 && passed) atomicMin(&first, warp * WARP + __ffs((int)passed) - 1);
        if (lane == 0 && some) atomicMax(&last, warp * WARP + 31 - __clz((int)some));
        __syncthreads();
        /* if rounding leaves no thread, the last thread with a mass */
        is_mine = threadIdx.x == (first < INT_MAX ? first : last);
        rest = fmax(at - (before + upto - mass), 0.);
    }
};

/* The largest m of `count` states. The whole block must call it. */
template <typename Real>
__device__ inline Real largest_of(const state<Real> *states, int count) {
    __shared__ Real of_warp[DRAW_WARPS];
    Real m = -arithmetic<Real>::infinity();
    for (int i = threadIdx.x; i < count; i += DRAW_THREADS) m = larger(m, states[i].m);
    m = max_over_lanes<WARP>(m);
    if (threadIdx.x % WARP == 0) of_warp[warp_of_block()] = m;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < DRAW_WARPS; i++) m = larger(m, of_warp[i]);
    return m;
}

/* A draw of some tokens of a row: their m, and the mass before the drawn place. */
template <typename Real>
struct place_of_draw {
    Real m;
    double rest;
};

/* Draws one of `count` states, or with `greedy` finds the first that has m. Sets *all to the sum of
 * all. Then `draw` is for the tokens of this state. The whole block must call it. */
template <typename Real, typename Place>
__device__ inline int draw_state(const state<Real> *states, int count, bool greedy, Place place,
                                 place_of_draw<Real> &draw, double *all) {
    __shared__ int chosen;
    __shared__ double rest_there;
    const int a_thread = (count + DRAW_THREADS - 1) / DRAW_THREADS, begin = threadIdx.x * a_thread,
              end = min(begin + a_thread, count);
    double mine = 0;
    for (int i = begin; i < end; i++) mine += mass_of(states[i], draw.m);
    const drawn_thread drawn(mine, place);
    *all = drawn.all;
    if (greedy) {
        if (threadIdx.x == 0) chosen = INT_MAX;
        __syncthreads();
        for (int i = begin; i < end; i++)
            if (states[i].m == draw.m) atomicMin(&chosen, i);
    } else if (drawn.is_mine) {
        double rest = drawn.rest;
        for (int i = begin; i < end; i++) {
            const double own = mass_of(states[i], draw.m);
            if (!(own > 0)) continue;
            chosen = i;
            rest_there = rest;
            if (rest < own) break;
            rest -= own;
        }
    }
    __syncthreads();
    draw = {states[chosen].m, rest_there * (double)(1 / rescale(states[chosen].m, draw.m))};
    return chosen;
}

/* A part of a row has `a_part` tiles. */
template <typename Rows>
__global__ void __launch_bounds__(DRAW_THREADS, 4)
    sample_all_kernel(const __grid_constant__ topk_arguments<Rows> args,
                      const __grid_constant__ ons_sample sample, int a_part) {
    using Tokens = row_of_tokens<Rows>;
    using Real = typename Rows::Real;
    constexpr int V = Rows::V;
    __shared__ state<Real> states[ONS_MOST_PARTS];
    __shared__ unsigned long long first;
    given_to_first_block<state<Real>> given(states);
    await_earlier_work(args.launch.next_may_start);
    const int64_t row = args.launch.first_row + row_of_blocks();
    const int64_t tiles = (args.N + Tokens::TILE - 1) / Tokens::TILE;
    const int lane = threadIdx.x % WARP, warp = warp_of_block();
    const ons_row_filters filters = ons_filters_of(&sample, row, args.N);
    const Tokens tokens(args, row_of_blocks(), filters.temperature);
    const bool greedy = ons_is_greedy(filters.temperature);

    /* Finds the states of a row's parts and draws a part, then the same for this part's tiles. */
    place_of_draw<Real> draw;
    Real m = 0;
    double all = 0, u = 0;
    int64_t tile = 0, end = tiles;
#pragma unroll 1
    for (int size = a_part, level = 0;; size = 1, level++) {
        const int count = (int)((end - tile + size - 1) / size),
                  blocks = level == 0 ? blocks_of_row() : 1;
        tokens.known_row([&](const auto &row) {
#pragma unroll 1
            for (int part = block_of_row() * DRAW_WARPS + warp; part < count;
                 part += blocks * DRAW_WARPS) {
                const int64_t begin = tile + (int64_t)part * size;
                const auto found = tokens.state_of(row, begin, min(begin + size, end),
                                                   [&] { given.await_ready(); });
                if (lane > 0) continue;
                if (level == 0)
                    given.give(part, found);
                else
                    states[part] = found;
            }
        });
        if (level == 0) {
            given.await_ready();
            if (block_of_row() > 0) return;
            u = (double)(ons_random_of_row(&sample, row) >> 11) * 0x1p-53;
            given.await(count);
            draw.m = m = largest_of(states, count);
            if (!isfinite(m) || !filters.in_range) {
                if (threadIdx.x == 0) write_drawn(args, sample, row, {-1, 0, 0});
                return;
            }
        } else {
            __syncthreads();
        }
        double sum;
        const auto place = [&](double sum) { return level == 0 ? u * sum : draw.rest; };
        const int64_t part = draw_state(states, count, greedy, place, draw, &sum);
        if (level == 0) all = sum;
        tile += part * size;
        if (size == 1) break;
        end = min(tile + size, end);
        __syncthreads();
    }
    const reference<Real> to(m);
    /* masses are relative to e^anchor * 2^c */
    auto p_of = [&](Real logit) {
        const double c = (double)arithmetic<Real>::MAGIC + arithmetic<Real>::LIFT -
                         (double)to.exponential.shift,
                     x = (double)logit - (double)to.anchor;
        return exp((x - c * ONS_LN2_HIGH) - c * ONS_LN2_LOW) / all;
    };
    const int64_t chunk = tile * (DRAW_CHUNKS * WARP) + threadIdx.x;
    Real x[V];
    tokens.known_row([&](const auto &row) { tokens.template load<1>(row, chunk, x); });
    if (greedy) {
        if (threadIdx.x == 0) first = ~0ull;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < V; i++)
            if (x[i] == m) atomicMin(&first, (unsigned long long)(chunk * V + i));
        __syncthreads();
        const double p = p_of(m);
        if (threadIdx.x == 0) write_drawn(args, sample, row, {(int64_t)first, p, p});
        return;
    }
    Real e[V];
    double mine = 0;
    const reference<Real> of_tile(draw.m);
#pragma unroll
    for (int i = 0; i < V; i++) {
        e[i] = x[i] > -arithmetic<Real>::infinity()
                   ? of_tile.exponential(x[i] - of_tile.anchor) * arithmetic<Real>::LOWERED
                   : 0;
        mine += (double)e[i];
    }
    const drawn_thread drawn(mine, [&](double) { return draw.rest; });
    if (!drawn.is_mine) return;
    double rest = drawn.rest;
    int token = 0;
    Real logit = 0;
    bool ends = false;
#pragma unroll
    for (int i = 0; i < V; i++) {
        if (ends || !(e[i] > 0)) continue;
        token = i;
        logit = x[i];
        ends = rest < (double)e[i];
        rest -= (double)e[i];
    }
    write_drawn(args, sample, row,
                {chunk * V + token, sample.logprob == ONS_NO_LOGPROB ? 0. : p_of(logit), 1});
}

ons_status launch_sample_all(const launch_request &request, const ons_sample &sample) {
    return with_topk_rows(request, 1, [&](auto of_rows, const auto &arguments) {
        using Rows = typename decltype(of_rows)::Rows;
        constexpr int64_t TILE = row_of_tokens<Rows>::TILE;
        const int64_t tiles = (request.plan->N + TILE - 1) / TILE,
                      a_part = (tiles + ONS_MOST_PARTS - 1) / ONS_MOST_PARTS;
        launch_shape shape = {request.plan->blocks_a_row, DRAW_THREADS};
        shape.cluster = (int)shape.blocks;
        return launch_strips(request, shape, sample_all_kernel<Rows>, arguments, sample,
                             (int)a_part);
    });
}
