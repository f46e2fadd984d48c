/* topk.h - finds the k largest elements of a row from its tiles, in order: it decides which
 * elements become candidates (candidates.h).
 *
 * `least` rises when there are too many candidates. It also rises before a part of the row that
 * would bring too many candidates. Then it rises to a bound: the k-th largest of the maxima of
 * subsets of this part, since k elements are not below it. Neighbours are in different subsets, so
 * rising or falling elements give a good bound too. */
#ifndef ONS_CPU_KERNEL_TOPK_H
#define ONS_CPU_KERNEL_TOPK_H

#include "candidates.h"
#include "column.h"
#include "row.h"

/* If k is small, the maxima of WIDTH rows are sorted together, with a vector for each subset. */
enum { SORTED = 16, MAX_SORTED = 2 * SORTED };

/* If k is larger, each lane takes some subsets of one row. It takes enough that lanes differ
 * little. */
enum { MAX_BY_LANES = SORTED / 2 * WIDTH };

/* If k is still larger, halving finds the bound. */
enum { MIN_SUBSETS = 64, MAX_SUBSETS = 1024 };

/* The maxima of `vectors` vectors of subsets, a constant, over n elements. A subset has every
 * `subsets`-th element. The maximum of no element is -inf. */
ONS_ALWAYS void subset_maxima(T *maxima, const T *x, int64_t n, int64_t subsets, int64_t vectors) {
    VEC m[MAX_SORTED];
    int64_t j = 0;
    for (int64_t v = 0; v < vectors; v++) m[v] = V(set)((T)-INFINITY);
    for (; j + vectors * WIDTH <= n; j += subsets)
        for (int64_t v = 0; v < vectors; v++) m[v] = V(max)(V(load)(x + j + v * WIDTH), m[v]);
    for (int64_t v = 0; v < vectors; v++) {
        int64_t at = j + v * WIDTH, left = n - at;
        if (left > 0)
            m[v] = V(max)(left >= WIDTH ? V(load)(x + at) : V(load_part)(x + at, left), m[v]);
        V(store)(maxima + v * WIDTH, m[v]);
    }
}

/* Raises row->least to the number just below `least`. `least` is not among the candidates yet, and
 * a later element must be above row->least to be among the k. Below -inf there is no number. */
ONS_ALWAYS void raise_below(ons_candidates *row, T least) {
    if (least == (T)-INFINITY) return;
    double below = (double)of_key(key(least) - 1);
    if (below > row->least) row->least = below;
}

/* Batcher's odd-even merge sort of 16 (Knuth, TAOCP 3, 5.3.4). */
/* clang-format off */
#define EACH_PAIR(P)                                                                              \
    /* runs of 2 */                                                                               \
    P(0, 1) P(2, 3) P(4, 5) P(6, 7) P(8, 9) P(10, 11) P(12, 13) P(14, 15)                         \
    /* of 4 */                                                                                    \
    P(0, 2) P(1, 3) P(4, 6) P(5, 7) P(8, 10) P(9, 11) P(12, 14) P(13, 15)                         \
    P(1, 2) P(5, 6) P(9, 10) P(13, 14)                                                            \
    /* of 8 */                                                                                    \
    P(0, 4) P(1, 5) P(2, 6) P(3, 7) P(8, 12) P(9, 13) P(10, 14) P(11, 15)                         \
    P(2, 4) P(3, 5) P(10, 12) P(11, 13)                                                           \
    P(1, 2) P(3, 4) P(5, 6) P(9, 10) P(11, 12) P(13, 14)                                          \
    /* of 16 */                                                                                   \
    P(0, 8) P(1, 9) P(2, 10) P(3, 11) P(4, 12) P(5, 13) P(6, 14) P(7, 15)                         \
    P(4, 8) P(5, 9) P(6, 10) P(7, 11)                                                             \
    P(2, 4) P(3, 5) P(6, 8) P(7, 9) P(10, 12) P(11, 13)                                           \
    P(1, 2) P(3, 4) P(5, 6) P(7, 8) P(9, 10) P(11, 12) P(13, 14)
/* clang-format on */

/* Puts 16 vectors in descending order, lane by lane. */
static void sort(VEC *a) {
    VEC other;
#define PAIR(i, j)              \
    other = V(min)(a[i], a[j]); \
    a[i] = V(max)(a[i], a[j]);  \
    a[j] = other;
    EACH_PAIR(PAIR)
#undef PAIR
}
#undef EACH_PAIR

/* The k-th largest of each lane, from two times 16 in descending order. The first i of one and the
 * first k - i of the other are not below the smaller of their last ones. */
