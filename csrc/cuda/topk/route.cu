/* topk/route.cu - the router of a mixture of experts, for rows of up to 1024 experts. A row stays
 * in the registers of LANES lanes of a warp, as keys. A bound of the k-th key comes from two
 * numbers of each lane, or from counting. The keys from the bound on are listed in shared memory,
 * put in order, and become weights.
 *
 * Moves 1 read of N. Stops at 32 lanes of 8 chunks; in float64 at 16 chunks. */
#include "route.cuh"
#include "tops.cuh"

/* The keys of a lane. A bit of a mask stands for each. */
template <typename Rows, int LANES, int K>
struct keys_of_lane {
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    static constexpr int V = Rows::V, n = K * V;
    static_assert(n <= 32);

    Key key[n];

    __device__ static uint32_t place_of(int e) {
        return threadIdx.x % LANES * V + place<LANES, V>(e);
    }
    __device__ unsigned from(Key least) const {
        unsigned bits = 0;
#pragma unroll
        for (int e = 0; e < n; e++)
            if (key[e] >= least) bits |= 1u << e;
        return bits;
    }
    __device__ static uint32_t count(unsigned bits) {
        return (uint32_t)count_over_lanes<LANES>(__popc(bits));
    }

    /* The largest of every second key. */
    __device__ Key top(int which) const {
        Key most = NO_EXPERT;
#pragma unroll
        for (int e = 0; e < n; e++)
            if (e % 2 == which) most = max(most, key[e]);
        return most;
    }

    /* The bits of the row's first `wanted` keys that have a bit. */
    __device__ static unsigned first_of(unsigned bits, uint32_t wanted) {
        const int lane = threadIdx.x % LANES;
        unsigned kept = 0;
        uint32_t before = 0;
#pragma unroll 1
        for (int k = 0; k < K; k++) {
            const unsigned of_chunk = bits & ((1u << V) - 1) << (k * V);
            const uint32_t upto = sum_up_to_lane<LANES>(__popc(of_chunk), lane);
            uint32_t at = before + upto - __popc(of_chunk);
            for (unsigned left = of_chunk; left; left &= left - 1)
                if (at++ < wanted) kept |= left & (0 - left);
            before += __shfl_sync(~0u, upto, LANES - 1, LANES);
        }
        return kept;
    }

    /* The bits of exactly the k first keys of a row that has so many. It finds the bits of the k-th
     * key one after the other. Whole warps must call it. */
    __device__ __forceinline__ unsigned exactly(uint32_t k) const {
        Key kth = 0;
#pragma unroll 1
        for (Key bit = Key(1) << (8 * sizeof(Key) - 1); bit > 0; bit >>= 1)
            if (count(from(kth | bit)) >= k) kth |= bit;
        const unsigned above = kth == ~Key(0) ? 0 : from(kth + 1), equal = from(kth) & ~above;
        return above | first_of(equal, k - count(above));
    }
};

/* Sets the keys of closed groups to NO_EXPERT. `room` has space for the keys of a row and of its
 * groups. */
template <typename Keys, int LANES, typename Rows>
__device__ inline void close_groups(Keys &keys, const route_arguments<Rows> &args, void *room,
                                    uint32_t N) {
    using Key = typename Keys::Key;
    const ons_route &route = args.route;
    const uint32_t lane = threadIdx.x % LANES, groups = (uint32_t)route.groups;
    const uint32_t in_group = (uint32_t)args.N / groups, top = (uint32_t)route.top_groups;
    Key *const all = (Key *)room, *const counts = all + LANES * Keys::n;
    bool *const is_closed = (bool *)(counts + groups);
#pragma unroll
    for (int e = 0; e < Keys::n; e++) all[Keys::place_of(e)] = keys.key[e];
    __syncwarp();

    uint32_t apart = 1; /* lanes that share a group, a power of two */
    while (2 * apart * groups <= LANES && in_group % (2 * apart) == 0) apart *= 2;
    const uint32_t steps = in_group / apart, which = lane % apart;
    for (uint32_t g = lane / apart; g < (groups + LANES - 1) / LANES * LANES; g += LANES / apart) {
        two_largest<Key> best;
        /* lanes begin at different steps, so they read different banks */
        for (uint32_t i = 0, at = g % steps; i < steps && g < groups; i++) {
            best.add(all[g * in_group + at * apart + which]);
            at = at + 1 == steps ? 0 : at + 1;
        }
        for (uint32_t i = 1; i < apart; i *= 2)
            best.merge({__shfl_xor_sync(~0u, best.first, i), __shfl_xor_sync(~0u, best.second, i)});
        if (which == 0 && g < groups) counts[g] = best.counts(route);
        if (apart > 1) break; /* all groups at once */
    }
    __syncwarp();
    for (uint32_t g = lane; g < groups; g += LANES) {
        const Key own = counts[g];
        uint32_t before = 0;
        for (uint32_t h = 0; h < groups; h++)
            before += counts[h] > own || (counts[h] == own && h < g);
        is_closed[g] = before >= top;
    }
    __syncwarp();
    /* place / in_group, for places and groups of up to 1024 experts */
    const uint32_t inverse = ((1u << 20) + in_group - 1) / in_group;
#pragma unroll
    for (int e = 0; e < Keys::n; e++) {
        const uint32_t at = Keys::place_of(e);
        if (at < N && is_closed[at * inverse >> 20]) keys.key[e] = NO_EXPERT;
    }
    __syncwarp();
}

