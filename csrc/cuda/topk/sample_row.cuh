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

/* The ranges of logits. The first range begins at `top`, and the others follow below it. The last
 * range also has all logits further below. */
template <typename Real>
struct ranges_of_logits {
    Real top, apart; /* `apart`: the number of ranges between x and x - 1 */

    __device__ ranges_of_logits(Real top_, Real size)
        : top(top_), apart((Real)TEAM_RANGES / size) {}
    __device__ Real size() const { return (Real)TEAM_RANGES / apart; }
    __device__ int of(Real x) const { return min((int)((top - x) * apart), TEAM_RANGES - 1); }
    /* The logit with which a range begins, rounded. */
    __device__ Real begin(Real range) const { return top - range / apart; }
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

    /* `logit` is the first token's, and `p` its probability. */
    __device__ team_row(const Row &row_, block_team<Real> &team_, Real logit, double scale_, Real p)
        : row(row_),
          team(team_),
          scale((Real)scale_),
          m(scaled(logit)),
          first_p(p),
          mass({m, p * (Real)ONS_WHOLE_MASS}),
          /* the mean of all logits would be so far below m if all were equal */
          depth(max(2 * log((Real)row.N * first_p), (Real)1e-3)),
          whole(m, depth),
          rounding((fabs(m) + depth) * (Real)0x1p-20) {
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

    /* The token with which the running sum reaches a number, in the order of places. Each token
     * counts its mass, or with EQUAL 1 if its key is `key`. With EQUAL the number is
     * order_or_random. Otherwise order_or_random draws it. Sets *sum to the sum of all. */
    template <bool EQUAL>
    __device__ __noinline__ uint32_t place_at(Key key, uint64_t order_or_random,
                                              mass_type *sum) const {
        using Count = std::conditional_t<EQUAL, uint32_t, mass_type>;
        constexpr int K = TEAM_CHUNKS;
        __shared__ mass_type of_warp[TEAM_WARPS], of_earlier_blocks, of_all;
        __shared__ uint32_t found;
        const int lane = threadIdx.x % WARP, warp = warp_of_block();
        const int64_t a_warp = ((end - begin) / TILE + TEAM_WARPS - 1) / TEAM_WARPS * TILE;
        /* visit(first chunk, count(e) for what this lane's element e counts) until it returns
         * false */
        auto each_in_order = [&](auto visit) {
            bool goes_on = true;
#pragma unroll 1
            for (int64_t tile = begin + warp * a_warp;
                 goes_on && tile < end && tile < begin + (warp + 1) * a_warp; tile += TILE) {
                Real x[K * V];
                take(row.template load<K, WARP>(tile + lane), scale, x);
                const int left = elements_left(row.N, (tile + lane) * V);
                goes_on = visit(tile + lane, [&](int e) -> Count {
                    if (place<WARP, V>(e) >= left) return 0;
                    if constexpr (EQUAL)
                        return key_of(x[e]) == key;
                    else
                        return mass(x[e]);
                });
            }
        };
        Count counted = 0;
        each_in_order([&](int64_t, auto count) {
#pragma unroll
            for (int e = 0; e < K * V; e++) counted += count(e);
            return true;
        });
        const mass_type mine = mass_of_warp(counted);
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
            EQUAL ? order_or_random : ons_mass_below(order_or_random, of_all) + 1;
        before += of_earlier_blocks;
        const bool is_here = before < wanted && wanted <= before + mine;
        if (is_here)
            each_in_order([&](int64_t chunk, auto count) {
#pragma unroll
                for (int k = 0; k < K; k++) {
                    Count own = 0;
#pragma unroll
                    for (int i = 0; i < V; i++) own += count(k * V + i);
                    const mass_type upto = before + sum_up_to_lane<WARP>(own, lane);
                    mass_type passed = upto - own;
                    if (passed < wanted && wanted <= upto) {
#pragma unroll
                        for (int i = 0; i < V; i++) {
                            if (passed < wanted) found = (uint32_t)((chunk + k * WARP) * V + i);
                            passed += count(k * V + i);
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

   protected:
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

    /* reach() for tokens that all have the same key. */
    __device__ Place of_equal(bool by_count, mass_type left, const amount &before, Key key,
                              bool needs_place = true) const {
        const mass_type one = mass(number_of(key)),
                        order = by_count ? left : (left + one - 1) / one;
        mass_type all;
        const uint32_t place = needs_place ? place_at<true>(key, order, &all) : 0;
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
};

#endif
