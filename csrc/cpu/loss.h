/* loss.h - what a loss and its gradient have beside softmax (api/loss.h). */
#ifndef ONS_CPU_LOSS_H
#define ONS_CPU_LOSS_H

#include "strip/strip.h"

/* Computes the loss of each row. The rows' pairs are given. */
ons_cpu_method ons_cpu_losses;

/* The first is called after the epilogue's end_rows, and multiplies the rows' constants. The second
 * is called after finish, and turns n results from element j on into the gradient. */
void ons_loss_end_rows(ons_strip *strip);
void ons_loss_finish(ons_strip *strip, int64_t j, int64_t n);

#endif
