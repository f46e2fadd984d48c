/* cuda.h - the C entry points of this folder. A build without nvcc has absent.c in its place. The
 * functions of onsoftmax.h that are about GPUs are defined in this folder too. */
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

/* What kernels.def says of a family. */
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
    ONS_EVERY_ROWS
} ons_kinds_of_rows;
typedef enum { ONS_NO_ALIGNED, ONS_16_BIT_ALIGNED, ONS_ALL_ALIGNED } ons_aligned_kernels;

/* The warps that fit a multiprocessor in cluster where an operation takes a gradient; `more`: of
 * GRADIENT_CLUSTER_CHUNKS. */
ONS_CONSTANT int ons_gradient_warps(bool is_16_bit, bool more) {
    return is_16_bit ? (more ? CLUSTER_WARPS : CLUSTER_WARPS_16_BIT)
                     : (more ? CLUSTER_WARPS / 2 : CLUSTER_WARPS);
}

/* The shared memory that a block of cluster_smem.cu needs, in a cluster of `blocks`. Each warp has
 * room for its held tiles and its slots. The states of the warps and of the cluster's blocks are
 * there twice. SMEM_BESIDES is for what the kernel declares itself. */
static inline int64_t ons_smem_bytes(int64_t blocks, int64_t compute_bytes, int64_t smem_tiles,
                                     int64_t slots) {
    const int64_t warps = SMEM_THREADS / WARP, tile = 16 * SMEM_CHUNKS * WARP;
    return SMEM_BESIDES + 2 * (blocks + warps) * 2 * compute_bytes +
           warps * (smem_tiles * tile + slots * SLOT_ROOM);
}

ons_status ons_cuda_run(const ons_problem *problem, const ons_plan *plan, void *workspace);

/* normalizer_merge.cu: of at least one row. */
ons_status ons_cuda_merge(const ons_merging *all);

/* The words for one of CUDA's own errors. */
const char *ons_cuda_error_text(ons_status status);

#ifdef __cplusplus
}
#endif

#endif
