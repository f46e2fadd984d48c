/* short.h - short whole rows: at most two elements for each lane of a sum. WIDTH rows are computed
 * at once. A vector has the same element of each of these rows. Rows are transposed for that.
 * Neighbouring rows that lie side by side already have this order. Sums have the order of row.h. */
#ifndef ONS_CPU_KERNEL_SHORT_H
#define ONS_CPU_KERNEL_SHORT_H

#include "batch.h"
#include "columns.h"

/* Where four elements begin: at j, or at N - 4 if fewer are left in a row of four or more. */
ONS_ALWAYS int64_t four_from(int64_t j, int64_t N) { return j + 4 <= N || N < 4 ? j : N - 4; }

/* The place where the finished rows of a batch are stored without gaps, before they are copied to
 * y. So all stores are whole vectors: a row overwrites what the row before wrote past its end. */
typedef struct {
    T *y;
    int64_t pitch; /* elements */
    bool apart;    /* it is a buffer, not y */
} finished;

/* Sends n finished elements to y, which is aligned to an element. If the last ones do not fill a
 * vector, they are sent only if `all`. Returns the number of elements sent. */
ONS_ALWAYS int64_t send(T *y, const T *from, int64_t n, bool past_caches, bool all) {
    int64_t head = unaligned(y, n), j;
#define BODY(a, j) (a)
    EACH_VECTOR(y, from, head, BODY);
    if (past_caches)
        for (j = head; j + WIDTH <= n; j += WIDTH) V(stream)(y + j, V(load)(from + j));
    else
        for (j = head; j + WIDTH <= n; j += WIDTH) V(store)(y + j, V(load)(from + j));
    if (!all) return j;
    EACH_VECTOR(y + j, from + j, n - j, BODY);
    return n;
#undef BODY
}

/* One of three buffers: two for the finished rows of batches, and the third for converted rows. */
ONS_ALWAYS T *room_apart(const ons_run_of_rows *run, int64_t turn) {
    return (T *)run->kept + turn * (BATCH * run->pitch + WIDTH);
}

/* The address of a batch of rows in the compute type. */
ONS_ALWAYS ons_tile rows_at(const ons_run_of_rows *run, int64_t first) {
    if (!run->convert) return (ons_tile){ROW(run->x, first), run->x.along, run->x.across};
    T *converted = room_apart(run, 2) + first % ONS_CONVERTED_SHORT_ROWS * run->N;
    return (ons_tile){converted, sizeof(T), run->N * (int64_t)sizeof(T)};
}

/* The address of the next batch in the compute type. Rows are converted many at a time, and without
 * gaps. Otherwise loads of vectors across rows that were stored shortly before would have to wait
 * for the caches. */
ONS_ALWAYS ons_tile take_rows(const ons_run_of_rows *run, int64_t first) {
    int64_t left = run->count - first;
    if (run->convert && first % ONS_CONVERTED_SHORT_ROWS == 0)
        run->convert(run->from, first,
                     left < ONS_CONVERTED_SHORT_ROWS ? left : ONS_CONVERTED_SHORT_ROWS,
                     room_apart(run, 2), run->N);
    return rows_at(run, first);
}

/* A copy of rows, if they are too few or too short for whole vectors. */
typedef T padded_rows[BATCH][2 * LANES];

/* Transposes a batch: each element of its rows becomes a vector. Missing rows may have any value,
 * and so may elements past the end of rows of fewer than 4 elements. */
ONS_ALWAYS void columns_of_rows(VEC *e, const ons_run_of_rows *run, int64_t first, int64_t rows,
                                padded_rows padded) {
    int64_t N = run->N;
    ons_tile x = take_rows(run, first);
    /* whether four elements of the last row lie in the rows of the run */
    int64_t row = N * (int64_t)sizeof(T), behind = run->count - first - BATCH;
    bool reads_past_end = x.across >= row && behind * x.across + row >= 4 * (int64_t)sizeof(T);
    if (rows == 1 && N >= 4) {
        x.across = 0; /* every lane has that row */
    } else if (rows < BATCH || (N < 4 && !reads_past_end)) {
        memset(padded, 0, sizeof(padded_rows));
        for (int64_t i = 0; i < rows; i++) memcpy(padded[i], ROW(x, i), (size_t)N * sizeof(T));
        x = (ons_tile){padded, sizeof(T), sizeof *padded};
    }
    for (int64_t j = 0; j < N; j += 4) {
        int64_t from = four_from(j, N);
        V(load_columns)(e + from, (const char *)x.data + from * (int64_t)sizeof(T), x.across);
    }
}

