/* topk/sorted.cu - `fused_warp` for softmax_topk of short rows. Each of LANES lanes puts its
 * elements in order and keeps the M largest; then the lanes' lists become one. All exchanges are
 * between registers. If M is small, the tops of chunks are put in order first. The k largest
 * elements are in the k chunks with the largest tops, so only the elements of these chunks are put
 * in order.
 *
 * An element and its place are one number of 32 bits (keys.cuh). For float32 it lacks the element's
 * last bits, so elements that differ only there are put in order at the end.
 *
 * Moves 1 read of N. Stops at 256 elements. */
#include "launch.cuh"
#include "network.cuh"
#include "keys.cuh"
#include "lay_out.cuh"
#include "signs.cuh"
#include "tops.cuh"

/* One row in shared memory: a list of `room` keys, and the row's elements if they are read again.
 * Padding puts neighbouring rows into different banks. */
template <typename Tile, int LANES, int M>
struct sorted_row {
    using Keys = keys_of_row<Tile, LANES>;
    using Stored = typename stored_as<Tile>::type;
    using Entry = entry<float>;
    static constexpr bool BY_CHUNKS = LANES <= M && M <= Tile::K && 2 * M <= LANES * Tile::K,
                          HAS_ELEMENTS = BY_CHUNKS || !Keys::EXACT;
    static constexpr int MOST = M < Tile::K * Tile::V ? M : 0; /* the largest k; 0: no limit */
    static_assert(M < 32 || MOST == 0, "topk_kept() is 32 for any larger k");
    static constexpr int PAD = 4, BYTES = LANES * Tile::K * Tile::V * (int)sizeof(Stored),
                         ELEMENTS = HAS_ELEMENTS ? BYTES / (int)sizeof(uint32_t) + 4 * PAD : 0;

    Stored *elements;
    uint32_t *keys;

    __host__ __device__ static int words(int room) { return ELEMENTS + room + PAD; }
    __device__ sorted_row(uint32_t *rows, int which, int room)
        : elements((Stored *)(rows + which * words(room))), keys((uint32_t *)elements + ELEMENTS) {}

    /* The element of a key, and the entry at place `order`. */
    __device__ float number(uint32_t key) const {
        if constexpr (Keys::EXACT)
            return Keys::number_of(key);
        else
            return elements[Keys::place_of(key)];
    }
    __device__ Entry operator[](uint32_t order) const {
        const uint32_t key = keys[order];
        return Entry::make(key_of(number(key)), Keys::place_of(key));
    }

    /* Whether two neighbours in this lane's share of the list are in one bucket. */
    __device__ bool has_shared_bucket(uint32_t k) const {
        const uint32_t share = ((MOST > 0 ? MOST : k) + LANES - 1) / LANES;
        const uint32_t first = threadIdx.x % LANES * share;
        bool found = false;
#pragma unroll(MOST > 0 ? 8 : 1)
        for (uint32_t i = first; i < first + share; i++)
            found |= i + 1 < k && Keys::bucket(keys[i]) == Keys::bucket(keys[i + 1]);
        return found;
    }

    /* Puts the keys of each bucket in the order of their elements. The keys lack the elements' last
     * bits. */
    __device__ void put_buckets_in_order(uint32_t k) const {
#pragma unroll 1
        for (uint32_t i = threadIdx.x % LANES; i < k; i += LANES) {
            const uint32_t bucket = Keys::bucket(keys[i]);
            if (i > 0 && Keys::bucket(keys[i - 1]) == bucket) continue;
#pragma unroll 1
            for (uint32_t j = i + 1; j < k && Keys::bucket(keys[j]) == bucket; j++) {
                const uint32_t key = keys[j];
                const Entry own = (*this)[j];
                uint32_t to = j;
#pragma unroll 1
                for (; to > i && own.is_before((*this)[to - 1]); to--) keys[to] = keys[to - 1];
                keys[to] = key;
            }
        }
        __syncwarp();
    }
};

/* Makes sure that the list has the k largest elements. If more elements share the last key's
 * bucket, the key does not tell which are among the k. These are found one after the other. Whole
 * warps must call it. */
