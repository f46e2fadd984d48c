/* logprob.cu - log-probabilities, entropy, argmax and rank of each row (api/logprob.h). Blocks
 * share a row in parts, as in split.cu, whatever the number of rows. The first kernel writes the
 * moments of each part. In the second a warp takes a row, merges its parts and writes the results.
 * Moves 1 read of N; any N. */
#include "../api/logprob.h"
#include "../api/loss.h"
#include "kernel/parts_of_rows.cuh"
#include "statistic/moments.cuh"
#include "statistic/pair_d.cuh"

template <typename Rows>
constexpr int CHUNKS = sizeof(typename Rows::Real) == sizeof(float) ? SPLIT_CHUNKS : TILE_CHUNKS;

/* Index number i of a row, or -1 if it is no element's. */
__device__ inline int64_t index_of(const ons_logprob &of, int64_t row, int64_t i, int64_t N) {
    const int64_t at = row * of.count + i;
    const int64_t index =
        of.wide_index ? ((const int64_t *)of.index)[at] : ((const int32_t *)of.index)[at];
    return index >= 0 && index < N ? index : -1;
}

/* Element j of a row. */
template <typename Real>
__device__ inline Real element_of(const ons_operand &x, const char *row, int64_t j, int dims) {
    return read_as<Real>(row + j * x.stride[dims - 1], x.dtype);
}

template <typename Rows>
__global__ void __launch_bounds__(SPLIT_THREADS, sizeof(typename Rows::Real) == 4 ? 3 : 2)
    moments_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                   int64_t chunks_a_part, moments<typename Rows::Real> *of_parts,
                   const typename Rows::Real *chosen) {
    await_earlier_work();
    using Real = typename Rows::Real;
    constexpr int K = CHUNKS<Rows>;
    __shared__ moments<Real> warps[SPLIT_THREADS / WARP];
    const part_of_rows<Rows, block_a_row> part(args, parts, chunks_a_part);
    const auto row = part.row(args);
    const bool counts = chosen;
    const Real above = counts ? chosen[args.first_row + part.index()] : 0;
    running_moments<Real> so_far;
    for_each_tile<block_a_row, K>(row, part.begin, part.end, [&](int64_t chunk, const auto &tile) {
        so_far.add(tile, (int)(chunk / (K * WARP)), counts, above);
    });
    moments<Real> mine = merge_over_lanes(so_far.rounded());
    if (blockDim.x > WARP) {
        if (threadIdx.x % WARP == 0) warps[warp_of_block()] = mine;
        __syncthreads();
        if (warp_of_block() > 0) return;
        const bool has_one = threadIdx.x < (unsigned)warps_of_block();
        mine = merge_over_lanes(has_one ? warps[threadIdx.x] : moments<Real>::empty());
    }
    if (threadIdx.x == 0) *part.of_part(of_parts, args, parts) = mine;
}

/* The first chosen element of each row, for its rank. */
template <typename Real>
__global__ void __launch_bounds__(THREAD_A_ROW_THREADS)
    chosen_kernel(const __grid_constant__ problem_arguments args,
                  const __grid_constant__ ons_logprob of, Real *chosen) {
    await_earlier_work();
    for_each_row(args, [&](int64_t row) {
        const int64_t index = index_of(of, row, 0, args.N);
        const ons_operand &x = args.problem.operand[ONS_X];
        chosen[row] = index < 0
                          ? arithmetic<Real>::nan()
                          : element_of<Real>(x, row_address(args, row).x, index, args.problem.dims);
    });
}

/* The first element of a warp's tile that is m. A warp calls it. */
template <typename Real>
__device__ inline int64_t find(Real m, const ons_operand &x, const char *row, int dims,
                               int64_t begin, int64_t end) {
    int first = INT_MAX;
#pragma unroll 8
    for (int i = threadIdx.x % WARP; i < (int)(end - begin); i += WARP)
        if (is_same_m(element_of<Real>(x, row, begin + i, dims), m)) first = min(first, i);
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        first = min(first, __shfl_xor_sync(~0u, first, apart));
    return begin + first;
}

template <typename Real>
__device__ inline void set_real(void *array, int64_t at, double value) {
    if (array) ((Real *)array)[at] = (Real)value;
}

