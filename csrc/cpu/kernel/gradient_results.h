/* gradient_results.h - the results of operations that take a gradient dy beside the row y, computed
 * from the row's sum (gradient.h). The file also has both passes over whole rows. */
#ifndef ONS_CPU_KERNEL_GRADIENT_RESULTS_H
#define ONS_CPU_KERNEL_GRADIENT_RESULTS_H

#include "gradient.h"

/* gradient_row in vectors, for one row or for rows side by side. `plain`, a constant: the power is
 * 1. That holds for most scales, and costs nothing. */
typedef struct {
    VEC first, second, power, scale;
    bool plain;
} gradient_of;

ONS_ALWAYS VEC gradient_element(const operation *operation, VEC dy, VEC y, gradient_of of) {
    return operation->gradient_element(dy, y, of.first, of.second, of.power, of.plain) * of.scale;
}

/* A row of n elements. dx may be dy or y, so an element must be read for the last time before it is
 * written. */
typedef struct {
    T *dx;
    const T *dy, *y;
    int64_t n;
} gradients_of_row;

ONS_ALWAYS gradients_of_row gradients_of_row_at(ons_gradients of, int64_t i) {
    return (gradients_of_row){ROW(of.dx, i), ROW(of.dy, i), ROW(of.y, i), of.n};
}

#define ELEMENT_AT(j) gradient_element(operation, V(load)(row.dy + (j)), V(load)(row.y + (j)), of)
#define LOAD_DY(j, left) \
    ((left) >= WIDTH ? V(load)(row.dy + (j)) : V(load_part)(row.dy + (j), left))
#define BODY(a, j) gradient_element(operation, LOAD_DY(j, head - (j)), a, of)

/* Stores whole cache lines past the caches. dx is aligned to its elements. */
ONS_ALWAYS void gradient_past_caches(const operation *operation, gradients_of_row row,
                                     gradient_of of) {
    int64_t j = before_cache_line(row.dx, row.n), head = j;
    EACH_VECTOR(row.dx, row.y, head, BODY);
    for (; j + 2 * WIDTH <= row.n; j += 2 * WIDTH) {
        VEC one = ELEMENT_AT(j), other = ELEMENT_AT(j + WIDTH);
        V(stream)(row.dx + j, one);
        V(stream)(row.dx + j + WIDTH, other);
    }
    row = (gradients_of_row){row.dx + j, row.dy + j, row.y + j, row.n - j};
    head = row.n;
    EACH_VECTOR(row.dx, row.y, head, BODY);
}

/* The first and the last vector overlap others, so they are computed first and written last. */
ONS_ALWAYS void gradient_vectors(const operation *operation, gradients_of_row row, gradient_of of) {
    T *dx = row.dx;
    int64_t n = row.n, j = unaligned(dx, n);
    VEC first = ELEMENT_AT(0), last = ELEMENT_AT(n - WIDTH);
    for (; j + 2 * WIDTH <= n; j += 2 * WIDTH) {
        VEC one = ELEMENT_AT(j), other = ELEMENT_AT(j + WIDTH);
        V(store)(dx + j, one);
        V(store)(dx + j + WIDTH, other);
    }
    if (j + WIDTH <= n) V(store)(dx + j, ELEMENT_AT(j));
    V(store)(dx, first);
    V(store)(dx + n - WIDTH, last);
}

/* How the results of rows are written. Rows that begin with a cache line go past the caches, and so
 * do long rows. In other rows too many cache lines would be written in two parts. */
enum writing { FEW, WHOLE_VECTORS, PAST_CACHES };
ONS_ALWAYS enum writing writing_of(const ons_rows *rows, ons_gradients of) {
    uintptr_t places = (uintptr_t)of.dx.data | (uintptr_t)of.dx.across;
    bool pays = places % 64 == 0 || (places % sizeof(T) == 0 && of.n >= 32 * CACHE_LINE);
    return rows->past_caches && pays ? PAST_CACHES : of.n < WIDTH ? FEW : WHOLE_VECTORS;
}

