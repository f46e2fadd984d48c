/* topk/route_block.cu - the router of a mixture of experts, for rows that no warp holds. A block
 * takes a row. It writes the keys to the workspace, closes groups, and finds the k-th key by
 * counting (select.cuh). It lists the k keys in the workspace and sorts them there.
 *
 * Reads N once or twice, and the keys 3 to 14 times. */
#include "../kernel/passes.cuh"
#include "route.cuh"
#include "select.cuh"
#include "sort.cuh"

/* A block's part of the workspace. */
template <typename Real>
struct route_workspace {
    using Key = key_type<Real>;
    entry<Real> *list; /* its length is the least power of two that is not below k */
    Key *keys, *groups;

    template <typename Arguments>
    __device__ route_workspace(const Arguments &args, uint32_t room) {
        char *const own = (char *)args.workspace + blockIdx.x * args.part_length;
        list = (entry<Real> *)own;
        keys = (Key *)(list + room);
        groups = keys + args.N;
    }
};

/* This thread's keys of an array. */
template <typename Key, typename Visit>
__device__ inline void each_key(const Key *keys, uint32_t n, Visit visit) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) visit(keys[i], i);
}

template <typename Rows>
__device__ inline void close_groups(const topk_arguments<Rows> &args,
                                    const route_workspace<typename Rows::Real> &space) {
    using Key = key_type<typename Rows::Real>;
    const ons_route &route = args.route;
    const uint32_t groups = (uint32_t)route.groups, in_group = (uint32_t)(args.N / groups);
    for (uint32_t g = threadIdx.x; g < groups; g += blockDim.x) {
        two_largest<Key> best;
        for (uint32_t i = 0; i < in_group; i++) best.add(space.keys[g * in_group + i]);
        space.groups[g] = best.counts(route);
    }
    __syncthreads();
    const bound<Key> open =
        bound_of_first(keys_between<Key>{0, ~Key(0)}, (uint32_t)route.top_groups,
                       [&](auto visit) { each_key(space.groups, groups, visit); });
    each_key(space.keys, (uint32_t)args.N, [&](Key, uint32_t i) {
        const uint32_t g = i / in_group;
        if (!open.has(space.groups[g], g)) space.keys[i] = NO_EXPERT;
    });
    __syncthreads();
}

template <typename Rows>
__global__ void __launch_bounds__(PASS_THREADS)
    route_block_kernel(const __grid_constant__ topk_arguments<Rows> args) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    using Key = key_type<Real>;
    __shared__ state<Real> parts[PASS_THREADS / WARP];
    __shared__ uint32_t listed;
    const uint32_t N = (uint32_t)args.N, k = (uint32_t)args.k;
    const uint32_t room = k > 1 ? 1u << (32 - __clz(k - 1)) : 1;
    const route_workspace<Real> space(args, room);
    const int64_t step = args.problem.operand[ONS_WHERE].stride[args.problem.dims - 1];
#pragma unroll 1
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        __syncthreads();
        if (threadIdx.x == 0) listed = 0;
        state<Real> total = {0, 1};
        if (args.needs_pair) {
            const auto from = Rows::template row<false>(args, row);
            running_state<Real> so_far;
            for_each_tile<block_a_row, TILE_CHUNKS>(
                from, 0, chunks_of(from),
                [&](int64_t, const auto &tile) { online_step(so_far, tile); });
            total = merge_block<block_a_row>(block_a_row::merge_warp(so_far.rounded()), parts);
        }
        const row_address at(args, row - args.launch.first_row);
        for (uint32_t i = threadIdx.x; i < N; i += blockDim.x) {
            Real x[1] = {element_at(args, at, i)};
            if (args.route.bias) {
                take_scores(args.route.score, total, x);
                x[0] += bias_of<Real>(args.route, i);
            }
            space.keys[i] = at.where && !at.where[i * step] ? (Key)EXCLUDED : key_of(x[0]);
        }
        __syncthreads();
        if (args.route.top_groups < args.route.groups) close_groups(args, space);
        const bound<Key> last = bound_of_first(keys_between<Key>{0, ~Key(0)}, k,
                                               [&](auto visit) { each_key(space.keys, N, visit); });
        each_key(space.keys, N, [&](Key key, uint32_t i) {
            if (last.has(key, i)) space.list[atomicAdd(&listed, 1)] = entry<Real>::make(key, i);
        });
        for (uint32_t i = k + threadIdx.x; i < room; i += blockDim.x) space.list[i] = {};
        __syncthreads();
        sort_entries(space.list, room);
        write_listed<0>(args, row, true, space.list, total);
    }
}

ons_status launch_route_in_block(const launch_request &request) {
    const ons_plan *plan = request.plan;
    auto launch_with = [&](auto rows, const auto &of_rows) {
        using Rows = typename decltype(rows)::Rows;
        topk_arguments<Rows> arguments = of_rows;
        arguments.part_length = plan->workspace_bytes / plan->blocks_a_row;
        const launch_shape shape = {plan->blocks_a_row, plan->threads};
        return launch(request, shape, route_block_kernel<Rows>, arguments);
    };
    return with_general_topk_rows(request, 1, launch_with);
}
