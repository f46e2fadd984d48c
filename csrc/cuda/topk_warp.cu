/* topk_warp.cu - fused_warp of the operation that selects: a row stays in the registers of a warp,
 * or of as few of its lanes as hold it, and a block has several rows. The k-th largest of two
 * numbers a lane, the largest of its even chunks and of its odd ones, bounds the k-th element from
 * below. The few elements from there on are listed in shared memory, and put in order.
 *
 * Moves 1 read of N. Stops at 32 lanes of WARP_CHUNKS chunks. */
#include "launch_topk.cuh"
#include "rows/select.cuh"

/* The lanes that share a row, for bound_by_counting; other rows of the warp come with it. */
template <int LANES>
struct group_of_lanes {
    __device__ int sum(int n) const { return count_over_lanes<LANES>(n); }
    __device__ bool any(bool b) const { return __any_sync(~0u, b); }
};

/* The k-th largest of two numbers each of LANES lanes: a bitonic network, in which number 2 * lane
 * + i is a lane's i-th. NaN may be lost. */
template <int LANES, typename Real>
__device__ inline Real kth_over_lanes(Real first, Real second, int k) {
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int size = 2; size <= 2 * LANES; size *= 2) {
        const bool down = !(2 * lane & size); /* the largest first */
#pragma unroll
        for (int apart = size / 4; apart > 0; apart /= 2) {
            const bool larger_one = !(lane & apart) == down;
            const Real one = __shfl_xor_sync(~0u, first, apart);
            const Real two = __shfl_xor_sync(~0u, second, apart);
            first = larger_one ? fmax(first, one) : fmin(first, one);
            second = larger_one ? fmax(second, two) : fmin(second, two);
        }
        const Real most = fmax(first, second), least = fmin(first, second);
        first = down ? most : least;
        second = down ? least : most;
    }
    const Real found = (k - 1) % 2 ? second : first;
    return __shfl_sync(~0u, found, (k - 1) / 2, LANES);
}

/* The largest element of a thread's even chunks, or of its odd ones. */
template <typename X, int K>
__device__ inline auto largest_of_half(const packed_tile<X, K> &tile, int half) {
    packed_tile<X, K / 2> some;
#pragma unroll
    for (int k = 0; k < K / 2; k++) some.raw[k] = tile.raw[2 * k + half];
    return some.largest();
}
template <typename Real, int K>
__device__ inline Real largest_of_half(const real_tile<Real, K> &tile, int half) {
    constexpr int V = real_tile<Real, K>::V;
    Real m = tile.x[half * V];
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < V; i++)
            if (k % 2 == half) m = larger(m, tile.x[k * V + i]);
    return m;
}

/* The elements of a row in shared memory, in its order. */
template <typename Tile>
struct stored_as {
    using type = typename Tile::Real;
};
template <typename X, int K>
struct stored_as<packed_tile<X, K>> {
    using type = X;
};

template <typename X, int K, int LANES>
__device__ inline void lay_out(const packed_tile<X, K> &tile, X *row, int lane) {
    constexpr int V = packed_tile<X, K>::V;
#pragma unroll
    for (int k = 0; k < K; k++) ((pack<X, V> *)row)[k * LANES + lane] = tile.raw[k];
}
template <typename Real, int K, int LANES>
__device__ inline void lay_out(const real_tile<Real, K> &tile, Real *row, int lane) {
    constexpr int V = real_tile<Real, K>::V;
#pragma unroll
    for (int e = 0; e < K * V; e++) row[lane * V + place<LANES, V>(e)] = tile.x[e];
}

/* Which elements of a tile are not below a number, a bit each: the sign of the difference says it.
 */
template <typename Tile>
struct signs {
    static constexpr int n = Tile::K * Tile::V;
    static_assert(n <= 32);

    __device__ static constexpr unsigned element(unsigned bit) { return n - 1 - bit; }
    __device__ static constexpr unsigned bit(unsigned e) { return n - 1 - e; }

    __device__ static unsigned not_below(const Tile &tile, typename Tile::Real least) {
        unsigned below = 0;
#pragma unroll
        for (int e = 0; e < n; e++) below = __funnelshift_l(sign(tile.element(e), least), below, 1);
        return ~below & ~0u >> (32 - n);
    }

