/* sample.h - the sampler of a language model: for each row of logits a random token, after filters.
 * Also the probabilities of the tokens after filters (api/sample.h). */

#ifdef ONS_OPERATION
ONS_OPERATION(sample, ROUTE, NOTHING, 0.0, "a random element by the row's softmax, after filters")
ONS_OPERATION(filtered_softmax, ROUTE, NOTHING, 0.0,
              "the softmax of the elements that filters keep")
#endif
