/* fused_tmpl.h - softmax of whole rows that lie in memory as the arithmetic takes them, one row
 * after the other: while the exponentials of a row are computed, the row before it is divided, the
 * maximum of the row behind it is found, and what comes after that is fetched, so that the core
 * computes while memory moves. Adds up as row_tmpl.h does. Part of primitives_tmpl.h, whose
 * parameters and names it uses. */

/* Bytes from the element whose maximum is taken to the one that is fetched. */
enum { FN(ahead) = 4096 };

/* Vectors of an array of `as`, the compute type or one of 16 bits; `as` is a constant where this is
 * used. A part is its first k elements, the rest -inf. */
INLINE int64_t FN(size_as)(ons_dtype as) {
    return as == ONS_FLOAT16 || as == ONS_BFLOAT16 ? 2 : (int64_t)sizeof(T);
}

INLINE VEC FN(take)(const char *x, ons_dtype as) {
#if BITS == 32
    if (as == ONS_FLOAT16) return V(load_half)(x);
    if (as == ONS_BFLOAT16) return V(load_bfloat)(x);
#endif
    (void)as;
    return V(load)((const T *)(const void *)x);
}

INLINE VEC FN(take_part)(const char *x, int64_t k, ons_dtype as) {
    if (FN(size_as)(as) != 2) return V(load_part)((const T *)(const void *)x, k);
    T part[WIDTH];
    V(store)(part, V(set)((T)-INFINITY));
    FN(load)(part, x, 2, as, k);
    return V(load)(part);
}

INLINE void FN(put)(char *y, VEC a, ons_dtype as, bool past_caches) {
#if BITS == 32
    if (as == ONS_FLOAT16) {
        V(store_half)(y, a);
        return;
    }
    if (as == ONS_BFLOAT16) {
        V(store_quotient_bfloat)(y, a);
        return;
    }
#endif
    (void)as;
    if (past_caches)
        V(stream)((T *)(void *)y, a);
    else
        V(store)((T *)(void *)y, a);
}

INLINE void FN(put_part)(char *y, VEC a, int64_t k, ons_dtype as) {
    if (FN(size_as)(as) != 2) {
        V(store_part)((T *)(void *)y, a, k);
        return;
    }
    T part[WIDTH];
    V(store)(part, a);
    FN(store)(y, 2, as, part, k);
}

/* y = e / d, from the first aligned place of y on where it goes past the caches; what lies before
 * it is done at the beginning. */
typedef struct {
    char *y;
    const T *e;
    VEC factor, beyond;
    int64_t at, n;
    bool past_caches;
    T *shared; /* with the row behind, where that follows without a gap: the vector that both fill
                */
} FN(quotient);

/* `shared`: what the row before left of the vector that it shares with this one; or NULL. A line
 * that two rows write in parts would have to be read from memory first, and all stores behind would
 * wait.
 */
INLINE FN(quotient) FN(begin_quotient)(const ons_rows *rows, char *y, const T *e, int64_t n,
                                       ons_dtype as, bool past_caches, T *shared) {
    FN(quotient)
    q = {y, e, SET_OF(rows->factor, 0), SET_OF(rows->factor_beyond, 0), 0, n, past_caches, NULL};
    if (FN(size_as)(as) == 2) return q;
    T *to = (T *)(void *)y;
    q.at = FN(unaligned)(to, n);
    if ((uintptr_t)y % sizeof(T) != 0) q.past_caches = false; /* aligned nowhere */
    if (shared && q.at > 0) {
        VEC head = V(times)(V(load_part)(e, q.at), q.factor, q.beyond);
        V(store_part)(shared + WIDTH - q.at, head, q.at);
        V(stream)(to + q.at - WIDTH, V(load)(shared));
        return q;
    }
#define BODY(a, j) V(times)(a, q.factor, q.beyond)
    EACH_VECTOR(to, e, q.at, BODY);
#undef BODY
    return q;
}

INLINE void FN(divide_vectors)(FN(quotient) * q, int64_t vectors, ons_dtype as, bool past_caches) {
    const T *e = q->e + q->at;
    int64_t size = FN(size_as)(as);
    char *to = q->y + q->at * size;
    for (int64_t v = 0; v < vectors; v++) FN(put)
    (to + v * WIDTH * size, V(times)(V(load)(e + v * WIDTH), q->factor, q->beyond), as,
     past_caches);
    q->at += vectors * WIDTH;
}

