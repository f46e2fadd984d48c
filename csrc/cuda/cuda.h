/* cuda.h - the C entry points of this folder. A build without nvcc has absent.c in its place. This
 * folder also defines the functions of onsoftmax.h about GPUs. */
#ifndef ONS_CUDA_H
#define ONS_CUDA_H

#include "../api/onsoftmax.h"
#include "../api/packed.h"
#include "kernel/shapes.h"

#ifdef __cplusplus
extern "C" {
#define ONS_CONSTANT static constexpr
#else
#define ONS_CONSTANT static inline
#endif

/* The entries of kernels.def. launch_rows.cuh and launch_columns.cuh compare kinds of rows by < and
 * >=, so their order matters. */
typedef enum {
#define ONS_FAMILY(name, ...) ONS_FAMILY_##name,
#include "kernels.def"
#undef ONS_FAMILY
    ONS_FAMILIES
} ons_family;
typedef enum {
    ONS_NO_ROWS,
    ONS_GENERAL_ROWS,
    ONS_CONTIGUOUS_ROWS,
    ONS_CONTIGUOUS_ALONE_ROWS,
    ONS_PACKED_ROWS,
    ONS_EVERY_ROWS
} ons_kinds_of_rows;
typedef enum { ONS_NO_ALIGNED, ONS_16_BIT_ALIGNED, ONS_ALL_ALIGNED } ons_aligned_kernels;

/* Warps that fit a multiprocessor in cluster with a gradient. `more`: each thread has
 * GRADIENT_CLUSTER_CHUNKS. */
ONS_CONSTANT int ons_gradient_warps(bool is_16_bit, bool more) {
    return is_16_bit ? (more ? CLUSTER_WARPS : CLUSTER_WARPS_16_BIT)
                     : (more ? CLUSTER_WARPS / 2 : CLUSTER_WARPS);
}

/* Whether a block or a cluster has a row, in a family of softmax_topk. */
ONS_CONSTANT bool ons_topk_by_blocks(int family) {
    return family == ONS_FAMILY_topk_block || family == ONS_FAMILY_topk_cluster ||
           family == ONS_FAMILY_topk_online;
}

/* Shared memory of a block of cluster_smem.cu, in a cluster of `blocks`: held tiles and slots for
 * each warp, the states of the warps and of the cluster's blocks twice, and SMEM_BESIDES for what
 * the kernel declares itself. */
static inline int64_t ons_smem_bytes(int64_t blocks, int64_t compute_bytes, int64_t smem_tiles,
                                     int64_t slots) {
    const int64_t warps = SMEM_THREADS / WARP, tile = 16 * SMEM_CHUNKS * WARP;
    return SMEM_BESIDES + 2 * (blocks + warps) * 2 * compute_bytes +
           warps * (smem_tiles * tile + slots * SLOT_ROOM);
}

ons_status ons_cuda_run(const ons_problem *problem, const ons_plan *plan, void *workspace);

/* normalizer_merge.cu. There is at least one row. */
ons_status ons_cuda_merge(const ons_merging *all);

/* The text of one of CUDA's own errors. */
const char *ons_cuda_error_text(ons_status status);

#ifdef __cplusplus
}
#endif

#endif
