/* primitives_tmpl.h - the primitives, written once over the vector vocabulary of simd_<isa>.h.
 *
 * Parameters, undefined at the end:
 *   BITS   32 or 64: the compute type, float or double
 *   ISA    scalar, avx2, ...: the names' suffix (left defined)
 *
 * The vocabulary, for BITS 32 (f64_ alike): f32_t the element, f32_vec with F32_WIDTH of them,
 * f32_set f32_load f32_store f32_stream (an aligned store past the caches, where there is such a
 * thing, which f32_settle ends) f32_load_columns f32_store_columns (four elements of
 * each of F32_WIDTH rows, a vector of the rows' for each element; row after row) f32_narrow (of
 * F32_WIDTH doubles) f32_load_part f32_store_part (the first k elements; the rest read as -inf)
 * f32_join (the first k elements of a, the rest of b) f32_where (a where the byte is not 0, else b)
 * f32_held (as it is, and loaded once where it is used several times: gcc reads a vector again for
 * each use, twice where it lies across two cache lines) f32_add f32_sub f32_mul f32_div f32_max
 * (NaN where the second operand is; NaN or the second where the first is) f32_nan_or f32_any_nan
 * (remember the NaN that f32_max drops) f32_max_lanes f32_max_rows (of F32_WIDTH vectors: the
 * largest lane of each) f32_between (a where its size is above low and below high, else 0)
 * f32_any_beyond (whether a lane of a is above that of b, or below -b) f32_widen (to as many
 * doubles, in one f64_vec or two) f64_rest (1 - a * b, rounded once)
 * f32_fma f32_fnma f32_times (a * (factor + beyond), rounded once) f32_product (of what is in
 * memory and a double of more than 25 bits, rounded once) F32_STEPS and f32_power (2^(k /
 * F32_STEPS), k the integer in the low bits of t) f32_beside (vectors whose exponentials are
 * computed side by side: 1, 2 or 4) f64_shift (p times 2^k, likewise, or 0 where f64_limit found x
 * below the floor) f32_sum_lanes (of ONS_LANES_F32 lanes, in a fixed tree, in double) f32_sum_rows
 * (the same of F32_WIDTH rows) f32_store_quotient_bfloat (of numbers, and of NaN whose low half is
 * 0). */

#if BITS == 32
#define ONS_TO_FLOAT(value) (value)
#define ONS_PRODUCT(x, scale) ons_product_to_float(x, scale)
#else
#define ONS_TO_FLOAT(value) ons_double_to_odd_float(value)
#define ONS_PRODUCT(x, scale) ((x) * (scale))
#endif
#define OWN (BITS == 32 ? ONS_FLOAT32 : ONS_FLOAT64)
#define INLINE ONS_ALWAYS
#define PASTE_(a, b, c, d) a##b##c##d
#define PASTE(a, b, c, d) PASTE_(a, b, c, d)
#define TYPE PASTE(f, BITS, , )
#define V(name) PASTE(TYPE, _, name, )
#define FN(name) PASTE(ons_, name, PASTE(_, TYPE, _, ), ISA)
#define T V(t)
#define VEC V(vec)

#define WIDTH ((int64_t)(sizeof(VEC) / sizeof(T)))
#define LANES (BITS == 32 ? (int64_t)ONS_LANES_F32 : (int64_t)ONS_LANES_F64)
#define VECS (LANES / WIDTH) /* vectors that hold the lanes */
#define QUAD (4 * LANES)     /* elements that each lane adds as (a + b) + (c + d) */
#define BLOCK (BITS == 32 ? (int64_t)ONS_BLOCK_F32 : (int64_t)ONS_BLOCK_F64)
#define STEPS (BITS == 32 ? F32_STEPS : 1) /* of the table of powers in a power of two */
#define LIFT (BITS == 32 ? 64 : 128)
#define LOWERED (BITS == 32 ? 0x1p-64 : 0x1p-128) /* 2^-LIFT */
#define BELOW (BITS == 32 ? F32_BELOW : 1081.0)   /* 2^-BELOW / d rounds to 0 */
#define MAGIC (BITS == 32 ? 0x1.8p23 : 0x1.8p52)  /* a sum with it has integer steps */

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

#include "../exponential.h"
#include "exponential_tmpl.h"
#include "wide_tmpl.h"
#include "row_tmpl.h"
#include "column_tmpl.h"
#include "move_tmpl.h"
#include "overlap_tmpl.h"
#include "fused_tmpl.h"
#include "group_tmpl.h"
#include "joined_group_tmpl.h"
#include "run_of_groups_tmpl.h"
#include "short_tmpl.h"
#include "columns_tmpl.h"
#include "fused_columns_tmpl.h"
#include "short_columns_tmpl.h"

static const ons_kernels FN(kernels) = {
    .row = {FN(max_row), FN(refer), FN(sum_exp_row), FN(exp_store_sum_row), FN(normalize),
            FN(finish_row), FN(scale_row), FN(exp_row), FN(sum_plain_row), FN(divide_row),
            FN(settle)},
    .column = {FN(max_column), FN(refer), FN(sum_exp_column), FN(exp_store_sum_column),
               FN(normalize), FN(finish_column), FN(scale_column), FN(exp_column),
               FN(sum_plain_column), FN(divide_column), FN(settle)},
#if BITS == 32
    .softmax_rows = {[ONS_FLOAT16] = FN(softmax_half_rows),
                     [ONS_BFLOAT16] = FN(softmax_bfloat_rows),
                     [ONS_FLOAT32] = FN(softmax_rows)},
    .softmax_groups = {[ONS_FLOAT16] = FN(softmax_half_groups),
                       [ONS_BFLOAT16] = FN(softmax_bfloat_groups),
                       [ONS_FLOAT32] = FN(softmax_groups)},
    .softmax_long_groups = {[ONS_FLOAT16] = FN(softmax_long_half_groups),
                            [ONS_BFLOAT16] = FN(softmax_long_bfloat_groups),
                            [ONS_FLOAT32] = FN(softmax_long_groups)},
#else
    .softmax_rows = {[ONS_FLOAT64] = FN(softmax_rows)},
    .softmax_groups = {[ONS_FLOAT64] = FN(softmax_groups)},
#endif
    .longest_grouped = FN(longest_grouped),
    .softmax_short_rows = FN(softmax_short_rows),
    .softmax_columns = FN(softmax_columns),
    .softmax_short_columns = FN(softmax_short_columns),
    .move = {FN(load), FN(store), FN(multiply), FN(subtract), FN(exclude), FN(bring)},
};

#undef OWN
#undef INLINE
#undef PASTE_
#undef PASTE
#undef TYPE
#undef V
#undef FN
#undef T
#undef VEC
#undef WIDTH
#undef LANES
#undef VECS
#undef QUAD
#undef BLOCK
#undef STEPS
#undef LIFT
#undef LOWERED
#undef MAGIC
#undef BELOW
#undef EACH_VECTOR
#undef GROUP
#undef ROW
#undef SET_OF
#undef AT
#undef LOAD_AT
#undef STORE_AT
#undef EACH_ELEMENT
#undef ONS_TO_FLOAT
#undef ONS_PRODUCT
#undef BITS
