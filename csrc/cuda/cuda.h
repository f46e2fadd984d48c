/* cuda.h - the C entry points of this folder. A build without nvcc has absent.c in its place. The
 * functions of onsoftmax.h that are about GPUs are defined in this folder too. */
#ifndef ONS_CUDA_H
#define ONS_CUDA_H

#include "../onsoftmax.h"

#ifdef __cplusplus
extern "C" {
#endif

ons_status ons_cuda_run(const ons_problem *problem, const ons_plan *plan, void *workspace);

/* The words for one of CUDA's own errors. */
const char *ons_cuda_error_text(ons_status status);

#ifdef __cplusplus
}
#endif

#endif
