/* softmax_topk.h - of each row its k largest elements: their softmax, or its logarithm, and their
 * places. (m, d) and the k largest are found in one read (Milakov and Gimelshein, arXiv 1805.02867,
 * algorithm 4). The values are those of softmax and of log_softmax. */

#ifdef ONS_OPERATION
ONS_OPERATION(softmax_topk, TOPK, ELEMENTS, 0.0, "the k largest of softmax(x), and where they are")
#endif
