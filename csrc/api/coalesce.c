/* coalesce.c - brings a problem to the fewest dimensions. */
#include "onsoftmax.h"

#include <stdlib.h>

static void swap_dims(ons_problem *problem, int a, int b) {
    int64_t extent = problem->extent[a];
    problem->extent[a] = problem->extent[b];
    problem->extent[b] = extent;
    for (int i = 0; i < ONS_OPERANDS; i++) {
        int64_t *stride = problem->operand[i].stride, kept = stride[a];
        stride[a] = stride[b];
        stride[b] = kept;
    }
}

/* Whether dimension `dim` continues where `dim + 1` ends, in every operand. */
static bool joins_next(ons_problem *problem, int dim) {
    for (int i = 0; i < ONS_OPERANDS; i++) {
        const ons_operand *operand = &problem->operand[i];
        if (operand->data &&
            operand->stride[dim] != operand->stride[dim + 1] * problem->extent[dim + 1])
            return false;
    }
    return true;
}

static void remove_dim(ons_problem *problem, int dim) {
    for (int k = dim; k + 1 < problem->dims; k++) {
        problem->extent[k] = problem->extent[k + 1];
        for (int i = 0; i < ONS_OPERANDS; i++)
            problem->operand[i].stride[k] = problem->operand[i].stride[k + 1];
    }
    problem->dims--;
}

/* Joins dimensions begin to begin + count. Returns the number that is left. */
static int join(ons_problem *problem, int begin, int count, int least) {
    for (int dim = begin; dim < begin + count && count > least;)
        if (problem->extent[dim] == 1) {
            remove_dim(problem, dim);
            count--;
        } else {
            dim++;
        }
    for (int dim = begin + count - 2; dim >= begin; dim--)
        if (joins_next(problem, dim)) {
            problem->extent[dim + 1] *= problem->extent[dim];
            remove_dim(problem, dim);
            count--;
        }
    return count;
}

void ons_coalesce(ons_problem *problem) {
    int outer = problem->dims - problem->reduced_dims;
    /* arrays beside the operands have their entries in the order of the rows */
    const bool in_order =
        ons_operations[problem->operation].loss || problem->operation == ONS_OPERATION_sample;
    for (int i = 1; i < outer && !in_order; i++)
        for (int k = i; k > 0; k--) {
            const int64_t *stride = problem->operand[ONS_X].stride;
            if (llabs(stride[k - 1]) >= llabs(stride[k])) break;
            swap_dims(problem, k - 1, k);
        }
    outer = join(problem, 0, outer, 0);
    problem->reduced_dims = join(problem, outer, problem->reduced_dims, 1);
}
