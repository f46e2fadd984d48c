/* fused_columns_tmpl.h - softmax of neighbouring rows that lie side by side, panel after panel:
 * while the exponentials of a panel are computed, the panel before is divided and the one behind
 * comes from memory, is compared, and takes the place of the one before. Two panels stay in the
 * caches so, and the core computes while memory moves. Adds up as row_tmpl.h does. Part of
 * primitives_tmpl.h, whose parameters and names it uses. */

/* A panel, and what there is one of a column. Beyond its width there is room for a vector. */
typedef struct {
    ons_columns at;  /* of width 0: there is no such panel */
    int64_t vectors; /* that hold a row of it */
    T *kept;         /* its elements, then their exponentials */
    T m[ONS_MAX_COLUMNS], shift[ONS_MAX_COLUMNS], floor[ONS_MAX_COLUMNS];
    T factor[ONS_MAX_COLUMNS + WIDTH], beyond[ONS_MAX_COLUMNS + WIDTH];
    double d[ONS_MAX_COLUMNS], d_beyond[ONS_MAX_COLUMNS];
} FN(columns);

/* Panels on their way. */
typedef struct {
    FN(columns) * before, *now, *behind;
    const char *after; /* row 0 of the panel behind the one behind */
    int64_t N, x_along, y_along, where_along, pitch;
    ons_dtype x_dtype, y_dtype;
    double scale;
    bool past_caches; /* how the rows of y are written: */
    enum { FN(by_vectors), FN(in_a_row), FN(in_parts) } y;
    int64_t divided; /* elements of the panel before, where y is in a row */
} FN(passing);

/* Whether elements are taken and given as they lie in memory. */
INLINE bool FN(is_plain)(const ons_run_of_columns *run, ons_columns at) {
    return run->x_dtype == OWN && run->y_dtype == OWN && run->scale == 1.0 && !at.where;
}

/* Column i's vector of a row of x as the arithmetic takes it, and of y as it is stored. */
INLINE VEC FN(take_at)(const char *x, const char *where, int64_t i, int64_t width, ons_dtype as,
                       double scale) {
    const char *from = x + i * FN(size_as)(as);
    T part[WIDTH];
    char mask[WIDTH];
    if (where) where += i;
    if (width - i < WIDTH) {
        V(store)(part, FN(take_part)(from, width - i, as));
        if (where) where = memcpy(mask, where, (size_t)(width - i));
        from = (const char *)part;
        as = OWN;
    }
    if (scale == 1.0 && !where) return FN(take)(from, as);
    return FN(changed)(from, as, scale, FN(is_exact)(scale), where);
}

INLINE void FN(put_at)(char *y, int64_t i, int64_t width, VEC a, ons_dtype as) {
    char *to = y + i * FN(size_as)(as);
    if (width - i >= WIDTH)
        FN(put)(to, a, as, false);
    else
        FN(put_part)(to, a, width - i, as);
}

/* `n` rows from j on of the panel behind: compared, and into the place of the panel before. */
INLINE void FN(take_in)(const FN(passing) * with, int64_t j, int64_t n, bool plain) {
    FN(columns) *behind = with->behind;
    int64_t width = behind->at.width, x_along = with->x_along, pitch = with->pitch;
    ons_dtype as = plain ? OWN : with->x_dtype;
    double scale = plain ? 1.0 : with->scale;
    const char *where =
        plain || !behind->at.where ? NULL : behind->at.where + j * with->where_along;
    int64_t ahead = j + FN(rows_ahead), bytes = width * FN(size_as)(as);
    if (width == 0) return;
    const char *x = behind->at.x + j * x_along;
    const char *fetch = ahead < with->N ? behind->at.x + ahead * x_along
                                        : with->after + (ahead - with->N) * x_along;
    T *to = behind->kept + j * pitch;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < bytes; i += 64) FN(fetch)(fetch + k * x_along + i);
    for (int64_t i = 0; i < width; i += WIDTH) {
        VEC m = V(load)(behind->m + i);
        for (int64_t k = 0; k < n; k++) {
            const char *mask = where ? where + k * with->where_along : NULL;
            VEC a = FN(take_at)(x + k * x_along, mask, i, width, as, scale);
            V(store)(to + k * pitch + i, a);
            m = V(max)(a, m);
        }
        V(store)(behind->m + i, m);
    }
}

