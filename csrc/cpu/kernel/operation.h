/* operation.h - the functions of the operations in operations.def.
 *
 * If the result has the row's shape, the file of an operation NAME defines here
 *
 *   NAME_row(state, anchor, first, second)   computes the two constants of a row; one of them is
 *                                            NaN if the whole row is. Elements are `anchor`
 *                                            larger than `state` knows
 *   NAME_rows(rows, first, second)           the same for WIDTH rows at once
 *   NAME_element(kept, first, second)        a result, from what is kept: the lifted exponential or
 *                                            the element
 *   NAME_plain_row(d), NAME_plain_element(kept, row)   the same by the plain formula, for `naive`:
 *                                            from the sum of the exponentials, and from the
 *                                            exponential or the element
 *
 * If the result is one value a row, it defines
 *
 *   NAME_value(state, anchor)    in double
 *   NAME_values(rows, values)    for WIDTH rows at once, in T; a maximum of +inf may hide a NaN
 *   NAME_plain_row(d)            as above
 *
 * If the operation takes a gradient dy beside the row y, it defines
 *
 *   NAME_adds_products           whether the row adds up dy * y, or dy
 *   NAME_row(sum, power, first, second)    computes the two constants of a row
 *   NAME_element(dy, y, first, second, power, plain)    a result times power, a power of two;
 *                                                       plain: power is 1
 *
 * An operation whose result is a pair defines nothing: it writes its states. */
#ifndef ONS_CPU_KERNEL_OPERATION_H
#define ONS_CPU_KERNEL_OPERATION_H

#include "../../api/exponential.h"
#include "exponential.h"
#include "sum.h"

/* first if `so`, else second. `by_bits` avoids the branch, so that a loop over rows becomes
 * vectors. The compiler would keep the branch because the other side might raise an exception. */
ONS_ALWAYS double ons_either(bool so, double first, double second, bool by_bits) {
    if (!by_bits) return so ? first : second;
    uint64_t mask = -(uint64_t)so, bits, others;
    memcpy(&bits, &first, sizeof bits);
    memcpy(&others, &second, sizeof others);
    bits = (bits & mask) | (others & ~mask);
    memcpy(&first, &bits, sizeof first);
    return first;
}

/* log(sum(e^(x - m))), from d = sum(e^x) * one * 2^-c and `largest` = e^m * one * 2^-c, as it was
 * added to d.
 *
 * If the other exponentials are far below the largest, d / largest - 1 is computed first. So a row
 * of one element gives exactly 0, and no logarithm is below 0: a d from another kind of processor
 * may be below `largest`. Otherwise d = 2^n * z with z from sqrt(1/2) to sqrt(2), and e^m is near
 * 2^k. Then the logarithm is (n + c - k) * ln2 + log(z / one) + (k * ln2 - m). Neither n nor c is
 * rounded on its own, so two callers whose c differ get the same bits. log(z) = 2 * atanh(f) with f
 * = (z - 1) / (z + 1), by Taylor's series, whose first omitted term is below 2^-56 of the sum. NaN
 * gives NaN. `in_loop`: called in a loop that becomes vectors, not for one row. */
ONS_ALWAYS double ons_log_of_sum(double d, double d_low, double largest, double m, double c,
                                 bool in_loop) {
    const uint64_t least = 0x3fe6a09e667f3bcd, bias = 1024; /* sqrt(1/2) */
    double others = ((d - largest) + d_low) / largest, all = d + d_low, z, n;
    others = ons_either(others < 0, 0.0, others, in_loop);
    bool near = others < 0.4;
    uint64_t bits, n_bits;
    memcpy(&bits, &all, sizeof bits);
    uint64_t exponent = (bits - least + (bias << 52)) >> 52; /* n + bias */
    bits -= (exponent - bias) << 52;
    memcpy(&z, &bits, sizeof z);
    n_bits = 0x4330000000000000 | exponent; /* 2^52 + n + bias */
    memcpy(&n, &n_bits, sizeof n);
    double k = (m * ONS_LOG2_E + 0x1.8p52) - 0x1.8p52;
    double above = (k * ONS_LN2_HIGH - m) + k * ONS_LN2_LOW - LOG_OF_ONE;
    n = ons_either(near, 0.0, (n - (0x1p52 + (double)bias)) + (c - k), in_loop);
    double over = ons_either(near, others, z - 1, in_loop);
    double under = ons_either(near, 2 + others, z + 1, in_loop);
    double f = over / under, s = f * f, p = 2.0 / 21;
    p = p * s + 2.0 / 19;
    p = p * s + 2.0 / 17;
    p = p * s + 2.0 / 15;
    p = p * s + 2.0 / 13;
    p = p * s + 2.0 / 11;
    p = p * s + 2.0 / 9;
    p = p * s + 2.0 / 7;
    p = p * s + 2.0 / 5;
    p = p * s + 2.0 / 3;
    double rest = n * ONS_LN2_LOW + (ons_either(near, 0.0, above, in_loop) + (d - d));
    return n * ONS_LN2_HIGH + ((2 * f + f * (s * p)) + rest);
}

