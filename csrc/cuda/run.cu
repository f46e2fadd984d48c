/* run.cu - runs a plan on a GPU, or asks the driver about its kernel. */
#include "launch.cuh"

#define ONS_ENTRY_EVERYWHERE(name) ons_cuda_##name
#define ONS_ENTRY_ALIAS_ON_CUDA(name) nullptr
#define ONS_ENTRY_CPU_ONLY(name) nullptr
#define ONS_ENTRY_CUDA_ONLY(name) ons_cuda_##name
static ons_cuda_method *const entries[ONS_METHOD_COUNT] = {
#define ONS_METHOD(name, devices, reads, writes, keeps, summary) ONS_ENTRY_##devices(name),
#include "../methods.def"
#undef ONS_METHOD
};

static ons_status start(const launch_request &request) {
    current_gpu here(request.problem->gpu);
    return here.error == cudaSuccess ? entries[request.plan->method](request)
                                     : status_of(here.error);
}

ons_status ons_cuda_run(const ons_problem *problem, const ons_plan *plan, void *workspace) {
    return start({problem, plan, workspace, nullptr});
}

ons_status ons_describe_kernel(const ons_problem *problem, const ons_plan *plan,
                               ons_kernel_facts *facts) {
    return start({problem, plan, nullptr, facts});
}
