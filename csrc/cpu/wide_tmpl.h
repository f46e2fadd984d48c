/* wide_tmpl.h - sums in double, one for each lane of a vector: several vectors where the compute
 * type is float. They are lifted, as the exponentials are (exponential_tmpl.h): by a power of two,
 * which does not show. Part of primitives_tmpl.h, whose parameters and names it uses. */

#define PARTS (WIDTH * sizeof(double) / sizeof(f64_vec))
#define EACH_PART for (size_t k = 0; k < PARTS; k++)
typedef struct {
    f64_vec part[PARTS];
} FN(wide);

INLINE FN(wide) FN(widen)(VEC a) {
    FN(wide) wide;
    V(widen)(wide.part, a);
    return wide;
}

/* Doubles as vectors of T: the nearest ones; and whether any of them is not that. */
INLINE VEC FN(narrow_at)(const double *p, bool *differ) {
    FN(wide) all;
    EACH_PART all.part[k] = f64_load(p + k * (WIDTH / PARTS));
    VEC nearest = V(narrow)(all.part);
    FN(wide) back = FN(widen)(nearest);
    *differ = false;
    EACH_PART *differ |= f64_any_beyond(f64_sub(all.part[k], back.part[k]), f64_set(0));
    return nearest;
}

INLINE FN(wide) FN(wide_zero)(void) { return FN(widen)(V(set)(0)); }

INLINE FN(wide) FN(wide_add)(FN(wide) a, FN(wide) b) {
    EACH_PART a.part[k] = f64_add(a.part[k], b.part[k]);
    return a;
}

/* d += term, and what that rounds away to d_beyond: as ons_state_add. */
INLINE void FN(add_term)(FN(wide) * d, FN(wide) * d_beyond, FN(wide) term) {
    EACH_PART {
        f64_vec sum = f64_add(d->part[k], term.part[k]), other = f64_sub(sum, d->part[k]);
        f64_vec of_d = f64_sub(d->part[k], f64_sub(sum, other));
        f64_vec of_term = f64_sub(term.part[k], other);
        d_beyond->part[k] = f64_add(d_beyond->part[k], f64_add(of_d, of_term));
        d->part[k] = sum;
    }
}

/* The sum, in the fixed tree of V(sum_lanes), of lanes that are a vector each, `pitch` elements
 * apart, one a column: lane l of `count` elements, at most 2 * LANES, is element l and element
 * l + LANES. What is not there would add 0. */
INLINE FN(wide) FN(lane)(const T *e, int64_t pitch, int64_t l, int64_t count) {
    VEC lane = V(load)(e + l * pitch);
    if (l + LANES < count) lane = V(add)(lane, V(load)(e + (l + LANES) * pitch));
    return FN(widen)(lane);
}
#define SUM_OF(n, of_half, half)                                                             \
    INLINE FN(wide) FN(sum_of_##n)(const T *e, int64_t pitch, int64_t l, int64_t count) {    \
        FN(wide) sum = FN(of_half)(e, pitch, l, count);                                      \
        int64_t other = l + (half);                                                          \
        return other < count ? FN(wide_add)(sum, FN(of_half)(e, pitch, other, count)) : sum; \
    }
SUM_OF(2, lane, LANES / 2)
SUM_OF(4, sum_of_2, LANES / 4)
SUM_OF(8, sum_of_4, LANES / 8)
#if BITS == 32
SUM_OF(16, sum_of_8, LANES / 16)
#endif
#undef SUM_OF
INLINE FN(wide) FN(sum_columns)(const T *e, int64_t pitch, int64_t count) {
    if (count == 0) return FN(wide_zero)();
#if BITS == 32
    return FN(sum_of_16)(e, pitch, 0, count);
#else
    return FN(sum_of_8)(e, pitch, 0, count);
#endif
}

/* 1 / d in two parts, as FN(reciprocal): NaN where m is not finite. `d_beyond`: what d rounded
 * away, or NULL. */
INLINE void FN(inverse)(FN(wide) d, const FN(wide) * d_beyond, VEC m, T *factor, T *beyond) {
    FN(wide) quotient, rest;
    f64_vec one = f64_set(1);
    EACH_PART {
        f64_vec all = d_beyond ? f64_add(d.part[k], d_beyond->part[k]) : d.part[k];
        quotient.part[k] = f64_div(one, all);
    }
    VEC nearest = V(narrow)(quotient.part), none = V(sub)(m, m); /* NaN, or 0 */
    FN(wide) by = FN(widen)(nearest);
    EACH_PART {
        rest.part[k] = f64_rest(by.part[k], d.part[k]);
        if (d_beyond) rest.part[k] = f64_sub(rest.part[k], f64_mul(by.part[k], d_beyond->part[k]));
        rest.part[k] = f64_mul(rest.part[k], by.part[k]);
    }
    V(store)(factor, V(add)(nearest, none));
    V(store)(beyond, V(narrow)(rest.part));
}
#undef EACH_PART
#undef PARTS