ONS_ALWAYS VEC kth_of_two(const VEC *a, int64_t k) {
    const VEC *b = a + SORTED;
    VEC kth = V(max)(a[k - 1], b[k - 1]);
    for (int64_t i = 1; i < k; i++) kth = V(max)(V(min)(a[i - 1], b[k - i - 1]), kth);
    return kth;
}

/* Neighbouring rows, at most WIDTH, from which n elements each are taken next, and the number of
 * maxima of blocks of each (max_of_blocks). */
typedef struct {
    ons_candidates *rows;
    const ons_state *states;
    ons_tile x;
    int64_t count, n, of_blocks;
} rows_to_take;

/* Raises `least` of the rows. Rows with a NaN are left out, since the maxima ignore it. `subsets`
 * is a constant. */
ONS_ALWAYS void raise_by_sorting(rows_to_take of, int64_t subsets) {
    T maxima[WIDTH][MAX_SORTED], kth[WIDTH];
    VEC sorted[MAX_SORTED];
    bool blocks = of.of_blocks >= subsets;
    int64_t k = of.rows->k, some = blocks ? of.of_blocks : of.n;
    for (int64_t i = 0; i < WIDTH; i++) {
        bool there = i < of.count && !isnan(of.states[i].m);
        const T *from = there && blocks ? of.rows[i].maxima : ROW(of.x, i);
        subset_maxima(maxima[i], from, there ? some : 0, subsets, subsets / WIDTH);
    }
    for (int64_t g = 0; g < subsets; g += 4)
        V(load_columns)(sorted + g, (const char *)&maxima[0][g], sizeof *maxima);
    for (int64_t g = 0; g < subsets; g += SORTED) sort(sorted + g);
    V(store)(kth, subsets == SORTED ? sorted[k - 1] : kth_of_two(sorted, k));
    for (int64_t i = 0; i < of.count; i++) raise_below(&of.rows[i], kth[i]);
}

/* If k is larger, a row is raised alone: `least` becomes a number between low and high that a few
 * more than k maxima are above (divide). */
static void raise_between(ons_candidates *row, const T *maxima, int64_t n, T low, bound high) {
    int64_t k = row->k;
    bound found = divide(maxima, n, k, k + k / 8, low, high);
    if (found.count < k)
        raise_below(row, found.least);
    else if ((double)found.least > row->least)
        row->least = (double)found.least;
}

static void raise_by_halving(ons_candidates *row, const T *x, int64_t n) {
    T maxima[MAX_SUBSETS];
    int64_t k = row->k, subsets = MIN_SUBSETS;
    while (subsets < 4 * k && subsets < MAX_SUBSETS) subsets *= 2;
    if (subsets < k || n < 2 * k) return;
    if (n >= 2 * subsets) {
        for (int64_t l = 0; l < subsets; l += 2 * WIDTH)
            subset_maxima(maxima + l, x + l, n - l, subsets, 2);
        x = maxima;
        n = subsets;
    }
    T low = (T)row->least;
    bound high = {largest(x, n), 0};
    high.count = count_above(x, n, high.least);
    if (high.count < k && count_above(x, n, low) >= k) raise_between(row, x, n, low, high);
}

/* Sorts subsets in each lane, which leaves little to halve. Each lane has an equal share of k. The
 * k-th largest lies between the lowest and the highest of the lanes' numbers at that share. */
static void raise_by_lanes(ons_candidates *row, const T *x, int64_t n) {
    enum { SUBSETS = MAX_SORTED * WIDTH };
    VEC sorted[MAX_SORTED];
    T maxima[SUBSETS];
    int64_t of_lane = (row->k + WIDTH - 1) / WIDTH;
    for (int64_t l = 0; l < SUBSETS; l += 2 * WIDTH)
        subset_maxima(maxima + l, x + l, n - l, SUBSETS, 2);
    for (int64_t g = 0; g < MAX_SORTED; g++) sorted[g] = V(load)(maxima + g * WIDTH);
    for (int64_t g = 0; g < MAX_SORTED; g += SORTED) sort(sorted + g);
    VEC kth = kth_of_two(sorted, of_lane), zero = V(set)(0);
    T least = -V(max_lanes)(zero - kth);
    if (least == (T)-INFINITY)
        raise_by_halving(row, x, n);
    else
        raise_between(row, maxima, SUBSETS, of_key(key(least) - 1), (bound){V(max_lanes)(kth), 0});
}

/* Raises a row that is not sorted together with others. `of_blocks`: the number of maxima of
 * blocks. */
