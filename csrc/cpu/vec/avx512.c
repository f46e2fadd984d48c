/* avx512.c - the primitives for AVX-512 F, DQ, BW and VL, in float. avx512_f64.c has them in
 * double. */
#include "../kernel/primitives.h"

#if defined(__x86_64__)

static bool runs_here(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

/* Xeons from Skylake to Cooper Lake lower the clock of a core for about a millisecond after 512-bit
 * multiplications, to 0.6 to 0.8 of the clock for other code. That slows whatever runs after a
 * softmax, and AVX2 takes little longer. Later processors (Ice Lake, AMD's Zen 4) have VBMI2, and
 * lose a few percent or nothing. */
static bool suits_here(void) { return runs_here() && __builtin_cpu_supports("avx512vbmi2"); }

#define BITS 32
#define KERNELS ons_kernels_f32_avx512
#include "target.h"
ONS_TARGET_BEGIN("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")
#include "avx512.h"
#include "../kernel/kernels.h"
ONS_TARGET_END

const ons_isa ons_isa_avx512 = {"avx512", runs_here, suits_here, &ons_kernels_f32_avx512,
                                &ons_kernels_f64_avx512};

#endif
