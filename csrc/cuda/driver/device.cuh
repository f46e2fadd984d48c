/* device.cuh - functions that the files of this folder and the methods share. */
#ifndef ONS_DEVICE_CUH
#define ONS_DEVICE_CUH

#include <cuda_runtime.h>

#include "../cuda.h"

/* Makes a GPU the current one. The destructor restores the one before. */
struct current_gpu {
    explicit current_gpu(int gpu);
    ~current_gpu();
    cudaError_t error;

   private:
    int before = 0;
    bool changed = false;
};

ons_status status_of(cudaError_t error);

/* normalizer_merge.cu: the architecture for which the kernels were compiled. It is older than the
 * current GPU's if the driver compiled them from PTX. */
int code_architecture();

/* cluster.cu: the most blocks of a cluster on the current GPU, for kernels of rows without gaps and
 * for kernels of any rows. */
void largest_clusters(int *of_contiguous, int *of_any);

/* Number of clusters of a kernel, `blocks` blocks each, that the current GPU can run at once. */
int active_clusters(const void *kernel, int blocks, int threads, int shared_bytes);

/* cluster_smem.cu: the same for its kernel, with shared_bytes of shared memory a block. */
int smem_clusters(int blocks, int shared_bytes);

#endif
