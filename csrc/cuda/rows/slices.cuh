/* slices.cuh - where rows lie if their axis is not the last. `width` rows that lie side by side
 * form a slice. */
#ifndef ONS_SLICES_CUH
#define ONS_SLICES_CUH

#include "../../api/problem.h"
#include "elements.cuh"

/* An input. Strides are in elements: to the next slice, and along the axis. */
template <typename X>
struct sliced_input {
    const X *x;
    int64_t slice, step;
};

/* The rows of a launch. Row numbers count a slice as `padded` rows: its width, rounded up to the
 * rows that lanes take together. Strides of y are in bytes. y_step is the stride along the axis.
 * If the result is one value a row, y_step is the stride from one row's value to the next. */
template <typename X>
struct sliced_rows {
    sliced_input<X> input;
    char *y;
    int64_t y_slice, y_step;
    int64_t width, padded;
    int columns;      /* of a block, in a wide strip */
    uint32_t inverse; /* 2^32 / padded; 0 if it or a row number needs more than 32 bits */
    int64_t rows, N;
    ons_launch launch;
    ons_operation which;
    element_format<X> format;
    bool widens; /* 16-bit elements have float32 results */

    __device__ ons_operation operation() const { return which; }
};

/* The same for an operation that takes a gradient: x is y, and y is dx. */
template <typename T>
struct sliced_gradients : sliced_rows<T> {
    sliced_input<T> dy;
    double scale;
};

/* The slice of a row, and the row's place in the slice. */
struct place_in_slices {
    int64_t slice = 0, column;

    template <typename X>
    __device__ place_in_slices(const sliced_rows<X> &all, int64_t row) {
        if (all.rows != all.padded)
            slice = all.inverse ? divided((uint32_t)row, (uint32_t)all.padded, all.inverse)
                                : row / all.padded;
        column = row - slice * all.padded;
    }

   private:
    /* n / by. The high word of n * inverse is the quotient or one less. */
    __device__ static uint32_t divided(uint32_t n, uint32_t by, uint32_t inverse) {
        const uint32_t nearly = __umulhi(n, inverse);
        return nearly + (n - nearly * by >= by);
    }
};

#endif
