/* route.h - the router of a mixture of experts: for each row of logits the k experts with the
 * largest scores, and their weights (api/route.h). */

#ifdef ONS_OPERATION
ONS_OPERATION(route, ROUTE, NOTHING, 0.0, "the k experts of the largest scores, and their weights")
#endif
