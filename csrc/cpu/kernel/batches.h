/* batches.h - a run of rows in batches. batch.h has the work on one batch. */
#ifndef ONS_CPU_KERNEL_BATCHES_H
#define ONS_CPU_KERNEL_BATCHES_H

#include "batch.h"

/* Number of elements of a vector that lie in a row with `left` elements left. */
ONS_ALWAYS int64_t own_of(int64_t left) { return left < 0 ? 0 : left < WIDTH ? left : WIDTH; }

/* Finishes the elements before the first cache line of y, which goes past the caches. Returns their
 * number. All rows of the batch are then finished that many elements further. */
ONS_ALWAYS int64_t finish_to_cache_line(run_of_batches *at, int64_t N, kind kind) {
    finishing first = {.y = at->y,
                       .kept = at->kept,
                       .first = SET_OF(at->before->first, 0),
                       .second = SET_OF(at->before->second, 0),
                       .n = N,
                       .past_caches = true,
                       .shared_before = at->done > 0 ? at->shared : NULL};
    return begin_finishing(first, kind).at;
}

/* next_batch for full batches whose rows are whole quads and lie in y without gaps. All stores are
 * then whole vectors. Past the caches they are whole cache lines, even if a line has elements of
 * two rows. y is written from its first cache line on, even if this line begins within a row.
 * Elements that do not fill a line go into `shared`, for the next batch, as in begin_finishing.
 * Rows are finished `turn` rows ahead: a KiB away from the places of x that are read meanwhile (see
 * LAG). If two batches fill the first-level cache, `turn` is 0, since the cache works best in the
 * order of the writes. */
ONS_ALWAYS void next_whole_batch(run_of_batches *at, const ons_run_of_rows *run, kind kind) {
    int64_t N = run->N, bytes = N * (int64_t)sizeof(T);
    T *y = (T *)(void *)at->y;
    const T *before = (const T *)(const void *)at->kept;
    const T *firsts = at->before->first, *seconds = at->before->second;
    bool exponentials = kind.operation->keeps_exponentials;
    int64_t ahead = kind.past_caches ? finish_to_cache_line(at, N, kind) : 0;
    before += ahead;
    y += ahead;
    int64_t turn = at->batch_rows * bytes <= 8192 ? 1024 / bytes : 0;
    for (int64_t i = 0; i < at->batch_rows; i++) {
        int64_t k = (i + turn) % at->batch_rows, next = k + 1 < at->batch_rows ? k + 1 : k;
        const T *from = before + k * N;
        T *to = y + k * N;
        const T *x = (const T *)(const void *)(at->x + i * at->across);
        const T *behind = (const T *)(const void *)(at->behind + i * at->across);
        const char *fetch = at->fetch + i * run->x.across;
        T *e = at->e + i * N;
        reference reference = reference_of_row(at->now->shift, at->now->floor, i);
        VEC first = SET_OF(firsts, k), second = SET_OF(seconds, k);
        VEC even = V(set)((T)-INFINITY), odd = even;
        for (int64_t q = 0; q < N; q += QUAD) {
            for (int64_t v = 0; v < VECS; v++) {
                int64_t from = q + v * WIDTH;
                T *to = exponentials ? e + from : NULL;
                VEC quad = whole_quad(to, x + from, reference);
                VEC *lane = &at->lanes[i][q / CHUNK][v];
                *lane = q % CHUNK == 0 ? quad : (VEC)(*lane + quad);
            }
            int64_t last_cache_line = q + QUAD - CACHE_LINE;
            for (int64_t j = q; j < last_cache_line; j += WIDTH) {
                VEC kept = V(held)(V(load)(from + j));
                VEC done = kind.operation->element(kept, first, second);
                put_vector(to + j, done, kind.past_caches);
            }
            bool cut = kind.past_caches && ahead > 0 && q + QUAD == N; /* by the end of the row */
            for (int64_t j = last_cache_line; j < last_cache_line + CACHE_LINE; j += WIDTH) {
                int64_t own = WIDTH; /* elements before the next row */
                if (cut) {
                    own = own_of(N - ahead - j);
                    first = V(join)(first, SET_OF(firsts, next), own);
                    second = V(join)(second, SET_OF(seconds, next), own);
                }
                VEC kept = V(held)(V(load)(from + j));
                VEC done = kind.operation->element(kept, first, second);
                if (!cut || k + 1 < at->batch_rows || own == WIDTH)
                    put_vector(to + j, done, kind.past_caches);
                else if (own > 0)
                    V(store)(at->shared, done);
            }
            for (int64_t k = q; k < q + QUAD; k += 2 * WIDTH) {
                even = V(max)(V(load)(behind + k), even);
                odd = V(max)(V(load)(behind + k + WIDTH), odd);
            }
            for (int64_t offset = 0; offset < QUAD; offset += CACHE_LINE)
                fetch_line(fetch + (q + offset) * (int64_t)sizeof(T));
        }
        at->largest[i] = V(max)(even, odd);
    }
}

