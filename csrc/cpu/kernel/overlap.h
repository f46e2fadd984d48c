/* overlap.h - the overlapping work of the softmax of whole rows. While the code computes a row's
 * exponentials, it divides an earlier row, finds the maximum of a later row, and fetches memory
 * that comes after that. So the core computes while memory moves. */
#ifndef ONS_CPU_KERNEL_OVERLAP_H
#define ONS_CPU_KERNEL_OVERLAP_H

#include "move.h"
#include "row.h"

/* Bytes from the element whose maximum is taken to the element that is fetched. */
enum { AHEAD = 8192 };

/* Elements by which the division of a row stays behind the maximum of another. Arrays often begin
 * at the same place of a page, and rows are often a multiple of a page. A load of x waits for an
 * earlier store to y if the last 12 bits of their addresses are equal. */
enum { LAG = 512 / sizeof(T) };

/* Fetches a cache line into the L2 cache. In L1 it would displace lines that are needed earlier. */
ONS_ALWAYS void fetch_line(const char *place) { __builtin_prefetch(place, 0, 2); }

/* The constants of a pipeline: the operation, the types of x, of y and of what is kept of a row
 * (its exponentials or its elements), and how elements are loaded and stored. */
typedef struct {
    const operation *operation;
    ons_dtype x, y, kept;
    bool past_caches;  /* y is stored past the caches */
    bool plain, tight; /* columns only: elements stay as they are; kept rows have no gaps */
} kind;

ONS_ALWAYS kind kind_of(const operation *operation, ons_dtype x, ons_dtype y) {
    ons_dtype kept = operation->keeps_exponentials ? OWN : x;
    return (kind){.operation = operation, .x = x, .y = y, .kept = kept};
}

ONS_ALWAYS kind kind_past_caches(kind kind, bool past_caches) {
    kind.past_caches = past_caches;
    return kind;
}

ONS_ALWAYS void put_vector(T *y, VEC a, bool past_caches) {
    if (past_caches)
        V(stream)(y, a);
    else
        V(store)(y, a);
}