ONS_ALWAYS void states_of(ons_state *states, const sums_of_rows *rows) {
    double d[WIDTH], low[WIDTH] = {0};
    T m[WIDTH], shift[WIDTH];
    wide_store(d, rows->d);
    if (rows->d_low) wide_store(low, *rows->d_low);
    V(store)(m, rows->m);
    V(store)(shift, rows->shift);
    for (int64_t i = 0; i < WIDTH; i++) {
        double c = (MAGIC + STEPS * LIFT - (double)shift[i]) * (1.0 / STEPS);
        states[i] = (ons_state){(double)m[i], c, d[i] * LOWERED, low[i] * LOWERED};
    }
}

/* e^m relative to 2^c, as it is added to d. */
ONS_ALWAYS double top_exponential_of(double of_row, double c) {
    VEC m = V(set)((T)of_row), shift = V(set)((T)(MAGIC + STEPS * (LIFT - c)));
    T largest[WIDTH];
    V(store)(largest, exponential(m, (reference){shift, m - V(set)(1), false}));
    return (double)*largest * LOWERED;
}
static double top_exponential(double m) { return top_exponential_of(m, ons_reference(m)); }

/* log(sum(e^(x - m))) of a row with a finite m. */
ONS_ALWAYS double log_of_sum(const ons_state *state) {
    return ons_log_of_sum(state->d, state->d_low, top_exponential_of(state->m, state->c), state->m,
                          state->c, false);
}

/* The logarithms of the sums of WIDTH rows, in a loop that becomes vectors. */
ONS_ALWAYS void logs_of_sums(const sums_of_rows *rows, double *logs) {
    double d[WIDTH], low[WIDTH] = {0}, m[WIDTH], shift[WIDTH], largest[WIDTH];
    reference reference = {rows->shift, rows->m - V(set)(1), false};
    wide_store(d, rows->d);
    if (rows->d_low) wide_store(low, *rows->d_low);
    wide_store(m, widen(rows->m));
    wide_store(shift, widen(rows->shift));
    wide_store(largest, widen(exponential(rows->m, reference)));
#if !defined(__clang__) /* gcc would unroll a short loop before it becomes vectors */
#pragma GCC unroll 1
#endif
    for (int64_t i = 0; i < WIDTH; i++) {
        double c = (MAGIC + STEPS * LIFT - shift[i]) * (1.0 / STEPS);
        logs[i] =
            ons_log_of_sum(d[i] * LOWERED, low[i] * LOWERED, largest[i] * LOWERED, m[i], c, true);
    }
}

/* A NAME_rows that calls NAME_row for each row, for operations that have nothing better. */
#define ROWS_ONE_BY_ONE(name)                                                    \
    ONS_ALWAYS void name##_rows(const sums_of_rows *rows, T *first, T *second) { \
        ons_state states[WIDTH];                                                 \
        T anchor[WIDTH];                                                         \
        states_of(states, rows);                                                 \
        V(store)(anchor, rows->anchor);                                          \
        for (int64_t i = 0; i < WIDTH; i++)                                      \
            name##_row(&states[i], (double)anchor[i], first + i, second + i);    \
    }

#define ONS_OPERATION_ON_CPU
#include "../../op/operations.def"
#undef ONS_OPERATION_ON_CPU

/* The functions of an operation. It is passed as the address of a constant to code that is inlined,
 * so the compiler turns each call through it into the function itself. */
typedef struct {
    bool keeps_exponentials; /* else the elements */
    bool one_a_row, adds_products;
    void (*row)(const ons_state *state, double anchor, T *first, T *second);
    void (*rows)(const sums_of_rows *rows, T *first, T *second);
    VEC (*element)(VEC kept, VEC first, VEC second);
    VEC (*plain_element)(VEC kept, VEC row);
    void (*values)(const sums_of_rows *rows, T *values);
    void (*gradient_row)(double sum, double power, T *first, T *second);
    VEC (*gradient_element)(VEC dy, VEC y, VEC first, VEC second, VEC power, bool plain);
} operation;

#define OPERATION_OF_ROW(name, keeps)                                    \
    static const operation name = {                                      \
        .keeps_exponentials = ONS_KEEP_##keeps == ONS_KEEP_EXPONENTIALS, \
        .row = name##_row,                                               \
        .rows = name##_rows,                                             \
        .element = name##_element,                                       \
        .plain_element = name##_plain_element};
#define OPERATION_OF_VALUE(name, keeps) \
    static const operation name = {.one_a_row = true, .values = name##_values};
#define OPERATION_OF_GRADIENT(name, keeps)                                \
    static const operation name = {.adds_products = name##_adds_products, \
                                   .gradient_row = name##_row,            \
                                   .gradient_element = name##_element};
#define OPERATION_OF_PAIR(name, keeps)
#define OPERATION_OF_TOPK(name, keeps)
#define OPERATION_OF_LOSS(name, keeps)
#define OPERATION_OF_LOSS_GRADIENT(name, keeps)
#define OPERATION_OF_DIVERGENCE(name, keeps)
#define OPERATION_OF_ROUTE(name, keeps)
#define ONS_OPERATION(name, result, keeps, excluded, summary) OPERATION_OF_##result(name, keeps)
#include "../../op/operations.def"
#undef ONS_OPERATION

#endif
