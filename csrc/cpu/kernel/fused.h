/* fused.h - whole rows, one after the other. They have the compute type or 16 bits, or are
 * converted first. While a row is computed, the code finishes the previous row and finds the
 * maximum of the next row (overlap.h). Sums have the order of row.h. */
#ifndef ONS_CPU_KERNEL_FUSED_H
#define ONS_CPU_KERNEL_FUSED_H

#include "overlap.h"

/* Adds up the exponentials of a row into its state, and stores them at e if they are kept. */
ONS_ALWAYS void row_exponentials(const ons_rows *rows, T *e, const char *x, int64_t n,
                                 meanwhile *with, kind kind) {
    int64_t at_once = CHUNKS_AT_ONCE * CHUNK;
    sums sums = no_sums();
    with->reference = reference_of_row(rows->shift, rows->floor, 0);
    for (int64_t j = 0; j < n; j += at_once) {
        VEC lanes[CHUNKS_AT_ONCE][VECS];
        int64_t chunks = lanes_meanwhile(lanes, e + j, x + j * size_as(kind.x),
                                         n - j < at_once ? n - j : at_once, with, kind);
        add_chunks(&sums, lanes, chunks);
        if ((j + at_once) % ONS_BLOCK != 0 && j + at_once < n) continue;
        add_total(rows->state, &sums, false, false);
        sums = no_sums();
    }
}

/* The exponentials of an anchored row (ons_strip_anchor), from its elements minus the anchor at e.
 * They replace the elements there if they are kept. */
static ONS_APART void anchored_exponentials(const ons_rows *rows, T *e, int64_t n,
                                            bool keeps_exponentials) {
    for (int64_t j = 0; j < n; j += ONS_BLOCK) {
        ons_tile tile = {e + j, sizeof(T), 0};
        int64_t some = n - j < ONS_BLOCK ? n - j : ONS_BLOCK;
        if (keeps_exponentials)
            exp_store_sum_row(rows, tile, tile, some);
        else
            sum_exp_row(rows, tile, some);
        end_block_row(rows, false);
    }
}

/* The memory to fetch while a row's exponentials are computed. It begins past the row behind, and
 * is as long as a row. If rows are converted, the row behind is read as a whole. */
ONS_ALWAYS const char *fetched_with(const ons_run_of_rows *run, const char *row, int64_t bytes) {
    int64_t rows = (run->convert ? 2 : 1) + AHEAD / bytes;
    return row + rows * run->x.across + (run->convert ? 0 : AHEAD % bytes);
}

/* The buffer for the exponentials of row i. The exponentials of a long row overwrite those of the
 * row before, which is divided meanwhile. Each row begins `step` elements in front of the row
 * before, and the division is never that far behind. So two rows take little more of the caches
 * than one. At the end of the buffer a row begins again at the other end, clear of the row before.
 * Converted rows do not overwrite each other. */
typedef struct {
    T *room;
    int64_t step, turns;
} kept;

ONS_ALWAYS kept begin_kept(const ons_run_of_rows *run) {
    int64_t step = LAG + 8 * QUAD;
    if (run->convert) return (kept){run->kept, run->pitch, ONS_KEPT_ROWS};
    if (run->pitch < step) step = run->pitch;
    return (kept){run->kept, step, (run->N + step - 1) / step + 1};
}

ONS_ALWAYS T *place_of(const kept *kept, int64_t i) {
    return kept->room + (kept->turns - 1 - i % kept->turns) * kept->step;
}

/* The kept part of row i: its exponentials, or its elements. */
ONS_ALWAYS const void *kept_of(kind kind, const T *room, const char *x) {
    return kind.operation->keeps_exponentials ? (const void *)room : (const void *)x;
}

/* If rows are converted, kind.x is T, and each row lies where its exponentials will be. */
ONS_ALWAYS bool rows_of_kind(const ons_run_of_rows *run, kind kind) {
    T shift, floor, first = 0, second = 0, shared[WIDTH];
    double sums[2 * ONS_SUMS] = {0};
    bool nan = false;
    ons_state state;
    ons_rows rows = {.width = 1,
                     .state = &state,
                     .sums = sums,
                     .sums_along = 1,
                     .shift = &shift,
                     .floor = &floor};
    int64_t N = run->N, bytes = N * run->x.along;
    kept kept = begin_kept(run);
    T *room = place_of(&kept, 0);
    if (run->convert) run->convert(run->from, 0, 1, room, run->pitch);
    const char *x = run->convert ? (const char *)room : run->x.data, *in_memory = run->x.data;
    char *y = run->y.data;
    maximum largest = begin_maximum(x, N);
    T m = end_maximum(&largest, kind.x);
    meanwhile with = {.before = {.n = 0}};
    bool follow = follow_each_other(run, kind);
    for (int64_t i = 0; i < run->count; i++, y += run->y.across, in_memory += run->x.across) {
        T *e = room;
        room = place_of(&kept, i + 1);
        bool far = ons_needs_anchor((double)m), last = i + 1 == run->count;
        double anchor = far ? (double)m : 0.0;
        if (run->convert && !last) run->convert(run->from, i + 1, 1, room, run->pitch);
        const char *behind = run->convert ? (const char *)room : in_memory + run->x.across;
        state = ons_state_empty();
        ons_state_raise(&state, far ? 0.0 : (double)m);
        set_references(&rows);
        with.behind = begin_maximum(behind, last ? 0 : N);
        with.lag = last ? -N : LAG; /* stays behind nothing */
        with.fetch = fetched_with(run, in_memory, bytes);
        with.fetch_step = QUAD * size_as(kind.x);
        if (far && !run->convert) { /* nothing is finished meanwhile */
            end_finishing(&with.before, kind);
            with.before.at = with.before.n = 0;
        }
        if (far) {
            subtract_anchor(e, x, N, kind.x, anchor);
            anchored_exponentials(&rows, e, N, kind.operation->keeps_exponentials);
        } else if (size_as(kind.y) != 2 && with.before.past_caches) {
            row_exponentials(&rows, e, x, N, &with, kind_past_caches(kind, true));
        } else {
            row_exponentials(&rows, e, x, N, &with, kind);
        }
        end_finishing(&with.before, kind);
        m = end_maximum(&with.behind, kind.x);
        /* a converted row has its anchor subtracted in memory */
        kind.operation->row(&state, run->convert ? 0.0 : anchor, &first, &second);
        nan |= isnan(first) || isnan(second);
        with.before = begin_finishing((finishing){.y = y,
                                                  .kept = kept_of(kind, e, x),
                                                  .first = V(set)(first),
                                                  .second = V(set)(second),
                                                  .n = N,
                                                  .past_caches = run->past_caches,
                                                  .shared_before = follow && i > 0 ? shared : NULL,
                                                  .shared_behind = follow && !last ? shared : NULL},
                                      kind);
        x = behind;
    }
    end_finishing(&with.before, kind);
    if (run->past_caches) V(fence)();
    return nan;
}

/* For a y of type `as`. x has the same type, or its rows are converted. */
ONS_ALWAYS bool rows_to(const ons_run_of_rows *run, const operation *operation, ons_dtype as) {
    if (as != OWN && run->convert) return rows_of_kind(run, kind_of(operation, OWN, as));
    return rows_of_kind(run, kind_of(operation, as, as));
}

#endif
