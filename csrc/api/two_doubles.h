/* two_doubles.h - a number as the unevaluated sum of two doubles, which has about 106 bits: sums,
 * products and e^x. If one double cannot decide a result of method="exact", two doubles decide it
 * (rounding.h).
 *
 * It is a template. Without ONS_TWO it defines ons_two, a pair of doubles, and ons_two_sum and so
 * on. With ONS_TWO(name) it defines the same for pairs of vectors of doubles
 * (cpu/kernel/rounded.h):
 *
 *   ONS_TWO_PAIR, ONS_TWO_REAL     the pair, and its halves' type, with C's operators
 *   ONS_TWO_SET, ONS_TWO_FMA       a constant; a * b + c, rounded once
 *   ONS_TWO_TIMES                  a product that the compiler does not fuse with a sum
 *   ONS_TWO_POWER(t)               2^n from t = n + 1.5 * 2^52 + 1023
 *   ONS_TWO_INLINE                 how its functions are declared
 *   ONS_TWO_CALLED                 the same, for long functions
 *
 * sum and product are exact (Knuth; Dekker, Numer. Math. 18, 1971; with fma). The other functions
 * lose at most 2^-102 of their result (Joldes, Muller and Popescu, ACM TOMS 44, 2017). */
#ifndef ONS_TWO
#define ONS_TWO_DEFAULT
#include "state.h"

#define ONS_TWO(name) ons_two_##name
#define ONS_TWO_PAIR ons_two
#define ONS_TWO_REAL double
#define ONS_TWO_SET(a) (a)
#ifdef __CUDA_ARCH__
#define ONS_TWO_TIMES __dmul_rn
#else
#define ONS_TWO_TIMES(a, b) ((a) * (b))
#endif
#define ONS_TWO_FMA fma
#define ONS_TWO_POWER(t) ldexp(1.0, (int)((t) - (0x1.8p52 + 1023)))
#define ONS_TWO_INLINE ONS_INLINE
#ifdef __CUDACC__ /* each kernel has a copy of what it inlines */
#define ONS_TWO_CALLED static __host__ __device__ __noinline__
#else
#define ONS_TWO_CALLED ONS_INLINE
#endif
#endif
#ifndef ONS_TWO_CALLED
#define ONS_TWO_CALLED ONS_TWO_INLINE
#endif

typedef struct {
    ONS_TWO_REAL high, low; /* |low| is at most half a unit in the last place of high */
} ONS_TWO_PAIR;

