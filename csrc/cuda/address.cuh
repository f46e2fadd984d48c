/* address.cuh - where one row of a problem lies, whatever its dimensions, and what it is scaled by.
 */
#ifndef ONS_ADDRESS_CUH
#define ONS_ADDRESS_CUH

#include "elements.cuh"

struct problem_arguments {
    ons_problem problem;
    int64_t rows, N;
    int64_t first; /* row of this launch */
    int64_t ahead; /* fetch.cuh */
};

/* Rounded, and not joined with what follows. */
__device__ inline float product(float x, float y) { return __fmul_rn(x, y); }
__device__ inline double product(double x, double y) { return __dmul_rn(x, y); }

/* x * by rounded once, and not joined with what follows: by way of a double that is rounded to odd,
 * which cannot be half way. */
__device__ inline float scaled(float x, double by) {
    if ((double)(float)by == by) return product(x, (float)by);
    double product = (double)x * by, rest = fma((double)x, by, -product);
    long long bits = __double_as_longlong(product);
    if (product != 0 && isfinite(product) && rest != 0 && bits % 2 == 0)
        bits += (rest > 0) == (product > 0) ? 1 : -1;
    return (float)__longlong_as_double(bits);
}
__device__ inline double scaled(double x, double by) { return product(x, by); }

/* Where one row's elements lie. */
struct row_address {
    const char *x, *where;
    char *y;
    double scale;

    __device__ row_address(const problem_arguments &arguments, int64_t row) {
        const ons_problem &of = arguments.problem;
        row += arguments.first;
        if (row >= arguments.rows) row = 0; /* not to be read: its N is 0 */
        const char *scale_at = of.operand[ONS_SCALE].data;
        x = of.operand[ONS_X].data;
        y = of.operand[ONS_Y].data;
        where = of.operand[ONS_WHERE].data;
        for (int dim = of.dims - of.reduced_dims - 1; dim >= 0; dim--) {
            int64_t index = row;
            if (dim > 0) {
                row /= of.extent[dim];
                index -= row * of.extent[dim];
            }
            x += index * of.operand[ONS_X].stride[dim];
            y += index * of.operand[ONS_Y].stride[dim];
            if (where) where += index * of.operand[ONS_WHERE].stride[dim];
            if (scale_at) scale_at += index * of.operand[ONS_SCALE].stride[dim];
        }
        scale = scale_at ? read_as<double>(scale_at, of.operand[ONS_SCALE].dtype) : of.scale_by;
    }
};

#endif
