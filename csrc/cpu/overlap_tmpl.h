/* overlap_tmpl.h - what the softmax of whole rows does at once: while the exponentials of a row are
 * computed, a row before it is divided, the maximum of a row behind it is found, and what comes
 * after that is fetched, so that the core computes while memory moves. Part of primitives_tmpl.h,
 * whose parameters and names it uses. */

/* Bytes from the element whose maximum is taken to the one that is fetched. */
enum { FN(ahead) = 8192 };

/* Elements that the division of a row stays behind the maximum of another. Arrays often begin at
 * the same place of a page, and rows are as often a multiple of a page: a load of x that follows a
 * store to y with the same last 12 bits of its address waits for it. */
enum { FN(lag) = 512 / sizeof(T) };

/* Into the second cache: so far ahead the first one would lose other lines by it. */
INLINE void FN(fetch)(const char *line) { __builtin_prefetch(line, 0, 2); }

INLINE void FN(put_vector)(T *y, VEC a, bool past_caches) {
    if (past_caches)
        V(stream)(y, a);
    else
        V(store)(y, a);
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
    FN(put_vector)((T *)(void *)y, a, past_caches);
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

/* y = e / d, vector by vector: `at` is the first element that is not done. */
typedef struct {
    char *y;
    const T *e;
    VEC factor, beyond;
    int64_t at, n;
    bool past_caches;
    T *shared; /* with the row behind, where that follows without a gap: the vector that both fill
                */
} FN(quotient);

INLINE VEC FN(divided)(const FN(quotient) * q, VEC e) { return V(times)(e, q->factor, q->beyond); }

INLINE void FN(divide_vectors)(FN(quotient) * q, int64_t vectors, ons_dtype as, bool past_caches) {
    const T *e = q->e + q->at;
    int64_t size = FN(size_as)(as);
    char *to = q->y + q->at * size;
    for (int64_t v = 0; v < vectors; v++)
        FN(put)(to + v * WIDTH * size, FN(divided)(q, V(load)(e + v * WIDTH)), as, past_caches);
    q->at += vectors * WIDTH;
}

/* Vectors from the first aligned place of y, its element `head`, to the first cache line: those
 * that go past the caches together should be whole lines. Of a line whose second half comes later
 * the first may go to memory alone. */
INLINE int64_t FN(vectors_to_line)(const T *y, int64_t head, int64_t n) {
    return sizeof(VEC) < 64 ? (FN(before_line)(y, n) - head) / WIDTH : 0;
}

/* What lies before the first aligned place of y is done here, where the rest goes past the caches
 * or is long. `shared`: what the row before left of the vector that it shares with this one; or
 * NULL. A line that two rows write in parts would have to be read from memory first, and all stores
 * behind would wait. */
INLINE FN(quotient) FN(begin_quotient)(T factor, T beyond, char *y, const T *e, int64_t n,
                                       ons_dtype as, bool past_caches, T *shared) {
    FN(quotient) q = {y, e, V(set)(factor), V(set)(beyond), 0, n, past_caches, NULL};
    T *to = (T *)(void *)y;
    if (FN(size_as)(as) == 2 || (uintptr_t)y % sizeof(T) != 0) q.past_caches = false;
    if (FN(size_as)(as) == 2 || (!q.past_caches && n < 2 * BLOCK)) return q;
    int64_t head = FN(unaligned)(to, n);
    if (head > 0) {
        VEC first = FN(divided)(&q, V(load)(e));
        if (!q.past_caches) { /* the second vector overwrites a part of it */
            V(store)(to, first);
        } else if (shared) {
            V(store_part)(shared + WIDTH - head, first, head);
            V(stream)(to + head - WIDTH, V(load)(shared));
        } else {
            V(store_part)(to, first, head);
        }
        q.at = head;
    }
    if (q.past_caches) FN(divide_vectors)(&q, FN(vectors_to_line)(to, head, n), as, true);
    return q;
}

/* To the end of the row, whose last vector overlaps the one before it unless that has passed the
 * caches. */
INLINE void FN(end_quotient)(FN(quotient) * q, ons_dtype as) {
    int64_t vectors = (q->n - q->at) / WIDTH, size = FN(size_as)(as);
    if (q->past_caches)
        FN(divide_vectors)(q, vectors, as, true);
    else
        FN(divide_vectors)(q, vectors, as, false);
    int64_t left = q->n - q->at;
    if (left == 0) return;
    if (q->n >= WIDTH && !q->past_caches) {
        int64_t last = q->n - WIDTH;
        FN(put)(q->y + last * size, FN(divided)(q, V(load)(q->e + last)), as, false);
        return;
    }
    VEC last = FN(divided)(q, V(load)(q->e + q->at));
    if (q->shared)
        V(store)(q->shared, last);
    else
        FN(put_part)(q->y + q->at * size, last, left, as);
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
    int64_t left = m->n - m->at, size = FN(size_as)(as);
    const char *x = m->x + m->at * size;
    if (left >= WIDTH) m->even = V(max)(FN(take)(x, as), m->even);
    if (left % WIDTH != 0 && m->n >= WIDTH) /* with some of the vector before once more */
        m->odd = V(max)(FN(take)(m->x + (m->n - WIDTH) * size, as), m->odd);
    else if (left > 0 && left < WIDTH)
        m->odd = V(max)(FN(take_part)(x, left, as), m->odd);
    return V(max)(m->even, m->odd);
}

INLINE T FN(end_maximum)(FN(maximum) * m, ons_dtype as) {
    return V(max_lanes)(FN(lanes_of_maximum)(m, as));
}

/* What goes on while the exponentials of a row are computed, a quad at a time. */
typedef struct {
    FN(quotient) before;
    FN(maximum) behind;
    int64_t lag;
    const char *fetch;
    int64_t fetch_step; /* bytes that are fetched meanwhile */
} FN(meanwhile);

INLINE void FN(go_on)(FN(meanwhile) * with, ons_dtype as_y, ons_dtype as, bool past_caches) {
    if (with->before.at + QUAD <= with->before.n && with->before.at + with->lag <= with->behind.at)
        FN(divide_vectors)(&with->before, QUAD / WIDTH, as_y, past_caches);
    if (with->behind.at + QUAD <= with->behind.n)
        FN(compare_vectors)(&with->behind, QUAD / WIDTH / 2, as);
    for (int64_t line = 0; line < with->fetch_step; line += 64) FN(fetch)(with->fetch + line);
    with->fetch += with->fetch_step;
}

/* One block of a row, or the part of one that ends it: e = e^x, and their sums in the lanes, as
 * block_lanes has them. There is room behind e. */
INLINE void FN(lanes_meanwhile)(VEC *lanes, VEC shift, VEC floor, T *e, const char *x, int64_t n,
                                FN(meanwhile) * with, ons_dtype as_y, ons_dtype as,
                                bool past_caches) {
    int64_t size = FN(size_as)(as), q = 0;
    for (int64_t v = 0; v < VECS; v++) lanes[v] = V(set)(0);
    for (; q + QUAD <= n; q += QUAD) {
        for (int64_t v = 0; v < VECS; v++) {
            VEC four[4];
            int64_t at = q + v * WIDTH;
            for (int64_t k = 0; k < 4; k++) {
                four[k] = FN(take)(x + (at + k * LANES) * size, as);
                if (!past_caches) four[k] = V(held)(four[k]); /* long rows from memory lose by it */
            }
            FN(exponential_each)(four, 4, shift, floor);
            for (int64_t k = 0; k < 4; k++) V(store)(e + at + k * LANES, four[k]);
            VEC sum = V(add)(V(add)(four[0], four[1]), V(add)(four[2], four[3]));
            lanes[v] = V(add)(lanes[v], sum);
        }
        FN(go_on)(with, as_y, as, past_caches);
    }
    if (q == n) return;
    const T *rest = (const T *)(const void *)x + q;
    if (size == 2) {
        FN(load)(e + q, x + q * size, 2, as, n - q);
        rest = e + q;
    }
    for (int64_t v = 0; v < VECS; v++) {
        int64_t at = v * WIDTH;
        VEC sum = FN(part_of_quad)(e + q + at, rest + at, n - q - at, shift, floor, false, true);
        lanes[v] = V(add)(lanes[v], sum);
    }
    FN(go_on)(with, as_y, as, past_caches);
}

/* Whether rows of y follow each other without a gap, each beginning where its vectors can go past
 * the caches or share one with the row before. */
INLINE bool FN(follow_each_other)(const ons_run_of_rows *run, ons_dtype as_y) {
    return run->past_caches && FN(size_as)(as_y) != 2 &&
           run->y.across == run->N * (int64_t)sizeof(T) && (uintptr_t)run->y.data % sizeof(T) == 0;
}
