/* move.h - moves elements between an array's type and the compute type, and changes them on the
 * way. */
#ifndef ONS_CPU_KERNEL_MOVE_H
#define ONS_CPU_KERNEL_MOVE_H

#include "vectors.h"

/* Converts the elements of an array by CONVERT. They are `step` bytes apart. */
#define EACH_ELEMENT(stored, address, CONVERT)                  \
    for (; j < n; j++) {                                        \
        stored element;                                         \
        memcpy(&element, (address) + j * step, sizeof element); \
        CONVERT;                                                \
    }

/* Element j of a tile. A tile in the caller's memory may have any alignment. */
ONS_ALWAYS T get_element(const T *tile, int64_t j) {
    T value;
    memcpy(&value, tile + j, sizeof value);
    return value;
}
ONS_ALWAYS void set_element(T *tile, int64_t j, T value) { memcpy(tile + j, &value, sizeof value); }

static void load(void *tile, const char *from, int64_t step, ons_dtype dtype, int64_t n) {
    T *x = tile;
    int64_t j = 0;
    switch (dtype) {
    case ONS_FLOAT16:
#if BITS == 32
        if (step == 2)
            for (; j + WIDTH <= n; j += WIDTH) V(store)(x + j, V(load_half)(from + 2 * j));
#endif
        EACH_ELEMENT(uint16_t, from, set_element(x, j, (T)ons_half_to_float(element)))
        break;
    case ONS_BFLOAT16:
#if BITS == 32
        if (step == 2)
            for (; j + WIDTH <= n; j += WIDTH) V(store)(x + j, V(load_bfloat)(from + 2 * j));
#endif
        EACH_ELEMENT(uint16_t, from, set_element(x, j, (T)ons_bfloat_to_float(element)))
        break;
    case ONS_FLOAT32:
        if (BITS == 32 && step == 4) {
            memcpy(x, from, (size_t)(4 * n));
            break;
        }
        EACH_ELEMENT(float, from, set_element(x, j, (T)element))
        break;
    default:
        if (BITS == 64 && step == 8) {
            memcpy(x, from, (size_t)(8 * n));
            break;
        }
        EACH_ELEMENT(double, from, set_element(x, j, (T)element))
    }
}

#undef EACH_ELEMENT
#define EACH_ELEMENT(stored, VALUE)                      \
    for (; j < n; j++) {                                 \
        stored element = VALUE;                          \
        memcpy(to + j * step, &element, sizeof element); \
    }

static void store(char *to, int64_t step, ons_dtype dtype, const void *tile, int64_t n) {
    const T *y = tile;
    int64_t j = 0;
    switch (dtype) {
    case ONS_FLOAT16:
#if BITS == 32
        if (step == 2)
            for (; j + WIDTH <= n; j += WIDTH) V(store_half)(to + 2 * j, V(load)(y + j));
#endif
        EACH_ELEMENT(uint16_t, ons_float_to_half(ONS_TO_FLOAT(get_element(y, j))))
        break;
    case ONS_BFLOAT16:
#if BITS == 32
        if (step == 2)
            for (; j + WIDTH <= n; j += WIDTH) V(store_bfloat)(to + 2 * j, V(load)(y + j));
#endif
        EACH_ELEMENT(uint16_t, ons_float_to_bfloat(ONS_TO_FLOAT(get_element(y, j))))
        break;
    case ONS_FLOAT32:
        if (BITS == 32 && step == 4) {
            memcpy(to, y, (size_t)(4 * n));
            break;
        }
        EACH_ELEMENT(float, (float)get_element(y, j))
        break;
    default:
        if (BITS == 64 && step == 8) {
            memcpy(to, y, (size_t)(8 * n));
            break;
        }
        EACH_ELEMENT(double, (double)get_element(y, j))
    }
}

static void multiply(void *tile, const double *scale, bool each, int64_t n) {
    T *x = tile, by = (T)*scale;
    if (each) {
        for (int64_t j = 0; j < n; j++) x[j] = ONS_PRODUCT(x[j], scale[j]);
    } else if ((double)by == *scale || isnan(*scale)) {
        for (int64_t j = 0; j < n; j++) x[j] *= by;
    } else {
        for (int64_t j = 0; j < n; j++) x[j] = ONS_PRODUCT(x[j], *scale);
    }
}

static void subtract(void *tile, const double *anchor, bool each, int64_t n) {
    T *x = tile;
    if (each) {
        for (int64_t j = 0; j < n; j++) x[j] -= (T)anchor[j];
    } else {
        T by = (T)*anchor;
        for (int64_t j = 0; j < n; j++) x[j] -= by;
    }
}

