/* rounded.h - the passes of `exact` (api/rounding.h) over the elements of a row, in double. The compute type
 * is float. */
#ifndef ONS_CPU_KERNEL_ROUNDED_H
#define ONS_CPU_KERNEL_ROUNDED_H

#include "sum.h"

#if BITS == 32

/* e^v * 2^-c, with an error of 2^-52 of it; 0 below 2^-1022. |v| is at most 2^15 (exponential.h). */
ONS_ALWAYS f64_vec exponential_in_double(f64_vec v, f64_vec shift, f64_vec floor) {
    f64_limited limited = f64_limit(&v, floor);
    f64_vec t = f64_fma(v, f64_set(ONS_LOG2_E), shift), n = t - shift;
    f64_vec r = f64_fnma(n, f64_set(ONS_LN2_HIGH), v);
    r = f64_fnma(n, f64_set(ONS_LN2_LOW), r);
    f64_vec p = f64_set(0);
#define TERM(a) p = f64_fma(p, r, f64_set(a));
    ONS_EXP_TERMS(TERM)
#undef TERM
    p = f64_fma(r * r, p, r);
    f64_vec power = f64_power(t);
    return f64_fma_limited(limited, power, p, power);
}

/* The exponentials of a vector of a row. */
ONS_ALWAYS wide rounded_exponentials(VEC x, const ons_rounded_row *row) {
    const f64_vec base = f64_set(row->base), shift = f64_set(0x1.8p52 + 1023 - row->c),
                  floor = f64_set((row->c - 1023) * ONS_LN2_HIGH);
    wide e = widen(x);
    EACH_PART e.part[k] = exponential_in_double(e.part[k] - base, shift, floor);
    return e;
}

/* Of how many exponentials each lane's sum is before it goes to a sum of two doubles. */
enum { ROUNDED_AT_ONCE = 8 };

static void rounded_sum(ons_rounded_row *row, const void *elements, int64_t n) {
    const T *x = elements;
    double top[WIDTH];
    wide_store(top, rounded_exponentials(V(set)((T)row->m), row));
    row->top = top[0];
    const f64_vec all_below = f64_set(row->top), below = f64_set(nextafter(row->top, 0));
    wide d = wide_zero(), low = d;
    for (int64_t j = 0; j < n;) {
        wide some = wide_zero();
        for (int i = 0; i < ROUNDED_AT_ONCE && j < n; i++, j += WIDTH) {
            const VEC a = n - j >= WIDTH ? V(load)(x + j) : V(load_part)(x + j, n - j);
            const wide e = rounded_exponentials(a, row);
            EACH_PART {
                row->n += __builtin_popcount(f64_above(e.part[k], below));
                some.part[k] += f64_between(e.part[k], f64_set(0), all_below);
            }
        }
        add_term(&d, &low, some);
    }
    double high[WIDTH], rest[WIDTH];
    wide_store(high, d);
    wide_store(rest, low);
    for (int64_t l = 0; l < WIDTH; l++)
        row->s = ons_two_add(row->s, ons_two_fast_sum(high[l], rest[l]));
}

/* To nearest in a type of fewer bits than float, but for what lies halfway. */
ONS_ALWAYS f64_vec rounded_part(f64_vec v, ons_rounding to) {
    const double normal = ldexp(1.0, to.least + to.bits - 1);
    const f64_vec cut = f64_set(ldexp(1.0, 53 - to.bits) + 1), magic = f64_set(ldexp(0x1.8p52, to.least));
    const f64_vec large = f64_between(v, f64_set(nextafter(normal, 0)), f64_set(INFINITY));
    const f64_vec small = v - large, product = large * cut;
    return (product - (product - large)) + ((small + magic) - magic);
}

/* The numbers v - error and v + error, rounded; NaN where they differ. */
ONS_ALWAYS VEC decided(const wide *v, const wide *error, const ons_rounded_row *row) {
    wide low, high;
    EACH_PART {
        low.part[k] = v->part[k] - error->part[k];
        high.part[k] = v->part[k] + error->part[k];
        if (row->to.bits < 24) {
            low.part[k] = rounded_part(low.part[k], row->to);
            high.part[k] = rounded_part(high.part[k], row->to);
        }
    }
    const VEC least = V(narrow)(low.part), most = V(narrow)(high.part);
    return V(where_equal)(least, most);
}

static bool rounded_softmax(const ons_rounded_row *row, void *results, const void *elements, int64_t n) {
    T *y = results;
    const T *x = elements;
    VEC nans = V(set)(0);
    const f64_vec inverse = f64_set(row->first);
    for (int64_t j = 0; j < n; j += WIDTH) {
        const bool whole = n - j >= WIDTH;
        wide v = rounded_exponentials(whole ? V(load)(x + j) : V(load_part)(x + j, n - j), row), error;
        EACH_PART {
            v.part[k] *= inverse;
            error.part[k] = v.part[k] * f64_set(ONS_ROUNDED_ERROR);
        }
        const VEC done = decided(&v, &error, row);
        nans = V(nan_or)(nans, done, done);
        if (whole)
            V(store)(y + j, done);
        else
            V(store_part)(y + j, done, n - j);
    }
    return V(any_nan)(nans);
}

static bool rounded_log_softmax(const ons_rounded_row *row, void *results, const void *elements, int64_t n) {
    T *y = results;
    const T *x = elements;
    VEC nans = V(set)(0);
    const f64_vec m = f64_set(row->m), log = f64_set(row->first);
    for (int64_t j = 0; j < n; j += WIDTH) {
        const bool whole = n - j >= WIDTH;
        wide v = widen(whole ? V(load)(x + j) : V(load_part)(x + j, n - j)), error;
        EACH_PART {
            v.part[k] = (v.part[k] - m) - log;
            error.part[k] = v.part[k] * f64_set(ONS_ROUNDED_ERROR);
        }
        const VEC done = decided(&v, &error, row);
        nans = V(nan_or)(nans, done, done);
        if (whole)
            V(store)(y + j, done);
        else
            V(store_part)(y + j, done, n - j);
    }
    return V(any_nan)(nans);
}

#endif

#endif
