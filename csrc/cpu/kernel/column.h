/* column.h - the primitives on neighbouring rows that lie side by side. Each row is added up as in
 * row.h. */
#ifndef ONS_CPU_KERNEL_COLUMN_H
#define ONS_CPU_KERNEL_COLUMN_H

#include "operation.h"

#define AT(tile, j) ((T *)((char *)(tile).data + (j) * (tile).along))
/* Distance in tile rows from the row being read to the row being fetched. */
enum { ROWS_AHEAD = 16 };

/* vector i of a row of the tile, or of an array with an entry for each column */
#define LOAD_AT(p, i, width) \
    ((width) - (i) >= WIDTH ? V(load)((p) + (i)) : V(load_part)((p) + (i), (width) - (i)))

#define STORE_AT(p, i, width, a)                        \
    do {                                                \
        if ((width) - (i) >= WIDTH)                     \
            V(store)((p) + (i), a);                     \
        else                                            \
            V(store_part)((p) + (i), a, (width) - (i)); \
    } while (0)

static void max_column(const ons_rows *rows, ons_tile kept, ons_tile x, int64_t n) {
    T m[ONS_MAX_WIDTH], nans[ONS_MAX_WIDTH];
    int64_t width = rows->width;
    bool copies = kept.data && kept.data != x.data;
    for (int64_t i = 0; i < width; i += WIDTH) {
        V(store)(m + i, V(set)((T)-INFINITY));
        V(store)(nans + i, V(set)(0));
    }
    for (int64_t j = 0; j < n; j += 4) {
        /* Takes four rows of the tile at once. Row j takes the place of rows past the end. */
        int64_t at[4];
        for (int64_t k = 0; k < 4; k++) at[k] = j + k < n ? j + k : j;
        for (int64_t k = 0; k < 4; k++)
            for (int64_t i = 0; i < width; i += 64 / (int64_t)sizeof(T))
                __builtin_prefetch(AT(x, at[k] + ROWS_AHEAD) + i);
        for (int64_t i = 0; i < width; i += WIDTH) {
            VEC four[4];
            for (int64_t k = 0; k < 4; k++) four[k] = LOAD_AT(AT(x, at[k]), i, width);
            for (int64_t k = 0; copies && k < 4; k++) STORE_AT(AT(kept, at[k]), i, width, four[k]);
            VEC nan = V(nan_or)(V(load)(nans + i), four[0], four[1]);
            V(store)(nans + i, V(nan_or)(nan, four[2], four[3]));
            VEC largest = V(max)(four[0], V(max)(four[1], V(max)(four[2], four[3])));
            V(store)(m + i, V(max)(largest, V(load)(m + i)));
        }
    }
    for (int64_t i = 0; i < width; i++) {
        ons_state *state = &rows->state[i];
        state->m = isnan(nans[i]) ? NAN : ons_larger(state->m, (double)m[i]);
    }
}

/* A vector of columns from i on, while its exponentials are added up, and stored if e is given. If
 * `plain`, the elements are added up instead. `whole`, a constant: there are WIDTH columns, and
 * STEP elements in each. */
typedef struct {
    const ons_rows *rows;
    int64_t i;
    ons_tile e, x;
    reference reference;
    bool whole;
} vector_of_columns;

/* The sum of four elements of a lane from j on, or of `count` elements if these are fewer. */
ONS_ALWAYS VEC quad_of_columns(const vector_of_columns *of, int64_t j, int64_t count) {
    const ons_rows *rows = of->rows;
    int64_t i = of->i, width = rows->width;
    ons_tile e = of->e, x = of->x;
    reference reference = of->reference;
    VEC four[4];
    for (int64_t k = 0; rows->next.data && k < count; k++)
        __builtin_prefetch(AT(rows->next, j + k * LANES) + i, 0, 2);
    if (of->whole || (count >= 4 && width - i >= WIDTH)) {
        for (int64_t k = 0; k < 4; k++) four[k] = V(load)(AT(x, j + k * LANES) + i);
        if (!reference.plain) exponential_each(four, 4, reference);
        for (int64_t k = 0; k < 4 && e.data; k++) V(store)(AT(e, j + k * LANES) + i, four[k]);
        return sum_of_four(four);
    }
    for (int64_t k = 0; k < 4; k++) {
        four[k] = V(set)(0);
        if (k >= count) continue;
        four[k] = LOAD_AT(AT(x, j + k * LANES), i, width);
        if (!reference.plain) four[k] = exponential(four[k], reference);
        if (e.data) STORE_AT(AT(e, j + k * LANES), i, width, four[k]);
    }
    return sum_of_four(four);
}

/* Adds two sums of TERMS elements to running sum l of a vector of columns. `sums` has `width`
 * doubles for each running sum. */
ONS_ALWAYS void add_to_columns(double *sums, int64_t l, int64_t width, VEC one, VEC other) {
    double *at = sums + l * width, *rounded_away = at + ONS_SUMS * width;
    wide term = wide_add(widen(one), widen(other)), d = wide_load(at);
    if (BITS == 64) {
        wide low = wide_load(rounded_away);
        add_term(&d, &low, term);
        wide_store(rounded_away, low);
    } else {
        d = wide_add(d, term);
    }
    wide_store(at, d);
}

