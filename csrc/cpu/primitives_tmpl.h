/* primitives_tmpl.h - the primitives, written once over the vector vocabulary of simd_<isa>.h.
 *
 * Parameters, undefined at the end:
 *   BITS   32 or 64: the compute type, float or double
 *   ISA    scalar, avx2, ...: the names' suffix (left defined)
 *
 * The vocabulary, for BITS 32 (f64_ alike): f32_t the element, f32_vec with F32_WIDTH of them,
 * f32_set f32_load f32_store f32_load_part f32_store_part (the first k elements; the rest read as
 * -inf) f32_keep_part (the rest made 0) f32_add f32_sub f32_mul f32_div f32_max (the second operand
 * where either is NaN) f32_nan_or (remembers NaN) f32_any_nan f32_max_lanes f32_fma f32_fnma
 * f32_shift (p with the integer in the low bits of t added to its exponent) f32_sum_lanes (of
 * ONS_LANES_F32 lanes, in a fixed tree, in double).
 *
 * The exponential. n = rint(x * log2(e)) appears in the low bits of t = x * log2(e) + shift, where
 * shift is 1.5 * 2^(mantissa bits) - c + LIFT. Then e^x = 2^n * p(r), r = x - n * ln2, and adding n
 * - c + LIFT to the exponent of p gives the lifted exponential e^x * 2^(LIFT - c). What must hold:
 *   - |c| and |n| stay below 2^(mantissa bits - 2): ONS_LARGEST_REFERENCE sees to it;
 *   - n - c + LIFT + bias > 0, so that the lifted exponential is a normal number: `floor` sees to
 * it. An element at the floor is below half of the smallest subnormal after the factor 2^-LIFT / d:
 * 0. Neither m nor an offset of the row enters the rounding of p. The polynomials:
 * benchmarks/fit_exp.py. */

#if BITS == 32
#define ONS_TO_FLOAT(value) (value)
#else
#define ONS_TO_FLOAT(value) ons_double_to_odd_float(value)
#endif
#define INLINE static inline __attribute__((always_inline))
#define PASTE_(a, b, c, d) a##b##c##d
#define PASTE(a, b, c, d) PASTE_(a, b, c, d)
#define TYPE PASTE(f, BITS, , )
#define V(name) PASTE(TYPE, _, name, )
#define FN(name) PASTE(ons_, name, PASTE(_, TYPE, _, ), ISA)
#define T V(t)
#define VEC V(vec)

#define WIDTH ((int64_t)(sizeof(VEC) / sizeof(T)))
#define LANES (BITS == 32 ? (int64_t)ONS_LANES_F32 : (int64_t)ONS_LANES_F64)
#define VECS (LANES / WIDTH) /* vectors that hold the lanes */
#define QUAD (4 * LANES)     /* elements that each lane adds as (a + b) + (c + d) */
#define BLOCK (BITS == 32 ? (int64_t)ONS_BLOCK_F32 : (int64_t)ONS_BLOCK_F64)
#define LIFT (BITS == 32 ? 64 : 128)
#define LOWERED (BITS == 32 ? 0x1p-64 : 0x1p-128) /* 2^-LIFT */
#define MAGIC (BITS == 32 ? 0x1.8p23 : 0x1.8p52)  /* a sum with it has integer steps */

INLINE VEC FN(exponential)(VEC x, VEC shift, VEC floor) {
    x = V(max)(floor, x);
    VEC t = V(fma)(x, V(set)((T)ONS_LOG2_E), shift), n = V(sub)(t, shift), r, p;
    if (BITS == 32) {
        r = V(fnma)(n, V(set)((T)0x1.62e43p-1), x);
        r = V(fnma)(n, V(set)((T)-0x1.05c61p-29), r);
        p = V(set)((T)0x1.6a415ep-10);
        p = V(fma)(p, r, V(set)((T)0x1.1239c6p-7));
        p = V(fma)(p, r, V(set)((T)0x1.5558bcp-5));
        p = V(fma)(p, r, V(set)((T)0x1.555492p-3));
        p = V(fma)(p, r, V(set)((T)0x1.fffffcp-2));
    } else {
        /* the high part has 38 bits, so that n * high is exact without a fused multiply-add too */
        r = V(fnma)(n, V(set)((T)0x1.62e42fefap-1), x);
        r = V(fnma)(n, V(set)((T)0x1.cf79abc9e3b3ap-40), r);
        p = V(set)((T)0x1.ad904d4598856p-26);
        p = V(fma)(p, r, V(set)((T)0x1.28ae22b3993b5p-22));
        p = V(fma)(p, r, V(set)((T)0x1.71df1941f6232p-19));
        p = V(fma)(p, r, V(set)((T)0x1.a019994c63171p-16));
        p = V(fma)(p, r, V(set)((T)0x1.a01a0130e5a42p-13));
        p = V(fma)(p, r, V(set)((T)0x1.6c16c1847565cp-10));
        p = V(fma)(p, r, V(set)((T)0x1.1111111126267p-7));
        p = V(fma)(p, r, V(set)((T)0x1.55555555506e0p-5));
        p = V(fma)(p, r, V(set)((T)0x1.5555555555503p-3));
        p = V(fma)(p, r, V(set)((T)0x1.000000000000ap-1));
    }
    p = V(fma)(p, r, V(set)(1));
    p = V(fma)(p, r, V(set)(1));
    return V(shift)(p, t);
}

