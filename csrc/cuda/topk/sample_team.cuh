/* topk/sample_team.cuh - a team: blocks that share a row of the sampler (sample_team.cu). They send
 * each other messages in device memory. */
#ifndef ONS_TOPK_SAMPLE_TEAM_CUH
#define ONS_TOPK_SAMPLE_TEAM_CUH

#include "../kernel/passes.cuh"
#include "sample.cuh"

constexpr int TEAM_RANGES = ONS_TEAM_RANGES, TEAM_ROOM = ONS_TEAM_ROOM,
              TEAM_WARPS = PASS_THREADS / WARP;

/* What some tokens amount to. */
struct amount {
    mass_type mass, count;

    __device__ mass_type by(bool count_them) const { return count_them ? count : mass; }
    __device__ amount operator+(const amount &other) const {
        return {mass + other.mass, count + other.count};
    }
};
__device__ inline amount over_warp(const amount &mine) {
    return {mass_of_warp(mine.mass), mass_of_warp(mine.count)};
}

/* What the blocks of a team send each other at one time. Before that it is 0. */
template <typename Real>
struct team_message {
    mass_type mass[TEAM_RANGES];
    uint32_t count[TEAM_RANGES];
    amount others; /* amounts that have no range */
    uint32_t listed, place;
    amount of_block[ONS_MOST_TEAM_BLOCKS];
    entry<Real> list[TEAM_ROOM];

    /* The words that must be 0. `step` threads call it, with numbers from 0 on. */
    __device__ void clear(int thread, int step) {
        constexpr int WORDS = offsetof(team_message, of_block) / sizeof(uint32_t);
        for (int i = thread; i < WORDS; i += step) ((uint32_t *)this)[i] = 0;
    }
};

/* A token that a team holds, or a value. */
template <typename Real>
struct alignas(2 * sizeof(Real)) held_token {
    Real x; /* the logit */
    uint32_t place_or_count;
};

/* Memory that the blocks of a team share. At first the sums, the number of held tokens and
 * `arrived` are 0. */
template <typename Real>
struct team_memory {
    mass_type sums[3];
    uint32_t held, arrived;
    held_token<Real> held_list[ONS_TEAM_HELD];
    team_message<Real> message[3];
};

/* Clears this memory of all teams. All threads of the kernel before sample_team.cu call it. */
template <typename Real>
__device__ inline void clear_teams(const token_lists<Real> &lists) {
    auto *const memory = (team_memory<Real> *)lists.teams;
    for (int64_t team = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; team < lists.team_count;
         team += (int64_t)gridDim.x * blockDim.x) {
        for (auto &sum : memory[team].sums) sum = 0;
        memory[team].held = memory[team].arrived = 0;
    }
}

template <typename Real>
class block_team {
   public:
    __device__ block_team(team_memory<Real> *memory_, int size_, int own_)
        : size(size_), own(own_), memory(memory_) {}

    /* Calls write(message) in all blocks, and then read(message). A message is used again at the
     * third time. In between, each block clears a part of it: all blocks have read it by then. */
    template <typename Write, typename Read>
    __device__ void exchange(Write write, Read read) {
        if (turn < 0) { /* the first exchange */
            turn = 0;
            clear(memory->message[0]);
            meet();
        }
        team_message<Real> &now = memory->message[turn];
        turn = turn == 2 ? 0 : turn + 1;
        write(now);
        clear(memory->message[turn]);
        meet();
        read(now);
        __syncthreads();
    }

    /* Returns when all blocks of the team have called it. */
    __device__ void meet() {
        __syncthreads();
        if (threadIdx.x == 0) {
            expected += size;
            __threadfence();
            atomicAdd(&memory->arrived, 1u);
            while ((int)(*(volatile uint32_t *)&memory->arrived - expected) < 0) {
            }
            __threadfence();
        }
        __syncthreads();
    }

    const int size, own;
    team_memory<Real> *const memory;

   private:
    __device__ void clear(team_message<Real> &message) const {
        message.clear(own * blockDim.x + threadIdx.x, size * blockDim.x);
    }

    int turn = -1; /* the next message; -1: none is clear */
    uint32_t expected = 0;
};

/* Another block may have written it, so no cache of this multiprocessor is asked. */
template <typename T>
__device__ inline T read_sent(const T *from) {
    static_assert(sizeof(T) % sizeof(uint32_t) == 0, "read in words");
    T value;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / sizeof(uint32_t)); i++)
        ((uint32_t *)&value)[i] = __ldcg((const uint32_t *)from + i);
    return value;
}

/* The sum of a block's amounts. A block must call it. */
__device__ inline amount over_block(const amount &mine) {
    __shared__ amount of_warps[TEAM_WARPS];
    const amount of_warp = over_warp(mine);
    __syncthreads(); /* all have read the last sums */
    if (threadIdx.x % WARP == 0) of_warps[warp_of_block()] = of_warp;
    __syncthreads();
    amount all = of_warps[0];
#pragma unroll
    for (int i = 1; i < TEAM_WARPS; i++) all = all + of_warps[i];
    return all;
}

/* Replaces each of this thread's numbers by the sum of the numbers of all threads up to this one. A
 * block must call it. */
template <typename T, int n>
__device__ inline void sum_up_to_thread(T (&numbers)[n]) {
    __shared__ T of_warps[n][TEAM_WARPS];
    const int lane = threadIdx.x % WARP, warp = warp_of_block();
    __syncthreads(); /* all have read the last sums */
#pragma unroll
    for (int j = 0; j < n; j++) {
        numbers[j] = sum_up_to_lane<WARP>(numbers[j], lane);
        if (lane == WARP - 1) of_warps[j][warp] = numbers[j];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TEAM_WARPS; i++)
#pragma unroll
        for (int j = 0; j < n; j++)
            if (i < warp) numbers[j] += of_warps[j][i];
}

/* Adds a block's amount to the sum of its team. */
template <typename Real>
__device__ inline void send(const amount &of_block, team_message<Real> &message) {
    if (threadIdx.x != 0) return;
    atomicAdd(&message.others.mass, of_block.mass);
    atomicAdd(&message.others.count, of_block.count);
}

/* The sum of a team's amounts. */
template <typename Real>
__device__ inline amount over_team(block_team<Real> &team, const amount &mine) {
    amount all = over_block(mine);
    if (team.size > 1)
        team.exchange([&](auto &message) { send(all, message); },
                      [&](const auto &message) { all = read_sent(&message.others); });
    return all;
}

#endif
