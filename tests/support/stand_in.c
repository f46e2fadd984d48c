/* stand_in.c - replaces csrc/cuda by two GPUs. Their memory is the host's, and the CPU does their
 * work at once. Tests can follow arrays, streams and memory through csrc/python without a GPU.
 * test_cuda_stand_in.py builds it. */
#include "../../api/loss_parts.h"

#include <stdlib.h>
#include <string.h>

/* All other functions are as in a build without CUDA. */
#define ons_has_cuda absent_has_cuda
#define ons_cuda_error_text absent_cuda_error_text
#define ons_gpu_count absent_gpu_count
#define ons_cuda_architectures absent_cuda_architectures
#define ons_gpu_describe absent_gpu_describe
#define ons_gpu_of absent_gpu_of
#define ons_gpu_is_current absent_gpu_is_current
#define ons_gpu_make_current absent_gpu_make_current
#define ons_describe_kernel absent_describe_kernel
#define ons_gpu_allocate absent_gpu_allocate
#define ons_gpu_free absent_gpu_free
#define ons_gpu_order absent_gpu_order
#define ons_gpu_copy absent_gpu_copy
#define ons_gpu_wait absent_gpu_wait
#define ons_cuda_run absent_cuda_run
#define ons_cuda_merge absent_cuda_merge
#include "absent.inc"
#undef ons_has_cuda
#undef ons_cuda_error_text
#undef ons_gpu_count
#undef ons_cuda_architectures
#undef ons_gpu_describe
#undef ons_gpu_of
#undef ons_gpu_is_current
#undef ons_gpu_make_current
#undef ons_describe_kernel
#undef ons_gpu_allocate
#undef ons_gpu_free
#undef ons_gpu_order
#undef ons_gpu_copy
#undef ons_gpu_wait
#undef ons_cuda_run
#undef ons_cuda_merge

#define SHOWN __attribute__((visibility("default")))

enum { OUT_OF_MEMORY = 2, GPUS = 2, EVENTS = 64 };

/* For the tests: streams put in order, allocations that live, and the last run. */
SHOWN long stand_in_live, stand_in_runs, stand_in_workspaces;
SHOWN int stand_in_count_status, stand_in_gpu, stand_in_gpu_of_memory;
SHOWN void *stand_in_stream;
SHOWN const char *stand_in_method;
SHOWN int stand_in_form;
SHOWN int stand_in_orders;
SHOWN void *stand_in_first[EVENTS], *stand_in_then[EVENTS];
SHOWN const char *stand_in_architectures = "90";

bool ons_has_cuda(void) { return true; }
const char *ons_cuda_architectures(void) { return stand_in_architectures; }

const char *ons_cuda_error_text(ons_status status) {
    return (int)status == OUT_OF_MEMORY ? "out of memory" : "some error";
}

ons_status ons_gpu_count(int *count) {
    *count = GPUS;
    return (ons_status)stand_in_count_status;
}

ons_status ons_gpu_of(const void *memory, int *gpu) {
    (void)memory;
    *gpu = stand_in_gpu_of_memory;
    return ONS_OK;
}

bool ons_gpu_is_current(int gpu) { return gpu == 0; }
int ons_gpu_make_current(int gpu) { return gpu == 0 ? 0 : -1; }

ons_status ons_gpu_describe(int gpu, ons_gpu *description) {
    *description = (ons_gpu){.architecture = 90,
                             .multiprocessors = 132,
                             .threads_a_multiprocessor = 2048,
                             .l2_bytes = 60 << 20,
                             .bandwidth = 4.8e12,
                             .cluster_blocks = 16,
                             .cluster_blocks_any = 16,
                             .cooperative = true,
                             .shared_bytes = 232448,
                             .clusters_of_8 = 15,
                             .clusters_of_16 = 7};
    strcpy(description->name, gpu == 0 ? "stand-in" : "another stand-in");
    return ONS_OK;
}

ons_status ons_describe_kernel(const ons_problem *problem, const ons_plan *plan,
                               ons_kernel_facts *facts) {
    (void)problem;
    (void)plan;
    *facts = (ons_kernel_facts){32, 0, 1024, 8};
    return ONS_OK;
}

ons_status ons_gpu_allocate(int gpu, void *stream, int64_t bytes, void **memory) {
    (void)gpu;
    (void)stream;
    *memory = bytes < (int64_t)1 << 40 ? malloc(bytes > 0 ? (size_t)bytes : 1) : NULL;
    if (!*memory) return (ons_status)OUT_OF_MEMORY;
    stand_in_live++;
    return ONS_OK;
}

ons_status ons_gpu_free(int gpu, void *stream, void *memory) {
    (void)gpu;
    (void)stream;
    free(memory);
    stand_in_live--;
    return ONS_OK;
}

ons_status ons_gpu_order(int gpu, void *first, void *then) {
    (void)gpu;
    stand_in_first[stand_in_orders % EVENTS] = first;
    stand_in_then[stand_in_orders % EVENTS] = then;
    stand_in_orders++;
    return ONS_OK;
}

ons_status ons_gpu_copy(int gpu, void *stream, void *to, const void *from, int64_t bytes) {
    (void)gpu;
    (void)stream;
    memcpy(to, from, (size_t)bytes);
    return ONS_OK;
}

ons_status ons_gpu_wait(int gpu, void *stream) {
    (void)gpu;
    (void)stream;
    return ONS_OK;
}

ons_status ons_cuda_run(const ons_problem *problem, const ons_plan *plan, void *workspace) {
    ons_problem here = *problem;
    ons_plan on_cpu;
    stand_in_gpu = problem->gpu;
    stand_in_stream = problem->stream;
    stand_in_method = ons_method_name(plan->method);
    stand_in_form = plan->form;
    stand_in_runs++;
    stand_in_workspaces += workspace != NULL;
    if (plan->workspace_bytes > 0) memset(workspace, 255, (size_t)plan->workspace_bytes);
    here.device = ONS_CPU;
    ons_machine machine = ons_this_machine(1);
    if (ons_operations[here.operation].loss && here.operation != ONS_OPERATION_logprob &&
        !here.operand[ONS_STATISTIC].data) {
        /* a kernel that finds the pairs too */
        ons_loss_parts parts = {.problem = here,
                                .method = ONS_METHOD_AUTO,
                                .terms = *problem->loss,
                                .mean = problem->loss->divisor};
        const ons_status planned = ons_plan_loss(&parts, &machine);
        return planned == ONS_OK ? ons_run_loss(&parts, NULL) : planned;
    }
    ons_status status = ons_make_plan(&here, ONS_METHOD_AUTO, &machine, &on_cpu);
    return status == ONS_OK ? ons_run(&here, &on_cpu, NULL) : status;
}

ons_status ons_cuda_merge(const ons_merging *all) {
    ons_merging here = *all;
    stand_in_gpu = all->gpu;
    stand_in_stream = all->stream;
    here.device = ONS_CPU;
    return ons_merge(&here);
}
