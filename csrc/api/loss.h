/* loss.h - the cross-entropy of a row, and what its gradient needs beside softmax.
 *
 * Let p = softmax(x), t the row's target, w the weights of the classes, W their sum, a the label
 * smoothing, z the factor of z_loss and lse = logsumexp(x).
 *
 *     loss      = (1 - a) w[t] (lse - x[t]) + a / N sum(w (lse - x)) + z lse^2
 *     gradient  = ((1 - a) w[t] + a W / N + 2 z lse) p - a / N w - (1 - a) w[t] at t
 *
 * An ignored row has 0 in both. A row whose target is no class has NaN. */
#ifndef ONS_LOSS_H
#define ONS_LOSS_H

#include "problem.h"
#include "state.h"

/* The inputs and the results of a loss, beside x and y. Arrays have an entry for each row, in the
 * order of the rows, without gaps. A real array has the arithmetic's type. NULL: not given, or not
 * wanted. */
typedef struct ons_loss {
    const void *target;       /* the class of each row: int64 if wide_target, else int32 */
    const void *weight;       /* real, an entry for each class */
    const double *weight_sum; /* two doubles: the weights' sum, its rounding error; NULL: N */
    const double *sums;       /* two doubles a row: sum(weight * x), its rounding error */
    const void *given;        /* real: the gradient of each row's loss */
    int64_t given_step;       /* 0: one entry for all rows */
    double *divisor;          /* of a mean: the sum of the targets' weights. The loss writes it */
    void *loss, *lse;         /* real: each row's results */
    void *reduced;            /* real, one number: the sum of the losses, or their mean */
    int64_t ignore_index;
    double smoothing, z_loss;
    bool wide_target, in_double; /* in_double: real arrays are of double, else of float */
    /* For the gradient of rows whose pairs are given: an ons_loss_gradient of each row. It replaces
     * all other terms, except target, ignore_index and weight. */
    const double *factors;
    double share; /* the factor of each loss in `reduced`, if there is no divisor */
    /* For a divergence alone. A divergence also uses in_double, given, loss, reduced and share, and
     * its gradient is multiplied by share. */
    bool gradient; /* y receives the gradient */
    double beta;   /* of js_divergence */
} ons_loss;

/* The class of a target, or one of these two numbers. */
#define ONS_IGNORED ((int64_t) - 1)
#define ONS_NO_CLASS ((int64_t) - 2)
ONS_INLINE int64_t ons_class_of(const ons_loss *loss, int64_t target, int64_t N) {
    if (target == loss->ignore_index) return ONS_IGNORED;
    return target >= 0 && target < N ? target : ONS_NO_CLASS;
}
ONS_INLINE int64_t ons_target_of(const ons_loss *loss, int64_t row, int64_t N) {
    return ons_class_of(loss,
                        loss->wide_target ? ((const int64_t *)loss->target)[row]
                                          : ((const int32_t *)loss->target)[row],
                        N);
}

/* Element i of a real array. */
ONS_INLINE double ons_real_at(const ons_loss *loss, const void *array, int64_t i) {
    return loss->in_double ? ((const double *)array)[i] : (double)((const float *)array)[i];
}
ONS_INLINE void ons_set_real(const ons_loss *loss, void *array, int64_t i, double value) {
    if (loss->in_double)
        ((double *)array)[i] = value;
    else
        ((float *)array)[i] = (float)value;
}

ONS_INLINE double ons_class_weight(const ons_loss *loss, int64_t i) {
    return loss->weight ? ons_real_at(loss, loss->weight, i) : 1.0;
}

ONS_INLINE double ons_weight_sum(const ons_loss *loss, int64_t N) {
    return loss->weight_sum ? loss->weight_sum[0] + loss->weight_sum[1] : (double)N;
}

/* d of the pair is sum(e^(x - m)) here. */
ONS_INLINE double ons_lse_of(ons_pair row) { return isinf(row.m) ? row.m : row.m + log(row.d); }

/* The loss of a row with a target among the classes. m and log_d = log(sum(e^(x - m))) are the
 * row's, and x is the target's logit. The loss is NaN if log_softmax of the row is NaN. The sum
 * keeps m and the logarithm apart, so that an offset of the whole row adds no rounding error. */
ONS_INLINE double ons_loss_of(const ons_loss *loss, int64_t row, int64_t target, int64_t N,
                              double m, double log_d, double x) {
    if (isinf(m)) return NAN;
    const double lse = m + log_d, apart = (m - x) + log_d;
    double sum = (1.0 - loss->smoothing) * ons_class_weight(loss, target) * apart;
    if (loss->smoothing != 0.0) {
        const double W = ons_weight_sum(loss, N);
        const double *of_row = loss->sums + 2 * row; /* the error of an infinite sum is NaN */
        const double of_x = isfinite(of_row[0]) ? of_row[0] + of_row[1] : of_row[0];
        sum += loss->smoothing / (double)N * ((W * m - of_x) + W * log_d);
    }
    return loss->z_loss != 0.0 ? sum + loss->z_loss * lse * lse : sum;
}

/* The gradient of element j is all * p[j] - each * w[j]. At the target, subtract `target` too. */
typedef struct {
    double all, each, target;
} ons_loss_gradient;

ONS_INLINE ons_loss_gradient ons_gradient_of_loss(const ons_loss *loss, int64_t row, int64_t target,
                                                  int64_t N, ons_pair pair) {
    if (loss->factors) {
        const double *of = loss->factors + 3 * row;
        const ons_loss_gradient given = {of[0], of[1], of[2]};
        return given;
    }
    double by = loss->given ? ons_real_at(loss, loss->given, row * loss->given_step) : 1.0;
    if (loss->divisor) by /= *loss->divisor;
    const double each = by * loss->smoothing / (double)N;
    const double own = by * (1.0 - loss->smoothing) * ons_class_weight(loss, target);
    double all = loss->smoothing != 0.0 ? own + each * ons_weight_sum(loss, N) : own;
    if (loss->z_loss != 0.0) all += 2.0 * loss->z_loss * by * ons_lse_of(pair);
    const ons_loss_gradient gradient = {all, each, own};
    return gradient;
}

#endif
