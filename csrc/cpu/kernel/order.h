/* order.h - puts the candidates for the k largest elements of a row in order: a few by
 * counting how many are above each, more by merging runs of those. */
#ifndef ONS_CPU_KERNEL_ORDER_H
#define ONS_CPU_KERNEL_ORDER_H

#include "vectors.h"

/* Elements that are put in order at a time: how often is hard to foresee. */
enum { BESIDE = 8 };

/* For each of n numbers, a multiple of that, how many are above it, in its bits; of `vectors`
 * vectors of them at a time, a constant. */
ONS_ALWAYS void count_for_each(T *counts, const T *x, int64_t n, int64_t vectors) {
    for (int64_t l = 0; l < n; l += vectors * WIDTH) {
        VEC own[4], above[4];
        for (int64_t v = 0; v < vectors; v++) {
            own[v] = V(load)(x + l + v * WIDTH); /* past the n there is room, and whatever */
            above[v] = V(set)(0);
        }
#if !defined(__clang__) /* of more gcc keeps sums in memory */
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

/* Puts n numbers in their places, by how many are above each. */
static ONS_APART void place_by_counts(T *to, int64_t *to_places, const T *values,
                                      const int64_t *places, int64_t n, const T *counts) {
    uint8_t equal[ONS_ORDERED_AT_ONCE] = {0}; /* of those that are at a place */
    for (int64_t i = 0; i < n; i++) {
        uint64_t before = isnan(values[i]) ? 0 : count_of(counts, i);
        int64_t at = (int64_t)before + equal[before]++;
        to[at] = values[i];
        to_places[at] = places[i];
    }
}

/* The same of different ones that are no NaN, and at most 63 with those that fill them up; false
 * where they are not that. */
ONS_ALWAYS bool place_different(T *to, int64_t *to_places, const T *values, const int64_t *places,
                                int64_t n, int64_t all, const T *counts) {
    uint64_t seen = 0;
    for (int64_t i = 0; i < all; i += BESIDE)
        for (int64_t b = i; b < i + BESIDE; b++) {
            uint64_t at = count_of(counts, b);
            to[at] = values[b];
            to_places[at] = places[b];
            seen |= (uint64_t)1 << at;
        }
    return seen == ((uint64_t)1 << (n + (n < all))) - 1; /* what fills them up is at one place */
}

/* Puts n candidates, at most ONS_ORDERED_AT_ONCE, in descending order, of equal ones the first
 * first. Behind them there is room for some more, which are made -inf. */
ONS_ALWAYS void order_by_counting(T *to, int64_t *to_places, T *values, const int64_t *places,
                                  int64_t n, bool few) {
    T counts[ONS_ORDERED_AT_ONCE + 4 * WIDTH];
    int64_t all = (n + BESIDE - 1) / BESIDE * BESIDE;
    for (int64_t l = 0; l < BESIDE && n < all; l += WIDTH)
        V(store)(values + n + l, V(set)((T)-INFINITY));
    count_for_each(counts, values, all, few ? 2 : 4);
    if (all < 64 && place_different(to, to_places, values, places, n, all, counts)) return;
    place_by_counts(to, to_places, values, places, n, counts);
}

/* Merges runs of n candidates. */
ONS_ALWAYS void merge_runs(T *to, int64_t *to_places, const T *from, const int64_t *from_places,
                           int64_t n, int64_t run) {
    for (int64_t begin = 0; begin < n; begin += 2 * run) {
        int64_t a = begin, middle = n - begin < run ? n : begin + run, b = middle;
        int64_t end = n - middle < run ? n : middle + run;
        for (int64_t i = begin; i < end; i++) {
            bool second = a == middle ||
                          (b < end && (from[b] > from[a] || (isnan(from[b]) && !isnan(from[a]))));
            int64_t at = second ? b++ : a++;
            to[i] = from[at];
            to_places[i] = from_places[at];
        }
    }
}

static ONS_APART void order_runs(ons_candidates *row, T *to, int64_t *to_places) {
    int64_t n = row->count, *places = row->places, *from_places = to_places;
    T *values = row->values, *from = to;
    for (int64_t i = 0; i < n; i += ONS_ORDERED_AT_ONCE) {
        int64_t run = n - i < ONS_ORDERED_AT_ONCE ? n - i : ONS_ORDERED_AT_ONCE;
        order_by_counting(from + i, from_places + i, values + i, places + i, run, false);
    }
    for (int64_t run = ONS_ORDERED_AT_ONCE; run < n; run *= 2) {
        merge_runs(values, places, from, from_places, n, run);
        T *merged = values;
        int64_t *merged_places = places;
        values = from;
        places = from_places;
        from = merged;
        from_places = merged_places;
    }
    if (from == to) return;
    memcpy(to, from, (size_t)n * sizeof(T));
    memcpy(to_places, from_places, (size_t)n * sizeof *places);
}

static void order(ons_candidates *row, void *to, int64_t *to_places) {
    if (row->count <= 2 * WIDTH)
        order_by_counting(to, to_places, row->values, row->places, row->count, true);
    else
        order_runs(row, to, to_places);
}

#endif
