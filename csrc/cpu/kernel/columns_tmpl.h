/* columns_tmpl.h - what both pipelines of columns (fused_columns_tmpl.h, short_columns_tmpl.h)
 * do with a strip's rows between x and y. Part of primitives_tmpl.h, whose parameters and names
 * it uses. */

/* Whether elements are taken and given as they lie in memory. */
INLINE bool FN(is_plain)(const ons_run_of_columns *run, ons_columns at) {
    return run->x_dtype == OWN && run->y_dtype == OWN && run->scale == 1.0 && !at.where &&
           !at.scale;
}

/* The buffer for a strip, one of two. */
INLINE T *FN(kept_strip)(const ons_run_of_columns *run, int64_t turn) {
    return (T *)run->kept + FN(cache_line) + turn * run->N * run->pitch;
}

/* Whether the rows of `next` begin where those of `at` end, which have a cache line at least. */
INLINE bool FN(goes_on)(const ons_columns *at, const ons_columns *next) {
    return next->width > 0 && at->width >= FN(cache_line) &&
           next->y == at->y + at->width * (int64_t)sizeof(T);
}

/* What multiplies each column of a vector. */
typedef struct {
    const char *of_column; /* doubles */
    VEC nearest;
    bool exact; /* the nearest T are these numbers */
    double room[WIDTH];
} FN(scales);

/* Of the columns from i on that fill a vector. */
INLINE void FN(take_scales)(FN(scales) * scales, const ons_run_of_columns *run, ons_columns at,
                            int64_t i) {
    int64_t size = sizeof(double), width = at.width - i;
    const char *from = at.scale + i * run->scale_across;
    bool differ, side_by_side = width >= WIDTH && run->scale_across == size;
    for (int64_t c = 0; c < WIDTH && !side_by_side; c++)
        memcpy(&scales->room[c], from + (c < width ? c : 0) * run->scale_across, sizeof(double));
    scales->of_column = side_by_side ? from : (const char *)scales->room;
    scales->nearest = FN(narrow_at)((const double *)(const void *)scales->of_column, &differ);
    scales->exact = !differ;
}

/* Each column times its own, rounded once. */
static ONS_APART VEC FN(products)(VEC a, const char *of_column) {
    T lanes[WIDTH];
    double scale[WIDTH];
    V(store)(lanes, a);
    memcpy(scale, of_column, sizeof scale);
    for (int64_t c = 0; c < WIDTH; c++) lanes[c] = ONS_PRODUCT(lanes[c], scale[c]);
    return V(load)(lanes);
}

/* Column i's vector of a row of x as the arithmetic takes it, each column times its own scale where
 * there are such; and of y as it is stored. */
INLINE VEC FN(take_at)(const char *x, const char *where, int64_t i, int64_t width, ons_dtype as,
                       double scale, const FN(scales) * each) {
    const char *from = x + i * FN(size_as)(as);
    T part[WIDTH];
    char mask[WIDTH] = {0};
    if (where) where += i;
    if (width - i < WIDTH) {
        V(store)(part, FN(take_part)(from, width - i, as));
        if (where) where = memcpy(mask, where, (size_t)(width - i));
        from = (const char *)part;
        as = OWN;
    }
    if (!each && scale == 1.0 && !where) return FN(take)(from, as);
    if (!each) return FN(changed)(from, as, scale, FN(is_exact)(scale), where);
    VEC a = FN(take)(from, as);
    a = each->exact ? V(mul)(a, each->nearest) : FN(products)(a, each->of_column);
    return where ? V(where)(where, a, V(set)((T)-INFINITY)) : a;
}

INLINE void FN(put_at)(char *y, int64_t i, int64_t width, VEC a, FN(kind) kind) {
    char *to = y + i * FN(size_as)(kind.y);
    if (width - i >= WIDTH)
        FN(put)(to, a, kind, false);
    else
        FN(put_part)(to, a, width - i, kind.y);
}
