/* near_zero.h - all digits of logarithms near 0, for `safe`. */
#ifndef ONS_CPU_NEAR_ZERO_H
#define ONS_CPU_NEAR_ZERO_H

#include "strip/strip.h"

/* Call it when the states of the strip's rows are known. Rows of log_softmax and logsumexp with a
 * result near 0 are read once more, and get a state that has all digits of the result. */
void ons_near_zero_keep_digits(ons_strip *strip);

#endif