ONS_ALWAYS void put(char *y, VEC a, kind kind) {
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
    put_vector((T *)(void *)y, a, kind.past_caches);
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

/* take_part and put_part for the end of a 16-bit row in place. They are calls, so that other rows
 * are not slowed down. Vectors are passed by value: behind a pointer they would stay in memory
 * instead of registers. */
static ONS_APART VEC take_part_of_16(const char *x, int64_t k, ons_dtype as) {
    return take_part(x, k, as == ONS_FLOAT16 ? ONS_FLOAT16 : ONS_BFLOAT16);
}

static ONS_APART void put_part_of_16(char *y, VEC a, int64_t k, ons_dtype as) {
    put_part(y, a, k, as == ONS_FLOAT16 ? ONS_FLOAT16 : ONS_BFLOAT16);
}

/* A row of y that is written vector by vector. */
typedef struct {
    char *y;
    const char *kept;
    VEC first, second; /* the row's constants */
    int64_t at, n;     /* `at`: the first element that is not written yet */
    bool past_caches;
    bool overlaps; /* a vector may be written twice, since the elements are not kept in y */
    /* if the rows before and behind follow without gaps: the vectors that this row shares with
     * them */
    T *shared_before, *shared_behind;
} finishing;

/* The results of the vector of elements from j on. */
ONS_ALWAYS VEC finished_at(const finishing *f, int64_t j, kind kind) {
    VEC kept = take(f->kept + j * size_as(kind.kept), kind.kept);
    return kind.operation->element(kept, f->first, f->second);
}

/* The results of the first `left` elements from j on. Reads no element after these. */
ONS_ALWAYS VEC finished_part(const finishing *f, int64_t j, int64_t left, kind kind) {
    const char *from = f->kept + j * size_as(kind.kept);
    VEC kept;
    if (kind.operation->keeps_exponentials) /* there is room after them */
        kept = take(from, kind.kept);
    else if (size_as(kind.kept) == 2)
        kept = take_part_of_16(from, left, kind.kept);
    else
        kept = V(load_part)((const T *)(const void *)from, left);
    return kind.operation->element(kept, f->first, f->second);
}

ONS_ALWAYS void finish_vectors(finishing *f, int64_t vectors, kind kind) {
    int64_t size = size_as(kind.y), at = f->at;
    char *to = f->y + at * size;
    for (int64_t v = 0; v < vectors; v++)
        put(to + v * WIDTH * size, finished_at(f, at + v * WIDTH, kind), kind);
    f->at += vectors * WIDTH;
}

/* Vectors from `head`, the first aligned element of y, to the first cache line. Stores past the
 * caches should cover each cache line at once. If the second half comes later, the first may go to
 * memory alone. */
ONS_ALWAYS int64_t vectors_to_cache_line(const T *y, int64_t head, int64_t n) {
    return sizeof(VEC) < 64 ? (before_cache_line(y, n) - head) / WIDTH : 0;
}

/* Finishes the elements before the first aligned place of y, if the rest goes past the caches or is
 * long. If two rows wrote parts of one cache line, it would have to be read from memory first, and
 * all later stores would wait. */
ONS_ALWAYS finishing begin_finishing(finishing f, kind kind) {
    T *to = (T *)(void *)f.y;
    f.overlaps = kind.operation->keeps_exponentials || f.kept != f.y;
    if (size_as(kind.y) == 2 || (uintptr_t)f.y % sizeof(T) != 0) f.past_caches = false;
    if (size_as(kind.y) == 2 || (!f.past_caches && f.n < 512)) return f;
    int64_t head = unaligned(to, f.n);
    if (head > 0) {
        VEC before = finished_part(&f, 0, head, kind);
        if (!f.past_caches && f.overlaps) {
            V(store)(to, before); /* the next vector overwrites part of it */
        } else if (f.past_caches && f.shared_before) {
            V(store_part)(f.shared_before + WIDTH - head, before, head);
            V(stream)(to + head - WIDTH, V(load)(f.shared_before));
        } else {
            V(store_part)(to, before, head);
        }
        f.at = head;
    }
    if (f.past_caches)
        finish_vectors(&f, vectors_to_cache_line(to, head, f.n), kind_past_caches(kind, true));
    return f;
}

/* Finishes the row. The last vector overlaps the one before, unless that has gone past the
 * caches. */
ONS_ALWAYS void end_finishing(finishing *f, kind kind) {
    int64_t vectors = (f->n - f->at) / WIDTH, size = size_as(kind.y);
    if (f->past_caches)
        finish_vectors(f, vectors, kind_past_caches(kind, true));
    else
        finish_vectors(f, vectors, kind_past_caches(kind, false));
    int64_t left = f->n - f->at;
    if (left == 0) return;
    if (!f->past_caches && f->overlaps) {
        int64_t last = f->n - WIDTH;
        put(f->y + last * size, finished_at(f, last, kind), kind_past_caches(kind, false));
        return;
    }
    VEC last = finished_part(f, f->at, left, kind);
    if (f->shared_behind)
        V(store)(f->shared_behind, last);
    else if (size == 2)
        put_part_of_16(f->y + f->at * size, last, left, kind.y);
    else
        V(store_part)((T *)(void *)f->y + f->at, last, left);
}

/* The largest element so far. It ignores NaN, which shows up in the sum of the exponentials. */
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
    if (left % WIDTH != 0) /* again with some of the vector before */
        m->odd = V(max)(take(m->x + (m->n - WIDTH) * size, as), m->odd);
    return V(max)(m->even, m->odd);
}

ONS_ALWAYS T end_maximum(maximum *m, ons_dtype as) { return V(max_lanes)(lanes_of_maximum(m, as)); }

/* A row's reference, and the work on other rows that goes on while the row's exponentials are
 * computed. A step is a quad. */
typedef struct {
    reference reference;
    finishing before;
    maximum behind;
    int64_t lag;
    const char *fetch;
    int64_t fetch_step; /* bytes to fetch in a step */
} meanwhile;

ONS_ALWAYS void go_on(meanwhile *with, kind kind) {
    if (with->before.at + QUAD <= with->before.n && with->before.at + with->lag <= with->behind.at)
        finish_vectors(&with->before, QUAD / WIDTH, kind);
    if (with->behind.at + QUAD <= with->behind.n)
        compare_vectors(&with->behind, QUAD / WIDTH / 2, kind.x);
    for (int64_t offset = 0; offset < with->fetch_step; offset += 64)
        fetch_line(with->fetch + offset);
    with->fetch += with->fetch_step;
}

