/* candidates.h - the memory of a strip's candidates. */
#ifndef ONS_CPU_CANDIDATES_H
#define ONS_CPU_CANDIDATES_H

#include "../cpu.h"

int64_t ons_candidates_bytes(const ons_plan *plan);

/* The k largest of each row of a strip, row after row without gaps. Writes past a row's k land in
 * the room of later rows. */
typedef struct {
    char *values; /* of the compute type */
    int64_t *places;
} ons_selected;

/* Lays out an ons_candidates for each row, then their buffers, then the selected elements. */
void ons_place_candidates(const ons_plan *plan, ons_candidates *rows, ons_selected *selected);

/* Empties the candidates of the strip's rows. */
void ons_no_candidates(ons_candidates *rows, int64_t width);

/* At most k candidates of a block of a row, kept apart: the number of bytes they take, and a copy
 * to `kept`. */
int64_t ons_kept_candidates_bytes(const ons_plan *plan);
void ons_keep_candidates(const ons_plan *plan, char *kept, const ons_candidates *row);

#endif
