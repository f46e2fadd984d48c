/* core_require.h - what the C programs of the tests share: a requirement, and random numbers. */
#ifndef CORE_REQUIRE_H
#define CORE_REQUIRE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../csrc/api/onsoftmax.h"

#define REQUIRE(holds, ...)                                          \
    do {                                                             \
        if (!(holds)) {                                              \
            fprintf(stderr, "%s: not so: %s\n  ", __func__, #holds); \
            fprintf(stderr, __VA_ARGS__);                            \
            fputc('\n', stderr);                                     \
            exit(1);                                                 \
        }                                                            \
    } while (0)

static inline double uniform(void) { /* xorshift64*: Vigna, arXiv 1402.6246 */
    static uint64_t state = 20250123;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return ldexp((double)((state * UINT64_C(2685821657736338717)) >> 11) + 0.5, -53);
}

#endif