   private:
    __device__ static unsigned sign(float x, float least) { return __float_as_uint(x - least); }
    __device__ static unsigned sign(double x, double least) { return x < least ? ~0u : 0; }
};
/* Of 16-bit elements two at a time: the bits of the first ones are the lower half. */
template <typename X, int K>
struct signs_of_pairs {
    static constexpr int n = K * packed_tile<X, K>::V, PAIRS = n / 2;
    static_assert(PAIRS <= 16);

    __device__ static constexpr unsigned element(unsigned bit) { return 2 * (bit % 16) + bit / 16; }
    __device__ static constexpr unsigned bit(unsigned e) { return e / 2 + 16 * (e % 2); }

    __device__ static unsigned not_below(const packed_tile<X, K> &tile, float least) {
        using pair = pair_of_16_bits<X>;
        const pair from = {from_real<X>(least), from_real<X>(least)};
        unsigned below = 0;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const pair apart = *(const pair *)&tile.raw[i / 2].word[i % 2] - from;
            below = below >> 1 | (*(const unsigned *)&apart & 0x80008000u);
        }
        return ~(below >> (16 - PAIRS)) & 0x10001u * (0xffffu >> (16 - PAIRS));
    }
};
template <int K>
struct signs<packed_tile<__half, K>> : signs_of_pairs<__half, K> {};
template <int K>
struct signs<packed_tile<__nv_bfloat16, K>> : signs_of_pairs<__nv_bfloat16, K> {};

/* Entries that are read at once; a list has room for so many more, which also puts the lists of
 * neighbouring rows into different banks. */
enum { LIST_PAD = 4 };
template <typename Entry>
struct alignas(16) entries_at_once {
    Entry one[LIST_PAD];
};

