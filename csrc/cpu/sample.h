/* sample.h - shared by the files of the sampler on the CPU (api/sample.h). */
#ifndef ONS_CPU_SAMPLE_H
#define ONS_CPU_SAMPLE_H

#include <math.h>
#include <stdatomic.h>

#include "../api/sample.h"
#include "cpu.h"

typedef struct {
    const ons_problem *problem;
    const ons_plan *plan;
    const ons_sample *sample;
    ons_run_part *run_part;
    const ons_kernels *kernels;
    int64_t size;  /* of a number of the compute type */
    int64_t piece; /* rows */
    atomic_int status;
} ons_sampling;

static const ons_drawn_token ONS_NOT_VALID = {-1, NAN, NAN};

/* Number i of an array of the compute type. */
static inline double ons_sample_p_at(const ons_sampling *of, const void *array, int64_t i) {
    return of->plan->compute == ONS_FLOAT64 ? ((const double *)array)[i]
                                            : (double)((const float *)array)[i];
}

static inline void ons_sample_no_p(const ons_sampling *of, void *array, int64_t i) {
    if (of->plan->compute == ONS_FLOAT64)
        ((double *)array)[i] = 0;
    else
        ((float *)array)[i] = 0;
}

/* sample_masses.c: draws from row number `number`, whose filters do not end in its list, by the
 * probabilities p of its tokens. `scale` multiplies its logits. */
ons_drawn_token ons_draw_by_masses(ons_sampling *of, const ons_row_filters *filters, int64_t number,
                                   double scale, const void *p);
/* The same row: sets the probabilities of the excluded tokens to 0. */
void ons_keep_by_masses(ons_sampling *of, const ons_row_filters *filters, int64_t number,
                        double scale, void *p);

#endif
