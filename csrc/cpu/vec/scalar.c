/* scalar.c - the primitives in plain C, for any processor, in float. scalar_f64.c has them in
 * double. */
#define BITS 32
#define KERNELS ons_kernels_f32_scalar
#define WITHOUT_PIPELINES
#include "scalar.h"
#include "../kernel/kernels.h"

static bool runs_here(void) { return true; }

const ons_isa ons_isa_scalar = {"scalar", runs_here, runs_here, &ons_kernels_f32_scalar,
                                &ons_kernels_f64_scalar};
