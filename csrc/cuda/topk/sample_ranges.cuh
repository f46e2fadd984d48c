/* topk/sample_ranges.cuh - the tokens of a row in 1024 ranges of logits or of keys: exact amounts,
 * or estimates from a sample. */
#ifndef ONS_TOPK_SAMPLE_RANGES_CUH
#define ONS_TOPK_SAMPLE_RANGES_CUH

#include "sample_team.cuh"

/* A sample has one of SAMPLED tokens of a row. SAMPLED_TOGETHER lanes read 128 neighbouring bytes
 * of a float32 row, so they read whole lines of memory. */
constexpr int SAMPLED = 8, SAMPLED_TOGETHER = 2;
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

/* Two sums for each range: of masses and of numbers of tokens, or of the masses of two spans. Range
 * 0 comes first in the order of tokens. A sum has two halves, since shared memory adds 32 bits at
 * once. */
struct alignas(mass_type) sums_of_ranges {
    uint32_t low[2][TEAM_RANGES], high[2][TEAM_RANGES];

    /* A block must call it. */
    __device__ void clear() {
        __syncthreads();
        for (int i = threadIdx.x; i < 4 * TEAM_RANGES; i += blockDim.x) ((uint32_t *)this)[i] = 0;
        __syncthreads();
    }
    __device__ void add(int sum, int range, mass_type mass) {
        const uint32_t part = (uint32_t)mass, before = atomicAdd(low[sum] + range, part);
        const uint32_t rest = (uint32_t)(mass >> 32) + (before + part < part);
        if (rest) atomicAdd(high[sum] + range, rest);
    }
    __device__ mass_type added(int sum, int range) const {
        return (mass_type)high[sum][range] << 32 | low[sum][range];
    }

    /* Replaces each sum of a range by the sum over all ranges up to this one. A block must call
     * it. */
    __device__ void sum_up() {
        constexpr int n = RANGES_A_THREAD;
        const int first = n * threadIdx.x;
        mass_type own[2][n], all[2] = {0, 0};
        __syncthreads();
        for (int s = 0; s < 2; s++)
            for (int i = 0; i < n; i++) {
                own[s][i] = added(s, first + i);
                all[s] += own[s][i];
            }
        mass_type upto[2] = {all[0], all[1]};
        sum_up_to_thread(upto);
        for (int s = 0; s < 2; s++) {
            upto[s] -= all[s];
            for (int i = 0; i < n; i++) {
                upto[s] += own[s][i];
                summed(s)[first + i] = upto[s];
            }
        }
        __syncthreads();
    }
    /* After sum_up(): a sum over the ranges up to one. */
    __device__ mass_type upto(int sum, int range) const {
        return range < 0 ? 0 : summed(sum)[range];
    }

   private:
    /* They take the place of both halves. */
    __device__ mass_type *summed(int sum) const { return (mass_type *)this + sum * TEAM_RANGES; }
};

/* The value of the tokens in each range of two spans, and their number. */
template <typename Key>
struct values_of_ranges {
    Key value[2 * TEAM_RANGES]; /* 0: none */
    uint32_t count[2 * TEAM_RANGES];

    /* A block must call it. */
    __device__ void clear() {
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * TEAM_RANGES; i += blockDim.x) value[i] = count[i] = 0;
        __syncthreads();
    }
    /* Counts a token. Returns false if it finds that the range has another value. */
    __device__ bool add(int span, int range, Key key) {
        const int i = span * TEAM_RANGES + range;
        atomicAdd(count + i, 1u);
        Key *const at = value + i;
        if (*(volatile Key *)at == key) return true;
        const Key before = exchanged(at, key);
        return before == 0 || before == key;
    }
    /* Calls visit(value, count) for each value. */
    template <typename Visit>
    __device__ void each(Visit visit) const {
        for (int i = threadIdx.x; i < 2 * TEAM_RANGES; i += blockDim.x)
            if (count[i]) visit(value[i], count[i]);
    }

   private:
    __device__ static uint32_t exchanged(uint32_t *at, uint32_t key) { return atomicExch(at, key); }
    __device__ static uint64_t exchanged(uint64_t *at, uint64_t key) {
        return atomicExch((unsigned long long *)at, (unsigned long long)key);
    }
};

/* The amounts of the tokens in ranges. */
struct amounts_of_ranges : sums_of_ranges {
    enum { MASS, COUNT };

