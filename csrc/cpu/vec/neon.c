/* neon.c - the primitives for AArch64, in float, with the processor's own rounding to bfloat16 if
 * it has one. neon_f64.c has them in double. */
#include "../kernel/primitives.h"

#if defined(__aarch64__)

#include <math.h>
#include <string.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

#define BITS 32
#define KERNELS ons_kernels_f32_neon
#include "neon.h"
#include "../kernel/kernels.h"

/* Runs when the library is loaded, since storing one array takes many calls. */
__attribute__((constructor)) static void ask_processor(void) {
#if defined(__linux__)
    const unsigned long bf16 = 1ul << 14; /* HWCAP2_BF16, which older headers lack */
    ons_rounds_to_bfloat = getauxval(AT_HWCAP2) & bf16;
#endif
}

static bool runs_here(void) { return true; }

const ons_isa ons_isa_neon = {"neon", runs_here, runs_here, &ons_kernels_f32_neon,
                              &ons_kernels_f64_neon};

#endif
