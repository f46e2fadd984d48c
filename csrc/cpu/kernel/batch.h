/* batch.h - whole rows, a batch of WIDTH at a time. One vector then has the c of all rows of the
 * batch, another their d, and another their factor of the division. The rows are computed one after
 * the other, as in fused.h. Meanwhile the code finishes a row of the previous batch, and finds the
 * maximum of a row of the next batch. Sums have the order of row.h. */
#ifndef ONS_CPU_KERNEL_BATCH_H
#define ONS_CPU_KERNEL_BATCH_H

#include "overlap.h"

#define BATCH WIDTH /* rows of a full batch */

/* Rows of a batch: WIDTH, or half as many if WIDTH rows take more than 10 KiB. The first-level
 * cache must hold two batches of exponentials and two of x. */
ONS_ALWAYS int64_t rows_in_batch(int64_t N) {
    return BATCH > 1 && BATCH * N * (int64_t)sizeof(T) > 10240 ? BATCH / 2 : BATCH;
}

/* The numbers of a batch's rows. */
typedef struct {
    T m[BATCH], anchor[BATCH], shift[BATCH], floor[BATCH], first[BATCH], second[BATCH];
    wide d;
} batch;

/* Computes the shift and the floor of each row from the row's m. Each lane has a row, and no m is
 * far. c is ceil(m * log2(e)). If m * log2(e) is next to an integer, c may be one off, which does
 * not show in results. */
ONS_ALWAYS void references_of_lanes(VEC m, T *shift, T *floor) {
    VEC magic = V(set)((T)MAGIC);
    VEC c = V(fma)(m, V(set)((T)ONS_LOG2_E), V(set)((T)0.5));
    c = (c + magic) - magic;
    V(store)(shift, V(fma)(c, V(set)(-STEPS), V(set)((T)(MAGIC + STEPS * LIFT))));
    VEC below = c - V(set)((T)BELOW);
    V(store)(floor, below * V(set)((T)(1 / ONS_LOG2_E)));
}

/* Whether a lane is larger than ONS_LARGEST_REFERENCE, or infinite. */
ONS_ALWAYS bool any_far(VEC m) { return V(any_outside)(m, V(set)((T)ONS_LARGEST_REFERENCE)); }

/* m, or the finite number that stands for it if it is infinite. */
ONS_ALWAYS VEC nearer(VEC m) {
    VEC zero = V(set)(0), bound = V(set)((T)-ONS_LARGEST_REFERENCE);
    return zero - V(max)(bound, zero - V(max)(bound, m));
}

/* Each lane of m has the maximum of a row. The same lane of the result has the row's anchor, or 0
 * if the row needs no anchor (ons_needs_anchor). */
ONS_ALWAYS VEC anchors(VEC m) {
    return V(between)(m, V(set)((T)ONS_LARGEST_REFERENCE), V(set)((T)INFINITY));
}

/* Sets anchor, shift and floor from m. Returns whether a row has an anchor. */
ONS_ALWAYS bool set_references_of_batch(batch *batch) {
    VEC m = V(load)(batch->m), anchor = V(set)(0);
    bool far = any_far(m);
    if (__builtin_expect(far, false)) {
        anchor = anchors(m);
        far = V(any_outside)(anchor, V(set)(0));
        m -= anchor;
        V(store)(batch->m, m);
        m = nearer(m);
    }
    V(store)(batch->anchor, anchor);
    references_of_lanes(m, batch->shift, batch->floor);
    return far;
}

/* first plus second of the first `rows` rows, NaN if the row is NaN. The other lanes are 0. */
ONS_ALWAYS VEC nans_of_rows(const T *first, const T *second, int64_t rows) {
    return V(join)(V(load)(first) + V(load)(second), V(set)(0), rows);
}

ONS_ALWAYS bool has_nan(VEC sum) {
    T lanes[WIDTH];
    bool nan = false;
    V(store)(lanes, sum);
    for (int64_t l = 0; l < WIDTH; l++) nan |= isnan(lanes[l]) != 0;
    return nan;
}

/* The sums of each chunk of a batch's rows, one for each lane. */
enum {
    LONGEST_BATCHED = BITS == 64          ? ONS_BATCHED_F64
                      : sizeof(VEC) == 64 ? ONS_BATCHED_F32 / 2
                                          : ONS_BATCHED_F32,
    MAX_CHUNKS = LONGEST_BATCHED / CHUNK
};
typedef VEC batch_lanes[BATCH][MAX_CHUNKS][VECS];

/* Computes first and second from d. `d_low`: what d rounded away, or NULL. `converted`: the anchor
 * has already been subtracted from the elements in memory. */
ONS_ALWAYS void end_rows_of_batch(const operation *operation, batch *batch, const wide *d_low,
                                  bool converted) {
    VEC anchor = converted ? V(set)(0) : V(load)(batch->anchor);
    sums_of_rows rows = {batch->d, d_low, V(load)(batch->m), anchor, V(load)(batch->shift)};
    if (operation->one_a_row) {
        rows.anchor = V(load)(batch->anchor);
        operation->values(&rows, batch->first);
    } else {
        operation->rows(&rows, batch->first, batch->second);
    }
}

/* Stores the values of `rows` rows of a batch to y, from row `first` on. An infinite maximum is the
 * row's value, unless the row has a NaN, which the maximum ignores. `x`: the rows, of type `as`. */
