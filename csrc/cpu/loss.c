/* loss.c - computes the loss of each row from its pair, and turns softmax into its gradient. */
#include "loss.h"

#include <string.h>

#include "../api/loss.h"
#include "running_sum.h"

/* ------- The losses ------- */

/* Element j of a row. Rows are counted over all dimensions before the last. */
static double logit_at(const ons_job *job, int64_t row, int64_t j) {
    const ons_problem *problem = job->problem;
    const ons_operand *x = &problem->operand[ONS_X];
    const char *from = x->data + j * x->stride[problem->dims - 1];
    for (int dim = problem->dims - 2; dim >= 0; dim--) {
        from += row % problem->extent[dim] * x->stride[dim];
        row /= problem->extent[dim];
    }
    double room;
    job->kernels->move.load(&room, from, 0, x->dtype, 1);
    return ons_real_at(problem->loss, &room, 0);
}

static ons_pair pair_at(const ons_problem *problem, ons_dtype compute, int64_t row) {
    ons_pair pair;
    memcpy(&pair, problem->operand[ONS_STATISTIC].data + row * (int64_t)sizeof pair, sizeof pair);
    pair.d = ons_cpu_pair_d(pair, compute);
    return pair;
}

static void losses(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const ons_job *job = context;
    const ons_loss *loss = job->problem->loss;
    const int64_t N = job->plan->N;
    for (int64_t row = begin; row < end; row++) {
        const int64_t target = ons_target_of(loss, row, N);
        const ons_pair pair = pair_at(job->problem, job->plan->compute, row);
        double value = target == ONS_IGNORED ? 0.0 : (double)NAN;
        if (target >= 0)
            value =
                ons_loss_of(loss, row, target, N, pair.m, log(pair.d), logit_at(job, row, target));
        ons_set_real(loss, loss->loss, row, value);
        if (loss->lse) ons_set_real(loss, loss->lse, row, ons_lse_of(pair));
    }
}

/* Adds up all losses. A mean divides the sum by the weights of the targets. */
static void reduce(const ons_job *job) {
    const ons_loss *loss = job->problem->loss;
    double sum = 0.0, sum_low = 0.0, weights = 0.0, weights_low = 0.0;
    for (int64_t row = 0; row < job->plan->rows; row++) {
        const int64_t target = ons_target_of(loss, row, job->plan->N);
        ons_add_to(&sum, &sum_low, ons_real_at(loss, loss->loss, row), true);
        if (target >= 0) ons_add_to(&weights, &weights_low, ons_class_weight(loss, target), true);
    }
    sum = ons_total(sum, sum_low, true);
    weights = ons_total(weights, weights_low, true);
    if (loss->divisor) *loss->divisor = weights;
    ons_set_real(loss, loss->reduced, 0, loss->divisor ? sum / weights : sum);
}

void ons_cpu_losses(const ons_job *job) {
    enum { GRAIN = 256 };
    ons_parallel_for(job->plan->rows, GRAIN, job->plan->threads, losses, (void *)job);
    if (job->problem->loss->reduced) reduce(job);
}

/* ------- The gradient ------- */

static ons_loss_gradient gradient_of(const ons_strip *strip, int64_t i, int64_t *target) {
    const ons_loss *loss = strip->problem->loss;
    const int64_t row = strip->first_row + i, N = strip->plan->N;
    ons_loss_gradient none = {0.0, 0.0, 0.0};
    *target = ons_target_of(loss, row, N);
    if (*target < 0) return none;
    return ons_gradient_of_loss(loss, row, *target, N,
                                pair_at(strip->problem, strip->plan->compute, row));
}

void ons_loss_end_rows(ons_strip *strip) {
    const ons_loss *loss = strip->problem->loss;
    const ons_rows *rows = &strip->rows;
    for (int64_t i = 0; i < rows->width; i++) {
        int64_t target;
        const double all = gradient_of(strip, i, &target).all;
        const double first = ons_real_at(loss, rows->first, i);
        const double product = (first + ons_real_at(loss, rows->second, i)) * all;
        ons_set_real(loss, rows->first, i, product);
        ons_set_real(loss, rows->second, i, product - ons_real_at(loss, rows->first, i));
    }
}

/* Elements of a tile of the compute type, at any alignment. */
static void put(char *to, bool wide, double value) {
    const float single = (float)value;
    memcpy(to, wide ? (const void *)&value : &single, wide ? sizeof value : sizeof single);
}
static void take_from(char *element, bool wide, double less) {
    double value;
    float single;
    if (wide) {
        memcpy(&value, element, sizeof value);
    } else {
        memcpy(&single, element, sizeof single);
        value = single;
    }
    put(element, wide, value - less);
}

void ons_loss_finish(ons_strip *strip, int64_t j, int64_t n) {
    const ons_loss *loss = strip->problem->loss;
    const bool wide = loss->in_double;
    const ons_tile y = ons_strip_result(strip, j);
    for (int64_t i = 0; i < strip->rows.width; i++) {
        int64_t target;
        const ons_loss_gradient of = gradient_of(strip, i, &target);
        char *row = (char *)y.data + i * y.across;
        for (int64_t k = 0; target < 0 && k < n; k++)
            put(row + k * y.along, wide, target == ONS_IGNORED ? 0.0 : (double)NAN);
        for (int64_t k = 0; of.each != 0.0 && k < n; k++)
            take_from(row + k * y.along, wide, of.each * ons_class_weight(loss, j + k));
        if (target >= j && target < j + n) take_from(row + (target - j) * y.along, wide, of.target);
    }
}
