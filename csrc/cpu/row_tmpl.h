/* row_tmpl.h - the primitives on one row, whose elements lie side by side.
 * Part of primitives_tmpl.h, whose parameters and names it uses. */

static void FN(max_row)(const ons_rows *rows, ons_tile tile, int64_t n) {
    const T *x = tile.data;
    VEC m0 = V(set)((T)-INFINITY), m1 = m0, nans = V(set)(0);
    int64_t j = 0;
    for (; j + 4 * WIDTH <= n; j += 4 * WIDTH) {
        VEC a = V(load)(x + j), b = V(load)(x + j + WIDTH);
        VEC c = V(load)(x + j + 2 * WIDTH), d = V(load)(x + j + 3 * WIDTH);
        m0 = V(max)(a, V(max)(c, m0));
        m1 = V(max)(b, V(max)(d, m1));
        nans = V(nan_or)(V(nan_or)(nans, a, b), c, d);
    }
    for (; j < n; j += WIDTH) {
        VEC a = n - j >= WIDTH ? V(load)(x + j) : V(load_part)(x + j, n - j);
        m0 = V(max)(a, m0);
        nans = V(nan_or)(nans, a, a);
    }
    double m = ons_larger(rows->state->m, (double)V(max_lanes)(V(max)(m0, m1)));
    rows->state->m = V(any_nan)(nans) ? NAN : m;
}

/* One block of a row, or the part of one that ends it: its exponentials are stored where e is
 * given, or taken from x as they are (`plain`), and their sum is returned. The elements that a last
 * block lacks count as 0, so that a lane's sum is the same whatever the form. */
INLINE double FN(block_row)(const ons_rows *rows, T *e, const T *x, int64_t n, bool plain) {
    VEC shift = V(set)(*(const T *)rows->shift), floor = V(set)(*(const T *)rows->floor);
    VEC lanes[VECS];
    for (int64_t v = 0; v < VECS; v++) lanes[v] = V(set)(0);
    for (int64_t q = 0; q < n; q += QUAD) {
        if (rows->ahead)
            for (int64_t line = 0; line < (int64_t)(QUAD * sizeof(T)); line += 64)
                __builtin_prefetch((const char *)(x + q) + rows->ahead + line);
        for (int64_t v = 0; v < VECS; v++) {
            VEC four[4];
            for (int64_t i = 0; i < 4; i++) {
                int64_t j = q + i * LANES + v * WIDTH, left = n - j;
                if (left >= WIDTH) {
                    four[i] = V(load)(x + j);
                    if (!plain) four[i] = FN(exponential)(four[i], shift, floor);
                    if (e) V(store)(e + j, four[i]);
                } else if (left > 0) {
                    four[i] = V(load_part)(x + j, left);
                    if (!plain) four[i] = FN(exponential)(four[i], shift, floor);
                    if (e) V(store_part)(e + j, four[i], left);
                    four[i] = V(keep_part)(four[i], left);
                } else {
                    four[i] = V(set)(0);
                }
            }
            lanes[v] = V(add)(lanes[v], V(add)(V(add)(four[0], four[1]), V(add)(four[2], four[3])));
        }
    }
    return (plain ? 1.0 : LOWERED) * V(sum_lanes)(lanes);
}

INLINE void FN(sum_row)(const ons_rows *rows, T *e, const T *x, int64_t n, bool plain) {
    ons_state state = *rows->state;
    int64_t j = 0;
    for (; j + BLOCK <= n; j += BLOCK)
        ons_state_add(&state, FN(block_row)(rows, e ? e + j : e, x + j, BLOCK, plain));
    if (j < n) ons_state_add(&state, FN(block_row)(rows, e ? e + j : e, x + j, n - j, plain));
    *rows->state = state;
}

static void FN(sum_exp_row)(const ons_rows *rows, ons_tile x, int64_t n) {
    FN(sum_row)(rows, NULL, x.data, n, false);
}

static void FN(exp_store_sum_row)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    FN(sum_row)(rows, e.data, x.data, n, false);
}

static void FN(sum_plain_row)(const ons_rows *rows, ons_tile e, int64_t n) {
    FN(sum_row)(rows, NULL, e.data, n, true);
}

static void FN(finish_row)(const ons_rows *rows, ons_tile y, ons_tile x, int64_t n) {
    VEC shift = V(set)(*(const T *)rows->shift), floor = V(set)(*(const T *)rows->floor);
    VEC factor = V(set)(*(const T *)rows->factor);
    VEC beyond = V(set)(*(const T *)rows->factor_beyond);
#define BODY(a, j) V(times)(FN(exponential)(a, shift, floor), factor, beyond)
    EACH_VECTOR((T *)y.data, (const T *)x.data, n, BODY);
#undef BODY
}

static void FN(scale_row)(const ons_rows *rows, ons_tile y, ons_tile e, int64_t n) {
    VEC factor = V(set)(*(const T *)rows->factor);
    VEC beyond = V(set)(*(const T *)rows->factor_beyond);
#define BODY(a, j) V(times)(a, factor, beyond)
    T *to = y.data;
    const T *from = e.data;
    if (rows->past_caches && (uintptr_t)to % sizeof(T) == 0) {
        int64_t head =
            (int64_t)(-(uintptr_t)to % sizeof(VEC) / sizeof(T)); /* up to an aligned place */
        if (head > n) head = n;
        EACH_VECTOR(to, from, head, BODY);
        EACH_VECTOR_STORED(to + head, from + head, n - head, BODY, stream);
    } else {
        EACH_VECTOR(to, from, n, BODY);
    }
#undef BODY
}

static void FN(exp_row)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    (void)rows;
#define BODY(a, j) FN(plain_exponential)(a)
    EACH_VECTOR((T *)e.data, (const T *)x.data, n, BODY);
#undef BODY
}

static void FN(divide_row)(const ons_rows *rows, ons_tile y, ons_tile e, int64_t n) {
    VEC d = V(set)((T)rows->state->d);
#define BODY(a, j) V(div)(a, d)
    EACH_VECTOR((T *)y.data, (const T *)e.data, n, BODY);
#undef BODY
}
