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

/* Fetches a cache line into the L2 cache: so far ahead it would displace others in L1. */
INLINE void FN(fetch)(const char *place) { __builtin_prefetch(place, 0, 2); }

/* What is constant in a pipeline: the operation, the types of x and y, and of what is kept of a row
 * until it is finished, its exponentials or its elements. */
typedef struct {
    ons_operation operation;
    ons_dtype x, y, kept;
} FN(kind);

INLINE FN(kind) FN(kind_of)(ons_operation operation, ons_dtype x, ons_dtype y) {
    return (FN(kind)){operation, x, y, FN(keeps_exponentials)(operation) ? OWN : x};
}

INLINE void FN(put_vector)(T *y, VEC a, bool past_caches) {
    if (past_caches)
        V(stream)(y, a);
    else
        V(store)(y, a);
}

INLINE void FN(put)(char *y, VEC a, FN(kind) kind, bool past_caches) {
#if BITS == 32
    if (kind.y == ONS_FLOAT16) {
        V(store_half)(y, a);
        return;
    }
    if (kind.y == ONS_BFLOAT16) {
        if (FN(keeps_exponentials)(kind.operation))
            V(store_quotient_bfloat)(y, a);
        else
            V(store_bfloat)(y, a);
        return;
    }
#endif
    (void)kind;
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

/* Both for what ends a row of 16 bits that is made where it lies. Apart, which no other row is held
 * up by; by value, since what a call points to would stay in memory. */
static ONS_APART VEC FN(take_part_of_16)(const char *x, int64_t k, ons_dtype as) {
    return FN(take_part)(x, k, as == ONS_FLOAT16 ? ONS_FLOAT16 : ONS_BFLOAT16);
}

static ONS_APART void FN(put_part_of_16)(char *y, VEC a, int64_t k, ons_dtype as) {
    FN(put_part)(y, a, k, as == ONS_FLOAT16 ? ONS_FLOAT16 : ONS_BFLOAT16);
}

/* A row of y while it is made, vector by vector; `at` is the first element that is missing. */
typedef struct {
    char *y;
    const char *kept;
    VEC first, second; /* what its elements need of the row */
    int64_t at, n;
    bool past_caches;
    bool overlaps; /* a vector may be written twice: y is not where its elements are kept */
    /* with the row behind, where that follows without a gap: the vector that both fill */
    T *shared;
} FN(finishing);

/* The result of the vector of elements from j on. */
INLINE VEC FN(finished_at)(const FN(finishing) * f, int64_t j, FN(kind) kind) {
    VEC kept = FN(take)(f->kept + j * FN(size_as)(kind.kept), kind.kept);
    return FN(element)(kind.operation, kept, f->first, f->second);
}

/* The same of the first `left` of them; nothing behind those is read. */
INLINE VEC FN(finished_part)(const FN(finishing) * f, int64_t j, int64_t left, FN(kind) kind) {
    const char *from = f->kept + j * FN(size_as)(kind.kept);
    VEC kept;
    if (FN(keeps_exponentials)(kind.operation)) /* there is room behind them */
        kept = FN(take)(from, kind.kept);
    else if (FN(size_as)(kind.kept) == 2)
        kept = FN(take_part_of_16)(from, left, kind.kept);
    else
        kept = V(load_part)((const T *)(const void *)from, left);
    return FN(element)(kind.operation, kept, f->first, f->second);
}

INLINE void FN(finish_vectors)(FN(finishing) * f, int64_t vectors, FN(kind) kind,
                               bool past_caches) {
    int64_t size = FN(size_as)(kind.y), at = f->at;
    char *to = f->y + at * size;
    for (int64_t v = 0; v < vectors; v++)
        FN(put)(to + v * WIDTH * size, FN(finished_at)(f, at + v * WIDTH, kind), kind, past_caches);
    f->at += vectors * WIDTH;
}

/* Vectors from `head`, the first aligned element of y, to the first cache line. Stores past the
 * caches should cover whole cache lines together: where the second half of one comes later, the
 * first may go to memory alone. */
INLINE int64_t FN(vectors_to_cache_line)(const T *y, int64_t head, int64_t n) {
    return sizeof(VEC) < 64 ? (FN(before_cache_line)(y, n) - head) / WIDTH : 0;
}

/* Finishes the elements before the first aligned place of y, where the rest goes past the caches
 * or is long. `shared`: the part of a vector that the row before left in it, or NULL. If two
 * rows wrote parts of one cache line, it would have to be read from memory first, and all later
 * stores would wait. */
INLINE FN(finishing) FN(begin_finishing)(T first, T second, char *y, const void *kept, int64_t n,
                                         FN(kind) kind, bool past_caches, T *shared) {
    bool apart = FN(keeps_exponentials)(kind.operation) || kept != (const void *)y;
    FN(finishing) f = {y, kept, V(set)(first), V(set)(second), 0, n, past_caches, apart, NULL};
    T *to = (T *)(void *)y;
    if (FN(size_as)(kind.y) == 2 || (uintptr_t)y % sizeof(T) != 0) f.past_caches = false;
    if (FN(size_as)(kind.y) == 2 || (!f.past_caches && n < 512)) return f;
    int64_t head = FN(unaligned)(to, n);
    if (head > 0) {
        VEC before = FN(finished_part)(&f, 0, head, kind);
        if (!f.past_caches && f.overlaps) {
            V(store)(to, before); /* the second vector overwrites a part of it */
        } else if (f.past_caches && shared) {
            V(store_part)(shared + WIDTH - head, before, head);
            V(stream)(to + head - WIDTH, V(load)(shared));
        } else {
            V(store_part)(to, before, head);
        }
        f.at = head;
    }
    if (f.past_caches) FN(finish_vectors)(&f, FN(vectors_to_cache_line)(to, head, n), kind, true);
    return f;
}

/* To the row's end. The last vector overlaps the one before unless that has passed the caches. */
INLINE void FN(end_finishing)(FN(finishing) * f, FN(kind) kind) {
    int64_t vectors = (f->n - f->at) / WIDTH, size = FN(size_as)(kind.y);
    if (f->past_caches)
        FN(finish_vectors)(f, vectors, kind, true);
    else
        FN(finish_vectors)(f, vectors, kind, false);
    int64_t left = f->n - f->at;
    if (left == 0) return;
    if (!f->past_caches && f->overlaps) {
        int64_t last = f->n - WIDTH;
        FN(put)(f->y + last * size, FN(finished_at)(f, last, kind), kind, false);
        return;
    }
    VEC last = FN(finished_part)(f, f->at, left, kind);
    if (f->shared)
        V(store)(f->shared, last);
    else if (size == 2)
        FN(put_part_of_16)(f->y + f->at * size, last, left, kind.y);
    else
        V(store_part)((T *)(void *)f->y + f->at, last, left);
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
    if (left % WIDTH != 0) /* with some of the vector before once more */
        m->odd = V(max)(FN(take)(m->x + (m->n - WIDTH) * size, as), m->odd);
    return V(max)(m->even, m->odd);
}

INLINE T FN(end_maximum)(FN(maximum) * m, ons_dtype as) {
    return V(max_lanes)(FN(lanes_of_maximum)(m, as));
}

/* What goes on while the exponentials of a row are computed, a quad at a time. */
typedef struct {
    FN(finishing) before;
    FN(maximum) behind;
    int64_t lag;
    const char *fetch;
    int64_t fetch_step; /* bytes that are fetched meanwhile */
} FN(meanwhile);

INLINE void FN(go_on)(FN(meanwhile) * with, FN(kind) kind, bool past_caches) {
    if (with->before.at + QUAD <= with->before.n && with->before.at + with->lag <= with->behind.at)
        FN(finish_vectors)(&with->before, QUAD / WIDTH, kind, past_caches);
    if (with->behind.at + QUAD <= with->behind.n)
        FN(compare_vectors)(&with->behind, QUAD / WIDTH / 2, kind.x);
    for (int64_t offset = 0; offset < with->fetch_step; offset += 64)
        FN(fetch)(with->fetch + offset);
    with->fetch += with->fetch_step;
}

/* The sums of each lane over a whole quad: of e = e^x, which is stored where it is kept. */
INLINE void FN(quad_meanwhile)(VEC *quads, VEC shift, VEC floor, T *e, const char *x, FN(kind) kind,
                               bool past_caches) {
    for (int64_t v = 0; v < VECS; v++) {
        VEC four[4];
        int64_t at = v * WIDTH;
        for (int64_t k = 0; k < 4; k++) {
            four[k] = FN(take)(x + (at + k * LANES) * FN(size_as)(kind.x), kind.x);
            if (!past_caches) four[k] = V(held)(four[k]); /* long rows from memory lose by it */
        }
        FN(exponential_each)(four, 4, shift, floor);
        for (int64_t k = 0; k < 4 && FN(keeps_exponentials)(kind.operation); k++)
            V(store)(e + at + k * LANES, four[k]);
        quads[v] = FN(sum_of_four)(four);
    }
}

/* The last n elements, of 16 bits, of a row that has a vector of them at least, to e; what lies in
 * front of e stays. */
INLINE void FN(take_end)(T *e, const char *x, int64_t n, ons_dtype as) {
    VEC last = FN(take)(x + (n - WIDTH) * 2, as);
    if (n >= WIDTH) {
        V(store)(e + n - WIDTH, last); /* first: what is read from the others was stored whole */
        for (int64_t j = 0; j + WIDTH <= n; j += WIDTH) V(store)(e + j, FN(take)(x + j * 2, as));
    } else {
        VEC front = V(load)(e - WIDTH);
        V(store)(e + n - WIDTH, last);
        V(store)(e - WIDTH, front);
    }
}

/* The same of one that ends after n elements. There is room behind e. */
INLINE void FN(last_quad)(VEC *quads, VEC shift, VEC floor, T *e, const char *x, int64_t n,
                          FN(kind) kind) {
    const T *from = (const T *)(const void *)x;
    if (FN(size_as)(kind.x) == 2) {
        FN(take_end)(e, x, n, kind.x);
        from = e;
    }
    for (int64_t v = 0; v < VECS; v++) {
        int64_t at = v * WIDTH;
        T *to = FN(keeps_exponentials)(kind.operation) ? e + at : NULL;
        quads[v] = FN(part_of_quad)(to, from + at, n - at, shift, floor, false, true);
    }
}

/* Computes the exponentials of n elements of a row, which others follow unless n ends it. Stores
 * them to e where they are kept, and the sums of each lane of every chunk to `lanes`. Returns
 * how many chunks there are. */
INLINE int64_t FN(lanes_meanwhile)(VEC (*lanes)[VECS], VEC shift, VEC floor, T *e, const char *x,
                                   int64_t n, FN(meanwhile) * with, FN(kind) kind,
                                   bool past_caches) {
    int64_t size = FN(size_as)(kind.x), j = 0;
    VEC quads[VECS];
    for (; j + CHUNK <= n; j += CHUNK, lanes++) {
        FN(quad_meanwhile)(*lanes, shift, floor, e + j, x + j * size, kind, past_caches);
        FN(go_on)(with, kind, past_caches);
        for (int64_t q = j + QUAD; q < j + CHUNK; q += QUAD) {
            FN(quad_meanwhile)(quads, shift, floor, e + q, x + q * size, kind, past_caches);
            for (int64_t v = 0; v < VECS; v++) (*lanes)[v] = V(add)((*lanes)[v], quads[v]);
            FN(go_on)(with, kind, past_caches);
        }
    }
    if (j == n) return n / CHUNK;
    if (n - j < QUAD) {
        FN(last_quad)(*lanes, shift, floor, e + j, x + j * size, n - j, kind);
    } else {
        FN(quad_meanwhile)(*lanes, shift, floor, e + j, x + j * size, kind, past_caches);
        FN(go_on)(with, kind, past_caches);
        j += QUAD;
        if (j == n) return n / CHUNK + 1;
        FN(last_quad)(quads, shift, floor, e + j, x + j * size, n - j, kind);
        for (int64_t v = 0; v < VECS; v++) (*lanes)[v] = V(add)((*lanes)[v], quads[v]);
    }
    FN(go_on)(with, kind, past_caches);
    return n / CHUNK + 1;
}

/* Whether rows of y follow each other without a gap, each beginning where its vectors can go past
 * the caches or share one with the row before. */
INLINE bool FN(follow_each_other)(const ons_run_of_rows *run, FN(kind) kind) {
    return run->past_caches && FN(size_as)(kind.y) != 2 &&
           run->y.across == run->N * (int64_t)sizeof(T) && (uintptr_t)run->y.data % sizeof(T) == 0;
}
