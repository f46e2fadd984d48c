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

/* A positive scale of 16-bit elements in three floats. An element has at most 11 significant bits,
 * and `second` has 13, so their product is exact. */
class scale_in_floats {
   public:
    __device__ explicit scale_in_floats(double by) {
        first = __double2float_rz(by);
        const double rest = by - first;
        const long long bits = __double_as_longlong(rest);
        double upper = __longlong_as_double(bits & ~((1ll << 40) - 1));
        second = (float)upper, third = (float)(rest - upper);
        sticky = (bits & ((1ll << 52) - 1)) != 0;
        usable = by > 0x1p-60 && by < 0x1p20;
    }

    __device__ bool is_usable() const { return usable; }

    /* x * by, rounded once, for x below inf. The products with second and third are added, and
     * rounded to odd. So the last sum is rounded as the exact product. Products below 2^-102 may be
     * rounded twice, or become 0. */
    __device__ float product_with(float x) const {
        const float finite = fmaxf(x, -0x1.fffffep127f);
        const float truncated = __fmaf_rz(finite, third, __fmul_rn(finite, second));
        const float odd = __uint_as_float(__float_as_uint(truncated) | sticky);
        float y;
        asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(x), "f"(first), "f"(odd));
        return y;
    }

   private:
    float first, second, third;
    unsigned sticky;
    bool usable;
};

/* scale_all for 16-bit elements, and for the largest and the smallest of them. */
template <int n>
__device__ __forceinline__ void scale_all_of_16_bits(float (&x)[n], float (&extremes)[2],
                                                     double by) {
    const scale_in_floats scale(by);
    if ((double)(float)by == by || !scale.is_usable() || !(extremes[0] < CUDART_INF_F)) {
        scale_all(x, by);
        scale_all(extremes, by);
        return;
    }
#pragma unroll
    for (int e = 0; e < n; e++) x[e] = scale.product_with(x[e]);
#pragma unroll
    for (int i = 0; i < 2; i++) extremes[i] = scale.product_with(extremes[i]);
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
        auto move = [&](int dim, int64_t index) {
            x += index * problem.operand[from].stride[dim];
            y += index * problem.operand[ONS_Y].stride[dim];
            if (where) where += index * problem.operand[ONS_WHERE].stride[dim];
            if (scale_at) scale_at += index * problem.operand[ONS_SCALE].stride[dim];
        };
        /* most problems have one outer dimension, and its addresses take few instructions */
        const int outer = problem.dims - problem.reduced_dims;
#pragma unroll 1
        for (int dim = outer - 1; dim > 0; dim--) {
            const int64_t next = row / problem.extent[dim];
            move(dim, row - next * problem.extent[dim]);
            row = next;
        }
        if (outer > 0) move(0, row);
        scale = scale_at ? read_as<double>(scale_at, problem.operand[ONS_SCALE].dtype)
                         : problem.scale_by;
    }
};

#endif
