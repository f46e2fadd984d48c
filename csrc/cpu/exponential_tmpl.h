/* exponential_tmpl.h - e^x. Part of primitives_tmpl.h, whose parameters and names it uses.
 *
 * n = rint(STEPS * x * log2(e)) appears in the low bits of t = STEPS * x * log2(e) + shift, where
 * shift is MAGIC + STEPS * (LIFT - c). Then e^x = 2^(n / STEPS) * e^r with r = x - n * (ln2 /
 * STEPS), and the bits of t give the lifted exponential e^x * 2^(LIFT - c). Neither m nor an offset
 * of the row enters the rounding of e^r. What must hold:
 *
 *  - STEPS * |c| and |n| are below 2^(mantissa bits - 2), and r is small: ONS_LARGEST_REFERENCE
 * sees to it;
 *  - the lifted exponential is a normal number: `floor` sees to it. An element at the floor is
 * below half of the smallest subnormal once it is multiplied by 2^-LIFT / d, and so becomes 0.
 *
 * float takes eighths of a power of two from a table, which leaves a polynomial of degree 3; double
 * takes whole powers and degree 11. The constants: python benchmarks/fit_exp.py. */

INLINE VEC FN(exponential)(VEC x, VEC shift, VEC floor) {
    x = V(max)(floor, x);
    VEC t = V(fma)(x, V(set)((T)(STEPS * ONS_LOG2_E)), shift), n = V(sub)(t, shift), r, p;
#if BITS == 32
    r = V(fnma)(n, V(set)((T)0x1.62e43p-4), x);
    r = V(fnma)(n, V(set)((T)-0x1.05c61p-32), r);
    p = V(fma)(V(set)((T)0x1.555658p-3), r, V(set)((T)0x1.00089ep-1));
    p = V(mul)(V(fma)(p, r, V(set)(1)), r); /* e^r - 1 */
    VEC power = V(power)(t);
    return V(fma)(power, p, power);
#else
    r = V(fnma)(n, V(set)((T)ONS_LN2_HIGH), x);
    r = V(fnma)(n, V(set)((T)ONS_LN2_LOW), r);
    p = V(set)(0);
#define TERM(a) p = V(fma)(p, r, V(set)((T)a));
    ONS_EXP_TERMS(TERM)
#undef TERM
    p = V(fma)(p, r, V(set)(1));
    return V(shift)(V(fma)(p, r, V(set)(1)), t);
#endif
}

static void FN(refer)(const ons_rows *rows) {
    const double below = BITS == 32 ? 155.0 : 1081.0; /* 2^-below / d rounds to 0 */
    for (int64_t i = 0; i < rows->width; i++) {
        double c = rows->state[i].c;
        ((T *)rows->shift)[i] = (T)(MAGIC + STEPS * (LIFT - c));
        ((T *)rows->floor)[i] = (T)((c - below) / ONS_LOG2_E);
    }
}

/* 1 / d in two parts, so that e / d is rounded once and an element alone in its row gives 1. */
static void FN(normalize)(const ons_rows *rows) {
    for (int64_t i = 0; i < rows->width; i++) {
        const ons_state *state = &rows->state[i];
        T factor = (T)(LOWERED / (state->d + state->d_beyond));
        double rest = fma(-(double)factor, state->d, LOWERED) - (double)factor * state->d_beyond;
        ((T *)rows->factor)[i] = isfinite(state->m) ? factor : (T)NAN;
        ((T *)rows->factor_beyond)[i] = (T)(rest * (double)factor * (1.0 / LOWERED));
    }
}

/* e^x as it is, to inf and through the subnormals: (e^(x/2))^2, so that no power of two on the way
 * leaves the normal numbers. The last addend carries NaN. */
INLINE VEC FN(plain_exponential)(VEC x) {
    const T largest = BITS == 32 ? 90 : 712, smallest = BITS == 32 ? -106 : -750;
    VEC zero = V(set)(0), inside = V(max)(V(set)(-largest), V(sub)(zero, x));
    inside = V(max)(V(set)(smallest), V(sub)(zero, inside));
    VEC root = FN(exponential)(V(mul)(inside, V(set)((T)0.5)), V(set)((T)MAGIC), V(set)(smallest));
    return V(fma)(root, root, V(mul)(inside, zero));
}
