/* cluster.cu - the blocks of a thread-block cluster share one row through distributed shared memory
 * (sm_90 and later). Each warp holds its part in registers as in fused_block, and sends its (m, d)
 * to every block of the cluster; a block goes on once all have arrived.
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at the largest cluster that the
 * GPU grants, of CLUSTER_THREADS threads with CLUSTER_CHUNKS chunks each, of LONG_CLUSTER_THREADS
 * where rows have no gaps and are not of float64; longer ones are cluster_smem.cu's. */
#include "driver/device.cuh"
#include "kernel/launch_packs.cuh"
#include "team/strip.cuh"
#include "rows/fetch.cuh"
#include "statistic/finish.cuh"

#if __CUDA_ARCH__ >= 900
/* This thread's row, read anew each time. */
template <typename Form>
struct row_of_cluster {
    __device__ operator int64_t() const {
        return (int64_t)cluster_index() * Form::ROWS + Form::row();
    }
};
#endif

/* Whether warps without elements of the row return at once. That pays for unaligned 16-bit rows,
 * which instructions bound. */
template <typename Rows>
constexpr bool empty_warps_leave = false;
template <typename X>
constexpr bool empty_warps_leave<contiguous_rows<X, false>> = contiguous_rows<X, false>::IS_16_BIT;

template <typename Rows>
__device__ inline int warps_with_elements(int64_t N) {
    constexpr int PART = CLUSTER_CHUNKS * WARP * Rows::V;
    return (int)((N + PART - 1) / PART);
}

/* In shared memory, in the row form: the states of every warp of the cluster, warp `w` of block `r`
 * at part r * warps + w. In the column form: a strip_of_cluster.
 *
 * WARPS fit a multiprocessor, as two blocks or more. */
template <typename Ops, typename Rows, typename Form, int WARPS>
__global__ void __launch_bounds__(WARPS *WARP / 2, 2)
    cluster_kernel(const __grid_constant__ typename Rows::arguments args) {
#if __CUDA_ARCH__ >= 900
    using Real = typename Rows::Real;
    extern __shared__ __align__(16) unsigned char shared[];
    auto *parts = (state<Real> *)shared;
    __shared__ arrivals arrived, answered; /* the latter in the column form alone */
    const uint32_t blocks = cluster_size();
    const int warps = warps_of_block();
    auto warp = [&] { return (int)(cluster_rank() * warps + thread_of_block() / WARP); };
    auto chunk = [&] { return Form::template chunk<CLUSTER_CHUNKS>(warp()); };
    arrived.make_ready();
    if constexpr (Form::ROWS > 1) answered.make_ready();
    arrivals::say_ready();
    await_earlier_work();

    Rows::template visit<(Form::ROWS > 1), TEST_WHEN_HELD<Rows>>(
        args, row_of_cluster<Form>(), [&](const auto &row) {
            if constexpr (Form::ROWS == 1 && empty_warps_leave<Rows>)
                if (warp() >= warps_with_elements<Rows>(args.N)) return;
            auto tile = row.template load<CLUSTER_CHUNKS, Form::STRIDE>(chunk());
            Real x[CLUSTER_CHUNKS * Rows::V];
            const auto largest = tile.largest();
            if constexpr (Form::ROWS == 1)
                fetching<Rows>::template ahead<CLUSTER_CHUNKS>(args, cluster_index(), warp());
            auto m = Form::max(largest);

            [[maybe_unused]] Real excluded = 0;
            with_operation<Ops>(args.operation(), [&](auto op) {
                using Op = decltype(op);
                auto d =
                    Form::normalizer(keep_and_sum<Op>(args.operation(), tile, reference(m), x));
                auto finish_by = [&](const auto &total, bool writes) {
                    if constexpr (Ops::ONE_A_ROW)
                        put_value<Op>(args, row_of_cluster<Form>(), writes, row, total);
                    else
                        excluded = finish_kept<Op, decltype(m)>(args.operation(), x, m, total);
                };
                if constexpr (Form::ROWS == 1) {
                    /* each warp sends its own, so that none waits for another of its block */
                    arrivals::await_ready();
                    const int parted = empty_warps_leave<Rows> ? warps_with_elements<Rows>(args.N)
                                                               : (int)blocks * warps;
                    arrived.announce(parted * sizeof(state<Real>));
                    /* a block that still has warps */
                    const int to = thread_of_block() % WARP;
                    if (to * warps < parted) arrived.send(parts + warp(), to, {m, d});
                    arrived.await();
                    finish_by(Form::merge_held(parts, parted), warp() == 0 && to == 0);
                } else {
                    strip_of_cluster<Real> strip(shared, arrived, answered);
                    auto constants = [&](const state<Real> &all) {
                        return constants_in<Op>(args.operation(), all);
                    };
                    finish_by(strip.template merge<Form>(m, d, constants), warp() == 0);
                }
            });
            if constexpr (!Ops::ONE_A_ROW)
                row.template store<CLUSTER_CHUNKS, Form::STRIDE, true>(chunk(), x, tile.allowed(),
                                                                       excluded);
        });
#endif
}

