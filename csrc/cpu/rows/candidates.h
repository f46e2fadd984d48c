/* candidates.h - where the candidates of a strip's rows lie. */
#ifndef ONS_CPU_CANDIDATES_H
#define ONS_CPU_CANDIDATES_H

#include "../cpu.h"

int64_t ons_candidates_bytes(const ons_plan *plan);

/* Makes the candidates of the strip's rows none: an ons_candidates a row, and their buffers behind
 * those. */
void ons_no_candidates(const ons_plan *plan, ons_candidates *rows, int64_t width);

/* Candidates of a block of a row, at most k of them, that are kept apart: the bytes that takes; and
 * an ons_candidates is put there. */
int64_t ons_kept_candidates_bytes(const ons_plan *plan);
void ons_keep_candidates(const ons_plan *plan, char *kept, const ons_candidates *row);

#endif
