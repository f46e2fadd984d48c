/* cluster.cu - the blocks of a thread-block cluster share one row through distributed shared memory
 * (sm_90 and later). Each warp holds its part in registers as in fused_block, and sends its (m, d)
 * to every block of the cluster (team/cluster.cuh). A block waits until the pairs of all warps have
 * arrived, and merges them (statistic/merge.cuh).
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at the largest cluster that the
 * GPU grants, with CLUSTER_THREADS threads of CLUSTER_CHUNKS chunks a block. Rows without gaps have
 * up to LONG_CLUSTER_THREADS, except in float64. cluster_smem.cu takes longer rows. With a gradient
 * it moves 2 reads + 1 write, and a block has at most GRADIENT_THREADS. */
#include "driver/device.cuh"
#include "kernel/held.cuh"
#include "kernel/launch_divergence.cuh"
#include "kernel/launch_loss.cuh"
#include "kernel/launch_gradient.cuh"
#include "team/strips_of_columns.cuh"

/* The most threads of a block. A multiprocessor must hold WARPS warps. They form two blocks, or
 * with a gradient blocks of GRADIENT_THREADS threads. */
template <typename Ops, int WARPS>
constexpr int MAX_THREADS = TAKES_TWO_ROWS<Ops> ? GRADIENT_THREADS : WARPS / 2 * WARP;

template <typename Ops, typename Rows, typename Form, int K, int WARPS>
__global__ void __launch_bounds__(MAX_THREADS<Ops, WARPS>, WARPS *WARP / MAX_THREADS<Ops, WARPS>)
    cluster_kernel(const __grid_constant__ typename Rows::arguments args) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ arrivals arrived, answered; /* answered: in the column form only */
    if constexpr (Form::ROWS == 1) {
        cluster<Rows, K> team(args, shared, arrived);
        await_earlier_work(args.launch.next_may_start);
        held<Ops, Rows, K>(args, team);
    } else {
        strip_of_cluster<Form, typename Rows::Real> team(shared, arrived, answered);
        await_earlier_work(args.launch.next_may_start);
        held<Ops, Rows, K>(args, team);
    }
#endif
}

template <typename Rows, typename Form, typename Part = state<typename Rows::Real>>
launch_shape shape_of(const ons_plan *plan) {
    launch_shape shape = {plan->blocks_a_row, plan->threads};
    shape.cluster = (int)plan->blocks_a_row;
    int warps = plan->threads / WARP;
    using Real = typename Rows::Real;
    constexpr bool OF_SUMS = std::is_same_v<Part, sum_in_double<Real>>;
    shape.shared_bytes = Form::ROWS == 1 ? shape.cluster * warps * (int)sizeof(Part)
                         : OF_SUMS       ? strip_bytes_of_sums<Real>(shape.cluster, warps)
                                         : strip_bytes<Real>(shape.cluster, warps);
    return shape;
}

/* Whether there are kernels for more warps on a multiprocessor than usual. Each thread then has
 * fewer registers, and spills a few float32 elements. */
template <typename Rows>
constexpr bool has_more_warps = false;
template <typename X, alignment ALIGNED>
constexpr bool has_more_warps<contiguous_rows<X, ALIGNED>> =
    sizeof(typename compute_of<X>::type) == sizeof(float) &&
    contiguous_rows<X, ALIGNED>::CLUSTER_WARPS < CLUSTER_WARPS_OF_320_THREADS;

template <typename X, alignment ALIGNED>
constexpr bool has_more_warps<loss_rows<X, ALIGNED>> = has_more_warps<contiguous_rows<X, ALIGNED>>;

/* Calls body(the number of warps that fit a multiprocessor, as a constant). */
template <typename Rows, typename Body>
static ons_status with_warps(int threads, Body body) {
    constexpr int USUAL = Rows::CLUSTER_WARPS;
    const int warps = 2 * threads / WARP;
    if constexpr (has_more_warps<Rows>)
        if (warps > USUAL)
            return with_constant<CLUSTER_WARPS_OF_320_THREADS, CLUSTER_WARPS_OF_384_THREADS>(
                warps > CLUSTER_WARPS_OF_320_THREADS ? CLUSTER_WARPS_OF_384_THREADS
                                                     : CLUSTER_WARPS_OF_320_THREADS,
                body);
    return body(std::integral_constant<int, USUAL>());
}

template <typename Form>
static auto launch_gradient_columns(const launch_request &request, Form) {
    return [&request](auto rows) {
        using Rows = typename decltype(rows)::Rows;
        constexpr int WARPS = Rows::CLUSTER_BLOCKS * GRADIENT_THREADS / WARP;
        return launch_strips(
            request, shape_of<Rows, Form, sum_in_double<typename Rows::Real>>(request.plan),
            cluster_kernel<gradient_operations, Rows, Form, BLOCK_CHUNKS, WARPS>, rows.arguments);
    };
}