static void exclude(void *tile, ons_mask where, double value, int64_t n) {
    T *x = tile, instead = (T)value;
    int64_t j = 0;
    for (; where.step == 1 && j + WIDTH <= n; j += WIDTH)
        V(store)(x + j, V(where)(where.data + j, V(load)(x + j), V(set)(instead)));
    for (; j < n; j++) x[j] = where.data[j * where.step] ? x[j] : instead;
}

/* Vectors of an array of type `as`, the compute type or a 16-bit type; `as` is a constant in every
 * caller. A part is the first k elements, and the rest is -inf. */
ONS_ALWAYS int64_t size_as(ons_dtype as) {
    return as == ONS_FLOAT16 || as == ONS_BFLOAT16 ? 2 : (int64_t)sizeof(T);
}

ONS_ALWAYS VEC take(const char *x, ons_dtype as) {
#if BITS == 32
    if (as == ONS_FLOAT16) return V(load_half)(x);
    if (as == ONS_BFLOAT16) return V(load_bfloat)(x);
#endif
    (void)as;
    return V(load)((const T *)(const void *)x);
}

ONS_ALWAYS VEC take_part(const char *x, int64_t k, ons_dtype as) {
    if (size_as(as) != 2) return V(load_part)((const T *)(const void *)x, k);
    T part[WIDTH];
    V(store)(part, V(set)((T)-INFINITY));
    load(part, x, 2, as, k);
    return V(load)(part);
}

/* Whether a T holds the scale. */
ONS_ALWAYS bool is_exact(double scale) {
    return BITS == 64 || (double)(float)scale == scale || isnan(scale);
}

/* Converts a vector: multiplied by the scale and rounded once (`exact`: a T holds the scale), and
 * -inf where the mask is 0. */
ONS_ALWAYS VEC changed(const char *x, ons_dtype as, ons_change by, bool exact) {
    VEC a;
#if BITS == 32
    if (!exact) {
        T taken[WIDTH];
        bool own = as == OWN;
        if (!own) V(store)(taken, take(x, as));
        a = V(product)(own ? (const T *)(const void *)x : taken, by.scale);
    } else
#endif
    {
        (void)exact;
        a = take(x, as) * V(set)((T)by.scale);
    }
    const char *where = by.where.data;
    return where ? V(where)(where, a, V(set)((T)-INFINITY)) : a;
}

/* Converts n elements that lie side by side, of the compute type or one of 16 bits. */
ONS_ALWAYS void convert_segment(T *to, const char *from, ons_dtype as, ons_change by, bool exact,
                                int64_t n) {
    int64_t size = size_as(as), j = 0;
    const char *where = by.where.data;
    for (; j + WIDTH <= n; j += WIDTH) {
        if (where) by.where.data = where + j;
        V(store)(to + j, changed(from + j * size, as, by, exact));
    }
    if (j >= n) return;
    T last[WIDTH];
    char mask[WIDTH];
    V(store)(last, take_part(from + j * size, n - j, as));
    if (where) by.where.data = memcpy(mask, where + j, (size_t)(n - j));
    V(store_part)(to + j, changed((const char *)last, OWN, by, exact), n - j);
}

/* Whether V(product) handles the scale: at least 26 of its bits matter. */
ONS_ALWAYS bool is_long(double scale) {
    uint64_t bits;
    memcpy(&bits, &scale, sizeof bits);
    return (bits & 0xfffffff) != 0;
}

/* load, multiply and exclude in one. */
static void convert(void *tile, const char *from, int64_t step, ons_dtype dtype, ons_change by,
                    int64_t n) {
    T *x = tile;
    bool exact = is_exact(by.scale), masked = by.where.data != NULL;
    bool side_by_side = step == ons_dtype_size(dtype) && (!masked || by.where.step == 1);
    ons_change scaled = {by.scale, {NULL, 0}};
#define CONVERT_FROM(as)                                                 \
    if (side_by_side && dtype == (as) && (exact || is_long(by.scale))) { \
        if (exact && masked)                                             \
            convert_segment(x, from, as, by, true, n);                   \
        else if (exact)                                                  \
            convert_segment(x, from, as, scaled, true, n);               \
        else if (masked)                                                 \
            convert_segment(x, from, as, by, false, n);                  \
        else                                                             \
            convert_segment(x, from, as, scaled, false, n);              \
        return;                                                          \
    }
#if BITS == 32
    CONVERT_FROM(ONS_FLOAT16)
    CONVERT_FROM(ONS_BFLOAT16)
#endif
    CONVERT_FROM(OWN)
#undef CONVERT_FROM
    load(x, from, step, dtype, n);
    if (by.scale != 1.0) multiply(x, &by.scale, false, n);
    if (masked) exclude(x, by.where, -INFINITY, n);
}

#endif
