/* scalar.c - the primitives in plain C, for any processor. */
#include "scalar.h"

#define ISA scalar
#define WITHOUT_PIPELINES
#define BITS 32
#include "../kernel/primitives_tmpl.h"
#define BITS 64
#include "../kernel/primitives_tmpl.h"

static bool runs_here(void) { return true; }

const ons_isa ons_isa_scalar = {"scalar", runs_here, runs_here, &ons_kernels_f32_scalar,
                                &ons_kernels_f64_scalar};
