/* row.h - the primitives on rows whose elements lie side by side, one row after the other. The end
 * of a row is a chain of a few long instructions, and overlaps with the beginning of the next
 * row. */
#ifndef ONS_CPU_KERNEL_ROW_H
#define ONS_CPU_KERNEL_ROW_H

#include "../../api/digits.h"
#include "operation.h"

#define ROW(tile, i) ((T *)((char *)(tile).data + (i) * (tile).across))
#define SET_OF(array, i) V(set)(((const T *)(array))[i])

static void max_row(const ons_rows *rows, ons_tile kept, ons_tile tile, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++) {
        const T *x = ROW(tile, i);
        if (kept.data && kept.data != tile.data) memcpy(ROW(kept, i), x, (size_t)n * sizeof(T));
        VEC m0 = V(set)((T)-INFINITY), m1 = m0, nans = V(set)(0);
        int64_t j = 0;
        for (; j + 4 * WIDTH <= n; j += 4 * WIDTH) {
            VEC a = V(load)(x + j), b = V(load)(x + j + WIDTH);
            VEC c = V(load)(x + j + 2 * WIDTH), d = V(load)(x + j + 3 * WIDTH);
            m0 = V(max)(a, V(max)(c, m0));
            m1 = V(max)(b, V(max)(d, m1));
            nans = V(nan_or)(V(nan_or)(nans, a, b), c, d);
        }
        for (; j < n; j += WIDTH) {
            VEC a = n - j >= WIDTH ? V(load)(x + j) : V(load_part)(x + j, n - j);
            m0 = V(max)(a, m0);
            nans = V(nan_or)(nans, a, a);
        }
        double m = ons_larger(rows->state[i].m, (double)V(max_lanes)(V(max)(m0, m1)));
        rows->state[i].m = V(any_nan)(nans) ? NAN : m;
    }
}

/* The exponentials of 4 vectors, LANES elements apart, stored and added up. */
ONS_ALWAYS VEC whole_quad(T *e, const T *x, reference reference) {
    VEC four[4];
    for (int64_t k = 0; k < 4; k++) four[k] = V(held)(V(load)(x + k * LANES));
    if (!reference.plain) exponential_each(four, 4, reference);
    if (e)
        for (int64_t k = 0; k < 4; k++) V(store)(e + k * LANES, four[k]);
    return sum_of_four(four);
}

/* whole_quad if the row ends after n elements. `room`: memory after them at e may be written. */
ONS_ALWAYS VEC part_of_quad(T *e, const T *x, int64_t n, reference reference, bool room) {
    VEC four[4];
    for (int64_t k = 0; k < 4; k++) {
        int64_t j = k * LANES, left = n - j;
        four[k] = V(set)(0);
        if (left <= 0) continue;
        four[k] = left >= WIDTH ? V(load)(x + j) : V(load_part)(x + j, left);
        if (!reference.plain) four[k] = exponential(four[k], reference);
        if (e && (room || left >= WIDTH))
            V(store)(e + j, four[k]);
        else if (e)
            V(store_part)(e + j, four[k], left);
        if (left < WIDTH) four[k] = V(join)(four[k], V(set)(0), left);
    }
    return sum_of_four(four);
}

/* The sum of each lane over CHUNK elements, or over the n that are left. It sums their
 * exponentials, and stores them if e is given. If `plain`, it sums the elements. */
ONS_ALWAYS void lanes_of(VEC *lanes, reference reference, T *e, const T *x, int64_t n, bool room) {
    for (int64_t v = 0; v < VECS; v++)
        for (int64_t q = 0; q < CHUNK && q < n; q += QUAD) {
            int64_t at = q + v * WIDTH;
            T *to = e ? e + at : e;
            VEC quad = n - q >= QUAD ? whole_quad(to, x + at, reference)
                                     : part_of_quad(to, x + at, n - at, reference, room);
            lanes[v] = q == 0 ? quad : (VEC)(lanes[v] + quad);
        }
}

