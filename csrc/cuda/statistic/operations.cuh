/* operations.cuh - the operations on a row alone, for a GPU. Their files are in csrc/op.
 * gradient_sum.cuh has the operations that take a gradient.
 *
 * The file of an operation NAME defines a struct NAME here. If the result has the row's shape, the
 * struct has
 *
 *   row(state, first, second)        computes the two constants of a row; one of them is NaN if the
 *                                    whole row is
 *   element(kept, first, second)     a result, from what is kept: the exponential or the element.
 *                                    Both constants are multiplied by a power of two. It moves
 *                                    the exponentials to the row's reference
 *   plain_row(d), plain_element(kept, row)    the same by the plain formula, for `naive`: from the
 *                                    sum of the exponentials, and from the exponential or the
 *                                    element
 *
 * If the result is one value a row, it has
 *
 *   value(state)
 *   plain_row(d)                     as above
 *
 * A kernel serves all operations of one kind, row_shaped or one_a_row, and learns at run time which
 * operation to run. */
#ifndef ONS_OPERATIONS_CUH
#define ONS_OPERATIONS_CUH

#include "../../api/problem.h"
#include "pair.cuh"

struct max_sum;

/* d = 2^n * z with z from sqrt(1/2) to sqrt(2); returns n. */
__device__ inline int split_power(float d, float *z) {
    const int bits = __float_as_int(d), n = (bits - 0x3f3504f3) >> arithmetic<float>::BITS;
    *z = __int_as_float(bits - (n << arithmetic<float>::BITS));
    return n;
}
__device__ inline int split_power(double d, double *z) {
    const long long bits = __double_as_longlong(d), least = 0x3fe6a09e667f3bcd;
    const long long n = (bits - least) >> arithmetic<double>::BITS;
    *z = __longlong_as_double(bits - (n << arithmetic<double>::BITS));
    return (int)n;
}

/* log((1 + f) / (1 - f)) = 2 * atanh(f) for |f| < 0.172, by Taylor's series. The first omitted term
 * is below 2^-28 of the sum, in double 2^-56. */
__device__ inline float log_of_ratio(float f) {
    const float s = f * f;
    float p = 2.0f / 9;
    p = fmaf(p, s, 2.0f / 7);
    p = fmaf(p, s, 2.0f / 5);
    p = fmaf(p, s, 2.0f / 3);
    return fmaf(f * s, p, 2 * f);
}
__device__ inline double log_of_ratio(double f) {
    const double s = f * f;
    double p = 2.0 / 21;
#pragma unroll
    for (int n = 19; n > 1; n -= 2) p = fma(p, s, 2.0 / n);
    return fma(f * s, p, 2 * f);
}

/* log(sum(e^(x - m))) of a row with a finite m; any number otherwise. d is relative to a power of
 * two or to an anchor (exponential.cuh), and no offset of the row enters the rounding. The sum
 * without the largest element is found first. So a row of one element gives exactly 0, and no row
 * gives less. There is no call and no branch, so the elements keep their registers. */
template <typename Real>
__device__ inline Real log_of_sum(const state<Real> &row) {
    using A = arithmetic<Real>;
    const reference<Real> to(row.m);
    const Real largest = to.exponential(row.m - to.anchor) * A::LOWERED;
    const Real others = fmax(row.d - largest, (Real)0); /* a given d may be too small */
    const bool near = others < (Real)0.4 * largest;
    const Real c = is_ordinary(row.m) ? A::biased_c(row.m) - A::MAGIC : 0;
    Real z;
    const Real n = (Real)split_power(row.d, &z), steps = near ? 0 : c + n;
    const Real f = (near ? others : z - 1) * A::reciprocal(near ? 2 * largest + others : z + 1);
    const Real whole = fma(steps, A::LN2, near ? 0 : to.anchor - row.m);
    return whole + fma(steps, A::LN2_LOW, log_of_ratio(f));
}

/* Base of each operation, with the facts of its line. */
#define ONS_OPERATION(name, result, keeps, excluded, summary) \
    struct operation_##name {                                 \
        static constexpr bool ONE_A_ROW = false;              \
        static constexpr ons_keep KEEPS = ONS_KEEP_##keeps;   \
        static constexpr float EXCLUDED = (float)(excluded);  \
    };
#include "../../op/row_operations.def"
#undef ONS_OPERATION

#define ONS_OPERATION_ON_CUDA
#include "../../op/row_operations.def"
#undef ONS_OPERATION_ON_CUDA

/* ------- One value a row ------- */

#define OF_ROW(code)
#define OF_VALUE(code) code
#define OF_PAIR(code)

struct one_a_row {
    using statistic = max_sum;
    static constexpr bool ONE_A_ROW = true;
    static constexpr ons_keep KEEPS = ONS_KEEP_NOTHING;

    /* Calls put with the operation's value, or with the pair. */
    template <typename Real, typename Put>
    __device__ static void value(ons_operation operation, const state<Real> &row, Put put) {
        switch (operation) {
#define ONS_OPERATION(name, result, keeps, excluded, summary) \
    OF_##result(case ONS_OPERATION_##name : put(name::value(row)); break;)
#include "../../op/row_operations.def"
#undef ONS_OPERATION
        default: put(pair_of(row));
        }
    }

    template <typename Real>
    __device__ static Real plain_row(ons_operation operation, Real d) {
        switch (operation) {
#define ONS_OPERATION(name, result, keeps, excluded, summary) \
    OF_##result(case ONS_OPERATION_##name : return name::plain_row(d);)
#include "../../op/row_operations.def"
#undef ONS_OPERATION
        default: return d;
        }
    }
};

#undef OF_ROW
#undef OF_VALUE
#define OF_ROW(code) code
#define OF_VALUE(code)

/* ------- A kernel of several operations has their common code once ------- */

struct several_operations {};

/* The operations whose result has the row's shape. */
struct row_shaped : several_operations {
    using statistic = max_sum;
    static constexpr bool ONE_A_ROW = false;

    template <typename Body>
    __device__ __forceinline__ static void with(ons_operation operation, Body body) {
        switch (operation) {
#define ONS_OPERATION(name, result, keeps, excluded, summary) \
    OF_##result(case ONS_OPERATION_##name : body(name()); break;)
#include "../../op/row_operations.def"
#undef ONS_OPERATION
        default: __builtin_unreachable();
        }
    }
};

#undef OF_ROW
#undef OF_VALUE
#undef OF_PAIR

/* Calls body(an operation of Ops). If Ops is one_a_row or a single operation, body gets Ops
 * itself. */
template <typename Ops, typename Body>
__device__ __forceinline__ void with_operation([[maybe_unused]] ons_operation operation,
                                               Body body) {
    if constexpr (std::is_base_of_v<several_operations, Ops>)
        Ops::with(operation, body);
    else
        body(Ops());
}

#endif
