/* plan/steps.c - what a call runs in turn, and how often each step reads and writes arrays of x's
 * shape. For operations that are more than one method. The numbers are those of the kernels'
 * files, which say them too. */
#include "../api/logprob.h"
#include "../api/loss.h"
#include "../api/plan_facts.h"

/* The steps that were added so far. */
typedef struct {
    ons_step *steps;
    const ons_plan *plan;
    int count;
} step_list;

/* A step with the shape and the method of the plan. */
static void add(step_list *to, const char *what, int reads, int writes) {
    to->steps[to->count++] = (ons_step){what, to->plan->method, to->plan, reads, writes};
}
/* A step that neither reads nor writes arrays of x's shape, or that has no method. */
static void add_plain(step_list *to, const char *what, int reads, int writes) {
    to->steps[to->count++] = (ons_step){what, ONS_METHOD_AUTO, NULL, reads, writes};
}

/* cpu/logprob.c, cuda/logprob.cu */
static void add_logprob(step_list *to, const ons_problem *problem) {
    static const ons_logprob nothing_beside = {.count = 1};
    const ons_logprob *of = problem->logprob ? problem->logprob : &nothing_beside;
    if (problem->device == ONS_CUDA) {
        add(to, "all results of a row", 1, 0);
        return;
    }
    add(to, "the sum of each row, and its log-probabilities", 1, 0);
    if (of->entropy || of->rank)
        add_plain(to, "a second walk for entropy, argmax or rank", 1, 0);
    else if (of->argmax)
        add_plain(to, "a second walk for argmax, up to the largest element", 0, 0);
}

int ons_steps(const ons_problem *problem, const ons_plan *plan, ons_step steps[ONS_MOST_STEPS]) {
    step_list all = {steps, plan, 0};
    if (problem->operation == ONS_OPERATION_cross_entropy)
        add_plain(&all, "the loss of each row, from one element", 0, 0);
    if (problem->operation == ONS_OPERATION_logprob) add_logprob(&all, problem);
    return all.count;
}
