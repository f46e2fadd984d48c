/* topk_tmpl.h - the k largest elements of a row, from its tiles in order. Part of
 * primitives_tmpl.h, whose parameters and names it uses.
 *
 * A row's candidates are the elements that were above `least` when they came. `least` is below the
 * k-th largest so far, or is it, so what comes later and is not above it is not among the k: of
 * equal elements the first are. It rises when there are too many candidates, and before a tile from
 * which too many are to be expected. NaN is above everything. */

/* Elements that are compared before the first is looked at: a bit each. */
enum { FN(at_once) = 64 };

/* A bit for each of the first of n elements that is above the limit. */
INLINE uint64_t FN(above)(const T *x, int64_t n, VEC limit) {
    uint64_t bits = 0;
    if (n >= FN(at_once)) {
        for (int64_t l = 0; l < FN(at_once); l += WIDTH)
            bits |= (uint64_t)V(above)(V(load)(x + l), limit) << l;
        return bits;
    }
    for (int64_t l = 0; l < n; l += WIDTH) {
        VEC a = n - l >= WIDTH ? V(load)(x + l) : V(load_part)(x + l, n - l);
        bits |= (uint64_t)V(above)(a, limit) << l;
    }
    return bits; /* past the end there is -inf, which is above nothing */
}

INLINE int64_t FN(count_above)(const T *x, int64_t n, T least) {
    VEC limit = V(set)(least);
    int64_t count = 0;
    for (int64_t j = 0; j < n; j += FN(at_once))
        count += __builtin_popcountll(FN(above)(x + j, n - j, limit));
    return count;
}

/* The largest of n elements; +inf, where NaN may have been in the way. */
INLINE T FN(largest)(const T *x, int64_t n) {
    VEC m = V(set)((T)-INFINITY);
    for (int64_t j = 0; j < n; j += WIDTH)
        m = V(max)(n - j >= WIDTH ? V(load)(x + j) : V(load_part)(x + j, n - j), m);
    T largest = V(max_lanes)(m);
    return isnan(largest) ? (T)INFINITY : largest;
}

/* The numbers in their order as integers, the two zeros as one; and back. */
#if BITS == 32
#define LOWEST_KEY INT32_MIN
INLINE int64_t FN(key)(T a) {
    int32_t bits;
    memcpy(&bits, &a, sizeof bits);
    return bits >= 0 ? bits : (int64_t)LOWEST_KEY - bits;
}
INLINE T FN(of_key)(int64_t key) {
    int32_t bits = (int32_t)(key >= 0 ? key : LOWEST_KEY - key);
#else
#define LOWEST_KEY INT64_MIN
INLINE int64_t FN(key)(T a) {
    int64_t bits;
    memcpy(&bits, &a, sizeof bits);
    return bits >= 0 ? bits : LOWEST_KEY - bits;
}
INLINE T FN(of_key)(int64_t key) {
    int64_t bits = key >= 0 ? key : LOWEST_KEY - key;
#endif
    T a;
    memcpy(&a, &bits, sizeof a);
    return a;
}
#undef LOWEST_KEY

/* A number between low, which at least k of n elements are above, and high, which fewer are above:
 * of k to `most` of them, if there is one; else the k-th largest itself. Halves the interval, but
 * begins near its end: most numbers are far below. */
static T FN(divide)(const T *x, int64_t n, int64_t k, int64_t most, T low, T high) {
    int64_t below = FN(key)(low), above = FN(key)(high);
    uint64_t step = (uint64_t)1 << (BITS == 32 ? 20 : 49);
    for (;;) {
        uint64_t apart = (uint64_t)above - (uint64_t)below;
        if (apart < 2) return FN(of_key)(above);
        bool near = step < apart / 2;
        int64_t middle = near ? above - (int64_t)step : below + (int64_t)(apart / 2);
        if (near) step *= 2;
        T least = FN(of_key)(middle);
        int64_t count = FN(count_above)(x, n, least);
        if (count >= k && count <= most) return least;
        *(count < k ? &above : &below) = middle;
    }
}

/* Leaves the k largest of a row's candidates, in their order, where there are more. */
static void FN(cut)(ons_candidates *row) {
    int64_t k = row->k, n = row->count, kept = 0;
    T *values = row->values, low = (T)row->least, least = INFINITY;
    if (n <= k) return;
    T high = FN(largest)(values, n);
    row->closed = FN(count_above)(values, n, high) >= k; /* NaN alone is above it */
    /* `least` may have been raised for a tile of which not enough was taken yet */
    if (FN(count_above)(values, n, low) < k) low = (T)-INFINITY;
    if (!row->closed) least = FN(divide)(values, n, k, k, low, high);
    /* NaN is above it, and of what is equal to it the first are among the k */
    int64_t equal = k - FN(count_above)(values, n, least);
    for (int64_t i = 0; i < n && kept < k; i++) {
        T value = values[i];
        int is_equal =
            (value == least) & (equal > 0); /* without a branch, which is hard to foresee */
        values[kept] = value;
        row->places[kept] = row->places[i];
        equal -= is_equal;
        kept += (!(value <= least)) | is_equal;
    }
    row->count = kept;
    if ((double)least > row->least) row->least = (double)least;
}

/* The most groups of a tile whose largest elements are looked at before it is taken. */
enum { FN(most_groups) = 1024, FN(least_groups) = 16 };

/* Raises `least` before a tile is taken: the k-th largest of the maxima of groups of its elements
 * is one of its elements, and k of them are not below it. Neighbours are in different groups, so
 * that of rising or falling elements the largest are too. */
static void FN(raise)(ons_candidates *row, const T *x, int64_t n) {
    T maxima[FN(most_groups)];
    int64_t groups = FN(least_groups), k = row->k;
    while (groups < 2 * k && groups < FN(most_groups)) groups *= 2;
    if (groups < k || n < 2 * groups) return;
    int64_t l = 0;
    do {
        VEC m = V(load)(x + l);
        for (int64_t j = l + groups; j + WIDTH <= n; j += groups) m = V(max)(V(load)(x + j), m);
        V(store)(maxima + l, m);
    } while ((l += WIDTH) < groups);
    T low = (T)row->least, high = FN(largest)(maxima, groups);
    if (FN(count_above)(maxima, groups, low) < k || FN(count_above)(maxima, groups, high) >= k)
        return;
    T least = FN(divide)(maxima, groups, k, k + k / 8, low, high);
    /* the k-th largest itself, which is not among the candidates yet */
    if (FN(count_above)(maxima, groups, least) < k) least = FN(of_key)(FN(key)(least) - 1);
    row->least = (double)least;
}

/* Whether one of the first of n elements, none of them NaN, is above the limit. */
INLINE bool FN(any_above)(const T *x, int64_t n, VEC limit) {
    VEC m = V(set)((T)-INFINITY);
    if (n < FN(at_once)) return true;
    for (int64_t l = 0; l < FN(at_once); l += 4 * WIDTH) {
        VEC four[4];
        for (int64_t q = 0; q < 4; q++) four[q] = V(load)(x + l + q * WIDTH);
        m = V(max)(V(max)(four[0], four[1]), V(max)(V(max)(four[2], four[3]), m));
    }
    return V(above)(m, limit) != 0;
}

/* Takes n elements that lie side by side, the first of them at `place` of the row. `nans`: there
 * may be NaN among them. */
static void FN(take_elements)(ons_candidates *row, const T *x, int64_t n, int64_t place,
                              bool nans) {
    if (row->closed) return;
    if (row->many) FN(raise)(row, x, n);
    T *values = row->values;
    int64_t *places = row->places, count = row->count, taken = 0;
    VEC limit = V(set)((T)row->least);
    for (int64_t j = 0; j < n; j += FN(at_once)) {
        if (!nans && !FN(any_above)(x + j, n - j, limit)) continue;
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
            limit = V(set)((T)row->least);
            bits &= FN(above)(x + j, n - j, limit);
        }
    }
    row->count = count;
    row->many = taken >= row->k || row->least == -INFINITY;
}

