/* merge.cu - the states of onsoftmax.Normalizer merged (packed.h), a thread a row, one read. */
#include <cuda_runtime.h>

#include "device.cuh"
#include "launch.cuh"

static __global__ void merge_kernel(const __grid_constant__ ons_merging all) {
    await_earlier_work();
    const int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t row = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; row < all.rows;
         row += threads)
        ons_merge_row(&all, row);
}

ons_status ons_cuda_merge(const ons_merging *all) {
    constexpr int64_t THREADS = 128, MAX_BLOCKS = 4096;
    current_gpu here(all->gpu);
    if (here.error != cudaSuccess) return status_of(here.error);
    ons_gpu gpu;
    const ons_status status = ons_gpu_describe(all->gpu, &gpu);
    if (status != ONS_OK) return status;
    const int64_t blocks = (all->rows + THREADS - 1) / THREADS;
    void *arguments[] = {(void *)all};
    return start_kernel({blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS, THREADS}, gpu.early_launch,
                        all->stream, (const void *)merge_kernel, arguments);
}

int code_architecture() {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, merge_kernel);
    (void)status_of(error);
    return error == cudaSuccess ? attributes.ptxVersion : 0;
}