ONS_ALWAYS void finish_gradient_as(const operation *operation, gradients_of_row row,
                                   gradient_row given, enum writing writing, bool plain) {
    gradient_of of = {V(set)(given.first), V(set)(given.second), V(set)(given.power),
                      V(set)(given.scale), plain};
    int64_t head = row.n;
    if (writing == PAST_CACHES)
        gradient_past_caches(operation, row, of);
    else if (writing == WHOLE_VECTORS)
        gradient_vectors(operation, row, of);
    else
        EACH_VECTOR(row.dx, row.y, head, BODY);
}
ONS_ALWAYS void finish_gradient(const operation *operation, gradients_of_row row,
                                gradient_row given, enum writing writing) {
    if (given.power == 1)
        finish_gradient_as(operation, row, given, writing, true);
    else
        finish_gradient_as(operation, row, given, writing, false);
}
#undef BODY
#undef LOAD_DY
#undef ELEMENT_AT

ONS_ALWAYS void finish_gradient_row(const operation *operation, const ons_rows *rows,
                                    ons_gradients of) {
    const T *first = rows->first, *second = rows->second, *power = rows->shift,
            *scale = rows->floor;
    enum writing writing = writing_of(rows, of);
    for (int64_t i = 0; i < rows->width; i++) {
        gradient_row given = {first[i], second[i], power[i], scale[i]};
        finish_gradient(operation, gradients_of_row_at(of, i), given, writing);
    }
}

/* The sum of a whole row. */
ONS_ALWAYS double sum_of_row(const T *dy, const T *y, int64_t n, int64_t tile, bool one_tile) {
    if (BITS == 32 && one_tile) return sum_of_part(dy, y, n, false);
    ons_state state = ons_state_empty();
    for (int64_t j = 0; j < n; j += tile)
        add_part(&state, dy + j, y ? y + j : NULL, n - j < tile ? n - j : tile, false);
    return sum_of_state(&state);
}

ONS_ALWAYS void whole_gradient_row(const operation *operation, gradients_of_row row, int64_t tile,
                                   double scale, bool one_tile, enum writing writing) {
    double sum = sum_of_row(row.dy, operation->adds_products ? row.y : NULL, row.n, tile, one_tile);
    finish_gradient(operation, row, gradient_row_of(operation, sum, scale), writing);
}

/* Processes row after row, so that the second pass finds each in the caches. If rows have one tile,
 * one_tile and writing are constants: the compiler then keeps more in registers. */
ONS_ALWAYS void gradient_rows(const operation *operation, const ons_rows *rows, ons_gradients of,
                              int64_t tile, const double *scale) {
    enum writing writing = writing_of(rows, of);
#define EACH_ROW(one_tile, writing)           \
    for (int64_t i = 0; i < rows->width; i++) \
    whole_gradient_row(operation, gradients_of_row_at(of, i), tile, scale[i], one_tile, writing)
    if (of.n <= tile && writing == WHOLE_VECTORS)
        EACH_ROW(true, WHOLE_VECTORS);
    else if (of.n <= tile && writing == PAST_CACHES)
        EACH_ROW(true, PAST_CACHES);
    else
        EACH_ROW(false, writing);
#undef EACH_ROW
}

ONS_ALWAYS void finish_gradient_column_as(const operation *operation, const ons_rows *rows,
                                          ons_gradients of, bool plain) {
    const T *first = rows->first, *second = rows->second, *power = rows->shift,
            *scale = rows->floor;
    int64_t width = rows->width;
    for (int64_t j = 0; j < of.n; j++) {
        const T *given = AT(of.dy, j);
#define OF(i)                                                                                     \
    ((gradient_of){LOAD_AT(first, i, width), LOAD_AT(second, i, width), LOAD_AT(power, i, width), \
                   LOAD_AT(scale, i, width), plain})
#define BODY(a, i) gradient_element(operation, LOAD_AT(given, i, width), a, OF(i))
        EACH_VECTOR(AT(of.dx, j), AT(of.y, j), width, BODY);
#undef BODY
#undef OF
    }
}
ONS_ALWAYS void finish_gradient_column(const operation *operation, const ons_rows *rows,
                                       ons_gradients of) {
    bool plain = true;
    for (int64_t i = 0; i < rows->width; i++) plain &= ((const T *)rows->shift)[i] == 1;
    if (plain)
        finish_gradient_column_as(operation, rows, of, true);
    else
        finish_gradient_column_as(operation, rows, of, false);
}

#endif