/* One vector of the panel before. */
INLINE VEC FN(quotients)(const FN(columns) * before, const T *e, int64_t i) {
    return V(times)(V(load)(e), V(load)(before->factor + i), V(load)(before->beyond + i));
}

/* `n` rows from j on of the panel before, to y, where all its vectors can be written as such. */
INLINE void FN(give_vectors)(const FN(passing) * with, int64_t j, int64_t n, bool plain) {
    const FN(columns) *before = with->before;
    int64_t width = before->at.width, y_along = with->y_along, pitch = with->pitch;
    bool past_caches = with->past_caches;
    ons_dtype as = plain ? OWN : with->y_dtype;
    if (width == 0) return;
    char *to = before->at.y + j * y_along;
    const T *e = before->kept + j * pitch;
    for (int64_t i = 0; i < width; i += WIDTH) {
        VEC factor = V(load)(before->factor + i), beyond = V(load)(before->beyond + i);
        for (int64_t k = 0; k < n; k++) {
            VEC quotient = V(times)(V(load)(e + k * pitch + i), factor, beyond);
            FN(put)(to + k * y_along + i * FN(size_as)(as), quotient, as, past_caches);
        }
    }
}

/* The same of whole rows that may begin and end in the midst of a cache line. A line of which the
 * neighbours write the rest must not go to memory yet: few may be so. */
static void FN(give_in_parts)(const FN(passing) * with, int64_t j, int64_t n) {
    const FN(columns) *before = with->before;
    int64_t width = before->at.width;
    for (int64_t k = j; k < j + n; k++) {
        char *row = before->at.y + k * with->y_along;
        T *y = (T *)(void *)row;
        const T *e = before->kept + k * with->pitch;
        int64_t i = 0, head = with->past_caches ? FN(before_line)(y, width) : 0;
        for (; i < head; i += WIDTH) STORE_AT(y, i, head, FN(quotients)(before, e + i, i));
        for (i = head; with->past_caches && i + FN(line) <= width; i += FN(line))
            for (int64_t v = i; v < i + FN(line); v += WIDTH)
                V(stream)(y + v, FN(quotients)(before, e + v, v));
        for (; i < width; i += WIDTH)
            FN(put_at)(row, i, width, FN(quotients)(before, e + i, i), with->y_dtype);
    }
}

/* The same of rows that follow each other in y without a gap, to the end of row j - 1 at least. */
INLINE void FN(give_in_a_row)(FN(passing) * with, int64_t j) {
    const FN(columns) *before = with->before;
    int64_t width = before->at.width, at = with->divided, i = at % width;
    int64_t last = with->N * width - WIDTH, end = j * width;
    T *y = (T *)(void *)before->at.y;
    const T *e = before->kept;
    for (; at < end && at <= last; at += WIDTH) {
        V(stream)(y + at, FN(quotients)(before, e + at, i));
        i = i + WIDTH < width ? i + WIDTH : i + WIDTH - width;
    }
    if (j == with->N) V(store_part)(y + at, FN(quotients)(before, e + at, i), last + WIDTH - at);
    with->divided = at;
}

/* The exponentials of `count` rows LANES apart, and their sums to those of their lane, or as the
 * `first`. */
INLINE void FN(exponentials_of)(const FN(columns) * now, T *lane, T *e, int64_t pitch,
                                int64_t count, bool first) {
    for (int64_t i = 0; i < now->at.width; i += WIDTH) {
        VEC four[4], shift = V(load)(now->shift + i), floor = V(load)(now->floor + i);
        for (int64_t k = 0; k < 4; k++)
            four[k] = k < count ? V(load)(e + k * LANES * pitch + i) : V(set)(0);
        if (count == 4)
            FN(exponential_each)(four, 4, shift, floor);
        else
            for (int64_t k = 0; k < count; k++) four[k] = FN(exponential)(four[k], shift, floor);
        for (int64_t k = 0; k < count; k++) V(store)(e + k * LANES * pitch + i, four[k]);
        VEC sum = V(add)(V(add)(four[0], four[1]), V(add)(four[2], four[3]));
        V(store)(lane + i, first ? sum : V(add)(V(load)(lane + i), sum));
    }
}

