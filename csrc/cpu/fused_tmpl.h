/* fused_tmpl.h - softmax of whole rows that lie in memory as the arithmetic takes them, one row
 * after the other: while the exponentials of a row are computed, the row before it is divided, the
 * maximum of the row behind it is found, and what comes after that is fetched, so that the core
 * computes while memory moves. Adds up as row_tmpl.h does. Part of primitives_tmpl.h, whose
 * parameters and names it uses. */

/* Bytes from the element whose maximum is taken to the one that is fetched. */
enum { FN(ahead) = 4096 };

/* y = e / d, from the first place on where a vector of y is aligned: it crosses no cache line
 * there, and can go past the caches. What lies before that place is done at the beginning. */
typedef struct {
    T *y;
    const T *e;
    VEC factor, beyond;
    int64_t at, n;
    bool past_caches;
} FN(quotient);

INLINE FN(quotient) FN(begin_quotient)(const ons_rows *rows, int64_t i, T *y, const T *e, int64_t n,
                                       bool past_caches) {
    FN(quotient)
    q = {y, e, SET_OF(rows->factor, i), SET_OF(rows->factor_beyond, i), 0, n, past_caches};
    q.at = FN(unaligned)(y, n);
    if ((uintptr_t)y % sizeof(T) != 0) q.past_caches = false; /* aligned nowhere */
    /* the line that this row and the next share is written in parts: without it in the caches all
     * stores behind would wait */
    __builtin_prefetch(y + n, 1);
#define BODY(a, j) V(times)(a, q.factor, q.beyond)
    EACH_VECTOR(y, e, q.at, BODY);
#undef BODY
    return q;
}

INLINE void FN(divide_vectors)(FN(quotient) * q, int64_t vectors, bool past_caches) {
    const T *e = q->e + q->at;
    T *to = q->y + q->at;
    for (int64_t v = 0; v < vectors; v++) {
        VEC y = V(times)(V(load)(e + v * WIDTH), q->factor, q->beyond);
        if (past_caches)
            V(stream)(to + v * WIDTH, y);
        else
            V(store)(to + v * WIDTH, y);
    }
    q->at += vectors * WIDTH;
}

INLINE void FN(end_quotient)(FN(quotient) * q) {
    FN(divide_vectors)(q, (q->n - q->at) / WIDTH, q->past_caches);
#define BODY(a, j) V(times)(a, q->factor, q->beyond)
    EACH_VECTOR(q->y + q->at, q->e + q->at, q->n - q->at, BODY);
#undef BODY
}

/* The largest element so far; passes over NaN, which the sum of the exponentials will show. */
typedef struct {
    const T *x;
    VEC even, odd;
    int64_t at, n;
} FN(maximum);

INLINE FN(maximum) FN(begin_maximum)(const T *x, int64_t n) {
    VEC none = V(set)((T)-INFINITY);
    return (FN(maximum)){x, none, none, 0, n};
}

INLINE void FN(compare_vectors)(FN(maximum) * m, int64_t pairs) {
    const T *x = m->x + m->at;
    for (int64_t v = 0; v < 2 * pairs; v += 2) {
        m->even = V(max)(V(load)(x + v * WIDTH), m->even);
        m->odd = V(max)(V(load)(x + (v + 1) * WIDTH), m->odd);
    }
    m->at += 2 * pairs * WIDTH;
}

INLINE VEC FN(lanes_of_maximum)(FN(maximum) * m) {
    FN(compare_vectors)(m, (m->n - m->at) / (2 * WIDTH));
    for (; m->at < m->n; m->at += WIDTH) {
        int64_t left = m->n - m->at;
        const T *x = m->x + m->at;
        m->even = V(max)(left >= WIDTH ? V(load)(x) : V(load_part)(x, left), m->even);
    }
    return V(max)(m->even, m->odd);
}

INLINE T FN(end_maximum)(FN(maximum) * m) { return V(max_lanes)(FN(lanes_of_maximum)(m)); }

/* QUAD elements of each of what goes on meanwhile. */
typedef struct {
    FN(quotient) before;
    FN(maximum) behind;
    const char *fetch, *fetch_end, *fetch_then;
} FN(meanwhile);

