/* gradient_tmpl.h - the primitives of the operations that take a gradient dy beside a row y: what
 * the row adds up (dy * y, or dy), and the results. Part of primitives_tmpl.h, whose parameters and
 * names it uses.
 *
 * A row's sum is taken in double. Of float elements a product is exact there. Of double elements it
 * is taken as two doubles, and so is the sum (Ogita, Rump and Oishi, Accurate sum and dot product,
 * algorithm 5.3): what is rounded on the way does not show in the results, however much cancels. */

/* A part of the sum for each lane of a vector, and what is to be added to it: a vector of dy, times
 * one of y where that is given. */
#if BITS == 32 && defined(F32_HAS_TERMS)
typedef f32_terms FN(terms);
INLINE FN(terms) FN(no_terms)(void) { return f32_no_terms(); }
INLINE void FN(add_terms)(FN(terms) * terms, const T *dy, const T *y) {
    f32_add_terms(terms, dy, y);
}
INLINE FN(wide) FN(joined)(const FN(terms) * terms) {
    FN(wide) all;
    f32_join_terms(all.part, terms);
    return all;
}
#else
typedef struct {
    FN(wide) d, low; /* low in float64 alone */
} FN(terms);
INLINE FN(terms) FN(no_terms)(void) { return (FN(terms)){FN(wide_zero)(), FN(wide_zero)()}; }
INLINE void FN(add_terms)(FN(terms) * terms, const T *dy, const T *y) {
    FN(wide) term = FN(widen)(V(load)(dy)), other = y ? FN(widen)(V(load)(y)) : term;
    EACH_PART {
        f64_vec *d = &terms->d.part[k], *low = &terms->low.part[k], a = term.part[k];
        if (BITS == 32) {
            *d = y ? f64_fma(a, other.part[k], *d) : f64_add(*d, a);
        } else {
            f64_vec product = y ? f64_mul(a, other.part[k]) : a;
            if (y) *low = f64_sub(*low, f64_rest(a, other.part[k], product));
            FN(two_sum)(d, low, product);
        }
    }
}
INLINE FN(wide) FN(joined)(const FN(terms) * terms) { return terms->d; }
#endif

/* The same of the first n elements of a vector. */
INLINE void FN(add_some_terms)(FN(terms) * terms, const T *dy, const T *y, int64_t n) {
    T some[WIDTH], others[WIDTH];
    V(store)(some, V(join)(V(load_part)(dy, n), V(set)(0), n));
    if (y) V(store)(others, V(join)(V(load_part)(y, n), V(set)(0), n));
    FN(add_terms)(terms, some, y ? others : y);
}

/* A row's sum goes into its state's d: the state of one whose m is 0. */
INLINE void FN(add_to_state)(ons_state *state, double d, double low) {
    state->m = state->c = 0.0;
    ons_state_add(state, d);
    state->d_low += low;
}

/* The sum of two vectors of a row's terms. */
INLINE void FN(end_gradient_row)(ons_state *state, FN(terms) * two) {
#if BITS == 32
    FN(wide) all = FN(wide_add)(FN(joined)(&two[0]), FN(joined)(&two[1]));
    f64_vec eight[FN(eight)];
    for (size_t k = 0; k < FN(eight); k++) eight[k] = k < PARTS ? all.part[k] : f64_set(0);
    for (size_t k = FN(eight); k < PARTS; k++) eight[0] = f64_add(eight[0], all.part[k]);
    FN(add_to_state)(state, f64_sum_eight(eight), 0);
#else
    double d[WIDTH], low[WIDTH];
    FN(add_term)(&two[0].d, &two[0].low, two[1].d);
    FN(wide_store)(d, two[0].d);
    FN(wide_store)(low, FN(wide_add)(two[0].low, two[1].low));
    for (int64_t l = 0; l < WIDTH; l++) FN(add_to_state)(state, d[l], low[l]);
#endif
}

/* Two vectors side by side, so that an addition seldom waits for the one before. */
INLINE void FN(add_gradient_row)(const ons_rows *rows, ons_tile dy, ons_tile y, int64_t n,
                                 bool products) {
    for (int64_t i = 0; i < rows->width; i++) {
        const T *first = ROW(dy, i), *second = ROW(y, i);
        FN(terms) two[2] = {FN(no_terms)(), FN(no_terms)()};
#define AT_Y(j) (products ? second + (j) : NULL)
        int64_t j = 0;
        for (; j + 2 * WIDTH <= n; j += 2 * WIDTH) {
            FN(add_terms)(&two[0], first + j, AT_Y(j));
            FN(add_terms)(&two[1], first + j + WIDTH, AT_Y(j + WIDTH));
        }
        if (j + WIDTH <= n) {
            FN(add_terms)(&two[0], first + j, AT_Y(j));
            j += WIDTH;
        }
        if (j < n) FN(add_some_terms)(&two[1], first + j, AT_Y(j), n - j);
#undef AT_Y
        FN(end_gradient_row)(&rows->state[i], two);
    }
}

