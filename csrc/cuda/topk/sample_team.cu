/* topk/sample_team.cu - the sampler of a language model (api/sample.h), for rows whose filters do
 * not end in their lists. A team of blocks takes such a row. The fewer these rows are, the more
 * blocks a team has. The team adds up the tokens in 1024 ranges of logits below m: their masses and
 * their number. So it knows in which range a filter ends, or the drawn token lies. It lists the
 * tokens of this range, and finds the token in the list. If a list has no room for them, the team
 * first adds them up in ranges of keys. All amounts are integers, so no result depends on the
 * number of blocks.
 *
 * Reads N once for the ranges, once for the end of each filter but min_p, and once for the draw, or
 * for the result of filtered_softmax. */
#include "../kernel/passes.cuh"
#include "sample_team.cuh"
#include "select.cuh"

constexpr int TEAM_WARPS = PASS_THREADS / WARP;
/* The most rows of which each block finds all that go on. */
constexpr int64_t ROWS_TO_TEST = 1 << 14;
constexpr int MOST_TEAMS = 512;

/* ------- Amounts of ranges ------- */

/* The amounts of the tokens in ranges. Range 0 comes first in the order of tokens. A mass has two
 * halves, since shared memory adds 32 bits at once. */
struct amounts_of_ranges {
    uint32_t low[TEAM_RANGES], high[TEAM_RANGES], count[TEAM_RANGES];

    /* A block must call it. */
    __device__ void clear() {
        __syncthreads();
        for (int i = threadIdx.x; i < TEAM_RANGES; i += blockDim.x) low[i] = high[i] = count[i] = 0;
        __syncthreads();
    }
    __device__ void add(int range, mass_type mass) {
        atomicAdd(count + range, 1u);
        const uint32_t part = (uint32_t)mass, before = part ? atomicAdd(low + range, part) : 0;
        const uint32_t rest = (uint32_t)(mass >> 32) + (before + part < part);
        if (rest) atomicAdd(high + range, rest);
    }
    __device__ amount of(int range) const {
        return {(mass_type)high[range] << 32 | low[range], count[range]};
    }

    /* Adds the ranges of all blocks of a team. Returns the sum of all threads' other amounts. A
     * block must call it. */
    template <typename Real>
    __device__ amount add_up(block_team<Real> &team, const amount &mine = {0, 0}) {
        amount &others = over_block(mine);
        if (team.size == 1) return others;
        team.exchange(
            [&](auto &message) {
                send(others, message);
                for (int i = threadIdx.x; i < TEAM_RANGES; i += blockDim.x) {
                    const amount own = of(i);
                    if (own.mass) atomicAdd(message.mass + i, own.mass);
                    if (own.count) atomicAdd(message.count + i, (uint32_t)own.count);
                }
            },
            [&](const auto &message) {
                if (threadIdx.x == 0) others = read_sent(&message.others);
                for (int i = threadIdx.x; i < TEAM_RANGES; i += blockDim.x) {
                    const mass_type mass = __ldcg(message.mass + i);
                    low[i] = (uint32_t)mass;
                    high[i] = (uint32_t)(mass >> 32);
                    count[i] = __ldcg(message.count + i);
                }
            });
        return others;
    }

    struct found {
        int range;
        amount before, own;
    };
    /* The first range with which the amount reaches `wanted`. All ranges together must reach it. A
     * block must call it. */
    __device__ found find(bool by_count, mass_type wanted) const {
        __shared__ found result;
        constexpr int A_LANE = TEAM_RANGES / WARP;
        __syncthreads();
        if (threadIdx.x < WARP) {
            const int lane = threadIdx.x, first = A_LANE * lane;
            amount in_lane = {0, 0};
            for (int i = 0; i < A_LANE; i++) in_lane = in_lane + of(first + i);
            amount so_far = {sum_up_to_lane<WARP>(in_lane.mass, lane) - in_lane.mass,
                             sum_up_to_lane<WARP>(in_lane.count, lane) - in_lane.count};
            const mass_type upto = so_far.by(by_count) + in_lane.by(by_count);
            const int from = __ffs((int)__ballot_sync(~0u, upto >= wanted)) - 1;
            if (lane == from) {
                int range = first;
                for (; so_far.by(by_count) + of(range).by(by_count) < wanted; range++)
                    so_far = so_far + of(range);
                result = {range, so_far, of(range)};
            }
        }
        __syncthreads();
        return result;
    }
};

