/* logprob.h - log-probabilities of some elements of a row, its entropy, and more (api/logprob.h),
 * and their gradient. */

#ifdef ONS_OPERATION
ONS_OPERATION(logprob, LOSS, NOTHING, 0.0, "x[index] - logsumexp(x)")
ONS_OPERATION(logprob_backward, LOSS_GRADIENT, NOTHING, 0.0, "the gradient of logprob")
#endif