/* A lane has two of a list's entries at most: each counts those before it, and takes its place. */
template <int LANES, typename Entry>
__device__ inline void order_few(Entry *list, uint32_t count, int lane) {
    Entry own[2];
    uint32_t others[2] = {0, 0}; /* before it, less than 0 */
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (lane + i * LANES < count) own[i] = list[lane + i * LANES];
#pragma unroll 1
    for (uint32_t j = 0; j < count; j += LIST_PAD) {
        const entries_at_once<Entry> some = *(const entries_at_once<Entry> *)(list + j);
#pragma unroll
        for (int p = 0; p < LIST_PAD; p++)
#pragma unroll
            for (int i = 0; i < 2; i++) some.one[p].uncount_if_before(own[i], others[i]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (lane + i * LANES < count) list[0 - others[i]] = own[i];
    __syncwarp();
}

template <typename Rows, int LANES, int K>
constexpr int ELEMENTS_OF_ROW = LANES * K * Rows::V;

/* Of one row in shared memory: its elements, and its list. */
template <typename Rows, int LANES, int K>
__host__ __device__ inline int bytes_of_elements() {
    using Tile = typename tile_of_rows<Rows, K>::type;
    return ELEMENTS_OF_ROW<Rows, LANES, K> * (int)sizeof(typename stored_as<Tile>::type);
}

template <typename Rows, int LANES, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    topk_warp_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    using Real = typename Rows::Real;
    using Tile = typename tile_of_rows<Rows, K>::type;
    using X = typename stored_as<Tile>::type;
    using Entry = entry<Real>;
    constexpr int V = Rows::V, n = K * V;
    extern __shared__ __align__(16) unsigned char shared[];
    const int own = threadIdx.x / LANES, lane = threadIdx.x % LANES, rows = blockDim.x / LANES;
    X *const elements = (X *)(shared + own * bytes_of_elements<Rows, LANES, K>());
    Entry *const list = (Entry *)(shared + rows * bytes_of_elements<Rows, LANES, K>()) +
                        own * (args.room + LIST_PAD);
    const int64_t index = (int64_t)blockIdx.x * rows + own, row = index + args.first;
    const uint32_t N = row < args.rows ? (uint32_t)args.N : 0;

    Tile tile;
    Rows::template visit<true>(
        args, index, [&](const auto &from) { tile = from.template load<K, LANES>(lane); });
    lay_out<typename stored_as<Tile>::type, K, LANES>(tile, elements, lane);
    const Real tops[2] = {largest_of_half(tile, 0), largest_of_half(tile, 1)};
    const Real largest = larger(tops[0], tops[1]), m = max_over_lanes<LANES>(largest);
    const Real d =
        normalizer_over_lanes<LANES>(sum_exponentials<in_any_order>(tile, reference<Real>(m)));
    const state<Real> total = {m, d};

    Real least = -arithmetic<Real>::infinity();
    if (args.k <= 2 * LANES) least = kth_over_lanes<LANES>(tops[0], tops[1], args.k);
    using Signs = signs<Tile>;
    /* 0 - -0 and -0 - -0 have no sign */
    unsigned chosen = Signs::not_below(tile, least == 0 ? (Real)-0.0 : least);
    const uint32_t first = lane * V;
    if (!__all_sync(~0u, least > -arithmetic<Real>::infinity())) {
#pragma unroll
        for (int e = 0; e < n; e++)
            if (first + place<LANES, V>(e) >= N) chosen &= ~(1u << Signs::bit(e));
    }
    auto slots = [&] { /* up to this lane's last one */
                       int slot = __popc(chosen);
#pragma unroll
                       for (int apart = 1; apart < LANES; apart *= 2) {
                           const int before = __shfl_up_sync(~0u, slot, apart, LANES);
                           if (lane >= apart) slot += before;
                       }
                       return slot;
    };
    int slot = slots();
    uint32_t count = __shfl_sync(~0u, slot, LANES - 1, LANES);
    if (__any_sync(~0u, count > (uint32_t)args.room)) {
        Tile copy = tile;
        group_of_lanes<LANES> group;
        const auto bound =
            bound_by_counting<LANES>(copy, key_of(largest), first, 0, N, (uint32_t)args.k,
                                     (uint32_t)args.room, key_of(least), key_of(m), group);
        chosen = 0;
#pragma unroll
        for (int e = 0; e < n; e++) {
            const uint32_t at = first + place<LANES, V>(e);
            if (at < N && bound.has(key_of(tile.element(e)), at)) chosen |= 1u << Signs::bit(e);
        }
        slot = slots();
        count = __shfl_sync(~0u, slot, LANES - 1, LANES);
    }
    slot -= __popc(chosen);
    __syncwarp();
    while (chosen) {
        const unsigned bit = 31 - __clz(chosen), e = Signs::element(bit);
        chosen ^= 1u << bit;
        const uint32_t at = first + e / V * (LANES * V) + e % V;
        list[slot++] = Entry::of(key_of(to_real<Real>(elements[at])), at);
    }
    if (lane < LIST_PAD) list[count + lane] = {}; /* none is before another */
    __syncwarp();
    const uint32_t most = ~least_of_warp(~count);
    const bool exists = row < args.rows;
    const topk_of_row<Rows> results(args, exists ? row : 0, total);
    auto put = [&](uint32_t order, const Entry &one) { results.put(order, one); };
    if (most <= 2 * LANES) {
        order_few<LANES>(list, count, lane);
#pragma unroll 1
        for (uint32_t i = lane; i < (uint32_t)args.k && i < count; i += LANES) put(i, list[i]);
    } else {
        give_first(list, count, most, (uint32_t)args.k, lane, LANES, [] { __syncwarp(); }, put);
    }
    if (exists && lane == 0) put_pair(args, row, total);
}

ons_status topk_warp(const launch_request &request) {
    const ons_plan *plan = request.plan;
    return with_topk_rows(request, 32, [&](auto rows, const auto &arguments) {
        using Rows = typename decltype(rows)::Rows;
        ons_status status = ONS_E_OPERAND;
        const int chunks = plan->elements_a_thread / Rows::V;
#define ONS_TOPK_SHAPE(L, K)                                                             \
    if (plan->lanes == L && chunks == K) {                                               \
        launch_shape shape = {1, plan->threads};                                         \
        const int row_bytes =                                                            \
            bytes_of_elements<Rows, L, K>() +                                            \
            (arguments.room + LIST_PAD) * (int)sizeof(entry<typename Rows::Real>);       \
        shape.shared_bytes = plan->threads / L * row_bytes;                              \
        status = launch_strips(request, shape, topk_warp_kernel<Rows, L, K>, arguments); \
    }
#include "instances.def"
#undef ONS_TOPK_SHAPE
        return status;
    });
}
