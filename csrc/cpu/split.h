/* split.h - what the plan of `split` needs to know. */
#ifndef ONS_CPU_SPLIT_H
#define ONS_CPU_SPLIT_H

#include "strip/strip.h"

/* Pairs held at once, about: rows are taken in waves, each of so many blocks. */
enum { ONS_SPLIT_PAIRS = 1024 };

int64_t ons_split_shared_bytes(const ons_plan *plan);

#endif
