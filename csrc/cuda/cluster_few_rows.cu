/* cluster_few_rows.cu - cluster, of rows so few that most of the GPU would be idle: more blocks for
 * each, and SHARERS warps of a block for what is one warp's elsewhere, since the fewer elements a
 * warp has, the sooner it is done. They exchange their maxima and then what each lane has of the
 * sum, and add up as that one warp would: the bits are those of cluster.cu. */
#include "kernel/launch_rows.cuh"
#include "team/arrivals.cuh"
#include "team/reduce.cuh"
#include "statistic/finish.cuh"

#if __CUDA_ARCH__ >= 900
/* Of the warps that share a part of a row, in shared memory. All threads of the block come to max
 * once, then once to normalizer. */
template <typename Real, int WARPS, int SHARERS>
class sharers {
   public:
    __device__ Real max(Real v) {
        v = max_over_lanes<WARP>(v);
        if (threadIdx.x % WARP == 0) maxima[warp_of_block()] = v;
        __syncthreads();
        v = maxima[first()];
#pragma unroll
        for (int i = 1; i < SHARERS; i++) v = larger(v, maxima[first() + i]);
        return v;
    }

    /* d of the part, for its first warp. */
    __device__ Real normalizer(Real lifted) {
        const int lane = threadIdx.x % WARP;
        of_lanes[warp_of_block()][lane] = lifted;
        __syncthreads();
        const auto sum =
            sum_as_tree<SHARERS>(0, [&](int i) { return of_lanes[first() + i][lane]; });
        return normalizer_over_lanes<WARP>(sum);
    }

   private:
    __device__ static int first() { return warp_of_block() / SHARERS * SHARERS; }

    Real maxima[WARPS], of_lanes[WARPS][WARP];
};
#endif

template <typename Ops, typename Rows, int SHARERS>
__global__ void __launch_bounds__(CLUSTER_FEW_ROWS_THREADS, 1)
    cluster_few_rows_kernel(const __grid_constant__ typename Rows::arguments args) {
#if __CUDA_ARCH__ >= 900
    using Real = typename Rows::Real;
    constexpr int K = CLUSTER_CHUNKS / SHARERS, WARPS = CLUSTER_FEW_ROWS_THREADS / WARP;
    __shared__ state<Real> parts[LARGEST_CLUSTER * WARPS / SHARERS];
    __shared__ sharers<Real, WARPS, SHARERS> shared;
    __shared__ arrivals arrived;
    const int parts_a_block = warps_of_block() / SHARERS,
              parted = (int)cluster_size() * parts_a_block;
    const int part = (int)cluster_rank() * parts_a_block + warp_of_block() / SHARERS;
    const int sharer = warp_of_block() % SHARERS;
    arrived.make_ready();
    arrivals::say_ready();
    await_earlier_work();

    Rows::template visit<false, TEST_WHEN_HELD<Rows>>(args, cluster_index(), [&](const auto &row) {
        const int chunk = block_a_row::template chunk<K>(part * SHARERS + sharer);
        auto tile = converted(row.template load<K, WARP>(chunk));
        Real x[K * Rows::V];
        auto m = shared.max(tile.largest());
        [[maybe_unused]] Real excluded = 0;
        with_operation<Ops>(args.operation(), [&](auto op) {
            using Op = decltype(op);
            auto d = shared.normalizer(keep_and_sum<Op>(args.operation(), tile, reference(m), x));
            arrivals::await_ready();
            arrived.announce(parted * sizeof(state<Real>));
            const int to = threadIdx.x % WARP;
            if (sharer == 0 && to < (int)cluster_size()) arrived.send(parts + part, to, {m, d});
            arrived.await();
            const auto total = block_a_row::merge_held(parts, parted);
            if constexpr (Op::ONE_A_ROW)
                put_value<Op>(args, cluster_index(), part == 0 && threadIdx.x == 0, row, total);
            else
                excluded = finish_kept<Op, Real>(args.operation(), x, m, total);
        });
        if constexpr (!Ops::ONE_A_ROW)
            row.template store<K, WARP, true>(chunk, x, tile.allowed(), excluded);
    });
#endif
}

/* Rows without gaps, whatever the result. */
struct kinds_in_few_rows {
    template <typename Ops>
    static constexpr ons_kinds_of_rows KINDS = ONS_CONTIGUOUS_ROWS;
};

ons_status cluster_few_rows(const launch_request &request) {
    const ons_plan *plan = request.plan;
    return with_contiguous_rows<kinds_in_few_rows, aligned_kernels::HELD>(
        request, [&](auto ops, auto rows) -> ons_status {
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
