/* rounded.h - the passes of `exact` (api/rounding.h) over the elements of a row, in double. The
 * compute type is float. */
#ifndef ONS_CPU_KERNEL_ROUNDED_H
#define ONS_CPU_KERNEL_ROUNDED_H

#include "sum.h"

#if BITS == 32

#define ONS_TWO(name) f64_two_##name
#define ONS_TWO_PAIR f64_two
#define ONS_TWO_REAL f64_vec
#define ONS_TWO_SET f64_set
#define ONS_TWO_FMA(a, b, c) f64_rest(-(a), b, c)
#define ONS_TWO_TIMES(a, b) ((a) * (b))
#define ONS_TWO_POWER f64_power
#define ONS_TWO_INLINE ONS_ALWAYS
#include "../../api/two_doubles.h"

/* The steps of a power of two. */
#ifdef F64_STEPS
#define ROUNDED_MAGIC 0x1.8p52
#define ROUNDED_LN2_HIGH ONS_LN2_16_HIGH
#define ROUNDED_LN2_LOW ONS_LN2_16_LOW
#define ROUNDED_TERMS ONS_EXP_TERMS_16
#define ROUNDED_POWER f64_power_16
#else
#define F64_STEPS 1
#define ROUNDED_MAGIC (0x1.8p52 + 1023)
#define ROUNDED_LN2_HIGH ONS_LN2_HIGH
#define ROUNDED_LN2_LOW ONS_LN2_LOW
#define ROUNDED_TERMS ONS_EXP_TERMS
#define ROUNDED_POWER f64_power
#endif

/* The exponentials of a vector of elements: e^(x - base) * 2^-c, each with an error of 2^-52 of it.
 * Elements far below the maximum are raised to a floor, where the exponential is 2^-1000. */
typedef struct {
    VEC base, floor;
    f64_vec shift;
} rounded_reference;

ONS_ALWAYS rounded_reference rounded_reference_of(const ons_rounded_row *row) {
    return (rounded_reference){V(set)((T)row->base), V(set)((T)((row->c - 1000) / ONS_LOG2_E)),
                               f64_set(ROUNDED_MAGIC - F64_STEPS * row->c)};
}

ONS_ALWAYS wide rounded_exponentials(VEC x, const rounded_reference *of) {
    wide t, r = widen(V(max)(of->floor, x - of->base)), p;
    EACH_PART t.part[k] = f64_fma(r.part[k], f64_set(F64_STEPS * ONS_LOG2_E), of->shift);
    EACH_PART p.part[k] = t.part[k] - of->shift; /* n */
    EACH_PART r.part[k] = f64_fnma(p.part[k], f64_set(ROUNDED_LN2_HIGH), r.part[k]);
    EACH_PART r.part[k] = f64_fnma(p.part[k], f64_set(ROUNDED_LN2_LOW), r.part[k]);
    bool first = true;
#define TERM(a)                                                                           \
    EACH_PART p.part[k] = first ? f64_set(a) : f64_fma(p.part[k], r.part[k], f64_set(a)); \
    first = false;
    ROUNDED_TERMS(TERM)
#undef TERM
    EACH_PART t.part[k] = ROUNDED_POWER(t.part[k]);
    EACH_PART p.part[k] = f64_fma(r.part[k] * r.part[k], p.part[k], r.part[k]);
    EACH_PART p.part[k] = f64_fma(t.part[k], p.part[k], t.part[k]);
    return p;
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

/* The sum of all lanes, as a tree. */
ONS_ALWAYS double sum_of_lanes(wide a) {
    double lanes[WIDTH];
    wide_store(lanes, a);
    for (int64_t half = WIDTH / 2; half > 0; half /= 2)
        for (int64_t l = 0; l < half; l++) lanes[l] += lanes[l + half];
    return lanes[0];
}

/* The sum of counts, which are the bits of their lanes. */
ONS_ALWAYS double sum_of_counts(wide counts) {
    int64_t lanes[WIDTH], sum = 0;
    wide_store((double *)(void *)lanes, counts);
    for (int64_t l = 0; l < WIDTH; l++) sum += lanes[l];
    return (double)sum;
}

/* Each lane adds so many exponentials in one double. Such sums go into a sum of two doubles. */
enum { ROUNDED_AT_ONCE = 8 };

/* Adds n elements to a row. If e is given, it receives their exponentials. With `apart`, the
 * exponentials of the largest element are counted, and the others are added. */
ONS_ALWAYS void rounded_sum(bool apart, ons_rounded_row *row, double *e, const float *x,
                            int64_t n) {
    const rounded_reference of = rounded_reference_of(row);
    const f64_vec top = f64_set(row->top), below_top = f64_set(row->top * (1 - 0x1p-53));
    wide d = wide_zero(), low = d, counts = d;
    for (int64_t j = 0; j < n;) {
        wide some = wide_zero();
        for (int i = 0; i < ROUNDED_AT_ONCE && j < n; i++, j += WIDTH) {
            wide of_some = rounded_exponentials(load_some(x + j, n - j), &of);
            if (e) wide_store(e + j, of_some);
            EACH_PART {
                if (apart) {
                    counts.part[k] = f64_add_above(counts.part[k], of_some.part[k], below_top);
                    of_some.part[k] = f64_between(of_some.part[k], f64_set(0), top);
                }
                some.part[k] += of_some.part[k];
            }
        }
        add_term(&d, &low, some);
    }
    if (apart) row->n += sum_of_counts(counts);
    row->s = ons_two_add(row->s, ons_two_fast_sum(sum_of_lanes(d), sum_of_lanes(low)));
}
static void rounded_sum_all(ons_rounded_row *row, double *e, const float *x, int64_t n) {
    rounded_sum(false, row, e, x, n);
}
static void rounded_sum_apart(ons_rounded_row *row, double *e, const float *x, int64_t n) {
    rounded_sum(true, row, e, x, n);
}

/* Adds n elements to a row in two doubles, as ons_two_row_add adds one. */
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
    row->n += sum_of_counts(counts);
    EACH_PART {
        double high[DOUBLES], low[DOUBLES];
        f64_store(high, sums[k].high);
        f64_store(low, sums[k].low);
        for (int64_t l = 0; l < DOUBLES; l++)
            row->s = ons_two_add(row->s, ons_two_fast_sum(high[l], low[l]));
    }
}

