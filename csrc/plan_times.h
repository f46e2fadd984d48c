/* plan_times.h - what plan_times.c answers. */
#ifndef ONS_PLAN_TIMES_H
#define ONS_PLAN_TIMES_H

#include "onsoftmax.h"

/* How long a plan takes on its GPU, in seconds, and how long a copy of the array does: as measured
 * on an H100 (plan_times.def), and interpolated. 0 where nothing was measured: on another GPU or
 * the CPU, of another operation than softmax, of arrays with gaps or of two types. */
double ons_measured_seconds(const ons_problem *problem, const ons_machine *machine,
                            const ons_plan *plan);
double ons_measured_copy_seconds(const ons_problem *problem, const ons_machine *machine,
                                 const ons_plan *plan);

#endif
