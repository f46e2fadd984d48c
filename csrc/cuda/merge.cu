/* merge.cu - the states of onsoftmax.Normalizer merged (packed.h), a thread a row, one read. */
#include <cuda_runtime.h>

#include "device.cuh"

static __global__ void merge_kernel(const __grid_constant__ ons_merging all) {
    const int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t row = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; row < all.rows;
         row += threads)
        ons_merge_row(&all, row);
}

ons_status ons_cuda_merge(const ons_merging *all) {
    constexpr int64_t THREADS = 128, MAX_BLOCKS = 4096;
    current_gpu here(all->gpu);
    if (here.error != cudaSuccess) return status_of(here.error);
    const int64_t blocks = (all->rows + THREADS - 1) / THREADS;
    merge_kernel<<<(unsigned)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS), THREADS, 0,
                   (cudaStream_t)all->stream>>>(*all);
    return status_of(cudaGetLastError());
}
