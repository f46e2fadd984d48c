/* avx512.c - the primitives for AVX-512 F, DQ, BW and VL. */
#include "primitives.h"

#if defined(__x86_64__)

static bool runs_here(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

#include "target.h"
ONS_TARGET_BEGIN("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")
#include "simd_avx512.h"

#define ISA avx512
#define BITS 32
#include "primitives_tmpl.h"
#define BITS 64
#include "primitives_tmpl.h"
ONS_TARGET_END

const ons_isa ons_isa_avx512 = {"avx512", runs_here, &ons_kernels_f32_avx512,
                                &ons_kernels_f64_avx512};

#endif
