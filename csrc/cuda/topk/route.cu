/* topk/route.cu - a router with a bias, groups, a mask or gaps, or in float64, for rows of up to
 * 1024 experts and 32 groups. The other routers take topk/sorted.cu and topk/warp.cu. A warp holds
 * the keys of a row in registers. If there are many short rows, it holds two rows. It finds a lower
 * bound of the k-th key from the largest keys of the lanes, or by counting. It lists the keys that
 * reach the bound in shared memory, puts them in order, and turns them into weights.
 *
 * Moves 1 read of N. Stops at 32 keys a lane. */
#include "route.cuh"
#include "tops.cuh"

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
        const uint32_t lanes = (uint32_t)plan->lanes;
        in_lanes = in_group % V == 0 && chunks <= lanes && (chunks & (chunks - 1)) == 0;
        const uint32_t most = in_lanes ? chunks : lanes / groups;
        while (2u << log_lanes <= most && in_group % (2u << log_lanes) == 0) log_lanes++;
        steps = in_group >> log_lanes;
        inverse = ((1u << 20) + in_group - 1) / in_group;
    }
    /* The group of a place. This is exact for up to 1024 experts. */
    __device__ uint32_t of(uint32_t at) const { return at * inverse >> 20; }
    __device__ bool has_some_closed() const { return top < groups; }
};

/* The keys of a lane. LANES lanes share a row. In a mask, one bit stands for each key. */
template <typename Rows, int LANES, int K>
struct keys_of_lane {
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    static constexpr int V = Rows::V, n = K * V;
    static_assert(n <= ROUTE_LANE_ELEMENTS);

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
    /* The largest key of a part. A part has every PARTS-th chunk of the lane. If the lane has one
     * chunk, it has every PARTS-th key. */
    template <int PARTS>
    __device__ Key largest_of_part(int part) const {
        Key most = NO_EXPERT;
#pragma unroll
        for (int e = 0; e < n; e++)
            if ((K > 1 ? e / V : e) % PARTS == part) most = max(most, key[e]);
        return most;
    }

