/* run.cu - runs a plan on a GPU, or asks the driver about its kernel. */
#include "device.cuh"
#include "launch.cuh"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

/* A call's range in NVIDIA's profilers. Without a profiler it costs a test of a pointer. */
struct profiled_range {
#if __has_include(<nvtx3/nvToolsExt.h>)
    explicit profiled_range(ons_operation operation) {
        static const char *const names[] = {
#define ONS_OPERATION(name, ...) "onsoftmax::" #name,
#include "../../op/row_operations.def"
#include "../../op/gradient_and_topk_operations.def"
#undef ONS_OPERATION
        };
        nvtxRangePushA(names[operation]);
    }
    ~profiled_range() { nvtxRangePop(); }
#else
    explicit profiled_range(ons_operation) {}
#endif
};

static launcher *const launchers[] = {
#define ONS_FAMILY(name, ...) launch_##name,
#include "../kernels.def"
#undef ONS_FAMILY
};

static cudaError_t describe(const void *kernel, const launch_shape &shape, ons_kernel_facts *to) {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) return error;
    to->registers = attributes.numRegs;
    to->spilled_bytes = (int)attributes.localSizeBytes;
    to->shared_bytes = (int)attributes.sharedSizeBytes + shape.shared_bytes;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&to->blocks_a_multiprocessor, kernel,
                                                         shape.threads, shape.shared_bytes);
}

/* Dynamic shared memory that a kernel has without asking: 48 KiB, less 8 that it may declare
 * (tests/core/test_cubin.py). A kernel that declares more takes no dynamic shared memory. */
constexpr int FREE_SHARED_BYTES = 40 << 10;

static cudaError_t allow(const void *kernel, const launch_shape &shape) {
    cudaError_t error = cudaSuccess;
    if (shape.shared_bytes > FREE_SHARED_BYTES)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     shape.shared_bytes);
    if (error == cudaSuccess && shape.cluster > 8)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return error;
}

/* A shape as CUDA's launch configuration. */
struct launch_config : cudaLaunchConfig_t {
    explicit launch_config(const launch_shape &shape, bool early = false) : cudaLaunchConfig_t() {
        gridDim = dim3((unsigned)shape.blocks);
        blockDim = dim3((unsigned)shape.threads);
        dynamicSmemBytes = (size_t)shape.shared_bytes;
        attrs = attributes;
        if (shape.cluster > 1) {
            attributes[numAttrs].id = cudaLaunchAttributeClusterDimension;
            attributes[numAttrs++].val.clusterDim = {(unsigned)shape.cluster, 1, 1};
        }
        if (shape.cooperative) {
            attributes[numAttrs].id = cudaLaunchAttributeCooperative;
            attributes[numAttrs++].val.cooperative = 1;
        } else if (early) {
            attributes[numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
            attributes[numAttrs++].val.programmaticStreamSerializationAllowed = 1;
        }
    }
    launch_config(const launch_config &) = delete;

   private:
    cudaLaunchAttribute attributes[2];
};

ons_status start_kernel(const launch_shape &shape, bool early, void *stream, const void *kernel,
                        void **arguments) {
    launch_config config(shape, early);
    config.stream = (cudaStream_t)stream;
    return status_of(cudaLaunchKernelExC(&config, kernel, arguments));
}

ons_status launch_kernel(const launch_request &request, const launch_shape &shape,
                         const void *kernel, void **arguments) {
    cudaError_t error = allow(kernel, shape);
    if (error != cudaSuccess) return status_of(error);
    if (request.facts) return status_of(describe(kernel, shape, request.facts));
    return start_kernel(shape, request.plan->starts_early, request.problem->stream, kernel,
                        arguments);
}

/* The driver takes microseconds to answer, so answers are kept. The low byte of an entry is the
 * answer. The other bytes name the question. */
int blocks_that_fit(int gpu, const launch_shape &grid, const void *kernel) {
    constexpr uint64_t ENTRIES = 512, BYTE = 256;
    static uint64_t answers[ENTRIES];
    uint64_t question = (uint64_t)(uintptr_t)kernel;
    for (int part : {gpu, grid.threads, grid.shared_bytes})
        question = (question ^ (unsigned)part) * 0x9E3779B97F4A7C15u;
    uint64_t *const entry = &answers[question >> 32 & (ENTRIES - 1)];
    const uint64_t known = __atomic_load_n(entry, __ATOMIC_RELAXED);
    if (known / BYTE == question / BYTE) return (int)(known % BYTE);
    int blocks = 0;
    if (allow(kernel, grid) == cudaSuccess)
        (void)status_of(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, grid.threads,
                                                                      grid.shared_bytes));
    __atomic_store_n(entry, question / BYTE * BYTE + blocks, __ATOMIC_RELAXED);
    return blocks;
}

