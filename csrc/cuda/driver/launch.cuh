/* launch.cuh - a request to a method, and the launch of its kernel. A request can also ask the
 * driver about the kernel. Then nothing is launched. launch_rows.cuh picks the kind of rows. */
#ifndef ONS_LAUNCH_CUH
#define ONS_LAUNCH_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "../cuda.h"

struct launch_request {
    const ons_problem *problem;
    const ons_plan *plan;
    void *workspace;
    ons_kernel_facts *facts;                     /* if not null, filled instead of a launch */
    const struct sampler_end *sampler = nullptr; /* of a list for a sampler (topk/results.cuh) */
};

/* Launches the kernels of a family, or describes the last one. */
typedef ons_status launcher(const launch_request &request);
#define ONS_FAMILY(name, ...) launcher launch_##name;
#include "../kernels.def"
#undef ONS_FAMILY

/* The second kernel of softmax_topk by `exact`. It replaces the results of the plan's family. */
launcher launch_topk_exact;

/* A sampler. `topk` lists the first tokens. */
ons_status launch_sample(const launch_request &request, launcher *topk);

struct launch_shape {
    int64_t blocks; /* of the grid; for launch_strips, of each strip */
    int threads;
    int cluster = 1; /* blocks of a cluster */
    bool cooperative = false;
    int shared_bytes = 0;
    int64_t rows = -1; /* for launch_strips; -1: as many as the plan has */
};

/* run.cu: launches a kernel on a stream of the current GPU. With `early` its blocks may start while
 * earlier work still runs. */
ons_status start_kernel(const launch_shape &shape, bool early, void *stream, const void *kernel,
                        void **arguments);

/* run.cu: launches a kernel, or describes it. launch_kernel_strips launches it for all strips of
 * rows. The kernel's first parameter must be the arguments of its rows. `first_row` points
 * into them, at the row with which a launch begins. */
ons_status launch_kernel(const launch_request &request, const launch_shape &shape,
                         const void *kernel, void **arguments);
ons_status launch_kernel_strips(const launch_request &request, const launch_shape &shape,
                                const void *kernel, void **arguments, ons_launch *part);

/* run.cu: the blocks of a kernel that fit a multiprocessor of the current GPU; 0 if unknown. */
int blocks_that_fit(int gpu, const launch_shape &grid, const void *kernel);

template <typename... Parameters, typename... Arguments>
ons_status launch(const launch_request &request, const launch_shape &shape,
                  void (*kernel)(Parameters...), const Arguments &...arguments) {
    auto start = [&](Parameters... values) {
        void *places[] = {(void *)&values...};
        return launch_kernel(request, shape, (const void *)kernel, places);
    };
    return start(arguments...);
}

template <typename Rows, typename... Parameters, typename... Arguments>
ons_status launch_strips(const launch_request &request, const launch_shape &shape,
                         void (*kernel)(Rows, Parameters...), Rows rows,
                         const Arguments &...arguments) {
    auto start = [&](Parameters... values) {
        void *places[] = {(void *)&rows, (void *)&values...};
        return launch_kernel_strips(request, shape, (const void *)kernel, places, &rows.launch);
    };
    return start(arguments...);
}

/* Returns when all earlier work in the kernel's stream is done. Every kernel except grid's may
 * start before that (run.cu), so it calls this before its first access to memory. The next kernel
 * may then start too, if `next_may_start`. */
__device__ __forceinline__ void await_earlier_work([[maybe_unused]] bool next_may_start = false) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (next_may_start) asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Calls body(an element of x's type), unless it is float64. Each type has kernels of its own here;
 * with_type_of_x (launch_rows.cuh) has one for both types of 16 bits. */
template <typename Body>
ons_status with_type_up_to_32_bits(const launch_request &request, Body body) {
    switch (request.problem->operand[ONS_X].dtype) {
    case ONS_FLOAT16: return body(__half());
    case ONS_BFLOAT16: return body(__nv_bfloat16());
    case ONS_FLOAT32: return body(float());
    default: return ONS_E_OPERAND;
    }
}

/* Calls body(an integral constant equal to `value`). `value` is in the list. */
template <int... LIST, typename Body>
ons_status with_constant(int value, Body body) {
    ons_status status = ONS_E_OPERAND;
    ((value == LIST ? (void)(status = body(std::integral_constant<int, LIST>())) : (void)0), ...);
    return status;
}

/* Calls body(an integral constant equal to `value`). `value` is from MIN to MAX. */
template <int MIN, int MAX, typename Body>
ons_status with_constant_of(int value, Body body) {
    if (value == MIN) return body(std::integral_constant<int, MIN>());
    if constexpr (MIN < MAX)
        return with_constant_of<MIN + 1, MAX>(value, body);
    else
        return ONS_E_OPERAND;
}

#endif