/* The inverse: writes rows to the place where they are finished. */
ONS_ALWAYS void rows_of_columns(finished to, const VEC *e, int64_t N, int64_t rows,
                                padded_rows padded) {
    bool whole = to.apart || (rows == BATCH && N >= 4);
    T *y = whole ? to.y : padded[0];
    int64_t pitch = whole ? to.pitch : (int64_t)(sizeof *padded / sizeof(T));
    for (int64_t j = 0; j < N; j += 4) {
        int64_t from = four_from(j, N);
        V(store_columns)(y + from, pitch, e + from);
    }
    for (int64_t i = 0; i < rows && !whole; i++)
        memcpy(to.y + i * to.pitch, padded[i], (size_t)N * sizeof(T));
}

/* Computes the results of BATCH rows in place. Vector j of x has their element j. For operations
 * with one value a row, `first` of the batch gets the values. */
ONS_ALWAYS void finish_columns(const operation *operation, VEC *x, int64_t N, batch *batch) {
    bool exponentials = operation->keeps_exponentials;
    VEC even = V(set)((T)-INFINITY), odd = even, apart[2 * LANES], *e = exponentials ? x : apart;
    for (int64_t j = 0; j + 2 <= N; j += 2) {
        even = V(max)(x[j], even);
        odd = V(max)(x[j + 1], odd);
    }
    if (N % 2 != 0) even = V(max)(x[N - 1], even);
    V(store)(batch->m, V(max)(even, odd));
    if (set_references_of_batch(batch))
        for (int64_t j = 0; j < N; j++) x[j] -= V(load)(batch->anchor);
    reference reference = reference_of_rows(batch->shift, batch->floor);
    for (int64_t j = 0; j < N && !exponentials; j++) e[j] = x[j];
    int64_t done = 0;
    for (; done + 4 <= N; done += 4) exponential_each(e + done, 4, reference);
    for (; done < N; done++) exponential_each(e + done, 1, reference);
    batch->d = total_of_short(e, N);
    end_rows_of_batch(operation, batch, NULL, true);
    if (operation->one_a_row) return;
    VEC first = V(load)(batch->first), second = V(load)(batch->second);
    for (int64_t j = 0; j < N; j++) x[j] = operation->element(x[j], first, second);
}

/* Computes a batch of short rows. Adds their first and second to `sum`. */
ONS_ALWAYS VEC batch_of_columns(const ons_run_of_rows *run, const operation *operation,
                                int64_t first, int64_t rows, finished to, VEC sum) {
    batch batch;
    VEC x[2 * LANES];
    padded_rows padded;
    const char *next = (const char *)ROW(run->x, first) + AHEAD;
    for (int64_t offset = 0; offset < BATCH * run->x.across; offset += 64)
        __builtin_prefetch(next + offset);
    columns_of_rows(x, run, first, rows, padded);
    finish_columns(operation, x, run->N, &batch);
    if (operation->one_a_row) {
        store_values(run, first, rows, &batch, rows_at(run, first), OWN);
        return sum;
    }
    rows_of_columns(to, x, run->N, rows, padded);
    return sum + nans_of_rows(batch.first, batch.second, rows);
}

/* Rows without gaps are finished in a buffer, and so are rows of a y of another type. A batch is
 * copied to y after the next one is computed: reading vectors across its rows at once would have to
 * wait for the caches. */
typedef struct {
    char *y;         /* the place of the next elements */
    T *apart[2];     /* two buffers, used in turn */
    int64_t ahead;   /* elements that did not fill a vector, and wait in front of the next batch */
    int64_t waiting; /* elements of the batch before, and those in front of it; if y has another
                      * type, rows */
} sending;

/* Sends a batch. Elements that do not fill a vector wait, and go with the next batch. */
ONS_ALWAYS void send_batch(sending *at, const ons_run_of_rows *run, int64_t turn, int64_t rows,
                           bool first) {
    T *y = (T *)(void *)at->y;
    if (!first) {
        const T *from = at->apart[1 - turn];
        int64_t sent = send(y, from, at->waiting, run->past_caches, rows == 0);
        memcpy(at->apart[turn], from + sent, (size_t)(at->waiting - sent) * sizeof(T));
        y += sent;
    }
    at->y = (char *)y;
    at->waiting = at->ahead + rows * run->N;
    at->ahead = (at->waiting - (first ? unaligned(y, at->waiting) : 0)) % WIDTH;
}

ONS_ALWAYS void send_converted(sending *at, const ons_run_of_rows *run, int64_t turn,
                               int64_t rows) {
    int64_t N = run->N, size = ons_dtype_size(run->dtype), across = run->y.across;
    int64_t at_once = across == N * size ? at->waiting : 1;
    for (int64_t i = 0; i < at->waiting; i += at_once, at->y += at_once * across)
        store(at->y, size, run->dtype, at->apart[1 - turn] + i * N, at_once * N);
    at->waiting = rows;
}

