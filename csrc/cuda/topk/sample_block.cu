/* topk/sample_block.cu - the sampler of a language model (api/sample.h). A block takes a row. It
 * runs the pair (m, d) over the tiles. The mass of a token is its probability in fixed point. Each
 * filter ends at some mass of the first tokens. The block finds this mass, and then the drawn
 * token, by adding up the masses of ranges of keys, as select.cuh counts keys.
 *
 * Reads N 2 times without filters. Otherwise once, and for float32 up to 6 times for top_k, 4 for
 * top_p, once for min_p and 5 or more for the draw. */
#include "../kernel/passes.cuh"
#include "../statistic/divergence.cuh"
#include "sample.cuh"
#include "select.cuh"

constexpr int SAMPLE_WARPS = PASS_THREADS / WARP;

/* Calls visit(number, place) for this thread's tokens of a row. */
template <typename Row, typename Visit>
__device__ inline void each_token(const Row &row, Visit visit) {
    for_each_tile<block_a_row, TILE_CHUNKS>(row, 0, chunks_of(row), [&](int64_t chunk, auto tile) {
        constexpr int V = Row::V;
#pragma unroll 4
        for (int e = 0; e < TILE_CHUNKS * V; e++) {
            const int64_t at = chunk * V + place<WARP, V>(e);
            if (at < row.N) visit(tile.element(e), (uint32_t)at);
        }
    });
}

/* All threads of a block get the sum of their masses. */
__device__ inline mass_type mass_of_block(mass_type mine) {
    __shared__ mass_type all;
    __syncthreads();
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    mine = mass_of_warp(mine);
    if (threadIdx.x % WARP == 0) atomicAdd(&all, mine);
    __syncthreads();
    return all;
}

/* What tokens amount to, in each of 256 ranges of keys. */
struct masses_of_ranges {
    static constexpr int RANGES = ranges_of_keys::RANGES, A_LANE = RANGES / WARP;
    mass_type mass[RANGES];

    /* The last range from which on there is the amount `wanted`, and the amount after this range. A
     * warp must call it. There is as much. */
    struct found {
        int range;
        mass_type after;
    };
    __device__ found find(mass_type wanted) const {
        const int lane = threadIdx.x % WARP, last = A_LANE * (WARP - lane) - 1;
        mass_type in_lane = 0;
#pragma unroll
        for (int i = 0; i < A_LANE; i++) in_lane += mass[last - i];
        const mass_type upto = mass_up_to_lane(in_lane);
        mass_type so_far = upto - in_lane, before = so_far;
        int range = 0;
#pragma unroll
        for (int i = 0; i < A_LANE; i++)
            if (so_far < wanted) {
                before = so_far;
                so_far += mass[last - i];
                range = last - i;
            }
        const int from = __ffs(__ballot_sync(~0u, upto >= wanted)) - 1;
        return {__shfl_sync(~0u, range, from), __shfl_sync(~0u, before, from)};
    }
};

/* A key, and what the tokens above it amount to. */
template <typename Key>
struct reached_key {
    Key key;
    mass_type above;
};

/* The key of the token at which the amount of the first tokens reaches `wanted`. amount(number) is
 * what a token counts. */
template <typename Row, typename Key, typename Amount>
__device__ inline reached_key<Key> key_that_reaches(const Row &row, keys_between<Key> among,
                                                    mass_type wanted, Amount amount) {
    __shared__ masses_of_ranges ranges;
    __shared__ masses_of_ranges::found found;
    mass_type above = 0;
    while (among.low < among.high) {
        const int scale = among.scale();
        __syncthreads();
        for (int i = threadIdx.x; i < masses_of_ranges::RANGES; i += blockDim.x) ranges.mass[i] = 0;
        __syncthreads();
        each_token(row, [&](auto number, uint32_t) {
            const Key key = key_of(number);
            if (!among.has(key)) return;
            const mass_type mass = amount(number);
            if (mass > 0) atomicAdd(ranges.mass + among.range_of(key, scale), mass);
        });
        __syncthreads();
        if (threadIdx.x < WARP) {
            const masses_of_ranges::found one = ranges.find(wanted - above);
            if (threadIdx.x == 0) found = one;
        }
        __syncthreads();
        among = among.part(found.range, scale);
        above += found.after;
    }
    return {among.low, above};
}

