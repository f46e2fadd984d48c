/* gradient_results.h - the results of the operations that take a gradient dy beside the row y,
 * from the row's sum (gradient.h); and both passes over whole rows. */
#ifndef ONS_CPU_KERNEL_GRADIENT_RESULTS_H
#define ONS_CPU_KERNEL_GRADIENT_RESULTS_H

#include "gradient.h"

/* gradient_row in vectors: one row's, or those of rows side by side. `plain`, a constant: the
 * power is 1, as for most scales, and costs nothing. */
typedef struct {
    VEC first, second, power, scale;
    bool plain;
} gradient_of;

ONS_ALWAYS VEC gradient_element(const operation *operation, VEC dy, VEC y, gradient_of of) {
    return operation->gradient_element(dy, y, of.first, of.second, of.power, of.plain) * of.scale;
}

/* dx may be dy or y: what is read twice must be read before it is written. */
#define ELEMENT_AT(j) gradient_element(operation, V(load)(dy + (j)), V(load)(y + (j)), of)
#define LOAD_DY(j, left) ((left) >= WIDTH ? V(load)(dy + (j)) : V(load_part)(dy + (j), left))
#define BODY(a, j) gradient_element(operation, LOAD_DY(j, head - (j)), a, of)

/* Whole cache lines past the caches. dx is aligned to its elements. */
ONS_ALWAYS void gradient_past_caches(const operation *operation, T *dx, const T *dy, const T *y,
                                     int64_t n, gradient_of of) {
    int64_t j = before_cache_line(dx, n), head = j;
    EACH_VECTOR(dx, y, head, BODY);
    for (; j + 2 * WIDTH <= n; j += 2 * WIDTH) {
        VEC one = ELEMENT_AT(j), other = ELEMENT_AT(j + WIDTH);
        V(stream)(dx + j, one);
        V(stream)(dx + j + WIDTH, other);
    }
    dx += j;
    y += j;
    dy += j;
    head = n - j;
    EACH_VECTOR(dx, y, head, BODY);
}

/* The first and the last vector overlap others, so they are made first and written last. */
ONS_ALWAYS void gradient_vectors(const operation *operation, T *dx, const T *dy, const T *y,
                                 int64_t n, gradient_of of) {
    int64_t j = unaligned(dx, n);
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

/* How the results of rows are written. Past the caches go rows that begin with a cache line, and
 * long ones: of others too many cache lines are written in two parts. */
enum writing { FEW, WHOLE_VECTORS, PAST_CACHES };
ONS_ALWAYS enum writing writing_of(const ons_rows *rows, ons_tile dx, int64_t n) {
    uintptr_t places = (uintptr_t)dx.data | (uintptr_t)dx.across;
    bool pays = places % 64 == 0 || (places % sizeof(T) == 0 && n >= 32 * CACHE_LINE);
    return rows->past_caches && pays ? PAST_CACHES : n < WIDTH ? FEW : WHOLE_VECTORS;
}

ONS_ALWAYS void finish_gradient_as(const operation *operation, T *dx, const T *dy, const T *y,
                                   int64_t n, gradient_row row, enum writing writing, bool plain) {
    gradient_of of = {V(set)(row.first), V(set)(row.second), V(set)(row.power), V(set)(row.scale),
                      plain};
    int64_t head = n;
    if (writing == PAST_CACHES)
        gradient_past_caches(operation, dx, dy, y, n, of);
    else if (writing == WHOLE_VECTORS)
        gradient_vectors(operation, dx, dy, y, n, of);
    else
        EACH_VECTOR(dx, y, head, BODY);
}
ONS_ALWAYS void finish_gradient(const operation *operation, T *dx, const T *dy, const T *y,
                                int64_t n, gradient_row row, enum writing writing) {
    if (row.power == 1)
        finish_gradient_as(operation, dx, dy, y, n, row, writing, true);
    else
        finish_gradient_as(operation, dx, dy, y, n, row, writing, false);
}
#undef BODY
#undef LOAD_DY
#undef ELEMENT_AT

ONS_ALWAYS void finish_gradient_row(const operation *operation, const ons_rows *rows, ons_tile dx,
                                    ons_tile dy, ons_tile y, int64_t n) {
    const T *first = rows->first, *second = rows->second, *power = rows->shift,
            *scale = rows->floor;
    enum writing writing = writing_of(rows, dx, n);
    for (int64_t i = 0; i < rows->width; i++) {
        gradient_row row = {first[i], second[i], power[i], scale[i]};
        finish_gradient(operation, ROW(dx, i), ROW(dy, i), ROW(y, i), n, row, writing);
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

/* Row after row, so that the second pass finds each in the caches. Of rows of one tile one_tile and
 * writing are constants: without the other ways the compiler keeps more in registers. */
ONS_ALWAYS void gradient_rows_of(const operation *operation, const ons_rows *rows, ons_tile dx,
                                 ons_tile dy, ons_tile y, int64_t n, int64_t tile,
                                 const double *scale, bool one_tile, enum writing writing) {
    bool products = operation->adds_products;
    for (int64_t i = 0; i < rows->width; i++) {
        double sum = sum_of_row(ROW(dy, i), products ? ROW(y, i) : NULL, n, tile, one_tile);
        finish_gradient(operation, ROW(dx, i), ROW(dy, i), ROW(y, i), n,
                        gradient_row_of(operation, sum, scale[i]), writing);
    }
}
ONS_ALWAYS void gradient_rows(const operation *operation, const ons_rows *rows, ons_tile dx,
                              ons_tile dy, ons_tile y, int64_t n, int64_t tile,
                              const double *scale) {
    enum writing writing = writing_of(rows, dx, n);
#define ROWS_OF(one_tile, writing) \
    gradient_rows_of(operation, rows, dx, dy, y, n, tile, scale, one_tile, writing)
    if (n <= tile && writing == WHOLE_VECTORS)
        ROWS_OF(true, WHOLE_VECTORS);
    else if (n <= tile && writing == PAST_CACHES)
        ROWS_OF(true, PAST_CACHES);
    else
        ROWS_OF(false, writing);
#undef ROWS_OF
}

ONS_ALWAYS void finish_gradient_column_as(const operation *operation, const ons_rows *rows,
                                          ons_tile dx, ons_tile dy, ons_tile y, int64_t n,
                                          bool plain) {
    const T *first = rows->first, *second = rows->second, *power = rows->shift,
            *scale = rows->floor;
    int64_t width = rows->width;
    for (int64_t j = 0; j < n; j++) {
        const T *given = AT(dy, j);
#define OF(i)                                                                                     \
    ((gradient_of){LOAD_AT(first, i, width), LOAD_AT(second, i, width), LOAD_AT(power, i, width), \
                   LOAD_AT(scale, i, width), plain})
#define BODY(a, i) gradient_element(operation, LOAD_AT(given, i, width), a, OF(i))
        EACH_VECTOR(AT(dx, j), AT(y, j), width, BODY);
#undef BODY
#undef OF
    }
}
ONS_ALWAYS void finish_gradient_column(const operation *operation, const ons_rows *rows,
                                       ons_tile dx, ons_tile dy, ons_tile y, int64_t n) {
    bool plain = true;
    for (int64_t i = 0; i < rows->width; i++) plain &= ((const T *)rows->shift)[i] == 1;
    if (plain)
        finish_gradient_column_as(operation, rows, dx, dy, y, n, true);
    else
        finish_gradient_column_as(operation, rows, dx, dy, y, n, false);
}

#endif
