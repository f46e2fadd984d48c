/* vectors.h - the words that the primitives are written in, once for all types and instruction
 * sets.
 *
 * A file vec/<isa>.c compiles them for float, vec/<isa>_f64.c for double. It defines before:
 *   BITS      32 or 64: the compute type, float or double
 *   KERNELS   the name of the table that kernels.h fills
 *   WITHOUT_PIPELINES   if the primitives are enough
 *
 * Vectors are of a type that C adds, subtracts, multiplies and divides lane by lane. vec/<isa>.h
 * defines what else is done with them. For float, and for double with f64_: f32_t the
 * element, f32_vec with F32_WIDTH of them, f32_set f32_load f32_store f32_stream (an aligned store
 * past the caches, where there is such a thing, which f32_fence ends) f32_load_columns
 * f32_store_columns (four elements of each of F32_WIDTH rows, a vector of the rows' for each
 * element; row after row) f32_narrow (of F32_WIDTH doubles) f32_load_part f32_store_part (the first
 * k elements; the rest read as -inf) f32_join (the first k elements of a, the rest of b) f32_where
 * (a where the byte is not 0, else b) f32_held (as it is, and loaded once where it is used several
 * times: gcc reads a vector again for each use, twice where it lies across two cache lines) f32_max
 * (NaN where the second operand is; NaN or the second where the first is) f32_min (of numbers)
 * f32_nan_or f32_any_nan (remember the NaN that f32_max drops) f32_max_lanes f32_max_rows (of
 * F32_WIDTH vectors: the largest lane of each) f32_between (a where its size is above low and below
 * high, else 0) f32_above (a bit for each lane of a that is not at or below that of b: for NaN too)
 * f32_add_above (of each lane's bits one more where f32_above has a bit) f32_any_outside (whether a
 * lane of a is above that of b, or below -b) f32_widen (to as many doubles, in one f64_vec or two)
 * f64_rest (c - a * b, rounded once) f32_fma f32_fnma f32_times (a * (factor + low), rounded once)
 * f32_product (of what is in memory and a double of more than 25 bits, rounded once) F32_ONE (what
 * 1 is kept as; F32_LOG_OF_ONE is its logarithm) f32_power (F32_ONE * 2^(k / STEPS), k the integer
 * in the low bits of t) f32_limit and f32_fma_limited (of what is below the floor: 0) f32_beside
 * (vectors whose exponentials are computed side by side: 1, 2 or 4) f32_add_lanes (ONS_LANES_F32
 * lanes as ONS_SUMS doubles, l and l
 * + ONS_SUMS into one) f32_store_quotient_bfloat (of numbers from 0 on, and NaN of any payload). */
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
#define STEPS (BITS == 32 ? 8 : 1) /* of the table of powers in a power of two */
#define LIFT (BITS == 32 ? 64 : 128)
#define LOG_OF_ONE (BITS == 32 ? F32_LOG_OF_ONE : 0.0) /* of what 1 is kept as */
#define LOWERED (BITS == 32 ? 0x1p-64 : 0x1p-128)      /* 2^-LIFT */
#define BELOW (BITS == 32 ? F32_BELOW : F64_BELOW)
#define RAISED_BELOW (BITS == 32 ? ONS_RAISED_BELOW : ONS_RAISED_BELOW_F64)
#define LOG_LIFT (BITS == 32 ? 120 : 1000) /* of exponential.h's lifted_exponential_of_log */
#define LOG_LOWERED (BITS == 32 ? 0x1p-120 / F32_ONE : 0x1p-1000)
#define LOG_LARGEST 3
/* A sum with it has integer steps. In double its low bits have the bias of an exponent already. */
#define MAGIC (BITS == 32 ? 0x1.8p23 : 0x1.8p52 + 1023)

/* The loop over a row's elements that the elementwise primitives share: BODY makes y of x. */
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
