/* topk.h - the end of an operation that selects. */
#ifndef ONS_CPU_TOPK_H
#define ONS_CPU_TOPK_H

#include "strip/strip.h"

/* The k largest of each row and their places, from the rows' candidates, as strip->selected. Then
 * they are turned into results, from the rows' states. ons_topk_store stores the results, and the
 * pairs if the problem asks for them. ons_topk_finish does all three. */
void ons_topk_select(ons_strip *strip);
void ons_topk_store(ons_strip *strip);
void ons_topk_finish(ons_strip *strip);

#endif
