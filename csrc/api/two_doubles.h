/* two_doubles.h - a number as the unevaluated sum of two doubles, which has about 106 bits: sums, products,
 * e^x and log(1 + x). method="exact" decides with it what one double cannot (rounding.h).
 *
 * two_sum and two_product are exact (Knuth; Dekker, Numer. Math. 18, 1971; with fma). The others lose at
 * most 2^-102 of their result each (Joldes, Muller and Popescu, ACM TOMS 44, 2017). */
#ifndef ONS_TWO_DOUBLES_H
#define ONS_TWO_DOUBLES_H

#include "state.h"

typedef struct {
    double high, low; /* |low| is at most half a unit in the last place of high */
} ons_two;

ONS_INLINE ons_two ons_two_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    const ons_two exact = {sum, (a - (sum - part)) + (b - part)};
    return exact;
}
/* The same where |a| >= |b|, or a is 0. */
ONS_INLINE ons_two ons_two_fast_sum(double a, double b) {
    const double sum = a + b;
    const ons_two exact = {sum, b - (sum - a)};
    return exact;
}
ONS_INLINE ons_two ons_two_product(double a, double b) {
    const double product = a * b;
    const ons_two exact = {product, fma(a, b, -product)};
    return exact;
}

ONS_INLINE ons_two ons_two_of(double a) {
    const ons_two exact = {a, 0.0};
    return exact;
}
ONS_INLINE ons_two ons_two_minus(ons_two a) {
    const ons_two minus = {-a.high, -a.low};
    return minus;
}

ONS_INLINE ons_two ons_two_add(ons_two a, ons_two b) {
    ons_two sum = ons_two_sum(a.high, b.high);
    const ons_two low = ons_two_sum(a.low, b.low);
    sum = ons_two_fast_sum(sum.high, sum.low + low.high);
    return ons_two_fast_sum(sum.high, sum.low + low.low);
}
ONS_INLINE ons_two ons_two_times(ons_two a, ons_two b) {
    ons_two product = ons_two_product(a.high, b.high);
    product.low += fma(a.high, b.low, a.low * b.high);
    return ons_two_fast_sum(product.high, product.low);
}
ONS_INLINE ons_two ons_two_over(ons_two a, ons_two b) {
    const double first = a.high / b.high;
    const ons_two rest = ons_two_add(a, ons_two_minus(ons_two_times(ons_two_of(first), b)));
    const double second = rest.high / b.high;
    const ons_two rest2 = ons_two_add(rest, ons_two_minus(ons_two_times(ons_two_of(second), b)));
    const ons_two sum = ons_two_fast_sum(first, second);
    return ons_two_add(sum, ons_two_of(rest2.high / b.high));
}
ONS_INLINE ons_two ons_two_scaled(ons_two a, int power) {
    const ons_two scaled = {ldexp(a.high, power), ldexp(a.low, power)};
    return scaled;
}

/* e^x * 2^-power for |x| < 2^30 and an integer power near x * log2(e), or above. Less than 2^-900 is 0. x is
 * reduced by n * ln2 in three doubles, then by 2^4; the rest has |r| < 0.022, and 15 terms of the series
 * leave 2^-107 of it. Four squarings of e^r - 1 lose at most 2^-99. */
ONS_INLINE ons_two ons_two_exp(ons_two x, double power) {
    enum { HALVINGS = 4, TERMS = 15 };
    const double n = rint(x.high * ONS_LOG2_E);
    if (!(n - power > -900)) return ons_two_of(0.0);
    const double ln2[3] = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56, 0x1.7b57a079a1934p-111};
    ons_two r = x;
    for (int i = 0; i < 3; i++) r = ons_two_add(r, ons_two_minus(ons_two_product(n, ln2[i])));
    r = ons_two_scaled(r, -HALVINGS);
    /* e^r - 1 = r + r^2 / 2 (1 + r / 3 (1 + r / 4 (...))) */
    ons_two p = ons_two_of(1.0);
    for (int k = TERMS; k >= 2; k--)
        p = ons_two_add(ons_two_of(1.0),
                        ons_two_times(p, ons_two_over(r, ons_two_of((double)k))));
    p = ons_two_times(p, r);
    for (int i = 0; i < HALVINGS; i++) /* (1 + p)^2 - 1 */
        p = ons_two_add(ons_two_scaled(p, 1), ons_two_times(p, p));
    p = ons_two_add(ons_two_of(1.0), p);
    return ons_two_scaled(p, (int)(n - power));
}

/* log(1 + x) for x >= 0 below 2^60, with all digits of a small x. Below 2^-8 by the series, whose rest is
 * 2^-115 of it; else by a step of Newton's from the logarithm in double. */
ONS_INLINE ons_two ons_two_log1p(ons_two x) {
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
    const ons_two e = ons_two_exp(ons_two_of(-y), 0.0);
    const ons_two t = ons_two_add(ons_two_times(ons_two_add(ons_two_of(1.0), x), e), ons_two_of(-1.0));
    const ons_two half = ons_two_scaled(ons_two_times(t, t), -1);
    return ons_two_add(ons_two_of(y), ons_two_add(t, ons_two_minus(half)));
}

#endif