template <typename Rows, typename Form>
launch_shape shape_of(const ons_plan *plan) {
    launch_shape shape = {plan->blocks_a_row, plan->threads};
    shape.cluster = (int)plan->blocks_a_row;
    int warps = plan->threads / WARP;
    using Real = typename Rows::Real;
    shape.shared_bytes = Form::ROWS == 1 ? shape.cluster * warps * (int)sizeof(state<Real>)
                                         : strip_bytes<Real>(shape.cluster, warps);
    return shape;
}

/* Whether there are kernels for more warps on a multiprocessor than usual, with fewer registers
 * each: a few elements of float32 are spilled then. */
template <typename Rows>
constexpr bool has_more_warps = false;
template <typename X, bool ALL_ALIGNED>
constexpr bool has_more_warps<contiguous_rows<X, ALL_ALIGNED>> =
    sizeof(typename compute_of<X>::type) == sizeof(float) &&
    contiguous_rows<X, ALL_ALIGNED>::CLUSTER_WARPS < CLUSTER_WARPS_OF_320_THREADS;

/* Calls method(the warps that fit a multiprocessor, a constant). */
template <typename Rows, typename Method>
static ons_status with_warps(int threads, Method method) {
    constexpr int USUAL = Rows::CLUSTER_WARPS;
    const int warps = 2 * threads / WARP;
    if constexpr (has_more_warps<Rows>)
        if (warps > USUAL)
            return with_constant<CLUSTER_WARPS_OF_320_THREADS, CLUSTER_WARPS_OF_384_THREADS>(
                warps > CLUSTER_WARPS_OF_320_THREADS ? CLUSTER_WARPS_OF_384_THREADS
                                                     : CLUSTER_WARPS_OF_320_THREADS,
                method);
    return method(std::integral_constant<int, USUAL>());
}

ons_status ons_cuda_cluster(const launch_request &request) {
    const ons_plan *plan = request.plan;
    if (plan->variant == ONS_SMEM) return cluster_smem(request);
    if (plan->variant == ONS_FEW_ROWS) return cluster_few_rows(request);
    if (plan->variant == ONS_WITH_GRADIENT) return gradient_cluster(request);
    if (plan->variant == ONS_SELECTING) return topk_cluster(request);
    auto launch_as = [&](auto form) {
        using Form = decltype(form);
        return [&request, plan](auto ops, auto rows) {
            using Rows = typename decltype(rows)::Rows;
            return with_warps<Rows>(plan->threads, [&](auto warps) {
                return launch_strips(
                    request, shape_of<Rows, Form>(plan),
                    cluster_kernel<decltype(ops), Rows, Form, decltype(warps)::value>,
                    rows.arguments);
            });
        };
    };
    if (plan->loader == ONS_PACKED)
        return with_packs<kinds_in_cluster>(request, launch_as(block_of_packs<CHUNK<float>>()));
    if (plan->form == ONS_COLUMN_FORM) return with_columns(request, launch_as(block_of_columns()));
    return with_rows<kinds_in_cluster, aligned_kernels::HELD>(request, launch_as(block_a_row()));
}

template <typename Rows, typename Form>
static int largest_cluster() {
    auto *kernel = (const void *)cluster_kernel<row_shaped, Rows, Form, Rows::CLUSTER_WARPS>;
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

void largest_clusters(int *least, int *most) {
    *least = largest_cluster<contiguous_rows<float, false>, block_a_row>();
    *most = largest_cluster<general_rows<double>, block_of_columns>();
}