    __device__ void add(int range, mass_type mass, uint32_t count = 1) {
        atomicAdd(low[COUNT] + range, count);
        sums_of_ranges::add(MASS, range, mass);
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
                        if (added(MASS, i)) atomicAdd(message.mass + i, added(MASS, i));
                        if (low[COUNT][i]) atomicAdd(message.count + i, low[COUNT][i]);
                    }
                },
                [&](const auto &message) {
                    others = read_sent(&message.others);
                    for (int i = threadIdx.x; i < TEAM_RANGES; i += blockDim.x) {
                        const mass_type mass = __ldcg(message.mass + i);
                        low[MASS][i] = (uint32_t)mass;
                        high[MASS][i] = (uint32_t)(mass >> 32);
                        low[COUNT][i] = __ldcg(message.count + i);
                    }
                });
        sum_up();
        return others;
    }

    /* After sum_up(): the amount of all ranges up to one. */
    __device__ amount upto(int range) const {
        return {sums_of_ranges::upto(MASS, range), sums_of_ranges::upto(COUNT, range)};
    }

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
};

/* Estimates for ranges of logits. After sum_up() each entry is for all ranges up to this one: the
 * number of their tokens, their mass, and the variance of this mass. */
struct row_sample {
    union {
        float tokens_upto[TEAM_RANGES];
        uint32_t tokens[TEAM_RANGES]; /* before sum_up(): the number of sampled tokens */
    };
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

    /* Sums up the ranges. Ranges before first_sampled have listed tokens only. p_of(range) is the
     * probability of a token there. The last range has `last_mass`. A block must call it. */
    template <typename ProbabilityOf>
    __device__ void sum_up(int first_sampled, float last_mass, ProbabilityOf p_of) {
        const int first = RANGES_A_THREAD * threadIdx.x;
        float own[RANGES_A_THREAD][3], all[3] = {0, 0, 0};
        __syncthreads();
#pragma unroll
        for (int i = 0; i < RANGES_A_THREAD; i++) {
            const int range = first + i;
            const float n = range < first_sampled ? 0 : SAMPLED * (float)tokens[range],
                        p = range == TEAM_RANGES - 1 ? last_mass / fmaxf(n, 1) : p_of(range);
            own[i][0] = n;
            own[i][1] = (float)listed[range] / WHOLE_LISTED + n * p;
            own[i][2] = (SAMPLED - 1) * p * n * p;
            for (int j = 0; j < 3; j++) all[j] += own[i][j];
        }
        float upto[3] = {all[0], all[1], all[2]};
        sum_up_to_thread(upto);
        for (int j = 0; j < 3; j++) upto[j] -= all[j];
#pragma unroll
        for (int i = 0; i < RANGES_A_THREAD; i++) {
            for (int j = 0; j < 3; j++) upto[j] += own[i][j];
            tokens_upto[first + i] = upto[0];
            mass[first + i] = upto[1];
            variance[first + i] = upto[2];
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
    __device__ float tokens_between(int first, int last) const {
        return tokens_upto[last] - (first > 0 ? tokens_upto[first - 1] : 0);
    }
    /* The standard deviation of share_upto(range), whose last token stands for the mass `one`. */
    __device__ float deviation_at(int range, float one) const {
        const float share = share_upto(range), rest = 1 - share, upto = variance[range],
                    after = variance[TEAM_RANGES - 1] - upto;
        return sqrtf(upto * rest * rest + fmaxf(after, 0) * share * share + one * one) /
               mass[TEAM_RANGES - 1];
    }
};

/* Shared memory of a block. `which` 0 is for ranges of logits, for a sample, or for the ranges of
 * held tokens. `which` 1 is for ranges of keys or of places. */
union memory_of_ranges {
    amounts_of_ranges amounts;
    sums_of_ranges of_spans;
    row_sample sample;
};
__device__ inline memory_of_ranges &ranges_of_block(int which) {
    __shared__ __align__(16) char ranges[2][sizeof(memory_of_ranges)];
    return *(memory_of_ranges *)ranges[which];
}
/* The values take the place of both memories of ranges_of_block(). */
template <typename Key>
__device__ inline values_of_ranges<Key> &values_of_block() {
    static_assert(sizeof(values_of_ranges<Key>) <= 2 * sizeof(memory_of_ranges));
    return *(values_of_ranges<Key> *)&ranges_of_block(0);
}

#endif
