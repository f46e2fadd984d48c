/* row_numbers.cuh - what the elements of a row need to know of it, once its state is known. Op is
 * an operation (operation.cuh). */
#ifndef ONS_ROW_NUMBERS_CUH
#define ONS_ROW_NUMBERS_CUH

#include "reduce.cuh"

template <typename Real>
struct alignas(16) row_numbers {
    Real m, first, second; /* the latter two by the operation */
    Real steps;            /* of an ordinary m, else BEYOND */

    /* Farther above the steps of every ordinary m than exponentials can be moved. */
    static constexpr Real BEYOND = arithmetic<Real>::MAGIC + (Real)0x1p23;
};

template <typename Op, typename Real>
__device__ inline row_numbers<Real> numbers_of(const state<Real> &row) {
    row_numbers<Real> numbers;
    numbers.m = row.m;
    Op::row(row, &numbers.first, &numbers.second);
    numbers.steps = is_ordinary(row.m) ? arithmetic<Real>::steps(row.m) : numbers.BEYOND;
    return numbers;
}

#endif
