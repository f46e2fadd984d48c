/* part.h - some rows of a problem as a problem of their own, for an operation that is made of other
 * operations. */
#ifndef ONS_CPU_PART_H
#define ONS_CPU_PART_H

#include "../api/problem.h"

/* The bytes from an operand's first row to row `row`. */
int64_t ons_offset_of_row(const ons_problem *problem, ons_role role, int64_t row);

/* Counts the rows from `row` on, until another dimension than the last outer one changes. It counts
 * at most `most` rows, and stops at row `end`. */
int64_t ons_rows_together(const ons_problem *problem, int64_t row, int64_t end, int64_t most);

/* Makes `part` of such rows. Its operands are the problem's. */
void ons_take_part(const ons_problem *problem, int64_t row, int64_t rows, ons_problem *part);

/* Makes an operand of a part rows of n elements each, side by side from `data` on. */
void ons_place_rows(ons_problem *part, ons_role role, void *data, ons_dtype dtype, int64_t n);

#endif
