/* topk/warp.cu - `fused_warp` for softmax_topk. A row stays in the registers of a warp, or of the
 * fewest of its lanes that hold it, and a block has several rows. Each lane gives its
 * tops: the largest element of its even chunks, and of its odd chunks. If k is at most half the
 * lanes, it gives only the larger one. If k is at most twice the lanes, the k-th largest top bounds
 * the k-th element from below. If k is larger, or too many elements reach the bound, choose() finds
 * a bound by counting. The warp lists the elements that reach the bound in shared memory, and puts
 * them in order.
 *
 * Moves 1 read of N. Stops at 32 lanes of WARP_CHUNKS chunks. */
#include "launch.cuh"
#include "buckets.cuh"
#include "lay_out.cuh"
#include "signs.cuh"
#include "tops.cuh"

/* Entries that are read at once. A list has room for so many more entries. This also puts the lists
 * of neighbouring rows into different banks. */
enum { LIST_PAD = 4 };
template <typename Entry>
struct alignas(16) entries_at_once {
    Entry one[LIST_PAD];
};

/* Puts a list in order. Each lane has at most OWN entries of the list. For each of them, the lane
 * counts the entries before it, and writes the entry to that place. */
template <int LANES, int OWN, typename Entry>
__device__ inline void order_few(Entry *list, uint32_t count, int lane) {
    Entry own[OWN];
    uint32_t others[OWN] = {}; /* minus the number of entries before each own entry */
#pragma unroll
    for (int i = 0; i < OWN; i++)
        if (lane + i * LANES < count) own[i] = list[lane + i * LANES];
#pragma unroll 1
    for (uint32_t j = 0; j < count; j += LIST_PAD) {
        const entries_at_once<Entry> some = *(const entries_at_once<Entry> *)(list + j);
#pragma unroll
        for (int p = 0; p < LIST_PAD; p++)
#pragma unroll
            for (int i = 0; i < OWN; i++) some.one[p].uncount_if_before(own[i], others[i]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < OWN; i++)
        if (lane + i * LANES < count) list[0 - others[i]] = own[i];
    __syncwarp();
}

/* A lane's kept elements, a bit each as in signs.cuh, and the number that all lanes keep. */
struct kept_of_row {
    unsigned bits;
    uint32_t count;
};

/* The bits of the row's first `count` elements that have a bit. */
template <int LANES, typename Tile>
__device__ inline unsigned first_of(unsigned bits, uint32_t count, int lane) {
    using Signs = signs<Tile>;
    unsigned kept = 0;
    uint32_t before = 0;
#pragma unroll 1
    for (int k = 0; k < Tile::K; k++) {
        unsigned of_chunk = 0;
#pragma unroll
        for (int i = 0; i < Tile::V; i++) of_chunk |= 1u << Signs::bit(k * Tile::V + i);
        const uint32_t upto = sum_up_to_lane<LANES>(__popc(bits & of_chunk), lane);
        uint32_t at = before + upto - __popc(bits & of_chunk);
#pragma unroll
        for (int i = 0; i < Tile::V; i++) {
            const unsigned bit = 1u << Signs::bit(k * Tile::V + i);
            if (bits & bit && at++ < count) kept |= bit;
        }
        before += __shfl_sync(~0u, upto, LANES - 1, LANES);
    }
    return kept;
}

/* choose() looks for k to `room` elements. At least k are not below `low`, and m is the largest. It
 * begins with `number`, which may be an element. */
template <typename Real>
struct search_of_row {
    uint32_t k, room;
    Real low, m, number;
    bool is_element;
};

/* Leaves k to `room` elements of each row, by counting the elements not below a number. The number
 * is search.number at first, then the middle between the last ones that were too low and too high;
 * every third time it is an element. So neither equal elements nor an outlier make the search long.
 * If k is reached within equal elements, the first of them are kept. element(bit) returns an
 * element of this lane. */
template <int LANES, typename Tile, typename Real, typename Element>
__device__ inline void choose(const Tile &tile, kept_of_row *kept, search_of_row<Real> search,
                              Element element) {
    using Signs = signs<Tile>;
    const uint32_t k = search.k, room = search.room;
    const Real m = search.m;
    Real low = search.low, number = search.number;
    constexpr unsigned OF_ROW = ~0u >> (32 - LANES);
    unsigned above = 0, equal = 0, nan = 0; /* bits of fewer than k elements; of the equal ones the
                                             * first are kept */
    uint32_t wanted = 0;
    Real high = m;
    const int first_step = search.is_element ? 0 : 1;
    if (__any_sync(~0u, isnan(m))) nan = bits_of_nan(tile);
    for (int step = first_step;; step++) {
        const bool open = kept->count > room && !wanted;
        const unsigned ballot = __ballot_sync(~0u, open && kept->bits & ~above);
        if (ballot == 0) break;
        const bool by_element = step % 3 == 0;
        if (by_element && step > first_step) {
            const unsigned between = kept->bits & ~above,
                           lanes = ballot >> (threadIdx.x % WARP / LANES * LANES) & OF_ROW;
            const Real one = between ? element(31 - __clz(between)) : 0;
            number = __shfl_sync(~0u, one, max(31 - __clz(lanes), 0), LANES);
        } else if (step > first_step && isfinite(low)) {
            number = low + (high - low) / 2;
        } else if (step > first_step) { /* twice as far from the largest as before */
            number = high + (high - m);
        }
        const unsigned from = (isnan(number) ? nan : Signs::not_below(tile, number)) & kept->bits;
        const uint32_t count = (uint32_t)count_over_lanes<LANES>(__popc(from));
        if (open && count >= k) {
            *kept = {from, count};
            low = number;
        } else if (open) {
            above |= from;
            high = number;
        }
        if (!by_element) continue;
        const unsigned more = isnan(number) ? 0 : (Signs::above(tile, number) | nan) & kept->bits;
        const uint32_t larger_ones = (uint32_t)count_over_lanes<LANES>(__popc(more));
        if (!open || count < k) continue;
        if (larger_ones >= k) {
            *kept = {more, larger_ones};
        } else {
            above = more;
            equal = from & ~more;
            wanted = k - larger_ones;
        }
    }
    if (__any_sync(~0u, wanted > 0)) {
        const unsigned first = first_of<LANES, Tile>(equal, wanted, threadIdx.x % LANES);
        if (wanted > 0) *kept = {above | first, k};
    }
}

/* Bytes of one row's elements in shared memory. Later the buckets and the sorted list take their
 * place. */
template <typename Rows, int LANES, int K>
__host__ __device__ inline int bytes_of_elements(int room) {
    using Tile = typename Rows::template tile<K>;
    const int elements = LANES * K * Rows::V * (int)sizeof(typename stored_as<Tile>::type);
    const int in_order = LANES * BUCKETS_A_LANE * (int)sizeof(uint32_t) +
                         room * (int)sizeof(entry<typename Rows::Real>);
    return elements > in_order ? elements : in_order;
}

/* Number of blocks that fit a multiprocessor. 0: the compiler chooses. With 6 chunks of float32 it
 * would take so few registers that loads wait for each other. */
template <typename Rows, int K>
constexpr int BLOCKS_OF_WARPS = !Rows::IS_16_BIT && K * Rows::V == 24 ? 8 : 0;

template <typename Rows, int LANES, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS, BLOCKS_OF_WARPS<Rows, K>)
    topk_warp_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    using Tile = typename Rows::template tile<K>;
    using X = typename stored_as<Tile>::type;
    using Entry = entry<Real>;
    using Key = key_type<Real>;
    using Signs = signs<Tile>;
    constexpr int V = Rows::V, n = K * V;
    extern __shared__ __align__(16) unsigned char shared[];
    const int own = threadIdx.x / LANES, lane = threadIdx.x % LANES, rows = blockDim.x / LANES;
    unsigned char *const memory = shared + own * bytes_of_elements<Rows, LANES, K>(args.room);
    X *const elements = (X *)memory;
    Entry *const list = (Entry *)(shared + rows * bytes_of_elements<Rows, LANES, K>(args.room)) +
                        own * (args.room + LIST_PAD);
    const int64_t index = (int64_t)blockIdx.x * rows + own, row = index + args.launch.first_row;
    const uint32_t N = row < args.rows ? (uint32_t)args.N : 0, first = lane * V;
    auto place_of = [&](unsigned bit) {
        return first + (uint32_t)place<LANES, V>((int)Signs::element(bit));
    };
    auto element_at = [&](unsigned bit) { return to_real<Real>(elements[place_of(bit)]); };

    const Tile tile = Rows::template row<true>(args, index).template load<K, LANES>(lane);
    lay_out<LANES>(tile, elements, lane);
    const Real tops[2] = {largest_of_part<2>(tile, 0), largest_of_part<2>(tile, 1)};
    const Real m = max_over_lanes<LANES>(larger(tops[0], tops[1]));
    state<Real> total = {m, 1};
    if (args.needs_pair)
        total.d = sum_exponentials<in_any_order>(tile, reference<Real>(m))
                      .template over_lanes<LANES>()
                      .value();

    const bool few = args.k <= 2 * LANES;
    Real least = -arithmetic<Real>::infinity();
    if (args.k <= LANES / 2) /* half of the lanes' tops are enough */
        least = kth_over_lanes<LANES>(larger(tops[0], tops[1]), args.k);
    else if (few)
        least = kth_over_lanes<LANES>(tops[0], tops[1], args.k);
    kept_of_row kept = {Signs::not_below(tile, least), 0};
    if (!__all_sync(~0u, N == LANES * n || least > -arithmetic<Real>::infinity()))
        kept.bits &= bits_before<LANES, Tile>(N, first);
    uint32_t slot = sum_up_to_lane<LANES>(__popc(kept.bits), lane); /* where this lane's entries
                                                                     * end */
    kept.count = __shfl_sync(~0u, slot, LANES - 1, LANES);
    __syncwarp();
    if (__any_sync(~0u, kept.count > (uint32_t)args.room)) {
        Real number = least;
        if (!few) number = -max_over_lanes<LANES>(-fmin(tops[0], tops[1]));
        choose<LANES>(
            tile, &kept,
            search_of_row<Real>{(uint32_t)args.k, (uint32_t)args.room, least, m, number, few},
            element_at);
        slot = sum_up_to_lane<LANES>(__popc(kept.bits), lane);
    }
    slot -= __popc(kept.bits);
    Key smallest = ~Key(0);
    while (kept.bits) {
        const unsigned bit = 31 - __clz(kept.bits);
        kept.bits ^= 1u << bit;
        const Key key = key_of(element_at(bit));
        smallest = key < smallest ? key : smallest;
        list[slot++] = Entry::make(key, place_of(bit));
    }
    const uint32_t count = kept.count;
    if (lane < LIST_PAD) list[count + lane] = {}; /* these are before no other entry */
    __syncwarp();
    const bool exists = row < args.rows;
    const int64_t to = exists ? row : 0;
    const uint32_t written = min((uint32_t)args.k, count);
    const bool is_counted = __all_sync(~0u, count <= 2 * LANES);
    auto get = [&](uint32_t i) -> chosen_expert<Real> {
        return {number_of(list[i].key()), list[i].index(), true};
    };
    auto by_buckets = [&](auto put) {
        smallest = least_over_lanes<LANES>(smallest);
        uint32_t *const buckets = (uint32_t *)memory;
        put_by_buckets<lanes_together<LANES>>(
            listed_entries<Real>{list, count, smallest, key_of(m)},
            (Entry *)(buckets + LANES * BUCKETS_A_LANE), buckets, (uint32_t)args.k, put);
        __syncwarp();
    };
    if (__all_sync(~0u, count <= LANES))
        order_few<LANES, 1>(list, count, lane);
    else if (is_counted)
        order_few<LANES, 2>(list, count, lane);
    if constexpr (!HAS_PROBLEM<Rows> && std::is_same_v<Real, float>)
        if (args.routes) {
            if (!is_counted) /* the buckets have the list too */
                by_buckets([&](uint32_t order, const Entry &one) { list[order] = one; });
            return write_route<LANES, true>(args, to, exists, total, get);
        }
    topk_of_row<Rows> results(args, to, total);
    if (is_counted)
        results.template put_all<LANES>(written, get);
    else
        by_buckets([&](uint32_t order, const Entry &one) { results.put(order, one); });
    results.template end<LANES>();
    if (exists && lane == 0) put_pair(args, row, total);
}

