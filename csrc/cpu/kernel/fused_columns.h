/* fused_columns.h - neighbouring rows that lie side by side, strip after strip. While the
 * exponentials of a strip are computed, the code finishes the previous strip. It then reads the
 * next strip into the buffer of the previous strip, and finds the maxima of the next strip. So two
 * strips stay in the caches, and the core computes while memory moves. Sums have the order of
 * row.h. */
#ifndef ONS_CPU_KERNEL_FUSED_COLUMNS_H
#define ONS_CPU_KERNEL_FUSED_COLUMNS_H

#include "batch.h"
#include "column.h"
#include "columns.h"

#define VECTORS (ONS_MAX_COLUMNS / WIDTH)

/* A strip, and the numbers of its columns. `first` and `second` also have a cache line in front,
 * for waiting elements, and a vector after the end. */
typedef struct {
    ons_columns at;  /* width 0: there is no such strip */
    int64_t vectors; /* vectors in a row of it */
    T *kept;         /* its elements; later its exponentials, if they are kept */
    T m[ONS_MAX_COLUMNS], shift[ONS_MAX_COLUMNS], floor[ONS_MAX_COLUMNS];
    T first[CACHE_LINE + ONS_MAX_COLUMNS + WIDTH], second[CACHE_LINE + ONS_MAX_COLUMNS + WIDTH];
    wide d[VECTORS], d_low[VECTORS];
} columns;

/* The strips and their sums. They are too large for the stack of a small thread. */
typedef struct {
    columns strips[3];
    double sums[2 * ONS_SUMS][ONS_MAX_COLUMNS]; /* of the middle strip */
} strips;
_Static_assert(sizeof(strips) <= ONS_STRIPS_BYTES, "room for strips");

typedef struct pipeline {
    columns *before, *now, *behind;
    const char *after; /* row 0 of the strip after the one behind */
    int64_t N, x_along, y_along, where_along, pitch;
    const ons_run_of_columns *run;
    double *sums;
    const char *fetch; /* the next four rows to fetch, or NULL */
    bool past_caches;  /* how rows of y are written */
    enum { BY_VECTORS, IN_A_ROW, BY_CACHE_LINES, IN_PARTS } y;
    void (*give_apart)(const struct pipeline *, int64_t j, int64_t n); /* for the last two ways */
    int64_t finished; /* IN_A_ROW: elements of the strip before that are in y */
    /* whether the written strip's rows follow the rows written last, and whether the next strip's
     * rows follow them: elements that do not fill a cache line can then wait */
    bool continues, goes_on;
} pipeline;

/* Stores vector i of a kept row. If `tight`, the next row begins where its columns end. */
ONS_ALWAYS void keep(T *row, int64_t i, int64_t pitch, VEC a, bool tight) {
    if (tight)
        STORE_AT(row, i, pitch, a);
    else
        V(store)(row + i, a);
}

/* Compares `n` rows of the strip behind from j on, and copies them over the strip before. */
ONS_ALWAYS void take_in(const pipeline *with, int64_t j, int64_t n, kind kind) {
    columns *behind = with->behind;
    int64_t width = behind->at.width, x_along = with->x_along, pitch = with->pitch;
    double scale = kind.plain ? 1.0 : with->run->scale;
    bool each = !kind.plain && behind->at.scale;
    const char *where =
        kind.plain || !behind->at.where ? NULL : behind->at.where + j * with->where_along;
    if (width == 0) return;
    const char *x = behind->at.x + j * x_along;
    T *to = behind->kept + j * pitch;
    for (int64_t i = 0; i < width; i += WIDTH) {
        VEC m = V(load)(behind->m + i);
        scales scales;
        if (each) take_scales(&scales, with->run, behind->at, i);
        for (int64_t k = 0; k < n; k++) {
            ons_change by = {scale, {where ? where + k * with->where_along : NULL, 1}};
            VEC a = take_at(x + k * x_along, i, width, kind.x, by, each ? &scales : NULL);
            keep(to + k * pitch, i, pitch, a, kind.tight);
            m = V(max)(a, m);
        }
        V(store)(behind->m + i, m);
    }
}

