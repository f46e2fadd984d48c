/* plan_facts.h - facts about a plan beside its own numbers. */
#ifndef ONS_PLAN_FACTS_H
#define ONS_PLAN_FACTS_H

#include "onsoftmax.h"

/* Number of doubles that a method gives for each row, in an operation with a pair a row. */
int ons_pair_values(ons_method method);

/* How often the plan reads the whole array. If that depends on the elements, the least number. */
int ons_plan_reads(const ons_problem *problem, const ons_plan *plan);

/* Bytes of one read of the whole array. For a backward step they are the bytes of both inputs. A
 * divergence reads its two inputs one by one. */
int64_t ons_read_bytes(const ons_problem *problem, const ons_plan *plan);

/* On a GPU: the blocks that share a row, or 0 if a block has several rows; and the threads of a
 * block. Some kernels have other numbers in their plan, such as the blocks of all rows. */
int64_t ons_blocks_a_row(const ons_plan *plan);

/* The number of reads that bring all inputs once. */
int ons_first_reads(ons_operation operation);

/* A step of a call: a kernel, or a pass of it over all rows. */
typedef struct {
    const char *what;     /* the step gives it */
    ons_method method;    /* ONS_METHOD_AUTO: the step has no method */
    const ons_plan *plan; /* the step's shape; NULL: the step has no plan of its own */
    int reads, writes;    /* of arrays of x's shape */
} ons_step;
enum { ONS_MOST_STEPS = 6 };

/* plan/steps.c: the steps of a problem, in turn. Returns their number. It is 0 if the method tells
 * all: for an operation of softmax, and for softmax_topk. */
static inline bool ons_has_steps(ons_operation operation) {
    return ons_operations[operation].loss || operation == ONS_OPERATION_route ||
           operation == ONS_OPERATION_sample;
}
int ons_steps(const ons_problem *problem, const ons_plan *plan, ons_step steps[ONS_MOST_STEPS]);

/* cpu/route.c: the bytes of a router's scratch on the CPU. *piece becomes the number of rows that a
 * thread takes at a time. */
int64_t ons_route_scratch(const ons_problem *problem, const ons_plan *plan, int64_t *piece);

/* plan/times.c: seconds that a plan takes on its GPU, and that a copy of the array takes. They are
 * interpolated from times on an H100 (plan/measured_times.def). 0 if nothing was measured: for
 * other GPUs, the CPU, operations other than softmax, arrays with gaps or with two types. */
double ons_measured_seconds(const ons_problem *problem, const ons_machine *machine,
                            const ons_plan *plan);
double ons_measured_copy_seconds(const ons_problem *problem, const ons_machine *machine,
                                 const ons_plan *plan);

/* plan/times.c: seconds that a launch of the plan's method takes if it has almost nothing to do.
 * This is the shortest time that was measured on an H100, whatever the plan's GPU. 0 on the CPU. */
double ons_launch_seconds(const ons_problem *problem, const ons_plan *plan);

/* plan/times.c: seconds that the arithmetic of `exact` takes at least, because it is in double. 0
 * for other methods, on the CPU, and if the GPU's speed is unknown. */
double ons_arithmetic_seconds(const ons_problem *problem, const ons_machine *machine,
                              const ons_plan *plan);

/* plan/times.c: bytes that must pass through memory. These are bytes_moved without the reads that a
 * GPU's L2 may serve, because it holds everything between two reads of an element. */
int64_t ons_least_bytes(const ons_problem *problem, const ons_machine *machine,
                        const ons_plan *plan);

/* The same for kernels in turn that read the whole array `reads` times. plan->bytes_moved is of all
 * kernels. */
int64_t ons_least_bytes_in_turn(const ons_problem *problem, const ons_machine *machine,
                                const ons_plan *plan, int reads);

#endif
