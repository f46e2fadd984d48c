/* avx512_f64.c - avx512.c in double. */
#include "../kernel/primitives.h"

#if defined(__x86_64__)

#define BITS 64
#define KERNELS ons_kernels_f64_avx512
#include "target.h"
ONS_TARGET_BEGIN("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")
#include "avx512.h"
#include "../kernel/kernels.h"
ONS_TARGET_END

#endif
