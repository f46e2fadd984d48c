/* short_columns_tmpl.h - neighbouring rows that lie side by side and fill their lanes at
 * most twice: as in short_tmpl.h a vector is the same element of every row, and that is how they
 * lie. Part of primitives_tmpl.h, whose parameters and names it uses. */

/* A finished panel on its way past the caches, while the next one is computed. It goes in whole
 * lines of y: one of which the neighbours write the rest must not go to memory yet, so that the
 * elements of a row that do not fill one wait, in front of the row of the next panel, if that goes
 * on where this one ends. */
typedef struct {
    T *y[2 * LANES]; /* the next line of each row */
    const T *from[2 * LANES];
    int64_t lines[2 * LANES], fewest; /* that are left of each row, and of all */
    int64_t rest[2 * LANES];          /* elements of each row behind them */
    int64_t waiting[2 * LANES];       /* elements in front of each row of the panel behind */
} FN(outgoing);

/* n elements of y, which are not whole lines. */
INLINE void FN(send_part)(T *y, const T *from, int64_t n) {
#define BODY(a, j) (a)
    EACH_VECTOR(y, from, n, BODY);
#undef BODY
}

INLINE void FN(begin_lines)(FN(outgoing) * out, const ons_run_of_columns *run, ons_columns at,
                            const T *kept, int64_t N) {
    out->fewest = at.width;
    for (int64_t j = 0; j < N; j++) {
        int64_t waiting = out->waiting[j], n = at.width + waiting;
        T *y = (T *)(void *)(at.y + j * run->y_along) - waiting;
        const T *from = kept + j * run->pitch - waiting;
        int64_t head = (uintptr_t)y % sizeof(T) == 0 ? FN(before_line)(y, n) : n;
        if (head > 0) FN(send_part)(y, from, head);
        out->y[j] = y + head;
        out->from[j] = from + head;
        out->lines[j] = (n - head) / FN(line);
        out->rest[j] = (n - head) % FN(line);
        if (out->lines[j] < out->fewest) out->fewest = out->lines[j];
    }
}

/* The next line of row j. */
INLINE void FN(send_line)(FN(outgoing) * out, int64_t j) {
    for (int64_t v = 0; v < FN(line); v += WIDTH)
        V(stream)(out->y[j] + v, V(load)(out->from[j] + v));
    out->y[j] += FN(line);
    out->from[j] += FN(line);
    out->lines[j]--;
}

/* The lines that are left. `behind`: row 0 of the panel that goes on where this one ends, or NULL.
 */
INLINE void FN(end_lines)(FN(outgoing) * out, T *behind, int64_t pitch, int64_t N) {
    for (int64_t j = 0; j < N; j++) {
        int64_t rest = out->rest[j];
        while (out->lines[j] > 0) FN(send_line)(out, j);
        out->waiting[j] = behind ? rest : 0;
        if (!behind && rest > 0) FN(send_part)(out->y[j], out->from[j], rest);
        for (int64_t v = FN(line); behind && v > 0; v -= WIDTH) /* the line that ends with them */
            V(store)(behind + j * pitch - v, V(load)(out->from[j] + rest - v));
    }
}

/* One panel's columns from c on that fill a vector, to `kept` or to y; those of the next panel are
 * fetched. */
INLINE VEC FN(short_columns)(const ons_run_of_columns *run, ons_columns at, const char *next,
                             int64_t c, int64_t N, FN(kind) kind, bool plain, T *kept, VEC sum) {
    double scale = plain ? 1.0 : run->scale;
    bool each = !plain && at.scale;
    FN(group) group;
    VEC x[2 * LANES];
    for (int64_t j = 0; j < N && run->past_caches; j++)
        FN(fetch)(next + j * run->x_along + c * FN(size_as)(kind.x));
    FN(scales) scales;
    if (each) FN(take_scales)(&scales, run, at, c);
    for (int64_t j = 0; j < N; j++) {
        const char *where = !plain && at.where ? at.where + j * run->where_along : NULL;
        x[j] = FN(take_at)(at.x + j * run->x_along, where, c, at.width, kind.x, scale,
                           each ? &scales : NULL);
    }
    FN(finish_columns)(kind.operation, x, N, &group);
    for (int64_t j = 0; j < N; j++)
        if (kept)
            V(store)(kept + j * run->pitch + c, x[j]);
        else
            FN(put_at)(at.y + j * run->y_along, c, at.width, x[j], kind);
    return FN(add_rows)(sum, &group, at.width - c < WIDTH ? at.width - c : WIDTH);
}

/* N a constant, or the run's. */
INLINE bool FN(short_columns_of)(const ons_run_of_columns *run, ons_operation operation, int64_t N,
                                 bool plain) {
    FN(kind) kind = FN(kind_of)(operation, plain ? OWN : run->x_dtype, plain ? OWN : run->y_dtype);
    bool past_caches = run->past_caches && run->y_dtype == OWN;
    VEC sum = V(set)(0);
    FN(outgoing) out;
    T *room[2] = {FN(kept_panel)(run, 0), FN(kept_panel)(run, 1)};
    ons_columns before = ONS_NO_COLUMNS, at = run->at(run->from, run->first);
    for (int64_t j = 0; j < N; j++) out.waiting[j] = 0;
    for (int64_t i = 0; i < run->count + past_caches; i++) {
        ons_columns next =
            i + 1 < run->count ? run->at(run->from, run->first + i + 1) : ONS_NO_COLUMNS;
        const char *fetch = next.width > 0 ? next.x : at.x;
        T *kept = past_caches ? room[i % 2] : NULL;
        out.fewest = 0;
        if (past_caches) FN(begin_lines)(&out, run, before, room[1 - i % 2], N);
        for (int64_t c = 0; c < at.width; c += WIDTH) {
            sum = FN(short_columns)(run, at, fetch, c, N, kind, plain, kept, sum);
            if (c % FN(line) != 0 || c / FN(line) >= out.fewest) continue;
            for (int64_t j = 0; j < N; j++) FN(send_line)(&out, j);
        }
        bool goes_on = run->waits && FN(goes_on)(&before, &at);
        if (past_caches) FN(end_lines)(&out, goes_on ? kept : NULL, run->pitch, N);
        before = at;
        at = next;
    }
    if (past_caches) V(settle)();
    return FN(has_nan)(sum);
}
