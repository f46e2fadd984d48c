/* avx2.c - the primitives for AVX2 with FMA and F16C, in float. avx2_f64.c has them in double. */
#include "../kernel/primitives.h"

#if defined(__x86_64__)

#include <cpuid.h>

/* Asks the processor about F16C: clang's __builtin_cpu_supports does not know the name. */
static bool runs_here(void) {
    unsigned eax, ebx, ecx, edx;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

#define BITS 32
#define KERNELS ons_kernels_f32_avx2
#include "target.h"
ONS_TARGET_BEGIN("avx2,fma,f16c")
#include "avx2.h"
#include "../kernel/kernels.h"
ONS_TARGET_END

const ons_isa ons_isa_avx2 = {"avx2", runs_here, runs_here, &ons_kernels_f32_avx2,
                              &ons_kernels_f64_avx2};

#endif
