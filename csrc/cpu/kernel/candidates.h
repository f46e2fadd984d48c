/* candidates.h - the candidates for the k largest elements of a row, and their order. They are the
 * elements that were above `least` when they came. `least` is at most the k-th largest so far. So a
 * later element that is not above `least` is not among the k largest. If elements are equal, the
 * first ones are among the k. NaN is above everything. */
#ifndef ONS_CPU_KERNEL_CANDIDATES_H
#define ONS_CPU_KERNEL_CANDIDATES_H

#include "vectors.h"

/* Number of elements that are compared at once. The result has a bit for each. */
enum { AT_ONCE = 64 };

/* A bit for each of the first AT_ONCE of n elements that is above the limit. */
ONS_ALWAYS uint64_t bits_above(const T *x, int64_t n, VEC limit) {
    uint64_t bits = 0;
    if (n >= AT_ONCE) {
        for (int64_t l = 0; l < AT_ONCE; l += WIDTH)
            bits |= (uint64_t)V(above)(V(load)(x + l), limit) << l;
        return bits;
    }
    for (int64_t l = 0; l < n; l += WIDTH) {
        VEC a = n - l >= WIDTH ? V(load)(x + l) : V(load_part)(x + l, n - l);
        bits |= (uint64_t)V(above)(a, limit) << l;
    }
    return bits; /* the elements past the end are -inf, which is never above */
}

ONS_ALWAYS int64_t count_above(const T *x, int64_t n, T least) {
    VEC limit = V(set)(least);
    int64_t count = 0;
    for (int64_t j = 0; j < n; j += AT_ONCE)
        count += __builtin_popcountll(bits_above(x + j, n - j, limit));
    return count;
}

/* The largest of n elements. +inf if a NaN may have hidden it. */
ONS_ALWAYS T largest(const T *x, int64_t n) {
    VEC m = V(set)((T)-INFINITY);
    for (int64_t j = 0; j < n; j += WIDTH)
        m = V(max)(n - j >= WIDTH ? V(load)(x + j) : V(load_part)(x + j, n - j), m);
    T largest = V(max_lanes)(m);
    return isnan(largest) ? (T)INFINITY : largest;
}

/* key maps numbers to integers in the same order, and both zeros to the same integer. of_key maps
 * them back. */
