/* topk/route.cu - a router with a bias, groups or a mask, for rows of up to 1024 experts and 32
 * groups. A warp holds the keys of a row in registers. It finds a lower bound of the k-th key from
 * the largest key of each lane, or by counting. It lists the keys that reach the bound in shared
 * memory, puts them in order, and turns them into weights.
 *
 * Moves 1 read of N. Stops at 8 chunks a lane; in float64 at 16 chunks. */
#include "route.cuh"

/* The groups of a row, each for 2^log_lanes neighbouring lanes. With in_lanes these lanes hold the
 * keys of the group. Otherwise they read the keys in `steps` steps. */
struct groups_of_row {
    uint32_t groups, top, in_group, log_lanes, steps, inverse;
    bool in_lanes;

    groups_of_row(const ons_plan *plan, const ons_route &route, uint32_t V)
        : groups((uint32_t)route.groups),
          top((uint32_t)route.top_groups),
          in_group((uint32_t)(plan->N / route.groups)),
          log_lanes(0) {
        const uint32_t chunks = in_group / V;
        in_lanes = in_group % V == 0 && chunks <= WARP && (chunks & (chunks - 1)) == 0;
        const uint32_t most = in_lanes ? chunks : WARP / groups;
        while (2u << log_lanes <= most && in_group % (2u << log_lanes) == 0) log_lanes++;
        steps = in_group >> log_lanes;
        inverse = ((1u << 20) + in_group - 1) / in_group;
    }
    /* The group of a place. This is exact for up to 1024 experts. */
    __device__ uint32_t of(uint32_t at) const { return at * inverse >> 20; }
    __device__ bool has_some_closed() const { return top < groups; }
};

/* The keys of a lane. In a mask, one bit stands for each key. */
template <typename Rows, int K>
struct keys_of_lane {
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    static constexpr int V = Rows::V, n = K * V;
    static_assert(n <= 32);

    Key key[n];

    __device__ static uint32_t place_of(int e) {
        return threadIdx.x % WARP * V + place<WARP, V>(e);
    }
    __device__ unsigned from(Key least) const {
        unsigned bits = 0;
#pragma unroll
        for (int e = 0; e < n; e++)
            if (key[e] >= least) bits |= 1u << e;
        return bits;
    }
    __device__ static uint32_t count(unsigned bits) {
        return (uint32_t)count_over_lanes<WARP>(__popc(bits));
    }
    __device__ Key largest() const {
        Key most = key[0];
#pragma unroll
        for (int e = 1; e < n; e++) most = max(most, key[e]);
        return most;
    }

    /* A bound that at least k keys reach. Of the different numbers among the lanes' largest keys it
     * is the k-th largest, or EXCLUDED if there are fewer than k. */
    __device__ Key bound_of_tops(uint32_t k) const {
        Key top = largest(), bound = EXCLUDED;
#pragma unroll 1
        for (uint32_t i = 0; i < k; i++) {
            bound = largest_of_warp(top);
            if (top == bound) top = NO_EXPERT;
        }
        return max(bound, (Key)EXCLUDED);
    }

    /* Each bit of `bits` that is set marks a key of this lane. Keeps the first `wanted` marked keys
     * of all lanes, in the order of their places. */
    __device__ static unsigned first_of(unsigned bits, uint32_t wanted) {
        unsigned kept = 0;
        uint32_t before = 0;
#pragma unroll 1
        for (int k = 0; k < K; k++) {
            const unsigned of_chunk = bits & ((1u << V) - 1) << (k * V);
            const uint32_t upto = sum_up_to_lane<WARP>(__popc(of_chunk), threadIdx.x % WARP);
            uint32_t at = before + upto - __popc(of_chunk);
            for (unsigned left = of_chunk; left; left &= left - 1)
                if (at++ < wanted) kept |= left & (0 - left);
            before += __shfl_sync(~0u, upto, WARP - 1);
        }
        return kept;
    }

    /* The bits of exactly the k largest keys. It finds the digits of the k-th key one by one. */
    __device__ __forceinline__ unsigned exactly(uint32_t k) const {
        Key kth = 0;
#pragma unroll 1
        for (Key bit = Key(1) << (8 * sizeof(Key) - 1); bit > 0; bit >>= 1)
            if (count(from(kth | bit)) >= k) kth |= bit;
        const unsigned above = kth == ~Key(0) ? 0 : from(kth + 1), equal = from(kth) & ~above;
        return above | first_of(equal, k - count(above));
    }
};