/* One vector of the strip before. */
ONS_ALWAYS VEC finished_columns(const columns *before, const T *kept, int64_t i, kind kind) {
    const T *first = before->first + CACHE_LINE + i, *second = before->second + CACHE_LINE + i;
    return kind.operation->element(V(load)(kept), V(load)(first), V(load)(second));
}

/* Writes `n` rows of the strip before to y, from j on. All of them are whole vectors. */
ONS_ALWAYS void give_vectors(const pipeline *with, int64_t j, int64_t n, kind kind) {
    const columns *before = with->before;
    int64_t width = before->at.width, y_along = with->y_along, pitch = with->pitch;
    if (width == 0) return;
    kind.past_caches = with->past_caches;
    char *to = before->at.y + j * y_along;
    const T *kept = before->kept + j * pitch;
    for (int64_t i = 0; i < width; i += WIDTH) {
        VEC first = V(load)(before->first + CACHE_LINE + i);
        VEC second = V(load)(before->second + CACHE_LINE + i);
        for (int64_t k = 0; k < n; k++) {
            VEC done = kind.operation->element(V(load)(kept + k * pitch + i), first, second);
            put(to + k * y_along + i * size_as(kind.y), done, kind);
        }
    }
}

/* Writes rows past the caches that may begin and end inside a cache line. Elements that do not fill
 * a line wait in front of the row that begins where this one ends. The neighbour writes the rest of
 * the line, and the line must not go to memory before that. */
ONS_ALWAYS void give_cache_lines(const pipeline *with, int64_t j, int64_t n, kind kind) {
    const columns *before = with->before;
    int64_t width = before->at.width, pitch = with->pitch;
    for (int64_t k = j; k < j + n; k++) {
        char *row = before->at.y + k * with->y_along;
        T *y = (T *)(void *)row, *behind = with->now->kept + k * pitch;
        const T *e = before->kept + k * pitch;
        bool continues = with->continues, goes_on = with->goes_on;
        int64_t i = 0, head = continues ? 0 : before_cache_line(y, width);
        for (; i < head; i += WIDTH) STORE_AT(y, i, head, finished_columns(before, e + i, i, kind));
        i = continues ? -(int64_t)((uintptr_t)y % 64 / sizeof(T)) : head;
        for (; i + CACHE_LINE <= width; i += CACHE_LINE)
            for (int64_t v = i; v < i + CACHE_LINE; v += WIDTH)
                V(stream)(y + v, finished_columns(before, e + v, v, kind));
        for (; !goes_on && i < width; i += WIDTH)
            STORE_AT(y, i, width, finished_columns(before, e + i, i, kind));
        for (int64_t v = CACHE_LINE; goes_on && v > 0; v -= WIDTH)
            V(store)(behind - v, V(load)(e + width - v));
    }
}

/* Writes rows that lie in y without gaps, at least to the end of row j - 1. */
ONS_ALWAYS void give_in_a_row(pipeline *with, int64_t j, kind kind) {
    const columns *before = with->before;
    int64_t width = before->at.width, at = with->finished, i = at % width;
    int64_t last = with->N * width - WIDTH, end = j * width;
    T *y = (T *)(void *)before->at.y;
    const T *e = before->kept;
    for (; at < end && at <= last; at += WIDTH) {
        V(stream)(y + at, finished_columns(before, e + at, i, kind));
        i = i + WIDTH < width ? i + WIDTH : i + WIDTH - width;
    }
    if (j == with->N) V(store_part)
    (y + at, finished_columns(before, e + at, i, kind), last + WIDTH - at);
    with->finished = at;
}

/* Writes rows that do not end with a vector, or have another type. */
ONS_ALWAYS void give_in_parts(const pipeline *with, int64_t j, int64_t n, kind kind) {
    const columns *before = with->before;
    int64_t width = before->at.width;
    for (int64_t k = j; k < j + n; k++) {
        char *row = before->at.y + k * with->y_along;
        const T *e = before->kept + k * with->pitch;
        for (int64_t i = 0; i < width; i += WIDTH)
            put_at(row, i, width, finished_columns(before, e + i, i, kind), kind);
    }
}