static void store_values(const ons_run_of_rows *run, int64_t first, int64_t rows, batch *batch,
                         ons_tile x, ons_dtype as) {
    for (int64_t i = 0; i < rows; i++) {
        const char *row = (const char *)ROW(x, i);
        for (int64_t j = 0; isinf(batch->m[i]) && j < run->N; j++) {
            T element;
            load(&element, row + j * x.along, x.along, as, 1);
            if (isnan(element)) batch->first[i] = (T)NAN;
        }
        store((char *)ROW(run->y, first + i), run->y.along, run->dtype, batch->first + i, 1);
    }
}

/* Computes first and second from the lanes' sums. For operations with one value a row, `first` gets
 * the values. */
ONS_ALWAYS void end_batch(const operation *operation, batch *batch, batch_lanes lanes, int64_t N,
                          bool converted) {
    sums sums[BATCH];
    wide low;
    int64_t chunks = (N + CHUNK - 1) / CHUNK;
    for (int64_t i = 0; i < BATCH; i++) sums[i] = sums_of_chunks(lanes[i], chunks, MAX_CHUNKS);
    totals_of_rows(&batch->d, &low, sums);
    end_rows_of_batch(operation, batch, BITS == 64 ? &low : NULL, converted);
}

/* The largest element of each row of a batch of `rows` rows. */
ONS_ALWAYS void largest_as(T *largest, const char *x, int64_t across, int64_t rows, int64_t N,
                           ons_dtype as) {
    for (int64_t i = 0; i < rows_in_batch(N); i++) {
        maximum m = begin_maximum(x + i * across, i < rows ? N : 0);
        largest[i] = end_maximum(&m, as);
    }
}
static ONS_APART void largest_of(T *largest, const char *x, int64_t across, int64_t rows, int64_t N,
                                 ons_dtype as) {
    if (as == ONS_FLOAT16)
        largest_as(largest, x, across, rows, N, ONS_FLOAT16);
    else if (as == ONS_BFLOAT16)
        largest_as(largest, x, across, rows, N, ONS_BFLOAT16);
    else
        largest_as(largest, x, across, rows, N, OWN);
}

/* Computes the lanes' sums of row i, from its elements minus the anchor at e. The exponentials
 * replace them there if they are kept. */
static ONS_APART void anchored_lanes(VEC (*lanes)[VECS], const batch *batch, int64_t i, T *e,
                                     int64_t n, bool keeps_exponentials) {
    reference reference = reference_of_row(batch->shift, batch->floor, i);
    for (int64_t j = 0; j < n; j += CHUNK, lanes++) {
        T *to = keeps_exponentials ? e + j : NULL;
        lanes_of(*lanes, reference, to, e + j, n - j, true);
    }
}

/* The state of a run of rows. The exponentials of batch `now` are computed next. */
typedef struct {
    int64_t batch_rows;     /* rows of a whole batch */
    const char *x, *behind; /* first row of this batch, and of the batch behind */
    int64_t across;         /* bytes from row to row in both */
    const char *fetch;      /* memory to fetch during its first row */
    char *y;                /* first row of the batch before */
    const char *kept;       /* what is kept of it, and its bytes from row to row */
    int64_t kept_across;
    T *e, *shared;
    int64_t rows_before, rows, rows_behind; /* of the batch before, this batch, and the batch
                                             * behind */
    bool anchored, follow;
    int64_t done; /* rows stored in y */
    const batch *now, *before;
    batch_lanes lanes;  /* of this batch */
    VEC largest[BATCH]; /* of the batch behind */
} run_of_batches;

/* Computes the exponentials of one batch. Meanwhile it finishes the batch before and finds the
 * maxima of the batch behind. `full`: all three have all their rows, and none has an anchor. */
ONS_ALWAYS void next_batch(run_of_batches *at, const ons_run_of_rows *run, kind kind, bool full) {
    int64_t N = run->N, batch_rows = at->batch_rows, across = at->across,
            fetch_across = run->x.across;
    const char *x = at->x, *behind = at->behind, *fetch = at->fetch;
    for (int64_t i = 0; i < batch_rows; i++, x += across, behind += across, fetch += fetch_across) {
        T *e = at->e + i * run->pitch;
        bool finishes = !kind.operation->one_a_row && (full || i < at->rows_before);
        int64_t n = full || i < at->rows ? N : 0;
        bool follows = at->follow && at->done + i > 0;
        bool followed = at->follow && (full || at->done + i + 1 < run->count);
        meanwhile with;
        with.reference = reference_of_row(at->now->shift, at->now->floor, i);
        with.before =
            begin_finishing((finishing){.y = at->y + (finishes ? i * run->y.across : 0),
                                        .kept = at->kept + i * at->kept_across,
                                        .first = V(set)(finishes ? at->before->first[i] : 0),
                                        .second = V(set)(finishes ? at->before->second[i] : 0),
                                        .n = finishes ? N : 0,
                                        .past_caches = kind.past_caches,
                                        .shared_before = follows ? at->shared : NULL,
                                        .shared_behind = followed ? at->shared : NULL},
                            kind);
        with.behind = begin_maximum(behind, full || i < at->rows_behind ? N : 0);
        with.lag = 0;
        with.fetch = fetch;
        with.fetch_step = QUAD * size_as(kind.x);
        if (!full && at->anchored) {
            subtract_anchor(e, x, n, kind.x, (double)at->now->anchor[i]); /* or 0 */
            anchored_lanes(at->lanes[i], at->now, i, e, n, kind.operation->keeps_exponentials);
        } else {
            lanes_meanwhile(at->lanes[i], e, x, n, &with, kind);
        }
        end_finishing(&with.before, kind);
        at->largest[i] = lanes_of_maximum(&with.behind, kind.x);
    }
}

#endif
