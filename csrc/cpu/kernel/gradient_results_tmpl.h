/* gradient_results_tmpl.h - the results of the operations that take a gradient dy beside the row y,
 * from the row's sum (gradient_tmpl.h); and both passes over whole rows. Part of primitives_tmpl.h,
 * whose parameters and names it uses. */

/* FN(gradient_row) in vectors: one row's, or those of rows side by side. `plain`, a constant: the
 * power is 1, as for most scales, and costs nothing. */
typedef struct {
    VEC first, second, power, scale;
    bool plain;
} FN(gradient_of);

INLINE VEC FN(gradient_element)(ons_operation operation, VEC dy, VEC y, FN(gradient_of) of) {
    VEC dx = y;
    switch (operation) {
#define ONS_OPERATION(name, result, keeps, excluded, summary)                                      \
    OF_GRADIENT_##result(case ONS_OPERATION_##name                                                 \
                         : dx =                                                                    \
                               FN(name##_element)(dy, y, of.first, of.second, of.power, of.plain); \
                         break;)
#include "../../op/operations.def"
#undef ONS_OPERATION
    default: break;
    }
    return V(mul)(dx, of.scale);
}

/* dx may be dy or y: what is read twice must be read before it is written. */
#define ELEMENT_AT(j) FN(gradient_element)(operation, V(load)(dy + (j)), V(load)(y + (j)), of)
#define LOAD_DY(j, left) ((left) >= WIDTH ? V(load)(dy + (j)) : V(load_part)(dy + (j), left))
#define BODY(a, j) FN(gradient_element)(operation, LOAD_DY(j, head - (j)), a, of)

