/* exponential_tmpl.h - e^x. Part of primitives_tmpl.h, whose parameters and names it uses.
 *
 * n = rint(STEPS * x * log2(e)) appears in the low bits of t = STEPS * x * log2(e) + shift, where
 * shift is MAGIC + STEPS * (LIFT - c). Then e^x = 2^(n / STEPS) * e^r with r = x - n * (ln2 /
 * STEPS), and the bits of t give the lifted exponential e^x * 2^(LIFT - c). Neither m nor an offset
 * of the row enters the rounding of e^r. What must hold:
 *
 *  - STEPS * |c| and |n| are below 2^(mantissa bits - 2), and r is small: ONS_LARGEST_REFERENCE
 * sees to it;
 *  - an element below the floor, which would be below half of the smallest subnormal once it is
 * multiplied by 2^-LIFT / d, becomes 0 at once: a product that underflows costs as much as a
 * hundred others. Its result is masked, or x is raised to the floor, where the bits of t make 2^(n
 * / STEPS) 0 (ONS_RAISED_BELOW; for double without vectors they do not, and such a row takes its
 * time).
 *
 * float takes eighths of a power of two from a table, which leaves a polynomial of degree 3, or
 * where a permutation reaches so many 32nds and degree 2; double takes whole powers and degree 11.
 * The constants: python benchmarks/fit_exp.py. */

/* Of `count` vectors, step by step side by side. */
INLINE void FN(exponentials_beside)(VEC *x, int64_t count, VEC shift, VEC floor) {
    VEC t[4], r[4], p[4];
#define EACH for (int64_t k = 0; k < count; k++)
    V(limited) limited[4];
    EACH limited[k] = V(limit)(&x[k], floor);
    EACH t[k] = V(fma)(x[k], V(set)((T)(STEPS * ONS_LOG2_E)), shift);
    EACH r[k] = V(sub)(t[k], shift); /* n */
#if BITS == 32
    EACH x[k] = V(fnma)(r[k], V(set)((T)(0x1.62e43p-1 / STEPS)), x[k]);
    EACH r[k] = V(fnma)(r[k], V(set)((T)(-0x1.05c61p-29 / STEPS)), x[k]);
    EACH t[k] = V(power)(t[k]);
#if F32_STEPS == 32
    EACH p[k] = V(fma)(V(set)((T)0x1.fffffcp-2), r[k], V(set)((T)0x1.0000fap+0));
#else
    EACH p[k] = V(fma)(V(set)((T)0x1.555658p-3), r[k], V(set)((T)0x1.00089ep-1));
    EACH p[k] = V(fma)(p[k], r[k], V(set)(1));
#endif
    EACH p[k] = V(mul)(p[k], r[k]); /* e^r - 1 */
    EACH x[k] = f32_fma_limited(limited[k], t[k], p[k], t[k]);
#else
    EACH x[k] = V(fnma)(r[k], V(set)((T)ONS_LN2_HIGH), x[k]);
    EACH r[k] = V(fnma)(r[k], V(set)((T)ONS_LN2_LOW), x[k]);
    EACH p[k] = V(set)(0);
#define TERM(a) EACH p[k] = V(fma)(p[k], r[k], V(set)((T)a));
    ONS_EXP_TERMS(TERM)
#undef TERM
    EACH p[k] = V(fma)(p[k], r[k], V(set)(1));
    EACH p[k] = V(fma)(p[k], r[k], V(set)(1));
    EACH x[k] = f64_shift(limited[k], p[k], t[k]);
#endif
#undef EACH
}

/* Of `count` vectors, as many side by side as there are registers for. */
INLINE void FN(exponential_each)(VEC *x, int64_t count, VEC shift, VEC floor) {
    int64_t beside = V(beside) < count ? V(beside) : count;
    for (int64_t k = 0; k < count; k += beside)
        FN(exponentials_beside)(x + k, beside, shift, floor);
}

INLINE VEC FN(exponential)(VEC x, VEC shift, VEC floor) {
    FN(exponentials_beside)(&x, 1, shift, floor);
    return x;
}

/* 1 / d in two parts, so that e / d is rounded once and an element alone in its row gives 1. NaN
 * where the row has no softmax. */
INLINE void FN(reciprocal)(T m, double d, double d_beyond, T *factor, T *beyond) {
    T nearest = (T)(LOWERED / (d + d_beyond));
    double rest = fma(-(double)nearest, d, LOWERED) - (double)nearest * d_beyond;
    *factor = isfinite(m) ? nearest : (T)NAN;
    *beyond = (T)(rest * (double)nearest * (1.0 / LOWERED));
}

static void FN(refer)(const ons_rows *rows) {
    for (int64_t i = 0; i < rows->width; i++) {
        double c = rows->state[i].c;
        ((T *)rows->shift)[i] = (T)(MAGIC + STEPS * (LIFT - c));
        ((T *)rows->floor)[i] = (T)((c - BELOW) / ONS_LOG2_E);
    }
}

static void FN(normalize)(const ons_rows *rows) {
    for (int64_t i = 0; i < rows->width; i++) {
        const ons_state *state = &rows->state[i];
        FN(reciprocal)
        ((T)state->m, state->d, state->d_beyond, (T *)rows->factor + i,
         (T *)rows->factor_beyond + i);
    }
}

/* e^x as it is, to inf and through the subnormals: e^x * 2^-h * 2^h with about half of the exponent
 * in h, so that nothing on the way leaves the normal numbers. The last addend carries NaN. */
INLINE VEC FN(plain_exponential)(VEC x) {
    const T largest = BITS == 32 ? 90 : 712, smallest = BITS == 32 ? -106 : -750;
    VEC zero = V(set)(0), inside = V(max)(V(set)(-largest), V(sub)(zero, x));
    inside = V(max)(V(set)(smallest), V(sub)(zero, inside));
    VEC magic = V(set)((T)MAGIC), h = V(fma)(inside, V(set)((T)(0.5 * ONS_LOG2_E)), magic);
    h = V(sub)(h, magic);
    VEC shift = V(fma)(h, V(set)(-STEPS), magic), least = V(set)(smallest);
    VEC low = FN(exponential)(inside, shift, least), t = V(fma)(h, V(set)(STEPS), magic);
#if BITS == 32
    VEC high = V(power)(t);
#else
    VEC high = f64_shift(V(limit)(&inside, least), V(set)(1), t);
#endif
    return V(fma)(low, high, V(mul)(inside, zero));
}
