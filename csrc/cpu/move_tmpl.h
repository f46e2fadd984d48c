/* move_tmpl.h - elements from an array's type to the compute type and back, and what is done to
 * them on the way. Part of primitives_tmpl.h, whose parameters and names it uses. */

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
    T *x = tile, by = (T)*scale;
    if (each) {
        for (int64_t j = 0; j < n; j++) x[j] = ONS_PRODUCT(x[j], scale[j]);
    } else if ((double)by == *scale || isnan(*scale)) {
        for (int64_t j = 0; j < n; j++) x[j] *= by;
    } else {
        for (int64_t j = 0; j < n; j++) x[j] = ONS_PRODUCT(x[j], *scale);
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
    int64_t j = 0;
    for (; step == 1 && j + WIDTH <= n; j += WIDTH) V(store)
    (x + j, V(where)(where + j, V(load)(x + j), V(set)(instead)));
    for (; j < n; j++) x[j] = where[j * step] ? x[j] : instead;
}

/* What load, multiply and exclude do one after the other, at once: for elements that lie side by
 * side, a scale that is a T, and a mask of one byte an element, or none. */
static void FN(bring)(void *tile, const char *from, ons_dtype dtype, double scale,
                      const char *where, int64_t n) {
    T *x = tile;
    VEC by = V(set)((T)scale), out = V(set)((T)-INFINITY);
    int64_t size = ons_dtype_size(dtype), j = 0;
#define BRING(LOAD)                                               \
    for (; j + WIDTH <= n; j += WIDTH) {                          \
        VEC a = V(mul)(LOAD(from + j * size), by);                \
        V(store)(x + j, where ? V(where)(where + j, a, out) : a); \
    }
#define ELEMENTS(p) V(load)((const T *)(const void *)(p))
#if BITS == 32
    if (dtype == ONS_FLOAT16) BRING(V(load_half))
    if (dtype == ONS_BFLOAT16) BRING(V(load_bfloat))
#endif
    if (size == (int64_t)sizeof(T)) BRING(ELEMENTS)
#undef BRING
#undef ELEMENTS
    FN(load)(x + j, from + j * size, size, dtype, n - j);
    FN(multiply)(x + j, &scale, false, n - j);
    if (where) FN(exclude)(x + j, where + j, 1, -INFINITY, n - j);
}
