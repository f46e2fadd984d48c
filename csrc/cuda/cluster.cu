/* cluster.cu - the blocks of a thread-block cluster share one row through distributed shared memory
 * (sm_90 and later). Each warp holds its part in registers as in fused_block, and sends its (m, d)
 * to every block of the cluster; a block goes on once all have arrived.
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at the largest cluster that the
 * GPU grants, of CLUSTER_THREADS threads with CLUSTER_CHUNKS chunks each. */
#include "finish.cuh"
#include "launch.cuh"

#if __CUDA_ARCH__ >= 900

__device__ inline uint32_t shared_address(const void *at) {
    return (uint32_t)__cvta_generic_to_shared(at);
}

__device__ inline uint32_t cluster_index() {
    uint32_t index;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
    return index;
}

/* The next two read anew each time: they need no register meanwhile. */
__device__ inline int thread_of_block() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

__device__ inline uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ inline uint32_t cluster_size() {
    uint32_t size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

/* The address of the same variable in another block's shared memory. */
__device__ inline uint32_t in_block(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

/* The barrier that counts the bytes which arrive in this block. Nobody may send before all blocks
 * of the cluster have made theirs ready: await_ready comes between, and the loads of a row can be
 * under way meanwhile. The first arrival is relaxed, because the fence has published the barrier;
 * with release it would wait for all that the block has under way. Bytes may arrive before it is
 * said how many they will be: the barrier's phase ends when both have come. */
class arrivals {
   public:
    __device__ void make_ready() {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)));
            asm volatile("fence.mbarrier_init.release.cluster;");
        }
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }

    __device__ void await_ready(uint32_t bytes) {
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        if (threadIdx.x == 0)
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                             shared_address(&barrier)),
                         "r"(bytes)
                         : "memory");
    }

    /* Stores a state at the same place of another block, and counts it there. */
    __device__ void send(const state<float> *to, uint32_t rank, state<float> value) {
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, "
            "[%3];" ::"r"(in_block(shared_address(to), rank)),
            "r"(__float_as_uint(value.m)), "r"(__float_as_uint(value.d)),
            "r"(in_block(shared_address(&barrier), rank))
            : "memory");
    }

    __device__ void send(const state<double> *to, uint32_t rank, state<double> value) {
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b64 [%0], {%1, %2}, "
            "[%3];" ::"r"(in_block(shared_address(to), rank)),
            "l"(__double_as_longlong(value.m)), "l"(__double_as_longlong(value.d)),
            "r"(in_block(shared_address(&barrier), rank))
            : "memory");
    }

    /* Until all that await_ready announced is here. */
    __device__ void await() {
        uint32_t done = 0;
        while (!done)
            asm volatile(
                "{\n"
                ".reg .pred complete;\n"
                "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%1], 0;\n"
                "selp.u32 %0, 1, 0, complete;\n"
                "}"
                : "=r"(done)
                : "r"(shared_address(&barrier))
                : "memory");
    }

   private:
    uint64_t barrier;
};

#endif

/* In shared memory, in the row form: the states of every warp of the cluster, warp `w` of block `r`
 * at part r * warps + w. In the column form: those of every block, then those of the block's warps.
 */