/* The ranges of logits, or the ranges of keys. */
__device__ inline amounts_of_ranges &ranges_of_block_team(bool of_keys) {
    __shared__ amounts_of_ranges ranges[2];
    return ranges[of_keys];
}

/* ------- A row ------- */

/* A place in the order of tokens: the token there, and what all tokens up to it amount to. */
template <typename Real>
struct place_in_order {
    key_type<Real> key;
    uint32_t place;
    amount upto;

    __device__ bool has(key_type<Real> other, uint32_t at) const {
        return other > key || (other == key && at <= place);
    }
};

/* The tokens of a row. Each block of a team walks over its own part of the row. */
template <typename Row>
class team_row {
   public:
    using Real = typename Row::Real;
    using Key = key_type<Real>;
    using Place = place_in_order<Real>;

    /* `logit` is the first token's, and `p` its probability. */
    __device__ team_row(const Row &row_, block_team<Real> &team_, Real logit, double scale_, Real p)
        : row(row_), team(team_), scale(scale_), m(scaled(logit)), first_p(p) {
        const int64_t tiles = (chunks_of(row) + TILE - 1) / TILE,
                      a_block = (tiles + team.size - 1) / team.size;
        begin = min(team.own * a_block, tiles) * TILE;
        end = min((team.own + 1) * a_block, tiles) * TILE;
        /* the mean of all logits would be so far below m if all were equal */
        const double span = 2 * log((double)row.N * (double)first_p);
        ranges_apart = (Real)(TEAM_RANGES / fmax(span, 1e-3));
        rounding = (Real)((fabs((double)m) + fmax(span, 1e-3)) * 0x1p-20);
    }

    __device__ Real scaled(Real logit) const {
        Real x[1] = {logit};
        if (scale != 1) scale_all(x, scale);
        return x[0];
    }
    __device__ Real p(Real x) const {
        return x > -arithmetic<Real>::infinity() ? exponential_of(x - m) * first_p : 0;
    }
    __device__ mass_type mass(Real x) const { return ons_mass_of((double)p(x)); }

