/* topk/large.cu - online of the operation that selects, for k above ONS_LARGEST_K: a block a row.
 * The pair runs over the tiles; then the k-th entry is found digit by digit, of 8 bits each, of the
 * keys and then of the places of those that are equal to it, by counting the elements with each
 * digit; then the entries from it on are listed in the workspace and sorted there.
 *
 * Reads N 3 to 14 times. */
#include "../kernel/passes.cuh"
#include "launch.cuh"

/* The digits of an entry, the first one first: 8 bits each of its key, then of its place. */
template <typename Real>
struct digits_of {
    static constexpr int OF_KEY = sizeof(key_type<Real>), ALL = OF_KEY + 4;
    __device__ static uint32_t digit(const entry<Real> &one, int i) {
        return i < OF_KEY ? (uint32_t)(one.key() >> 8 * (OF_KEY - 1 - i)) & 255
                          : ~one.index() >> 8 * (ALL - 1 - i) & 255;
    }
};

/* Calls visit(entry) for the elements of the row that this thread has. */
template <typename Row, typename Visit>
__device__ inline void each_entry(const Row &row, Visit visit) {
    using Real = typename Row::Real;
    for_each_tile<block_a_row, TILE_CHUNKS>(row, 0, chunks_of(row), [&](int64_t chunk, auto tile) {
        constexpr int V = Row::V;
#pragma unroll 1
        for (int e = 0; e < TILE_CHUNKS * V; e++) {
            const int64_t at = chunk * V + place<WARP, V>(e);
            if (at < row.N) visit(entry<Real>::make(key_of(tile.element(e)), (uint32_t)at));
        }
    });
}

/* Those of the row that are not behind the k-th entry: all digits from one on are lowest in it,
 * where those before say enough. */
template <typename Row>
__device__ inline entry<typename Row::Real> find_last(const Row &row, uint32_t k) {
    using Real = typename Row::Real;
    using Digits = digits_of<Real>;
    __shared__ uint32_t counts[256], chosen, wanted, found;
    key_type<Real> key = 0;
    uint32_t place = 0; /* as an entry has it: ~index */
    if (threadIdx.x == 0) wanted = k;
#pragma unroll 1
    for (int i = 0; i < Digits::ALL; i++) {
        for (uint32_t j = threadIdx.x; j < 256; j += blockDim.x) counts[j] = 0;
        __syncthreads();
        const int shift = i < Digits::OF_KEY ? 8 * (Digits::OF_KEY - i) : 0;
        const int place_shift = i < Digits::OF_KEY ? 32 : 8 * (Digits::ALL - i);
        each_entry(row, [&](const entry<Real> &one) {
            const bool same_key =
                shift == 8 * (int)sizeof(key) || one.key() >> shift == key >> shift;
            const bool same_place =
                place_shift == 32 || ~one.index() >> place_shift == place >> place_shift;
            if (same_key && same_place) atomicAdd(&counts[Digits::digit(one, i)], 1);
        });
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t left = wanted, digit = 255;
            for (; counts[digit] < left; digit--) left -= counts[digit];
            chosen = digit;
            found = counts[digit] == left;
            wanted = left;
        }
        __syncthreads();
        if (i < Digits::OF_KEY)
            key |= (key_type<Real>)chosen << 8 * (Digits::OF_KEY - 1 - i);
        else
            place |= chosen << 8 * (Digits::ALL - 1 - i);
        const bool done = found;
        __syncthreads();
        if (done) break;
    }
    return entry<Real>::make(key, ~place);
}

template <typename Rows>
__global__ void __launch_bounds__(PASS_THREADS)
    topk_large_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    await_earlier_work();
    using Real = typename Rows::Real;
    using Entry = entry<Real>;
    __shared__ state<Real> parts[PASS_THREADS / WARP];
    __shared__ uint32_t listed;
    const uint32_t room = power_from((uint32_t)args.k);
    Entry *const list = (Entry *)args.workspace + (int64_t)blockIdx.x * room;
#pragma unroll 1
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        __syncthreads();
        if (threadIdx.x == 0) listed = 0;
        const auto from = Rows::template row<false>(args, row);
        running_state<Real> so_far;
        for_each_tile<block_a_row, TILE_CHUNKS>(
            from, 0, chunks_of(from),
            [&](int64_t, const auto &tile) { online_step(so_far, tile); });
        const state<Real> total =
            merge_block<block_a_row>(block_a_row::merge_warp(so_far.rounded()), parts);
        const Entry last = find_last(from, (uint32_t)args.k);
        each_entry(from, [&](const Entry &one) {
            if (!last.is_before(one)) list[atomicAdd(&listed, 1)] = one;
        });
        for (uint32_t i = args.k + threadIdx.x; i < room; i += blockDim.x) list[i] = {};
        __syncthreads();
        sort_entries(list, room);
        topk_of_row<Rows> results(args, row, total);
        for (uint32_t i = threadIdx.x; i < (uint32_t)args.k; i += blockDim.x)
            results.put(i, list[i]);
        results.template end<0>();
        if (threadIdx.x == 0) put_pair(args, row, total);
    }
}

ons_status launch_topk_large(const launch_request &request) {
    const ons_plan *plan = request.plan;
    auto launch_with = [&](auto rows, const auto &arguments) {
        using Rows = typename decltype(rows)::Rows;
        const launch_shape shape = {plan->blocks_a_row, plan->threads};
        return launch(request, shape, topk_large_kernel<Rows>, arguments);
    };
    return plan->compute == ONS_FLOAT64 ? with_topk_arguments<general_rows<double>>(
                                              request, as_it_is(request), 1, launch_with)
                                        : with_topk_arguments<general_rows<float>>(
                                              request, as_it_is(request), 1, launch_with);
}
