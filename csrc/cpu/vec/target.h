/* target.h - lets the functions between ONS_TARGET_BEGIN("...") and ONS_TARGET_END use more
 * instructions than the compiler's baseline. What must hold: nothing outside calls them before
 * select.c has asked the processor. Headers that define functions are included before or after,
 * never between. */
#ifndef ONS_CPU_TARGET_H
#define ONS_CPU_TARGET_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define ONS_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define ONS_TARGET_BEGIN(features) \
    ONS_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define ONS_TARGET_END ONS_PRAGMA(clang attribute pop)
#else
#define ONS_TARGET_BEGIN(features) ONS_PRAGMA(GCC push_options) ONS_PRAGMA(GCC target(features))
#define ONS_TARGET_END ONS_PRAGMA(GCC pop_options)
#endif

#endif
