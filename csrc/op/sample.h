/* sample.h - the sampler of a language model: for each row of logits a random token, after filters
 * (api/sample.h). */

#ifdef ONS_OPERATION
ONS_OPERATION(sample, ROUTE, NOTHING, 0.0, "a random element by the row's softmax, after filters")
#endif
