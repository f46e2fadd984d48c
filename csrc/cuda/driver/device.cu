/* device.cu - asks the driver about this machine's GPUs and assumes nothing. It also allocates
 * memory, and orders work on streams. */
#include <cstring>

#include <cuda_runtime.h>

#include "device.cuh"

current_gpu::current_gpu(int gpu) {
    error = cudaGetDevice(&before);
    if (error == cudaSuccess && before != gpu) error = cudaSetDevice(gpu);
    changed = error == cudaSuccess && before != gpu;
}

current_gpu::~current_gpu() {
    if (changed) cudaSetDevice(before);
}

/* Fetches the error, so that a later call does not return it. */
ons_status status_of(cudaError_t error) {
    if (error != cudaSuccess) (void)cudaGetLastError();
    return (ons_status)error;
}

#ifndef ONS_CUDA_ARCHS
#define ONS_CUDA_ARCHS "unknown architectures"
#endif

bool ons_has_cuda(void) { return true; }

const char *ons_cuda_architectures(void) { return ONS_CUDA_ARCHS; }

const char *ons_cuda_error_text(ons_status status) {
    int version = 0; /* with no driver at all, CUDA says that it is insufficient */
    if (status == (ons_status)cudaErrorInsufficientDriver &&
        (cudaDriverGetVersion(&version) != cudaSuccess || version == 0))
        return "no NVIDIA driver was found";
    if (status == (ons_status)cudaErrorNoKernelImageForDevice)
        return "onsoftmax was built for other GPUs than this one (sm_" ONS_CUDA_ARCHS
               "): build it for this one too; docs/building.md, ONSOFTMAX_CUDA_ARCHS";
    return cudaGetErrorString((cudaError_t)status);
}

ons_status ons_gpu_count(int *count) {
    *count = 0;
    return status_of(cudaGetDeviceCount(count));
}

/* Multiply-adds in double a second; 0 if the driver does not say. */
static double doubles_of(int gpu, const ons_gpu &known) {
    const double floats = known.architecture < 86 ? 64 : 128; /* a multiprocessor, each clock */
    int kilohertz = 0, floats_to_doubles = 0;
    cudaError_t error = cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, gpu);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&floats_to_doubles,
                                       cudaDevAttrSingleToDoublePrecisionPerfRatio, gpu);
    if (status_of(error) != ONS_OK || floats_to_doubles <= 0) return 0;
    return known.multiprocessors * floats * (1e3 * kilohertz) / floats_to_doubles;
}

static cudaError_t ask(int gpu, ons_gpu *to) {
    struct {
        cudaDeviceAttr attribute;
        int answer;
    } asked[] = {{cudaDevAttrComputeCapabilityMajor, 0},
                 {cudaDevAttrComputeCapabilityMinor, 0},
                 {cudaDevAttrMultiProcessorCount, 0},
                 {cudaDevAttrCooperativeLaunch, 0},
                 {cudaDevAttrMaxSharedMemoryPerBlockOptin, 0},
                 {cudaDevAttrMaxThreadsPerMultiProcessor, 0},
                 {cudaDevAttrL2CacheSize, 0},
                 {cudaDevAttrMemoryClockRate, 0}, /* kHz */
                 {cudaDevAttrGlobalMemoryBusWidth, 0}};
    for (auto &one : asked) {
        cudaError_t error = cudaDeviceGetAttribute(&one.answer, one.attribute, gpu);
        if (error != cudaSuccess) return error;
    }
    to->architecture = 10 * asked[0].answer + asked[1].answer;
    to->multiprocessors = asked[2].answer;
    to->cooperative = asked[3].answer != 0;
    to->shared_bytes = asked[4].answer;
    to->threads_a_multiprocessor = asked[5].answer;
    to->l2_bytes = asked[6].answer;
    to->bandwidth = 2 * (1e3 * asked[7].answer) * (asked[8].answer / 8); /* two bits a clock */
    to->doubles = doubles_of(gpu, *to);
    cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, gpu);
    if (error != cudaSuccess) return error;
    memcpy(to->name, properties.name, sizeof to->name);
    to->early_launch = code_architecture() >= 90;
    if (to->early_launch) { /* older architectures have empty cluster kernels */
        largest_clusters(&to->cluster_blocks, &to->cluster_blocks_any);
        to->clusters_of_8 = smem_clusters(8, to->shared_bytes);
        to->clusters_of_16 = smem_clusters(16, to->shared_bytes);
    }
    return cudaSuccess;
}