/* The buffer of batch g: two buffers in turn, or three if rows are converted. */
ONS_ALWAYS T *room_of_batch(const ons_run_of_rows *run, int64_t g, int64_t batch_rows) {
    int64_t turn = run->convert ? (g + 3) % 3 : (g + 2) % 2;
    return (T *)run->kept + turn * batch_rows * run->pitch;
}

/* Converts batch g into its buffer if necessary. Returns the address of its rows. */
ONS_ALWAYS const char *take_batch(const ons_run_of_rows *run, int64_t g, int64_t batch_rows,
                                  int64_t rows) {
    if (!run->convert) return (const char *)run->x.data + g * batch_rows * run->x.across;
    T *room = room_of_batch(run, g, batch_rows);
    if (rows > 0) run->convert(run->from, g * batch_rows, rows, room, run->pitch);
    return (const char *)room;
}

/* The lanes of all rows are added up and compared after their batch. Doing it in each row would be
 * a chain of long instructions that delays the next row. */
ONS_ALWAYS bool batches_of_kind(const ons_run_of_rows *run, kind kind) {
    batch batches[2] = {0}, *now = batches, *before = batches + 1;
    int64_t N = run->N, bytes = N * run->x.along, batch_rows = rows_in_batch(N);
    int64_t fetched = (run->convert ? 2 : 1) * batch_rows + (AHEAD + bytes - 1) / bytes;
    T shared[WIDTH];
    run_of_batches at = {
        .batch_rows = batch_rows, .y = run->y.data, .kept = run->kept, .shared = shared};
    at.across = run->convert ? run->pitch * (int64_t)sizeof(T) : run->x.across;
    at.fetch = (const char *)run->x.data + fetched * run->x.across;
    at.follow = follow_each_other(run, kind);
    bool values = kind.operation->one_a_row;
    bool wide = size_as(kind.y) != 2 && !values; /* constants */
    bool past_caches = wide && run->past_caches && (uintptr_t)run->y.data % sizeof(T) == 0 &&
                       run->y.across % sizeof(T) == 0;
    bool follow = WIDTH > 1 && wide && size_as(kind.x) != 2 &&
                  run->y.across == N * (int64_t)sizeof(T) &&
                  (uintptr_t)run->y.data % sizeof(T) == 0;
    bool exponentials = kind.operation->keeps_exponentials;
    int64_t pitch = run->pitch * (int64_t)sizeof(T);
    at.kept_across = exponentials ? pitch : at.across;
    bool whole =
        follow && N % QUAD == 0 && run->pitch == N && at.kept_across == N * (int64_t)sizeof(T);
    at.rows = run->count < batch_rows ? run->count : batch_rows;
    at.behind = take_batch(run, 0, batch_rows, at.rows);
    largest_of(now->m, at.behind, at.across, at.rows, N, kind.x);
    at.anchored = set_references_of_batch(now);
    VEC sum = V(set)(0);
    int64_t left = run->count - at.rows;
    for (int64_t g = 0; at.rows > 0 || at.rows_before > 0; g++) {
        at.rows_behind = left < batch_rows ? left : batch_rows;
        at.x = at.behind;
        at.behind = take_batch(run, g + 1, batch_rows, at.rows_behind);
        at.e = room_of_batch(run, g, batch_rows);
        if (exponentials) at.kept = (const char *)room_of_batch(run, g - 1, batch_rows);
        at.now = now;
        at.before = before;
        /* separate calls, because the compiler makes faster code for constants */
        bool full = at.rows_before == batch_rows && at.rows_behind == batch_rows && !at.anchored;
        if (full && whole && past_caches)
            next_whole_batch(&at, run, kind_past_caches(kind, true));
        else if (full && whole)
            next_whole_batch(&at, run, kind);
        else if (full && wide && past_caches)
            next_batch(&at, run, kind_past_caches(kind, true), true);
        else if (full && wide)
            next_batch(&at, run, kind, true);
        else
            next_batch(&at, run, kind_past_caches(kind, past_caches), false);
        batch *behind = before;
        V(store)(behind->m, V(max_rows)(at.largest));
        at.anchored = set_references_of_batch(behind);
        end_batch(kind.operation, now, at.lanes, N, run->convert != NULL);
        if (values) {
            ons_tile from = {(char *)at.x, size_as(kind.x), at.across};
            store_values(run, at.done + at.rows_before, at.rows, now, from, kind.x);
        }
        if (!values) sum += nans_of_rows(now->first, now->second, at.rows);
        if (!exponentials) at.kept = at.x;
        before = now;
        now = behind;
        at.fetch += batch_rows * run->x.across;
        at.y += at.rows_before * run->y.across;
        at.done += at.rows_before;
        at.rows_before = at.rows;
        at.rows = at.rows_behind;
        left -= at.rows_behind;
    }
    if (run->past_caches) V(fence)();
    return has_nan(sum);
}

/* For a y of type `as`. x has the same type, or its rows are converted. */
ONS_ALWAYS bool batches_to(const ons_run_of_rows *run, const operation *operation, ons_dtype as) {
    if (as != OWN && run->convert) return batches_of_kind(run, kind_of(operation, OWN, as));
    return batches_of_kind(run, kind_of(operation, as, as));
}

#endif