/* A warp takes a row. */
template <typename Real>
__global__ void __launch_bounds__(THREAD_A_ROW_THREADS)
    logprob_kernel(const __grid_constant__ problem_arguments args, int parts, int tile_elements,
                   const __grid_constant__ ons_logprob of, const moments<Real> *of_parts) {
    await_earlier_work();
    const int64_t step = (int64_t)gridDim.x * warps_of_block();
    const int lane = threadIdx.x % WARP, dims = args.problem.dims;
    const ons_operand &x = args.problem.operand[ONS_X];
#pragma unroll 1
    for (int64_t row = (int64_t)blockIdx.x * warps_of_block() + warp_of_block(); row < args.rows;
         row += step) {
        moments<Real> all = moments<Real>::empty();
#pragma unroll 1
        for (int part = lane; part < parts; part += WARP)
            all = merged(all, of_parts[row * parts + part]);
        all = merge_over_lanes(all);
        const char *const elements = row_address(args, row).x;
        const bool is_nan = isinf(all.m) || isnan(all.m);
        const double nan = arithmetic<double>::nan(), m = (double)all.m;
        const double log_d = (double)log_of_sum(all.pair()), mean = (double)all.w / (double)all.d;
        for (int64_t i = lane; i < of.count; i += WARP) {
            const int64_t index = index_of(of, row, i, args.N);
            const double apart =
                index < 0 || is_nan ? nan : (double)element_of<Real>(x, elements, index, dims) - m;
            set_real<Real>(of.chosen, row * of.count + i, apart - log_d);
            if (of.rank && i == 0) of.rank[row] = index < 0 ? -1 : all.above;
        }
        if (of.argmax) {
            const int64_t begin = (int64_t)all.tile * tile_elements,
                          end = min(begin + tile_elements, args.N);
            const int64_t first = find(all.m, x, elements, dims, begin, end);
            if (lane == 0) of.argmax[row] = first;
        }
        if (lane > 0) continue;
        set_real<Real>(of.entropy, row, is_nan ? nan : log_d - mean);
        set_real<Real>(of.lse, row, isinf(all.m) ? m : m + log_d);
        if (!of.moments) continue;
        const ons_pair pair = pair_of(all.pair());
        ((ons_pair *)of.moments)[row] = pair;
        of.moments[2 * args.rows + row] = mean;
    }
}

template <typename Real>
static ons_status write_results(const launch_request &request, const moments<Real> *of_parts,
                                int tile_elements) {
    constexpr int64_t ROWS = THREAD_A_ROW_THREADS / WARP, MAX_BLOCKS = 1 << 16;
    const int64_t blocks = min((request.plan->rows + ROWS - 1) / ROWS, MAX_BLOCKS);
    return launch(request, {blocks, THREAD_A_ROW_THREADS}, logprob_kernel<Real>, as_it_is(request),
                  (int)request.plan->blocks_a_row, tile_elements, *request.problem->logprob,
                  of_parts);
}

ons_status launch_logprob(const launch_request &request) {
    return with_rows<ONS_FAMILY_logprob>(request, [&](auto ops, auto rows) {
        using Rows = typename decltype(rows)::Rows;
        using Real = typename Rows::Real;
        const ons_plan *plan = request.plan;
        const ons_logprob &of = *request.problem->logprob;
        if constexpr (!decltype(ops)::ONE_A_ROW) {
            return ONS_E_OPERAND;
        } else {
            const int parts = (int)plan->blocks_a_row;
            auto *const of_parts = (moments<Real> *)request.workspace;
            Real *const chosen = of.rank ? (Real *)(of_parts + plan->rows * parts) : nullptr;
            if (of.rank && !request.facts) {
                const ons_status status =
                    launch_thread_a_row(request, chosen_kernel<Real>, of, chosen);
                if (status != ONS_OK) return status;
            }
            const ons_status status =
                launch_strips(request, {parts, plan->threads}, moments_kernel<Rows>, rows.arguments,
                              parts, plan->tile / Rows::V, of_parts, (const Real *)chosen);
            if (status != ONS_OK || request.facts) return status;
            return write_results<Real>(request, of_parts, CHUNKS<Rows> * WARP * Rows::V);
        }
    });
}