ONS_TWO_INLINE ONS_TWO_PAIR ONS_TWO(sum)(ONS_TWO_REAL a, ONS_TWO_REAL b) {
    const ONS_TWO_REAL sum = a + b, part = sum - a;
    const ONS_TWO_PAIR exact = {sum, (a - (sum - part)) + (b - part)};
    return exact;
}
/* The exact sum, for |a| >= |b| or a = 0. */
ONS_TWO_INLINE ONS_TWO_PAIR ONS_TWO(fast_sum)(ONS_TWO_REAL a, ONS_TWO_REAL b) {
    const ONS_TWO_REAL sum = a + b;
    const ONS_TWO_PAIR exact = {sum, b - (sum - a)};
    return exact;
}
ONS_TWO_INLINE ONS_TWO_PAIR ONS_TWO(product)(ONS_TWO_REAL a, ONS_TWO_REAL b) {
    const ONS_TWO_REAL product = ONS_TWO_TIMES(a, b);
    const ONS_TWO_PAIR exact = {product, ONS_TWO_FMA(a, b, -product)};
    return exact;
}
ONS_TWO_INLINE ONS_TWO_PAIR ONS_TWO(add)(ONS_TWO_PAIR a, ONS_TWO_PAIR b) {
    ONS_TWO_PAIR sum = ONS_TWO(sum)(a.high, b.high);
    const ONS_TWO_PAIR low = ONS_TWO(sum)(a.low, b.low);
    sum = ONS_TWO(fast_sum)(sum.high, sum.low + low.high);
    return ONS_TWO(fast_sum)(sum.high, sum.low + low.low);
}
ONS_TWO_INLINE ONS_TWO_PAIR ONS_TWO(times)(ONS_TWO_PAIR a, ONS_TWO_PAIR b) {
    ONS_TWO_PAIR product = ONS_TWO(product)(a.high, b.high);
    product.low += ONS_TWO_FMA(a.high, b.low, a.low * b.high);
    return ONS_TWO(fast_sum)(product.high, product.low);
}
/* Times a power of two. */
ONS_TWO_INLINE ONS_TWO_PAIR ONS_TWO(scaled)(ONS_TWO_PAIR a, ONS_TWO_REAL power) {
    const ONS_TWO_PAIR scaled = {a.high * power, a.low * power};
    return scaled;
}
/* a + b for |b| < |a|. b must not cancel most of a. */
ONS_TWO_INLINE ONS_TWO_PAIR ONS_TWO(add_smaller)(ONS_TWO_PAIR a, ONS_TWO_PAIR b) {
    const ONS_TWO_PAIR sum = ONS_TWO(fast_sum)(a.high, b.high);
    return ONS_TWO(fast_sum)(sum.high, sum.low + (a.low + b.low));
}
/* a + r * p, for constants a that are larger than r * p. */
ONS_TWO_INLINE ONS_TWO_PAIR ONS_TWO(next_term)(double high, double low, ONS_TWO_PAIR r,
                                               ONS_TWO_PAIR p) {
    const ONS_TWO_PAIR a = {ONS_TWO_SET(high), ONS_TWO_SET(low)};
    return ONS_TWO(add_smaller)(a, ONS_TWO(times)(r, p));
}

/* e^x from ONS_TWO_LOWEST to 1. x is reduced by n * ln2 in three parts, then by 2^4. n has 10 bits
 * and the first part has 42, so their product and its difference from x.high are exact. The rest
 * has |r| < 0.022. Of its series 14 terms leave 2^-107, those from r^7 on in one double. Four
 * squarings of e^r - 1 lose at most 2^-98. */
#define ONS_TWO_LOWEST -620.0
ONS_TWO_CALLED ONS_TWO_PAIR ONS_TWO(exp)(ONS_TWO_PAIR x) {
    const ONS_TWO_REAL magic = ONS_TWO_SET(0x1.8p52 + 1023);
    const ONS_TWO_REAL t = ONS_TWO_FMA(x.high, ONS_TWO_SET(ONS_LOG2_E), magic), n = magic - t;
    const ONS_TWO_PAIR second = ONS_TWO(product)(n, ONS_TWO_SET(0x1.ef35793c76730p-45));
    const ONS_TWO_PAIR a =
        ONS_TWO(sum)(ONS_TWO_FMA(n, ONS_TWO_SET(0x1.62e42fefa3800p-1), x.high), x.low);
    const ONS_TWO_PAIR b = ONS_TWO(sum)(a.high, second.high);
    const ONS_TWO_REAL low =
        b.low + (a.low + ONS_TWO_FMA(n, ONS_TWO_SET(0x1.f97b57a079a19p-103), second.low));
    ONS_TWO_PAIR r = ONS_TWO(scaled)(ONS_TWO(fast_sum)(b.high, low), ONS_TWO_SET(0x1p-4));
    ONS_TWO_REAL q = ONS_TWO_SET(0x1.93974a8c07c9dp-37); /* 1/14!, then to 1/7! */
    q = ONS_TWO_FMA(q, r.high, ONS_TWO_SET(0x1.6124613a86d09p-33));
    q = ONS_TWO_FMA(q, r.high, ONS_TWO_SET(0x1.1eed8eff8d898p-29));
    q = ONS_TWO_FMA(q, r.high, ONS_TWO_SET(0x1.ae64567f544e4p-26));
    q = ONS_TWO_FMA(q, r.high, ONS_TWO_SET(0x1.27e4fb7789f5cp-22));
    q = ONS_TWO_FMA(q, r.high, ONS_TWO_SET(0x1.71de3a556c734p-19));
    q = ONS_TWO_FMA(q, r.high, ONS_TWO_SET(0x1.a01a01a01a01ap-16));
    q = ONS_TWO_FMA(q, r.high, ONS_TWO_SET(0x1.a01a01a01a01ap-13));
    ONS_TWO_PAIR p = {q, ONS_TWO_SET(0.0)};
    p = ONS_TWO(next_term)(0x1.6c16c16c16c17p-10, -0x1.f49f49f49f49fp-65, r, p);
    p = ONS_TWO(next_term)(0x1.1111111111111p-7, 0x1.1111111111111p-63, r, p);
    p = ONS_TWO(next_term)(0x1.5555555555555p-5, 0x1.5555555555555p-59, r, p);
    p = ONS_TWO(next_term)(0x1.5555555555555p-3, 0x1.5555555555555p-57, r, p);
    p = ONS_TWO(next_term)(0.5, 0.0, r, p);
    p = ONS_TWO(add_smaller)(r, ONS_TWO(times)(ONS_TWO(times)(r, r), p)); /* e^r - 1 */
    for (int i = 0; i < 4; i++)                                           /* (1 + p)^2 - 1 */
        p = ONS_TWO(add_smaller)(ONS_TWO(scaled)(p, ONS_TWO_SET(2.0)), ONS_TWO(times)(p, p));
    const ONS_TWO_PAIR one = {ONS_TWO_SET(1.0), ONS_TWO_SET(0.0)};
    return ONS_TWO(scaled)(ONS_TWO(add_smaller)(one, p), ONS_TWO_POWER(t));
}

