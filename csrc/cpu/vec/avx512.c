/* avx512.c - the primitives for AVX-512 F, DQ, BW and VL: in float, as avx512_f64.c in double. */
#include "../kernel/primitives.h"

#if defined(__x86_64__)

static bool runs_here(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

/* The Xeons of Skylake's kind, up to Cooper Lake, lower the clock of a core for a millisecond or so
 * after 512-bit multiplications, to 0.6 to 0.8 of what they run other code at; that slows whatever
 * comes after a softmax, which with AVX2 takes little longer. What came later (Ice Lake, AMD's
 * Zen 4) has VBMI2 and loses a few percent or nothing. */
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