/* Rows j to j + n of the neighbours. */
INLINE void FN(pass_rows)(FN(passing) * with, int64_t j, int64_t n, bool plain) {
    if (with->y == FN(by_vectors))
        FN(give_vectors)(with, j, n, plain);
    else if (with->y == FN(in_a_row))
        FN(give_in_a_row)(with, j + n);
    else
        FN(give_in_parts)(with, j, n);
    FN(take_in)(with, j, n, plain);
}

/* d += the sum of the first `count` lanes in the fixed tree (f32_sum_lanes): of that, as the others
 * would add 0, as much as the next power of two has lanes. */
INLINE void FN(add_lanes)(FN(columns) * now, T (*lanes)[ONS_MAX_COLUMNS], int64_t count) {
    int64_t n = now->vectors * WIDTH, all = 1;
    double term[ONS_MAX_COLUMNS];
    while (all < count) all *= 2;
    for (int64_t i = 0; i < n; i += WIDTH) {
        double tree[LANES][WIDTH];
        for (int64_t l = count; l < all; l++) V(store)(lanes[l] + i, V(set)(0));
        for (int64_t l = 0; l < all; l++)
            for (int64_t c = 0; c < WIDTH; c++) tree[l][c] = (double)lanes[l][i + c];
        for (int64_t half = all / 2; half > 0; half /= 2)
            for (int64_t l = 0; l < half; l++)
                for (int64_t c = 0; c < WIDTH; c++) tree[l][c] += tree[l + half][c];
        memcpy(term + i, tree, sizeof tree[0]);
    }
    for (int64_t i = 0; i < n; i++) { /* ons_state_add */
        double d = now->d[i], sum = d + LOWERED * term[i], other = sum - d;
        now->d_beyond[i] += (d - (sum - other)) + (LOWERED * term[i] - other);
        now->d[i] = sum;
    }
}

/* One panel's exponentials and sums, while the rows of its neighbours pass. */
INLINE void FN(pass)(FN(passing) * with, bool plain) {
    FN(columns) *now = with->now;
    int64_t N = with->N, pitch = with->pitch;
    T lanes[LANES][ONS_MAX_COLUMNS];
    for (int64_t j = 0; j < N; j += BLOCK) {
        int64_t end = N - j < BLOCK ? N : j + BLOCK;
        for (int64_t q = j; q < end; q += QUAD)
            for (int64_t l = 0; l < LANES && q + l < end; l++) {
                int64_t count = (end - q - l + LANES - 1) / LANES, row = q + 4 * l;
                T *e = now->kept + (q + l) * pitch;
                if (count >= 4)
                    FN(exponentials_of)(now, lanes[l], e, pitch, 4, q == j);
                else
                    FN(exponentials_of)(now, lanes[l], e, pitch, count, q == j);
                if (end - row >= 4)
                    FN(pass_rows)(with, row, 4, plain);
                else if (end > row)
                    FN(pass_rows)(with, row, end - row, plain);
            }
        FN(add_lanes)(now, lanes, end - j < LANES ? end - j : LANES);
    }
}

/* What a panel in the caches needs before its exponentials: shift and floor, and the columns with
 * an anchor relative to it (ons_panel_anchor). */
static void FN(refer_columns)(FN(columns) * now, const ons_run_of_columns *run) {
    for (int64_t i = 0; i < now->vectors * WIDTH; i += WIDTH) {
        VEC m = V(load)(now->m + i);
        if (FN(any_far)(m)) {
            T anchor[WIDTH];
            for (int64_t c = 0; c < WIDTH; c++)
                anchor[c] = ons_needs_anchor((double)now->m[i + c]) ? now->m[i + c] : 0;
            VEC by = V(load)(anchor);
            for (T *e = now->kept + i, *end = e + run->N * run->pitch; e < end; e += run->pitch)
                V(store)(e, V(sub)(V(load)(e), by));
            m = V(sub)(m, by);
            V(store)(now->m + i, m);
        }
        FN(refer_lanes)(m, now->shift + i, now->floor + i);
        for (int64_t c = 0; c < WIDTH; c++) now->d[i + c] = now->d_beyond[i + c] = 0;
    }
}

