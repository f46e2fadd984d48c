/* topk/sample_row.cuh - a row of sample_team.cu, as its team of blocks reads it. */
#ifndef ONS_TOPK_SAMPLE_ROW_CUH
#define ONS_TOPK_SAMPLE_ROW_CUH

#include "route_weights.cuh"
#include "sample_ranges.cuh"
#include "sort.cuh"

constexpr int TEAM_CHUNKS = 4; /* of a thread in a tile */

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

/* The list of a row's first tokens: their probabilities, and the last token's logit. */
template <typename Real>
struct first_tokens {
    const Real *p;
    int length;
    Real last;
};

/* The ranges of logits. The first range begins at `top`, and the others follow below it. The last
 * range also has all logits further below. */
template <typename Real>
struct ranges_of_logits {
    Real top, apart; /* `apart`: the number of ranges between x and x - 1 */

    __device__ ranges_of_logits(Real top_, Real size)
        : top(top_), apart((Real)TEAM_RANGES / size) {}
    __device__ int of(Real x) const { return min((int)((top - x) * apart), TEAM_RANGES - 1); }
    /* The logit with which a range begins, rounded. */
    __device__ Real begin(Real range) const { return top - range / apart; }
};

/* Tokens with low < logit <= high, and the mass of the tokens before them. */
template <typename Real>
struct span_of_tokens {
    Real high = arithmetic<Real>::infinity(), low = arithmetic<Real>::infinity();
    mass_type before = 0;

    __device__ bool has(Real x) const { return x > low && x <= high; }
};

/* The masses of tokens, found from their logits. */
template <typename Real>
struct masses_of_logits {
    Real m, of_m; /* of_m: the mass of a token with the logit m */

    /* The mass before it is truncated to an integer. */
    __device__ Real real(Real x) const {
        if constexpr (sizeof(Real) == sizeof(double)) {
            return exponential_of(x - m) * of_m;
        } else {
            using A = arithmetic<Real>;
            return exponentials<Real>(A::MAGIC)(x - m) * (of_m * A::LOWERED);
        }
    }
    __device__ mass_type operator()(Real x) const { return (mass_type)real(x); }
    __device__ Real p(Real x) const { return real(x) * (Real)(1 / ONS_WHOLE_MASS); }
};

/* The tokens of a row. Each block of a team walks over its own part of the row. */
template <typename Row>
class team_row {
   public:
    using Real = typename Row::Real;
    using Key = key_type<Real>;
    using Place = place_in_order<Real>;
    using Span = span_of_tokens<Real>;

    /* `logit` is the first token's, and `p` its probability. The list of held tokens has `room`
     * entries. */
    __device__ team_row(const Row &row_, block_team<Real> &team_, Real logit, double scale_, Real p,
                        int room_)
        : row(row_),
          team(team_),
          scale((Real)scale_),
          m(scaled(logit)),
          first_p(p),
          mass({m, p * (Real)ONS_WHOLE_MASS}),
          /* the mean of all logits would be so far below m if all were equal */
          depth(max(2 * log((Real)row.N * first_p), (Real)1e-3)),
          whole(m, depth),
          rounding((fabs(m) + depth) * (Real)0x1p-20),
          room(room_) {
        const uint32_t tiles = (uint32_t)((chunks_of(row) + TILE - 1) / TILE),
                       a_block = (tiles + team.size - 1) / team.size;
        begin = (int64_t)min(team.own * a_block, tiles) * TILE;
        end = (int64_t)min((team.own + 1) * a_block, tiles) * TILE;
    }

    __device__ Real scaled(Real logit) const { return product(logit, scale); }
    __device__ Real p(Real x) const { return mass.p(x); }

