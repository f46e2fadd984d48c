/* rounded.h - the passes of `exact` (api/rounding.h) over the elements of a row, in double. The compute type
 * is float. */
#ifndef ONS_CPU_KERNEL_ROUNDED_H
#define ONS_CPU_KERNEL_ROUNDED_H

#include "sum.h"

#if BITS == 32

#define ONS_TWO(name) f64_two_##name
#define ONS_TWO_PAIR f64_two
#define ONS_TWO_REAL f64_vec
#define ONS_TWO_SET f64_set
#define ONS_TWO_FMA(a, b, c) f64_rest(-(a), b, c)
#define ONS_TWO_POWER f64_power
#define ONS_TWO_INLINE ONS_ALWAYS
#include "../../api/two_doubles.h"

/* What the exponentials of a row need: e^(x - base) * 2^-c. */
typedef struct {
    f64_vec base, shift, floor;
} rounded_reference;

ONS_ALWAYS rounded_reference rounded_reference_of(const ons_rounded_row *row) {
    return (rounded_reference){f64_set(row->base), f64_set(0x1.8p52 + 1023 - row->c),
                               f64_set((row->c - 1023) / ONS_LOG2_E)};
}

/* e^v * 2^-c, with an error of 2^-52 of it, or 0 where it is below 2^-1022. */
ONS_ALWAYS f64_vec exponential_in_double(f64_vec v, const rounded_reference *of) {
    v -= of->base;
    f64_limited limited = f64_limit(&v, of->floor);
    f64_vec t = f64_fma(v, f64_set(ONS_LOG2_E), of->shift), n = t - of->shift;
    f64_vec r = f64_fnma(n, f64_set(ONS_LN2_HIGH), v);
    r = f64_fnma(n, f64_set(ONS_LN2_LOW), r);
    f64_vec p;
    bool first = true;
#define TERM(a)                                              \
    p = first ? f64_set(a) : f64_fma(p, r, f64_set(a)); \
    first = false;
    ONS_EXP_TERMS(TERM)
#undef TERM
    p = f64_fma(r * r, p, r);
    f64_vec power = f64_power(t);
    return f64_fma_limited(limited, power, p, power);
}

ONS_ALWAYS wide rounded_exponentials(VEC x, const rounded_reference *of) {
    wide e = widen(x);
    EACH_PART e.part[k] = exponential_in_double(e.part[k], of);
    return e;
}

/* WIDTH elements, or the last ones, then -inf. */
ONS_ALWAYS VEC load_some(const T *x, int64_t left) {
    return left >= WIDTH ? V(load)(x) : V(load_part)(x, left);
}

static double rounded_top(const ons_rounded_row *row) {
    const rounded_reference of = rounded_reference_of(row);
    double lanes[WIDTH];
    wide_store(lanes, rounded_exponentials(V(set)((T)row->m), &of));
    return lanes[0];
}

/* Adds the lanes of a count, and of a sum of two doubles. */
ONS_ALWAYS void add_lanes_to(double *n, ons_two *s, wide counts, wide d, wide low) {
    double high[WIDTH], rest[WIDTH];
    int64_t count[WIDTH];
    wide_store(high, d);
    wide_store(rest, low);
    wide_store((double *)(void *)count, counts);
    for (int64_t l = 0; l < WIDTH; l++) {
        *n += (double)count[l];
        *s = ons_two_add(*s, ons_two_fast_sum(high[l], rest[l]));
    }
}

/* Each lane adds so many exponentials in one double. Such sums go into a sum of two doubles. */
enum { ROUNDED_AT_ONCE = 8 };

static void rounded_sum(ons_rounded_row *row, const float *x, int64_t n) {
    const rounded_reference of = rounded_reference_of(row);
    const f64_vec top = f64_set(row->top), below_top = f64_set(nextafter(row->top, 0));
    wide d = wide_zero(), low = d, counts = d;
    for (int64_t j = 0; j < n;) {
        wide some = wide_zero();
        for (int i = 0; i < ROUNDED_AT_ONCE && j < n; i++, j += WIDTH) {
            const wide e = rounded_exponentials(load_some(x + j, n - j), &of);
            EACH_PART {
                counts.part[k] = f64_add_above(counts.part[k], e.part[k], below_top);
                some.part[k] += f64_between(e.part[k], f64_set(0), top);
            }
        }
        add_term(&d, &low, some);
    }
    add_lanes_to(&row->n, &row->s, counts, d, low);
}