/* What it needs before it is divided; the first factors once more behind the last. Returns their
 * sum, which is NaN where one is, added to `factors`. */
static VEC FN(normalize_columns)(FN(columns) * now, VEC factors) {
    int64_t n = now->vectors * WIDTH;
    for (int64_t i = 0; i < n; i++)
        FN(reciprocal)(now->m[i], now->d[i], now->d_beyond[i], now->factor + i, now->beyond + i);
    for (int64_t i = 0; i < WIDTH; i++) {
        now->factor[n + i] = now->factor[i];
        now->beyond[n + i] = now->beyond[i];
    }
    for (int64_t i = 0; i < now->at.width; i += WIDTH) {
        int64_t there = now->at.width - i < WIDTH ? now->at.width - i : WIDTH;
        factors = V(add)(factors, V(join)(V(load)(now->factor + i), V(set)(0), there));
    }
    return factors;
}

INLINE void FN(begin_columns)(FN(columns) * columns, const ons_run_of_columns *run, int64_t index) {
    columns->at = index < run->count ? run->at(run->from, run->first + index) : ONS_NO_COLUMNS;
    columns->vectors = (columns->at.width + WIDTH - 1) / WIDTH;
    for (int64_t i = 0; i < columns->vectors * WIDTH; i++) columns->m[i] = (T)-INFINITY;
}

/* How the rows of y are written: as whole vectors each, as vectors of all that lie in a row, or
 * with what each begins and ends with apart. */
INLINE void FN(begin_division)(FN(passing) * with, bool past_caches) {
    const ons_columns *at = &with->before->at;
    uintptr_t bytes = (uintptr_t)at->y;
    bool lines = bytes % 64 == 0 && with->y_along % 64 == 0;
    past_caches = past_caches && with->y_dtype == OWN;
    with->past_caches = past_caches && (bytes | (uintptr_t)with->y_along) % sizeof(T) == 0;
    with->y = FN(in_parts);
    if (at->width == 0 || (at->width % FN(line) == 0 && (lines || !past_caches))) {
        with->y = FN(by_vectors);
    } else if (with->past_caches && at->width % FN(line) == 0 && with->pitch == at->width &&
               with->y_along == at->width * (int64_t)sizeof(T)) {
        with->y = FN(in_a_row);
        with->divided = FN(unaligned)((const T *)(const void *)at->y, at->width);
        for (int64_t i = 0; i < with->divided; i += WIDTH)
            STORE_AT((T *)(void *)at->y, i, with->divided,
                     FN(quotients)(with->before, with->before->kept + i, i));
    }
}

static bool FN(softmax_columns)(const ons_run_of_columns *run) {
    FN(columns) panels[3];
    FN(passing)
    with = {.before = panels,
            .now = panels + 1,
            .behind = panels + 2,
            .N = run->N,
            .x_along = run->x_along,
            .y_along = run->y_along,
            .where_along = run->where_along,
            .pitch = run->pitch,
            .x_dtype = run->x_dtype,
            .y_dtype = run->y_dtype,
            .scale = run->scale};
    T *room[2] = {run->kept, (T *)run->kept + run->N * run->pitch + WIDTH};
    VEC factors = V(set)(0);
    FN(begin_columns)(with.before, run, run->count);
    FN(begin_columns)(with.now, run, run->count);
    with.now->kept = room[1];
    /* panel i comes in, the one before it is worked on, and the one before that goes out */
    for (int64_t i = 0; i < run->count + 2; i++) {
        FN(begin_columns)(with.behind, run, i);
        with.behind->kept = with.before->kept = room[i % 2];
        ons_columns after =
            i + 1 < run->count ? run->at(run->from, run->first + i + 1) : with.behind->at;
        with.after = after.x;
        FN(begin_division)(&with, run->past_caches);
        if (FN(is_plain)(run, with.behind->at))
            FN(pass)(&with, true);
        else
            FN(pass)(&with, false);
        factors = FN(normalize_columns)(with.now, factors);
        FN(refer_columns)(with.behind, run);
        FN(columns) *free = with.before;
        with.before = with.now;
        with.now = with.behind;
        with.behind = free;
    }
    if (run->past_caches) V(settle)();
    return FN(has_nan)(factors);
}
