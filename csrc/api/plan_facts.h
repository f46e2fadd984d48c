/* plan_facts.h - what is told of a plan beside its own figures. */
#ifndef ONS_PLAN_FACTS_H
#define ONS_PLAN_FACTS_H

#include "onsoftmax.h"

/* How often it reads the whole array; where the elements decide that, the least. */
int ons_plan_reads(const ons_problem *problem, const ons_plan *plan);

/* The bytes of one read of the whole array; of both arrays for an operation that takes a gradient.
 */
int64_t ons_read_bytes(const ons_problem *problem, const ons_plan *plan);

/* plan/times.c: how long a plan takes on its GPU, in seconds, and how long a copy of the array
 * does: as measured on an H100 (plan/measured_times.def), and interpolated. 0 where nothing was
 * measured: on another GPU or the CPU, of another operation than softmax, of arrays with gaps or of
 * two types.
 */
double ons_measured_seconds(const ons_problem *problem, const ons_machine *machine,
                            const ons_plan *plan);
double ons_measured_copy_seconds(const ons_problem *problem, const ons_machine *machine,
                                 const ons_plan *plan);

/* plan/times.c: how long a launch of the plan's method takes if it has almost nothing to do, in
 * seconds: the shortest time that was measured on an H100, whatever the plan's GPU. 0 on the CPU.
 */
double ons_launch_seconds(const ons_problem *problem, const ons_plan *plan);

/* plan/times.c: the bytes that must pass through memory: bytes_moved without the reads that a GPU's
 * L2 may serve, since it has room for what lies between two reads of an element. */
int64_t ons_least_bytes(const ons_problem *problem, const ons_machine *machine,
                        const ons_plan *plan);

#endif