template <typename Tile, int LANES, int M>
__device__ __forceinline__ void decide(const sorted_row<Tile, LANES, M> &list, uint32_t k) {
    using Keys = keys_of_row<Tile, LANES>;
    using Entry = entry<float>;
    using Signs = signs<Tile>;
    const int lane = threadIdx.x % LANES;
    auto count = [](unsigned bits) { return (uint32_t)count_over_lanes<LANES>(__popc(bits)); };
    Tile tile;
    take_back<LANES>(list.elements, lane, &tile);
    const uint32_t bucket = Keys::bucket(list.keys[k - 1]);
    const float low = number_of(bucket), high = number_of(bucket | Keys::PLACES);
    unsigned inside = Signs::not_below(tile, low);
    const uint32_t from = count(inside);
    /* the bucket of infinity or NaN has no other number */
    const bool more = isfinite(low) && isfinite(high) && from > k;
    if (!__any_sync(~0u, more)) return;
    inside &= ~Signs::above(tile, high);
    const float last = number_of(list[k - 1].key());
    const uint32_t equal = count(Signs::not_below(tile, last)) - count(Signs::above(tile, last));
    const uint32_t others = count(inside);
    uint32_t order = more && others != equal ? from - others : k;
    Entry before = {~0ull};
    __syncwarp();
#pragma unroll 1
    while (__any_sync(~0u, order < k)) {
        Entry next = {};
#pragma unroll 1
        for (unsigned left = order < k ? inside : 0; left; left &= left - 1) {
            const int e = (int)Signs::element(__ffs((int)left) - 1);
            const uint32_t at = lane * Tile::V + place<LANES, Tile::V>(e);
            const Entry one = Entry::make(key_of(list.elements[at]), at);
            if (before.is_before(one) && one.is_before(next)) next = one;
        }
#pragma unroll
        for (int apart = 1; apart < LANES; apart *= 2) {
            const Entry other = {__shfl_xor_sync(~0u, next.bits, apart)};
            if (other.is_before(next)) next = other;
        }
        if (order < k && lane == 0) list.keys[order] = bucket | (Keys::PLACES - next.index());
        before = next;
        order += order < k;
    }
    __syncwarp();
}

/* Lists the largest elements of LANES lanes, each of which keeps M of its own. Their places are
 * `behind` places after those in their keys. */
template <int LANES, int M, int n>
__device__ __forceinline__ void list_largest(uint32_t (&keys)[n], uint32_t behind, uint32_t *list,
                                             int wide) {
    const int lane = threadIdx.x % LANES;
    keep_largest<M>(keys);
#pragma unroll
    for (int i = 0; i < M; i++) keys[i] -= behind;
    merge_lists<LANES, M>(keys, wide);
    if (lane < wide) {
#pragma unroll
        for (int i = 0; i < M; i += 4)
            *(uint4 *)(list + lane * M + i) = {keys[i], keys[i + 1], keys[i + 2], keys[i + 3]};
    }
}

/* Lists the largest elements of a row from the M chunks with the largest tops. The first k of these
 * chunks hold them, since equal tops are in the order of their places, as equal elements are.
 * Returns whether the keys tell which elements are the k largest: at most k elements are from the
 * last key's bucket on. */
template <typename Tile, int LANES, int M>
__device__ __forceinline__ bool list_by_chunks(const Tile &tile,
                                               const sorted_row<Tile, LANES, M> &list, uint32_t k) {
    using Keys = keys_of_row<Tile, LANES>;
    using Pack = pack<typename stored_as<Tile>::type, Tile::V>;
    constexpr int V = Tile::V, OWN = M / LANES /* chunks */, KEPT = M < OWN * V ? M : OWN * V;
    const int lane = threadIdx.x % LANES;
    uint32_t tops[Tile::K], chunks[Tile::K], keys[OWN * V], in_order[OWN * V];
    Keys::template fill<V>(tops_of_chunks(tile), tops);
#pragma unroll
    for (int i = 0; i < Tile::K; i++) chunks[i] = tops[i];
    keep_largest<M>(chunks);
#pragma unroll
    for (int i = 0; i < M; i++) chunks[i] -= lane * V;
    merge_lists<LANES, M>(chunks, 1);
    __syncwarp(); /* the elements are in shared memory */
    raw_tile<typename stored_as<Tile>::type, OWN> candidates;
    uint32_t at[OWN];
#pragma unroll
    for (int c = 0; c < OWN; c++) {
        uint32_t own = chunks[c];
#pragma unroll
        for (int other = 1; other < LANES; other++)
            if (lane == other) own = chunks[other * OWN + c];
        at[c] = Keys::place_of(own);
        candidates.raw[c] = ((const Pack *)list.elements)[at[c] / V];
    }
    Keys::fill(candidates, keys);
#pragma unroll
    for (int e = 0; e < OWN * V; e++)
        in_order[e] = keys[e] -= at[e / V] - place<LANES, V>(e / V * V);
    list_largest<LANES, KEPT>(in_order, 0, list.keys, M / KEPT);
    if constexpr (Keys::EXACT) {
        return true;
    } else {
        __syncwarp();
        const uint32_t last = Keys::bucket(list.keys[k - 1]);
        uint32_t from_last = 0; /* low half: chunks from `last` on; high half: elements */
#pragma unroll
        for (int i = 0; i < Tile::K; i++) from_last += tops[i] >= last ? 1 : 0;
#pragma unroll
        for (int e = 0; e < OWN * V; e++) from_last += keys[e] >= last ? 1 << 16 : 0;
        from_last = count_over_lanes<LANES>(from_last);
        return (from_last & 0xffff) <= M && from_last >> 16 <= k;
    }
}

/* Number of blocks that fit a multiprocessor if a lane has n elements and keeps KEPT. Left alone,
 * the compiler uses so few registers that the loads of unaligned rows wait for each other. */