    /* Calls visit(logit, place) for this thread's tokens. */
    template <typename Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        constexpr int K = TILE_CHUNKS, V = Row::V;
#pragma unroll 1
        for (int64_t tile = begin + warp_of_block() * TILE; tile < end; tile += TEAM_WARPS * TILE) {
            const int64_t chunk = tile + threadIdx.x % WARP;
            Real x[K * V];
            load(chunk, x);
#pragma unroll
            for (int e = 0; e < K * V; e++) {
                const int64_t at = chunk * V + place<WARP, V>(e);
                if (at < row.N) visit(x[e], (uint32_t)at);
            }
        }
    }

    /* Adds up the tokens in ranges of logits. Returns what those with at least the probability
     * `least` amount to. */
    __device__ __noinline__ amount add_up(double least) const {
        amounts_of_ranges &ranges = ranges_of_block_team(false);
        amount likely = {0, 0}, far = {0, 0};
        ranges.clear();
        each([&](Real x, uint32_t) {
            const Real own = p(x);
            const mass_type mass = ons_mass_of((double)own);
            const int range = range_of(x);
            if ((double)own >= least) likely = likely + amount{mass, 1};
            if (range == TEAM_RANGES - 1)
                far = far + amount{mass, 1}; /* many tokens */
            else
                ranges.add(range, mass);
        });
        const amount of_warp = over_warp(far);
        if (threadIdx.x % WARP == 0 && of_warp.count) {
            ranges.add(TEAM_RANGES - 1, of_warp.mass);
            atomicAdd(ranges.count + TEAM_RANGES - 1, (uint32_t)of_warp.count - 1);
        }
        return ranges.add_up(team, likely);
    }

    /* What all tokens amount to, after add_up(). */
    __device__ amount all() const {
        const amounts_of_ranges &ranges = ranges_of_block_team(false);
        amount mine = {0, 0};
        for (int i = threadIdx.x % WARP; i < TEAM_RANGES; i += WARP) mine = mine + ranges.of(i);
        return over_warp(mine);
    }

    /* The token with which the amount of the first tokens reaches `wanted`, after add_up(). All
     * tokens together must reach it. */
    __device__ __noinline__ Place reach(bool by_count, mass_type wanted) const {
        const auto found = ranges_of_block_team(false).find(by_count, wanted);
        const int range = found.range;
        amount before = found.before, own = found.own;
        Key low = range == TEAM_RANGES - 1 ? 0 : key_of(limit(range + 1) - rounding),
            high = key_of(range == 0 ? m : limit(range) + rounding);
        auto is_in = [&](Real x, Key key) {
            return range_of(x) == range && key >= low && key <= high;
        };
        while (own.count > TEAM_ROOM && low < high) {
            amounts_of_ranges &ranges = ranges_of_block_team(true);
            const int bits = shift_of(high - low);
            ranges.clear();
            each([&](Real x, uint32_t) {
                const Key key = key_of(x);
                if (is_in(x, key)) ranges.add((int)((high - key) >> bits), mass(x));
            });
            ranges.add_up(team);
            const auto part = ranges.find(by_count, wanted - before.by(by_count));
            before = before + part.before;
            own = part.own;
            high -= (Key)part.range << bits;
            const Key size = ((Key)1 << bits) - 1;
            if (high - low > size) low = high - size;
        }
        const mass_type left = wanted - before.by(by_count);
        if (own.count > TEAM_ROOM) return of_equal(by_count, left, before, low);
        return of_list(by_count, left, before, is_in);
    }

    /* The token with which the running sum reaches a number, in the order of places. Each token
     * counts its mass, or with `equal` 1 if its key is `key`. The number is `order` with `equal`,
     * else random. Sets *sum to the sum of all. */
    __device__ __noinline__ uint32_t place_at(bool equal, Key key, uint64_t order_or_random,
                                              mass_type *sum) const {
        constexpr int K = TILE_CHUNKS, V = Row::V;
        __shared__ mass_type of_warp[TEAM_WARPS], of_earlier_blocks, of_all;
        __shared__ uint32_t found;
        const int lane = threadIdx.x % WARP, warp = warp_of_block();
        const int64_t a_warp = ((end - begin) / TILE + TEAM_WARPS - 1) / TEAM_WARPS * TILE;
        /* visit(first chunk, what this lane's elements count) until it returns false */
        auto each_tile = [&](auto visit) {
            bool goes_on = true;
#pragma unroll 1
            for (int64_t tile = begin + warp * a_warp;
                 goes_on && tile < end && tile < begin + (warp + 1) * a_warp; tile += TILE) {
                Real x[K * V];
                load(tile + lane, x);
                mass_type counts[K * V];
#pragma unroll
                for (int e = 0; e < K * V; e++) {
                    const bool is_in = (tile + lane) * V + place<WARP, V>(e) < row.N;
                    counts[e] = !is_in ? 0 : equal ? key_of(x[e]) == key : mass(x[e]);
                }
                goes_on = visit(tile + lane, counts);
            }
        };
        mass_type mine = 0;
        each_tile([&](int64_t, const mass_type(&counts)[K * V]) {
#pragma unroll
            for (int e = 0; e < K * V; e++) mine += counts[e];
            return true;
        });
        mine = mass_of_warp(mine);
        __syncthreads();
        if (lane == 0) of_warp[warp] = mine;
        __syncthreads();
        mass_type in_block = 0, before = 0;
        for (int i = 0; i < TEAM_WARPS; i++) {
            if (i == warp) before = in_block;
            in_block += of_warp[i];
        }
        if (threadIdx.x == 0) {
            of_earlier_blocks = 0;
            of_all = in_block;
        }
        if (team.size > 1)
            team.exchange(
                [&](auto &message) {
                    if (threadIdx.x == 0) message.of_block[team.own].mass = in_block;
                },
                [&](const auto &message) {
                    if (warp != 0) return;
                    mass_type earlier = 0, all = 0;
                    for (int i = lane; i < team.size; i += WARP) {
                        const mass_type one = __ldcg(&message.of_block[i].mass);
                        all += one;
                        if (i < team.own) earlier += one;
                    }
                    earlier = mass_of_warp(earlier);
                    all = mass_of_warp(all);
                    if (lane == 0) {
                        of_earlier_blocks = earlier;
                        of_all = all;
                    }
                });
        __syncthreads();
        *sum = of_all;
        const mass_type wanted =
            equal ? order_or_random : ons_mass_below(order_or_random, of_all) + 1;
        before += of_earlier_blocks;
        const bool is_here = before < wanted && wanted <= before + mine;
        if (is_here)
            each_tile([&](int64_t chunk, const mass_type(&counts)[K * V]) {
#pragma unroll
                for (int k = 0; k < K; k++) {
                    mass_type own = 0;
#pragma unroll
                    for (int i = 0; i < V; i++) own += counts[k * V + i];
                    const mass_type upto = before + sum_up_to_lane<WARP>(own, lane);
                    mass_type passed = upto - own;
                    if (passed < wanted && wanted <= upto) {
#pragma unroll
                        for (int i = 0; i < V; i++) {
                            if (passed < wanted) found = (uint32_t)((chunk + k * WARP) * V + i);
                            passed += counts[k * V + i];
                        }
                    }
                    before = __shfl_sync(~0u, upto, WARP - 1);
                    if (before >= wanted) return false;
                }
                return true;
            });
        __syncthreads();
        if (team.size > 1) {
            const bool in_this_block =
                of_earlier_blocks < wanted && wanted <= of_earlier_blocks + in_block;
            team.exchange(
                [&](auto &message) {
                    if (in_this_block && threadIdx.x == 0) message.place = found;
                },
                [&](const auto &message) {
                    if (threadIdx.x == 0) found = __ldcg(&message.place);
                });
        }
        return found;
    }

    block_team<Real> &team;

   private:
    static constexpr int64_t TILE = TILE_CHUNKS * WARP; /* chunks */

    /* This thread's logits of a tile. */
    __device__ __forceinline__ void load(int64_t chunk, Real (&x)[TILE_CHUNKS * Row::V]) const {
        const auto tile = converted(row.template load<TILE_CHUNKS, WARP>(chunk));
#pragma unroll
        for (int e = 0; e < TILE_CHUNKS * Row::V; e++) x[e] = tile.element(e);
        if (scale != 1) scale_all(x, scale);
    }

    /* The range of a logit. The last range also has all logits further below. */
    __device__ int range_of(Real x) const {
        return min((int)((m - x) * ranges_apart), TEAM_RANGES - 1);
    }
    /* The logit with which a range begins, rounded. */
    __device__ Real limit(int range) const { return m - (Real)range / ranges_apart; }

    /* log2 of the number of keys in a range, if `apart` is the difference of the last and the first
     * key. */
    __device__ static int shift_of(Key apart) {
        constexpr int RANGE_BITS = 10;
        static_assert(1 << RANGE_BITS == TEAM_RANGES, "so many ranges");
        const int bits = sizeof(Key) == 4 ? 32 - __clz((int)apart) : 64 - __clzll((long long)apart);
        return max(bits - RANGE_BITS, 0);
    }

    /* reach() for tokens that all have the same key. */
    __device__ Place of_equal(bool by_count, mass_type left, const amount &before, Key key) const {
        const mass_type one = mass(number_of(key)),
                        order = by_count ? left : (left + one - 1) / one;
        mass_type all;
        const uint32_t place = place_at(true, key, order, &all);
        return {key, place, before + amount{order * one, order}};
    }

    /* reach() for tokens for which a list has room. */
    template <typename IsIn>
    __device__ Place of_list(bool by_count, mass_type left, const amount &before,
                             const IsIn &is_in) const {
        __shared__ __align__(16) entry<Real> list[TEAM_ROOM];
        __shared__ uint32_t listed, sent_from;
        __shared__ Place result;
        static_assert(sizeof(mass_type) * TEAM_ROOM <= sizeof(amounts_of_ranges),
                      "masses take the memory of the ranges of keys");
        auto *const masses = (mass_type *)&ranges_of_block_team(true);
        __syncthreads();
        if (threadIdx.x == 0) listed = 0;
        __syncthreads();
        each([&](Real x, uint32_t at) {
            const Key key = key_of(x);
            if (is_in(x, key)) list[atomicAdd(&listed, 1u)] = entry<Real>::make(key, at);
        });
        __syncthreads();
        if (team.size > 1)
            team.exchange(
                [&](auto &message) {
                    if (threadIdx.x == 0 && listed) sent_from = atomicAdd(&message.listed, listed);
                    __syncthreads();
                    for (uint32_t i = threadIdx.x; i < listed; i += blockDim.x)
                        message.list[sent_from + i] = list[i];
                },
                [&](const auto &message) {
                    if (threadIdx.x == 0) listed = __ldcg(&message.listed);
                    __syncthreads();
                    for (uint32_t i = threadIdx.x; i < listed; i += blockDim.x)
                        list[i] = read_sent(message.list + i);
                });
        const uint32_t n = listed;
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
            masses[i] = mass(number_of(list[i].key()));
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
            const entry<Real> own = list[i];
            amount earlier = {0, 0};
            for (uint32_t j = 0; j < n; j++)
                if (list[j].is_before(own)) earlier = earlier + amount{masses[j], 1};
            const amount upto = earlier + amount{masses[i], 1};
            if (earlier.by(by_count) < left && left <= upto.by(by_count))
                result = {own.key(), own.index(), before + upto};
        }
        __syncthreads();
        return result;
    }

    const Row &row;
    const double scale;
    const Real m, first_p;
    Real ranges_apart, rounding;
    int64_t begin, end; /* chunks of this block */
};

