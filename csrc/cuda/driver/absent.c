/* absent.c - the entry points of this folder in a build without CUDA. */
#include "../../api/loss_parts.h"
#include "../cuda.h"

#define UNUSED(argument) (void)(argument)

bool ons_has_cuda(void) { return false; }

const char *ons_cuda_architectures(void) { return ""; }

const char *ons_cuda_error_text(ons_status status) {
    UNUSED(status);
    return "a CUDA error";
}

ons_status ons_gpu_count(int *count) {
    *count = 0;
    return ONS_E_NO_CUDA;
}

ons_status ons_gpu_describe(int gpu, ons_gpu *description) {
    UNUSED(gpu);
    UNUSED(description);
    return ONS_E_NO_CUDA;
}

ons_status ons_gpu_of(const void *memory, int *gpu) {
    UNUSED(memory);
    *gpu = -1;
    return ONS_E_NO_CUDA;
}

bool ons_gpu_is_current(int gpu) {
    UNUSED(gpu);
    return false;
}

int ons_gpu_make_current(int gpu) {
    UNUSED(gpu);
    return -1;
}

ons_status ons_describe_kernel(const ons_problem *problem, const ons_plan *plan,
                               ons_kernel_facts *facts) {
    UNUSED(problem);
    UNUSED(plan);
    UNUSED(facts);
    return ONS_E_NO_CUDA;
}

ons_status ons_gpu_allocate(int gpu, void *stream, int64_t bytes, void **memory) {
    UNUSED(gpu);
    UNUSED(stream);
    UNUSED(bytes);
    UNUSED(memory);
    return ONS_E_NO_CUDA;
}

ons_status ons_gpu_free(int gpu, void *stream, void *memory) {
    UNUSED(gpu);
    UNUSED(stream);
    UNUSED(memory);
    return ONS_E_NO_CUDA;
}

ons_status ons_gpu_order(int gpu, void *first, void *then) {
    UNUSED(gpu);
    UNUSED(first);
    UNUSED(then);
    return ONS_E_NO_CUDA;
}

ons_status ons_gpu_copy(int gpu, void *stream, void *to, const void *from, int64_t bytes) {
    UNUSED(gpu);
    UNUSED(stream);
    UNUSED(to);
    UNUSED(from);
    UNUSED(bytes);
    return ONS_E_NO_CUDA;
}

ons_status ons_gpu_wait(int gpu, void *stream) {
    UNUSED(gpu);
    UNUSED(stream);
    return ONS_E_NO_CUDA;
}

ons_status ons_gpu_multiply(int gpu, void *stream, void *elements, ons_dtype dtype, int64_t count,
                            const void *by) {
    UNUSED(gpu);
    UNUSED(stream);
    UNUSED(elements);
    UNUSED(dtype);
    UNUSED(count);
    UNUSED(by);
    return ONS_E_NO_CUDA;
}

ons_status ons_cuda_run(const ons_problem *problem, const ons_plan *plan, void *workspace) {
    UNUSED(problem);
    UNUSED(plan);
    UNUSED(workspace);
    return ONS_E_NO_CUDA;
}

ons_status ons_cuda_merge(const ons_merging *all) {
    UNUSED(all);
    return ONS_E_NO_CUDA;
}
