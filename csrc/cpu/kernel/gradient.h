/* gradient.h - the sum of a row for operations that take a gradient dy beside the row y: of dy * y,
 * or of dy.
 *
 * The sum is a sum of doubles. Products of floats are added up by blocks:
 *
 *  1. A block has 4 * WIDTH elements. Each lane of a vector adds up its four products as floats:
 *     (a + b) + (c + d). Missing elements count as 0.
 *  2. These sums are added up in double.
 *
 * So at most three roundings lie between a product and the sum: 1.5 eps of sum(|dy * y|). A block
 * may overflow, and products below the normal numbers lose digits. If a sum is not finite, or is
 * tiny, it is computed again in double.
 *
 * Other floats become double one by one, where a product is exact. A product of doubles is two
 * doubles, and so is their sum (Ogita, Rump and Oishi, Accurate sum and dot product, algorithm
 * 5.3). So intermediate roundings do not show in the results, however much cancels. */
#ifndef ONS_CPU_KERNEL_GRADIENT_H
#define ONS_CPU_KERNEL_GRADIENT_H

#include "column.h"
#include "row.h"

/* The sum over the lanes. */
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

/* The sum of a block, from four vectors each of dy and y. */
ONS_ALWAYS wide sum_of_block(const VEC *dy, const VEC *y) {
    VEC two[2];
    for (int k = 0; k < 2; k++) two[k] = V(fma)(dy[2 * k + 1], y[2 * k + 1], dy[2 * k] * y[2 * k]);
    return widen(two[0] + two[1]);
}

/* The sum of a block with n elements. */
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

/* The sums of `left` columns from column i on. They are at most a cache line, which is read at
 * once. Lane l of a block is rows l, l + WIDTH, l + 2 * WIDTH and l + 3 * WIDTH of memory. */
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

/* The sum of each lane of a vector, and the part that it rounded away. add_terms adds the first n
 * elements of a vector of dy, each times its element of y if y is given. */
typedef struct {
    wide d, low; /* low in float64 only */
} terms;
ONS_ALWAYS terms no_terms(void) { return (terms){wide_zero(), wide_zero()}; }
ONS_ALWAYS void add_terms(terms *terms, const T *dy, const T *y, int64_t n) {
    wide term = widen(some_or_0(dy, n)), other = y ? widen(some_or_0(y, n)) : term;
    EACH_PART {
        f64_vec *d = &terms->d.part[k], *low = &terms->low.part[k], a = term.part[k];
        if (BITS == 32) {
            if (y)
                *d = f64_fma(a, other.part[k], *d);
            else
                *d += a;
        } else {
            f64_vec product = a;
            if (y) product *= other.part[k];
            if (y) *low -= f64_rest(a, other.part[k], product);
            two_sum(d, low, product);
        }
    }
}

/* A row's sum goes into the d of a state whose m is 0. */
ONS_ALWAYS void add_to_state(ons_state *state, double d, double low) {
    state->m = state->c = 0.0;
    ons_state_add(state, d);
    state->d_low += low;
}

/* Two vectors at once, so that an addition seldom waits for the one before. */
ONS_ALWAYS void terms_of_row(terms *two, const T *dy, const T *y, int64_t n) {
    two[0] = two[1] = no_terms();
#define AT_Y(j) (y ? y + (j) : y)
    int64_t j = 0;
    for (; j + 2 * WIDTH <= n; j += 2 * WIDTH) {
        add_terms(&two[0], dy + j, AT_Y(j), WIDTH);
        add_terms(&two[1], dy + j + WIDTH, AT_Y(j + WIDTH), WIDTH);
    }
    if (j + WIDTH <= n) {
        add_terms(&two[0], dy + j, AT_Y(j), WIDTH);
        j += WIDTH;
    }
    if (j < n) add_terms(&two[1], dy + j, AT_Y(j), n - j);
#undef AT_Y
}

/* The sum of a row of floats, in double. */
ONS_ALWAYS double sum_of_terms(const T *dy, const T *y, int64_t n) {
    terms two[2];
    terms_of_row(two, dy, y, n);
    wide all = wide_add(two[0].d, two[1].d);
    return sum_of_wide(&all);
}
static ONS_APART double sum_in_double(const T *dy, const T *y, int64_t n) {
    return sum_of_terms(dy, y, n);
}
/* Whether a sum by blocks is right: no block overflowed, and the loss from products below the
 * normal numbers does not show. */
ONS_ALWAYS bool blocks_hold(double d) { return fabs(d) >= 0x1p-100 && fabs(d) < INFINITY; }

/* The sum of floats by blocks, or in double if the blocks do not hold. The second is rare, so it is
 * a call. Inline it would take registers here. */