/* Rounds a vector to the nearest 16-bit numbers. In the middle of two numbers it may take
 * either. */
#define ROUNDED_TO_16_BITS(name, P, magic_of_one)                                               \
    ONS_ALWAYS P##_vec name(P##_vec v, double normal, double least, double cut) {               \
        const P##_vec magic = P##_set((P##_t)(magic_of_one * least));                           \
        const P##_vec large = P##_between(v, P##_set((P##_t)normal), P##_set((P##_t)INFINITY)); \
        const P##_vec small = v - large, product = large * P##_set((P##_t)cut);                 \
        return (product - (product - large)) + ((small + magic) - magic);                       \
    }
ROUNDED_TO_16_BITS(rounded_float, f32, 0x1.8p23)
ROUNDED_TO_16_BITS(rounded_double, f64, 0x1.8p52)

ONS_ALWAYS bool any_undecided(VEC a) { return V(above)(a, V(set)((T)INFINITY)) != 0; }

/* An interval from low to high, rounded to 16 bits; NaN where the rounded ends differ. */
ONS_ALWAYS VEC decided_to_16_bits(wide low, wide high, const ons_rounding *to) {
    /* At first with the error of a float. It is relative, so subnormal numbers are left out. */
    const VEC v = V(narrow)(low.part);
    const VEC subnormal = V(between)(v, V(set)(0), V(set)(0x1p-125f));
    const VEC done =
        V(same)(rounded_float(v * V(set)(1 - 0x1p-22f), to->normal, to->least, to->cut_float),
                rounded_float(v * V(set)(1 + 0x1p-22f), to->normal, to->least, to->cut_float));
    if (!any_undecided(done) && !V(any_outside)(subnormal, V(set)(0))) return done;
    EACH_PART {
        low.part[k] = rounded_double(low.part[k], to->normal, to->least, to->cut);
        high.part[k] = rounded_double(high.part[k], to->normal, to->least, to->cut);
    }
    return V(same)(V(narrow)(low.part), V(narrow)(high.part));
}

/* The same for each type of result. 0 is +0. */
ONS_ALWAYS VEC decided(wide low, wide high, const ons_rounding *to) {
    const VEC done = to->bits < 24 ? decided_to_16_bits(low, high, to)
                                   : V(same)(V(narrow)(low.part), V(narrow)(high.part));
    return done + V(set)(0);
}

/* The results of n elements, NaN where a double cannot decide. Returns whether there is a NaN.
 * softmax needs the exponentials e, or x if that is NULL; log_softmax needs x. y may be x. */
ONS_ALWAYS bool rounded_finish(bool log, const ons_rounded_row *row, float *y, const double *e,
                               const float *x, int64_t n) {
    const rounded_reference of = rounded_reference_of(row);
    const ons_rounding to = row->to;
    const f64_vec m = f64_set(row->m), second = f64_set(row->second), least = f64_set(-0x1p130),
                  least_second = f64_set(row->second * (1 - ONS_ROUNDED_ERROR)),
                  most_second = f64_set(row->second * (1 + ONS_ROUNDED_ERROR));
    bool undecided = false;
    for (int64_t j = 0; j < n; j += WIDTH) {
        wide low, high;
        if (log) {
            low = widen(load_some(x + j, n - j));
            EACH_PART {
                const f64_vec v = (f64_max(least, low.part[k]) - m) - second;
                low.part[k] = v * f64_set(1 - ONS_ROUNDED_ERROR);
                high.part[k] = v * f64_set(1 + ONS_ROUNDED_ERROR);
            }
        } else {
            low = e ? wide_load(e + j) : rounded_exponentials(load_some(x + j, n - j), &of);
            EACH_PART high.part[k] = low.part[k] * most_second;
            EACH_PART low.part[k] *= least_second;
        }
        const VEC done = decided(low, high, &to);
        undecided |= any_undecided(done);
        if (n - j >= WIDTH)
            V(store)(y + j, done);
        else
            V(store_part)(y + j, done, n - j);
    }
    return undecided;
}
static bool rounded_softmax(const ons_rounded_row *row, float *y, const double *e, const float *x,
                            int64_t n) {
    return rounded_finish(false, row, y, e, x, n);
}
static bool rounded_log_softmax(const ons_rounded_row *row, float *y, const double *e,
                                const float *x, int64_t n) {
    return rounded_finish(true, row, y, e, x, n);
}

static const ons_rounded_kernels rounded_kernels = {rounded_top,       rounded_sum_all,
                                                    rounded_sum_apart, rounded_two_sum,
                                                    rounded_softmax,   rounded_log_softmax};
#endif

#endif
