/* fused_columns_tmpl.h - softmax of neighbouring rows that lie side by side, panel after panel:
 * while the exponentials of a panel are computed, the panel before is divided and the one behind
 * comes from memory, is compared, and takes the place of the one before. Two panels stay in the
 * caches so, and the core computes while memory moves. Adds up as row_tmpl.h does. Part of
 * primitives_tmpl.h, whose parameters and names it uses. */

/* A panel, and what there is one of a column; of the quotients also for a line in front, where
 * elements may wait. Beyond its width there is room for a vector. */
typedef struct {
    ons_columns at;  /* of width 0: there is no such panel */
    int64_t vectors; /* that hold a row of it */
    T *kept;         /* its elements, then their exponentials */
    T m[ONS_MAX_COLUMNS], shift[ONS_MAX_COLUMNS], floor[ONS_MAX_COLUMNS];
    T factor[FN(line) + ONS_MAX_COLUMNS + WIDTH], beyond[FN(line) + ONS_MAX_COLUMNS + WIDTH];
    FN(wide) d[ONS_MAX_COLUMNS / WIDTH], d_beyond[ONS_MAX_COLUMNS / WIDTH];
} FN(columns);

/* Panels on their way. */
typedef struct {
    FN(columns) * before, *now, *behind;
    const char *after; /* row 0 of the panel behind the one behind */
    int64_t N, x_along, y_along, where_along, pitch;
    ons_dtype x_dtype, y_dtype;
    const ons_run_of_columns *run;
    bool past_caches; /* how the rows of y are written: */
    enum { FN(by_vectors), FN(in_a_row), FN(by_lines), FN(in_parts) } y;
    int64_t divided;         /* elements of the panel before, where y is in a row */
    bool continues, goes_on; /* where what does not fill a line may wait: whether rows of y
                                go on where the panel before ends, and the one behind so */
} FN(passing);

/* Column i's vector of a kept row; in tight rows, the next one begins where its columns end. */
INLINE void FN(keep)(T *row, int64_t i, int64_t pitch, VEC a, bool tight) {
    if (tight)
        STORE_AT(row, i, pitch, a);
    else
        V(store)(row + i, a);
}

/* `n` rows from j on of the panel behind: compared, and into the place of the panel before. */
INLINE void FN(take_in)(const FN(passing) * with, int64_t j, int64_t n, bool plain, bool tight) {
    FN(columns) *behind = with->behind;
    int64_t width = behind->at.width, x_along = with->x_along, pitch = with->pitch;
    ons_dtype as = plain ? OWN : with->x_dtype;
    double scale = plain ? 1.0 : with->run->scale;
    bool each = !plain && behind->at.scale;
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
        FN(scales) scales;
        if (each) FN(take_scales)(&scales, with->run, behind->at, i);
        for (int64_t k = 0; k < n; k++) {
            const char *mask = where ? where + k * with->where_along : NULL;
            VEC a = FN(take_at)(x + k * x_along, mask, i, width, as, scale, each ? &scales : NULL);
            FN(keep)(to + k * pitch, i, pitch, a, tight);
            m = V(max)(a, m);
        }
        V(store)(behind->m + i, m);
    }
}

/* One vector of the panel before. */
INLINE VEC FN(quotients)(const FN(columns) * before, const T *e, int64_t i) {
    const T *factor = before->factor + FN(line) + i, *beyond = before->beyond + FN(line) + i;
    return V(times)(V(load)(e), V(load)(factor), V(load)(beyond));
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
        VEC factor = V(load)(before->factor + FN(line) + i);
        VEC beyond = V(load)(before->beyond + FN(line) + i);
        for (int64_t k = 0; k < n; k++) {
            VEC quotient = V(times)(V(load)(e + k * pitch + i), factor, beyond);
            FN(put)(to + k * y_along + i * FN(size_as)(as), quotient, as, past_caches);
        }
    }
}

/* The same of rows that may begin and end in the midst of a cache line, past the caches: a line of
 * which the neighbours write the rest must not go to memory yet. What does not fill one waits in
 * front of the row that goes on where this one ends. */
