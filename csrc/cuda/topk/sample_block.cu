/* topk/sample_block.cu - the sampler of a language model (api/sample.h), for rows whose filters do
 * not end in a list of their first tokens, or that have none. A block takes a row. It runs the pair
 * (m, d) over the tiles. Each filter ends at some mass of the first tokens. The block adds up the
 * masses of 1024 ranges of logits below m. It lists the tokens of the range that has the mass, and
 * finds the key with this mass by the masses of ranges of keys, as select.cuh counts keys. It finds
 * the drawn token in the same way.
 *
 * Reads N 2 times without filters. Otherwise 3 times for the draw, and once for each filter. If a
 * range has more tokens than the list has room for, it reads N once more for each 8 bits of the
 * key. */
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

/* What tokens amount to, in ranges of logits. Range 0 comes first in their order. */
template <int RANGES>
struct masses_of_ranges {
    uint32_t low[RANGES],
        high[RANGES]; /* two halves of a sum; shared memory adds 32 bits at once */

    /* A block must call it. */
    __device__ void clear() {
        __syncthreads();
        for (int i = threadIdx.x; i < RANGES; i += blockDim.x) low[i] = high[i] = 0;
        __syncthreads();
    }
    __device__ void add(int range, mass_type mass) {
        if (mass == 0) return;
        const uint32_t part = (uint32_t)mass, before = atomicAdd(low + range, part);
        const uint32_t rest = (uint32_t)(mass >> 32) + (before + part < part);
        if (rest) atomicAdd(high + range, rest);
    }
    __device__ mass_type mass(int range) const { return (mass_type)high[range] << 32 | low[range]; }

    /* The first range with which the amount `wanted` is reached, and the amount before this range.
     */
    struct found {
        int range;
        mass_type before;
    };
    /* A block must call it. There is as much. */
    __device__ found find(mass_type wanted) const {
        __shared__ found result;
        constexpr int A_LANE = RANGES / WARP;
        __syncthreads();
        if (threadIdx.x < WARP) {
            const int first = A_LANE * threadIdx.x;
            mass_type in_lane = 0;
            for (int i = 0; i < A_LANE; i++) in_lane += mass(first + i);
            const mass_type upto = mass_up_to_lane(in_lane);
            mass_type so_far = upto - in_lane;
            const int from = __ffs((int)__ballot_sync(~0u, upto >= wanted)) - 1;
            if ((int)threadIdx.x == from) {
                int range = first;
                while (so_far + mass(range) < wanted) so_far += mass(range++);
                result = {range, so_far};
            }
        }
        __syncthreads();
        return result;
    }
};

/* Ranges of logits below m, of equal width. The last range also has all logits further below. */
template <typename Real>
struct ranges_below {
    static constexpr int RANGES = 1024, PART = 16; /* ranges in a distance of 1 */
    Real m;

    __device__ int operator()(Real x) const { return min((int)((m - x) * PART), RANGES - 1); }
};

/* Some tokens of a row: those that each(visit) visits, visit(number, place). */
template <typename Key, typename Each, typename Amount>
__device__ inline mass_type amount_above(Key key, const Each &each, const Amount &amount) {
    mass_type mine = 0;
    each([&](auto number, uint32_t) {
        if (key_of(number) > key) mine += amount(number);
    });
    return mass_of_block(mine);
}

__device__ inline masses_of_ranges<ranges_of_keys::RANGES> *masses_of_keys() {
    __shared__ masses_of_ranges<ranges_of_keys::RANGES> masses;
    return &masses;
}

/* The key of the token at which the amount of the first tokens reaches `wanted`. amount(number) is
 * what a token counts. All keys are in `among`. */
