/* topk/sample_ranges.cuh - the tokens of a row in 1024 ranges of logits or of keys: exact amounts,
 * or estimates from a sample. */
#ifndef ONS_TOPK_SAMPLE_RANGES_CUH
#define ONS_TOPK_SAMPLE_RANGES_CUH

#include "sample_team.cuh"

/* A sample has one of SAMPLED tokens of a row. */
constexpr int SAMPLED = 8;
constexpr int RANGES_A_THREAD = TEAM_RANGES / PASS_THREADS;

/* The first range for which is_reached(range) holds, or the last range. It must hold for all ranges
 * after it too. All lanes of a warp must call it. */
template <typename IsReached>
__device__ inline int first_range(IsReached is_reached) {
    static_assert(TEAM_RANGES == WARP * WARP, "two steps");
    const int lane = threadIdx.x % WARP;
    auto first_lane = [&](int range) {
        const unsigned lanes = __ballot_sync(~0u, is_reached(range));
        return lanes ? __ffs((int)lanes) - 1 : WARP - 1;
    };
    const int from = first_lane(WARP * lane + WARP - 1) * WARP;
    return from + first_lane(from + lane);
}

/* The amounts of the tokens in ranges. Range 0 comes first in the order of tokens. A mass has two
 * halves, since shared memory adds 32 bits at once. */
struct alignas(mass_type) amounts_of_ranges {
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

    /* Adds the ranges of all blocks of a team. Returns the sum of all threads' other amounts. A
     * block must call it. */
    template <typename Real>
    __device__ amount add_up(block_team<Real> &team, const amount &mine = {0, 0}) {
        amount others = over_block(mine);
        if (team.size > 1)
            team.exchange(
                [&](auto &message) {
                    send(others, message);
                    for (int i = threadIdx.x; i < TEAM_RANGES; i += blockDim.x) {
                        const amount own = added(i);
                        if (own.mass) atomicAdd(message.mass + i, own.mass);
                        if (own.count) atomicAdd(message.count + i, (uint32_t)own.count);
                    }
                },
                [&](const auto &message) {
                    others = read_sent(&message.others);
                    for (int i = threadIdx.x; i < TEAM_RANGES; i += blockDim.x) {
                        const mass_type mass = __ldcg(message.mass + i);
                        low[i] = (uint32_t)mass;
                        high[i] = (uint32_t)(mass >> 32);
                        count[i] = __ldcg(message.count + i);
                    }
                });
        sum_up();
        return others;
    }

    /* Replaces the amount of each range by the amount of all ranges up to it. A block must call
     * it. */
    __device__ void sum_up() {
        const int first = RANGES_A_THREAD * threadIdx.x;
        amount own[RANGES_A_THREAD], all = {0, 0};
        __syncthreads();
        for (int i = 0; i < RANGES_A_THREAD; i++) all = all + (own[i] = added(first + i));
        amount upto = {sum_up_to_thread(all.mass) - all.mass,
                       sum_up_to_thread(all.count) - all.count};
        for (int i = 0; i < RANGES_A_THREAD; i++) {
            upto = upto + own[i];
            ((mass_type *)low)[first + i] = upto.mass;
            count[first + i] = (uint32_t)upto.count;
        }
        __syncthreads();
    }

    /* These need sum_up(): what the ranges up to one amount to, and what all amount to. */
    __device__ amount upto(int range) const {
        if (range < 0) return {0, 0};
        return {((const mass_type *)low)[range], count[range]};
    }
    __device__ amount all() const { return upto(TEAM_RANGES - 1); }

    struct found {
        int range;
        amount before, own;
    };
    /* The first range with which the amount reaches `wanted`. All ranges together must reach it. */
    __device__ found find(bool by_count, mass_type wanted) const {
        const int range = first_range([&](int i) { return upto(i).by(by_count) >= wanted; });
        const amount before = upto(range - 1), here = upto(range);
        return {range, before, {here.mass - before.mass, here.count - before.count}};
    }

