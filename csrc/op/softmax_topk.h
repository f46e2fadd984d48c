/* softmax_topk.h - of each row its k largest elements: their softmax, or its logarithm, and their
 * places. (m, d) and the k largest are found in one read (Milakov and Gimelshein, arXiv 1805.02867,
 * algorithm 4). The values are those of softmax and of log_softmax. */

#ifdef ONS_OPERATION
ONS_OPERATION(softmax_topk, TOPK, ELEMENTS, 0.0, "the k largest of softmax(x), and where they are")
#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(softmax_topk, TOPK,
                        "The k largest softmax probabilities of each row and their places along "
                        "axis: (values, indices), or\n"
                        "(values, indices, pairs), where the pairs are normalizer's.",
                        "", ">>> ons._core.softmax_topk([1.0, 3.0, 2.0], 2)[1]\narray([1, 2])\n")
#endif
