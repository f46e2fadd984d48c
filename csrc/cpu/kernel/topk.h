/* topk.h - the k largest elements of a row, from its tiles in order: what becomes a candidate
 * (candidates.h).
 *
 * `least` rises when there are too many candidates, and before a part of the row is taken of which
 * too many are to be expected (bound.h). */
#ifndef ONS_CPU_KERNEL_TOPK_H
#define ONS_CPU_KERNEL_TOPK_H

#include "bound.h"
#include "column.h"

/* As max_row; and for each lane of a block of at_once elements their largest one, for take_row. */
static void max_of_blocks_row(const ons_rows *rows, ons_candidates *candidates, ons_tile tile,
                              int64_t n, int64_t at) {
    for (int64_t i = 0; i < rows->width; i++) {
        const T *x = ROW(tile, i);
        T *maxima = (T *)candidates[i].maxima + at / AT_ONCE * WIDTH;
        VEC m = V(set)((T)-INFINITY), nans = V(set)(0);
        int64_t j = 0;
        for (; j + AT_ONCE <= n; j += AT_ONCE, maxima += WIDTH) {
            VEC block = V(set)((T)-INFINITY);
            for (int64_t l = j; l < j + AT_ONCE; l += 4 * WIDTH) {
                VEC a = V(load)(x + l), b = V(load)(x + l + WIDTH);
                VEC c = V(load)(x + l + 2 * WIDTH), d = V(load)(x + l + 3 * WIDTH);
                block = V(max)(V(max)(a, V(max)(b, block)), V(max)(c, d));
                nans = V(nan_or)(V(nan_or)(nans, a, b), c, d);
            }
            V(store)(maxima, block);
            m = V(max)(block, m);
        }
        for (; j < n; j += WIDTH) {
            VEC a = n - j >= WIDTH ? V(load)(x + j) : V(load_part)(x + j, n - j);
            m = V(max)(a, m);
            nans = V(nan_or)(nans, a, a);
        }
        double largest = ons_larger(rows->state[i].m, (double)V(max_lanes)(m));
        rows->state[i].m = V(any_nan)(nans) ? NAN : largest;
    }
}

/* Appends the elements that have a bit to `count` others; `beside` at a time, a constant, the last
 * one again: how often is hard to foresee. */
ONS_ALWAYS int64_t append(T *values, int64_t *places, int64_t count, const T *x, uint64_t bits,
                          int64_t place, int64_t beside) {
    if (!bits) return count;
    uint64_t last = (uint64_t)1 << (63 - __builtin_clzll(bits));
    values += count;
    places += count;
    count += __builtin_popcountll(bits);
    do {
        for (int64_t i = 0; i < beside; i++, bits &= bits - 1) {
            int64_t at = __builtin_ctzll(bits | last);
            *values++ = x[at];
            *places++ = place + at;
        }
    } while (bits);
    return count;
}

/* Takes the n elements of a short row, for all of which there is room: most blocks have some. */
ONS_ALWAYS void take_short(ons_candidates *row, const T *x, int64_t n) {
    T *values = row->values;
    int64_t *places = row->places, count = 0;
    VEC limit = V(set)((T)row->least);
    for (int64_t j = 0; j < n; j += AT_ONCE) {
        uint64_t bits = bits_above(x + j, n - j, limit);
        count = append(values, places, count, x + j, bits, j, 4);
    }
    row->count = count;
}

/* Takes n elements that lie side by side, at most ONS_BLOCK, the first of them at `place` of the
 * row. `maxima`: those of max_of_blocks, or NULL where NaN may have been in the way. */
static void take_elements(ons_candidates *row, const T *x, int64_t n, int64_t place,
                          const T *maxima) {
    uint16_t hit[ONS_BLOCK / AT_ONCE];
    int64_t blocks = maxima ? n / AT_ONCE : 0, hits = 0;
    if (row->closed) return;
    T *values = row->values;
    int64_t *places = row->places, count = row->count, taken = 0;
    VEC limit = V(set)((T)row->least);
    for (int64_t b = 0; b < blocks; b++) { /* without a branch, which is hard to foresee */
        hit[hits] = (uint16_t)b;
        hits += V(above)(V(load)(maxima + b * WIDTH), limit) != 0;
    }
    for (int64_t b = blocks; b * AT_ONCE < n; b++) hit[hits++] = (uint16_t)b;
    for (int64_t h = 0; h < hits; h++) {
        int64_t j = (int64_t)hit[h] * AT_ONCE, before = count;
        uint64_t bits = bits_above(x + j, n - j, limit);
        count = append(values, places, count, x + j, bits, place + j, 2);
        taken += count - before;
        if (count <= row->room - AT_ONCE) continue;
        row->count = count;
        cut(row);
        count = row->count;
        if (row->closed) return;
        limit = V(set)((T)row->least);
    }
    row->count = count;
    row->many = taken >= row->k || row->least == -INFINITY;
}

static void take_row(const ons_rows *rows, ons_candidates *candidates, ons_tile x, int64_t n,
                     int64_t place) {
    for (int64_t i = 0; i < rows->width; i++) {
        if (i % WIDTH == 0) {
            int64_t left = rows->width - i;
            ons_tile from = {ROW(x, i), x.along, x.across};
            raise(candidates + i, rows->state + i, from, left < WIDTH ? left : WIDTH, n, true);
        }
        if (candidates[i].room >= n + AT_ONCE && place == 0) {
            take_short(&candidates[i], ROW(x, i), n);
            continue;
        }
        bool nan = isnan(rows->state[i].m);
        take_elements(&candidates[i], ROW(x, i), n, place, nan ? NULL : candidates[i].maxima);
    }
}

static void max_of_blocks_column(const ons_rows *rows, ons_candidates *candidates, ons_tile tile,
                                 int64_t n, int64_t at) {
    (void)candidates, (void)at;
    max_column(rows, ONS_NO_TILE, tile, n);
}

/* A column of which something is above its `least` is gathered, and taken as a row. */
static void take_column(const ons_rows *rows, ons_candidates *candidates, ons_tile x, int64_t n,
                        int64_t place) {
    T least[ONS_MAX_WIDTH], column[ONS_COLUMN_TILE];
    int64_t width = rows->width;
    for (int64_t i = 0; i < width; i++) least[i] = (T)candidates[i].least;
    for (int64_t i = 0; i < width; i += WIDTH) {
        VEC limit = LOAD_AT(least, i, width);
        unsigned bits = 0;
        for (int64_t j = 0; j < n; j++) bits |= V(above)(LOAD_AT(AT(x, j), i, width), limit);
        for (; bits; bits &= bits - 1) {
            int64_t at = i + __builtin_ctz(bits);
            for (int64_t j = 0; j < n; j++) column[j] = AT(x, j)[at];
            ons_tile row = {column, sizeof(T), 0};
            raise(&candidates[at], &rows->state[at], row, 1, n, false);
            take_elements(&candidates[at], column, n, place, NULL);
        }
    }
}

#endif
