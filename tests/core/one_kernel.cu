/* one_kernel.cu - one kernel alone: a block or a cluster holds a row of float32 for softmax. A
 * reader of the kernel opens the files that the compiler reads for it (test_one_kernel.py). */
#include "../../csrc/cuda/kernel/held.cuh"
#ifdef IN_A_CLUSTER
#include "../../csrc/cuda/team/cluster.cuh"
#else
#include "../../csrc/cuda/team/block.cuh"
#endif
#ifdef WITH_A_MASK
#include "../../csrc/cuda/rows/masked.cuh"
using Rows = masked_rows<float>;
#else
using Rows = contiguous_rows<float, alignment::EITHER>;
#endif
#ifdef OF_ONE_VALUE
using Ops = one_a_row;
#else
using Ops = row_shaped;
#endif

__global__ void one_kernel(const __grid_constant__ Rows::arguments args) {
#ifdef IN_A_CLUSTER
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ arrivals arrived;
    cluster<Rows> team(args, shared, arrived);
    held<Ops, Rows, CLUSTER_CHUNKS>(args, team);
#endif
#else
    block<WARP> team;
    held<Ops, Rows, BLOCK_CHUNKS>(args, team);
#endif
}