    /* Calls visit(logit, place) for this thread's tokens. */
    template <typename Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        each_tile<WARP, 1>(begin, end, [&](int64_t chunk, const Real(&x)[IN_TILE]) {
            const int left = elements_left(row.N, chunk * V);
#pragma unroll
            for (int e = 0; e < IN_TILE; e++)
                if (place<WARP, V>(e) < left)
                    visit(x[e], (uint32_t)(chunk * V) + (uint32_t)place<WARP, V>(e));
        });
    }

    /* ------- All tokens, in ranges ------- */

    /* Adds up the tokens in ranges of logits. Returns what those with at least the mass `least`
     * amount to. */
    __device__ __noinline__ amount add_up(Real least) const {
        amounts_of_ranges &ranges = ranges_of_block(0).amounts;
        amount likely = {0, 0}, far = {0, 0};
        const masses_of_logits<Real> of = mass;
        const ranges_of_logits<Real> whole = this->whole;
        ranges.clear();
        each([&](Real x, uint32_t) {
            const Real real = of.real(x);
            const mass_type mass = (mass_type)real;
            const int range = whole.of(x);
            if (real >= least) likely = likely + amount{mass, 1};
            if (range == TEAM_RANGES - 1)
                far = far + amount{mass, 1}; /* many tokens */
            else
                ranges.add(range, mass);
        });
        const amount of_warp = over_warp(far);
        if (threadIdx.x % WARP == 0 && of_warp.count)
            ranges.add(TEAM_RANGES - 1, of_warp.mass, (uint32_t)of_warp.count);
        return ranges.add_up(team, likely);
    }

    /* The token with which the amount of the first tokens reaches `wanted`, after add_up(). All
     * tokens together must reach it. */
    __device__ __noinline__ Place reach(bool by_count, mass_type wanted) const {
        const auto found = ranges_of_block(0).amounts.find(by_count, wanted);
        const int range = found.range;
        amount before = found.before, own = found.own;
        Key low = range == TEAM_RANGES - 1 ? 0 : key_of(whole.begin((Real)(range + 1)) - rounding),
            high = key_of(range == 0 ? m : whole.begin((Real)range) + rounding);
        /* few tokens pass the two comparisons, which cost less than the range */
        auto is_in = [&](Real x) {
            const Real none = -arithmetic<Real>::infinity();
            const Real least = low > key_of(none) ? number_of(low) : none;
            return x >= least && x <= number_of(high) && whole.of(x) == range;
        };
        while (own.count > TEAM_ROOM && low < high) {
            amounts_of_ranges &ranges = ranges_of_block(1).amounts;
            const int bits = shift_of(high - low);
            ranges.clear();
            each([&](Real x, uint32_t) {
                if (is_in(x)) ranges.add((int)((high - key_of(x)) >> bits), mass(x));
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
        const uint32_t listed = list_tokens([&](auto add) {
            each([&](Real x, uint32_t at) {
                if (is_in(x)) add(entry<Real>::make(key_of(x), at));
            });
        });
        return of_list(share_list(listed), by_count, left, before);
    }

    /* ------- A sample, and held tokens ------- */

    /* Estimates the ranges of logits. Each block of a team takes the same sample. The last listed
     * token lies in range first_sampled. All tokens of earlier ranges are in the list. */
    __device__ __noinline__ void take_sample(const first_tokens<Real> &list) {
        constexpr int LAST = TEAM_RANGES - 1;
        row_sample &sample = ranges_of_block(0).sample;
        const masses_of_logits<Real> of = mass;
        const ranges_of_logits<Real> whole = this->whole;
        first_sampled = whole.of(scaled(list.last));
        sample.clear();
        for (int i = threadIdx.x; i < list.length; i += blockDim.x) {
            const int range = whole.of(m + log(list.p[i] / first_p));
            if (range < first_sampled)
                atomicAdd(sample.listed + range,
                          (uint32_t)((float)list.p[i] * sample.WHOLE_LISTED));
        }
        amount far = {0, 0};
        auto visit = [&](int64_t, const Real(&x)[IN_TILE]) {
            bool is_far = false;
#pragma unroll
            for (int e = 0; e < IN_TILE; e++) {
                const int range = whole.of(x[e]);
                if (range < LAST) atomicAdd(sample.tokens + range, 1u);
                is_far |= range == LAST;
            }
            if (!__any_sync(~0u, is_far)) return;
#pragma unroll
            for (int e = 0; e < IN_TILE; e++) /* many tokens */
                if (whole.of(x[e]) == LAST) far = far + amount{of(x[e]), 1};
        };
        each_tile<SAMPLED_TOGETHER, SAMPLED>(0, chunks_of(row), visit);
        if (__syncthreads_or(far.count > 0)) far = over_block(far);
        if (threadIdx.x == 0) sample.tokens[LAST] = (uint32_t)far.count;
        const float last_mass = SAMPLED * (float)((double)far.mass / ONS_WHOLE_MASS);
        sample.sum_up(first_sampled, last_mass, [&](int range) { return sampled_p(range); });
    }

    /* After take_sample(): the shares of the mass between which the tokens with at least the mass
     * `least` have theirs. */
    __device__ void estimate_share(Real least, float deviations, float *from, float *to) const {
        const row_sample &sample = ranges_of_block(0).sample;
        const int range = whole.of(m + log(least / mass.of_m));
        const float error = deviations * deviation_at(range);
        *from = sample.share_upto(range - 1) - error;
        *to = sample.share_upto(range) + error;
    }
    /* After take_sample(): the span in which the share of the mass reaches a number between `from`
     * and `to`. Adds the number of its tokens. */
    __device__ Span span_of(float from, float to, float deviations, float *tokens) const {
        const row_sample &sample = ranges_of_block(0).sample;
        const float error = deviations * deviation_at(sample.range_with((from + to) / 2));
        const int first = sample.range_with(from - error), last = sample.range_with(to + error);
        *tokens += sample.tokens_between(first, last);
        Span span;
        span.high = first == 0 ? m : whole.begin((Real)first);
        span.low =
            last == TEAM_RANGES - 1 ? -arithmetic<Real>::infinity() : whole.begin((Real)(last + 1));
        return span;
    }

    /* Holds the tokens of two spans, and sums up the mass before them. Returns the mass of the
     * tokens with at least the mass `least`, or 0 if there is no room for the held tokens. Without
     * SOME_LIKELY `least` must be 0. Then the result is ONS_WHOLE_MASS, and not a sum. */
    template <bool SOME_LIKELY>
    __device__ __noinline__ mass_type hold(Span (&spans)[2], Real least) {
        __shared__ uint32_t listed, sent_from;
        held_token<Real> *const list = held_list();
        const Span a = spans[0], b = spans[1];
        const masses_of_logits<Real> of = mass;
        const int room = this->room;
        mass_type before_a = 0, before_b = 0, likely = 0;
        __syncthreads();
        if (threadIdx.x == 0) listed = 0;
        __syncthreads();
        each_tile<WARP, 1>(begin, end, [&](int64_t chunk, const Real(&x)[IN_TILE]) {
            unsigned taken = 0;
#pragma unroll
            for (int e = 0; e < IN_TILE; e++) { /* behind the row's end x is -inf */
                const bool above_a = x[e] > a.high, above_b = x[e] > b.high;
                const Real real = of.real(x[e]);
                const mass_type mass = (mass_type)real;
                if (SOME_LIKELY && real >= least) likely += mass;
                if (above_a) before_a += mass;
                if (above_b) before_b += mass;
                if ((!above_a & (x[e] > a.low)) | (!above_b & (x[e] > b.low))) taken |= 1u << e;
            }
            if (!__any_sync(~0u, taken != 0)) return;
            const int own = __popc(taken);
            uint32_t at = atomicAdd(&listed, (uint32_t)own);
            if (at + own > (uint32_t)room) return;
#pragma unroll
            for (int e = 0; e < IN_TILE; e++)
                if (taken >> e & 1)
                    list[at++] = {x[e], (uint32_t)(chunk * V) + (uint32_t)place<WARP, V>(e)};
        });
        const amount before = over_block({before_a, before_b}),
                     others = SOME_LIKELY ? over_block({likely, 0}) : amount{0, 0};
        mass_type sums[3] = {before.mass, before.count, others.mass};
        held = (int)listed;
        if (team.size > 1) {
            team_memory<Real> *const memory = team.memory;
            if (threadIdx.x < 3) atomicAdd(memory->sums + threadIdx.x, sums[threadIdx.x]);
            if (threadIdx.x == 0) sent_from = atomicAdd(&memory->held, listed);
            __syncthreads();
            if (sent_from + held <= room)
                for (int i = threadIdx.x; i < held; i += blockDim.x)
                    memory->held_list[sent_from + i] = list[i];
            team.meet();
            for (int i = 0; i < 3; i++) sums[i] = __ldcg(memory->sums + i);
            held = (int)__ldcg(&memory->held);
            if (held <= room)
#pragma unroll 8
                for (int i = threadIdx.x; i < held; i += blockDim.x)
                    list[i] = read_sent(memory->held_list + i);
            __syncthreads();
        }
        spans[0].before = sums[0];
        spans[1].before = sums[1];
        return held > room ? 0 : SOME_LIKELY ? sums[2] : (mass_type)ONS_WHOLE_MASS;
    }

    /* Adds up the held tokens of two spans in ranges, after hold(). */
    __device__ __noinline__ void add_up_held(const Span (&spans)[2]) const {
        sums_of_ranges &sums = ranges_of_block(0).of_spans;
        const Span a = spans[0], b = spans[1];
        const ranges_of_logits<Real> in_a = ranges_in(a), in_b = ranges_in(b);
        const masses_of_logits<Real> of = mass;
        const int held = this->held;
        sums.clear();
#pragma unroll 4
        for (int i = threadIdx.x; i < held; i += blockDim.x) {
            const Real x = held_list()[i].x;
            const mass_type own = of(x);
            const bool of_b = b.has(x); /* few tokens are in both spans */
            sums.add(of_b, (of_b ? in_b : in_a).of(x), own);
            if (of_b && a.has(x)) sums.add(0, in_a.of(x), own);
        }
        sums.sum_up();
    }

    /* After add_up_held(): finds the token with which the mass reaches `wanted` among the held
     * tokens of a span. Returns false if it does not find it there. */
    __device__ __noinline__ bool reach_held(const Span (&spans)[2], int which, mass_type wanted,
                                            Place *found_at) const {
        const sums_of_ranges &sums = ranges_of_block(0).of_spans;
        const Span span = spans[which];
        const int held = this->held;
        if (wanted <= span.before || wanted > span.before + sums.upto(which, TEAM_RANGES - 1))
            return false;
        wanted -= span.before;
        const int range = first_range([&](int i) { return sums.upto(which, i) >= wanted; });
        mass_type before = sums.upto(which, range - 1);
        const ranges_of_logits<Real> ranges = ranges_in(span);
        auto each_in_range = [&](auto visit) {
#pragma unroll 4
            for (int i = threadIdx.x; i < held; i += blockDim.x) {
                const held_token<Real> one = held_list()[i];
                if (span.has(one.x) && ranges.of(one.x) == range) visit(one);
            }
        };
        auto entry_of = [](const held_token<Real> &one) {
            return entry<Real>::make(key_of(one.x), one.place);
        };
        uint32_t listed = list_tokens([&](auto add) {
            each_in_range([&](const held_token<Real> &one) { add(entry_of(one)); });
        });
        if (listed > TEAM_ROOM) { /* equal tokens: ranges of places */
            sums_of_ranges &by_place = ranges_of_block(1).of_spans;
            const Key key = token_list()[0].key();
            const uint32_t apart = (uint32_t)(row.N / TEAM_RANGES + 1);
            bool are_equal = true;
            each_in_range([&](const held_token<Real> &one) { are_equal &= key_of(one.x) == key; });
            if (!__syncthreads_and(are_equal)) return false;
            by_place.clear();
            each_in_range([&](const held_token<Real> &one) {
                by_place.add(0, (int)(one.place / apart), mass(one.x));
            });
            by_place.sum_up();
            const int places =
                first_range([&](int i) { return by_place.upto(0, i) >= wanted - before; });
            before += by_place.upto(0, places - 1);
            listed = list_tokens([&](auto add) {
                each_in_range([&](const held_token<Real> &one) {
                    if ((int)(one.place / apart) == places) add(entry_of(one));
                });
            });
            if (listed > TEAM_ROOM) return false;
        }
        /* the tokens before are not counted */
        *found_at = of_list(listed, false, wanted - before, {span.before + before, 0});
        return true;
    }

    /* The token with which the running sum reaches a number, in the order of places. Each token
     * counts its mass, or with `equal` 1 if its key is `key`. The number is `order` with `equal`,
     * else random. Sets *sum to the sum of all. */
    __device__ __noinline__ uint32_t place_at(bool equal, Key key, uint64_t order_or_random,
                                              mass_type *sum) const {
        constexpr int K = TEAM_CHUNKS;
        __shared__ mass_type of_warp[TEAM_WARPS], of_earlier_blocks, of_all;
        __shared__ uint32_t found;
        const int lane = threadIdx.x % WARP, warp = warp_of_block();
        const int64_t a_warp = ((end - begin) / TILE + TEAM_WARPS - 1) / TEAM_WARPS * TILE;
        /* visit(first chunk, what this lane's elements count) until it returns false */
        auto each_in_order = [&](auto visit) {
            bool goes_on = true;
#pragma unroll 1
            for (int64_t tile = begin + warp * a_warp;
                 goes_on && tile < end && tile < begin + (warp + 1) * a_warp; tile += TILE) {
                Real x[K * V];
                take(row.template load<K, WARP>(tile + lane), scale, x);
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
        each_in_order([&](int64_t, const mass_type(&counts)[K * V]) {
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
            each_in_order([&](int64_t chunk, const mass_type(&counts)[K * V]) {
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
    const int room; /* of the list of held tokens */

   private:
    static constexpr int V = Row::V, IN_TILE = TEAM_CHUNKS * V;
    static constexpr int64_t TILE = TEAM_CHUNKS * WARP; /* chunks */

    /* The logits of a tile that was read. */
    template <typename Tile>
    __device__ __forceinline__ static void take(const Tile &read, Real by, Real (&x)[IN_TILE]) {
        const auto tile = converted(read);
#pragma unroll
        for (int e = 0; e < IN_TILE; e++) x[e] = product(tile.element(e), by);
    }

    /* Calls visit(first chunk, logits) for each tile of this thread between two chunks. STRIDE
     * neighbouring lanes have neighbouring chunks. The walk reads one of APART parts of the row. */
    template <int STRIDE, int APART, typename Visit>
    __device__ __forceinline__ void each_tile(int64_t from, int64_t to, Visit visit) const {
        constexpr int64_t A_WARP = TILE * APART, A_BLOCK = TEAM_WARPS * A_WARP;
        const int lane = threadIdx.x % WARP;
        int64_t tile = from + warp_of_block() * A_WARP;
        int64_t chunk = tile + lane / STRIDE * (STRIDE * TEAM_CHUNKS * APART) + lane % STRIDE;
        const Row row = this->row;
        const Real scale = this->scale;
#pragma unroll 1
        for (; tile < to; tile += A_BLOCK, chunk += A_BLOCK) {
            Real x[IN_TILE];
            take(row.template load<TEAM_CHUNKS, STRIDE>(chunk), scale, x);
            visit(chunk, x);
        }
    }

    /* log2 of the number of keys in a range, if `apart` is the difference of the last and the first
     * key. */
    __device__ static int shift_of(Key apart) {
        constexpr int RANGE_BITS = 10;
        static_assert(1 << RANGE_BITS == TEAM_RANGES, "so many ranges");
        const int bits = sizeof(Key) == 4 ? 32 - __clz((int)apart) : 64 - __clzll((long long)apart);
        return max(bits - RANGE_BITS, 0);
    }

    __device__ static held_token<Real> *held_list() {
        extern __shared__ __align__(16) unsigned char shared[];
        return (held_token<Real> *)shared;
    }

    /* The probability of a token in a range of the sample. */
    __device__ float sampled_p(int range) const {
        return (float)mass.p(whole.begin((Real)range + (Real)0.5));
    }
    __device__ float deviation_at(int range) const {
        return ranges_of_block(0).sample.deviation_at(
            range, range < first_sampled ? 0 : SAMPLED * sampled_p(range));
    }

    __device__ ranges_of_logits<Real> ranges_in(const Span &span) const {
        const Real least = depth / TEAM_RANGES;
        return {span.high, max(span.high - max(span.low, m - depth), least)};
    }

    /* reach() for tokens that all have the same key. */
    __device__ Place of_equal(bool by_count, mass_type left, const amount &before, Key key) const {
        const mass_type one = mass(number_of(key)),
                        order = by_count ? left : (left + one - 1) / one;
        mass_type all;
        const uint32_t place = place_at(true, key, order, &all);
        return {key, place, before + amount{order * one, order}};
    }

    __device__ static entry<Real> *token_list() {
        __shared__ __align__(16) entry<Real> list[TEAM_ROOM];
        return list;
    }
    /* Lists the tokens that visit(add) adds by add(entry). Returns their number. If it is larger
     * than TEAM_ROOM, some are not listed. */
    template <typename Visit>
    __device__ __forceinline__ static uint32_t list_tokens(Visit visit) {
        __shared__ uint32_t listed;
        __syncthreads();
        if (threadIdx.x == 0) listed = 0;
        __syncthreads();
        visit([&](const entry<Real> &token) {
            const uint32_t at = atomicAdd(&listed, 1u);
            if (at < TEAM_ROOM) token_list()[at] = token;
        });
        __syncthreads();
        return listed;
    }
    /* Adds the lists of all blocks of a team. Returns the number of their tokens. */
    __device__ uint32_t share_list(uint32_t own) const {
        __shared__ uint32_t sent_from;
        uint32_t all = own;
        if (team.size > 1)
            team.exchange(
                [&](auto &message) {
                    if (threadIdx.x == 0 && own) sent_from = atomicAdd(&message.listed, own);
                    __syncthreads();
                    for (uint32_t i = threadIdx.x; i < own; i += blockDim.x)
                        message.list[sent_from + i] = token_list()[i];
                },
                [&](const auto &message) {
                    all = __ldcg(&message.listed);
                    for (uint32_t i = threadIdx.x; i < all; i += blockDim.x)
                        token_list()[i] = read_sent(message.list + i);
                });
        return all;
    }
    /* The token with which the amount of n listed tokens reaches `left`. */
    __device__ Place of_list(uint32_t n, bool by_count, mass_type left,
                             const amount &before) const {
        return n <= WARP ? of_short_list(n, by_count, left, before)
                         : of_long_list(n, by_count, left, before);
    }
    /* Each warp finds it for itself. */
    __device__ Place of_short_list(uint32_t n, bool by_count, mass_type left,
                                   const amount &before) const {
        const uint32_t lane = threadIdx.x % WARP;
        const entry<Real> own = token_list()[min(lane, n - 1)];
        const amount one = {mass(number_of(own.key())), 1};
        amount upto = one;
#pragma unroll 1
        for (uint32_t i = 0; i < n; i++) {
            const mass_type other = __shfl_sync(~0u, one.mass, (int)i);
            if (token_list()[i].is_before(own)) upto = upto + amount{other, 1};
        }
        const mass_type reached = upto.by(by_count);
        const bool is_it = lane < n && reached >= left && reached - one.by(by_count) < left;
        const int from = __ffs((int)__ballot_sync(~0u, is_it)) - 1;
        return {
            __shfl_sync(~0u, own.key(), from), __shfl_sync(~0u, own.index(), from),
            before + amount{__shfl_sync(~0u, upto.mass, from), __shfl_sync(~0u, upto.count, from)}};
    }
    __device__ Place of_long_list(uint32_t n, bool by_count, mass_type left,
                                  const amount &before) const {
        static_assert(TEAM_ROOM == PASS_THREADS, "a thread takes a token");
        __shared__ Place result;
        entry<Real> *const list = token_list();
        uint32_t size = 1;
        while (size < n) size *= 2;
        if (threadIdx.x >= n && threadIdx.x < size) list[threadIdx.x] = {};
        sort_entries(list, size);
        const bool is_listed = threadIdx.x < n;
        const entry<Real> own = list[is_listed ? threadIdx.x : 0];
        const mass_type one = is_listed ? mass(number_of(own.key())) : 0;
        mass_type upto_this[1] = {one};
        sum_up_to_thread(upto_this);
        const amount upto = {upto_this[0], threadIdx.x + 1};
        const mass_type reached = upto.by(by_count);
        if (is_listed && reached >= left && reached - (by_count ? 1 : one) < left)
            result = {own.key(), own.index(), before + upto};
        __syncthreads();
        return result;
    }

    const Row row;
    const Real scale, m, first_p;
    const masses_of_logits<Real> mass;
    const Real depth;
    const ranges_of_logits<Real> whole;
    const Real rounding;
    int64_t begin, end; /* chunks of this block */
    int held = 0;       /* the number of held tokens */
    int first_sampled;  /* the first range of the sample */
};

#endif