/* ------- Filters ------- */

/* The tokens that the filters keep: those up to both places, and with at least the probability
 * `least`. */
template <typename Real>
struct kept_tokens {
    place_in_order<Real> of_k = last(), of_p = last();
    double least = 0;
    mass_type mass = 0;

    /* A place behind all tokens. */
    __device__ static place_in_order<Real> last() {
        return {0, ~0u, {~mass_type(0), ~mass_type(0)}};
    }

    __device__ bool has(Real x, uint32_t at, Real p) const {
        const auto key = key_of(x);
        return (double)p >= least && of_k.has(key, at) && of_p.has(key, at);
    }
};

template <typename Row, typename Real = typename Row::Real>
__device__ inline kept_tokens<Real> find_kept(const team_row<Row> &tokens,
                                              const ons_row_filters &filters, bool joint, int64_t N,
                                              Real first_p) {
    const bool cuts_count = filters.top_k < N, cuts_mass = filters.top_p < 1;
    kept_tokens<Real> kept;
    kept.least = filters.min_p * (double)first_p;
    const amount likely = tokens.add_up(kept.least), all = tokens.all();
    const bool of_share = cuts_mass && !joint; /* of the tokens that top_k keeps */
    if (cuts_count && (of_share || (mass_type)filters.top_k < likely.count))
        kept.of_k = tokens.reach(true, (mass_type)filters.top_k);
    if (cuts_mass) {
        const double whole = cuts_count && !joint ? (double)kept.of_k.upto.mass : ONS_WHOLE_MASS;
        const auto wanted =
            (mass_type)ons_share_of_mass(filters.top_p, whole, sizeof(Real) == sizeof(double));
        const mass_type share = min(max(wanted, mass_type(1)), all.mass);
        if (share < likely.mass) kept.of_p = tokens.reach(false, share);
    }
    kept.mass = min(likely.mass, min(kept.of_k.upto.mass, kept.of_p.upto.mass));
    return kept;
}