INLINE void FN(go_on)(FN(meanwhile) * with, bool past_caches) {
    if (with->before.at + QUAD <= with->before.n)
        FN(divide_vectors)(&with->before, QUAD / WIDTH, past_caches);
    if (with->behind.at + QUAD <= with->behind.n)
        FN(compare_vectors)(&with->behind, QUAD / WIDTH / 2);
    if (with->fetch >= with->fetch_end) {
        with->fetch = with->fetch_then;
        with->fetch_end = with->fetch + (1 << 30);
    }
    const char *fetch = with->fetch;
    for (int64_t line = 0; line < QUAD * (int64_t)sizeof(T); line += 64)
        __builtin_prefetch(fetch + line);
    with->fetch += QUAD * (int64_t)sizeof(T);
}

/* e = e^x, and their sum to the state. */
INLINE void FN(exponentials)(const ons_rows *rows, T *e, const T *x, int64_t n,
                             FN(meanwhile) * with, bool past_caches) {
    VEC shift = SET_OF(rows->shift, 0), floor = SET_OF(rows->floor, 0);
    ons_state state = rows->state[0];
    int64_t j = 0;
    for (; j + BLOCK <= n; j += BLOCK) {
        VEC lanes[VECS];
        for (int64_t v = 0; v < VECS; v++) lanes[v] = V(set)(0);
        for (int64_t q = j; q < j + BLOCK; q += QUAD) {
            for (int64_t v = 0; v < VECS; v++)
                lanes[v] = V(add)(lanes[v], FN(whole_quad)(e + q + v * WIDTH, x + q + v * WIDTH,
                                                           shift, floor, false));
            FN(go_on)(with, past_caches);
        }
        ons_state_add(&state, LOWERED * V(sum_lanes)(lanes));
    }
    if (j < n)
        ons_state_add(&state,
                      FN(block_row)(shift, floor, e + j, x + j, n - j, false, true, NULL, 0));
    rows->state[0] = state;
}

static void FN(subtract)(void *tile, const double *anchor, bool each, int64_t n);

static void FN(softmax_rows)(const ons_run_of_rows *run) {
    T shift, floor, factor = 0, beyond = 0;
    ons_state state;
    ons_rows rows = {.width = 1,
                     .state = &state,
                     .shift = &shift,
                     .floor = &floor,
                     .factor = &factor,
                     .factor_beyond = &beyond};
    int64_t N = run->N;
    FN(maximum) first = FN(begin_maximum)(ROW(run->x, 0), N);
    T m = FN(end_maximum)(&first);
    FN(meanwhile) with;
    with.before = FN(begin_quotient)(&rows, 0, run->y.data, run->kept, 0, false);
    for (int64_t i = 0; i < run->count; i++) {
        const T *x = ROW(run->x, i);
        T *e = (T *)run->kept + i % 2 * run->pitch;
        state = ons_state_empty();
        if (ons_needs_anchor((double)m)) { /* x - m instead: ons_panel_anchor */
            double anchor = (double)m;
            memcpy(e, x, (size_t)N * sizeof(T));
            FN(subtract)(e, &anchor, false, N);
            x = e;
            m = 0;
        }
        ons_state_raise(&state, (double)m);
        FN(refer)(&rows);
        with.behind = FN(begin_maximum)(ROW(run->x, i + 1), i + 1 < run->count ? N : 0);
        with.fetch = (const char *)ROW(run->x, i + 1) + FN(ahead);
        with.fetch_end = (const char *)ROW(run->x, i + 1) + N * (int64_t)sizeof(T);
        with.fetch_then = (const char *)ROW(run->x, i + 2);
        if (with.before.past_caches)
            FN(exponentials)(&rows, e, x, N, &with, true);
        else
            FN(exponentials)(&rows, e, x, N, &with, false);
        FN(end_quotient)(&with.before);
        m = FN(end_maximum)(&with.behind);
        FN(normalize)(&rows);
        with.before = FN(begin_quotient)(&rows, 0, ROW(run->y, i), e, N, run->past_caches);
    }
    FN(end_quotient)(&with.before);
    if (run->past_caches) V(settle)();
}