/* Whether the next kernel may start while this grid runs. Its first blocks take the free places of
 * the multiprocessors. If these places hold only a part of a grid of the same size, the other
 * blocks gather on the multiprocessors that are the first to be free, and end late. */
static bool next_may_start(const launch_request &request, const launch_shape &grid,
                           const void *kernel) {
    const int gpu = request.problem->gpu;
    ons_gpu facts;
    if (!request.plan->starts_early || ons_gpu_describe(gpu, &facts) != ONS_OK) return false;
    const int blocks = blocks_that_fit(gpu, grid, kernel);
    if (blocks == 0) return false;
    const double share = (double)grid.blocks / ((double)blocks * facts.multiprocessors);
    return share < .5 || share > .9;
}

/* Launches several grids if necessary: a grid has at most 2^31 - 1 blocks. */
ons_status launch_kernel_strips(const launch_request &request, const launch_shape &shape,
                                const void *kernel, void **arguments, ons_launch *part) {
    const ons_plan *plan = request.plan;
    const int64_t rows = shape.rows < 0 ? plan->rows : shape.rows;
    int64_t left = (rows + plan->width - 1) / plan->width;
    const int64_t most = ((1ll << 31) - 1) / shape.blocks;
    if (request.facts) return launch_kernel(request, shape, kernel, arguments);
    ons_status status = ONS_OK;
    for (part->first_row = 0; left > 0 && status == ONS_OK; left -= most) {
        launch_shape grid = shape;
        grid.blocks = (left < most ? left : most) * shape.blocks;
        part->next_may_start = next_may_start(request, grid, kernel);
        status = launch_kernel(request, grid, kernel, arguments);
        part->first_row += most * plan->width;
    }
    return status;
}

int active_clusters(const void *kernel, int blocks, int threads, int shared_bytes) {
    launch_shape shape = {blocks, threads};
    shape.cluster = blocks;
    shape.shared_bytes = shared_bytes;
    int active = 0;
    cudaError_t error = allow(kernel, shape);
    if (error == cudaSuccess) {
        launch_config config(shape);
        error = cudaOccupancyMaxActiveClusters(&active, kernel, &config);
    }
    (void)status_of(error); /* clears the error if the size was refused */
    return error == cudaSuccess ? active : 0;
}

static ons_status start(const launch_request &request) {
    current_gpu here(request.problem->gpu);
    if (here.error != cudaSuccess) return status_of(here.error);
    launcher *const family = launchers[request.plan->family];
    if (request.problem->sample) return launch_sample(request, family);
    const ons_status status = family(request);
    const bool has_more = request.plan->k > 0 && request.plan->in_double && !request.facts;
    return status == ONS_OK && has_more ? launch_topk_exact(request) : status;
}

ons_status ons_cuda_run(const ons_problem *problem, const ons_plan *plan, void *workspace) {
    profiled_range range(problem->operation);
    return start({problem, plan, workspace, nullptr});
}

ons_status ons_describe_kernel(const ons_problem *problem, const ons_plan *plan,
                               ons_kernel_facts *facts) {
    return start({problem, plan, nullptr, facts});
}
