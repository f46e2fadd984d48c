/* state.h - the state of a row for softmax: its maximum m and its normalizer d, and how two such
 * pairs merge (Milakov and Gimelshein, arXiv 1805.02867, section 3).
 *
 * d is relative to a power of two: d = sum(e^x * 2^-c) with the integer c = ceil(m * log2(e)). So a
 * rescale is exact. The order in which tiles, threads and blocks are merged does not change the
 * result. d is an unevaluated sum of two doubles, so a long row of float64 loses nothing. The CPU
 * and Python use this state. A GPU has the same pair in the arithmetic's own type. It uses longer
 * sums only where they change a result (cuda/statistic/pair.cuh). */
#ifndef ONS_STATE_H
#define ONS_STATE_H

#if __FLT_EVAL_METHOD__ != 0
#error "float and double must each be rounded to their own type: on i386 add -msse2 -mfpmath=sse"
#endif
#include "exponential.h"

#include <math.h>
#include <stdbool.h>

#ifdef __CUDACC__
#define ONS_INLINE static inline __host__ __device__
#else
#define ONS_INLINE static inline
#endif

#define ONS_LOG2_E 1.4426950408889634

typedef struct {
    double m;        /* the largest element, or NaN if there was one */
    double c;        /* ons_reference(m) */
    double d, d_low; /* sum(e^x * 2^-c), and the part that d rounded away */
} ons_state;

ONS_INLINE ons_state ons_state_empty(void) {
    ons_state empty = {-INFINITY, 0.0, 0.0, 0.0};
    return empty;
}

/* The larger of two numbers, or NaN if either is NaN. */
ONS_INLINE double ons_larger(double a, double b) { return a >= b || isnan(a) ? a : b; }

/* Adds a term to d. Only d_low is rounded (two-sum: Knuth, TAOCP 2, 4.2.2, theorem B). */
ONS_INLINE void ons_state_add(ons_state *state, double term) {
    double sum = state->d + term, other = sum - state->d;
    state->d_low += (state->d - (sum - other)) + (term - other);
    state->d = sum;
}

/* A row whose |m| is above this is relative to its m, not to a c. */
#define ONS_LARGEST_REFERENCE 16384.0
ONS_INLINE bool ons_needs_anchor(double m) {
    return isfinite(m) && fabs(m) > ONS_LARGEST_REFERENCE;
}

/* The integer c of a maximum m: ceil(m * log2(e)), without a call (adding 1.5 * 2^52 rounds to an
 * integer, unless there is excess precision). A row that gets an anchor has such a pair first. For
 * this pair, and for m = -inf, c is bounded where |m| is 2000 above ONS_LARGEST_REFERENCE. That is
 * so far that the smaller of two elements at both ends gives 0. */
ONS_INLINE double ons_reference(double m) {
    const double bound = ONS_LARGEST_REFERENCE + 2000.0;
    if (isnan(m)) return 0.0;
    double exact = (m > bound ? bound : m < -bound ? -bound : m) * ONS_LOG2_E;
    double nearest = (exact + 0x1.8p52) - 0x1.8p52;
    return nearest < exact ? nearest + 1.0 : nearest;
}

/* Makes m the maximum, and moves d to the c of m. That is exact: a power of two. */
ONS_INLINE void ons_state_raise(ons_state *state, double m) {
    double c = ons_reference(m);
    state->m = m;
    if (c != state->c && state->d != 0.0) {
        int shift = (int)(state->c - c); /* both are bounded */
        state->d = ldexp(state->d, shift);
        state->d_low = ldexp(state->d_low, shift);
    }
    state->c = c;
}

/* Merges the pairs of two parts of a row. It is commutative, and the empty pair changes nothing. */
ONS_INLINE ons_state ons_state_merge(ons_state a, ons_state b) {
    double m = ons_larger(a.m, b.m);
    ons_state_raise(&a, m);
    ons_state_raise(&b, m);
    ons_state_add(&a, b.d);
    a.d_low += b.d_low;
    return a;
}

/* Rounds a to `bits` bits fewer; 0 leaves it unchanged (Dekker, A floating-point technique for
 * extending the available precision, 1971). */
ONS_INLINE double ons_without_bits(double a, int bits) {
    const double part = a * (double)((1 << bits) + 1);
    return bits > 0 ? part - (part - a) : a;
}

/* d relative to e^m, for output. A sum of equal exponentials has been rounded up to three times in
 * their type; `eps` is of this type. If d is that close to a whole number, it is this number. Below
 * 1.5 there is one such exponential, and nothing was rounded. */
ONS_INLINE double ons_count_or_d(double d, double eps) {
    const double whole = rint(d);
    return d > 1.5 && fabs(d - whole) <= 1.5 * eps * d ? whole : d;
}

/* ------- The pair that callers exchange ------- */

/* 16 bytes with the same meaning on every machine, CPU or GPU: the largest element, and d relative
 * to 2^ons_reference(m), or relative to e^m if ons_needs_anchor(m). A row without elements above
 * -inf has (-inf, 0). A row with NaN has (NaN, NaN), and a row with +inf (inf, NaN). */
typedef struct {
    double m, d;
} ons_pair;

/* The factor that moves a d from the reference of `from` to that of `to`. It is exact unless one of
 * them has an anchor. */
ONS_INLINE double ons_pair_factor(double from, double to) {
    if (from == to || isnan(to)) return 1.0;
    if (from == -INFINITY) return 0.0;
    const bool far_from = ons_needs_anchor(from), far_to = ons_needs_anchor(to);
    const double c = (far_from ? 0.0 : ons_reference(from)) - (far_to ? 0.0 : ons_reference(to));
    if (!far_from && !far_to) return ldexp(1.0, (int)c);
    const double apart = (far_from ? from : 0.0) - (far_to ? to : 0.0);
    return exp((apart + c * ONS_LN2_HIGH) + c * ONS_LN2_LOW);
}

/* The pair of a sum that has the reference of its m. If m is NaN or +inf, the sum is NaN. */
ONS_INLINE ons_pair ons_pair_of(double m, double d) {
    ons_pair pair = {m, isnan(m) || m == INFINITY ? NAN : d};
    return pair;
}

/* Merges the pairs of two parts of a row. It is commutative, and the empty pair changes nothing. */
ONS_INLINE ons_pair ons_pair_merge(ons_pair a, ons_pair b) {
    double m = ons_larger(a.m, b.m);
    return ons_pair_of(m, a.d * ons_pair_factor(a.m, m) + b.d * ons_pair_factor(b.m, m));
}

#endif
