/* launch.cuh - what a method is asked for, and how it launches a kernel, or asks the driver about
 * it instead. launch_rows.cuh picks how the rows are loaded. */
#ifndef ONS_LAUNCH_CUH
#define ONS_LAUNCH_CUH

#include <type_traits>

#include "../cuda.h"

struct launch_request {
    const ons_problem *problem;
    const ons_plan *plan;
    void *workspace;
    ons_kernel_facts *facts; /* filled in place of a launch, where not null */
};

/* Launches the kernels of a family, or describes the last one. */
typedef ons_status launcher(const launch_request &request);
#define ONS_FAMILY(name, ...) launcher launch_##name;
#include "../kernels.def"
#undef ONS_FAMILY

/* How a kernel is launched. */
struct launch_shape {
    int64_t blocks; /* of the grid; in launch_strips, of each strip */
    int threads;
    int cluster = 1; /* blocks of a cluster */
    bool cooperative = false;
    int shared_bytes = 0;
};

/* run.cu: launches a kernel on a stream of the current GPU. With `early` its blocks may start while
 * work ahead of it still runs. */
ons_status start_kernel(const launch_shape &shape, bool early, void *stream, const void *kernel,
                        void **arguments);

/* run.cu: launches a kernel, or describes it. Of a kernel whose first parameter is the arguments of
 * its rows, `first_row` is the row there that they begin with: it is launched for all strips of the
 * plan. */
ons_status launch_kernel(const launch_request &request, const launch_shape &shape,
                         const void *kernel, void **arguments);
ons_status launch_kernel_strips(const launch_request &request, const launch_shape &shape,
                                const void *kernel, void **arguments, int64_t *first_row);

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
        return launch_kernel_strips(request, shape, (const void *)kernel, places, &rows.first_row);
    };
    return start(arguments...);
}

/* Returns when all work ahead of the kernel in its stream is done. A kernel may start before that
 * (run.cu), so each one calls this before its first access to memory. */
__device__ __forceinline__ void await_earlier_work() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Calls body(an integral constant that is `value`), which must be one of the list. */
template <int... LIST, typename Body>
ons_status with_constant(int value, Body body) {
    ons_status status = ONS_E_OPERAND;
    ((value == LIST ? (void)(status = body(std::integral_constant<int, LIST>())) : (void)0), ...);
    return status;
}

#endif