/* The same in two doubles (ons_two_row_add). */
static void rounded_two_sum(ons_two_row *row, const float *x, int64_t n) {
    const f64_vec zero = f64_set(0), one = f64_set(1), minus_m = f64_set(-row->m);
    const f64_vec least = f64_set(-0x1p130), least_finite = f64_set(0x1.4p129);
    f64_two sums[PARTS];
    wide counts = wide_zero();
    EACH_PART sums[k] = (f64_two){zero, zero};
    for (int64_t j = 0; j < n; j += WIDTH) {
        const wide v = widen(load_some(x + j, n - j));
        EACH_PART {
            f64_two u = f64_two_sum(f64_max(least, v.part[k]), minus_m);
            const f64_vec far = f64_between(u.high, f64_set(-ONS_TWO_LOWEST), least_finite);
            row->below |= f64_any_outside(far, zero);
            counts.part[k] = f64_add_above(counts.part[k], u.high, f64_set(-0x1p-1000));
            /* exponentials of other elements than these are 0 */
            u.high = f64_between(u.high, zero, f64_set(1 - ONS_TWO_LOWEST));
            const f64_vec is_near = f64_min(u.high * f64_set(-0x1p200), one);
            u.low *= is_near;
            sums[k] = f64_two_add(sums[k], f64_two_scaled(f64_two_exp(u), is_near));
        }
    }
    wide high, low;
    EACH_PART {
        high.part[k] = sums[k].high;
        low.part[k] = sums[k].low;
    }
    add_lanes_to(&row->n, &row->s, counts, high, low);
}

/* To nearest in a type of fewer bits than float, except what lies halfway. */
ONS_ALWAYS f64_vec rounded_part(f64_vec v, const ons_rounding *to) {
    const f64_vec cut = f64_set(to->cut), magic = f64_set(0x1.8p52 * to->least);
    const f64_vec large = f64_between(v, f64_set(to->normal), f64_set(INFINITY));
    const f64_vec small = v - large, product = large * cut;
    return (product - (product - large)) + ((small + magic) - magic);
}

/* v * (1 - error) and v * (1 + error), rounded; NaN where they differ. */
ONS_ALWAYS VEC decided(wide v, const ons_rounding *to) {
    wide low, high;
    EACH_PART {
        const f64_vec error = v.part[k] * f64_set(ONS_ROUNDED_ERROR);
        low.part[k] = v.part[k] - error;
        high.part[k] = v.part[k] + error;
        if (to->bits < 24) {
            low.part[k] = rounded_part(low.part[k], to);
            high.part[k] = rounded_part(high.part[k], to);
        }
    }
    return V(same)(V(narrow)(low.part), V(narrow)(high.part)) + V(set)(0); /* no -0 */
}

/* The results of n elements, NaN where a double cannot decide. Returns whether there is a NaN. y may be x. */
ONS_ALWAYS bool rounded_finish(bool log, const ons_rounded_row *row, float *y, const float *x, int64_t n) {
    const rounded_reference of = rounded_reference_of(row);
    const ons_rounding to = row->to;
    const f64_vec m = f64_set(row->m), second = f64_set(row->second), least = f64_set(-0x1p130);
    VEC nans = V(set)(0);
    for (int64_t j = 0; j < n; j += WIDTH) {
        wide v = widen(load_some(x + j, n - j));
        EACH_PART v.part[k] = log ? (f64_max(least, v.part[k]) - m) - second
                                  : exponential_in_double(v.part[k], &of) * second;
        const VEC done = decided(v, &to);
        nans = V(nan_or)(nans, done, done);
        if (n - j >= WIDTH)
            V(store)(y + j, done);
        else
            V(store_part)(y + j, done, n - j);
    }
    return V(any_nan)(nans);
}
static bool rounded_softmax(const ons_rounded_row *row, float *y, const float *x, int64_t n) {
    return rounded_finish(false, row, y, x, n);
}
static bool rounded_log_softmax(const ons_rounded_row *row, float *y, const float *x, int64_t n) {
    return rounded_finish(true, row, y, x, n);
}

static const ons_rounded_kernels rounded_kernels = {rounded_top, rounded_sum, rounded_two_sum,
                                                    rounded_softmax, rounded_log_softmax};
#endif

#endif
