/* result_type.cuh - the type of the results of a launch, and whether they replace the elements. */
#ifndef ONS_RESULT_TYPE_CUH
#define ONS_RESULT_TYPE_CUH

#include "address.cuh"

/* The type of the results. */
__device__ inline ons_dtype type_of_results(const problem_arguments &args) {
    return args.problem.operand[ONS_Y].dtype;
}
template <typename Arguments>
__device__ inline ons_dtype type_of_results(const Arguments &args) {
    if (args.widens) return ONS_FLOAT32;
    return args.format.with([](auto type) {
        return std::is_same_v<decltype(type), __half>          ? ONS_FLOAT16
               : std::is_same_v<decltype(type), __nv_bfloat16> ? ONS_BFLOAT16
                                                               : ONS_FLOAT32;
    });
}

__device__ inline bool is_in_place(const problem_arguments &args) {
    return args.problem.operand[ONS_X].data == args.problem.operand[ONS_Y].data;
}
template <typename Arguments>
__device__ inline bool is_in_place(const Arguments &args) {
    return (const void *)args.x == args.y;
}

#endif