INLINE void FN(add_gradient_column)(const ons_rows *rows, ons_tile dy, ons_tile y, int64_t n,
                                    bool products) {
    int64_t width = rows->width;
    for (int64_t i = 0; i < width; i += WIDTH) {
        int64_t left = width - i;
        FN(terms) terms = FN(no_terms)();
        for (int64_t j = 0; j < n; j++) {
            const T *first = AT(dy, j) + i, *second = products ? AT(y, j) + i : NULL;
            if (left >= WIDTH)
                FN(add_terms)(&terms, first, second);
            else
                FN(add_some_terms)(&terms, first, second, left);
        }
        double d[WIDTH], low[WIDTH] = {0};
        FN(wide_store)(d, FN(joined)(&terms));
#if BITS == 64
        FN(wide_store)(low, terms.low);
#endif
        for (int64_t l = 0; l < WIDTH && l < left; l++)
            FN(add_to_state)(&rows->state[i + l], d[l], low[l]);
    }
}

/* `first` gets the sums, `second` the scales. An infinite sum has rounded NaN away. */
static void FN(end_gradients)(const ons_rows *rows, const double *scale) {
    for (int64_t i = 0; i < rows->width; i++) {
        const ons_state *state = &rows->state[i];
        ((T *)rows->first)[i] = (T)(isfinite(state->d) ? state->d + state->d_low : state->d);
        ((T *)rows->second)[i] = (T)scale[i];
    }
}

INLINE VEC FN(gradient_element)(ons_operation operation, VEC dy, VEC y, VEC sum, VEC scale) {
    VEC dx = y;
    switch (operation) {
#define ONS_OPERATION(name, result, keeps, excluded, summary) \
    OF_GRADIENT_##result(case ONS_OPERATION_##name : dx = FN(name##_element)(dy, y, sum); break;)
#include "../../operations.def"
#undef ONS_OPERATION
    default: break;
    }
    return V(mul)(dx, scale);
}

/* dx may be dy or y. */
INLINE void FN(finish_gradient_row)(ons_operation operation, const ons_rows *rows, ons_tile dx,
                                    ons_tile dy, ons_tile y, int64_t n) {
    for (int64_t i = 0; i < rows->width; i++) {
        VEC sum = SET_OF(rows->first, i), scale = SET_OF(rows->second, i);
        T *to = ROW(dx, i);
        const T *given = ROW(dy, i), *from = ROW(y, i);
        bool past_caches = rows->past_caches && (uintptr_t)to % sizeof(T) == 0;
        bool pays = n >= 16 * WIDTH; /* to begin with a whole vector */
        int64_t j = past_caches ? FN(before_cache_line)(to, n) : pays ? FN(unaligned)(to, n) : 0;
#define LOAD_DY(j, left) ((left) >= WIDTH ? V(load)(given + (j)) : V(load_part)(given + (j), left))
#define BODY(a, j) FN(gradient_element)(operation, LOAD_DY(j, head - (j)), a, sum, scale)
        int64_t head = j;
        EACH_VECTOR(to, from, head, BODY);
        for (; j + 2 * WIDTH <= n; j += 2 * WIDTH) {
            VEC two[2];
            for (int64_t k = 0; k < 2; k++)
                two[k] = FN(gradient_element)(operation, V(load)(given + j + k * WIDTH),
                                              V(load)(from + j + k * WIDTH), sum, scale);
            for (int64_t k = 0; k < 2; k++)
                if (past_caches)
                    V(stream)(to + j + k * WIDTH, two[k]);
                else
                    V(store)(to + j + k * WIDTH, two[k]);
        }
        to += j;
        from += j;
        given += j;
        head = n - j;
        EACH_VECTOR(to, from, head, BODY);
#undef BODY
#undef LOAD_DY
    }
}

INLINE void FN(finish_gradient_column)(ons_operation operation, const ons_rows *rows, ons_tile dx,
                                       ons_tile dy, ons_tile y, int64_t n) {
    const T *sum = rows->first, *scale = rows->second;
    int64_t width = rows->width;
    for (int64_t j = 0; j < n; j++) {
        const T *given = AT(dy, j);
#define BODY(a, i)       \
    FN(gradient_element) \
    (operation, LOAD_AT(given, i, width), a, LOAD_AT(sum, i, width), LOAD_AT(scale, i, width))
        EACH_VECTOR(AT(dx, j), AT(y, j), width, BODY);
#undef BODY
    }
}