/* The kind of columns whose type or elements may need a change. */
ONS_ALWAYS kind kind_of_columns(const ons_run_of_columns *run, const operation *operation) {
    return (kind){.operation = operation, .x = run->x_dtype, .y = run->y_dtype, .kept = OWN};
}

/* give_cache_lines or give_in_parts. A function of its own: inline it would take registers from its
 * caller. */
ONS_ALWAYS void give_apart(const pipeline *with, int64_t j, int64_t n, const operation *operation) {
    kind kind = kind_of_columns(with->run, operation);
    if (with->y == BY_CACHE_LINES)
        give_cache_lines(with, j, n, kind);
    else
        give_in_parts(with, j, n, kind);
}

/* The rows to fetch before row j of the strip behind is read, or NULL. */
ONS_ALWAYS const char *rows_to_fetch(const pipeline *with, int64_t j) {
    int64_t ahead = j + ROWS_AHEAD;
    if (with->behind->at.width == 0) return NULL;
    return ahead < with->N ? with->behind->at.x + ahead * with->x_along
                           : with->after + (ahead - with->N) * with->x_along;
}

/* Computes the exponentials of four elements of one lane, or of `count`, the first of them at e,
 * and stores them there if they are kept. `lane` gets their sums, a vector for each WIDTH columns,
 * or adds them if `add`. It fetches with->fetch meanwhile, one cache line after the other: many at
 * once would delay all other reads. */
ONS_ALWAYS void exponentials_of(const pipeline *with, VEC *lane, T *e, int64_t count, bool add,
                                kind kind) {
    const columns *now = with->now;
    const char *fetch = with->fetch;
    int64_t pitch = with->pitch, apart = LANES * pitch, size = size_as(kind.x);
    bool keeps = kind.operation->keeps_exponentials;
    if (count <= 0) return;
    for (int64_t begin = 0; begin < now->at.width; begin += 64 / size) {
        int64_t end = begin + 64 / size < now->at.width ? begin + 64 / size : now->at.width;
        for (int64_t k = 0; k < 4 && fetch; k++)
            fetch_line(fetch + k * with->x_along + begin * size);
        for (int64_t i = begin; i < end; i += WIDTH) {
            VEC four[4];
            reference reference = reference_of_rows(now->shift + i, now->floor + i);
            for (int64_t k = 0; k < 4; k++)
                four[k] = k < count ? V(load)(e + k * apart + i) : V(set)(0);
            if (count >= 4)
                exponential_each(four, 4, reference);
            else
                for (int64_t k = 0; k < count; k++) four[k] = exponential(four[k], reference);
            for (int64_t k = 0; k < 4 && k < count && keeps; k++)
                keep(e + k * apart, i, pitch, four[k], kind.tight);
            VEC sum = sum_of_four(four);
            lane[i / WIDTH] = add ? (VEC)(lane[i / WIDTH] + sum) : sum;
        }
    }
}

/* Processes rows j to j + n of both neighbours. */
ONS_ALWAYS void pass_rows(pipeline *with, int64_t j, int64_t n, kind kind) {
    if (with->y == BY_VECTORS)
        give_vectors(with, j, n, kind);
    else if (with->y == IN_A_ROW)
        give_in_a_row(with, j + n, kind);
    else
        with->give_apart(with, j, n);
    take_in(with, j, n, kind);
}

/* Adds the sums of lanes l to the running sums, or sets these if `first`. `two`: there are sums of
 * both chunks. */
ONS_ALWAYS void sum_lanes(const pipeline *with, int64_t l, VEC (*lanes)[VECTORS], bool two,
                          bool first, bool once) {
    int64_t vectors = with->now->vectors, pitch = vectors * WIDTH;
    double *sums = with->sums;
    for (int64_t v = 0; v < vectors; v++, sums += WIDTH) {
        VEC other = two ? lanes[1][v] : V(set)(0);
        if (!first) {
            add_to_columns(sums, l, pitch, lanes[0][v], other);
            continue;
        }
        wide_store(sums + l * pitch, wide_add(widen(lanes[0][v]), widen(other)));
        if (BITS == 64 && !once) wide_store(sums + (ONS_SUMS + l) * pitch, wide_zero());
    }
}