ons_status ons_gpu_describe(int gpu, ons_gpu *description) {
    enum { MOST = 64 };
    /* Stored at the first call. If two callers ask at the same time, both store the same facts. */
    static ons_gpu known[MOST];
    static bool is_known[MOST];
    if (gpu >= 0 && gpu < MOST && __atomic_load_n(&is_known[gpu], __ATOMIC_ACQUIRE)) {
        *description = known[gpu];
        return ONS_OK;
    }
    current_gpu here(gpu);
    if (here.error != cudaSuccess) return status_of(here.error);
    memset(description, 0, sizeof *description);
    cudaError_t error = ask(gpu, description);
    if (error == cudaSuccess && gpu < MOST) {
        known[gpu] = *description;
        __atomic_store_n(&is_known[gpu], true, __ATOMIC_RELEASE);
    }
    return status_of(error);
}

ons_status ons_gpu_of(const void *memory, int *gpu) {
    cudaPointerAttributes attributes;
    cudaError_t error = cudaPointerGetAttributes(&attributes, memory);
    bool on_gpu = error == cudaSuccess && (attributes.type == cudaMemoryTypeDevice ||
                                           attributes.type == cudaMemoryTypeManaged);
    *gpu = on_gpu ? attributes.device : -1;
    return status_of(error);
}

bool ons_gpu_is_current(int gpu) {
    int current;
    return status_of(cudaGetDevice(&current)) == ONS_OK && current == gpu;
}

int ons_gpu_make_current(int gpu) {
    int before;
    if (status_of(cudaGetDevice(&before)) != ONS_OK) return -1;
    return before == gpu || status_of(cudaSetDevice(gpu)) == ONS_OK ? before : -1;
}

ons_status ons_gpu_allocate(int gpu, void *stream, int64_t bytes, void **memory) {
    current_gpu here(gpu);
    if (here.error != cudaSuccess) return status_of(here.error);
    return status_of(
        cudaMallocAsync(memory, (size_t)(bytes > 0 ? bytes : 1), (cudaStream_t)stream));
}

ons_status ons_gpu_free(int gpu, void *stream, void *memory) {
    current_gpu here(gpu);
    if (here.error != cudaSuccess) return status_of(here.error);
    return status_of(cudaFreeAsync(memory, (cudaStream_t)stream));
}

ons_status ons_gpu_order(int gpu, void *first, void *then) {
    if (first == then) return ONS_OK;
    current_gpu here(gpu);
    cudaEvent_t event = nullptr;
    cudaError_t error = here.error;
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventRecord(event, (cudaStream_t)first);
    if (error == cudaSuccess) error = cudaStreamWaitEvent((cudaStream_t)then, event, 0);
    if (event) cudaEventDestroy(event);
    return status_of(error);
}

ons_status ons_gpu_copy(int gpu, void *stream, void *to, const void *from, int64_t bytes) {
    current_gpu here(gpu);
    if (here.error != cudaSuccess) return status_of(here.error);
    return status_of(
        cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, (cudaStream_t)stream));
}

ons_status ons_gpu_wait(int gpu, void *stream) {
    current_gpu here(gpu);
    if (here.error != cudaSuccess) return status_of(here.error);
    return status_of(cudaStreamSynchronize((cudaStream_t)stream));
}
