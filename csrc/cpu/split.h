/* split.h - facts about `split` for its plan. */
#ifndef ONS_CPU_SPLIT_H
#define ONS_CPU_SPLIT_H

#include "strip/strip.h"

/* Approximate number of pairs held at once: rows are processed in waves of so many blocks. */
enum { ONS_SPLIT_PAIRS = 1024 };

int64_t ons_split_shared_bytes(const ons_plan *plan);

#endif
