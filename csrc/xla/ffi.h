/* ffi.h - the operations as a target of XLA's foreign function interface, for onsoftmax/jax.py. */
#ifndef ONS_XLA_FFI_H
#define ONS_XLA_FFI_H

#include "../api/logprob.h"
#include "../api/loss_parts.h"
#include "../api/packed.h"
#include "../api/route.h"
#include "../api/sample.h"
#include "abi.h"

/* The target's handlers, for CPUs and for GPUs. They run on XLA's threads and know nothing of
 * Python. */
xla_error *ons_xla_on_cpu(xla_frame *frame);
xla_error *ons_xla_on_cuda(xla_frame *frame);

/* Bits of the attribute `flags`: log and sorted of an operation that selects; ons_problem.sums; the
 * results of log-probabilities. */
enum {
    ONS_XLA_LOG = 1,
    ONS_XLA_SORTED = 2,
    ONS_XLA_SUMS = 4,
    ONS_XLA_ENTROPY = 8,
    ONS_XLA_LSE = 16,
    ONS_XLA_ARGMAX = 32,
    ONS_XLA_RANK = 64,
    ONS_XLA_MOMENTS = 128
};

/* A call: states to merge, or a problem without its device and stream. */
typedef struct {
    bool merges;
    ons_merging merging;
    ons_problem problem;
    ons_loss terms;      /* of a loss, or of a divergence: problem.loss points to it then */
    ons_logprob logprob; /* of log-probabilities: problem.logprob points to it */
    ons_route route;     /* of a router: problem.route points to it */
    ons_sample sample;   /* of a sampler: problem.sample points to it */
    ons_method method;
    int threads;
    double *scale; /* a copy for the problem, to be freed; or NULL */
} ons_xla_call;

/* call.c: fills it in from the frame's attributes and arrays. Returns NULL, or a text about what is
 * wrong. */
const char *ons_xla_take(const xla_frame *frame, ons_device device, ons_xla_call *call);

#endif
