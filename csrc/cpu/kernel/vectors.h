/* vectors.h - the vocabulary of the primitives, which are written once for all types and
 * instruction sets.
 *
 * A file vec/<isa>.c compiles them for float, vec/<isa>_f64.c for double. Before that it defines
 *
 *   BITS      32 or 64: the compute type, float or double
 *   KERNELS   the name of the table that kernels.h fills
 *   WITHOUT_PIPELINES   if the primitives are enough
 *
 * Vectors have a type that C adds, subtracts, multiplies and divides lane by lane. vec/<isa>.h
 * defines the rest, for float, and for double with f64_:
 *
 *   f32_t, f32_vec     the element, and F32_WIDTH of them
 *   f32_set f32_load f32_store f32_fma f32_fnma f32_min (of numbers) f32_max_lanes
 *   f32_stream         an aligned store past the caches, if there is one; f32_fence ends it
 *   f32_load_columns f32_store_columns   four elements of each of F32_WIDTH rows: a vector of
 *                      the rows for each element, and back
 *   f32_narrow f32_widen   from F32_WIDTH doubles, and to them, in one f64_vec or two
 *   f32_load_part f32_store_part   the first k elements; the rest are read as -inf
 *   f32_join           the first k elements of a, the rest of b
 *   f32_where          a where the byte is not 0, else b
 *   f32_held           the same vector, loaded once although it is used several times: gcc reads
 *                      it again for each use, twice if it lies across two cache lines
 *   f32_max            NaN if the second operand is; NaN or the second if the first is
 *   f32_nan_or f32_any_nan   remember the NaN that f32_max drops
 *   f32_max_rows       the largest lane of each of F32_WIDTH vectors
 *   f32_between        a if its size is above low and below high, else 0
 *   f32_above          a bit for each lane of a that is above b's, or if one of them is NaN
 *   f32_add_above      adds one to the bits of each lane that has a bit in f32_above
 *   f32_any_outside    whether a lane of a is above b's, or below -b's
 *   f32_same           a where it equals b, else NaN
 *   f64_rest           c - a * b, rounded once
 *   f32_times          a * (factor + low), rounded once
 *   f32_product        a vector in memory times a double of more than 25 bits, rounded once
 *   F32_ONE            the number that 1 is kept as; F32_LOG_OF_ONE is its logarithm
 *   f32_power          F32_ONE * 2^(k / STEPS), with the integer k in the low bits of t
 *   f64_power_16       2^(k / 16) with the integer k in the low bits of t, if F64_STEPS is 16
 *   f32_limit f32_fma_limited   give 0 for elements below the floor
 *   f32_beside         how many vectors have their exponentials computed at once: 1, 2 or 4
 *   f32_add_lanes      ONS_LANES_F32 lanes as ONS_SUMS doubles: adds l and l + ONS_SUMS
 *   f32_store_quotient_bfloat   of numbers that are not negative, and any NaN */
#ifndef ONS_CPU_KERNEL_VECTORS_H
#define ONS_CPU_KERNEL_VECTORS_H

#include "primitives.h"

#if BITS == 32
#define ONS_TO_FLOAT(value) (value)
#define ONS_PRODUCT(x, scale) ons_product_to_float(x, scale)
#define V(name) f32_##name
#else
#define ONS_TO_FLOAT(value) ons_double_to_odd_float(value)
#define ONS_PRODUCT(x, scale) ((x) * (scale))
#define V(name) f64_##name
#endif
#define OWN (BITS == 32 ? ONS_FLOAT32 : ONS_FLOAT64)
#define T V(t)
#define VEC V(vec)

#define WIDTH ((int64_t)(sizeof(VEC) / sizeof(T)))
#define LANES (BITS == 32 ? (int64_t)ONS_LANES_F32 : (int64_t)ONS_LANES_F64)
#define VECS (LANES / WIDTH)       /* vectors that hold the lanes */
#define QUAD (4 * LANES)           /* elements that each lane adds as (a + b) + (c + d) */
#define TERMS 8                    /* elements that a lane adds as a tree, in T */
#define STEPS (BITS == 32 ? 8 : 1) /* entries in the table of powers for a power of two */
#define LIFT (BITS == 32 ? 64 : 128)
#define LOG_OF_ONE (BITS == 32 ? F32_LOG_OF_ONE : 0.0) /* log of 1 as it is kept */
#define LOWERED (BITS == 32 ? 0x1p-64 : 0x1p-128)      /* 2^-LIFT */
#define BELOW (BITS == 32 ? F32_BELOW : F64_BELOW)
#define RAISED_BELOW (BITS == 32 ? ONS_RAISED_BELOW : ONS_RAISED_BELOW_F64)
#define LOG_LIFT (BITS == 32 ? 120 : 1000) /* of lifted_exponential_of_log (exponential.h) */
#define LOG_LOWERED (BITS == 32 ? 0x1p-120 / F32_ONE : 0x1p-1000)
#define LOG_LARGEST 3
/* A sum with it is rounded to an integer. In double its low bits already contain the bias of an
 * exponent. */
#define MAGIC (BITS == 32 ? 0x1.8p23 : 0x1.8p52 + 1023)

/* The loop of the elementwise primitives over the elements of a row. BODY computes y from x. */
#define EACH_VECTOR(y, x, n, BODY)                          \
    do {                                                    \
        int64_t j_ = 0;                                     \
        for (; j_ + WIDTH <= (n); j_ += WIDTH) {            \
            VEC a = V(load)((x) + j_);                      \
            V(store)((y) + j_, BODY(a, j_));                \
        }                                                   \
        if (j_ < (n)) {                                     \
            VEC a = V(load_part)((x) + j_, (n) - j_);       \
            V(store_part)((y) + j_, BODY(a, j_), (n) - j_); \
        }                                                   \
    } while (0)

#endif
