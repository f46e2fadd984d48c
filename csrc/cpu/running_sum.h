/* running_sum.h - a sum of doubles, and what it rounded away. */
#ifndef ONS_RUNNING_SUM_H
#define ONS_RUNNING_SUM_H

#include <math.h>

#include "../api/rounding.h"

/* `wide`: the sum must be more exact than double. Floats need no more. */
ONS_INLINE void ons_add_to(double *sum, double *low, double term, bool wide) {
    const ons_two both = ons_two_sum(*sum, term);
    *sum = both.high;
    if (wide) *low += both.low;
}

/* An infinite sum has rounded nothing away. */
ONS_INLINE double ons_total(double sum, double low, bool wide) {
    return wide && isfinite(sum) ? sum + low : sum;
}

#endif
