/* logprob.h - log-probabilities on the CPU. */
#ifndef ONS_CPU_LOGPROB_H
#define ONS_CPU_LOGPROB_H

#include "cpu.h"

ons_cpu_method ons_cpu_logprob, ons_cpu_logprob_backward;

#endif
