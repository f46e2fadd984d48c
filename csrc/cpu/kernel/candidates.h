/* candidates.h - the candidates for the k largest elements of a row.
 *
 * They are the elements that were above `least` when they came. `least` is below the k-th largest
 * so far, or is it, so what comes later and is not above it is not among the k: of equal elements
 * the first are. NaN is above everything. */
#ifndef ONS_CPU_KERNEL_CANDIDATES_H
#define ONS_CPU_KERNEL_CANDIDATES_H

#include "vectors.h"

/* Elements that are compared before the first is looked at: a bit each. */
enum { AT_ONCE = 64 };

/* A bit for each of the first of n elements that is above the limit. */
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
    return bits; /* past the end there is -inf, which is above nothing */
}

ONS_ALWAYS int64_t count_above(const T *x, int64_t n, T least) {
    VEC limit = V(set)(least);
    int64_t count = 0;
    for (int64_t j = 0; j < n; j += AT_ONCE)
        count += __builtin_popcountll(bits_above(x + j, n - j, limit));
    return count;
}

/* The largest of n elements; +inf, where NaN may have been in the way. */
ONS_ALWAYS T largest(const T *x, int64_t n) {
    VEC m = V(set)((T)-INFINITY);
    for (int64_t j = 0; j < n; j += WIDTH)
        m = V(max)(n - j >= WIDTH ? V(load)(x + j) : V(load_part)(x + j, n - j), m);
    T largest = V(max_lanes)(m);
    return isnan(largest) ? (T)INFINITY : largest;
}

/* The numbers in their order as integers, the two zeros as one; and back. */
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

/* A number that k to `most` of n elements are above, if there is one; else the k-th largest itself.
 * At least k are above low, fewer above high. Halves the interval, but begins near its end: most
 * numbers are far below. `count`: of those above high; then of those above the result. */
static T divide(const T *x, int64_t n, int64_t k, int64_t most, T low, T high, int64_t *count) {
    int64_t below = key(low), above = key(high);
    uint64_t step = (uint64_t)1 << (BITS == 32 ? 20 : 49);
    for (;;) {
        uint64_t apart = (uint64_t)above - (uint64_t)below;
        if (apart < 2) return of_key(above);
        bool near = step < apart / 2;
        int64_t middle = near ? above - (int64_t)step : below + (int64_t)(apart / 2);
        if (near) step *= 2;
        T least = of_key(middle);
        int64_t found = count_above(x, n, least);
        if (found < k || found <= most) *count = found;
        if (found >= k && found <= most) return least;
        *(found < k ? &above : &below) = middle;
    }
}

/* Leaves the k largest of a row's candidates, in their order, where there are more. */
static void cut(ons_candidates *row) {
    int64_t k = row->k, n = row->count, kept = 0;
    T *values = row->values, low = (T)row->least, least = INFINITY;
    if (n <= k) return;
    T high = largest(values, n);
    int64_t above = count_above(values, n, high); /* NaN alone */
    row->closed = above >= k;
    /* `least` may have been raised for a tile of which not enough was taken yet */
    if (count_above(values, n, low) < k) low = (T)-INFINITY;
    if (!row->closed) least = divide(values, n, k, k, low, high, &above);
    /* NaN is above it, and of what is equal to it the first are among the k */
    int64_t equal = k - above;
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

static void take_candidates(ons_candidates *row, const ons_candidates *part) {
    const T *values = part->values;
    for (int64_t i = 0; i < part->count && !row->closed; i++) {
        if ((double)values[i] <= row->least) continue;
        ((T *)row->values)[row->count] = values[i];
        row->places[row->count] = part->places[i];
        if (++row->count > row->room - AT_ONCE) cut(row);
    }
}

/* Takes elements that are -inf, while there are fewer than k candidates: of those with a mask
 * the allowed or the excluded ones. */
static void fill(ons_candidates *row, const void *x, int64_t along, const char *where, int64_t step,
                 bool allowed, int64_t n, int64_t place) {
    for (int64_t j = 0; j < n && row->count < row->k; j++) {
        T value = *(const T *)(const void *)((const char *)x + j * along);
        if (value != -INFINITY || (where && (where[j * step] != 0) != allowed)) continue;
        ((T *)row->values)[row->count] = value;
        row->places[row->count++] = place + j;
    }
}

#endif