static void FN(give_lines)(const FN(passing) * with, int64_t j, int64_t n) {
    const FN(columns) *before = with->before;
    int64_t width = before->at.width, pitch = with->pitch;
    for (int64_t k = j; k < j + n; k++) {
        char *row = before->at.y + k * with->y_along;
        T *y = (T *)(void *)row, *behind = with->now->kept + k * pitch;
        const T *e = before->kept + k * pitch;
        bool continues = with->continues, goes_on = with->goes_on;
        int64_t i = 0, head = continues ? 0 : FN(before_line)(y, width);
        for (; i < head; i += WIDTH) STORE_AT(y, i, head, FN(quotients)(before, e + i, i));
        i = continues ? -(int64_t)((uintptr_t)y % 64 / sizeof(T)) : head;
        for (; i + FN(line) <= width; i += FN(line))
            for (int64_t v = i; v < i + FN(line); v += WIDTH)
                V(stream)(y + v, FN(quotients)(before, e + v, v));
        for (; !goes_on && i < width; i += WIDTH)
            STORE_AT(y, i, width, FN(quotients)(before, e + i, i));
        for (int64_t v = FN(line); goes_on && v > 0; v -= WIDTH)
            V(store)(behind - v, V(load)(e + width - v));
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

/* The same of rows that end in the midst of a vector, or are of another type. */
static void FN(give_in_parts)(const FN(passing) * with, int64_t j, int64_t n) {
    const FN(columns) *before = with->before;
    int64_t width = before->at.width;
    for (int64_t k = j; k < j + n; k++) {
        char *row = before->at.y + k * with->y_along;
        const T *e = before->kept + k * with->pitch;
        for (int64_t i = 0; i < width; i += WIDTH)
            FN(put_at)(row, i, width, FN(quotients)(before, e + i, i), with->y_dtype);
    }
}

/* The exponentials of `count` rows LANES apart, and their sums to those of their lane, or as the
 * `first`. */
INLINE void FN(exponentials_of)(const FN(columns) * now, T *lane, T *e, int64_t pitch,
                                int64_t count, bool first, bool tight) {
    for (int64_t i = 0; i < now->at.width; i += WIDTH) {
        VEC four[4], shift = V(load)(now->shift + i), floor = V(load)(now->floor + i);
        for (int64_t k = 0; k < 4; k++)
            four[k] = k < count ? V(load)(e + k * LANES * pitch + i) : V(set)(0);
        if (count == 4)
            FN(exponential_each)(four, 4, shift, floor);
        else
            for (int64_t k = 0; k < count; k++) four[k] = FN(exponential)(four[k], shift, floor);
        for (int64_t k = 0; k < count; k++)
            FN(keep)(e + k * LANES * pitch, i, pitch, four[k], tight);
        VEC sum = V(add)(V(add)(four[0], four[1]), V(add)(four[2], four[3]));
        V(store)(lane + i, first ? sum : V(add)(V(load)(lane + i), sum));
    }
}

/* Rows j to j + n of the neighbours. */
INLINE void FN(pass_rows)(FN(passing) * with, int64_t j, int64_t n, bool plain, bool tight) {
    if (with->y == FN(by_vectors))
        FN(give_vectors)(with, j, n, plain);
    else if (with->y == FN(in_a_row))
        FN(give_in_a_row)(with, j + n);
    else if (with->y == FN(by_lines))
        FN(give_lines)(with, j, n);
    else
        FN(give_in_parts)(with, j, n);
    FN(take_in)(with, j, n, plain, tight);
}

/* d += the sum of the first `count` lanes, of each column. */
INLINE void FN(add_lanes)(FN(columns) * now, const T (*lanes)[ONS_MAX_COLUMNS], int64_t count) {
    for (int64_t v = 0; v < now->vectors; v++) FN(add_term)
    (&now->d[v], &now->d_beyond[v], FN(sum_columns)(*lanes + v * WIDTH, ONS_MAX_COLUMNS, count));
}

/* One panel's exponentials and sums, while the rows of its neighbours pass. */
INLINE void FN(pass)(FN(passing) * with, bool plain, bool tight) {
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
                    FN(exponentials_of)(now, lanes[l], e, pitch, 4, q == j, tight);
                else
                    FN(exponentials_of)(now, lanes[l], e, pitch, count, q == j, tight);
                if (end - row >= 4)
                    FN(pass_rows)(with, row, 4, plain, tight);
                else if (end > row)
                    FN(pass_rows)(with, row, end - row, plain, tight);
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
            VEC by = FN(anchors)(m);
            for (T *e = now->kept, *end = e + run->N * run->pitch; e < end; e += run->pitch)
                FN(keep)(e, i, run->pitch, V(sub)(V(load)(e + i), by), true);
            m = V(sub)(m, by);
            V(store)(now->m + i, m);
            m = FN(nearer)(m);
        }
        FN(refer_lanes)(m, now->shift + i, now->floor + i);
        now->d[i / WIDTH] = now->d_beyond[i / WIDTH] = FN(wide_zero)();
    }
}

