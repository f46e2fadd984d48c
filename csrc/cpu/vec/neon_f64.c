/* neon_f64.c - neon.c in double. */
#include "../kernel/primitives.h"

#if defined(__aarch64__)

#include <math.h>
#include <string.h>

#define BITS 64
#define KERNELS ons_kernels_f64_neon
#include "neon.h"
#include "../kernel/kernels.h"

#endif
