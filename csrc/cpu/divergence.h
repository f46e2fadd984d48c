/* divergence.h - divergences between rows, and their gradients (op/divergence.h). */
#ifndef ONS_CPU_DIVERGENCE_H
#define ONS_CPU_DIVERGENCE_H

#include "cpu.h"

ons_status ons_cpu_divergences(const ons_problem *problem, const ons_plan *plan);

#endif