INLINE void FN(end_quotient)(FN(quotient) * q, ons_dtype as) {
    int64_t vectors = (q->n - q->at) / WIDTH;
    if (q->past_caches)
        FN(divide_vectors)(q, vectors, as, true);
    else
        FN(divide_vectors)(q, vectors, as, false);
    int64_t left = q->n - q->at;
    if (left == 0) return;
    VEC last = V(times)(V(load_part)(q->e + q->at, left), q->factor, q->beyond);
    if (q->shared) {
        V(store)(q->shared, last);
        return;
    }
    FN(put_part)(q->y + q->at * FN(size_as)(as), last, left, as);
}

/* The largest element so far; passes over NaN, which the sum of the exponentials will show. */
typedef struct {
    const char *x;
    VEC even, odd;
    int64_t at, n;
} FN(maximum);

INLINE FN(maximum) FN(begin_maximum)(const void *x, int64_t n) {
    VEC none = V(set)((T)-INFINITY);
    return (FN(maximum)){x, none, none, 0, n};
}

INLINE void FN(compare_vectors)(FN(maximum) * m, int64_t pairs, ons_dtype as) {
    int64_t vector = WIDTH * FN(size_as)(as);
    const char *x = m->x + m->at * FN(size_as)(as);
    for (int64_t v = 0; v < 2 * pairs; v += 2) {
        m->even = V(max)(FN(take)(x + v * vector, as), m->even);
        m->odd = V(max)(FN(take)(x + (v + 1) * vector, as), m->odd);
    }
    m->at += 2 * pairs * WIDTH;
}

INLINE VEC FN(lanes_of_maximum)(FN(maximum) * m, ons_dtype as) {
    FN(compare_vectors)(m, (m->n - m->at) / (2 * WIDTH), as);
    for (; m->at < m->n; m->at += WIDTH) {
        int64_t left = m->n - m->at;
        const char *x = m->x + m->at * FN(size_as)(as);
        m->even = V(max)(left >= WIDTH ? FN(take)(x, as) : FN(take_part)(x, left, as), m->even);
    }
    return V(max)(m->even, m->odd);
}

INLINE T FN(end_maximum)(FN(maximum) * m, ons_dtype as) {
    return V(max_lanes)(FN(lanes_of_maximum)(m, as));
}

/* What goes on while the exponentials of a row are computed, a quad at a time. */
typedef struct {
    FN(quotient) before;
    FN(maximum) behind;
    const char *fetch, *fetch_end, *fetch_then;
} FN(meanwhile);

INLINE void FN(go_on)(FN(meanwhile) * with, ons_dtype as, bool past_caches) {
    int64_t bytes = QUAD * FN(size_as)(as);
    if (with->before.at + QUAD <= with->before.n)
        FN(divide_vectors)(&with->before, QUAD / WIDTH, as, past_caches);
    if (with->behind.at + QUAD <= with->behind.n)
        FN(compare_vectors)(&with->behind, QUAD / WIDTH / 2, as);
    if (with->fetch >= with->fetch_end) { /* on in the row after it */
        with->fetch_then += with->fetch - with->fetch_end;
        with->fetch_end += with->fetch_then - with->fetch + bytes * BLOCK;
        with->fetch = with->fetch_then;
    }
    const char *fetch = with->fetch;
    for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(fetch + line);
    with->fetch += bytes;
}

