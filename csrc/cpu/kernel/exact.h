/* exact.h - the exponentials of a row added up without rounding (exact.h). */
#ifndef ONS_CPU_KERNEL_EXACT_H
#define ONS_CPU_KERNEL_EXACT_H

#include "../../api/exact.h"
#include "exponential.h"
#include "sum.h"

static void add_exact(double digit[ONS_DIGITS], double c, const void *elements, int64_t n) {
    const T *x = elements;
    const VEC shift = V(set)((T)(MAGIC + STEPS * (LIFT - c))),
              floor = V(set)((T)((c - BELOW) / ONS_LOG2_E));
    const f64_vec lowered = f64_set(BITS == 32 ? LOWERED / F32_ONE : LOWERED);
    wide sum[ONS_DIGITS];
    for (int d = 0; d < ONS_DIGITS; d++) sum[d] = wide_zero();
    for (int64_t j = 0; j < n; j += WIDTH) {
        const VEC a = n - j >= WIDTH ? V(load)(x + j) : V(load_part)(x + j, n - j);
        wide e = widen(exponential(a, shift, floor));
        EACH_PART {
            f64_vec rest = e.part[k] * lowered;
            for (int d = 0; d < ONS_DIGITS; d++) {
                const f64_vec magic = f64_set(ONS_DIGIT_MAGIC(d, 1.0));
                const f64_vec some = (rest + magic) - magic;
                sum[d].part[k] += some;
                rest -= some;
            }
        }
    }
    for (int d = 0; d < ONS_DIGITS; d++) {
        double lanes[WIDTH];
        wide_store(lanes, sum[d]);
        for (int64_t l = 0; l < WIDTH; l++) digit[d] += lanes[l];
    }
}

#endif
