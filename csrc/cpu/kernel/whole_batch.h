/* whole_batch.h - next_batch of batch.h for rows of whole quads without a gap in y.
 * All stores are then whole vectors, and past the caches whole cache lines, whichever rows they
 * belong to. */
#ifndef ONS_CPU_KERNEL_WHOLE_BATCH_H
#define ONS_CPU_KERNEL_WHOLE_BATCH_H

#include "batch.h"

/* Of a vector's elements, how many lie in a row of which so many are left. */
ONS_ALWAYS int64_t own_of(int64_t left) { return left < 0 ? 0 : left < WIDTH ? left : WIDTH; }

/* Finishes the elements before the first cache line of y, which goes past the caches. Returns
 * how many they are: by so many all rows of the batch are finished ahead. */
ONS_ALWAYS int64_t finish_to_cache_line(run_of_batches *at, int64_t N, kind kind) {
    T *shared = at->done > 0 ? at->shared : NULL;
    finishing first = begin_finishing(at->before->first[0], at->before->second[0], at->y, at->kept,
                                      N, kind, true, shared);
    return first.at;
}

/* next_batch of full batches of rows of whole quads, which follow each other in y without a gap.
 * Past the caches y is written from its first cache line on, whatever row that is in. What is
 * left goes into `shared`, for the next batch, as in begin_finishing. Rows are finished `turn`
 * rows ahead, a KiB away from the places of x that are read meanwhile (see LAG); not where
 * two batches fill the first cache, which takes them best in the order in which they were
 * written. */
ONS_ALWAYS void next_whole_batch(run_of_batches *at, const ons_run_of_rows *run, kind kind,
                                 bool past_caches) {
    int64_t N = run->N, bytes = N * (int64_t)sizeof(T);
    T *y = (T *)(void *)at->y;
    const T *before = (const T *)(const void *)at->kept;
    const T *firsts = at->before->first, *seconds = at->before->second;
    bool exponentials = kind.operation->keeps_exponentials;
    int64_t ahead = past_caches ? finish_to_cache_line(at, N, kind) : 0;
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
        VEC shift = SET_OF(at->now->shift, i), floor = SET_OF(at->now->floor, i);
        VEC first = SET_OF(firsts, k), second = SET_OF(seconds, k);
        VEC even = V(set)((T)-INFINITY), odd = even;
        for (int64_t q = 0; q < N; q += QUAD) {
            for (int64_t v = 0; v < VECS; v++) {
                int64_t from = q + v * WIDTH;
                T *to = exponentials ? e + from : NULL;
                VEC quad = whole_quad(to, x + from, shift, floor, false);
                VEC *lane = &at->lanes[i][q / CHUNK][v];
                *lane = q % CHUNK == 0 ? quad : (VEC)(*lane + quad);
            }
            int64_t last_cache_line = q + QUAD - CACHE_LINE;
            for (int64_t j = q; j < last_cache_line; j += WIDTH) {
                VEC kept = V(held)(V(load)(from + j));
                VEC done = kind.operation->element(kept, first, second);
                put_vector(to + j, done, past_caches);
            }
            bool cut = past_caches && ahead > 0 && q + QUAD == N; /* by the end of the row */
            for (int64_t j = last_cache_line; j < last_cache_line + CACHE_LINE; j += WIDTH) {
                int64_t own = WIDTH; /* elements that are not the next row's */
                if (cut) {
                    own = own_of(N - ahead - j);
                    first = V(join)(first, SET_OF(firsts, next), own);
                    second = V(join)(second, SET_OF(seconds, next), own);
                }
                VEC kept = V(held)(V(load)(from + j));
                VEC done = kind.operation->element(kept, first, second);
                if (!cut || k + 1 < at->batch_rows || own == WIDTH)
                    put_vector(to + j, done, past_caches);
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

#endif