/* Whether rows of this type take the shape. In float64 no row is for a whole warp. Other types need
 * neither (8, 2) nor (8, 4): topk/sorted.cu or a whole warp takes these rows. */
template <typename Rows, int LANES, int K>
constexpr bool has_topk_shape(topk_rows rows) {
    return std::is_same_v<typename Rows::Real, double> ? rows == TOPK_ALL_ROWS
                                                       : LANES > 8 || K == WARP_CHUNKS;
}

ons_status launch_topk_warp(const launch_request &request) {
    const ons_plan *plan = request.plan;
    return with_topk_rows(request, (int)topk_warp_room(plan->k, plan->lanes),
                          [&](auto rows, const auto &arguments) {
                              using Rows = typename decltype(rows)::Rows;
                              ons_status status = ONS_E_OPERAND;
                              const int chunks = plan->elements_a_thread / Rows::V;
#define ONS_TOPK_SHAPE(ROWS, L, K)                                                           \
    if constexpr (has_topk_shape<Rows, L, K>(TOPK_##ROWS##_ROWS))                            \
        if (plan->lanes == L && chunks == K) {                                               \
            launch_shape shape = {1, plan->threads};                                         \
            const int row_bytes =                                                            \
                bytes_of_elements<Rows, L, K>(arguments.room) +                              \
                (arguments.room + LIST_PAD) * (int)sizeof(entry<typename Rows::Real>);       \
            shape.shared_bytes = plan->threads / L * row_bytes;                              \
            status = launch_strips(request, shape, topk_warp_kernel<Rows, L, K>, arguments); \
        }
#include "../kernels.def"
#undef ONS_TOPK_SHAPE
                              return status;
                          });
}