ONS_ALWAYS double sum_of_part(const T *dy, const T *y, int64_t n, bool in_double) {
    if (!y) return sum_of_terms(dy, NULL, n);
    double d = in_double ? NAN : sum_of_products(dy, y, n);
    return blocks_hold(d) ? d : sum_in_double(dy, y, n);
}

ONS_ALWAYS void add_part(ons_state *state, const T *dy, const T *y, int64_t n, bool in_double) {
    if (BITS == 32) {
        add_to_state(state, sum_of_part(dy, y, n, in_double), 0);
        return;
    }
    terms two[2];
    terms_of_row(two, dy, y, n);
    double d[WIDTH], low[WIDTH];
    add_term(&two[0].d, &two[0].low, two[1].d);
    wide_store(d, two[0].d);
    wide_store(low, wide_add(two[0].low, two[1].low));
    for (int64_t l = 0; l < WIDTH; l++) add_to_state(state, d[l], low[l]);
}

ONS_ALWAYS void add_gradient_row(const operation *operation, const ons_rows *rows, ons_tile dy,
                                 ons_tile y, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++)
        add_part(&rows->state[i], ROW(dy, i), operation->adds_products ? ROW(y, i) : NULL, n,
                 rows->sums_in_double);
}

/* The terms of `left` columns from column i on, at most WIDTH. */
ONS_ALWAYS terms terms_of_columns(ons_tile dy, ons_tile y, int64_t i, int64_t left, int64_t n,
                                  bool products) {
    terms terms = no_terms();
    for (int64_t j = 0; j < n; j++)
        add_terms(&terms, AT(dy, j) + i, products ? AT(y, j) + i : NULL, left);
    return terms;
}

ONS_ALWAYS void add_gradient_column(const operation *operation, const ons_rows *rows, ons_tile dy,
                                    ons_tile y, int64_t n) {
    bool products = operation->adds_products;
    for (int64_t i = 0; i < rows->width; i += CACHE_LINE) {
        int64_t left = rows->width - i < CACHE_LINE ? rows->width - i : CACHE_LINE;
        double of_blocks[CACHE_LINE], d[CACHE_LINE] = {0}, low[CACHE_LINE] = {0};
        bool blocks = BITS == 32 && products && !rows->sums_in_double, hold = blocks;
        if (blocks && left == CACHE_LINE)
            sums_of_products(of_blocks, dy, y, i, CACHE_LINE, n);
        else if (blocks)
            sums_of_products(of_blocks, dy, y, i, left, n);
        for (int64_t l = 0; l < left && hold; l++) hold = blocks_hold(of_blocks[l]);
        for (int64_t v = 0; v < left && !hold; v += WIDTH) {
            terms terms = left - v >= WIDTH ? terms_of_columns(dy, y, i + v, WIDTH, n, products)
                                            : terms_of_columns(dy, y, i + v, left - v, n, products);
            wide_store(d + v, terms.d);
            wide_store(low + v, terms.low);
        }
        for (int64_t l = 0; l < left; l++)
            add_to_state(&rows->state[i + l],
                         blocks && blocks_hold(of_blocks[l]) ? of_blocks[l] : d[l], low[l]);
    }
}

/* If the sum is infinite, d_low is NaN. */
ONS_ALWAYS double sum_of_state(const ons_state *state) {
    return isfinite(state->d) ? state->d + state->d_low : state->d;
}

/* The constants of a row, from its sum and its scale. The scale is split into `power`, the largest
 * power of two not above it but at least 1, times `scale`. `power` is applied before the products.
 * Without it they might be below the normal numbers, and their rounding errors would be
 * multiplied. */
typedef struct {
    T first, second, power, scale;
} gradient_row;

ONS_ALWAYS gradient_row gradient_row_of(const operation *operation, double sum, double scale) {
    gradient_row row = {0, 0, 1, (T)scale};
    const T size = row.scale < 0 ? -row.scale : row.scale;
    if (size >= 2 && size < (T)INFINITY) {
        row.power = (T)ldexp(1.0, ilogb((double)size));
        row.scale /= row.power;
    }
    operation->gradient_row(sum, (double)row.power, &row.first, &row.second);
    return row;
}

/* Fills the rows' arrays. */
ONS_ALWAYS void end_gradients(const operation *operation, const ons_rows *rows,
                              const double *scale) {
    for (int64_t i = 0; i < rows->width; i++) {
        const gradient_row row =
            gradient_row_of(operation, sum_of_state(&rows->state[i]), scale[i]);
        ((T *)rows->first)[i] = row.first;
        ((T *)rows->second)[i] = row.second;
        ((T *)rows->shift)[i] = row.power;
        ((T *)rows->floor)[i] = row.scale;
    }
}

#endif
