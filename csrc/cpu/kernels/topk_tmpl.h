/* topk_tmpl.h - the k largest elements of a row, from its tiles in order: what becomes a candidate
 * (candidates_tmpl.h). Part of primitives_tmpl.h, whose parameters and names it uses.
 *
 * `least` rises when there are too many candidates, and before a part of the row is taken of which
 * too many are to be expected. */

/* The most groups of a tile whose largest elements are looked at before it is taken. */
enum { FN(most_groups) = 1024, FN(least_groups) = 16 };

INLINE int64_t FN(groups_of)(int64_t k) {
    int64_t groups = FN(least_groups);
    while (groups < 2 * k && groups < FN(most_groups)) groups *= 2;
    return groups;
}

/* Raises `least` before a tile is taken: the k-th largest of the maxima of groups of its elements
 * is one of its elements, and k of them are not below it. Neighbours are in different groups, so
 * that of rising or falling elements the largest are too. x: the elements, or maxima of some. */
static void FN(raise)(ons_candidates *row, const T *x, int64_t n) {
    T maxima[FN(most_groups)];
    int64_t k = row->k, groups = FN(groups_of)(k);
    if (groups < k || n < 2 * groups) return;
    int64_t l = 0;
    do {
        VEC m = V(load)(x + l), other = m;
        int64_t j = l + groups;
        for (; j + groups + WIDTH <= n; j += 2 * groups) {
            m = V(max)(V(load)(x + j), m);
            other = V(max)(V(load)(x + j + groups), other);
        }
        if (j + WIDTH <= n) m = V(max)(V(load)(x + j), m);
        V(store)(maxima + l, V(max)(m, other));
    } while ((l += WIDTH) < groups);
    T low = (T)row->least, high = FN(largest)(maxima, groups);
    if (FN(count_above)(maxima, groups, low) < k || FN(count_above)(maxima, groups, high) >= k)
        return;
    T least = FN(divide)(maxima, groups, k, k + k / 8, low, high);
    /* the k-th largest itself, which is not among the candidates yet */
    if (FN(count_above)(maxima, groups, least) < k) least = FN(of_key)(FN(key)(least) - 1);
    row->least = (double)least;
}

/* As max_row; and for each lane of a block of at_once elements their largest one, for take_row. */
static void FN(max_of_blocks_row)(const ons_rows *rows, ons_candidates *candidates, ons_tile tile,
                                  int64_t n, int64_t at) {
    for (int64_t i = 0; i < rows->width; i++) {
        const T *x = ROW(tile, i);
        T *maxima = (T *)candidates[i].maxima + at / FN(at_once) * WIDTH;
        VEC m = V(set)((T)-INFINITY), nans = V(set)(0);
        int64_t j = 0;
        for (; j + FN(at_once) <= n; j += FN(at_once), maxima += WIDTH) {
            VEC block = V(set)((T)-INFINITY);
            for (int64_t l = j; l < j + FN(at_once); l += 4 * WIDTH) {
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

/* Takes n elements that lie side by side, at most ONS_BLOCK, the first of them at `place` of the
 * row. `maxima`: those of max_of_blocks, or NULL where NaN may have been in the way. */
static void FN(take_elements)(ons_candidates *row, const T *x, int64_t n, int64_t place,
                              const T *maxima) {
    uint16_t hit[ONS_BLOCK / FN(at_once)];
    int64_t blocks = maxima ? n / FN(at_once) : 0, hits = 0;
    if (row->closed) return;
    if (row->many && blocks * WIDTH >= 2 * FN(groups_of)(row->k))
        FN(raise)(row, maxima, blocks * WIDTH);
    else if (row->many)
        FN(raise)(row, x, n);
    T *values = row->values;
    int64_t *places = row->places, count = row->count, taken = 0;
    VEC limit = V(set)((T)row->least);
    for (int64_t b = 0; b < blocks; b++) { /* without a branch, which is hard to foresee */
        hit[hits] = (uint16_t)b;
        hits += V(above)(V(load)(maxima + b * WIDTH), limit) != 0;
    }
    for (int64_t b = blocks; b * FN(at_once) < n; b++) hit[hits++] = (uint16_t)b;
    for (int64_t h = 0; h < hits; h++) {
        int64_t j = (int64_t)hit[h] * FN(at_once);
        uint64_t bits = FN(above)(x + j, n - j, limit);
        while (bits) {
            int64_t at = j + __builtin_ctzll(bits);
            bits &= bits - 1;
            values[count] = x[at];
            places[count++] = place + at;
            taken++;
            if (count < row->room) continue;
            row->count = count;
            FN(cut)(row);
            count = row->count;
            if (row->closed) return;
            limit = V(set)((T)row->least); /* not for the rest of this block: cut sees to it */
        }
    }
    row->count = count;
    row->many = taken >= row->k || row->least == -INFINITY;
}

static void FN(take_row)(const ons_rows *rows, ons_candidates *candidates, ons_tile x, int64_t n,
                         int64_t place) {
    for (int64_t i = 0; i < rows->width; i++) FN(take_elements)
    (&candidates[i], ROW(x, i), n, place, isnan(rows->state[i].m) ? NULL : candidates[i].maxima);
}

static void FN(max_of_blocks_column)(const ons_rows *rows, ons_candidates *candidates,
                                     ons_tile tile, int64_t n, int64_t at) {
    (void)candidates, (void)at;
    FN(max_column)(rows, ONS_NO_TILE, tile, n);
}

/* A column of which something is above its `least` is gathered, and taken as a row. */
static void FN(take_column)(const ons_rows *rows, ons_candidates *candidates, ons_tile x, int64_t n,
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
            FN(take_elements)(&candidates[at], column, n, place, NULL);
        }
    }
}
