/* topk.h - the end of an operation that selects. */
#ifndef ONS_CPU_TOPK_H
#define ONS_CPU_TOPK_H

#include "strip/strip.h"

/* Stores the k largest of each row, and where they are, from their candidates and their states; and
 * the pairs that are asked for. */
void ons_topk_finish(ons_strip *strip);

#endif