/* Adds n elements of row i to its sums. Fetches as many elements of rows->next, if given. */
ONS_ALWAYS void sum_elements(const ons_rows *rows, int64_t i, T *e, const T *x, int64_t n,
                             bool plain) {
    const char *next = rows->next.data ? (const char *)ROW(rows->next, i) : NULL;
    double *kept = rows->sums + i * rows->sums_across;
    reference reference = reference_of_row(rows->shift, rows->floor, i);
    sums sums = load_sums(kept);
    VEC lanes[CHUNKS_AT_ONCE][VECS];
    int64_t chunks = 0, next_step = rows->next.along;
    reference.plain = plain;
    for (int64_t j = 0; j < n; j += CHUNK) {
        int64_t bytes = (n - j < CHUNK ? n - j : CHUNK) * next_step;
        for (int64_t offset = 0; next && offset < bytes; offset += 64)
            __builtin_prefetch(next + j * next_step + offset);
        /* two calls, because the compiler makes faster code for a constant length */
        if (n - j >= CHUNK)
            lanes_of(lanes[chunks], reference, e ? e + j : e, x + j, CHUNK, false);
        else
            lanes_of(lanes[chunks], reference, e ? e + j : e, x + j, n - j, false);
        if (++chunks < CHUNKS_AT_ONCE && j + CHUNK < n) continue;
        add_chunks(&sums, lanes, chunks);
        chunks = 0;
    }
    store_sums(kept, &sums);
}

ONS_ALWAYS void sum_row(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n, bool plain) {
    for (int64_t i = 0; i < rows->width; i++)
        sum_elements(rows, i, e.data ? ROW(e, i) : NULL, ROW(x, i), n, plain);
}

/* Adds the total of a row's sums to its state. */
ONS_ALWAYS void add_total(ons_state *state, const sums *sums, bool short_rows, bool plain) {
    double d, low, lowered = plain ? 1.0 : LOWERED;
    total_of_row(sums, short_rows, &d, &low);
    ons_state_add(state, lowered * d);
    if (BITS == 64) state->d_low += lowered * low;
}

static void end_block_row(const ons_rows *rows, bool plain) {
    for (int64_t i = 0; i < rows->width; i++) {
        double *kept = rows->sums + i * rows->sums_across;
        sums sums = load_sums(kept);
        add_total(&rows->state[i], &sums, rows->short_rows, plain);
        sums = no_sums();
        store_sums(kept, &sums);
    }
}

static void sum_exp_row(const ons_rows *rows, ons_tile x, int64_t n) {
    sum_row(rows, ONS_NO_TILE, x, n, false);
}

static void exp_store_sum_row(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    sum_row(rows, e, x, n, false);
}

static void sum_plain_row(const ons_rows *rows, ons_tile e, int64_t n) {
    sum_row(rows, ONS_NO_TILE, e, n, true);
}

/* Number of elements before the first aligned vector. A store of an aligned vector crosses no cache
 * line, and can go past the caches. */
ONS_ALWAYS int64_t unaligned(const T *y, int64_t n) {
    int64_t head = (int64_t)(-(uintptr_t)y % sizeof(VEC) / sizeof(T));
    return head < n ? head : n;
}

/* Number of elements before the first cache line. Stores past the caches must cover whole cache
 * lines: if another store writes a part of one, it goes to memory twice. */
enum { CACHE_LINE = 64 / sizeof(T) };
ONS_ALWAYS int64_t before_cache_line(const T *y, int64_t n) {
    int64_t head = (int64_t)(-(uintptr_t)y % 64 / sizeof(T));
    return head < n ? head : n;
}

