"""CUDA kernels of your own, checked and timed beside onsoftmax's kernels of the same name.

`safe`, `online` and `fused` are here in their shortest form. A block takes a row, and a thread takes
every 512th element of it. torch compiles the kernels in about a minute. Change a kernel, and run the
program again. Then read the file of that name in csrc/cuda. Without a GPU, the program only prints the
times that onsoftmax needs on an H100.

    python examples/kernel_of_your_own.py
"""

import sys

import onsoftmax as ons

try:
    import torch
    from torch.utils.cpp_extension import load_inline
except ImportError:
    sys.exit("This example needs torch: pip install torch")

KERNELS = r"""
#include <float.h>
constexpr int THREADS = 512, HELD = 32;  // fused keeps 32 elements in the registers of a thread
#define EACH_OF_THREAD(i) for (int i = threadIdx.x; i < N; i += THREADS)
#define EACH_HELD(k, i) for (int k = 0, i = threadIdx.x; k < HELD; k++, i += THREADS)
struct pair { float m, d; };  // the maximum, and the sum of e^(x - m)

__device__ pair merge(pair a, pair b) {
    float m = fmaxf(a.m, b.m);
    return {m, a.d * expf(a.m - m) + b.d * expf(b.m - m)};
}
__device__ pair merge_block(pair mine) {  // the pairs of all threads, merged
    __shared__ pair pairs[THREADS];
    __syncthreads();
    pairs[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) pairs[threadIdx.x] = merge(pairs[threadIdx.x], pairs[threadIdx.x + half]);
    }
    __syncthreads();
    return pairs[0];
}
__global__ void safe_kernel(const float *x, float *y, int N) {  // three passes
    x += (size_t)blockIdx.x * N, y += (size_t)blockIdx.x * N;
    float m = -FLT_MAX, d = 0;
    EACH_OF_THREAD(i) m = fmaxf(m, x[i]);
    m = merge_block({m, 0}).m;
    EACH_OF_THREAD(i) d += expf(x[i] - m);
    d = merge_block({m, d}).d;
    EACH_OF_THREAD(i) y[i] = expf(x[i] - m) / d;
}
__global__ void online_kernel(const float *x, float *y, int N) {  // two passes
    x += (size_t)blockIdx.x * N, y += (size_t)blockIdx.x * N;
    pair all = {-FLT_MAX, 0};
    EACH_OF_THREAD(i) all = merge(all, {x[i], 1});
    all = merge_block(all);
    EACH_OF_THREAD(i) y[i] = expf(x[i] - all.m) / all.d;
}
__global__ void fused_kernel(const float *x, float *y, int N) {  // one pass, if N <= THREADS * HELD
    x += (size_t)blockIdx.x * N, y += (size_t)blockIdx.x * N;
    float held[HELD], m = -FLT_MAX, d = 0;
    #pragma unroll
    EACH_HELD(k, i) m = fmaxf(m, held[k] = i < N ? x[i] : -INFINITY);
    m = merge_block({m, 0}).m;
    #pragma unroll
    EACH_HELD(k, i) d += held[k] = expf(held[k] - m);
    d = merge_block({m, d}).d;
    #pragma unroll
    EACH_HELD(k, i) if (i < N) y[i] = held[k] / d;
}
"""
LAUNCHERS = r"""
#include <c10/cuda/CUDAStream.h>
#define LAUNCHER(method) at::Tensor method(at::Tensor x) { \
    at::Tensor y = at::empty_like(x); \
    method##_kernel<<<x.size(0), THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>( \
        x.data_ptr<float>(), y.data_ptr<float>(), x.size(1)); \
    return y; }
LAUNCHER(safe) LAUNCHER(online) LAUNCHER(fused)
"""
METHODS = ["safe", "online", "fused"]
ROWS, N = 8192, 16384


def microseconds(function, x):
    for _ in range(5):
        function(x)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(20):
        function(x)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000 / 20


if not torch.cuda.is_available():
    print("torch sees no GPU here: nothing is compiled, checked or timed. On an H100, onsoftmax needs:")
    for method in METHODS:
        seconds = ons.plan((ROWS, N), device="H100", method=method).seconds()
        print(f"  {method}: {seconds * 1e6:.0f} microseconds")
    sys.exit()

try:
    declarations = "\n".join(f"at::Tensor {method}(at::Tensor);" for method in METHODS)
    module = load_inline("kernels_of_your_own", declarations, KERNELS + LAUNCHERS, functions=METHODS)
except (ImportError, OSError, RuntimeError) as error:
    sys.exit(f"This example needs nvcc, ninja and a C++ compiler. torch says: {error}")

x = torch.randn(ROWS, N, device="cuda")
print(f"softmax of {ROWS} x {N} float32, in microseconds; a copy takes {microseconds(torch.clone, x):.0f}")
for method in METHODS:
    yours = getattr(module, method)
    torch.testing.assert_close(yours(x), torch.softmax(x.double(), -1).float(), rtol=1e-5, atol=0)
    ours = microseconds(lambda x, method=method: ons.softmax(x, method=method), x)
    print(f"{method:>6}: yours {microseconds(yours, x):.0f}, onsoftmax's {ours:.0f}")
print(f" torch: {microseconds(lambda x: torch.softmax(x, -1), x):.0f}")