ons_status launch_gradients_in_cluster(const launch_request &request) {
    if (request.plan->loader == ONS_PACKED)
        return with_packed_gradients(
            request, launch_gradient_columns(request, block_of_packs<CHUNK<float>>()));
    if (request.plan->form == ONS_COLUMN_FORM)
        return with_gradient_columns(request, launch_gradient_columns(request, block_of_columns()));
    return with_gradient_rows(request, [&](auto rows) {
        using Rows = typename decltype(rows)::Rows;
        auto launch_with = [&](auto K) {
            constexpr int CHUNKS = decltype(K)::value,
                          WARPS = ons_gradient_warps(Rows::IS_16_BIT, CHUNKS > BLOCK_CHUNKS);
            return launch_strips(
                request,
                shape_of<Rows, block_a_row, sum_in_double<typename Rows::Real>>(request.plan),
                cluster_kernel<gradient_operations, Rows, block_a_row, CHUNKS, WARPS>,
                rows.arguments);
        };
        const int chunks = request.plan->elements_a_thread / Rows::V;
        if constexpr (Rows::ALL_ALIGNED)
            return launch_with(std::integral_constant<int, GRADIENT_CLUSTER_CHUNKS>());
        else if constexpr (Rows::HAS_CLUSTER_CHUNKS)
            return with_constant<BLOCK_CHUNKS, GRADIENT_CLUSTER_CHUNKS>(chunks, launch_with);
        else
            return launch_with(std::integral_constant<int, BLOCK_CHUNKS>());
    });
}

ons_status launch_divergences_in_cluster(const launch_request &request) {
    return with_divergence_rows(request, [&](auto rows) {
        using Rows = typename decltype(rows)::Rows;
        using Real = typename Rows::Real;
        auto launch_with = [&](auto K) {
            constexpr int CHUNKS = decltype(K)::value,
                          WARPS = ons_gradient_warps(Rows::IS_16_BIT, CHUNKS > BLOCK_CHUNKS);
            return launch_strips(
                request, shape_of<Rows, block_a_row, divergence_state<Real, Real>>(request.plan),
                cluster_kernel<divergence_operation, Rows, block_a_row, CHUNKS, WARPS>,
                rows.arguments);
        };
        const int chunks = request.plan->elements_a_thread / Rows::V;
        if constexpr (Rows::ALL_ALIGNED)
            return launch_with(std::integral_constant<int, GRADIENT_CLUSTER_CHUNKS>());
        else
            return with_constant<BLOCK_CHUNKS, GRADIENT_CLUSTER_CHUNKS>(chunks, launch_with);
    });
}

ons_status launch_losses_in_cluster(const launch_request &request) {
    return with_loss_rows<ONS_FAMILY_cluster>(request, [&](auto rows) {
        using Rows = typename decltype(rows)::Rows;
        return with_warps<Rows>(request.plan->threads, [&](auto warps) {
            return launch_strips(request, shape_of<Rows, block_a_row>(request.plan),
                                 cluster_kernel<loss_operation, Rows, block_a_row, CLUSTER_CHUNKS,
                                                decltype(warps)::value>,
                                 rows.arguments);
        });
    });
}

ons_status launch_cluster(const launch_request &request) {
    constexpr ons_family FAMILY = ONS_FAMILY_cluster;
    const ons_plan *plan = request.plan;
    auto launch_as = [&](auto form) {
        using Form = decltype(form);
        return [&request, plan](auto ops, auto rows) {
            using Rows = typename decltype(rows)::Rows;
            return with_warps<Rows>(plan->threads, [&](auto warps) {
                return launch_strips(request, shape_of<Rows, Form>(plan),
                                     cluster_kernel<decltype(ops), Rows, Form, CLUSTER_CHUNKS,
                                                    decltype(warps)::value>,
                                     rows.arguments);
            });
        };
    };
    if (plan->loader == ONS_PACKED)
        return with_slices<FAMILY, whole_packs>(request, launch_as(block_of_packs<CHUNK<float>>()));
    if (plan->form == ONS_COLUMN_FORM)
        return with_columns<FAMILY>(request, launch_as(block_of_columns()));
    return with_rows<FAMILY>(request, launch_as(block_a_row()));
}

template <typename Rows, typename Form>
static int largest_cluster() {
    auto *kernel =
        (const void *)cluster_kernel<row_shaped, Rows, Form, CLUSTER_CHUNKS, Rows::CLUSTER_WARPS>;
    ons_plan full = {};
    full.threads = CLUSTER_THREADS;
    for (int blocks = LARGEST_CLUSTER; blocks > 1; blocks /= 2) {
        full.blocks_a_row = blocks;
        if (active_clusters(kernel, blocks, CLUSTER_THREADS,
                            shape_of<Rows, Form>(&full).shared_bytes) > 0)
            return blocks;
    }
    return 0;
}

void largest_clusters(int *of_contiguous, int *of_any) {
    *of_contiguous = largest_cluster<contiguous_rows<float, alignment::EITHER>, block_a_row>();
    *of_any = largest_cluster<general_rows<double>, block_of_columns>();
}
