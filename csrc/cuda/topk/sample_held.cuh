/* topk/sample_held.cuh - a row of sample_team.cu by a sample. The sample gives two spans of logits
 * that have the wanted tokens. The team holds the tokens, or the values, in these spans. */
#ifndef ONS_TOPK_SAMPLE_HELD_CUH
#define ONS_TOPK_SAMPLE_HELD_CUH

#include "sample_row.cuh"

/* A logit is coarse if its significand has at most COARSE_BITS bits. A float16 has 11 bits, a
 * bfloat16 8, and a float32 FLOAT_BITS. */
constexpr int COARSE_BITS = 11, FLOAT_BITS = 24;

/* The list of a row's first tokens: their probabilities and places, and the last token's logit. */
template <typename Real>
struct first_tokens {
    const Real *p;
    const uint32_t *index;
    int length;
    Real last;

    /* Whether the first 32 tokens have coarse logits. Then the other logits are probably coarse
     * too. All lanes of a warp must call it. */
    template <typename LogitOf>
    __device__ bool are_coarse(LogitOf logit_of) const {
        constexpr uint32_t REST = (1u << (FLOAT_BITS - COARSE_BITS)) - 1;
        if (length < WARP) return false;
        const float own = (float)logit_of(index[threadIdx.x % WARP]);
        return __all_sync(~0u, (__float_as_uint(own) & REST) == 0);
    }
};

/* Tokens with low < logit <= high, and the mass of the tokens before them. */
template <typename Real>
struct span_of_tokens {
    Real high = arithmetic<Real>::infinity(), low = arithmetic<Real>::infinity();
    mass_type before = 0;

    __device__ bool has(Real x) const { return x > low && x <= high; }
    __device__ bool is_unused() const { return high == arithmetic<Real>::infinity(); }
};

/* A row whose tokens in two spans are held. */
template <typename Row>
class held_row : public team_row<Row> {
    using Base = team_row<Row>;

   public:
    using typename Base::Key;
    using typename Base::Place;
    using typename Base::Real;
    using Span = span_of_tokens<Real>;
    using Base::team;

    /* The list of held tokens has `room` entries. */
    __device__ held_row(const Base &base, int room_) : Base(base), room(room_) {}

