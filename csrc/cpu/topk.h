/* topk.h - the end of an operation that selects. */
#ifndef ONS_CPU_TOPK_H
#define ONS_CPU_TOPK_H

#include "strip/strip.h"

/* Stores the k largest of each row and their places, from the rows' candidates and states. Stores
 * the pairs too if the problem asks for them. */
void ons_topk_finish(ons_strip *strip);

#endif