template <typename Rows, typename Form>
__global__ void __launch_bounds__(CLUSTER_THREADS, Rows::CLUSTER_WARPS *WARP / CLUSTER_THREADS)
    cluster_kernel(const __grid_constant__ typename Rows::arguments of) {
#if __CUDA_ARCH__ >= 900
    using Real = typename Rows::Real;
    extern __shared__ __align__(16) unsigned char shared[];
    auto *parts = (state<Real> *)shared;
    __shared__ arrivals arrived;
    const uint32_t blocks = cluster_size();
    const int warps = warps_of_block();
    auto warp = [&] { return (int)(cluster_rank() * warps + thread_of_block() / WARP); };
    auto chunk = [&] { return Form::template chunk<CLUSTER_CHUNKS>(warp()); };
    arrived.make_ready();

    Rows::template visit<(Form::ROWS > 1)>(
        of, (int64_t)cluster_index() * Form::ROWS + Form::row(), [&](const auto &row) {
            auto tile = row.template load<CLUSTER_CHUNKS, Form::STRIDE>(chunk());
            Real x[CLUSTER_CHUNKS * Rows::V], m = Form::max(tile.largest());
            Real d = Form::normalizer(exponentiate(tile, reference<Real>(m), x));

            state<Real> total;
            if constexpr (Form::ROWS == 1) {
                /* each warp sends its own, so that none waits for another of its block */
                arrived.await_ready(blocks * warps * sizeof(state<Real>));
                const uint32_t to = thread_of_block() % WARP;
                if (to < blocks) arrived.send(parts + warp(), to, {m, d});
                arrived.await();
                total = Form::merge_held(parts, blocks * warps);
            } else {
                /* 32 rows' states: those of a block merged first */
                state<Real> *of_block = parts + blocks * Form::ROWS;
                state<Real> mine = merge_block<Form>(state<Real>{m, d}, of_block);
                arrived.await_ready(blocks * Form::ROWS * sizeof(state<Real>));
                if (warp_of_block() == 0) {
                    for (uint32_t to = 0; to < blocks; to++)
                        arrived.send(parts + Form::slot(cluster_rank()), to, mine);
                }
                arrived.await();
                total = Form::merge_parts(parts, blocks);
            }
            softmax_finish<Real> finish(m, total);
            finish(x);
            row.template store<CLUSTER_CHUNKS, Form::STRIDE, true>(chunk(), x, tile.kept());
        });
#endif
}

template <typename Rows, typename Form>
launch_shape shape_of(const ons_plan *plan) {
    launch_shape shape = {plan->blocks_a_row, plan->threads};
    shape.cluster = (int)plan->blocks_a_row;
    int warps = plan->threads / WARP;
    int states = Form::ROWS == 1 ? shape.cluster * warps : (shape.cluster + warps) * Form::ROWS;
    shape.shared_bytes = states * (int)sizeof(state<typename Rows::Real>);
    return shape;
}

ons_status ons_cuda_cluster(const launch_request &request) {
    return with_rows(request, [&](auto rows, auto is_columns) {
        using Rows = typename decltype(rows)::Rows;
        using Form = block_form<decltype(is_columns)>;
        return launch_panels(request, shape_of<Rows, Form>(request.plan),
                             cluster_kernel<Rows, Form>, rows.arguments);
    });
}

/* How many clusters of so many full blocks of a kernel can run at once. */
static int active_clusters(const void *kernel, int blocks, int shared_bytes) {
    launch_shape shape = {blocks, CLUSTER_THREADS};
    shape.cluster = blocks;
    shape.shared_bytes = shared_bytes;
    if (allow(kernel, shape) != cudaSuccess) return 0;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {(unsigned)blocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(CLUSTER_THREADS);
    config.dynamicSmemBytes = (size_t)shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int active = 0;
    return cudaOccupancyMaxActiveClusters(&active, kernel, &config) == cudaSuccess ? active : 0;
}

template <typename Rows, typename Form>
static int largest_cluster() {
    auto *kernel = (const void *)cluster_kernel<Rows, Form>;
    ons_plan full = {};
    full.threads = CLUSTER_THREADS;
    for (int blocks = LARGEST_CLUSTER; blocks > 1; blocks /= 2) {
        full.blocks_a_row = blocks;
        if (active_clusters(kernel, blocks, shape_of<Rows, Form>(&full).shared_bytes) > 0)
            return blocks;
        (void)cudaGetLastError(); /* of a size that was refused */
    }
    return 0;
}

void largest_clusters(int *least, int *most) {
    *least = largest_cluster<contiguous_rows<float, float, true>, block_a_row>();
    *most = largest_cluster<general_rows<double>, block_of_columns>();
}
