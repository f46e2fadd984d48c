/* columns.h - moves a strip's rows between x, y and the arithmetic, for both pipelines of columns
 * (fused_columns.h, short.h). */
#ifndef ONS_CPU_KERNEL_COLUMNS_H
#define ONS_CPU_KERNEL_COLUMNS_H

#include "overlap.h"

/* Whether elements are loaded and stored unchanged. */
ONS_ALWAYS bool is_plain(const ons_run_of_columns *run, ons_columns at) {
    return run->x_dtype == OWN && run->y_dtype == OWN && run->scale == 1.0 && !at.where &&
           !at.scale;
}

/* The buffer of a strip. There are two. */
ONS_ALWAYS T *kept_strip(const ons_run_of_columns *run, int64_t turn) {
    return (T *)run->kept + CACHE_LINE + turn * run->N * run->pitch;
}

/* Whether the rows of `next` begin where the rows of `at` end. The rows of `at` must have at least
 * a cache line. */
ONS_ALWAYS bool is_continued_by(const ons_columns *at, const ons_columns *next) {
    return next->width > 0 && at->width >= CACHE_LINE &&
           next->y == at->y + at->width * (int64_t)sizeof(T);
}

/* The scales of a vector's columns. */
typedef struct {
    const char *of_column; /* doubles */
    VEC nearest;
    bool exact; /* a T holds each of them exactly */
    double room[WIDTH];
} scales;

/* Reads the scales of a vector of columns from i on. */
ONS_ALWAYS void take_scales(scales *scales, const ons_run_of_columns *run, ons_columns at,
                            int64_t i) {
    int64_t size = sizeof(double), width = at.width - i;
    const char *from = at.scale + i * run->scale_across;
    bool differ, side_by_side = width >= WIDTH && run->scale_across == size;
    for (int64_t c = 0; c < WIDTH && !side_by_side; c++)
        memcpy(&scales->room[c], from + (c < width ? c : 0) * run->scale_across, sizeof(double));
    scales->of_column = side_by_side ? from : (const char *)scales->room;
    scales->nearest = narrow_at((const double *)(const void *)scales->of_column, &differ);
    scales->exact = !differ;
}

/* Multiplies each column by its own scale, rounded once. */
static ONS_APART VEC products(VEC a, const char *of_column) {
    T lanes[WIDTH];
    double scale[WIDTH];
    V(store)(lanes, a);
    memcpy(scale, of_column, sizeof scale);
    for (int64_t c = 0; c < WIDTH; c++) lanes[c] = ONS_PRODUCT(lanes[c], scale[c]);
    return V(load)(lanes);
}

/* take_at loads vector i of a row of x, with each column times its own scale if there are any.
 * put_at stores a vector to y. */
ONS_ALWAYS VEC take_at(const char *x, int64_t i, int64_t width, ons_dtype as, ons_change by,
                       const scales *each) {
    const char *from = x + i * size_as(as), *where = by.where.data;
    T part[WIDTH];
    char mask[WIDTH] = {0};
    if (where) where += i;
    if (width - i < WIDTH) {
        V(store)(part, take_part(from, width - i, as));
        if (where) where = memcpy(mask, where, (size_t)(width - i));
        from = (const char *)part;
        as = OWN;
    }
    by.where.data = where;
    if (!each && by.scale == 1.0 && !where) return take(from, as);
    if (!each) return changed(from, as, by, is_exact(by.scale));
    VEC a = take(from, as);
    a = each->exact ? (VEC)(a * each->nearest) : products(a, each->of_column);
    return where ? V(where)(where, a, V(set)((T)-INFINITY)) : a;
}

ONS_ALWAYS void put_at(char *y, int64_t i, int64_t width, VEC a, kind kind) {
    char *to = y + i * size_as(kind.y);
    if (width - i >= WIDTH)
        put(to, a, kind);
    else
        put_part(to, a, width - i, kind.y);
}

#endif