#undef ONS_TWO
#undef ONS_TWO_PAIR
#undef ONS_TWO_REAL
#undef ONS_TWO_SET
#undef ONS_TWO_FMA
#undef ONS_TWO_TIMES
#undef ONS_TWO_POWER
#undef ONS_TWO_INLINE

#ifdef ONS_TWO_DEFAULT
#undef ONS_TWO_DEFAULT

ONS_INLINE ons_two ons_two_of(double a) {
    const ons_two exact = {a, 0.0};
    return exact;
}
ONS_INLINE ons_two ons_two_minus(ons_two a) { return ons_two_scaled(a, -1.0); }

ONS_TWO_CALLED ons_two ons_two_over(ons_two a, ons_two b) {
    const double first = a.high / b.high;
    const ons_two rest = ons_two_add(a, ons_two_minus(ons_two_times(ons_two_of(first), b)));
    const double second = rest.high / b.high;
    const ons_two rest2 = ons_two_add(rest, ons_two_minus(ons_two_times(ons_two_of(second), b)));
    const ons_two sum = ons_two_fast_sum(first, second);
    return ons_two_add(sum, ons_two_of(rest2.high / b.high));
}

/* log(1 + x) for x >= 0 below 2^60, with all digits of a small x. Below 2^-8 by the series, whose
 * rest is 2^-115 of it; else by a step of Newton's from the logarithm in double. */
ONS_TWO_CALLED ons_two ons_two_log1p(ons_two x) {
    enum { TERMS = 14 };
    if (x.high < 0x1p-8) {
        ons_two p = ons_two_over(ons_two_of(1.0), ons_two_of((double)TERMS));
        for (int k = TERMS - 1; k >= 1; k--)
            p = ons_two_add(ons_two_over(ons_two_of(1.0), ons_two_of((double)k)),
                            ons_two_minus(ons_two_times(p, x)));
        return ons_two_times(p, x);
    }
    /* log(1 + x) = y + log(1 + t), t = (1 + x) e^-y - 1, |t| < 2^-50 */
    const double y = log1p(x.high);
    const ons_two e = ons_two_exp(ons_two_of(-y));
    const ons_two t =
        ons_two_add(ons_two_times(ons_two_add(ons_two_of(1.0), x), e), ons_two_of(-1.0));
    const ons_two half = ons_two_scaled(ons_two_times(t, t), 0.5);
    return ons_two_add(ons_two_of(y), ons_two_add(t, ons_two_minus(half)));
}
#endif
#undef ONS_TWO_CALLED