/* The sum of TERMS elements of a lane from j on, or of fewer if the row ends at n. */
ONS_ALWAYS VEC lane_of_columns(const vector_of_columns *of, int64_t j, int64_t n) {
    int64_t count = of->whole ? TERMS : of_lane(n - j);
    VEC quad = quad_of_columns(of, j, count);
    return quad + quad_of_columns(of, j + QUAD, count - 4);
}

/* Adds up STEP elements from j on, or fewer if the row ends at n. */
ONS_ALWAYS void step_of_columns(vector_of_columns of, int64_t j, int64_t n, bool whole) {
    const ons_rows *rows = of.rows;
    of.whole = whole;
    if (!of.reference.plain) {
        of.reference.shift = LOAD_AT((const T *)rows->shift, of.i, rows->width);
        of.reference.floor = LOAD_AT((const T *)rows->floor, of.i, rows->width);
    }
    for (int64_t l = 0; l < ONS_SUMS && j + l < n; l++) {
        VEC one = lane_of_columns(&of, j + l, n);
        VEC other = lane_of_columns(&of, j + l + OTHER, n);
        add_to_columns(rows->sums + of.i, l, rows->sums_along, one, other);
    }
}

ONS_ALWAYS void sum_column(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n, bool plain) {
    for (int64_t j = 0; j < n; j += STEP)
        for (int64_t i = 0; i < rows->width; i += WIDTH) {
            vector_of_columns of = {rows, i, e, x, {.plain = plain}, false};
            if (n - j >= STEP && rows->width - i >= WIDTH)
                step_of_columns(of, j, n, true);
            else
                step_of_columns(of, j, n, false);
        }
}

static void end_block_column(const ons_rows *rows, bool plain) {
    double d[ONS_MAX_WIDTH], low[ONS_MAX_WIDTH], lowered = plain ? 1.0 : LOWERED;
    for (int64_t i = 0; i < rows->width; i += WIDTH) {
        wide total, rest;
        totals_of_columns(&total, &rest, rows->sums + i, rows->sums_along, rows->short_rows, false);
        wide_store(d + i, total);
        wide_store(low + i, rest);
    }
    for (int64_t i = 0; i < rows->width; i++) {
        ons_state_add(&rows->state[i], lowered * d[i]);
        if (BITS == 64) rows->state[i].d_low += lowered * low[i];
    }
    memset(rows->sums, 0, (size_t)(BITS / 32 * ONS_SUMS * rows->sums_along) * sizeof(double));
}

static void sum_exp_column(const ons_rows *rows, ons_tile x, int64_t n) {
    sum_column(rows, ONS_NO_TILE, x, n, false);
}

static void exp_store_sum_column(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    sum_column(rows, e, x, n, false);
}

static void sum_plain_column(const ons_rows *rows, ons_tile e, int64_t n) {
    sum_column(rows, ONS_NO_TILE, e, n, true);
}

ONS_ALWAYS void finish_column(const operation *operation, const ons_rows *rows, ons_tile y,
                              ons_tile x, int64_t n) {
    const T *shift = rows->shift, *floor = rows->floor;
    const T *first = rows->first, *second = rows->second;
    bool exponentials = operation->keeps_exponentials;
    int64_t width = rows->width;
    for (int64_t j = 0; j < n; j++) {
#define REFERENCE_AT(i) ((reference){LOAD_AT(shift, i, width), LOAD_AT(floor, i, width), false})
#define BODY(a, i)                                                           \
    operation->element(exponentials ? exponential(a, REFERENCE_AT(i)) : (a), \
                       LOAD_AT(first, i, width), LOAD_AT(second, i, width))
        EACH_VECTOR(AT(y, j), AT(x, j), width, BODY);
#undef REFERENCE_AT
#undef BODY
    }
}

ONS_ALWAYS void finish_kept_column(const operation *operation, const ons_rows *rows, ons_tile y,
                                   ons_tile kept, int64_t n) {
    const T *first = rows->first, *second = rows->second;
    int64_t width = rows->width;
    for (int64_t j = 0; j < n; j++) {
#define BODY(a, i) operation->element(a, LOAD_AT(first, i, width), LOAD_AT(second, i, width))
        EACH_VECTOR(AT(y, j), AT(kept, j), width, BODY);
#undef BODY
    }
}

static void exp_column(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
#define BODY(a, i) plain_exponential(a)
        EACH_VECTOR(AT(e, j), AT(x, j), rows->width, BODY);
#undef BODY
    }
}

ONS_ALWAYS void finish_plain_column(const operation *operation, const ons_rows *rows, ons_tile y,
                                    ons_tile kept, int64_t n) {
    T row[ONS_MAX_WIDTH];
    for (int64_t i = 0; i < rows->width; i++) row[i] = (T)rows->state[i].d;
    for (int64_t j = 0; j < n; j++) {
#define BODY(a, i) operation->plain_element(a, LOAD_AT(row, i, rows->width))
        EACH_VECTOR(AT(y, j), AT(kept, j), rows->width, BODY);
#undef BODY
    }
}

#endif
