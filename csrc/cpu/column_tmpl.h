/* column_tmpl.h - the primitives on neighbouring rows, which lie side by side. Each row is added up
 * as row_tmpl.h adds it. Part of primitives_tmpl.h, whose parameters and names it uses. */

#define AT(tile, j) ((T *)((char *)(tile).data + (j) * (tile).along))
/* Rows of the tile from the one that is read to the one that is fetched. */
enum { FN(rows_ahead) = 16 };

/* column i's vector of a row of the tile, and of an array with an entry a column */
#define LOAD_AT(p, i, width) \
    ((width) - (i) >= WIDTH ? V(load)((p) + (i)) : V(load_part)((p) + (i), (width) - (i)))

#define STORE_AT(p, i, width, a)                        \
    do {                                                \
        if ((width) - (i) >= WIDTH)                     \
            V(store)((p) + (i), a);                     \
        else                                            \
            V(store_part)((p) + (i), a, (width) - (i)); \
    } while (0)

static void FN(max_column)(const ons_rows *rows, ons_tile kept, ons_tile x, int64_t n) {
    T m[ONS_MAX_WIDTH], nans[ONS_MAX_WIDTH];
    int64_t width = rows->width;
    bool copies = kept.data && kept.data != x.data;
    for (int64_t i = 0; i < width; i += WIDTH) {
        V(store)(m + i, V(set)((T)-INFINITY));
        V(store)(nans + i, V(set)(0));
    }
    for (int64_t j = 0; j < n; j += 4) {
        /* four rows of the tile at once; the last ones stand in for those beyond the end */
        int64_t at[4];
        for (int64_t k = 0; k < 4; k++) at[k] = j + k < n ? j + k : j;
        for (int64_t k = 0; k < 4; k++)
            for (int64_t i = 0; i < width; i += 64 / (int64_t)sizeof(T))
                __builtin_prefetch(AT(x, at[k] + FN(rows_ahead)) + i);
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

/* One block of the columns from i on that fill a vector: lane l of each column adds the elements
 * that lane l of a row adds. */
INLINE void FN(block_column)(const ons_rows *rows, int64_t i, ons_tile e, ons_tile x, int64_t begin,
                             int64_t end, bool plain) {
    int64_t width = rows->width, columns = width - i < WIDTH ? width - i : WIDTH;
    VEC lanes[LANES], shift = V(set)(0), floor = V(set)(0);
    for (int64_t l = 0; l < LANES; l++) lanes[l] = V(set)(0);
    if (!plain) {
        shift = LOAD_AT((const T *)rows->shift, i, width);
        floor = LOAD_AT((const T *)rows->floor, i, width);
    }
    for (int64_t q = begin; q < end; q += QUAD)
        for (int64_t l = 0; l < LANES && q + l < end; l++) {
            VEC four[4];
            for (int64_t k = 0; rows->next.data && k < 4; k++)
                __builtin_prefetch(AT(rows->next, q + k * LANES + l) + i, 0, 2);
            int64_t count = (end - q - l + LANES - 1) / LANES; /* of the elements that are there */
            if (count >= 4 && columns == WIDTH) {
                for (int64_t k = 0; k < 4; k++) four[k] = V(load)(AT(x, q + k * LANES + l) + i);
                if (!plain) FN(exponential_each)(four, 4, shift, floor);
                if (e.data)
                    for (int64_t k = 0; k < 4; k++) V(store)(AT(e, q + k * LANES + l) + i, four[k]);
            } else {
                for (int64_t k = 0; k < 4; k++) {
                    four[k] = V(set)(0);
                    if (k >= count) continue;
                    four[k] = LOAD_AT(AT(x, q + k * LANES + l), i, width);
                    if (!plain) four[k] = FN(exponential)(four[k], shift, floor);
                    if (e.data) STORE_AT(AT(e, q + k * LANES + l), i, width, four[k]);
                }
            }
            VEC sum = V(add)(V(add)(four[0], four[1]), V(add)(four[2], four[3]));
            lanes[l] = V(add)(lanes[l], sum);
        }
    double tree[LANES][WIDTH];
    for (int64_t l = 0; l < LANES; l++) {
        T one[WIDTH];
        V(store)(one, lanes[l]);
        for (int64_t c = 0; c < WIDTH; c++) tree[l][c] = (double)one[c];
    }
    for (int64_t half = LANES / 2; half > 0; half /= 2)
        for (int64_t l = 0; l < half; l++)
            for (int64_t c = 0; c < WIDTH; c++) tree[l][c] += tree[l + half][c];
    for (int64_t c = 0; c < columns; c++)
        ons_state_add(&rows->state[i + c], (plain ? 1.0 : LOWERED) * tree[0][c]);
}

INLINE void FN(sum_column)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n, bool plain) {
    for (int64_t j = 0; j < n; j += BLOCK)
        for (int64_t i = 0; i < rows->width; i += WIDTH)
            FN(block_column)(rows, i, e, x, j, n - j < BLOCK ? n : j + BLOCK, plain);
}

static void FN(sum_exp_column)(const ons_rows *rows, ons_tile x, int64_t n) {
    FN(sum_column)(rows, ONS_NO_TILE, x, n, false);
}

static void FN(exp_store_sum_column)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    FN(sum_column)(rows, e, x, n, false);
}

static void FN(sum_plain_column)(const ons_rows *rows, ons_tile e, int64_t n) {
    FN(sum_column)(rows, ONS_NO_TILE, e, n, true);
}

static void FN(finish_column)(const ons_rows *rows, ons_tile y, ons_tile x, int64_t n) {
    const T *shift = rows->shift, *floor = rows->floor;
    const T *factor = rows->factor, *beyond = rows->factor_beyond;
    int64_t width = rows->width;
    for (int64_t j = 0; j < n; j++) {
#define BODY(a, i)                                                           \
    V(times)                                                                 \
    (FN(exponential)(a, LOAD_AT(shift, i, width), LOAD_AT(floor, i, width)), \
     LOAD_AT(factor, i, width), LOAD_AT(beyond, i, width))
        EACH_VECTOR(AT(y, j), AT(x, j), width, BODY);
#undef BODY
    }
}

static void FN(scale_column)(const ons_rows *rows, ons_tile y, ons_tile e, int64_t n) {
    const T *factor = rows->factor, *beyond = rows->factor_beyond;
    int64_t width = rows->width;
    for (int64_t j = 0; j < n; j++) {
#define BODY(a, i) V(times)(a, LOAD_AT(factor, i, width), LOAD_AT(beyond, i, width))
        EACH_VECTOR(AT(y, j), AT(e, j), width, BODY);
#undef BODY
    }
}

static void FN(exp_column)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
#define BODY(a, i) FN(plain_exponential)(a)
        EACH_VECTOR(AT(e, j), AT(x, j), rows->width, BODY);
#undef BODY
    }
}

static void FN(divide_column)(const ons_rows *rows, ons_tile y, ons_tile e, int64_t n) {
    T d[ONS_MAX_WIDTH];
    for (int64_t i = 0; i < rows->width; i++) d[i] = (T)rows->state[i].d;
    for (int64_t j = 0; j < n; j++) {
#define BODY(a, i) V(div)(a, LOAD_AT(d, i, rows->width))
        EACH_VECTOR(AT(y, j), AT(e, j), rows->width, BODY);
#undef BODY
    }
}
