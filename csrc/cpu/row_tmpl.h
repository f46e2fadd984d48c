/* row_tmpl.h - the primitives on rows whose elements lie side by side, one row after the other:
 * what ends one row (a chain of a few long instructions) overlaps with what begins the next. Part
 * of primitives_tmpl.h, whose parameters and names it uses. */

#define ROW(tile, i) ((T *)((char *)(tile).data + (i) * (tile).across))
#define SET_OF(array, i) V(set)(((const T *)(array))[i])

static void FN(max_row)(const ons_rows *rows, ons_tile tile, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++) {
        const T *x = ROW(tile, i);
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
        double m = ons_larger(rows->state[i].m, (double)V(max_lanes)(V(max)(m0, m1)));
        rows->state[i].m = V(any_nan)(nans) ? NAN : m;
    }
}

/* One block of row i, from element `at` on, or the part of one that ends it: its exponentials are
 * stored where e is given, or taken from x as they are (`plain`), and their sum is returned. The
 * elements that a last block lacks count as 0, so that a lane's sum is the same whatever the form.
 */
INLINE double FN(block_row)(const ons_rows *rows, int64_t i, int64_t at, T *e, const T *x,
                            int64_t n, bool plain) {
    VEC shift = SET_OF(rows->shift, i), floor = SET_OF(rows->floor, i);
    const char *next = (const char *)ROW(rows->next, i) + at * rows->next.along;
    int64_t next_bytes = rows->next.data ? QUAD * rows->next.along : 0;
    VEC lanes[VECS];
    for (int64_t v = 0; v < VECS; v++) lanes[v] = V(set)(0);
    for (int64_t q = 0; q < n; q += QUAD) {
        for (int64_t line = 0; line < next_bytes; line += 64) __builtin_prefetch(next + line);
        next += next_bytes;
        for (int64_t v = 0; v < VECS; v++) {
            VEC four[4];
            for (int64_t k = 0; k < 4; k++) {
                int64_t j = q + k * LANES + v * WIDTH, left = n - j;
                if (left >= WIDTH) {
                    four[k] = V(load)(x + j);
                    if (!plain) four[k] = FN(exponential)(four[k], shift, floor);
                    if (e) V(store)(e + j, four[k]);
                } else if (left > 0) {
                    four[k] = V(load_part)(x + j, left);
                    if (!plain) four[k] = FN(exponential)(four[k], shift, floor);
                    if (e) V(store_part)(e + j, four[k], left);
                    four[k] = V(keep_part)(four[k], left);
                } else {
                    four[k] = V(set)(0);
                }
            }
            lanes[v] = V(add)(lanes[v], V(add)(V(add)(four[0], four[1]), V(add)(four[2], four[3])));
        }
    }
    return (plain ? 1.0 : LOWERED) * V(sum_lanes)(lanes);
}

INLINE void FN(sum_row)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n, bool plain) {
    for (int64_t i = 0; i < rows->width; i++) {
        ons_state state = rows->state[i];
        T *to = e.data ? ROW(e, i) : NULL;
        const T *from = ROW(x, i);
        for (int64_t j = 0; j < n; j += BLOCK) {
            T *block = to ? to + j : to;
            /* told apart for the compiler: a full block's length is a constant */
            double sum = n - j >= BLOCK ? FN(block_row)(rows, i, j, block, from + j, BLOCK, plain)
                                        : FN(block_row)(rows, i, j, block, from + j, n - j, plain);
            ons_state_add(&state, sum);
        }
        rows->state[i] = state;
    }
}

static void FN(sum_exp_row)(const ons_rows *rows, ons_tile x, int64_t n) {
    FN(sum_row)(rows, NO_TILE, x, n, false);
}

static void FN(exp_store_sum_row)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    FN(sum_row)(rows, e, x, n, false);
}

static void FN(sum_plain_row)(const ons_rows *rows, ons_tile e, int64_t n) {
    FN(sum_row)(rows, NO_TILE, e, n, true);
}

static void FN(finish_row)(const ons_rows *rows, ons_tile y, ons_tile x, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++) {
        VEC shift = SET_OF(rows->shift, i), floor = SET_OF(rows->floor, i);
        VEC factor = SET_OF(rows->factor, i), beyond = SET_OF(rows->factor_beyond, i);
#define BODY(a, j) V(times)(FN(exponential)(a, shift, floor), factor, beyond)
        EACH_VECTOR(ROW(y, i), ROW(x, i), n, BODY);
#undef BODY
    }
}

static void FN(scale_row)(const ons_rows *rows, ons_tile y, ons_tile e, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++) {
        VEC factor = SET_OF(rows->factor, i), beyond = SET_OF(rows->factor_beyond, i);
        T *to = ROW(y, i);
        const T *from = ROW(e, i);
        /* elements before the first aligned place: a store across two cache lines costs two */
        int64_t head = (int64_t)(-(uintptr_t)to % sizeof(VEC) / sizeof(T));
        if (head > n) head = n;
#define BODY(a, j) V(times)(a, factor, beyond)
        EACH_VECTOR(to, from, head, BODY);
        EACH_VECTOR(to + head, from + head, n - head, BODY);
#undef BODY
    }
}

static void FN(exp_row)(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++) {
#define BODY(a, j) FN(plain_exponential)(a)
        EACH_VECTOR(ROW(e, i), ROW(x, i), n, BODY);
#undef BODY
    }
}

static void FN(divide_row)(const ons_rows *rows, ons_tile y, ons_tile e, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++) {
        VEC d = V(set)((T)rows->state[i].d);
#define BODY(a, j) V(div)(a, d)
        EACH_VECTOR(ROW(y, i), ROW(e, i), n, BODY);
#undef BODY
    }
}