/* What it needs before it is divided. In front are the factors of what waits there, which is of the
 * panel before; the first ones once more behind the last. Returns their sum, which is NaN where one
 * is, added to `factors`. */
static VEC FN(normalize_columns)(FN(columns) * now, const FN(columns) * before, VEC factors) {
    T *factor = now->factor + FN(line), *beyond = now->beyond + FN(line);
    int64_t width = now->at.width, front = before->at.width;
    for (int64_t i = 0; i < width; i += WIDTH) {
        VEC m = V(load)(now->m + i);
        int64_t v = i / WIDTH, there = width - i < WIDTH ? width - i : WIDTH;
        FN(inverse)(now->d[v], &now->d_beyond[v], m, factor + i, beyond + i);
        factors = V(add)(factors, V(join)(V(load)(factor + i), V(set)(0), there));
    }
    V(store)(factor + width, V(load)(factor));
    V(store)(beyond + width, V(load)(beyond));
    for (int64_t i = 0; front >= FN(line) && i < FN(line); i += WIDTH) {
        V(store)(now->factor + i, V(load)(before->factor + front + i));
        V(store)(now->beyond + i, V(load)(before->beyond + front + i));
    }
    return factors;
}

INLINE void FN(begin_columns)(FN(columns) * columns, const ons_run_of_columns *run, int64_t index) {
    columns->at = index < run->count ? run->at(run->from, run->first + index) : ONS_NO_COLUMNS;
    columns->vectors = (columns->at.width + WIDTH - 1) / WIDTH;
    for (int64_t i = 0; i < columns->vectors * WIDTH; i++) columns->m[i] = (T)-INFINITY;
}

/* How the rows of y are written: as whole vectors each; past the caches as vectors of all that lie
 * in a row, or in lines; or with what each ends with apart. */
INLINE void FN(begin_division)(FN(passing) * with, bool past_caches) {
    const ons_columns *at = &with->before->at;
    uintptr_t bytes = (uintptr_t)at->y;
    bool lines = bytes % 64 == 0 && with->y_along % 64 == 0;
    past_caches =
        past_caches && with->y_dtype == OWN && (bytes | (uintptr_t)with->y_along) % sizeof(T) == 0;
    with->past_caches = past_caches;
    with->continues = with->goes_on;
    with->goes_on = with->run->waits && FN(goes_on)(at, &with->now->at);
    with->y = past_caches ? FN(by_lines) : FN(in_parts);
    if (at->width == 0 || (at->width % FN(line) == 0 && (lines || !past_caches))) {
        with->y = FN(by_vectors);
    } else if (past_caches && at->width >= WIDTH && with->pitch == at->width &&
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
            .run = run};
    T *room[2] = {FN(kept_panel)(run, 0), FN(kept_panel)(run, 1)};
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
        if (!FN(is_plain)(run, with.behind->at))
            FN(pass)(&with, false, false);
        else if (run->pitch % WIDTH != 0)
            FN(pass)(&with, true, true);
        else
            FN(pass)(&with, true, false);
        factors = FN(normalize_columns)(with.now, with.before, factors);
        FN(refer_columns)(with.behind, run);
        FN(columns) *free = with.before;
        with.before = with.now;
        with.now = with.behind;
        with.behind = free;
    }
    if (run->past_caches) V(settle)();
    return FN(has_nan)(factors);
}