/* The place of the token number `order` of those with this key. */
template <typename Row, typename Key>
__device__ inline uint32_t place_of_equal(const Row &row, Key key, uint32_t order) {
    ranges_of_keys *const ranges = ranges_of_block();
    __syncthreads();
    ranges->clear();
    __syncthreads();
    /* the earlier the token, the larger ~place */
    const auto last = count_to_kth(keys_between<uint32_t>{0, ~0u}, order + 1, 0, [&](auto visit) {
        each_token(row, [&](auto number, uint32_t at) {
            if (key_of(number) == key) visit(~at);
        });
    });
    return ~last.key;
}

/* The mass of the kept tokens of a row. */
template <typename Row, typename Key, typename P>
__device__ inline mass_type kept_mass(const Row &row, const row_filters &filters, bool joint,
                                      keys_between<Key> among, const P &p_of) {
    auto mass = [&](auto number) { return mass_of(p_of(number)); };
    auto mass_if = [&](auto counts) {
        mass_type mine = 0;
        each_token(row, [&](auto number, uint32_t) {
            if (counts(number)) mine += mass(number);
        });
        return mass_of_block(mine);
    };
    mass_type kept = mass_if([](auto) { return true; });
    const mass_type all = kept;
    if (filters.top_k < row.N) {
        const reached_key<Key> last =
            key_that_reaches(row, keys_between<Key>{0, among.high}, (mass_type)filters.top_k,
                             [](auto) { return mass_type(1); });
        kept = mass_if([&](auto number) { return key_of(number) > last.key; }) +
               (filters.top_k - last.above) * mass(number_of(last.key));
    }
    mass_type end = kept;
    if (filters.top_p < 1) {
        const mass_type of = joint ? all : kept;
        mass_type wanted = (mass_type)ceil(filters.top_p * (double)of);
        wanted = min(max(wanted, (mass_type)1), all);
        const reached_key<Key> last = key_that_reaches(row, among, wanted, mass);
        const mass_type each = mass(number_of(last.key));
        end = min(end, last.above + (wanted - last.above + each - 1) / each * each);
    }
    if (filters.min_p > 0) {
        const double least = filters.min_p * (double)p_of(number_of(among.high));
        end = min(end, mass_if([&](auto number) { return (double)p_of(number) >= least; }));
    }
    return end;
}

/* The token at which the running mass passes `at`, in the order of places. */
template <typename Row, typename P>
__device__ inline uint32_t place_at_mass(const Row &row, uint64_t random, const P &p_of,
                                         mass_type *all) {
    constexpr int K = TILE_CHUNKS, V = Row::V, TILE_OF_WARP = K * WARP;
    __shared__ mass_type of_warp[SAMPLE_WARPS];
    __shared__ uint32_t found;
    const int64_t tiles = (chunks_of(row) + TILE_OF_WARP - 1) / TILE_OF_WARP,
                  a_warp = (tiles + SAMPLE_WARPS - 1) / SAMPLE_WARPS;
    const int lane = threadIdx.x % WARP, warp = warp_of_block();
    /* visit(first chunk, masses of this lane's chunks) until it returns false */
    auto each_tile = [&](auto visit) {
        known(row, [&](const auto &row) {
            bool goes_on = true;
            for (int64_t tile = warp * a_warp;
                 goes_on && tile < tiles && tile < (warp + 1) * a_warp; tile++) {
                const int64_t chunk = tile * TILE_OF_WARP + lane;
                const auto x = converted(row.template load<K, WARP>(chunk));
                mass_type mass[K * V];
#pragma unroll
                for (int e = 0; e < K * V; e++)
                    mass[e] =
                        chunk * V + place<WARP, V>(e) < row.N ? mass_of(p_of(x.element(e))) : 0;
                goes_on = visit(chunk, mass);
            }
        });
    };
    auto sum_of = [&](const mass_type *mass, int n) {
        mass_type sum = 0;
        for (int e = 0; e < n; e++) sum += mass[e];
        return sum;
    };
    mass_type mine = 0;
    each_tile([&](int64_t, const mass_type *mass) {
        mine += sum_of(mass, K * V);
        return true;
    });
    mine = mass_of_warp(mine);
    if (lane == 0) of_warp[warp] = mine;
    __syncthreads();
    mass_type sum = 0, before = 0;
    for (int i = 0; i < SAMPLE_WARPS; i++) sum += of_warp[i];
    for (int i = 0; i < warp; i++) before += of_warp[i];
    *all = sum;
    const mass_type at = __umul64hi(random, sum);
    if (before <= at && at < before + mine)
        each_tile([&](int64_t chunk, const mass_type *mass) {
            for (int k = 0; k < K; k++) {
                const mass_type own = sum_of(mass + k * V, V), upto = before + mass_up_to_lane(own);
                mass_type passed = upto - own;
                if (passed <= at && at < upto) {
                    int64_t place = (chunk + k * WARP) * V;
                    for (int i = 0; passed + mass[k * V + i] <= at; i++) {
                        passed += mass[k * V + i];
                        place++;
                    }
                    found = (uint32_t)place;
                }
                before = __shfl_sync(~0u, upto, WARP - 1);
                if (before > at) return false;
            }
            return true;
        });
    __syncthreads();
    return found;
}