template <typename Rows, int LANES, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    route_warp_kernel(const __grid_constant__ route_arguments<Rows> args) {
    await_earlier_work();
    using Real = typename Rows::Real;
    using Keys = keys_of_lane<Rows, LANES, K>;
    using Key = typename Keys::Key;
    using Entry = entry<Real>;
    constexpr int n = Keys::n;
    extern __shared__ __align__(16) unsigned char shared[];
    const ons_route &route = args.route;
    const int own = threadIdx.x / LANES, lane = threadIdx.x % LANES, rows = blockDim.x / LANES;
    const int64_t index = (int64_t)blockIdx.x * rows + own, row = index + args.first_row;
    const bool exists = row < args.rows;
    const uint32_t N = exists ? (uint32_t)args.N : 0, k = (uint32_t)args.k;
    unsigned char *const memory =
        shared + own * route_row_bytes(LANES * n, route.groups, k, sizeof(Key));
    Entry *const list = (Entry *)memory, *const in_order = list + args.room;

    const auto tile = Rows::template row<true>(args, index).template load<K, LANES>(lane);
    state<Real> total = {0, 1};
    if (needs_pair(route)) {
        total.m = max_over_lanes<LANES>(tile.largest());
        total.d = sum_exponentials<in_any_order>(tile, reference<Real>(total.m))
                      .template over_lanes<LANES>()
                      .value();
    }
    const scores_of_row<Real> scores(route, total);
    Keys keys;
    Real x[n];
    tile.take(x);
    if (route.bias) {
        scores.take(x);
#pragma unroll
        for (int e = 0; e < n; e++)
            if (Keys::place_of(e) < N) x[e] += bias_of<Real>(route, Keys::place_of(e));
    }
    const auto allowed = tile.allowed();
#pragma unroll
    for (int e = 0; e < n; e++) {
        keys.key[e] = allowed >> e & 1 ? key_of(x[e]) : (Key)EXCLUDED;
        if (Keys::place_of(e) >= N) keys.key[e] = NO_EXPERT;
    }
    if (route.top_groups < route.groups) close_groups<Keys, LANES>(keys, args, memory, N);

    Key least = EXCLUDED;
    if (k <= 2 * LANES) least = max(least, kth_over_lanes<LANES>(keys.top(0), keys.top(1), (int)k));
    unsigned kept = keys.from(least);
    uint32_t upto = sum_up_to_lane<LANES>(__popc(kept), lane);
    uint32_t count = __shfl_sync(~0u, upto, LANES - 1, LANES);
    if (__any_sync(~0u, count > (uint32_t)args.room)) {
        const unsigned exact = keys.exactly(k);
        if (count > (uint32_t)args.room) kept = exact;
        upto = sum_up_to_lane<LANES>(__popc(kept), lane);
        count = __shfl_sync(~0u, upto, LANES - 1, LANES);
    }
    uint32_t slot = upto - __popc(kept);
#pragma unroll
    for (int e = 0; e < n; e++)
        if (kept >> e & 1) list[slot++] = Entry::make(keys.key[e], Keys::place_of(e));
    __syncwarp();
    for (uint32_t i = lane; i < count; i += LANES) {
        const Entry mine = list[i];
        uint32_t others = 0; /* minus the number of entries before it */
        for (uint32_t j = 0; j < count; j++) list[j].uncount_if_before(mine, others);
        if (0 - others < k) in_order[0 - others] = mine;
    }
    __syncwarp();
    write_route<LANES>(args, exists ? row : 0, in_order, scores, exists);
}

ons_status launch_route_in_warp(const launch_request &request) {
    const ons_plan *plan = request.plan;
    const ons_route &route = *request.problem->route;
    return with_topk_rows(request, (int)topk_warp_room(request.problem->k),
                          [&](auto rows, const auto &of_rows) {
                              using Rows = typename decltype(rows)::Rows;
                              const route_arguments<Rows> arguments = {of_rows, route};
                              ons_status status = ONS_E_OPERAND;
                              const int chunks = plan->elements_a_thread / Rows::V;
#define ONS_ROUTE_SHAPE(L, K)                                                                 \
    if constexpr (K * Rows::V <= 32)                                                          \
        if (plan->lanes == L && chunks == K) {                                                \
            launch_shape shape = {1, plan->threads};                                          \
            shape.shared_bytes =                                                              \
                (int)(plan->width * route_row_bytes(plan->tile, route.groups, plan->k,        \
                                                    sizeof(typename Rows::Real)));            \
            status = launch_strips(request, shape, route_warp_kernel<Rows, L, K>, arguments); \
        }
#include "../kernels.def"
#undef ONS_ROUTE_SHAPE
                              return status;
                          });
}
