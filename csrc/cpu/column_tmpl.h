/* column_tmpl.h - the primitives on neighbouring rows, which lie side by side. Each row is added up
 * as row_tmpl.h adds it. Part of primitives_tmpl.h, whose parameters and names it uses. */

#define AT(tile, j) ((T *)((char *)(tile).data + (j) * (tile).pitch))
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

static void FN(max_column)(const ons_rows *rows, ons_tile x, int64_t n) {
    T m[ONS_MAX_WIDTH], nans[ONS_MAX_WIDTH];
    int64_t width = rows->width;
    for (int64_t i = 0; i < width; i += WIDTH) {
        V(store)(m + i, V(set)((T)-INFINITY));
        V(store)(nans + i, V(set)(0));
    }
    for (int64_t j = 0; j < n; j += 4) {
        /* four rows of the tile at once; the last ones stand in for those beyond the end */
        const T *x0 = AT(x, j), *x1 = AT(x, j + 1 < n ? j + 1 : j);
        const T *x2 = AT(x, j + 2 < n ? j + 2 : j), *x3 = AT(x, j + 3 < n ? j + 3 : j);
        for (int64_t i = 0; i < width; i += WIDTH) {
            VEC a = LOAD_AT(x0, i, width), b = LOAD_AT(x1, i, width);
            VEC c = LOAD_AT(x2, i, width), d = LOAD_AT(x3, i, width);
            VEC nan = V(nan_or)(V(nan_or)(V(load)(nans + i), a, b), c, d);
            V(store)(nans + i, nan);
            V(store)(m + i, V(max)(a, V(max)(b, V(max)(c, V(max)(d, V(load)(m + i))))));
        }
    }
    for (int64_t i = 0; i < width; i++) {
        ons_state *state = &rows->state[i];
        state->m = isnan(nans[i]) ? NAN : ons_larger(state->m, (double)m[i]);
    }
}

/* One block of every column: lane l of each column adds the elements that lane l of a row adds. */
INLINE void FN(block_column)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t begin,
                             int64_t end, bool plain) {
    T lanes[LANES][ONS_MAX_WIDTH];
    const T *shift = rows->shift, *floor = rows->floor;
    for (int64_t q = begin; q == begin || q < end; q += QUAD)
        for (int64_t l = 0; l < LANES; l++)
            for (int64_t i = 0; i < rows->width; i += WIDTH) {
                VEC four[4];
                for (int64_t k = 0; k < 4; k++) {
                    int64_t j = q + k * LANES + l;
                    if (j >= end) {
                        four[k] = V(set)(0);
                        continue;
                    }
                    four[k] = LOAD_AT(AT(x, j), i, rows->width);
                    if (!plain)
                        four[k] = FN(exponential)(four[k], LOAD_AT(shift, i, rows->width),
                                                  LOAD_AT(floor, i, rows->width));
                    if (e.data) STORE_AT(AT(e, j), i, rows->width, four[k]);
                }
                VEC sum = V(add)(V(add)(four[0], four[1]), V(add)(four[2], four[3]));
                if (q > begin) sum = V(add)(V(load)(&lanes[l][i]), sum);
                V(store)(&lanes[l][i], sum);
            }
    for (int64_t i = 0; i < rows->width; i++) {
        double tree[LANES];
        for (int64_t l = 0; l < LANES; l++) tree[l] = (double)lanes[l][i];
        for (int64_t half = LANES / 2; half > 0; half /= 2)
            for (int64_t l = 0; l < half; l++) tree[l] += tree[l + half];
        ons_state_add(&rows->state[i], (plain ? 1.0 : LOWERED) * tree[0]);
    }
}

INLINE void FN(sum_column)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n, bool plain) {
    for (int64_t j = 0; j < n; j += BLOCK)
        FN(block_column)(rows, e, x, j, n - j < BLOCK ? n : j + BLOCK, plain);
}

static void FN(sum_exp_column)(const ons_rows *rows, ons_tile x, int64_t n) {
    FN(sum_column)(rows, (ons_tile){NULL, 0}, x, n, false);
}

static void FN(exp_store_sum_column)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    FN(sum_column)(rows, e, x, n, false);
}

static void FN(sum_plain_column)(const ons_rows *rows, ons_tile e, int64_t n) {
    FN(sum_column)(rows, (ons_tile){NULL, 0}, e, n, true);
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
    ons_rows one = *rows;
    for (int64_t j = 0; j < n; j++)
        FN(exp_row)(&one, (ons_tile){AT(e, j), 0}, (ons_tile){AT(x, j), 0}, rows->width);
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