   private:
    __device__ amount added(int range) const {
        return {(mass_type)high[range] << 32 | low[range], count[range]};
    }
};

/* Estimates for ranges of logits. After sum_up() each entry is for all ranges up to this one: the
 * number of their tokens, their mass, and the variance of this mass. */
struct row_sample {
    uint32_t tokens[TEAM_RANGES];
    union {
        float mass[TEAM_RANGES];
        uint32_t listed[TEAM_RANGES]; /* before sum_up(): the mass of listed tokens */
    };
    float variance[TEAM_RANGES];

    static constexpr float WHOLE_LISTED = 0x1p31f;

    /* A block must call it. */
    __device__ void clear() {
        __syncthreads();
        for (int i = threadIdx.x; i < TEAM_RANGES; i += blockDim.x) tokens[i] = listed[i] = 0;
        __syncthreads();
    }

    /* Sums up the ranges. p_of(range) is the probability of a token there. The last range has
     * `last_mass`. A block must call it. */
    template <typename ProbabilityOf>
    __device__ void sum_up(float last_mass, ProbabilityOf p_of) {
        const int first = RANGES_A_THREAD * threadIdx.x;
        uint32_t n[RANGES_A_THREAD], all_tokens = 0;
        float own[RANGES_A_THREAD], square[RANGES_A_THREAD], all_mass = 0, all_squares = 0;
        __syncthreads();
        for (int i = 0; i < RANGES_A_THREAD; i++) {
            const int range = first + i;
            const bool is_last = range == TEAM_RANGES - 1;
            n[i] = SAMPLED * tokens[range];
            const float p = is_last ? last_mass / (float)max(n[i], 1u) : p_of(range),
                        drawn = (float)n[i] * p;
            own[i] = (float)listed[range] / WHOLE_LISTED + drawn;
            square[i] = (SAMPLED - 1) * p * drawn;
            all_tokens += n[i];
            all_mass += own[i];
            all_squares += square[i];
        }
        uint32_t upto_tokens = sum_up_to_thread(all_tokens) - all_tokens;
        float upto_mass = sum_up_to_thread(all_mass) - all_mass,
              upto_squares = sum_up_to_thread(all_squares) - all_squares;
        for (int i = 0; i < RANGES_A_THREAD; i++) {
            tokens[first + i] = upto_tokens += n[i];
            mass[first + i] = upto_mass += own[i];
            variance[first + i] = upto_squares += square[i];
        }
        __syncthreads();
    }

    __device__ float share_upto(int range) const {
        return range < 0 ? 0 : mass[range] / mass[TEAM_RANGES - 1];
    }
    __device__ int range_with(float share) const {
        const float wanted = share * mass[TEAM_RANGES - 1];
        return first_range([&](int i) { return mass[i] >= wanted; });
    }
    __device__ uint32_t tokens_between(int first, int last) const {
        return tokens[last] - (first > 0 ? tokens[first - 1] : 0);
    }
    /* The standard deviation of share_upto(range), whose last token stands for the mass `one`. */
    __device__ float deviation_at(int range, float one) const {
        const float share = share_upto(range), rest = 1 - share, upto = variance[range],
                    after = variance[TEAM_RANGES - 1] - upto;
        return sqrtf(upto * rest * rest + after * share * share + one * one) /
               mass[TEAM_RANGES - 1];
    }
};

/* Shared memory of a block. `which` 0 is for ranges of logits or for a sample. `which` 1 is for
 * ranges of keys. With held tokens, each span has one of them. */
union memory_of_ranges {
    amounts_of_ranges amounts;
    row_sample sample;
};
__device__ inline memory_of_ranges &ranges_of_block(int which) {
    __shared__ __align__(16) char ranges[2][sizeof(memory_of_ranges)];
    return *(memory_of_ranges *)ranges[which];
}

#endif
