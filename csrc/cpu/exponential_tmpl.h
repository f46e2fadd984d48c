/* exponential_tmpl.h - e^x. Part of primitives_tmpl.h, whose parameters and names it uses.
 *
 * n = rint(x * log2(e)) appears in the low bits of t = x * log2(e) + shift, where shift is MAGIC -
 * c + LIFT. Then e^x = 2^n * p(r) with r = x - n * ln2, and adding n - c + LIFT to the exponent of
 * p gives the lifted exponential e^x * 2^(LIFT - c). Neither m nor an offset of the row enters the
 * rounding of p. What must hold:
 *
 *  - |c| and |n| are below 2^(mantissa bits - 2), and r is small: ONS_LARGEST_REFERENCE sees to it;
 *  - the lifted exponential is a normal number: `floor` sees to it. An element at the floor is
 * below half of the smallest subnormal once it is multiplied by 2^-LIFT / d, and so becomes 0.
 *
 * The polynomials: python benchmarks/fit_exp.py. */

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

/* e^x as it is, to inf and through the subnormals: (e^(x/2))^2, so that no power of two on the way
 * leaves the normal numbers. The last addend carries NaN. */
INLINE VEC FN(plain_exponential)(VEC x) {
    const T largest = BITS == 32 ? 90 : 712, smallest = BITS == 32 ? -106 : -750;
    VEC zero = V(set)(0), inside = V(max)(V(set)(-largest), V(sub)(zero, x));
    inside = V(max)(V(set)(smallest), V(sub)(zero, inside));
    VEC root = FN(exponential)(V(mul)(inside, V(set)((T)0.5)), V(set)((T)MAGIC), V(set)(smallest));
    return V(fma)(root, root, V(mul)(inside, zero));
}
