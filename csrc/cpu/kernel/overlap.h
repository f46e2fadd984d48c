/* overlap.h - what the softmax of whole rows does at once: while the exponentials of a row are
 * computed, a row before it is divided, the maximum of a row behind it is found, and what comes
 * after that is fetched, so that the core computes while memory moves. */
#ifndef ONS_CPU_KERNEL_OVERLAP_H
#define ONS_CPU_KERNEL_OVERLAP_H

#include "move.h"
#include "row.h"

/* Bytes from the element whose maximum is taken to the one that is fetched. */
enum { AHEAD = 8192 };

/* Elements that the division of a row stays behind the maximum of another. Arrays often begin at
 * the same place of a page, and rows are as often a multiple of a page: a load of x that follows a
 * store to y with the same last 12 bits of its address waits for it. */
enum { LAG = 512 / sizeof(T) };

/* Fetches a cache line into the L2 cache: so far ahead it would displace others in L1. */
ONS_ALWAYS void fetch_line(const char *place) { __builtin_prefetch(place, 0, 2); }

/* What is constant in a pipeline: the operation, the types of x and y, and of what is kept of a row
 * until it is finished, its exponentials or its elements. */
typedef struct {
    const operation *operation;
    ons_dtype x, y, kept;
} kind;

ONS_ALWAYS kind kind_of(const operation *operation, ons_dtype x, ons_dtype y) {
    return (kind){operation, x, y, operation->keeps_exponentials ? OWN : x};
}

ONS_ALWAYS void put_vector(T *y, VEC a, bool past_caches) {
    if (past_caches)
        V(stream)(y, a);
    else
        V(store)(y, a);
}

ONS_ALWAYS void put(char *y, VEC a, kind kind, bool past_caches) {
#if BITS == 32
    if (kind.y == ONS_FLOAT16) {
        V(store_half)(y, a);
        return;
    }
    if (kind.y == ONS_BFLOAT16) {
        if (kind.operation->keeps_exponentials)
            V(store_quotient_bfloat)(y, a);
        else
            V(store_bfloat)(y, a);
        return;
    }
#endif
    (void)kind;
    put_vector((T *)(void *)y, a, past_caches);
}

ONS_ALWAYS void put_part(char *y, VEC a, int64_t k, ons_dtype as) {
    if (size_as(as) != 2) {
        V(store_part)((T *)(void *)y, a, k);
        return;
    }
    T part[WIDTH];
    V(store)(part, a);
    store(y, 2, as, part, k);
}

/* take_part and put_part for the end of a 16-bit row that is made where it lies. They are calls, so
 * that other rows are not held up. Vectors are passed by value: behind a pointer they would stay in
 * memory. */
static ONS_APART VEC take_part_of_16(const char *x, int64_t k, ons_dtype as) {
    return take_part(x, k, as == ONS_FLOAT16 ? ONS_FLOAT16 : ONS_BFLOAT16);
}

static ONS_APART void put_part_of_16(char *y, VEC a, int64_t k, ons_dtype as) {
    put_part(y, a, k, as == ONS_FLOAT16 ? ONS_FLOAT16 : ONS_BFLOAT16);
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
} finishing;

/* The result of the vector of elements from j on. */
ONS_ALWAYS VEC finished_at(const finishing *f, int64_t j, kind kind) {
    VEC kept = take(f->kept + j * size_as(kind.kept), kind.kept);
    return kind.operation->element(kept, f->first, f->second);
}

/* The result of the first `left` elements from j on. No element behind these is read. */
ONS_ALWAYS VEC finished_part(const finishing *f, int64_t j, int64_t left, kind kind) {
    const char *from = f->kept + j * size_as(kind.kept);
    VEC kept;
    if (kind.operation->keeps_exponentials) /* there is room behind them */
        kept = take(from, kind.kept);
    else if (size_as(kind.kept) == 2)
        kept = take_part_of_16(from, left, kind.kept);
    else
        kept = V(load_part)((const T *)(const void *)from, left);
    return kind.operation->element(kept, f->first, f->second);
}

ONS_ALWAYS void finish_vectors(finishing *f, int64_t vectors, kind kind, bool past_caches) {
    int64_t size = size_as(kind.y), at = f->at;
    char *to = f->y + at * size;
    for (int64_t v = 0; v < vectors; v++)
        put(to + v * WIDTH * size, finished_at(f, at + v * WIDTH, kind), kind, past_caches);
    f->at += vectors * WIDTH;
}

/* Vectors from `head`, the first aligned element of y, to the first cache line. Stores past the
 * caches should cover whole cache lines together: where the second half of one comes later, the
 * first may go to memory alone. */