/* e = e^x, and their sum to the state. */
INLINE void FN(exponentials)(const ons_rows *rows, T *e, const char *x, int64_t n,
                             FN(meanwhile) * with, ons_dtype as, bool past_caches) {
    VEC shift = SET_OF(rows->shift, 0), floor = SET_OF(rows->floor, 0);
    int64_t size = FN(size_as)(as), j = 0;
    ons_state state = rows->state[0];
    for (; j + BLOCK <= n; j += BLOCK) {
        VEC lanes[VECS];
        for (int64_t v = 0; v < VECS; v++) lanes[v] = V(set)(0);
        for (int64_t q = j; q < j + BLOCK; q += QUAD) {
            for (int64_t v = 0; v < VECS; v++) {
                VEC four[4];
                int64_t at = q + v * WIDTH;
                for (int64_t k = 0; k < 4; k++) four[k] = FN(take)(x + (at + k * LANES) * size, as);
                FN(exponential_each)(four, 4, shift, floor);
                for (int64_t k = 0; k < 4; k++) V(store)(e + at + k * LANES, four[k]);
                VEC sum = V(add)(V(add)(four[0], four[1]), V(add)(four[2], four[3]));
                lanes[v] = V(add)(lanes[v], sum);
            }
            FN(go_on)(with, as, past_caches);
        }
        ons_state_add(&state, LOWERED * V(sum_lanes)(lanes));
    }
    if (j < n) {
        const T *rest = (const T *)(const void *)x + j;
        if (size == 2) {
            FN(load)(e + j, x + j * size, 2, as, n - j);
            rest = e + j;
        }
        ons_state_add(&state,
                      FN(block_row)(shift, floor, e + j, rest, n - j, false, true, NULL, 0));
    }
    rows->state[0] = state;
}

/* The same of a row that is taken relative to its maximum (ons_panel_anchor). */
static void FN(anchored_exponentials)(const ons_rows *rows, T *e, const char *x, int64_t n,
                                      ons_dtype as, T m) {
    double anchor = (double)m;
    FN(load)(e, x, FN(size_as)(as), as, n);
    FN(subtract)(e, &anchor, false, n);
    FN(exp_store_sum_row)(rows, (ons_tile){e, sizeof(T), 0}, (ons_tile){e, sizeof(T), 0}, n);
}

INLINE void FN(softmax_rows_as)(const ons_run_of_rows *run, ons_dtype as) {
    T shift, floor, factor = 0, beyond = 0;
    ons_state state;
    ons_rows rows = {.width = 1,
                     .state = &state,
                     .shift = &shift,
                     .floor = &floor,
                     .factor = &factor,
                     .factor_beyond = &beyond};
    int64_t N = run->N;
    const char *x = run->x.data;
    char *y = run->y.data;
    FN(maximum) first = FN(begin_maximum)(x, N);
    T m = FN(end_maximum)(&first, as);
    FN(meanwhile) with;
    with.before = FN(begin_quotient)(&rows, y, run->kept, 0, as, false, NULL);
    T shared[WIDTH];
    bool follow = run->past_caches && run->y.across == N * (int64_t)sizeof(T) &&
                  (uintptr_t)y % sizeof(T) == 0 && FN(size_as)(as) != 2;
    for (int64_t i = 0; i < run->count; i++, x += run->x.across, y += run->y.across) {
        const char *behind = x + run->x.across;
        T *e = (T *)run->kept + i % 2 * run->pitch;
        bool far = ons_needs_anchor((double)m);
        state = ons_state_empty();
        ons_state_raise(&state, far ? 0.0 : (double)m);
        FN(refer)(&rows);
        with.behind = FN(begin_maximum)(behind, i + 1 < run->count ? N : 0);
        with.fetch = behind + FN(ahead);
        with.fetch_end = behind + N * FN(size_as)(as);
        with.fetch_then = behind + run->x.across;
        if (far)
            FN(anchored_exponentials)(&rows, e, x, N, as, m);
        else if (with.before.past_caches)
            FN(exponentials)(&rows, e, x, N, &with, as, true);
        else
            FN(exponentials)(&rows, e, x, N, &with, as, false);
        FN(end_quotient)(&with.before, as);
        m = FN(end_maximum)(&with.behind, as);
        FN(normalize)(&rows);
        with.before = FN(begin_quotient)(&rows, y, e, N, as, run->past_caches,
                                         follow && i > 0 ? shared : NULL);
        with.before.shared = follow && i + 1 < run->count ? shared : NULL;
    }
    FN(end_quotient)(&with.before, as);
    if (run->past_caches) V(settle)();
}

static void FN(softmax_rows)(const ons_run_of_rows *run) {
    FN(softmax_rows_as)(run, BITS == 32 ? ONS_FLOAT32 : ONS_FLOAT64);
}

#if BITS == 32
static void FN(softmax_half_rows)(const ons_run_of_rows *run) {
    FN(softmax_rows_as)(run, ONS_FLOAT16);
}
static void FN(softmax_bfloat_rows)(const ons_run_of_rows *run) {
    FN(softmax_rows_as)(run, ONS_BFLOAT16);
}
#endif