/* Adds the running sums of each column to d. */
static void end_columns(columns *now, const double *sums, int64_t pitch, bool short_rows,
                        bool once) {
    for (int64_t v = 0; v < now->vectors; v++) {
        wide term, low;
        totals_of_columns(&term, &low, sums + v * WIDTH, pitch, short_rows, once);
        add_term(&now->d[v], &now->d_low[v], term);
        if (BITS == 64) now->d_low[v] = wide_add(now->d_low[v], low);
    }
}

/* Computes the exponentials and sums of a strip; meanwhile its neighbours are read and written. */
ONS_ALWAYS void pass(pipeline *with, kind kind) {
    columns *now = with->now;
    int64_t N = with->N, pitch = with->pitch, sums_pitch = now->vectors * WIDTH, done = 0, row = 0;
    VEC lanes[2][VECTORS];
    for (int64_t j = 0; j < N; j += STEP) {
        bool first = j % ONS_BLOCK == 0;
        if (first && N - j < ONS_SUMS) /* some running sums get no term */
            memset(with->sums, 0, sizeof(double) * (size_t)(2 * ONS_SUMS * sums_pitch));
        for (int64_t l = 0; l < ONS_SUMS && j + l < N; l++) {
            for (int64_t k = 0; k < 2; k++) {
                int64_t at = j + l + k * OTHER, count = of_lane(N - at);
                for (int64_t q = 0; q < 2; q++, count -= 4) {
                    T *e = now->kept + (at + q * QUAD) * pitch;
                    done += count < 0 ? 0 : count < 4 ? count : 4;
                    bool pass = done - row >= 4;
                    with->fetch = pass ? rows_to_fetch(with, row) : NULL;
                    if (count >= 4)
                        exponentials_of(with, lanes[k], e, 4, q > 0, kind);
                    else
                        exponentials_of(with, lanes[k], e, count, q > 0, kind);
                    if (!pass) continue;
                    pass_rows(with, row, 4, kind);
                    row += 4;
                }
            }
            sum_lanes(with, l, lanes, j + l + OTHER < N, first, N <= STEP);
        }
        if ((j + STEP) % ONS_BLOCK == 0 || j + STEP >= N)
            end_columns(now, with->sums, sums_pitch, N <= 2 * LANES, N <= STEP);
    }
    if (row < N) pass_rows(with, row, N - row, kind);
}

/* Sets shift and floor of a strip, before its exponentials. Subtracts the anchor of columns that
 * have one (ons_strip_anchor). */
static void set_references_of_columns(columns *now, const ons_run_of_columns *run) {
    for (int64_t i = 0; i < now->vectors * WIDTH; i += WIDTH) {
        VEC m = V(load)(now->m + i);
        if (any_far(m)) {
            VEC by = anchors(m);
            for (T *e = now->kept, *end = e + run->N * run->pitch; e < end; e += run->pitch)
                keep(e, i, run->pitch, V(load)(e + i) - by, true);
            m -= by;
            V(store)(now->m + i, m);
            m = nearer(m);
        }
        references_of_lanes(m, now->shift + i, now->floor + i);
        now->d[i / WIDTH] = now->d_low[i / WIDTH] = wide_zero();
    }
}

/* Sets first and second of a strip, before it is finished. It copies those of the strip before in
 * front, for waiting elements, and repeats the first ones after the last. Returns `sum` plus all of
 * them, which is NaN if one of them is. */
ONS_ALWAYS VEC end_strip(const operation *operation, columns *now, const columns *before, VEC sum) {
    T *first = now->first + CACHE_LINE, *second = now->second + CACHE_LINE;
    int64_t width = now->at.width, front = before->at.width;
    for (int64_t i = 0; i < width; i += WIDTH) {
        int64_t v = i / WIDTH, there = width - i < WIDTH ? width - i : WIDTH;
        sums_of_rows rows = {now->d[v], &now->d_low[v], V(load)(now->m + i), V(set)(0),
                             V(load)(now->shift + i)};
        operation->rows(&rows, first + i, second + i);
        sum += nans_of_rows(first + i, second + i, there);
    }
    V(store)(first + width, V(load)(first));
    V(store)(second + width, V(load)(second));
    for (int64_t i = 0; front >= CACHE_LINE && i < CACHE_LINE; i += WIDTH) {
        V(store)(now->first + i, V(load)(before->first + front + i));
        V(store)(now->second + i, V(load)(before->second + front + i));
    }
    return sum;
}