    /* A bound that at least k keys reach. k is at most 2 * LANES. If a whole warp has the row and k
     * is small, each lane gives its largest key, and the bound is the k-th largest of the different
     * keys. Otherwise the bound is the k-th largest top of the lanes. Each lane gives two tops.
     * If one_top is set and a lane has one chunk, it gives one. Then k is at most LANES. */
    __device__ Key bound_of_tops(uint32_t k, bool one_top) const {
        Key bound = EXCLUDED;
        if (LANES == WARP && k <= WARP / 2) {
            Key top = largest_of_part<1>(0);
#pragma unroll 4
            for (uint32_t i = 0; i < k; i++) {
                bound = largest_of_warp(top);
                if (top == bound) top = NO_EXPERT;
            }
        } else if (K == 1 && one_top) {
            bound = kth_over_lanes<LANES>(largest_of_part<1>(0), (int)k);
        } else {
            bound = kth_over_lanes<LANES>(largest_of_part<2>(0), largest_of_part<2>(1), (int)k);
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
            const uint32_t upto = sum_up_to_lane<LANES>(__popc(of_chunk), threadIdx.x % LANES);
            uint32_t at = before + upto - __popc(of_chunk);
            for (unsigned left = of_chunk; left; left &= left - 1)
                if (at++ < wanted) kept |= left & (0 - left);
            before += __shfl_sync(~0u, upto, LANES - 1, LANES);
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

/* Merges best[c] of 2^n neighbouring lanes, for each c. */
template <typename Key, int count>
__device__ __forceinline__ void merge_lanes(two_largest<Key> (&best)[count], uint32_t n) {
#pragma unroll 1
    for (uint32_t i = 1; i >> n == 0; i *= 2)
#pragma unroll
        for (int c = 0; c < count; c++)
            best[c].merge(best[c].of_lane([&](Key key) { return __shfl_xor_sync(~0u, key, i); }));
}

/* The value of group number `lane`, or NO_EXPERT. `room` has space for the keys of a row. */
template <typename Rows, int LANES, int K>
__device__ __forceinline__ auto value_of_group(const keys_of_lane<Rows, LANES, K> &keys,
                                               const topk_arguments<Rows> &args,
                                               const groups_of_row &shape, void *room) {
    using Keys = keys_of_lane<Rows, LANES, K>;
    using Key = typename Keys::Key;
    constexpr int V = Keys::V;
    const uint32_t lane = threadIdx.x % LANES, log_lanes = shape.log_lanes;
    two_largest<Key> of_group; /* of group number `lane` */
    if (shape.in_lanes) {
        const uint32_t a_chunk = LANES >> log_lanes; /* groups whose chunks have the same number */
        two_largest<Key> best[K];
#pragma unroll
        for (int e = 0; e < Keys::n; e++) best[e / V].add(keys.key[e]);
        merge_lanes(best, log_lanes);
#pragma unroll
        for (int k = 0; k < K; k++) {
            const uint32_t group = lane - k * a_chunk;
            const two_largest<Key> own = best[k].of_lane(
                [&](Key key) { return __shfl_sync(~0u, key, group << log_lanes, LANES); });
            if (group < a_chunk) of_group = own;
        }
    } else {
        Key *const all = (Key *)room;
#pragma unroll
        for (int e = 0; e < Keys::n; e++) all[Keys::place_of(e)] = keys.key[e];
        __syncwarp();
        /* Lanes begin at different steps, so they read different banks. */
        const uint32_t group = lane >> log_lanes;
        const Key *const own = all + group * shape.in_group + (lane & ((1u << log_lanes) - 1));
        two_largest<Key> best[1];
#pragma unroll 4
        for (uint32_t i = 0, at = group < shape.steps ? group : 0; i < shape.steps; i++) {
            if (group < shape.groups) best[0].add(own[at << log_lanes]);
            at = at + 1 == shape.steps ? 0 : at + 1;
        }
        merge_lanes(best, log_lanes);
        of_group = best[0].of_lane(
            [&](Key key) { return __shfl_sync(~0u, key, lane << log_lanes, LANES); });
        __syncwarp();
    }
    const Key value = of_group.counts(args.route);
    return lane < shape.groups ? max(value, (Key)EXCLUDED) : (Key)NO_EXPERT;
}

/* Sets the keys of closed groups to NO_EXPERT. */
template <typename Rows, int LANES, int K>
__device__ __forceinline__ void close_groups(keys_of_lane<Rows, LANES, K> &keys,
                                             const topk_arguments<Rows> &args,
                                             const groups_of_row &shape, void *room) {
    using Keys = keys_of_lane<Rows, LANES, K>;
    using Key = typename Keys::Key;
    constexpr int V = Keys::V;
    const uint32_t lane = threadIdx.x % LANES;
    const Key value = value_of_group(keys, args, shape, room);
    uint32_t before = 0; /* groups that are before group number `lane` */
#pragma unroll 4
    for (uint32_t i = 0; i < shape.groups; i++) {
        const Key other = __shfl_sync(~0u, value, i, LANES);
        before += other > value || (other == value && i < lane);
    }
    const unsigned open = __ballot_sync(~0u, before < shape.top) >> (threadIdx.x % WARP - lane);
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

/* Number of blocks that fit a multiprocessor if a lane has n keys. Without it, the compiler takes
 * more registers, and fewer blocks fit. sm_75 has room for 1024 threads. */
#if __CUDA_ARCH__ == 750
constexpr int MOST_ROUTE_BLOCKS = 1024 / WARP_ROW_THREADS;
#else
constexpr int MOST_ROUTE_BLOCKS = 1536 / WARP_ROW_THREADS;
#endif
template <typename Rows, int K, int n = K * Rows::V>
constexpr int ROUTE_BLOCKS = HAS_PROBLEM<Rows> || sizeof(typename Rows::Real) > sizeof(float) ? 1
                             : n > 24                                                         ? 6
                             : n > 16                                                         ? 7
                             : n > 8 && MOST_ROUTE_BLOCKS > 9                                 ? 9
                                                              : MOST_ROUTE_BLOCKS;

template <typename Rows, int LANES, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS, ROUTE_BLOCKS<Rows, K>)
    route_warp_kernel(const __grid_constant__ topk_arguments<Rows> args,
                      const __grid_constant__ groups_of_row groups, const int row_bytes) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    using Keys = keys_of_lane<Rows, LANES, K>;
    using Key = typename Keys::Key;
    using Entry = entry<Real>;
    constexpr int n = Keys::n;
    extern __shared__ __align__(16) unsigned char shared[];
    const int own = threadIdx.x / LANES, lane = threadIdx.x % LANES, rows = blockDim.x / LANES;
    const int64_t index = (int64_t)blockIdx.x * rows + own, row = index + args.launch.first_row;
    const bool exists = row < args.rows;
    const uint32_t N = (uint32_t)args.N, k = (uint32_t)args.k, room = (uint32_t)args.room;
    unsigned char *const memory = shared + own * row_bytes;
    Entry *const list = (Entry *)memory, *const in_order = list + room;

    const auto tile = Rows::template row<true>(args, index).template load<K, LANES>(lane);
    const row_without_gaps<alignment::EITHER, Real, Real> biases((const Real *)args.route.bias,
                                                                 nullptr, args.N);
    Real bias[n];
    if (args.route.bias) biases.template load<K, LANES>(lane).take(bias);
    state<Real> total = {0, 1};
    if (args.needs_pair) {
        total.m = max_over_lanes<LANES>(tile.largest());
        total.d = sum_exponentials<in_any_order>(tile, reference<Real>(total.m))
                      .template over_lanes<LANES>()
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
    if (N < LANES * n) {
#pragma unroll
        for (int e = 0; e < n; e++)
            if (Keys::place_of(e) >= N) keys.key[e] = NO_EXPERT;
    }
    if (groups.has_some_closed()) close_groups(keys, args, groups, memory);

    unsigned kept = 0;
    uint32_t upto = 0, count = ~0u; /* more than fit the list */
    if (k <= 2 * LANES) {
        /* One top of a lane is enough if k is at most half of the lanes with open groups. */
        kept = keys.from(keys.bound_of_tops(k, k * groups.groups <= LANES / 2 * groups.top));
        upto = sum_up_to_lane<LANES>(__popc(kept), lane);
        count = __shfl_sync(~0u, upto, LANES - 1, LANES);
    }
    if (__any_sync(~0u, count > room)) {
        kept = keys.exactly(k);
        upto = sum_up_to_lane<LANES>(__popc(kept), lane);
        count = k;
    }
    Entry *next = list + (upto - __popc(kept));
#pragma unroll
    for (int e = 0; e < n; e++)
        if (kept >> e & 1) *next++ = Entry::make(keys.key[e], Keys::place_of(e));
    __syncwarp();
#pragma unroll 1
    for (uint32_t i = lane; i < count; i += LANES) {
        const Entry mine = list[i];
        uint32_t others = 0; /* minus the number of entries before it */
#pragma unroll 4
        for (uint32_t j = 0; j < count; j++) list[j].uncount_if_before(mine, others);
        if (0 - others < k) in_order[0 - others] = mine;
    }
    __syncwarp();
    write_listed<LANES>(args, exists ? row : 0, exists, in_order, total);
}

template <typename Rows>
constexpr bool has_route_shape(topk_rows rows, int chunks) {
    const bool fits = chunks * Rows::V <= ROUTE_LANE_ELEMENTS;
    return fits && (rows == TOPK_ALL_ROWS ||
                    (!HAS_PROBLEM<Rows> && std::is_same_v<typename Rows::Real, float>));
}

ons_status launch_route_in_warp(const launch_request &request) {
    const ons_plan *plan = request.plan;
    return with_topk_rows(request, (int)route_room(request.problem->k),
                          [&](auto rows, const auto &arguments) {
                              using Rows = typename decltype(rows)::Rows;
                              const groups_of_row groups(plan, *request.problem->route, Rows::V);
                              const int row_bytes = (int)route_row_bytes(
                                  plan->tile, groups.groups, plan->k, sizeof(typename Rows::Real));
                              launch_shape shape = {1, plan->threads};
                              shape.shared_bytes = (int)plan->width * row_bytes;
                              ons_status status = ONS_E_OPERAND;
#define ONS_ROUTE_SHAPE(ROWS, L, K)                                                          \
    if constexpr (has_route_shape<Rows>(TOPK_##ROWS##_ROWS, K))                              \
        if (plan->lanes == L && plan->elements_a_thread == K * Rows::V)                      \
            status = launch_strips(request, shape, route_warp_kernel<Rows, L, K>, arguments, \
                                   groups, row_bytes);
#include "../kernels.def"
#undef ONS_ROUTE_SHAPE
                              return status;
                          });
}