/* Merges the two largest keys of 2^n neighbouring lanes. */
template <typename Key>
__device__ __forceinline__ void merge_lanes(two_largest<Key> &best, uint32_t n) {
#pragma unroll 1
    for (uint32_t i = 1; i >> n == 0; i *= 2)
        best.merge({__shfl_xor_sync(~0u, best.first, i), __shfl_xor_sync(~0u, best.second, i)});
}

/* The value of group number `lane`, or NO_EXPERT. `room` has space for the keys of a row. */
template <typename Rows, int K>
__device__ __forceinline__ auto value_of_group(const keys_of_lane<Rows, K> &keys,
                                               const topk_arguments<Rows> &args,
                                               const groups_of_row &shape, void *room) {
    using Keys = keys_of_lane<Rows, K>;
    using Key = typename Keys::Key;
    constexpr int V = Keys::V;
    const uint32_t lane = threadIdx.x % WARP, log_lanes = shape.log_lanes;
    Key value = NO_EXPERT;
    if (shape.in_lanes) {
        const uint32_t a_chunk = WARP >> log_lanes; /* groups whose chunks have the same number */
#pragma unroll
        for (int k = 0; k < K; k++) {
            two_largest<Key> best;
#pragma unroll
            for (int i = 0; i < V; i++) best.add(keys.key[k * V + i]);
            merge_lanes(best, log_lanes);
            const uint32_t group = lane - k * a_chunk;
            const Key own = __shfl_sync(~0u, best.counts(args.route), group << log_lanes);
            if (group < a_chunk) value = own;
        }
    } else {
        Key *const all = (Key *)room;
#pragma unroll
        for (int e = 0; e < Keys::n; e++) all[Keys::place_of(e)] = keys.key[e];
        __syncwarp();
        /* Lanes begin at different steps, so they read different banks. */
        const uint32_t group = lane >> log_lanes;
        const Key *const own = all + group * shape.in_group + (lane & ((1u << log_lanes) - 1));
        two_largest<Key> best;
#pragma unroll 4
        for (uint32_t i = 0, at = group < shape.steps ? group : 0; i < shape.steps; i++) {
            if (group < shape.groups) best.add(own[at << log_lanes]);
            at = at + 1 == shape.steps ? 0 : at + 1;
        }
        merge_lanes(best, log_lanes);
        value = __shfl_sync(~0u, best.counts(args.route), lane << log_lanes);
        __syncwarp();
    }
    return lane < shape.groups ? max(value, (Key)EXCLUDED) : (Key)NO_EXPERT;
}

/* Sets the keys of closed groups to NO_EXPERT. */
template <typename Rows, int K>
__device__ __forceinline__ void close_groups(keys_of_lane<Rows, K> &keys,
                                             const topk_arguments<Rows> &args,
                                             const groups_of_row &shape, void *room) {
    using Keys = keys_of_lane<Rows, K>;
    using Key = typename Keys::Key;
    constexpr int V = Keys::V;
    const uint32_t lane = threadIdx.x % WARP;
    Key value = value_of_group(keys, args, shape, room);
    unsigned open = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < shape.top; i++) {
        const Key most = largest_of_warp(value);
        const unsigned first = __ffs((int)__ballot_sync(~0u, value == most)) - 1;
        open |= 1u << first;
        if (lane == first) value = NO_EXPERT;
    }
    auto keep_open = [&](auto together) {
        constexpr int STEP = decltype(together)::value;
#pragma unroll
        for (int e = 0; e < Keys::n; e += STEP) {
            const bool is_open = open >> shape.of(Keys::place_of(e)) & 1;
#pragma unroll
            for (int i = 0; i < STEP; i++)
                if (!is_open) keys.key[e + i] = NO_EXPERT;
        }
    };
    if (shape.in_group % V == 0)
        keep_open(std::integral_constant<int, V>());
    else
        keep_open(std::integral_constant<int, 1>());
}

constexpr uint32_t LARGEST_K_BY_TOPS = 16;

