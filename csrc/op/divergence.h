/* divergence.h - the divergence between the softmax p of each row of x and the softmax q of the
 * same row of ONS_GRADIENT, and its gradient with respect to x (api/loss.h). */

#ifdef ONS_OPERATION
ONS_OPERATION(kl_divergence, DIVERGENCE, NOTHING, 0.0, "sum(p log(p / q))")
ONS_OPERATION(reverse_kl_divergence, DIVERGENCE, NOTHING, 0.0, "sum(q log(q / p))")
ONS_OPERATION(js_divergence, DIVERGENCE, NOTHING, 0.0,
              "beta sum(p log(p / r)) + (1 - beta) sum(q log(q / r)), r = beta p + (1 - beta) q")
#endif
