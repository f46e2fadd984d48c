/* device.cuh - what the files of this folder ask of each other, and of the methods. */
#ifndef ONS_DEVICE_CUH
#define ONS_DEVICE_CUH

#include <cuda_runtime.h>

#include "../cuda.h"

/* Makes a GPU the current one, and the one that was before when it goes out of scope. */
struct current_gpu {
    explicit current_gpu(int gpu);
    ~current_gpu();
    cudaError_t error;

   private:
    int before = 0;
    bool changed = false;
};

ons_status status_of(cudaError_t error);

/* normalizer_merge.cu: the architecture that the kernels were compiled for. It is older than the
 * current GPU's where the driver compiled them from PTX. */
int code_architecture();

/* cluster.cu: the most blocks of a cluster on the current GPU: in the kernels of rows without gaps,
 * and in those that take any row. */
void largest_clusters(int *of_contiguous, int *of_any);

/* How many clusters of `blocks` blocks of a kernel the current GPU can run at once. */
int active_clusters(const void *kernel, int blocks, int threads, int shared_bytes);

/* cluster_smem.cu: the same of its kernel, whose blocks have so much shared memory. */
int smem_clusters(int blocks, int shared_bytes);

#endif