/* The sum of the kept tokens' probabilities. Masses are exact enough for float32. For float64 what
 * they leave out is added up too. */
template <typename Row, typename Real = typename Row::Real>
__device__ inline double sum_of_kept(const team_row<Row> &tokens, const kept_tokens<Real> &kept) {
    if constexpr (sizeof(Real) == sizeof(float)) return (double)kept.mass / ONS_WHOLE_MASS;
    constexpr double FINER = 0x1p30;
    amount mine = {0, 0};
    tokens.each([&](Real x, uint32_t at) {
        const Real p = tokens.p(x);
        if (!kept.has(x, at, p)) return;
        const mass_type mass = ons_mass_of((double)p);
        const double rest = (double)p * ONS_WHOLE_MASS - (double)mass;
        mine = mine + amount{mass, (mass_type)(rest * FINER)};
    });
    const amount all = over_team(tokens.team, mine);
    return ((double)all.mass + (double)all.count / FINER) / ONS_WHOLE_MASS;
}

/* ------- Kernel ------- */

/* Draws a token of a row, or writes the row of filtered_softmax. `first` is the row's first token.
 */
template <typename Rows, typename Real = typename Rows::Real>
__device__ inline void finish_row(const topk_arguments<Rows> &args, const ons_sample &sample,
                                  block_team<Real> &team, int64_t number, Real first_p,
                                  uint32_t first) {
    const auto row = Rows::template row<false>(args, number);
    const ons_row_filters filters = ons_filters_of(&sample, number, args.N);
    const team_row<std::decay_t<decltype(row)>> tokens(
        row, team, element_of(args, number, first), scale_of<Real>(filters.temperature), first_p);
    const bool off = ons_filters_are_off(&filters, args.N);
    const uint64_t random = sample.draws ? ons_random_of_row(&sample, number) : 0;
    ons_drawn_token drawn;
    if (off && sample.draws) {
        mass_type all;
        const uint32_t place = tokens.place_at(false, 0, random, &all);
        const Real logit = tokens.scaled(element_of(args, number, place));
        drawn = ons_drawn_of(place, (double)tokens.p(logit), all);
    } else {
        kept_tokens<Real> kept;
        if (!off) kept = find_kept(tokens, filters, sample.joint, args.N, first_p);
        if (!sample.draws) {
            const double sum = off ? 1 : sum_of_kept(tokens, kept);
            char *const y = results_of(args, args.values, ONS_Y, number);
            tokens.each([&](Real x, uint32_t at) {
                const Real p = tokens.p(x);
                write_as(y + at * args.values.along, args.values.dtype,
                         kept.has(x, at, p) ? (Real)((double)p / sum) : (Real)0);
            });
            return;
        }
        const auto at = tokens.reach(false, ons_mass_below(random, kept.mass) + 1);
        drawn = ons_drawn_of(at.place, (double)tokens.p(number_of(at.key)), kept.mass);
    }
    if (team.own == 0 && threadIdx.x == 0) write_drawn(args, sample, number, drawn);
}