/* Whole cache lines past the caches. dx is aligned to its elements. */
INLINE void FN(gradient_past_caches)(ons_operation operation, T *dx, const T *dy, const T *y,
                                     int64_t n, FN(gradient_of) of) {
    int64_t j = FN(before_cache_line)(dx, n), head = j;
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
INLINE void FN(gradient_vectors)(ons_operation operation, T *dx, const T *dy, const T *y, int64_t n,
                                 FN(gradient_of) of) {
    int64_t j = FN(unaligned)(dx, n);
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
enum FN(writing) { FN(few), FN(vectors), FN(past_caches) };
INLINE enum FN(writing) FN(writing_of)(const ons_rows *rows, ons_tile dx, int64_t n) {
    uintptr_t places = (uintptr_t)dx.data | (uintptr_t)dx.across;
    bool pays = places % 64 == 0 || (places % sizeof(T) == 0 && n >= 32 * FN(cache_line));
    return rows->past_caches && pays ? FN(past_caches) : n < WIDTH ? FN(few) : FN(vectors);
}

INLINE void FN(finish_gradient_as)(ons_operation operation, T *dx, const T *dy, const T *y,
                                   int64_t n, FN(gradient_row) row, enum FN(writing) writing,
                                   bool plain) {
    FN(gradient_of)
    of = {V(set)(row.first), V(set)(row.second), V(set)(row.power), V(set)(row.scale), plain};
    int64_t head = n;
    if (writing == FN(past_caches))
        FN(gradient_past_caches)(operation, dx, dy, y, n, of);
    else if (writing == FN(vectors))
        FN(gradient_vectors)(operation, dx, dy, y, n, of);
    else
        EACH_VECTOR(dx, y, head, BODY);
}
INLINE void FN(finish_gradient)(ons_operation operation, T *dx, const T *dy, const T *y, int64_t n,
                                FN(gradient_row) row, enum FN(writing) writing) {
    if (row.power == 1)
        FN(finish_gradient_as)(operation, dx, dy, y, n, row, writing, true);
    else
        FN(finish_gradient_as)(operation, dx, dy, y, n, row, writing, false);
}
#undef BODY
#undef LOAD_DY
#undef ELEMENT_AT

INLINE void FN(finish_gradient_row)(ons_operation operation, const ons_rows *rows, ons_tile dx,
                                    ons_tile dy, ons_tile y, int64_t n) {
    const T *first = rows->first, *second = rows->second, *power = rows->shift,
            *scale = rows->floor;
    enum FN(writing) writing = FN(writing_of)(rows, dx, n);
    for (int64_t i = 0; i < rows->width; i++) {
        FN(gradient_row) row = {first[i], second[i], power[i], scale[i]};
        FN(finish_gradient)(operation, ROW(dx, i), ROW(dy, i), ROW(y, i), n, row, writing);
    }
}

/* The sum of a whole row. */
INLINE double FN(sum_of_row)(const T *dy, const T *y, int64_t n, int64_t tile, bool one_tile) {
    if (BITS == 32 && one_tile) return FN(sum_of_part)(dy, y, n, false);
    ons_state state = ons_state_empty();
    for (int64_t j = 0; j < n; j += tile) FN(add_part)
    (&state, dy + j, y ? y + j : NULL, n - j < tile ? n - j : tile, false);
    return FN(sum_of_state)(&state);
}

/* Row after row, so that the second pass finds each in the caches. Of rows of one tile one_tile and
 * writing are constants: without the other ways the compiler keeps more in registers. */
INLINE void FN(gradient_rows_of)(ons_operation operation, const ons_rows *rows, ons_tile dx,
                                 ons_tile dy, ons_tile y, int64_t n, int64_t tile,
                                 const double *scale, bool products, bool one_tile,
                                 enum FN(writing) writing) {
    for (int64_t i = 0; i < rows->width; i++) {
        double sum = FN(sum_of_row)(ROW(dy, i), products ? ROW(y, i) : NULL, n, tile, one_tile);
        FN(finish_gradient)
        (operation, ROW(dx, i), ROW(dy, i), ROW(y, i), n,
         FN(gradient_row_of)(operation, sum, scale[i]), writing);
    }
}
INLINE void FN(gradient_rows)(ons_operation operation, const ons_rows *rows, ons_tile dx,
                              ons_tile dy, ons_tile y, int64_t n, int64_t tile, const double *scale,
                              bool products) {
    enum FN(writing) writing = FN(writing_of)(rows, dx, n);
#define ROWS_OF(one_tile, writing) \
    FN(gradient_rows_of)           \
    (operation, rows, dx, dy, y, n, tile, scale, products, one_tile, writing)
    if (n <= tile && writing == FN(vectors))
        ROWS_OF(true, FN(vectors));
    else if (n <= tile && writing == FN(past_caches))
        ROWS_OF(true, FN(past_caches));
    else
        ROWS_OF(false, writing);
#undef ROWS_OF
}

INLINE void FN(finish_gradient_column_as)(ons_operation operation, const ons_rows *rows,
                                          ons_tile dx, ons_tile dy, ons_tile y, int64_t n,
                                          bool plain) {
    const T *first = rows->first, *second = rows->second, *power = rows->shift,
            *scale = rows->floor;
    int64_t width = rows->width;
    for (int64_t j = 0; j < n; j++) {
        const T *given = AT(dy, j);
#define OF(i)                                                               \
    ((FN(gradient_of)){LOAD_AT(first, i, width), LOAD_AT(second, i, width), \
                       LOAD_AT(power, i, width), LOAD_AT(scale, i, width), plain})
#define BODY(a, i) FN(gradient_element)(operation, LOAD_AT(given, i, width), a, OF(i))
        EACH_VECTOR(AT(dx, j), AT(y, j), width, BODY);
#undef BODY
#undef OF
    }
}
INLINE void FN(finish_gradient_column)(ons_operation operation, const ons_rows *rows, ons_tile dx,
                                       ons_tile dy, ons_tile y, int64_t n) {
    bool plain = true;
    for (int64_t i = 0; i < rows->width; i++) plain &= ((const T *)rows->shift)[i] == 1;
    if (plain)
        FN(finish_gradient_column_as)(operation, rows, dx, dy, y, n, true);
    else
        FN(finish_gradient_column_as)(operation, rows, dx, dy, y, n, false);
}