template <typename Key, typename Each, typename Amount>
__device__ inline Key key_that_reaches(const Each &each, keys_between<Key> among, mass_type wanted,
                                       const Amount &amount) {
    using of_keys = masses_of_ranges<ranges_of_keys::RANGES>;
    of_keys &masses = *masses_of_keys();
    constexpr int LAST = ranges_of_keys::RANGES - 1; /* the largest keys come first */
    while (among.low < among.high) {
        const int scale = among.scale();
        masses.clear();
        each([&](auto number, uint32_t) {
            const Key key = key_of(number);
            if (among.has(key)) masses.add(LAST - (int)among.range_of(key, scale), amount(number));
        });
        const auto found = masses.find(wanted);
        among = among.part(LAST - found.range, scale);
        wanted -= found.before;
    }
    return among.low;
}

/* The place of the token number `order` of those with this key. */
template <typename Key, typename Each>
__device__ inline uint32_t place_of_equal(const Each &each, Key key, uint32_t order) {
    ranges_of_keys *const ranges = ranges_of_block();
    __syncthreads();
    ranges->clear();
    __syncthreads();
    /* the earlier the token, the larger ~place */
    const auto last = count_to_kth(keys_between<uint32_t>{0, ~0u}, order + 1, 0, [&](auto visit) {
        each([&](auto number, uint32_t at) {
            if (key_of(number) == key) visit(~at);
        });
    });
    return ~last.key;
}

/* A place in the order of a row's tokens. */
template <typename Key>
struct place_in_order {
    Key key;
    mass_type mass_above;  /* of all tokens with larger keys */
    mass_type count_above; /* of such tokens */
};

/* The tokens of a row in their order, by their masses. */
template <typename Row, typename P>
class ordered_tokens {
   public:
    using Real = typename Row::Real;
    using Key = key_type<Real>;

    __device__ ordered_tokens(const Row &row_, Real m, const P &p_of_)
        : row(row_), range_of{m}, p_of(p_of_) {
        masses().clear();
        counts().clear();
        each_token(row, [&](Real x, uint32_t) {
            const int range = range_of(x);
            masses().add(range, mass(x));
            counts().add(range, 1);
        });
        __syncthreads();
    }

    __device__ mass_type mass(Real x) const { return mass_of(p_of(x)); }
    __device__ static bool in_double() { return sizeof(Real) == sizeof(double); }
    __device__ mass_type all() const {
        mass_type mine = 0;
        for (int i = threadIdx.x; i < RANGES; i += blockDim.x) mine += masses().mass(i);
        return mass_of_block(mine);
    }

    /* The mass of the first k tokens. */
    __device__ mass_type of_first(mass_type k) const {
        const auto found = counts().find(k);
        return with_range(found.range, [&](const auto &each) {
            auto one = [](Real) { return mass_type(1); };
            auto of = [&](Real x) { return mass(x); };
            const mass_type inside = k - found.before;
            const Key key = key_that_reaches(each, keys_of(each), inside, one);
            return before(found.range) + amount_above(key, each, of) +
                   (inside - amount_above(key, each, one)) * of(number_of(key));
        });
    }
    /* The mass of the first tokens that have the mass `wanted`. */
    __device__ mass_type of_mass(mass_type wanted) const {
        const auto found = masses().find(wanted);
        return with_range(found.range, [&](const auto &each) {
            auto of = [&](Real x) { return mass(x); };
            const mass_type inside = wanted - found.before;
            const Key key = key_that_reaches(each, keys_of(each), inside, of);
            const mass_type above = amount_above(key, each, of), one = of(number_of(key));
            return found.before + above + (inside - above + one - 1) / one * one;
        });
    }
    /* The mass of the tokens that have at least the probability `least`. */
    __device__ mass_type of_likely(double least) const {
        mass_type mine = 0;
        each_token(row, [&](Real x, uint32_t) {
            if ((double)p_of(x) >= least) mine += mass(x);
        });
        return mass_of_block(mine);
    }
    /* The token at which the running mass passes `at`. */
    __device__ uint32_t at_mass(mass_type at, Key *key) const {
        const auto found = masses().find(at + 1);
        return with_range(found.range, [&](const auto &each) {
            auto of = [&](Real x) { return mass(x); };
            const mass_type inside = at - found.before;
            *key = key_that_reaches(each, keys_of(each), inside + 1, of);
            const mass_type above = amount_above(*key, each, of);
            return place_of_equal(each, *key, (uint32_t)((inside - above) / of(number_of(*key))));
        });
    }

