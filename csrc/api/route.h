/* route.h - what a router takes besides its logits. A row has a logit for each of N experts. Each
 * expert has a score, and a key: its score plus its bias. The k largest keys choose the experts.
 * Without a bias the logit is the key, since a larger logit never has a smaller score.
 *
 * The experts lie in `groups` equal groups. The value of a group is its largest key, or with a bias
 * the sum of its two largest keys. The chosen experts come from the `top_groups` groups with the
 * largest values. Ties go to the lower index. NaN is the largest. `where` allows some experts. The
 * excluded experts come last. A group without an allowed expert comes after all other groups.
 *
 * The weight of a chosen expert is its score. With `renormalize` it is divided by the sum of the k
 * weights, or stays 0 if this sum is 0. At the end it is multiplied by `scale`. */
#ifndef ONS_ROUTE_H
#define ONS_ROUTE_H

#include "problem.h"
#include "state.h"

/* The score of a logit x: softmax of its row, 1 / (1 + e^-x), sqrt(log(1 + e^x)), or x itself. If
 * the score is x, the weights are renormalized by softmax over the k logits. */
typedef enum {
    ONS_SCORE_SOFTMAX,
    ONS_SCORE_SIGMOID,
    ONS_SCORE_SQRTSOFTPLUS,
    ONS_SCORE_NONE
} ons_score;

typedef struct ons_route {
    ons_score score;
    const void *bias; /* a number for each expert, in the arithmetic's type; NULL: none */
    int64_t groups, top_groups;
    bool renormalize;
    double scale;
} ons_route;

ONS_INLINE bool ons_route_has_groups(const ons_route *route) {
    return route->top_groups < route->groups;
}

/* Whether (m, d) of the whole row is needed. */
ONS_INLINE bool ons_route_needs_pair(const ons_route *route) {
    return route->score == ONS_SCORE_SOFTMAX && (route->bias || !route->renormalize);
}

/* Whether weights are renormalized as exponentials of logits. Then d of the whole row cancels. */
ONS_INLINE bool ons_route_is_softmax_of_k(const ons_route *route) {
    return route->renormalize &&
           (route->score == ONS_SCORE_SOFTMAX || route->score == ONS_SCORE_NONE);
}

#endif
