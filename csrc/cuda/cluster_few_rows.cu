/* cluster_few_rows.cu - cluster, for so few rows that most of the GPU would be idle. Each row has
 * more blocks, and SHARERS warps of a block share the part that one warp has in cluster.cu. A warp
 * with fewer elements is done sooner. The sharers exchange their maxima, then the sum of each lane,
 * and add up in the order of that one warp. So the bits are the same as in cluster.cu. */
#include "kernel/held.cuh"
#include "kernel/launch_rows.cuh"
#include "team/cluster.cuh"

#if __CUDA_ARCH__ >= 900
/* SHARERS warps of a block share each part of a row and meet in shared memory. A block has at most
 * WARPS warps. A kernel calls near() once for each kind of part. */
template <typename Real, int WARPS, int SHARERS>
class cluster_of_sharers {
   public:
    static constexpr int STRIDE = WARP;
    static constexpr bool CHECK_ROW = false, ONE_REFERENCE = false, FETCHES = false, STREAM = true;
    using sums = in_a_tree;

    struct memory {
        Real maxima[WARPS], of_lanes[WARPS][WARP];
        state<Real> parts[LARGEST_CLUSTER * WARPS / SHARERS];
        arrivals arrived;
    };

    __device__ explicit cluster_of_sharers(memory &shared_)
        : shared(shared_),
          parts_of_block(warps_of_block() / SHARERS),
          part((int)cluster_rank() * parts_of_block + warp_of_block() / SHARERS) {
        shared.arrived.make_ready();
        arrivals::say_ready();
    }

    __device__ static uint32_t row() { return cluster_index(); }
    template <int K>
    __device__ int chunk() const {
        return chunk_of_lane<K>(part * SHARERS + sharer());
    }
    __device__ bool writes() const { return part == 0 && threadIdx.x == 0; }
    __device__ static bool leaves() { return false; }

    __device__ Real near(const largest<Real> &mine) {
        const Real of_warp = mine.template over_lanes<WARP>().value();
        if (threadIdx.x % WARP == 0) shared.maxima[warp_of_block()] = of_warp;
        __syncthreads();
        Real m = shared.maxima[first()];
#pragma unroll
        for (int i = 1; i < SHARERS; i++) m = larger(m, shared.maxima[first() + i]);
        return m;
    }

    /* All sharers get the sum. The first of them sends it (far). */
    __device__ Real near(const lifted_sum<Real> &mine) {
        const int lane = threadIdx.x % WARP;
        shared.of_lanes[warp_of_block()][lane] = mine.d;
        __syncthreads();
        const lifted_sum<Real> sum = {
            sum_as_tree<SHARERS>(0, [&](int i) { return shared.of_lanes[first() + i][lane]; })};
        return sum.template over_lanes<WARP>().value();
    }

    template <typename Make>
    __device__ auto far(Real m, Real d, Make make) {
        const int blocks = cluster_size(), parted = blocks * parts_of_block;
        arrivals::await_ready();
        shared.arrived.announce(parted * sizeof(state<Real>));
        const int to = threadIdx.x % WARP;
        if (sharer() == 0 && to < blocks)
            shared.arrived.send(shared.parts + part, to, state<Real>{m, d});
        shared.arrived.await();
        return make(merge_held_by_warp(shared.parts, parted));
    }

   private:
    __device__ static int sharer() { return warp_of_block() % SHARERS; }
    __device__ static int first() { return warp_of_block() / SHARERS * SHARERS; }

    memory &shared;
    const int parts_of_block, part;
};
#endif

template <typename Ops, typename Rows, int SHARERS>
__global__ void __launch_bounds__(CLUSTER_FEW_ROWS_THREADS, 1)
    cluster_few_rows_kernel(const __grid_constant__ typename Rows::arguments args) {
#if __CUDA_ARCH__ >= 900
    using Team = cluster_of_sharers<typename Rows::Real, CLUSTER_FEW_ROWS_THREADS / WARP, SHARERS>;
    __shared__ typename Team::memory shared;
    Team team(shared);
    await_earlier_work(args.launch.next_may_start);
    held<Ops, Rows, CLUSTER_CHUNKS / SHARERS>(args, team);
#endif
}

ons_status launch_cluster_few_rows(const launch_request &request) {
    const ons_plan *plan = request.plan;
    return with_rows<ONS_FAMILY_cluster_few_rows>(request, [&](auto ops, auto rows) -> ons_status {
        using Ops = decltype(ops);
        using Rows = typename decltype(rows)::Rows;
        launch_shape shape = {plan->blocks_a_row, plan->threads};
        shape.cluster = (int)plan->blocks_a_row;
        const int sharers = CLUSTER_CHUNKS / (plan->elements_a_thread / Rows::V);
        return with_constant<MAX_SHARERS / 2, MAX_SHARERS>(sharers, [&](auto SHARERS) {
            return launch_strips(request, shape,
                                 cluster_few_rows_kernel<Ops, Rows, decltype(SHARERS)::value>,
                                 rows.arguments);
        });
    });
}