template <typename Rows>
__device__ inline drawn_token draw(const topk_arguments<Rows> &args, const ons_sample &sample,
                                   int64_t number) {
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    __shared__ state<Real> parts[SAMPLE_WARPS];
    const auto row = Rows::template row<false>(args, number);
    const row_filters filters(sample, number, args.N);
    running_state<Real> so_far;
    for_each_tile<block_a_row, TILE_CHUNKS>(
        row, 0, chunks_of(row), [&](int64_t, const auto &tile) { online_step(so_far, tile); });
    const state<Real> total =
        merge_block<block_a_row>(block_a_row::merge_warp(so_far.rounded()), parts);
    if (!isfinite(total.m) || !filters.in_range) return {-1, 0, 0};
    const softmax_of<Real> p_of(total);
    const uint64_t random = random_of(sample, number);
    mass_type kept = 0;
    uint32_t place;
    if (filters.are_off(row.N)) {
        place = place_at_mass(row, random, p_of, &kept);
        Real x[1] = {element_of(args, number, place)};
        return {place, (double)p_of(x[0]), p_of_mass(kept)};
    }
    /* tokens far below the largest have no mass */
    constexpr Real FAR = 64;
    const keys_between<Key> among = {key_of(total.m - FAR), key_of(total.m)};
    Key key = among.high;
    uint32_t order = 0;
    if (filters.top_k > 1) {
        kept = kept_mass(row, filters, sample.joint, among, p_of);
        const mass_type at = __umul64hi(random, kept);
        const reached_key<Key> drawn =
            key_that_reaches(row, among, at + 1, [&](auto x) { return mass_of(p_of(x)); });
        key = drawn.key;
        order = (uint32_t)((at - drawn.above) / mass_of(p_of(number_of(key))));
    } else {
        kept = mass_of(p_of(total.m));
    }
    return {place_of_equal(row, key, order), (double)p_of(number_of(key)), p_of_mass(kept)};
}

template <typename Rows>
__global__ void __launch_bounds__(PASS_THREADS)
    sample_block_kernel(const __grid_constant__ topk_arguments<Rows> args,
                        const __grid_constant__ ons_sample sample, const bool *goes_on) {
    await_earlier_work(true);
#pragma unroll 1
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        if (goes_on && !goes_on[row]) continue;
        const drawn_token drawn = draw(args, sample, row);
        if (threadIdx.x == 0) write_drawn(args, sample, row, drawn);
        __syncthreads();
    }
}

ons_status launch_sample_block(const launch_request &request, const ons_sample &sample,
                               const bool *goes_on, int64_t blocks) {
    auto launch_with = [&](auto rows, const auto &arguments) {
        using Rows = typename decltype(rows)::Rows;
        return launch(request, {blocks, PASS_THREADS}, sample_block_kernel<Rows>, arguments, sample,
                      goes_on);
    };
    return with_general_topk_rows(request, 1, launch_with);
}