static void FN(take_row)(const ons_rows *rows, ons_candidates *candidates, ons_tile x, int64_t n,
                         int64_t place) {
    for (int64_t i = 0; i < rows->width; i++)
        FN(take_elements)(&candidates[i], ROW(x, i), n, place, isnan(rows->state[i].m));
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
            FN(take_elements)(&candidates[at], column, n, place, isnan(rows->state[at].m));
        }
    }
}

static void FN(take_candidates)(ons_candidates *row, const ons_candidates *part) {
    const T *values = part->values;
    for (int64_t i = 0; i < part->count && !row->closed; i++) {
        if ((double)values[i] <= row->least) continue;
        ((T *)row->values)[row->count] = values[i];
        row->places[row->count] = part->places[i];
        if (++row->count == row->room) FN(cut)(row);
    }
}

/* Takes elements that are -inf, while there are fewer than k candidates. */
static void FN(fill)(ons_candidates *row, const void *x, int64_t along, int64_t n, int64_t place) {
    for (int64_t j = 0; j < n && row->count < row->k; j++) {
        T value = *(const T *)(const void *)((const char *)x + j * along);
        if (value != -INFINITY) continue;
        ((T *)row->values)[row->count] = value;
        row->places[row->count++] = place + j;
    }
}

/* How many candidates are put in order by counting those before each. */
enum { FN(most_counted) = 64 };

/* In descending order, of equal ones the first first; at most most_counted. */
INLINE void FN(order_by_counting)(T *to, int64_t *to_places, const T *values, const int64_t *places,
                                  int64_t n) {
    uint8_t equal[FN(most_counted)] = {0}; /* of those that are at a place */
    for (int64_t i = 0; i < n; i++) {
        int64_t before = isnan(values[i]) ? 0 : FN(count_above)(values, n, values[i]);
        int64_t at = before + equal[before]++;
        to[at] = values[i];
        to_places[at] = places[i];
    }
}

/* Puts the candidates in order: merges neighbouring runs, from buffer to buffer. */
static void FN(order)(ons_candidates *row) {
    int64_t n = row->count;
    for (int64_t i = 0; i < n; i += FN(most_counted)) {
        int64_t run = n - i < FN(most_counted) ? n - i : FN(most_counted);
        FN(order_by_counting)
        ((T *)row->other_values + i, row->other_places + i, (T *)row->values + i, row->places + i,
         run);
    }
    for (int64_t run = FN(most_counted);; run *= 2) {
        T *to = row->values, *from = row->other_values;
        int64_t *to_places = row->places, *from_places = row->other_places;
        row->values = from;
        row->places = from_places;
        row->other_values = to;
        row->other_places = to_places;
        if (run >= n) return;
        for (int64_t begin = 0; begin < n; begin += 2 * run) {
            int64_t a = begin, middle = n - begin < run ? n : begin + run, b = middle;
            int64_t end = n - middle < run ? n : middle + run;
            for (int64_t i = begin; i < end; i++) {
                bool second =
                    a == middle ||
                    (b < end && (from[b] > from[a] || (isnan(from[b]) && !isnan(from[a]))));
                int64_t at = second ? b++ : a++;
                to[i] = from[at];
                to_places[i] = from_places[at];
            }
        }
    }
}
