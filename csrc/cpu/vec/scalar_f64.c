/* scalar_f64.c - scalar.c in double. */
#define BITS 64
#define KERNELS ons_kernels_f64_scalar
#define WITHOUT_PIPELINES
#include "scalar.h"
#include "../kernel/kernels.h"