static ONS_APART void raise_alone(ons_candidates *row, const T *x, int64_t n, int64_t of_blocks,
                                  bool nan) {
    if (!nan && (of_blocks >= 8 * row->k || of_blocks >= 2 * MAX_SUBSETS)) {
        x = row->maxima;
        n = of_blocks;
    }
    if (!nan && row->k <= MAX_BY_LANES && n >= MAX_SORTED * WIDTH)
        raise_by_lanes(row, x, n);
    else
        raise_by_halving(row, x, n);
}

static ONS_APART void raise_side_by_side(rows_to_take of) {
    if (of.rows->k <= SORTED / 2 && of.n > SORTED)
        raise_by_sorting(of, SORTED);
    else if (of.n > MAX_SORTED)
        raise_by_sorting(of, MAX_SORTED);
}

/* Raises `least` of rows before their elements are taken, if many of these are probably above
 * it. */
ONS_ALWAYS void raise(rows_to_take of) {
    bool sorted = false;
    for (int64_t i = 0; i < of.count; i++) {
        ons_candidates *row = &of.rows[i];
        double m = of.states[i].m;
        if (!row->many || row->closed) continue;
        if (row->k == 1 && !isnan(m))
            raise_below(row, (T)m);
        else if (row->k <= SORTED && !isnan(m))
            sorted = true;
        else
            raise_alone(row, ROW(of.x, i), of.n, of.of_blocks, isnan(m));
    }
    if (sorted) raise_side_by_side(of);
}

/* As max_row. It also keeps, for each block of AT_ONCE elements, the largest element of each lane,
 * for take_row. */
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

/* Appends the elements that have a bit to `count` others. It appends `beside` at a time, a
 * constant, and repeats the last one, since the exact number would be mispredicted. */
ONS_ALWAYS int64_t append(elements to, int64_t count, const T *x, uint64_t bits, int64_t place,
                          int64_t beside) {
    if (!bits) return count;
    uint64_t last = (uint64_t)1 << (63 - __builtin_clzll(bits));
    to = elements_from(to, count);
    count += __builtin_popcountll(bits);
    do {
        for (int64_t i = 0; i < beside; i++, bits &= bits - 1) {
            int64_t at = __builtin_ctzll(bits | last);
            *to.values++ = x[at];
            *to.places++ = place + at;
        }
    } while (bits);
    return count;
}

/* Takes the n elements of a short row. There is room for all of them, and most blocks have some. */
ONS_ALWAYS void take_short(ons_candidates *row, const T *x, int64_t n) {
    elements to = {row->values, row->places};
    int64_t count = 0;
    VEC limit = V(set)((T)row->least);
    for (int64_t j = 0; j < n; j += AT_ONCE) {
        uint64_t bits = bits_above(x + j, n - j, limit);
        count = append(to, count, x + j, bits, j, 4);
    }
    row->count = count;
}

/* Takes n elements that lie side by side, at most ONS_BLOCK; the first is at `place` of the row.
 * `maxima`: the maxima of max_of_blocks, or NULL if a NaN may have hidden one. */
static void take_elements(ons_candidates *row, const T *x, int64_t n, int64_t place,
                          const T *maxima) {
    uint16_t hit[ONS_BLOCK / AT_ONCE];
    int64_t blocks = maxima ? n / AT_ONCE : 0, hits = 0;
    if (row->closed) return;
    elements to = {row->values, row->places};
    int64_t count = row->count, taken = 0;
    VEC limit = V(set)((T)row->least);
    for (int64_t b = 0; b < blocks; b++) { /* no branch, since it would be mispredicted */
        hit[hits] = (uint16_t)b;
        hits += V(above)(V(load)(maxima + b * WIDTH), limit) != 0;
    }
    for (int64_t b = blocks; b * AT_ONCE < n; b++) hit[hits++] = (uint16_t)b;
    for (int64_t h = 0; h < hits; h++) {
        int64_t j = (int64_t)hit[h] * AT_ONCE, before = count;
        uint64_t bits = bits_above(x + j, n - j, limit);
        count = append(to, count, x + j, bits, place + j, 2);
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
            raise((rows_to_take){candidates + i,
                                 rows->state + i,
                                 {ROW(x, i), x.along, x.across},
                                 left < WIDTH ? left : WIDTH,
                                 n,
                                 n / AT_ONCE * WIDTH});
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

/* If a column has an element above its `least`, it is gathered, and taken as a row. */
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
            raise(
                (rows_to_take){&candidates[at], &rows->state[at], {column, sizeof(T), 0}, 1, n, 0});
            take_elements(&candidates[at], column, n, place, NULL);
        }
    }
}

#endif
