/* products_tmpl.h - the sum of dy * y over a row of floats, in blocks. Part of primitives_tmpl.h,
 * whose parameters and names it uses.
 *
 *  1. A block has 4 * WIDTH elements. Each lane of a vector adds up four products in float, as (a +
 * b) + (c + d). Elements that are missing count as 0.
 *  2. These sums are added up in double.
 *
 * So three roundings at most lie between a product and the sum: 1.5 eps of sum(|dy * y|). A block
 * may overflow; then the sum is not finite, and is to be taken in double (gradient_tmpl.h). */
INLINE double FN(sum_of_wide)(const FN(wide) * all) {
    f64_vec eight[FN(eight)];
    for (size_t k = 0; k < FN(eight); k++) eight[k] = k < PARTS ? all->part[k] : f64_set(0);
    for (size_t k = FN(eight); k < PARTS; k++) eight[0] = f64_add(eight[0], all->part[k]);
    return f64_sum_eight(eight);
}

/* Four products of each lane: BODY gives a vector of either row. */
INLINE VEC FN(block_of_products)(const VEC *dy, const VEC *y) {
    VEC two[2];
    for (int k = 0; k < 2; k++)
        two[k] = V(fma)(dy[2 * k + 1], y[2 * k + 1], V(mul)(dy[2 * k], y[2 * k]));
    return V(add)(two[0], two[1]);
}

/* A vector at p of which n elements are there; the others are 0. */
INLINE VEC FN(some_or_0)(const T *p, int64_t n) {
    return n >= WIDTH ? V(load)(p) : n > 0 ? V(join)(V(load_part)(p, n), V(set)(0), n) : V(set)(0);
}

INLINE double FN(sum_of_products)(const T *dy, const T *y, int64_t n) {
    FN(wide) sum = FN(wide_zero)();
    int64_t j = 0;
    VEC of_dy[4], of_y[4];
    for (; j + 4 * WIDTH <= n; j += 4 * WIDTH) {
        for (int k = 0; k < 4; k++) {
            of_dy[k] = V(load)(dy + j + k * WIDTH);
            of_y[k] = V(load)(y + j + k * WIDTH);
        }
        sum = FN(wide_add)(sum, FN(widen)(FN(block_of_products)(of_dy, of_y)));
    }
    if (j < n) {
        for (int k = 0; k < 4; k++) {
            of_dy[k] = FN(some_or_0)(dy + j + k * WIDTH, n - j - k * WIDTH);
            of_y[k] = FN(some_or_0)(y + j + k * WIDTH, n - j - k * WIDTH);
        }
        sum = FN(wide_add)(sum, FN(widen)(FN(block_of_products)(of_dy, of_y)));
    }
    return FN(sum_of_wide)(&sum);
}

/* The same of `left` columns from column i on, at most a cache line of them: of a row of memory all
 * of that is read at once. */
INLINE void FN(sums_of_products)(double *sums, ons_tile dy, ons_tile y, int64_t i, int64_t left,
                                 int64_t n) {
    FN(wide) sum[FN(cache_line) / WIDTH];
    VEC of_dy[4], of_y[4];
    for (int v = 0; v < FN(cache_line) / WIDTH; v++) sum[v] = FN(wide_zero)();
    for (int64_t block = 0; block < n; block += 4 * WIDTH)
        for (int64_t j = block; j < block + WIDTH && j < n; j++)
            for (int v = 0; v < FN(cache_line) / WIDTH; v++) {
                for (int64_t k = 0; k < 4; k++) {
                    int64_t there = j + k * WIDTH < n ? left - v * WIDTH : 0;
                    of_dy[k] = FN(some_or_0)(AT(dy, j + k * WIDTH) + i + v * WIDTH, there);
                    of_y[k] = FN(some_or_0)(AT(y, j + k * WIDTH) + i + v * WIDTH, there);
                }
                sum[v] = FN(wide_add)(sum[v], FN(widen)(FN(block_of_products)(of_dy, of_y)));
            }
    for (int v = 0; v < FN(cache_line) / WIDTH; v++) FN(wide_store)(sums + v * WIDTH, sum[v]);
}