ONS_ALWAYS void begin_columns(columns *columns, const ons_run_of_columns *run, int64_t index) {
    columns->at = index < run->count ? run->at(run->from, run->first + index) : ONS_NO_COLUMNS;
    columns->vectors = (columns->at.width + WIDTH - 1) / WIDTH;
    for (int64_t i = 0; i < columns->vectors * WIDTH; i++) columns->m[i] = (T)-INFINITY;
}

/* Chooses how rows of y are written: as whole vectors; past the caches as vectors across rows
 * without gaps, or as whole cache lines; or with the end of each row on its own. */
ONS_ALWAYS void begin_strip(pipeline *with, kind kind, bool past_caches) {
    const ons_columns *at = &with->before->at;
    uintptr_t bytes = (uintptr_t)at->y;
    bool aligned = bytes % 64 == 0 && with->y_along % 64 == 0;
    past_caches =
        past_caches && kind.y == OWN && (bytes | (uintptr_t)with->y_along) % sizeof(T) == 0;
    with->past_caches = past_caches;
    with->continues = with->goes_on;
    with->goes_on = with->run->waits && is_continued_by(at, &with->now->at);
    with->y = past_caches ? BY_CACHE_LINES : IN_PARTS;
    if (at->width == 0 || (at->width % CACHE_LINE == 0 && (aligned || !past_caches))) {
        with->y = BY_VECTORS;
    } else if (past_caches && at->width >= WIDTH && with->pitch == at->width &&
               with->y_along == at->width * (int64_t)sizeof(T)) {
        with->y = IN_A_ROW;
        with->finished = unaligned((const T *)(const void *)at->y, at->width);
        for (int64_t i = 0; i < with->finished; i += WIDTH)
            STORE_AT((T *)(void *)at->y, i, with->finished,
                     finished_columns(with->before, with->before->kept + i, i, kind));
    }
}

ONS_ALWAYS bool columns_of_kind(const ons_run_of_columns *run, const operation *operation,
                                void (*give_apart)(const pipeline *, int64_t, int64_t)) {
    kind any = kind_of_columns(run, operation), plain = kind_of(operation, OWN, OWN), tight;
    plain.plain = true;
    tight = plain;
    tight.tight = true;
    strips *room_of_strips = run->strips;
    columns *strips = room_of_strips->strips;
    pipeline with = {.before = strips,
                     .now = strips + 1,
                     .behind = strips + 2,
                     .sums = *room_of_strips->sums,
                     .N = run->N,
                     .x_along = run->x_along,
                     .y_along = run->y_along,
                     .where_along = run->where_along,
                     .pitch = run->pitch,
                     .run = run,
                     .give_apart = give_apart};
    T *room[2] = {kept_strip(run, 0), kept_strip(run, 1)};
    VEC sum = V(set)(0);
    begin_columns(with.before, run, run->count);
    begin_columns(with.now, run, run->count);
    with.now->kept = room[1];
    /* strip i is read, strip i - 1 computed, strip i - 2 written */
    for (int64_t i = 0; i < run->count + 2; i++) {
        begin_columns(with.behind, run, i);
        with.behind->kept = with.before->kept = room[i % 2];
        ons_columns after =
            i + 1 < run->count ? run->at(run->from, run->first + i + 1) : with.behind->at;
        with.after = after.x;
        begin_strip(&with, any, run->past_caches);
        if (!is_plain(run, with.behind->at))
            pass(&with, any);
        else if (run->pitch % WIDTH != 0)
            pass(&with, tight);
        else
            pass(&with, plain);
        sum = end_strip(operation, with.now, with.before, sum);
        set_references_of_columns(with.behind, run);
        columns *free = with.before;
        with.before = with.now;
        with.now = with.behind;
        with.behind = free;
    }
    if (run->past_caches) V(fence)();
    return has_nan(sum);
}

#endif
