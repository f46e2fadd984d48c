/* plan/steps.c - what a call runs in turn, if its operation is more than one method. It says how
 * often each step reads and writes arrays of x's shape. The files of the kernels say the same
 * numbers. */
#include "../api/logprob.h"
#include "../api/loss.h"
#include "../api/plan_facts.h"
#include "../api/route.h"
#include "../cuda/topk/sample_list.h"
#include "gpu.h"

int64_t ons_blocks_a_row(const ons_plan *plan) {
    const bool in_turn =
        plan->family == ONS_FAMILY_topk_large || plan->family == ONS_FAMILY_route_in_block;
    return in_turn ? 1 : plan->blocks_a_row;
}

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

/* cpu/divergence.c, cuda/divergence.cu, cuda/kernel/launch_divergence.cuh */
static void add_divergence(step_list *to, const ons_problem *problem) {
    static const ons_loss nothing_beside = {.gradient = false};
    const ons_loss *loss = problem->loss ? problem->loss : &nothing_beside;
    const bool js = problem->operation == ONS_OPERATION_js_divergence, gradient = loss->gradient;
    const bool of_q = problem->operation == ONS_OPERATION_reverse_kl_divergence;
    if (problem->device == ONS_CPU) {
        const int reads = ons_methods[to->plan->method].reads;
        add(to, "softmax of p", reads, 0);
        if (!js) {
            add(to, "log_softmax of p", reads, 0);
            add(to, "log_softmax of q", reads, 0);
        }
        if (js || (of_q && gradient)) add(to, "softmax of q", reads, 0);
        add_plain(
            to, gradient ? "the values and the gradient, from scratch" : "the values, from scratch",
            0, gradient);
        return;
    }
    if (to->plan->method != ONS_METHOD_split) {
        const ons_plan *plan = to->plan;
        const int64_t kept = (int64_t)plan->blocks_a_row * plan->threads * plan->elements_a_thread *
                             plan->smem_tiles;
        const bool again = js && kept < plan->N; /* cuda/js.cu */
        add(to, gradient ? "the value of each row and its gradient" : "the value of each row",
            again ? 4 + 2 * gradient : 2, gradient);
    } else {
        add(to, js ? "the pairs (m, d) of both rows" : "the value of each row", 2, 0);
        if (js) add(to, "the value of each row", 2, 0);
        if (gradient) add(to, "the gradient", 2, 1);
    }
    if (loss->reduced) add_plain(to, "the sum of the values", 0, 0);
}

/* cpu/route.c, cuda/topk/route*.cu */
static void add_route(step_list *to, const ons_problem *problem) {
    const ons_route *route = problem->route;
    const bool has_groups = ons_route_has_groups(route), needs_pair = ons_route_needs_pair(route);
    const bool has_keys = route->bias || has_groups;
    if (problem->device == ONS_CUDA) {
        if (to->plan->method != ONS_METHOD_online) {
            add(to, "the k experts and their weights", 1, 0);
            return;
        }
        if (needs_pair) add(to, "the pair (m, d) of each row", 1, 0);
        add(to, "the keys of each row, to the workspace", 1, 0);
        add_plain(to, "the k experts, from the keys, read 3 to 14 times", 0, 0);
        return;
    }
    if (has_keys && needs_pair)
        add(to, "softmax of some rows at a time, to scratch", ons_methods[to->plan->method].reads,
            0);
    if (has_keys && !(route->bias && route->score == ONS_SCORE_SOFTMAX))
        add_plain(to, "the keys of these rows, to scratch", 1, 0);
    else if (has_keys)
        add_plain(to, "the keys of these rows, from scratch to scratch", 0, 0);
    if (has_keys)
        add_plain(to, "the k largest keys, and the weights", 0, 0);
    else
        add(to, "the k largest logits, and the weights", 1, 0);
}

/* cpu/sample.c, cuda/topk/sample*.cu */
static void add_sample(step_list *to, const ons_problem *problem) {
    const ons_sample *sample = problem->sample;
    const int64_t N = to->plan->N, k = to->plan->k;
    const bool takes_all = ons_sample_takes_all(sample, N);
    if (problem->device == ONS_CPU) {
        if (takes_all) {
            add(to, "softmax of some rows at a time, to scratch",
                ons_methods[to->plan->method].reads, 0);
            add_plain(to, "the token, from scratch", 0, 0);
            return;
        }
        add(to, "the first tokens of some rows, by softmax_topk", 1, 0);
        add_plain(to, "the token, from these tokens", 0, 0);
        if (!ons_sample_ends_in_list(sample, N, 1))
            add_plain(to, "softmax of the rows that need more tokens", 0, 0);
        return;
    }
    if (takes_all) {
        add(to, "the pair (m, d) of each part of a row, and the token", 1, 0);
        return;
    }
    if (sample->temperature.of_rows && !ons_sample_knows_no_d(sample, N))
        add_plain(to, "the factor of each row's logits", 0, 0);
    const int reads = ons_topk_reads(to->plan);
    if (ons_sample_ends_listing(sample, to->plan, ons_topk_by_blocks(to->plan->family))) {
        add(to, "the first tokens of each row, by softmax_topk, and the token", reads, 0);
        return;
    }
    add(to, "the first tokens of each row, by softmax_topk", reads, 0);
    add_plain(to, "the token, from these tokens", 0, 0);
    if (!ons_sample_ends_in_list(sample, N, k))
        add_plain(to, "2 or more reads of the rows that need more tokens", 0, 0);
}

int ons_steps(const ons_problem *problem, const ons_plan *plan, ons_step steps[ONS_MOST_STEPS]) {
    step_list all = {steps, plan, 0};
    if (problem->operation == ONS_OPERATION_cross_entropy)
        add_plain(&all, "the loss of each row, from one element", 0, 0);
    if (problem->operation == ONS_OPERATION_logprob) add_logprob(&all, problem);
    if (ons_is_divergence(problem->operation)) add_divergence(&all, problem);
    if (problem->operation == ONS_OPERATION_route && problem->route) add_route(&all, problem);
    if (problem->operation == ONS_OPERATION_sample && problem->sample) add_sample(&all, problem);
    return all.count;
}
