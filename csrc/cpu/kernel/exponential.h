/* exponential.h - e^x.
 *
 * n = rint(STEPS * x * log2(e)) appears in the low bits of t = STEPS * x * log2(e) + shift, where
 * shift is MAGIC + STEPS * (LIFT - c). Then e^x = 2^(n / STEPS) * e^r with r = x - n * (ln2 /
 * STEPS), and the bits of t give the lifted exponential e^x * 2^(LIFT - c). Neither m nor an offset
 * of the row enters the rounding of e^r. What must hold:
 *
 *  - STEPS * |c| and |n| are below 2^(mantissa bits - 2), and r is small. ONS_LARGEST_REFERENCE
 *    ensures that.
 *  - An element below the floor becomes 0 at once. If it were multiplied by 2^-LIFT / d, the
 *    product would be below half of the smallest subnormal. A product that underflows costs as much
 *    as a hundred other products. So the code either masks the product, or raises x to the floor.
 *    At the floor the power of two has the bits of 0 (ONS_RAISED_BELOW, ONS_RAISED_BELOW_F64).
 *  - NaN is not below the floor and stays in r, whatever its payload does to the bits of t.
 *
 * float reads eighths of a power of two from a table, which leaves a polynomial of degree 3. double
 * computes whole powers, with degree 11. python benchmarks/fit_exp.py finds the constants, and
 * tests/core/errors.c the largest error. */
#ifndef ONS_CPU_KERNEL_EXPONENTIAL_H
#define ONS_CPU_KERNEL_EXPONENTIAL_H

#include "../../api/exponential.h"
#include "vectors.h"

/* The reference of a vector's exponentials. All lanes have one row's numbers, or each lane has the
 * numbers of its own row. */
typedef struct {
    VEC shift, floor;
    bool plain; /* a constant: add up the elements themselves, not their exponentials */
} reference;

/* The reference of one row from arrays with an entry a row, and the reference of WIDTH rows. */
ONS_ALWAYS reference reference_of_row(const void *shift, const void *floor, int64_t row) {
    return (reference){V(set)(((const T *)shift)[row]), V(set)(((const T *)floor)[row]), false};
}
ONS_ALWAYS reference reference_of_rows(const T *shift, const T *floor) {
    return (reference){V(load)(shift), V(load)(floor), false};
}

/* The exponentials of `count` vectors, each step for all of them at once. */
ONS_ALWAYS void exponentials_beside(VEC *x, int64_t count, reference reference) {
    VEC t[4], r[4], p[4], shift = reference.shift;
#define EACH for (int64_t k = 0; k < count; k++)
    V(limited) limited[4];
    EACH limited[k] = V(limit)(&x[k], reference.floor);
    EACH t[k] = V(fma)(x[k], V(set)((T)(STEPS * ONS_LOG2_E)), shift);
    EACH r[k] = t[k] - shift; /* n */
#if BITS == 32
    EACH x[k] = V(fnma)(r[k], V(set)((T)(0x1.62e43p-1 / STEPS)), x[k]);
    EACH r[k] = V(fnma)(r[k], V(set)((T)(-0x1.05c61p-29 / STEPS)), x[k]);
    EACH p[k] = V(fma)(V(set)(0x1.555522p-3f), r[k], V(set)(0x1.000a66p-1f));
#else
    EACH x[k] = V(fnma)(r[k], V(set)((T)ONS_LN2_HIGH), x[k]);
    EACH r[k] = V(fnma)(r[k], V(set)((T)ONS_LN2_LOW), x[k]);
    bool first = true; /* from p = 0 the compiler would compute 0 * r */
#define TERM(a)                                                          \
    EACH p[k] = first ? V(set)((T)a) : V(fma)(p[k], r[k], V(set)((T)a)); \
    first = false;
    ONS_EXP_TERMS(TERM)
#undef TERM
#endif
    EACH t[k] = V(power)(t[k]);
    EACH x[k] = r[k] * r[k];
    EACH p[k] = V(fma)(x[k], p[k], r[k]); /* e^r - 1: it is small, so little is rounded away */
    EACH x[k] = V(fma_limited)(limited[k], t[k], p[k], t[k]);
#undef EACH
}

/* The exponentials of `count` vectors, as many at once as the registers hold. */
ONS_ALWAYS void exponential_each(VEC *x, int64_t count, reference reference) {
    int64_t beside = V(beside) < count ? V(beside) : count;
    for (int64_t k = 0; k < count; k += beside) exponentials_beside(x + k, beside, reference);
}

ONS_ALWAYS VEC exponential(VEC x, reference reference) {
    exponentials_beside(&x, 1, reference);
    return x;
}

static void set_references(const ons_rows *rows) {
    for (int64_t i = 0; i < rows->width; i++) {
        double c = rows->state[i].c;
        ((T *)rows->shift)[i] = (T)(MAGIC + STEPS * (LIFT - c));
        ((T *)rows->floor)[i] = (T)((c - BELOW) / ONS_LOG2_E);
    }
}

/* e^x unscaled, from the subnormals to inf, as e^x * 2^-h * 2^h. h has about half of the exponent,
 * so no intermediate leaves the normal numbers. The last addend carries NaN. */
ONS_ALWAYS VEC plain_exponential(VEC x) {
    const T largest = BITS == 32 ? 90 : 712, smallest = BITS == 32 ? -106 : -750;
    VEC zero = V(set)(0), inside = V(max)(V(set)(-largest), zero - x);
    inside = V(max)(V(set)(smallest), zero - inside);
    VEC magic = V(set)((T)MAGIC), h = V(fma)(inside, V(set)((T)(0.5 * ONS_LOG2_E)), magic);
    h -= magic;
    reference near = {V(fma)(h, V(set)(-STEPS), magic), V(set)(smallest), false};
    VEC low = exponential(inside, near), high = V(power)(V(fma)(h, V(set)(STEPS), magic));
#if BITS == 32
    low *= V(set)((T)(1 / (F32_ONE * F32_ONE)));
#endif
    return V(fma)(low, high, inside * zero);
}

/* e^x * 2^LOG_LIFT * F32_ONE for logarithms of probabilities, which are at most 0. It is lifted so
 * far that it has all its digits even if e^x is below the smallest number. Wrong above
 * LOG_LARGEST. */
ONS_ALWAYS VEC lifted_exponential_of_log(VEC x) {
    const T below = LOG_LIFT + (BITS == 32 ? 126 : 1022) + (BELOW == RAISED_BELOW);
    const T shift = MAGIC + STEPS * LOG_LIFT, floor = (T)(-below / ONS_LOG2_E);
    return exponential(x, (reference){V(set)(shift), V(set)(floor), false});
}

#endif