template <int n, int KEPT>
constexpr int BLOCKS = n <= 32 && KEPT < 32 ? 8 : 5;

template <typename Rows, int LANES, int K, int M>
__global__ void __launch_bounds__(WARP_ROW_THREADS, BLOCKS<K * Rows::V, M>)
    topk_sorted_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    using Tile = typename Rows::template tile<K>;
    using Keys = keys_of_row<Tile, LANES>;
    using List = sorted_row<Tile, LANES, M>;
    constexpr int V = Rows::V;
    extern __shared__ __align__(16) uint32_t shared[];
    const int own = threadIdx.x / LANES, lane = threadIdx.x % LANES, rows = blockDim.x / LANES;
    const int64_t index = (int64_t)blockIdx.x * rows + own, row = index + args.launch.first_row;
    const uint32_t k = (uint32_t)args.k;

    const Tile tile = Rows::template row<true>(args, index).template load<K, LANES>(lane);
    state<Real> total = {0, 1};
    if (args.needs_pair) {
        if constexpr (List::BY_CHUNKS)
            total.m = tops_of_chunks(tile).largest();
        else
            total.m = tile.largest();
        total.m = max_over_lanes<LANES>(total.m);
        total.d = sum_exponentials<in_any_order>(tile, reference<Real>(total.m))
                      .template over_lanes<LANES>()
                      .value();
    }

    const List list(shared, own, args.room);
    if constexpr (List::HAS_ELEMENTS) lay_out<LANES>(tile, list.elements, lane);
    bool is_decided = Keys::EXACT;
    if constexpr (List::BY_CHUNKS) {
        is_decided = list_by_chunks(tile, list, k);
    } else {
        uint32_t keys[K * V];
        Keys::fill(tile, keys);
        list_largest<LANES, M>(keys, lane * V, list.keys, M < K * V ? 1 : args.room / M);
    }
    __syncwarp();

    const bool exists = row < args.rows;
    if constexpr (!Keys::EXACT) {
        if (!__all_sync(~0u, is_decided)) decide(list, k);
        if (__any_sync(~0u, exists && list.has_shared_bucket(k))) list.put_buckets_in_order(k);
    }
    auto get = [&](uint32_t i) -> chosen_expert<Real> {
        const uint32_t key = list.keys[i];
        return {list.number(key), Keys::place_of(key), true};
    };
    if constexpr (!HAS_PROBLEM<Rows>)
        if (args.routes)
            return write_route<LANES, true, List::MOST>(args, exists ? row : 0, exists, total, get);
    if (!exists) return;
    topk_of_row<Rows> results(args, row, total);
    if (!HAS_PROBLEM<Rows> && args.in_pairs && k > LANES) {
#pragma unroll 1
        for (uint32_t i = 2 * lane; i < k; i += 2 * LANES) {
            const uint2 two = *(const uint2 *)&list.keys[i];
            results.put_two(i, {list.number(two.x), list.number(two.y)},
                            {Keys::place_of(two.x), Keys::place_of(two.y)});
        }
    } else {
        results.template put_all<LANES>(k, get);
    }
    results.template end<LANES>();
    if (lane == 0) put_pair(args, row, total);
}

template <typename Rows>
constexpr bool has_shape_of(topk_rows rows) {
    return rows == TOPK_MANY_ROWS          ? !HAS_PROBLEM<Rows>
           : rows == TOPK_MANY_16_BIT_ROWS ? Rows::IS_16_BIT
                                           : true;
}

ons_status launch_topk_sorted(const launch_request &request) {
    const ons_plan *plan = request.plan;
    const int64_t k = request.problem->k;
    return with_topk_rows(request, 0, [&](auto rows, const auto &of_rows) {
        using Rows = typename decltype(rows)::Rows;
        ons_status status = ONS_E_OPERAND;
        if constexpr (std::is_same_v<typename Rows::Real, float>) {
            const int chunks = plan->elements_a_thread / Rows::V;
            const int kept = (int)topk_kept(k, plan->elements_a_thread);
            auto arguments = of_rows;
            for (arguments.room = kept; arguments.room < k;) arguments.room *= 2;
#define ONS_TOPK_SORTED_SHAPE(ROWS, L, K, M)                                                      \
    if constexpr (has_shape_of<Rows>(TOPK_##ROWS##_ROWS))                                         \
        if (plan->lanes == L && chunks == K && kept == M) {                                       \
            using List = sorted_row<typename Rows::template tile<K>, L, M>;                       \
            launch_shape shape = {1, plan->threads};                                              \
            shape.shared_bytes =                                                                  \
                (int)(plan->width * List::words(arguments.room) * sizeof(uint32_t));              \
            status = launch_strips(request, shape, topk_sorted_kernel<Rows, L, K, M>, arguments); \
        }
#include "../kernels.def"
#undef ONS_TOPK_SORTED_SHAPE
        }
        return status;
    });
}