static void FN(refer)(const ons_rows *rows) {
    const double below = BITS == 32 ? 155.0 : 1081.0; /* 2^-below / d rounds to 0 */
    for (int64_t i = 0; i < rows->width; i++) {
        double c = rows->state[i].c;
        ((T *)rows->shift)[i] = (T)(MAGIC - c + LIFT);
        ((T *)rows->floor)[i] = (T)((c - below) / ONS_LOG2_E);
    }
}

static void FN(normalize)(const ons_rows *rows) {
    for (int64_t i = 0; i < rows->width; i++) {
        const ons_state *state = &rows->state[i];
        double lifted = LOWERED / (state->d + state->d_beyond);
        ((T *)rows->factor)[i] = isfinite(state->m) ? (T)lifted : (T)NAN;
    }
}

/* ------------------------------------------------ row form
 * ------------------------------------------------ */

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

/* The loop over a row's elements that the elementwise primitives share: BODY makes y of x. */
#define EACH_VECTOR(y, x, n, BODY)                          \
    do {                                                    \
        int64_t j_ = 0;                                     \
        for (; j_ + WIDTH <= (n); j_ += WIDTH) {            \
            VEC a = V(load)((x) + j_);                      \
            V(store)((y) + j_, BODY(a, j_));                \
        }                                                   \
        if (j_ < (n)) {                                     \
            VEC a = V(load_part)((x) + j_, (n) - j_);       \
            V(store_part)((y) + j_, BODY(a, j_), (n) - j_); \
        }                                                   \
    } while (0)

static void FN(finish_row)(const ons_rows *rows, ons_tile y, ons_tile x, int64_t n) {
    VEC shift = V(set)(*(const T *)rows->shift), floor = V(set)(*(const T *)rows->floor);
    VEC factor = V(set)(*(const T *)rows->factor);
#define BODY(a, j) V(mul)(FN(exponential)(a, shift, floor), factor)
    EACH_VECTOR((T *)y.data, (const T *)x.data, n, BODY);
#undef BODY
}

static void FN(scale_row)(const ons_rows *rows, ons_tile y, ons_tile e, int64_t n) {
    VEC factor = V(set)(*(const T *)rows->factor);
#define BODY(a, j) V(mul)(a, factor)
    EACH_VECTOR((T *)y.data, (const T *)e.data, n, BODY);
#undef BODY
}

/* ------------------------------------------------ column form
 * --------------------------------------------- */

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
    const T *shift = rows->shift, *floor = rows->floor, *factor = rows->factor;
    for (int64_t j = 0; j < n; j++) {
#define BODY(a, i)                                                                       \
    V(mul)                                                                               \
    (FN(exponential)(a, LOAD_AT(shift, i, rows->width), LOAD_AT(floor, i, rows->width)), \
     LOAD_AT(factor, i, rows->width))
        EACH_VECTOR(AT(y, j), AT(x, j), rows->width, BODY);
#undef BODY
    }
}

static void FN(scale_column)(const ons_rows *rows, ons_tile y, ons_tile e, int64_t n) {
    const T *factor = rows->factor;
    for (int64_t j = 0; j < n; j++) {
#define BODY(a, i) V(mul)(a, LOAD_AT(factor, i, rows->width))
        EACH_VECTOR(AT(y, j), AT(e, j), rows->width, BODY);
#undef BODY
    }
}

/* ------------------------------------------------ naive, both forms
 * --------------------------------------- */

/* e^x as it is, to inf and through the subnormals: (e^(x/2))^2, so that no power of two on the way
 * leaves the normal numbers. The last addend carries NaN. */
