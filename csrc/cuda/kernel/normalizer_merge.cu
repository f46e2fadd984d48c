/* normalizer_merge.cu - merges the states of onsoftmax.Normalizer (packed.h). A thread takes a row.
 * Moves 1 read. */
#include <cuda_runtime.h>

#include "../driver/device.cuh"
#include "../driver/launch.cuh"
#include "../statistic/pair_d.cuh"

static __global__ void merge_kernel(const __grid_constant__ ons_merging all) {
    await_earlier_work();
    const int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t row = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; row < all.rows;
         row += threads) {
        if (all.values == ONS_TWO_ROW_VALUES) {
            ons_merge_exact_row(&all, row);
            continue;
        }
        if (all.gives != ONS_GIVES_D) {
            ons_merge_row(&all, row);
            continue;
        }
        const ons_pair pair = ons_pair_of_packed(ons_merged(&all, row));
        all.to[row] = all.compute == ONS_FLOAT64 ? d_of<double>(pair) : d_of<float>(pair);
    }
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
