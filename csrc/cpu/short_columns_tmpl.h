/* short_columns_tmpl.h - softmax of neighbouring rows that lie side by side and fill their lanes at
 * most twice: as in short_tmpl.h a vector is the same element of every row, and that is how they
 * lie. Part of primitives_tmpl.h, whose parameters and names it uses. */

/* n finished elements past the caches. A line of which the neighbours write the rest must not go
 * to memory yet. */
INLINE void FN(send_lines)(T *y, const T *from, int64_t n) {
    int64_t j = (uintptr_t)y % sizeof(T) == 0 ? FN(before_line)(y, n) : n;
#define BODY(a, j) (a)
    EACH_VECTOR(y, from, j, BODY);
    for (; j + FN(line) <= n; j += FN(line))
        for (int64_t v = j; v < j + FN(line); v += WIDTH) V(stream)(y + v, V(load)(from + v));
    EACH_VECTOR(y + j, from + j, n - j, BODY);
#undef BODY
}

/* One panel's columns from c on that fill a vector; those of the next panel are fetched. */
INLINE VEC FN(short_columns)(const ons_run_of_columns *run, ons_columns at, ons_columns next,
                             int64_t c, ons_dtype x_dtype, ons_dtype y_dtype, double scale,
                             bool past_caches, VEC factors) {
    FN(group) group;
    VEC e[2 * LANES];
    int64_t N = run->N;
    for (int64_t j = 0; j < N && run->past_caches; j++)
        FN(fetch)(next.x + j * run->x_along + c * FN(size_as)(x_dtype));
    for (int64_t j = 0; j < N; j++) {
        const char *where = at.where ? at.where + j * run->where_along : NULL;
        e[j] = FN(take_at)(at.x + j * run->x_along, where, c, at.width, x_dtype, scale);
    }
    FN(softmax_of_columns)(e, N, &group);
    T *kept = (T *)run->kept + c;
    for (int64_t j = 0; j < N; j++)
        if (past_caches)
            V(store)(kept + j * run->pitch, e[j]);
        else
            FN(put_at)(at.y + j * run->y_along, c, at.width, e[j], y_dtype);
    return FN(add_factors)(factors, &group, at.width - c < WIDTH ? at.width - c : WIDTH);
}

static bool FN(softmax_short_columns)(const ons_run_of_columns *run) {
    ons_dtype x = run->x_dtype, y = run->y_dtype;
    bool past_caches = run->past_caches && y == OWN;
    ons_columns at = run->at(run->from, run->first);
    bool plain = FN(is_plain)(run, at);
    VEC factors = V(set)(0);
    for (int64_t i = 1; i <= run->count; i++) {
        ons_columns next = i < run->count ? run->at(run->from, run->first + i) : at;
        for (int64_t c = 0; c < at.width; c += WIDTH)
            if (plain && past_caches)
                factors = FN(short_columns)(run, at, next, c, OWN, OWN, 1.0, true, factors);
            else if (plain)
                factors = FN(short_columns)(run, at, next, c, OWN, OWN, 1.0, false, factors);
            else
                factors =
                    FN(short_columns)(run, at, next, c, x, y, run->scale, past_caches, factors);
        for (int64_t j = 0; j < run->N && past_caches; j++) {
            T *to = (T *)(void *)(at.y + j * run->y_along);
            FN(send_lines)(to, (T *)run->kept + j * run->pitch, at.width);
        }
        at = next;
    }
    if (past_caches) V(settle)();
    return FN(has_nan)(factors);
}