/* The sum of e^x in each lane over a whole quad. Stores e^x at e if it is kept. */
ONS_ALWAYS void quad_meanwhile(VEC *quads, reference reference, T *e, const char *x, kind kind) {
    for (int64_t v = 0; v < VECS; v++) {
        VEC four[4];
        int64_t at = v * WIDTH;
        for (int64_t k = 0; k < 4; k++) {
            four[k] = take(x + (at + k * LANES) * size_as(kind.x), kind.x);
            if (!kind.past_caches)
                four[k] = V(held)(four[k]); /* for long rows from memory this would be slower */
        }
        exponential_each(four, 4, reference);
        for (int64_t k = 0; k < 4 && kind.operation->keeps_exponentials; k++)
            V(store)(e + at + k * LANES, four[k]);
        quads[v] = sum_of_four(four);
    }
}

/* Copies the last n 16-bit elements of a row to e, and keeps the elements before e. The row has at
 * least a vector of elements. */
ONS_ALWAYS void take_end(T *e, const char *x, int64_t n, ons_dtype as) {
    VEC last = take(x + (n - WIDTH) * 2, as);
    if (n >= WIDTH) {
        V(store)(e + n - WIDTH, last); /* first store it whole, since it is read again below */
        for (int64_t j = 0; j + WIDTH <= n; j += WIDTH) V(store)(e + j, take(x + j * 2, as));
    } else {
        VEC front = V(load)(e - WIDTH);
        V(store)(e + n - WIDTH, last);
        V(store)(e - WIDTH, front);
    }
}

/* The sums of each lane over a quad that ends after n elements. There is room after e. */
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

/* Computes the exponentials of n elements of a row. More elements may follow. Stores them at e if
 * they are kept, and the lanes' sums of every chunk in `lanes`. Returns the number of chunks. */
ONS_ALWAYS int64_t lanes_meanwhile(VEC (*lanes)[VECS], T *e, const char *x, int64_t n,
                                   meanwhile *with, kind kind) {
    int64_t size = size_as(kind.x), j = 0;
    VEC quads[VECS];
    for (; j + CHUNK <= n; j += CHUNK, lanes++) {
        quad_meanwhile(*lanes, with->reference, e + j, x + j * size, kind);
        go_on(with, kind);
        for (int64_t q = j + QUAD; q < j + CHUNK; q += QUAD) {
            quad_meanwhile(quads, with->reference, e + q, x + q * size, kind);
            for (int64_t v = 0; v < VECS; v++) (*lanes)[v] = (*lanes)[v] + quads[v];
            go_on(with, kind);
        }
    }
    if (j == n) return n / CHUNK;
    if (n - j < QUAD) {
        last_quad(*lanes, with->reference, e + j, x + j * size, n - j, kind);
    } else {
        quad_meanwhile(*lanes, with->reference, e + j, x + j * size, kind);
        go_on(with, kind);
        j += QUAD;
        if (j == n) return n / CHUNK + 1;
        last_quad(quads, with->reference, e + j, x + j * size, n - j, kind);
        for (int64_t v = 0; v < VECS; v++) (*lanes)[v] = (*lanes)[v] + quads[v];
    }
    go_on(with, kind);
    return n / CHUNK + 1;
}

/* Writes n elements of x minus the anchor to e. x may be e. */
static ONS_APART void subtract_anchor(T *e, const char *x, int64_t n, ons_dtype as, double anchor) {
    if (x != (const char *)e) load(e, x, size_as(as), as, n);
    subtract(e, &anchor, false, n);
}

/* Whether rows of y lie one after the other without gaps, so that they can go past the caches and
 * share a vector with the row before. */
ONS_ALWAYS bool follow_each_other(const ons_run_of_rows *run, kind kind) {
    return run->past_caches && size_as(kind.y) != 2 &&
           run->y.across == run->N * (int64_t)sizeof(T) && (uintptr_t)run->y.data % sizeof(T) == 0;
}

#endif