    /* Estimates the ranges of logits. Each block of a team takes the same sample. The last listed
     * token lies in range first_sampled. All tokens of earlier ranges are in the list. */
    __device__ __noinline__ void take_sample(const first_tokens<Real> &list) {
        constexpr int LAST = TEAM_RANGES - 1;
        row_sample &sample = ranges_of_block(0).sample;
        const masses_of_logits<Real> of = mass;
        const ranges_of_logits<Real> whole = this->whole;
        first_sampled = whole.of(this->scaled(list.last));
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
        this->template each_tile<SAMPLED_TOGETHER, SAMPLED>(0, chunks_of(row), visit);
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

    /* Whether tokens with coarse logits have one value only in each range of a span. */
    __device__ bool has_values_apart(const Span &span) const {
        const Real size = ranges_in(span).size(), least = min(fabs(span.low), fabs(span.high));
        return span.low > -arithmetic<Real>::infinity() && span.low < span.high &&
               span.low * span.high > 0 &&
               (Real)1.5 * size < least * (Real)((float)TEAM_RANGES / (1 << COARSE_BITS));
    }

    /* Holds the tokens of two spans, and sums up the mass before them. Returns the mass of the
     * tokens with at least the mass `least`, or 0 if there is no room for the held tokens. Without
     * SOME_LIKELY `least` must be 0. Then the result is ONS_WHOLE_MASS, and not a sum. */
    template <bool SOME_LIKELY>
    __device__ __noinline__ mass_type hold(Span (&spans)[2], Real least) {
        uint32_t &listed = begin_list();
        held_token<Real> *const list = held_list();
        const int room = this->room;
        holds_values = false;
        const mass_type likely = pass_spans<SOME_LIKELY>(
            spans, least, [&](int64_t chunk, const Real(&x)[IN_TILE], unsigned taken) {
                const int own = __popc(taken);
                uint32_t at = atomicAdd(&listed, (uint32_t)own);
                if (at + own > (uint32_t)room) return;
#pragma unroll
                for (int e = 0; e < IN_TILE; e++)
                    if (taken >> e & 1)
                        list[at++] = {x[e], (uint32_t)(chunk * V) + (uint32_t)place<WARP, V>(e)};
            });
        return share_held(spans, likely, listed);
    }

    /* The same for tokens with few values. It holds these values, and how many tokens have each. It
     * also returns 0 if tokens in a range of a span have several values. */
    __device__ __noinline__ mass_type hold_values(Span (&spans)[2], Real least) {
        uint32_t &listed = begin_list();
        held_token<Real> *const list = held_list();
        values_of_ranges<Key> &values = values_of_block<Key>();
        const Span a = spans[0], b = spans[1];
        const ranges_of_logits<Real> in_a = ranges_in(a), in_b = ranges_in(b);
        const int room = this->room;
        bool fits = true;
        holds_values = true;
        values.clear();
        const mass_type likely =
            pass_spans<true>(spans, least, [&](int64_t, const Real(&x)[IN_TILE], unsigned taken) {
#pragma unroll
                for (int e = 0; e < IN_TILE; e++)
                    if (taken >> e & 1) {
                        const bool of_b = b.has(x[e]);
                        fits &= values.add(of_b, (of_b ? in_b : in_a).of(x[e]), key_of(x[e]));
                    }
            });
        if (__syncthreads_and(fits))
            values.each([&](Key key, uint32_t count) {
                const uint32_t at = atomicAdd(&listed, 1u);
                if (at < (uint32_t)room) list[at] = {number_of(key), count};
            });
        else if (threadIdx.x == 0)
            listed = (uint32_t)room + 1;
        return share_held(spans, likely, listed);
    }

    /* Adds up the held tokens of two spans in ranges, after hold(). */
    __device__ __noinline__ void add_up_held(const Span (&spans)[2]) const {
        sums_of_ranges &sums = ranges_of_block(0).of_spans;
        const Span a = spans[0], b = spans[1];
        const ranges_of_logits<Real> in_a = ranges_in(a), in_b = ranges_in(b);
        const masses_of_logits<Real> of = mass;
        const int held = this->held;
        const bool of_values = holds_values;
        sums.clear();
#pragma unroll 4
        for (int i = threadIdx.x; i < held; i += blockDim.x) {
            const held_token<Real> one = held_list()[i];
            const Real x = one.x;
            const mass_type own = of(x) * (of_values ? one.place_or_count : 1);
            const bool of_b = b.has(x); /* few tokens are in both spans */
            sums.add(of_b, (of_b ? in_b : in_a).of(x), own);
            if (of_b && a.has(x)) sums.add(0, in_a.of(x), own);
        }
        sums.sum_up();
    }

    /* After add_up_held(): finds the token with which the mass reaches `wanted` among the held
     * tokens of a span. Returns false if it does not find it there. If needs_place is false,
     * only the mass up to the token is right. */
    __device__ __noinline__ bool reach_held(const Span (&spans)[2], int which, mass_type wanted,
                                            bool needs_place, Place *found_at) const {
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
            return entry<Real>::make(key_of(one.x), one.place_or_count);
        };
        uint32_t listed = this->list_tokens([&](auto add) {
            each_in_range([&](const held_token<Real> &one) { add(entry_of(one)); });
        });
        if (listed > TEAM_ROOM || holds_values) { /* if the tokens are equal */
            const Key key = this->token_list()[0].key();
            bool are_equal = true;
            each_in_range([&](const held_token<Real> &one) { are_equal &= key_of(one.x) == key; });
            if (!__syncthreads_and(are_equal)) return false;
            if (holds_values) {
                *found_at = this->of_equal(false, wanted - before, {span.before + before, 0}, key,
                                           needs_place);
                return true;
            }
            sums_of_ranges &by_place = ranges_of_block(1).of_spans;
            const uint32_t apart = (uint32_t)(row.N / TEAM_RANGES + 1);
            by_place.clear();
            each_in_range([&](const held_token<Real> &one) {
                by_place.add(0, (int)(one.place_or_count / apart), mass(one.x));
            });
            by_place.sum_up();
            const int places =
                first_range([&](int i) { return by_place.upto(0, i) >= wanted - before; });
            before += by_place.upto(0, places - 1);
            listed = this->list_tokens([&](auto add) {
                each_in_range([&](const held_token<Real> &one) {
                    if ((int)(one.place_or_count / apart) == places) add(entry_of(one));
                });
            });
            if (listed > TEAM_ROOM) return false;
        }
        /* the tokens before are not counted */
        *found_at = this->of_list(listed, false, wanted - before, {span.before + before, 0});
        return true;
    }

    const int room;

   private:
    using Base::begin, Base::end, Base::depth, Base::first_p, Base::m, Base::mass, Base::row,
        Base::whole;
    using Base::V, Base::IN_TILE;

    /* Calls take(first chunk, logits, a bit for each) with the tokens of two spans. Sums up the
     * mass before the spans in this block, and the mass of the tokens with at least the mass
     * `least`, which it returns. */
    template <bool SOME_LIKELY, typename Take>
    __device__ __forceinline__ mass_type pass_spans(Span (&spans)[2], Real least, Take take) const {
        const Span a = spans[0], b = spans[1];
        const masses_of_logits<Real> of = mass;
        mass_type before_a = 0, before_b = 0, likely = 0;
        this->template each_tile<WARP, 1>(begin, end, [&](int64_t chunk, const Real(&x)[IN_TILE]) {
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
            if (__any_sync(~0u, taken != 0)) take(chunk, x, taken);
        });
        const amount before = over_block({before_a, before_b});
        spans[0].before = before.mass;
        spans[1].before = before.count;
        return SOME_LIKELY ? over_block({likely, 0}).mass : (mass_type)ONS_WHOLE_MASS;
    }

    /* The number of held tokens in this block's list, now 0. */
    __device__ static uint32_t &begin_list() {
        __shared__ uint32_t listed;
        __syncthreads();
        if (threadIdx.x == 0) listed = 0;
        __syncthreads();
        return listed;
    }

    /* Adds what all blocks of a team hold, and their sums of mass. Returns the sum of `likely`, or
     * 0 if there is no room. */
    __device__ mass_type share_held(Span (&spans)[2], mass_type likely, const uint32_t &listed) {
        __shared__ uint32_t sent_from;
        held_token<Real> *const list = held_list();
        mass_type sums[3] = {spans[0].before, spans[1].before, likely};
        __syncthreads();
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
        return held > room ? 0 : sums[2];
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

    int held = 0;      /* entries in the list of held tokens */
    bool holds_values; /* an entry is a value and the number of its tokens */
    int first_sampled; /* the first range of the sample */
};

#endif