   private:
    static constexpr int RANGES = ranges_below<Real>::RANGES;
    static constexpr uint32_t ROOM = 24576 / sizeof(entry<Real>);
    using of_ranges = masses_of_ranges<RANGES>;

    __device__ static entry<Real> *list_of_range() {
        __shared__ __align__(16) entry<Real> list[ROOM];
        return list;
    }
    __device__ static of_ranges &masses() {
        __shared__ of_ranges of_row;
        return of_row;
    }
    __device__ static of_ranges &counts() {
        __shared__ of_ranges of_row;
        return of_row;
    }

    __device__ mass_type before(int range) const {
        mass_type mine = 0;
        for (int i = threadIdx.x; i < range; i += blockDim.x) mine += masses().mass(i);
        return mass_of_block(mine);
    }

    /* The least and the largest key of some tokens. */
    template <typename Each>
    __device__ static keys_between<Key> keys_of(const Each &each) {
        return least_and_largest<Key>(
            [&](auto visit) { each([&](Real x, uint32_t) { visit(key_of(x)); }); });
    }

    /* body(each) for the tokens of a range: from a list if it has room for them. */
    template <typename Body>
    __device__ auto with_range(int range, Body body) const {
        entry<Real> *const list = list_of_range();
        __shared__ uint32_t listed;
        auto of_row = [&](auto visit) {
            each_token(row, [&](Real x, uint32_t at) {
                if (range_of(x) == range) visit(x, at);
            });
        };
        if (counts().mass(range) > ROOM) return body(of_row);
        __syncthreads();
        if (threadIdx.x == 0) listed = 0;
        __syncthreads();
        of_row([&](Real x, uint32_t at) {
            list[atomicAdd(&listed, 1)] = entry<Real>::make(key_of(x), at);
        });
        __syncthreads();
        return body([&](auto visit) {
            for (uint32_t i = threadIdx.x; i < listed; i += blockDim.x)
                visit(number_of(list[i].key()), list[i].index());
        });
    }

    const Row &row;
    ranges_below<Real> range_of;
    const P &p_of;
};

/* The mass of the tokens that the filters keep. */
template <typename Tokens>
__device__ inline mass_type kept_mass(const Tokens &tokens, const row_filters &filters, bool joint,
                                      int64_t N, double largest) {
    const mass_type all = tokens.all();
    const mass_type of_k = filters.top_k < N ? tokens.of_first((mass_type)filters.top_k) : all;
    mass_type end = of_k;
    if (filters.top_p < 1) {
        const double wanted =
            ons_share_of_mass(filters.top_p, (double)(joint ? all : of_k), tokens.in_double());
        end = min(end, tokens.of_mass(max((mass_type)wanted, mass_type(1))));
    }
    if (filters.min_p > 0) end = min(end, tokens.of_likely(filters.min_p * largest));
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
    const mass_type at = ons_mass_below(random, sum);
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
        return drawn_of(place, p_of(x[0]), kept);
    }
    Key key = key_of(total.m);
    if (filters.top_k == 1) {
        auto each = [&](auto visit) { each_token(row, visit); };
        place = place_of_equal(each, key, 0);
        kept = mass_of(p_of(total.m));
    } else {
        const ordered_tokens<std::decay_t<decltype(row)>, softmax_of<Real>> tokens(row, total.m,
                                                                                   p_of);
        kept = kept_mass(tokens, filters, sample.joint, row.N, (double)p_of(total.m));
        place = tokens.at_mass(ons_mass_below(random, kept), &key);
    }
    return drawn_of(place, p_of(number_of(key)), kept);
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
