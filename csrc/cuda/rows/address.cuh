/* address.cuh - the addresses of one row of any problem, and its scale. */
#ifndef ONS_ADDRESS_CUH
#define ONS_ADDRESS_CUH

#include "elements.cuh"

struct problem_arguments {
    ons_problem problem;
    int64_t rows, N;
    ons_launch launch;
    int64_t ahead; /* rows to prefetch ahead (prefetch.cuh) */

    __device__ ons_operation operation() const { return problem.operation; }
};

/* A rounded product. The compiler must not fuse it with later operations. */
__device__ inline float product(float x, float y) { return __fmul_rn(x, y); }
__device__ inline double product(double x, double y) { return __dmul_rn(x, y); }

/* x * by rounded once. The intermediate double is rounded to odd, so it never lies half way between
 * two floats. */
__device__ inline float rounded_product(float x, double by) {
    const double toward_zero = __dmul_rz((double)x, by);
    const double rest = fma((double)x, by, -toward_zero);
    const long long more = fabs(rest) > 0; /* 0 if toward_zero is inf: then `rest` is NaN */
    return (float)__longlong_as_double(__double_as_longlong(toward_zero) | more);
}

/* Scales elements. Each product is rounded once, and not fused with later operations. */
template <int n>
__device__ __forceinline__ void scale_all(float (&x)[n], double by) {
    if ((double)(float)by == by) {
#pragma unroll
        for (int e = 0; e < n; e++) x[e] = product(x[e], (float)by);
    } else {
#pragma unroll
        for (int e = 0; e < n; e++) x[e] = rounded_product(x[e], by);
    }
}
template <int n>
__device__ __forceinline__ void scale_all(double (&x)[n], double by) {
#pragma unroll
    for (int e = 0; e < n; e++) x[e] = product(x[e], by);
}

/* The addresses of one row's elements. */
struct row_address {
    const char *x, *where;
    char *y;
    double scale;

    /* `from`: the operand to read. */
    __device__ row_address(const problem_arguments &arguments, int64_t row, ons_role from = ONS_X) {
        const ons_problem &problem = arguments.problem;
        row += arguments.launch.first_row;
        if (row >= arguments.rows) row = 0; /* its N is 0, so it is not read */
        const char *scale_at = problem.operand[ONS_SCALE].data;
        x = problem.operand[from].data;
        y = problem.operand[ONS_Y].data;
        where = problem.operand[ONS_WHERE].data;
#pragma unroll 1
        for (int dim = problem.dims - problem.reduced_dims - 1; dim >= 0; dim--) {
            int64_t index = row;
            if (dim > 0) {
                row /= problem.extent[dim];
                index -= row * problem.extent[dim];
            }
            x += index * problem.operand[from].stride[dim];
            y += index * problem.operand[ONS_Y].stride[dim];
            if (where) where += index * problem.operand[ONS_WHERE].stride[dim];
            if (scale_at) scale_at += index * problem.operand[ONS_SCALE].stride[dim];
        }
        scale = scale_at ? read_as<double>(scale_at, problem.operand[ONS_SCALE].dtype)
                         : problem.scale_by;
    }
};

#endif