#if BITS == 32
#define LOWEST_KEY INT32_MIN
ONS_ALWAYS int64_t key(T a) {
    int32_t bits;
    memcpy(&bits, &a, sizeof bits);
    return bits >= 0 ? bits : (int64_t)LOWEST_KEY - bits;
}
ONS_ALWAYS T of_key(int64_t key) {
    int32_t bits = (int32_t)(key >= 0 ? key : LOWEST_KEY - key);
#else
#define LOWEST_KEY INT64_MIN
ONS_ALWAYS int64_t key(T a) {
    int64_t bits;
    memcpy(&bits, &a, sizeof bits);
    return bits >= 0 ? bits : LOWEST_KEY - bits;
}
ONS_ALWAYS T of_key(int64_t key) {
    int64_t bits = key >= 0 ? key : LOWEST_KEY - key;
#endif
    T a;
    memcpy(&a, &bits, sizeof a);
    return a;
}
#undef LOWEST_KEY

/* A number, and the count of elements above it. */
typedef struct {
    T least;
    int64_t count;
} bound;

/* A number that k to `most` of n elements are above, if it exists, or else the k-th largest itself.
 * At least k elements are above low, and fewer than k above high. It halves the interval, but
 * begins near the high end, since most numbers are far below. */
static bound divide(const T *x, int64_t n, int64_t k, int64_t most, T low, bound high) {
    int64_t below = key(low), above = key(high.least);
    uint64_t step = (uint64_t)1 << (BITS == 32 ? 20 : 49);
    for (;;) {
        uint64_t apart = (uint64_t)above - (uint64_t)below;
        if (apart < 2) return (bound){of_key(above), high.count};
        bool near = step < apart / 2;
        int64_t middle = near ? above - (int64_t)step : below + (int64_t)(apart / 2);
        if (near) step *= 2;
        T least = of_key(middle);
        int64_t found = count_above(x, n, least);
        if (found >= k && found <= most) return (bound){least, found};
        if (found < k) high.count = found;
        *(found < k ? &above : &below) = middle;
    }
}

/* Cuts a row's candidates to the k largest, in the order in which they came. */
static void cut(ons_candidates *row) {
    int64_t k = row->k, n = row->count, kept = 0;
    T *values = row->values, low = (T)row->least, least = INFINITY;
    if (n <= k) return;
    bound above = {largest(values, n), 0};
    above.count = count_above(values, n, above.least); /* NaN alone */
    row->closed = above.count >= k;
    /* `least` may have been raised for a tile that is not fully taken yet */
    if (count_above(values, n, low) < k) low = (T)-INFINITY;
    if (!row->closed) {
        above = divide(values, n, k, k, low, above);
        least = above.least;
    }
    /* NaN is above `least` too. Of the elements equal to `least`, the first are taken. */
    int64_t equal = k - above.count;
    for (int64_t i = 0; i < n && kept < k; i++) {
        T value = values[i];
        int is_equal =
            (value == least) & (equal > 0); /* no branch, since it would be mispredicted */
        values[kept] = value;
        row->places[kept] = row->places[i];
        equal -= is_equal;
        kept += (!(value <= least)) | is_equal;
    }
    row->count = kept;
    if ((double)least > row->least) row->least = (double)least;
}

static void take_candidates(ons_candidates *row, const ons_candidates *part) {
    const T *values = part->values;
    for (int64_t i = 0; i < part->count && !row->closed; i++) {
        if ((double)values[i] <= row->least) continue;
        ((T *)row->values)[row->count] = values[i];
        row->places[row->count] = part->places[i];
        if (++row->count > row->room - AT_ONCE) cut(row);
    }
}

/* Takes elements that are -inf, until there are k candidates. With a mask it takes only allowed
 * elements, or only excluded ones. */
static void fill(ons_candidates *row, ons_tile x, ons_mask where, bool allowed, int64_t n,
                 int64_t place) {
    for (int64_t j = 0; j < n && row->count < row->k; j++) {
        T value = *(const T *)(const void *)((const char *)x.data + j * x.along);
        bool other = where.data && (where.data[(place + j) * where.step] != 0) != allowed;
        if (value != -INFINITY || other) continue;
        ((T *)row->values)[row->count] = value;
        row->places[row->count++] = place + j;
    }
}

/* A few candidates are ordered by counting, for each, the candidates above it. More candidates are
 * ordered by merging such runs. */

/* Elements of a row, and their places. */
typedef struct {
    T *values;
    int64_t *places;
} elements;

ONS_ALWAYS elements elements_from(elements of, int64_t i) {
    return (elements){of.values + i, of.places + i};
}

ONS_ALWAYS void copy_element(elements to, int64_t at, elements from, int64_t i) {
    to.values[at] = from.values[i];
    to.places[at] = from.places[i];
}

/* Number of elements that are ordered at a time. The exact number would be mispredicted. */
enum { BESIDE = 8 };

/* For each of n numbers, counts the numbers above it, in the bits of `counts`. It processes
 * `vectors` vectors at a time, a constant, and may write counts past the n. */
ONS_ALWAYS void count_for_each(T *counts, const T *x, int64_t n, int64_t vectors) {
    for (int64_t l = 0; l < n; l += vectors * WIDTH) {
        VEC own[4], above[4];
        for (int64_t v = 0; v < vectors; v++) {
            own[v] = V(load)(x + l + v * WIDTH); /* there is room past the n, with any values */
            above[v] = V(set)(0);
        }
#if !defined(__clang__) /* with more, gcc keeps the sums in memory */
#pragma GCC unroll 4
#endif
        for (int64_t i = 0; i < n; i++) {
            VEC a = V(set)(x[i]);
            for (int64_t v = 0; v < vectors; v++) above[v] = V(add_above)(above[v], a, own[v]);
        }
        for (int64_t v = 0; v < vectors; v++) V(store)(counts + l + v * WIDTH, above[v]);
    }
}

ONS_ALWAYS uint64_t count_of(const T *counts, int64_t i) {
#if BITS == 32
    uint32_t count;
#else
    uint64_t count;
#endif
    memcpy(&count, counts + i, sizeof count);
    return count;
}

/* Puts n numbers in their places, by the count of numbers above each. */
static ONS_APART void place_by_counts(elements to, elements from, int64_t n, const T *counts) {
    uint8_t equal[ONS_ORDERED_AT_ONCE] = {0}; /* elements at each place */
    for (int64_t i = 0; i < n; i++) {
        uint64_t before = isnan(from.values[i]) ? 0 : count_of(counts, i);
        copy_element(to, (int64_t)before + equal[before]++, from, i);
    }
}

/* place_by_counts for n different numbers without NaN, at most 63 with the -inf that pad them.
 * False if two are equal or one is NaN. */
ONS_ALWAYS bool place_different(elements to, elements from, int64_t n, int64_t all,
                                const T *counts) {
    uint64_t seen = 0;
    for (int64_t i = 0; i < all; i += BESIDE)
        for (int64_t b = i; b < i + BESIDE; b++) {
            uint64_t at = count_of(counts, b);
            copy_element(to, (int64_t)at, from, b);
            seen |= (uint64_t)1 << at;
        }
    return seen == ((uint64_t)1 << (n + (n < all))) - 1; /* all padding is at one place */
}

/* Puts n candidates, at most ONS_ORDERED_AT_ONCE, in descending order; of equal ones the first
 * comes first. There is room after them for padding with -inf. */
ONS_ALWAYS void order_by_counting(elements to, elements from, int64_t n, bool few) {
    T counts[ONS_ORDERED_AT_ONCE + 4 * WIDTH];
    int64_t all = (n + BESIDE - 1) / BESIDE * BESIDE;
    for (int64_t l = 0; l < BESIDE && n < all; l += WIDTH)
        V(store)(from.values + n + l, V(set)((T)-INFINITY));
    count_for_each(counts, from.values, all, few ? 2 : 4);
    if (all < 64 && place_different(to, from, n, all, counts)) return;
    place_by_counts(to, from, n, counts);
}

/* Merges runs of n candidates. */
ONS_ALWAYS void merge_runs(elements to, elements from, int64_t n, int64_t run) {
    const T *values = from.values;
    for (int64_t begin = 0; begin < n; begin += 2 * run) {
        int64_t a = begin, middle = n - begin < run ? n : begin + run, b = middle;
        int64_t end = n - middle < run ? n : middle + run;
        for (int64_t i = begin; i < end; i++) {
            bool second =
                a == middle ||
                (b < end && (values[b] > values[a] || (isnan(values[b]) && !isnan(values[a]))));
            copy_element(to, i, from, second ? b++ : a++);
        }
    }
}

static ONS_APART void order_runs(elements to, elements from, int64_t n) {
    elements sorted = to, other = from;
    for (int64_t i = 0; i < n; i += ONS_ORDERED_AT_ONCE) {
        int64_t run = n - i < ONS_ORDERED_AT_ONCE ? n - i : ONS_ORDERED_AT_ONCE;
        order_by_counting(elements_from(to, i), elements_from(from, i), run, false);
    }
    for (int64_t run = ONS_ORDERED_AT_ONCE; run < n; run *= 2) {
        merge_runs(other, sorted, n, run);
        elements merged = other;
        other = sorted;
        sorted = merged;
    }
    if (sorted.values == to.values) return;
    memcpy(to.values, sorted.values, (size_t)n * sizeof(T));
    memcpy(to.places, sorted.places, (size_t)n * sizeof *to.places);
}

static void order(ons_candidates *row, void *values, int64_t *places) {
    elements to = {values, places}, from = {row->values, row->places};
    if (row->count <= 2 * WIDTH)
        order_by_counting(to, from, row->count, true);
    else
        order_runs(to, from, row->count);
}

#endif
