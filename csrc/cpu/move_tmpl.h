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