template <typename Rows>
__global__ void __launch_bounds__(PASS_THREADS,
                                  sizeof(typename Rows::Real) == sizeof(float) ? 2 : 1)
    sample_team_kernel(const __grid_constant__ topk_arguments<Rows> args,
                       const __grid_constant__ ons_sample sample,
                       const __grid_constant__ token_lists<typename Rows::Real> lists,
                       int most_blocks) {
    using Real = typename Rows::Real;
    __shared__ uint32_t rows[MOST_TEAMS];
    await_earlier_work(true);
    /* the rows that go on, if they are so few that each has a team */
    uint32_t count = args.rows <= ROWS_TO_TEST ? 0 : ~0u;
    const uint32_t most = min((uint32_t)lists.team_count, gridDim.x / 2);
    for (int64_t begin = 0; begin < args.rows && count <= most; begin += blockDim.x) {
        const int64_t row = begin + threadIdx.x;
        const bool goes_on = row < args.rows && lists.goes_on[row];
        uint32_t before;
        const uint32_t more = sum_of_row<0>(goes_on, &before);
        if (goes_on && count + before < MOST_TEAMS) rows[count + before] = (uint32_t)row;
        count += more;
    }
    __syncthreads();
    if (count == 0) return;
    auto finish = [&](block_team<Real> &team, int64_t row) {
        const int64_t at = row * lists.length;
        finish_row(args, sample, team, row, lists.p[at], lists.index[at]);
        __syncthreads();
    };
    if (count <= most) {
        const int size = min((int)(gridDim.x / count), most_blocks), own = blockIdx.x / size;
        block_team<Real> team((team_memory<Real> *)lists.teams + own, size, blockIdx.x % size);
        if (own < (int)count) finish(team, rows[own]);
        return;
    }
    block_team<Real> team(nullptr, 1, 0);
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x)
        if (lists.goes_on[row]) finish(team, row);
}