template <typename Rows, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    route_warp_kernel(const __grid_constant__ topk_arguments<Rows> args,
                      const __grid_constant__ groups_of_row groups) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    using Keys = keys_of_lane<Rows, K>;
    using Key = typename Keys::Key;
    using Entry = entry<Real>;
    constexpr int n = Keys::n;
    extern __shared__ __align__(16) unsigned char shared[];
    const int64_t index = (int64_t)blockIdx.x * warps_of_block() + warp_of_block(),
                  row = index + args.launch.first_row;
    if (row >= args.rows) return;
    const int lane = threadIdx.x % WARP;
    const uint32_t N = (uint32_t)args.N, k = (uint32_t)args.k, room = (uint32_t)args.room;
    unsigned char *const memory =
        shared + warp_of_block() * route_row_bytes(WARP * n, groups.groups, k, sizeof(Key));
    Entry *const list = (Entry *)memory, *const in_order = list + room;

    const auto tile = Rows::template row<true>(args, index).template load<K, WARP>(lane);
    const row_without_gaps<alignment::EITHER, Real, Real> biases((const Real *)args.route.bias,
                                                                 nullptr, args.N);
    Real bias[n];
    if (args.route.bias) biases.template load<K, WARP>(lane).take(bias);
    state<Real> total = {0, 1};
    if (args.needs_pair()) {
        total.m = max_over_lanes<WARP>(tile.largest());
        total.d = sum_exponentials<in_any_order>(tile, reference<Real>(total.m))
                      .template over_lanes<WARP>()
                      .value();
    }
    Keys keys;
    Real x[n];
    tile.take(x);
    if (args.route.bias) {
        take_scores(args.route.score, total, x);
#pragma unroll
        for (int e = 0; e < n; e++) x[e] += bias[e];
    }
    const auto allowed = tile.allowed();
#pragma unroll
    for (int e = 0; e < n; e++) keys.key[e] = allowed >> e & 1 ? key_of(x[e]) : (Key)EXCLUDED;
    if (N < WARP * n) {
#pragma unroll
        for (int e = 0; e < n; e++)
            if (Keys::place_of(e) >= N) keys.key[e] = NO_EXPERT;
    }
    if (groups.has_some_closed()) close_groups(keys, args, groups, memory);

    unsigned kept = 0;
    bool too_many = k > LARGEST_K_BY_TOPS;
    uint32_t upto = 0, count = 0;
    if (!too_many) {
        kept = keys.from(keys.bound_of_tops(k));
        upto = sum_up_to_lane<WARP>(__popc(kept), lane);
        count = __shfl_sync(~0u, upto, WARP - 1);
        too_many = count > room;
    }
    if (too_many) {
        kept = keys.exactly(k);
        upto = sum_up_to_lane<WARP>(__popc(kept), lane);
        count = k;
    }
    uint32_t slot = upto - __popc(kept);
#pragma unroll
    for (int e = 0; e < n; e++)
        if (kept >> e & 1) list[slot++] = Entry::make(keys.key[e], Keys::place_of(e));
    __syncwarp();
    for (uint32_t i = lane; i < count; i += WARP) {
        const Entry mine = list[i];
        uint32_t others = 0; /* minus the number of entries before it */
#pragma unroll 4
        for (uint32_t j = 0; j < count; j++) list[j].uncount_if_before(mine, others);
        if (0 - others < k) in_order[0 - others] = mine;
    }
    __syncwarp();
    write_listed<WARP>(args, row, k, in_order, total);
}

ons_status launch_route_in_warp(const launch_request &request) {
    const ons_plan *plan = request.plan;
    return with_topk_rows(
        request, (int)topk_warp_room(request.problem->k), [&](auto rows, const auto &arguments) {
            using Rows = typename decltype(rows)::Rows;
            ons_status status = ONS_E_OPERAND;
            const groups_of_row groups(plan, *request.problem->route, Rows::V);
            const int chunks = plan->elements_a_thread / Rows::V;
            auto launch_with = [&](auto K) {
                launch_shape shape = {1, plan->threads};
                shape.shared_bytes =
                    (int)(plan->width * route_row_bytes(plan->tile, groups.groups, plan->k,
                                                        sizeof(typename Rows::Real)));
                return launch_strips(request, shape, route_warp_kernel<Rows, decltype(K)::value>,
                                     arguments, groups);
            };
            if constexpr (std::is_same_v<typename Rows::Real, double>)
                status = with_constant<2, 4, 8, 16>(chunks, launch_with);
            else
                status = with_constant<1, 2, 4, 8>(chunks, launch_with);
            return status;
        });
}
