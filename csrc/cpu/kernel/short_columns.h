/* short_columns.h - neighbouring rows that lie side by side and fill their lanes at
 * most twice: as in short.h a vector is the same element of every row, and that is how they
 * lie. */
#ifndef ONS_CPU_KERNEL_SHORT_COLUMNS_H
#define ONS_CPU_KERNEL_SHORT_COLUMNS_H

#include "columns.h"
#include "short.h"

/* A finished strip that is stored past the caches while the next one is computed, in whole cache
 * lines of y. Elements of a row that do not fill one wait in front of the row of the next strip,
 * if that begins where this one ends: the neighbours write the other part of that cache line,
 * and it must not go to memory before. */
typedef struct {
    T *y[2 * LANES]; /* the next cache line of each row */
    const T *from[2 * LANES];
    int64_t cache_lines[2 * LANES], least; /* left of each row; the least of these */
    int64_t tail[2 * LANES];               /* elements of each row after them */
    int64_t waiting[2 * LANES];            /* elements in front of each row of the strip behind */
} outgoing;

/* Stores n elements of y, which are not whole cache lines. */
ONS_ALWAYS void send_part(T *y, const T *from, int64_t n) {
#define BODY(a, j) (a)
    EACH_VECTOR(y, from, n, BODY);
#undef BODY
}

ONS_ALWAYS void begin_cache_lines(outgoing *out, const ons_run_of_columns *run, ons_columns at,
                                  const T *kept, int64_t N) {
    out->least = at.width;
    for (int64_t j = 0; j < N; j++) {
        int64_t waiting = out->waiting[j], n = at.width + waiting;
        T *y = (T *)(void *)(at.y + j * run->y_along) - waiting;
        const T *from = kept + j * run->pitch - waiting;
        int64_t head = (uintptr_t)y % sizeof(T) == 0 ? before_cache_line(y, n) : n;
        if (head > 0) send_part(y, from, head);
        out->y[j] = y + head;
        out->from[j] = from + head;
        out->cache_lines[j] = (n - head) / CACHE_LINE;
        out->tail[j] = (n - head) % CACHE_LINE;
        if (out->cache_lines[j] < out->least) out->least = out->cache_lines[j];
    }
}

/* Stores the next cache line of row j. */
ONS_ALWAYS void send_cache_line(outgoing *out, int64_t j) {
    for (int64_t v = 0; v < CACHE_LINE; v += WIDTH)
        V(stream)(out->y[j] + v, V(load)(out->from[j] + v));
    out->y[j] += CACHE_LINE;
    out->from[j] += CACHE_LINE;
    out->cache_lines[j]--;
}

/* Stores the cache lines that are left. `behind`: row 0 of the strip that begins where this one
 * ends, or NULL. */
ONS_ALWAYS void end_cache_lines(outgoing *out, T *behind, int64_t pitch, int64_t N) {
    for (int64_t j = 0; j < N; j++) {
        int64_t tail = out->tail[j];
        while (out->cache_lines[j] > 0) send_cache_line(out, j);
        out->waiting[j] = behind ? tail : 0;
        if (!behind && tail > 0) send_part(out->y[j], out->from[j], tail);
        /* the cache line that ends with them */
        for (int64_t v = CACHE_LINE; behind && v > 0; v -= WIDTH)
            V(store)(behind + j * pitch - v, V(load)(out->from[j] + tail - v));
    }
}

/* Computes the columns of a strip from c on that fill a vector, and stores them to `kept` or to
 * y. Those of the next strip are fetched. */
ONS_ALWAYS VEC short_columns(const ons_run_of_columns *run, ons_columns at, const char *next,
                             int64_t c, int64_t N, kind kind, bool plain, T *kept, VEC sum) {
    double scale = plain ? 1.0 : run->scale;
    bool each = !plain && at.scale;
    batch batch;
    VEC x[2 * LANES];
    for (int64_t j = 0; j < N && run->past_caches; j++)
        fetch_line(next + j * run->x_along + c * size_as(kind.x));
    scales scales;
    if (each) take_scales(&scales, run, at, c);
    for (int64_t j = 0; j < N; j++) {
        const char *where = !plain && at.where ? at.where + j * run->where_along : NULL;
        x[j] = take_at(at.x + j * run->x_along, where, c, at.width, kind.x, scale,
                       each ? &scales : NULL);
    }
    finish_columns(kind.operation, x, N, &batch);
    for (int64_t j = 0; j < N; j++)
        if (kept)
            V(store)(kept + j * run->pitch + c, x[j]);
        else
            put_at(at.y + j * run->y_along, c, at.width, x[j], kind);
    return add_rows(sum, &batch, at.width - c < WIDTH ? at.width - c : WIDTH);
}

/* N a constant, or the run's. */
ONS_ALWAYS bool short_columns_of(const ons_run_of_columns *run, const operation *operation,
                                 int64_t N, bool plain) {
    kind kind = kind_of(operation, plain ? OWN : run->x_dtype, plain ? OWN : run->y_dtype);
    bool past_caches = run->past_caches && run->y_dtype == OWN;
    VEC sum = V(set)(0);
    outgoing out;
    T *room[2] = {kept_strip(run, 0), kept_strip(run, 1)};
    ons_columns before = ONS_NO_COLUMNS, at = run->at(run->from, run->first);
    for (int64_t j = 0; j < N; j++) out.waiting[j] = 0;
    for (int64_t i = 0; i < run->count + past_caches; i++) {
        ons_columns next =
            i + 1 < run->count ? run->at(run->from, run->first + i + 1) : ONS_NO_COLUMNS;
        const char *fetch = next.width > 0 ? next.x : at.x;
        T *kept = past_caches ? room[i % 2] : NULL;
        out.least = 0;
        if (past_caches) begin_cache_lines(&out, run, before, room[1 - i % 2], N);
        for (int64_t c = 0; c < at.width; c += WIDTH) {
            sum = short_columns(run, at, fetch, c, N, kind, plain, kept, sum);
            if (c % CACHE_LINE != 0 || c / CACHE_LINE >= out.least) continue;
            for (int64_t j = 0; j < N; j++) send_cache_line(&out, j);
        }
        bool goes_on = run->waits && is_continued_by(&before, &at);
        if (past_caches) end_cache_lines(&out, goes_on ? kept : NULL, run->pitch, N);
        before = at;
        at = next;
    }
    if (past_caches) V(fence)();
    return has_nan(sum);
}

#endif