INLINE VEC FN(plain_exponential)(VEC x) {
    const T largest = BITS == 32 ? 90 : 712, smallest = BITS == 32 ? -106 : -750;
    VEC zero = V(set)(0), inside = V(max)(V(set)(-largest), V(sub)(zero, x));
    inside = V(max)(V(set)(smallest), V(sub)(zero, inside));
    VEC root = FN(exponential)(V(mul)(inside, V(set)((T)0.5)), V(set)((T)MAGIC), V(set)(smallest));
    return V(fma)(root, root, V(mul)(inside, zero));
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

/* ------------------------------------------------ movers
 * -------------------------------------------------- */

/* The elements of an array `step` bytes apart, by the conversion that CONVERT is. */
#define EACH_ELEMENT(stored, address, CONVERT)                  \
    for (; j < n; j++) {                                        \
        stored element;                                         \
        memcpy(&element, (address) + j * step, sizeof element); \
        CONVERT;                                                \
    }

static void FN(load)(void *tile, const char *from, int64_t step, ons_dtype dtype, int64_t n) {
    T *x = tile;
    int64_t j = 0;
    switch (dtype) {
    case ONS_FLOAT16:
#if BITS == 32
        if (step == 2)
            for (; j + WIDTH <= n; j += WIDTH) V(store)(x + j, V(load_half)(from + 2 * j));
#endif
        EACH_ELEMENT(uint16_t, from, x[j] = (T)ons_half_to_float(element))
        break;
    case ONS_BFLOAT16:
#if BITS == 32
        if (step == 2)
            for (; j + WIDTH <= n; j += WIDTH) V(store)(x + j, V(load_bfloat)(from + 2 * j));
#endif
        EACH_ELEMENT(uint16_t, from, x[j] = (T)ons_bfloat_to_float(element))
        break;
    case ONS_FLOAT32:
        if (BITS == 32 && step == 4) {
            memcpy(x, from, (size_t)(4 * n));
            break;
        }
        EACH_ELEMENT(float, from, x[j] = (T)element)
        break;
    default:
        if (BITS == 64 && step == 8) {
            memcpy(x, from, (size_t)(8 * n));
            break;
        }
        EACH_ELEMENT(double, from, x[j] = (T)element)
    }
}

#undef EACH_ELEMENT
#define EACH_ELEMENT(stored, VALUE)                      \
    for (; j < n; j++) {                                 \
        stored element = VALUE;                          \
        memcpy(to + j * step, &element, sizeof element); \
    }

static void FN(store)(char *to, int64_t step, ons_dtype dtype, const void *tile, int64_t n) {
    const T *y = tile;
    int64_t j = 0;
    switch (dtype) {
    case ONS_FLOAT16:
#if BITS == 32
        if (step == 2)
            for (; j + WIDTH <= n; j += WIDTH) V(store_half)(to + 2 * j, V(load)(y + j));
#endif
        EACH_ELEMENT(uint16_t, ons_float_to_half(ONS_TO_FLOAT(y[j])))
        break;
    case ONS_BFLOAT16:
#if BITS == 32
        if (step == 2)
            for (; j + WIDTH <= n; j += WIDTH) V(store_bfloat)(to + 2 * j, V(load)(y + j));
#endif
        EACH_ELEMENT(uint16_t, ons_float_to_bfloat(ONS_TO_FLOAT(y[j])))
        break;
    case ONS_FLOAT32:
        if (BITS == 32 && step == 4) {
            memcpy(to, y, (size_t)(4 * n));
            break;
        }
        EACH_ELEMENT(float, (float)y[j])
        break;
    default:
        if (BITS == 64 && step == 8) {
            memcpy(to, y, (size_t)(8 * n));
            break;
        }
        EACH_ELEMENT(double, (double)y[j])
    }
}

static void FN(multiply)(void *tile, const double *scale, bool each, int64_t n) {
    T *x = tile;
    if (each) {
        for (int64_t j = 0; j < n; j++) x[j] = (T)((double)x[j] * scale[j]);
    } else if ((double)(T)*scale == *scale || isnan(*scale)) {
        T by = (T)*scale;
        for (int64_t j = 0; j < n; j++) x[j] *= by;
    } else { /* rounded once: in double, where the scale is not a number of the type */
        double by = *scale;
        for (int64_t j = 0; j < n; j++) x[j] = (T)((double)x[j] * by);
    }
}

static void FN(subtract)(void *tile, const double *anchor, bool each, int64_t n) {
    T *x = tile;
    if (each) {
        for (int64_t j = 0; j < n; j++) x[j] -= (T)anchor[j];
    } else {
        T by = (T)*anchor;
        for (int64_t j = 0; j < n; j++) x[j] -= by;
    }
}

static void FN(exclude)(void *tile, const char *where, int64_t step, double value, int64_t n) {
    T *x = tile, instead = (T)value;
    if (step == 1) {
        for (int64_t j = 0; j < n; j++) x[j] = where[j] ? x[j] : instead;
    } else {
        for (int64_t j = 0; j < n; j++) x[j] = where[j * step] ? x[j] : instead;
    }
}

static const ons_kernels FN(kernels) = {
    .row = {FN(max_row), FN(refer), FN(sum_exp_row), FN(exp_store_sum_row), FN(normalize),
            FN(finish_row), FN(scale_row), FN(exp_row), FN(sum_plain_row), FN(divide_row)},
    .column = {FN(max_column), FN(refer), FN(sum_exp_column), FN(exp_store_sum_column),
               FN(normalize), FN(finish_column), FN(scale_column), FN(exp_column),
               FN(sum_plain_column), FN(divide_column)},
    .move = {FN(load), FN(store), FN(multiply), FN(subtract), FN(exclude)},
    .block = BLOCK,
};

#undef INLINE
#undef PASTE_
#undef PASTE
#undef TYPE
#undef V
#undef FN
#undef T
#undef VEC
#undef WIDTH
#undef LANES
#undef VECS
#undef QUAD
#undef BLOCK
#undef LIFT
#undef LOWERED
#undef MAGIC
#undef EACH_VECTOR
#undef AT
#undef LOAD_AT
#undef STORE_AT
#undef EACH_ELEMENT
#undef ONS_TO_FLOAT
#undef BITS