ONS_ALWAYS void finish_row(const operation *operation, const ons_rows *rows, ons_tile y, ons_tile x,
                           int64_t n) {
    bool exponentials = operation->keeps_exponentials;
    for (int64_t i = 0; i < rows->width; i++) {
        reference reference = reference_of_row(rows->shift, rows->floor, i);
        VEC first = SET_OF(rows->first, i), second = SET_OF(rows->second, i);
        T *to = ROW(y, i);
        const T *from = ROW(x, i), *next = ROW(rows->next, i);
        bool past_caches = rows->past_caches && (uintptr_t)to % sizeof(T) == 0;
        int64_t j = past_caches ? before_cache_line(to, n) : unaligned(to, n);
#define BODY(a, j) operation->element(exponentials ? exponential(a, reference) : (a), first, second)
        EACH_VECTOR(to, from, j, BODY);
        for (; j + 4 * WIDTH <= n; j += 4 * WIDTH) {
            VEC four[4];
            for (int64_t k = 0; k < 4; k++) {
                four[k] = V(load)(from + j + k * WIDTH);
                if (rows->next.data && k * (int64_t)sizeof(VEC) % 64 == 0)
                    __builtin_prefetch(next + j + k * WIDTH);
            }
            if (exponentials) exponential_each(four, 4, reference);
            for (int64_t k = 0; k < 4; k++) {
                VEC done = operation->element(four[k], first, second);
                if (past_caches)
                    V(stream)(to + j + k * WIDTH, done);
                else
                    V(store)(to + j + k * WIDTH, done);
            }
        }
        EACH_VECTOR(to + j, from + j, n - j, BODY);
#undef BODY
    }
}

static void fence(void) { V(fence)(); }

ONS_ALWAYS void finish_kept_row(const operation *operation, const ons_rows *rows, ons_tile y,
                                ons_tile kept, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++) {
        VEC first = SET_OF(rows->first, i), second = SET_OF(rows->second, i);
        T *to = ROW(y, i);
        const T *from = ROW(kept, i);
        int64_t head = unaligned(to, n);
#define BODY(a, j) operation->element(a, first, second)
        EACH_VECTOR(to, from, head, BODY);
        EACH_VECTOR(to + head, from + head, n - head, BODY);
#undef BODY
    }
}

static void exp_row(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++) {
#define BODY(a, j) plain_exponential(a)
        EACH_VECTOR(ROW(e, i), ROW(x, i), n, BODY);
#undef BODY
    }
}

ONS_ALWAYS void finish_plain_row(const operation *operation, const ons_rows *rows, ons_tile y,
                                 ons_tile kept, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++) {
        VEC row = V(set)((T)rows->state[i].d);
#define BODY(a, j) operation->plain_element(a, row)
        EACH_VECTOR(ROW(y, i), ROW(kept, i), n, BODY);
#undef BODY
    }
}

/* Adds up exponentials without rounding (api/digits.h). */
static void add_digits(double digit[ONS_DIGITS], double c, const void *elements, int64_t n) {
    const T *x = elements;
    const reference reference = {V(set)((T)(MAGIC + STEPS * (LIFT - c))),
                                 V(set)((T)((c - BELOW) / ONS_LOG2_E)), false};
    const f64_vec lowered = f64_set(BITS == 32 ? LOWERED / F32_ONE : LOWERED);
    wide sum[ONS_DIGITS];
    for (int d = 0; d < ONS_DIGITS; d++) sum[d] = wide_zero();
    for (int64_t j = 0; j < n; j += WIDTH) {
        const VEC a = n - j >= WIDTH ? V(load)(x + j) : V(load_part)(x + j, n - j);
        wide e = widen(exponential(a, reference));
        EACH_PART {
            f64_vec rest = e.part[k] * lowered;
            for (int d = 0; d < ONS_DIGITS; d++) {
                const f64_vec magic = f64_set(ONS_DIGIT_MAGIC(d, 1.0));
                const f64_vec some = (rest + magic) - magic;
                sum[d].part[k] += some;
                rest -= some;
            }
        }
    }
    for (int d = 0; d < ONS_DIGITS; d++) {
        double lanes[WIDTH];
        wide_store(lanes, sum[d]);
        for (int64_t l = 0; l < WIDTH; l++) digit[d] += lanes[l];
    }
}

#endif