template <typename Real>
ons_status launch_sample_team(const launch_request &request, const ons_sample &sample,
                              const token_lists<Real> &lists) {
    static_assert(sizeof(team_memory<float>) <= 3 * 22560 + 32 &&
                      sizeof(team_memory<double>) <= 3 * 30752 + 32,
                  "ons_sample_team_bytes()");
    const ons_plan *plan = request.plan;
    ons_gpu gpu;
    const ons_status status = ons_gpu_describe(request.problem->gpu, &gpu);
    if (status != ONS_OK) return status;
    return with_topk_rows(request, 1, [&](auto of_rows, const auto &arguments) -> ons_status {
        using Rows = typename decltype(of_rows)::Rows;
        if constexpr (!std::is_same_v<typename Rows::Real, Real>) {
            return ONS_E_OPERAND;
        } else {
            const auto kernel = sample_team_kernel<Rows>;
            launch_shape shape = {1, PASS_THREADS};
            const int fit = blocks_that_fit(request.problem->gpu, shape, (const void *)kernel);
            const int64_t grid = min(max(fit, 1), 2) * (int64_t)gpu.multiprocessors;
            /* a block of a team has at least a tile for each of its warps */
            const int64_t least = (int64_t)PASS_THREADS * TILE_CHUNKS * Rows::V,
                          parts = (plan->N + least - 1) / least;
            shape.cooperative = gpu.cooperative && parts > 1 && fit > 0;
            const int64_t blocks =
                shape.cooperative ? min(parts, (int64_t)ONS_MOST_TEAM_BLOCKS) : 1;
            shape.blocks = min(grid, plan->rows * blocks);
            return launch(request, shape, kernel, arguments, sample, lists, (int)blocks);
        }
    });
}
template ons_status launch_sample_team(const launch_request &, const ons_sample &,
                                       const token_lists<float> &);
template ons_status launch_sample_team(const launch_request &, const ons_sample &,
                                       const token_lists<double> &);
