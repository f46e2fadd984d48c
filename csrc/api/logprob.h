/* logprob.h - the log-probabilities of some elements of a row, its entropy, and more, from one
 * read.
 *
 * Let m be the row's largest element, d = sum(e^(x - m)), w = sum(e^(x - m) (x - m)) and
 * p = softmax(x). Then the mean of x - m under p is w / d, and
 *
 *     log p[i]  = (x[i] - m) - log(d)
 *     entropy   = log(d) - w / d
 *
 * No term of w is positive, so both terms of the entropy are at least 0, and nothing cancels. Let
 * g[i], h and l be the gradients of log p[i], the entropy and the logsumexp. Then the gradient of a
 * logit x is
 *
 *     (l - sum(g) - h ((x - m) - w / d)) p
 *
 * A chosen element i gets g[i] more. */
#ifndef ONS_LOGPROB_H
#define ONS_LOGPROB_H

#include "problem.h"
#include "state.h"

/* The inputs and the results, beside x and y. Arrays have an entry for each row, in the order of
 * the rows, without gaps. index, chosen and of_chosen have `count` entries for each row. A real
 * array has the arithmetic's type. NULL: not given, or not wanted. */
typedef struct ons_logprob {
    const void *index;          /* the elements of each row: int64 if wide_index, else int32 */
    int64_t count;              /* the number of indices of a row */
    bool wide_index, in_double; /* in_double: real arrays are of double, else of float */
    void *chosen;               /* real: the log-probabilities of these elements */
    void *entropy, *lse;        /* real */
    int64_t *argmax;            /* the first of the largest elements, or the first NaN */
    int64_t *rank;              /* how many elements are larger than the first chosen one */
    double *moments; /* first the pair of each row, then w / d of each row. The CPU computes
                      * w / d only if entropy is wanted */
    const void *of_chosen, *of_entropy, *of_lse; /* real: the gradients */
} ons_logprob;

enum { ONS_MOMENTS = 3 }; /* the number of doubles of a row in moments */

/* The pair of a row whose d is sum(e^(x - m)). */
ONS_INLINE ons_pair ons_pair_of_sum(double m, double d) {
    const bool has_power = isfinite(m) && !ons_needs_anchor(m);
    const double c = has_power ? ons_reference(m) : 0.0;
    const double apart = has_power ? (m - c * ONS_LN2_HIGH) - c * ONS_LN2_LOW : 0.0;
    return ons_pair_of(m, d * exp(apart));
}

#endif
