/* candidates.h - where the candidates of a strip's rows lie. */
#ifndef ONS_CPU_CANDIDATES_H
#define ONS_CPU_CANDIDATES_H

#include "../cpu.h"

int64_t ons_candidates_bytes(const ons_plan *plan);

/* Makes the candidates of the strip's rows none: an ons_candidates a row, and their buffers behind
 * those. */
void ons_no_candidates(const ons_plan *plan, ons_candidates *rows, int64_t width);

#endif
