/* products.h - the sum of dy * y over a row of floats, by blocks.
 *
 *  1. A block has 4 * WIDTH elements. Each lane of a vector adds up its four products as floats:
 *     (a + b) + (c + d). Elements that are missing count as 0.
 *  2. These sums are added up in double.
 *
 * So at most three roundings lie between a product and the sum: 1.5 eps of sum(|dy * y|). A block
 * may overflow, and products below the normal numbers lose digits: whoever asked takes a sum that
 * is not finite, or is tiny, in double. */
#ifndef ONS_CPU_KERNEL_PRODUCTS_H
#define ONS_CPU_KERNEL_PRODUCTS_H

#include "column.h"
#include "row.h"

/* The lanes' sum. */
ONS_ALWAYS double sum_of_wide(const wide *all) {
    f64_vec eight[EIGHT];
    for (size_t k = 0; k < EIGHT; k++) eight[k] = k < PARTS ? all->part[k] : f64_set(0);
    for (size_t k = EIGHT; k < PARTS; k++) eight[0] += all->part[k];
    return f64_sum_eight(eight);
}

/* The first n elements of a vector; the others are 0. */
ONS_ALWAYS VEC some_or_0(const T *p, int64_t n) {
    return n >= WIDTH ? V(load)(p) : n > 0 ? V(join)(V(load_part)(p, n), V(set)(0), n) : V(set)(0);
}

/* Of a block's four vectors of either row. */
ONS_ALWAYS wide sum_of_block(const VEC *dy, const VEC *y) {
    VEC two[2];
    for (int k = 0; k < 2; k++) two[k] = V(fma)(dy[2 * k + 1], y[2 * k + 1], dy[2 * k] * y[2 * k]);
    return widen(two[0] + two[1]);
}

/* Of a block that has n elements. */
ONS_ALWAYS wide block_at(const T *dy, const T *y, int64_t n) {
    VEC of_dy[4], of_y[4];
    for (int64_t k = 0; k < 4; k++) {
        of_dy[k] = some_or_0(dy + k * WIDTH, n - k * WIDTH);
        of_y[k] = some_or_0(y + k * WIDTH, n - k * WIDTH);
    }
    return sum_of_block(of_dy, of_y);
}

ONS_ALWAYS double sum_of_products(const T *dy, const T *y, int64_t n) {
    wide sum = wide_zero();
    int64_t j = 0;
    for (; j + 4 * WIDTH <= n; j += 4 * WIDTH)
        sum = wide_add(sum, block_at(dy + j, y + j, 4 * WIDTH));
    if (j < n) sum = wide_add(sum, block_at(dy + j, y + j, n - j));
    return sum_of_wide(&sum);
}

/* The same of `left` columns from column i on, at most a cache line: all of it is read at once. A
 * block's lane l is row l of memory, and WIDTH, 2 * WIDTH and 3 * WIDTH further. */
ONS_ALWAYS void sums_of_products(double *sums, ons_tile dy, ons_tile y, int64_t i, int64_t left,
                                 int64_t n) {
    enum { VECTORS_OF_CACHE_LINE = CACHE_LINE * sizeof(T) / sizeof(VEC) };
    wide sum[VECTORS_OF_CACHE_LINE];
    for (int v = 0; v < VECTORS_OF_CACHE_LINE; v++) sum[v] = wide_zero();
    for (int64_t block = 0; block < n; block += 4 * WIDTH)
        for (int64_t j = block; j < block + WIDTH && j < n; j++)
            for (int v = 0; v < VECTORS_OF_CACHE_LINE; v++) {
                VEC of_dy[4], of_y[4];
                for (int64_t k = 0; k < 4; k++) {
                    int64_t row = j + k * WIDTH, there = row < n ? left - v * WIDTH : 0;
                    of_dy[k] = some_or_0(AT(dy, row) + i + v * WIDTH, there);
                    of_y[k] = some_or_0(AT(y, row) + i + v * WIDTH, there);
                }
                sum[v] = wide_add(sum[v], sum_of_block(of_dy, of_y));
            }
    for (int v = 0; v < VECTORS_OF_CACHE_LINE; v++) wide_store(sums + v * WIDTH, sum[v]);
}

#endif
