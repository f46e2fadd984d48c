/* candidates.h - where the candidates of a strip's rows lie. */
#ifndef ONS_CPU_CANDIDATES_H
#define ONS_CPU_CANDIDATES_H

#include "../cpu.h"

int64_t ons_candidates_bytes(const ons_plan *plan);

/* Where the k largest of each row of a strip are put, row after row without a gap. What is written
 * behind the k is in the room of the rows that follow. */
typedef struct {
    char *values; /* of the compute type */
    int64_t *places;
} ons_selected;

/* An ons_candidates a row, their buffers behind those, and behind these what is selected. */
void ons_place_candidates(const ons_plan *plan, ons_candidates *rows, ons_selected *selected);

/* Makes the candidates of the strip's rows none. */
void ons_no_candidates(ons_candidates *rows, int64_t width);

/* Candidates of a block of a row, at most k of them, that are kept apart: the bytes that takes; and
 * an ons_candidates is put there. */
int64_t ons_kept_candidates_bytes(const ons_plan *plan);
void ons_keep_candidates(const ons_plan *plan, char *kept, const ons_candidates *row);

#endif
