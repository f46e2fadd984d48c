/* avx2_f64.c - avx2.c in double. */
#include "../kernel/primitives.h"

#if defined(__x86_64__)

#define BITS 64
#define KERNELS ons_kernels_f64_avx2
#include "target.h"
ONS_TARGET_BEGIN("avx2,fma,f16c")
#include "avx2.h"
#include "../kernel/kernels.h"
ONS_TARGET_END

#endif