ONS_ALWAYS int64_t vectors_to_cache_line(const T *y, int64_t head, int64_t n) {
    return sizeof(VEC) < 64 ? (before_cache_line(y, n) - head) / WIDTH : 0;
}

/* Finishes the elements before the first aligned place of y, where the rest goes past the caches
 * or is long. `shared`: the part of a vector that the row before left in it, or NULL. If two
 * rows wrote parts of one cache line, it would have to be read from memory first, and all later
 * stores would wait. */
ONS_ALWAYS finishing begin_finishing(T first, T second, char *y, const void *kept, int64_t n,
                                     kind kind, bool past_caches, T *shared) {
    bool apart = kind.operation->keeps_exponentials || kept != (const void *)y;
    finishing f = {y, kept, V(set)(first), V(set)(second), 0, n, past_caches, apart, NULL};
    T *to = (T *)(void *)y;
    if (size_as(kind.y) == 2 || (uintptr_t)y % sizeof(T) != 0) f.past_caches = false;
    if (size_as(kind.y) == 2 || (!f.past_caches && n < 512)) return f;
    int64_t head = unaligned(to, n);
    if (head > 0) {
        VEC before = finished_part(&f, 0, head, kind);
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
    if (f.past_caches) finish_vectors(&f, vectors_to_cache_line(to, head, n), kind, true);
    return f;
}

/* To the row's end. The last vector overlaps the one before unless that has passed the caches. */
ONS_ALWAYS void end_finishing(finishing *f, kind kind) {
    int64_t vectors = (f->n - f->at) / WIDTH, size = size_as(kind.y);
    if (f->past_caches)
        finish_vectors(f, vectors, kind, true);
    else
        finish_vectors(f, vectors, kind, false);
    int64_t left = f->n - f->at;
    if (left == 0) return;
    if (!f->past_caches && f->overlaps) {
        int64_t last = f->n - WIDTH;
        put(f->y + last * size, finished_at(f, last, kind), kind, false);
        return;
    }
    VEC last = finished_part(f, f->at, left, kind);
    if (f->shared)
        V(store)(f->shared, last);
    else if (size == 2)
        put_part_of_16(f->y + f->at * size, last, left, kind.y);
    else
        V(store_part)((T *)(void *)f->y + f->at, last, left);
}

/* The largest element so far; passes over NaN, which the sum of the exponentials will show. */
typedef struct {
    const char *x;
    VEC even, odd;
    int64_t at, n;
} maximum;

ONS_ALWAYS maximum begin_maximum(const void *x, int64_t n) {
    VEC none = V(set)((T)-INFINITY);
    return (maximum){x, none, none, 0, n};
}

ONS_ALWAYS void compare_vectors(maximum *m, int64_t pairs, ons_dtype as) {
    int64_t vector = WIDTH * size_as(as);
    const char *x = m->x + m->at * size_as(as);
    for (int64_t v = 0; v < 2 * pairs; v += 2) {
        m->even = V(max)(take(x + v * vector, as), m->even);
        m->odd = V(max)(take(x + (v + 1) * vector, as), m->odd);
    }
    m->at += 2 * pairs * WIDTH;
}

ONS_ALWAYS VEC lanes_of_maximum(maximum *m, ons_dtype as) {
    compare_vectors(m, (m->n - m->at) / (2 * WIDTH), as);
    int64_t left = m->n - m->at, size = size_as(as);
    const char *x = m->x + m->at * size;
    if (left >= WIDTH) m->even = V(max)(take(x, as), m->even);
    if (left % WIDTH != 0) /* with some of the vector before once more */
        m->odd = V(max)(take(m->x + (m->n - WIDTH) * size, as), m->odd);
    return V(max)(m->even, m->odd);
}

ONS_ALWAYS T end_maximum(maximum *m, ons_dtype as) { return V(max_lanes)(lanes_of_maximum(m, as)); }

/* What goes on while the exponentials of a row are computed, a quad at a time. */
typedef struct {
    finishing before;
    maximum behind;
    int64_t lag;
    const char *fetch;
    int64_t fetch_step; /* bytes that are fetched meanwhile */
} meanwhile;

ONS_ALWAYS void go_on(meanwhile *with, kind kind, bool past_caches) {
    if (with->before.at + QUAD <= with->before.n && with->before.at + with->lag <= with->behind.at)
        finish_vectors(&with->before, QUAD / WIDTH, kind, past_caches);
    if (with->behind.at + QUAD <= with->behind.n)
        compare_vectors(&with->behind, QUAD / WIDTH / 2, kind.x);
    for (int64_t offset = 0; offset < with->fetch_step; offset += 64)
        fetch_line(with->fetch + offset);
    with->fetch += with->fetch_step;
}

/* The sums of each lane over a whole quad: of e = e^x, which is stored where it is kept. */
ONS_ALWAYS void quad_meanwhile(VEC *quads, reference reference, T *e, const char *x, kind kind,
                               bool past_caches) {
    for (int64_t v = 0; v < VECS; v++) {
        VEC four[4];
        int64_t at = v * WIDTH;
        for (int64_t k = 0; k < 4; k++) {
            four[k] = take(x + (at + k * LANES) * size_as(kind.x), kind.x);
            if (!past_caches) four[k] = V(held)(four[k]); /* long rows from memory lose by it */
        }
        exponential_each(four, 4, reference);
        for (int64_t k = 0; k < 4 && kind.operation->keeps_exponentials; k++)
            V(store)(e + at + k * LANES, four[k]);
        quads[v] = sum_of_four(four);
    }
}

/* The last n elements, of 16 bits, of a row that has a vector of them at least, to e; what lies in
 * front of e stays. */
ONS_ALWAYS void take_end(T *e, const char *x, int64_t n, ons_dtype as) {
    VEC last = take(x + (n - WIDTH) * 2, as);
    if (n >= WIDTH) {
        V(store)(e + n - WIDTH, last); /* first: what is read from the others was stored whole */
        for (int64_t j = 0; j + WIDTH <= n; j += WIDTH) V(store)(e + j, take(x + j * 2, as));
    } else {
        VEC front = V(load)(e - WIDTH);
        V(store)(e + n - WIDTH, last);
        V(store)(e - WIDTH, front);
    }
}

/* The sums of each lane over a quad that ends after n elements. There is room behind e. */
ONS_ALWAYS void last_quad(VEC *quads, reference reference, T *e, const char *x, int64_t n,
                          kind kind) {
    const T *from = (const T *)(const void *)x;
    if (size_as(kind.x) == 2) {
        take_end(e, x, n, kind.x);
        from = e;
    }
    for (int64_t v = 0; v < VECS; v++) {
        int64_t at = v * WIDTH;
        T *to = kind.operation->keeps_exponentials ? e + at : NULL;
        quads[v] = part_of_quad(to, from + at, n - at, reference, true);
    }
}

/* Computes the exponentials of n elements of a row, which others follow unless n ends it. Stores
 * them to e where they are kept, and the sums of each lane of every chunk to `lanes`. Returns
 * how many chunks there are. */
ONS_ALWAYS int64_t lanes_meanwhile(VEC (*lanes)[VECS], reference reference, T *e, const char *x,
                                   int64_t n, meanwhile *with, kind kind, bool past_caches) {
    int64_t size = size_as(kind.x), j = 0;
    VEC quads[VECS];
    for (; j + CHUNK <= n; j += CHUNK, lanes++) {
        quad_meanwhile(*lanes, reference, e + j, x + j * size, kind, past_caches);
        go_on(with, kind, past_caches);
        for (int64_t q = j + QUAD; q < j + CHUNK; q += QUAD) {
            quad_meanwhile(quads, reference, e + q, x + q * size, kind, past_caches);
            for (int64_t v = 0; v < VECS; v++) (*lanes)[v] = (*lanes)[v] + quads[v];
            go_on(with, kind, past_caches);
        }
    }
    if (j == n) return n / CHUNK;
    if (n - j < QUAD) {
        last_quad(*lanes, reference, e + j, x + j * size, n - j, kind);
    } else {
        quad_meanwhile(*lanes, reference, e + j, x + j * size, kind, past_caches);
        go_on(with, kind, past_caches);
        j += QUAD;
        if (j == n) return n / CHUNK + 1;
        last_quad(quads, reference, e + j, x + j * size, n - j, kind);
        for (int64_t v = 0; v < VECS; v++) (*lanes)[v] = (*lanes)[v] + quads[v];
    }
    go_on(with, kind, past_caches);
    return n / CHUNK + 1;
}

/* Whether rows of y follow each other without a gap, each beginning where its vectors can go past
 * the caches or share one with the row before. */
ONS_ALWAYS bool follow_each_other(const ons_run_of_rows *run, kind kind) {
    return run->past_caches && size_as(kind.y) != 2 &&
           run->y.across == run->N * (int64_t)sizeof(T) && (uintptr_t)run->y.data % sizeof(T) == 0;
}

#endif