ONS_ALWAYS bool short_rows(const ons_run_of_rows *run, const operation *operation) {
    int64_t N = run->N, size = (int64_t)sizeof(T);
    bool other_type = run->dtype != OWN;
    bool follow = run->y.across == N * size && (uintptr_t)run->y.data % sizeof(T) == 0;
    bool apart = other_type || (follow && (run->past_caches || N % WIDTH != 0));
    if (operation->one_a_row) apart = other_type = false;
    sending at = {run->y.data, {room_apart(run, 0), room_apart(run, 1)}, 0, 0};
    VEC sum = V(set)(0);
    for (int64_t i = 0; i < run->count + (apart ? BATCH : 0); i += BATCH) {
        int64_t left = run->count - i, rows = left < 0 ? 0 : left < BATCH ? left : BATCH;
        int64_t turn = i / BATCH % 2;
        finished to_y = {ROW(run->y, i), run->y.across / size, false};
        finished to_room = {at.apart[turn] + at.ahead, N, true};
        if (rows > 0 && apart)
            sum = batch_of_columns(run, operation, i, rows, to_room, sum);
        else if (rows > 0)
            sum = batch_of_columns(run, operation, i, rows, to_y, sum);
        if (other_type)
            send_converted(&at, run, turn, rows);
        else if (apart)
            send_batch(&at, run, turn, rows, i == 0);
    }
    if (run->past_caches) V(fence)();
    return has_nan(sum);
}

/* A finished strip that is stored past the caches while the next one is computed, in whole cache
 * lines of y. Elements of a row that do not fill a line wait in front of the row of the next strip,
 * if that begins where this one ends. The neighbour writes the rest of the line, and the line must
 * not go to memory before that. */
typedef struct {
    T *y[2 * LANES]; /* the next cache line of each row */
    const T *from[2 * LANES];
    int64_t cache_lines[2 * LANES], least; /* cache lines left in each row; the least of them */
    int64_t tail[2 * LANES];               /* elements of each row after these */
    int64_t waiting[2 * LANES];            /* elements waiting in front of each row of the strip
                                            * behind */
} outgoing;

/* Stores n elements of y that are not whole cache lines. */
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

/* Stores the remaining cache lines. `behind`: row 0 of the strip that begins where this one ends,
 * or NULL. */
ONS_ALWAYS void end_cache_lines(outgoing *out, T *behind, int64_t pitch, int64_t N) {
    for (int64_t j = 0; j < N; j++) {
        int64_t tail = out->tail[j];
        while (out->cache_lines[j] > 0) send_cache_line(out, j);
        out->waiting[j] = behind ? tail : 0;
        if (!behind && tail > 0) send_part(out->y[j], out->from[j], tail);
        /* the cache line that ends with the tail */
        for (int64_t v = CACHE_LINE; behind && v > 0; v -= WIDTH)
            V(store)(behind + j * pitch - v, V(load)(out->from[j] + tail - v));
    }
}

/* Computes a vector of the strip's columns from c on, and stores them to `kept` or to y. Returns
 * their NaN (nans_of_rows). */
ONS_ALWAYS VEC short_columns(const ons_run_of_columns *run, ons_columns at, int64_t c, int64_t N,
                             kind kind, T *kept) {
    double scale = kind.plain ? 1.0 : run->scale;
    bool each = !kind.plain && at.scale;
    batch batch;
    VEC x[2 * LANES];
    scales scales;
    if (each) take_scales(&scales, run, at, c);
    for (int64_t j = 0; j < N; j++) {
        bool masked = !kind.plain && at.where;
        ons_change by = {scale, {masked ? at.where + j * run->where_along : NULL, 1}};
        x[j] = take_at(at.x + j * run->x_along, c, at.width, kind.x, by, each ? &scales : NULL);
    }
    finish_columns(kind.operation, x, N, &batch);
    for (int64_t j = 0; j < N; j++)
        if (kept)
            V(store)(kept + j * run->pitch + c, x[j]);
        else
            put_at(at.y + j * run->y_along, c, at.width, x[j], kind);
    return nans_of_rows(batch.first, batch.second, at.width - c < WIDTH ? at.width - c : WIDTH);
}

/* N is a constant, or the run's N. */
ONS_ALWAYS bool short_columns_of(const ons_run_of_columns *run, const operation *operation,
                                 int64_t N, bool plain) {
    kind kind = kind_of(operation, plain ? OWN : run->x_dtype, plain ? OWN : run->y_dtype);
    kind.plain = plain;
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
            for (int64_t j = 0; j < N && run->past_caches; j++)
                fetch_line(fetch + j * run->x_along + c * size_as(kind.x));
            sum += short_columns(run, at, c, N, kind, kept);
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
