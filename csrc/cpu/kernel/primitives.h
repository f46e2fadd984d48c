/* primitives.h - the operations of a method on a tile of rows, as function types.
 *
 * A tile is n elements of each of `rows->width` rows, of the compute type (float or double). In the
 * row form the elements of a row lie side by side, and `along` is the element's size. In the column
 * form the rows lie side by side, and `across` is the element's size. Any alignment will do.
 *
 * Each operation is written once for the row form (row.h) and once for the column form (column.h),
 * and is compiled for each type and instruction set. All of them add up in the same order, so a row
 * has the same bits in either form. */
#ifndef ONS_CPU_PRIMITIVES_H
#define ONS_CPU_PRIMITIVES_H

#include "../../api/onsoftmax.h"
#include "../../api/digits.h"
#include "../../api/rounding.h"

typedef struct {
    void *data;
    int64_t along, across; /* bytes from element to element of a row, and from row to row */
} ons_tile;
#define ONS_NO_TILE ((ons_tile){NULL, 0, 0})

/* A byte for each element, `step` bytes apart: 0 excludes the element. data NULL: all count. */
typedef struct {
    const char *data;
    int64_t step;
} ons_mask;

/* Changes to elements that are loaded from an array: multiplied by the scale, and -inf where the
 * mask is 0. */
typedef struct {
    double scale;
    ons_mask where;
} ons_change;

/* The rows of a tile, and the references of their exponentials; the arrays have an entry a row. An
 * exponential is kept as e^x * 2^(LIFT - c): see exponential.h. */
typedef struct {
    int64_t width;
    /* The memory that will be read next, in the array's own type. sum_exp and exp_store_sum fetch
     * it into the caches. It is a hint: any address will do, and data NULL means none. */
    ons_tile next;
    bool past_caches;    /* finish stores past the caches; call fence afterwards */
    bool short_rows;     /* rows of at most 2 * ONS_LANES_F32 or _F64 elements */
    bool sums_in_double; /* gradients: no block in floats, since the sums are the result */
    ons_state *state;
    /* The running sums of a row's current block (sum.h), lifted as the exponentials are. For each
     * row 2 * ONS_SUMS doubles, sums_along apart. */
    double *sums;
    int64_t sums_along, sums_across;
    void *shift; /* STEPS * x * log2(e) + shift has n + STEPS * (LIFT - c) in its low bits */
    void *floor; /* so far below m that anything less gives 0 */
    void *first, *second; /* the constants of each row (operation.h) */
} ons_rows;

/* Raises each state's m to the largest element. If an element is NaN, m stays NaN. d and c do not
 * change. Copies x to `kept`, unless its data is NULL or x's. */
typedef void ons_max_fn(const ons_rows *rows, ons_tile kept, ons_tile x, int64_t n);

/* Fills shift and floor from the states' c. */
typedef void ons_set_references_fn(const ons_rows *rows);

/* Adds the exponentials of x to the running sums. n is a multiple of ONS_CHUNK, except in a row's
 * last tile. Needs shift and floor. */
typedef void ons_sum_exp_fn(const ons_rows *rows, ons_tile x, int64_t n);

/* sum_exp that also stores each exponential at e. e may be x. */
typedef void ons_exp_store_sum_fn(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n);

/* Adds the running sums to the states' d and empties them. Call it after every ONS_BLOCK elements
 * and at the end of a row. `plain`: sum filled them. */
typedef void ons_end_block_fn(const ons_rows *rows, bool plain);

/* Fills first and second from the states. */
typedef void ons_end_rows_fn(const ons_rows *rows);

/* Computes y from x, or from the kept exponentials of exp_store_sum, or from kept elements. y may
 * be x. Needs first and second. If it computes exponentials of x, it also needs shift and floor. */
typedef void ons_finish_fn(const ons_rows *rows, ons_tile y, ons_tile x, int64_t n);

/* The values of operations with one value a row, in the compute type. `anchor`: an entry a row, or
 * NULL. */
typedef void ons_values_fn(const ons_rows *rows, const double *anchor, void *values);

/* Tiles of n elements of an operation that takes a gradient. dx may be dy or y. */
typedef struct {
    ons_tile dx, dy, y;
    int64_t n;
} ons_gradients;

/* For operations that take a gradient. The first adds a tile to the sums in the states' d. The
 * second computes first and second from the states and a scale for each row. The third computes
 * dx. */
typedef void ons_add_gradient_fn(const ons_rows *rows, ons_tile dy, ons_tile y, int64_t n);
typedef void ons_end_gradients_fn(const ons_rows *rows, const double *scale);
typedef void ons_finish_gradient_fn(const ons_rows *rows, ons_gradients of);

/* All three for whole rows of n elements in the row form. Rows are added up by tiles. */
typedef void ons_gradient_rows_fn(const ons_rows *rows, ons_gradients of, int64_t tile,
                                  const double *scale);

/* The candidates for the k largest elements of a row (candidates.h), in the order in which they
 * came. */
typedef struct {
    int64_t k, room, count;
    double least; /* a later element is among the k only if it is above this; -inf at first */
    bool many;    /* so much of a tile is above `least` that raising it first pays */
    bool closed;  /* the k are NaN, so no later element is among them */
    void *values; /* of the compute type; there is room for `room` */
    int64_t *places;
    void *maxima; /* of the elements that are taken next: a vector for each block */
} ons_candidates;

/* max that also keeps the maxima of blocks, which make take faster. The tile begins at element `at`
 * of what take gets next. `at` is a multiple of ONS_CHUNK. */
typedef void ons_max_of_blocks_fn(const ons_rows *rows, ons_candidates *candidates, ons_tile x,
                                  int64_t n, int64_t at);

/* Takes the elements of a tile that begins at `place` of the rows. Call max_of_blocks first. */
typedef void ons_take_fn(const ons_rows *rows, ons_candidates *candidates, ons_tile x, int64_t n,
                         int64_t place);

/* Merges the candidates of a later part of the row. */
typedef void ons_take_candidates_fn(ons_candidates *row, const ons_candidates *part);

/* For one row, after all elements were taken. ons_cut_fn cuts the candidates to k; there may be
 * fewer if the others are -inf. ons_fill_fn then takes elements that are -inf, in order, until
 * there are k; with a mask it takes only allowed elements, or only excluded ones. ons_order_fn
 * writes the candidates to `values` and `places` in descending order; of equal ones the first comes
 * first. It may write more than k, up to ONS_ORDERED_AT_ONCE. */
enum { ONS_ORDERED_AT_ONCE = 128 };
typedef void ons_cut_fn(ons_candidates *row);
typedef void ons_fill_fn(ons_candidates *row, ons_tile x, ons_mask where, bool allowed, int64_t n,
                         int64_t place);
typedef void ons_order_fn(ons_candidates *row, void *values, int64_t *places);

/* e^m relative to 2^ons_reference(m), times `one`, as it is added to a row's d. */
typedef double ons_top_exponential_fn(double m);

/* Adds the exponentials of n elements that lie side by side, relative to 2^c, to the digits of
 * digits.h. Each element is at most ONS_LARGEST_REFERENCE in size, or far below c. */
typedef void ons_add_digits_fn(double digit[ONS_DIGITS], double c, const void *x, int64_t n);

/* For `exact` (rounded.h), in float alone.
 *
 *   top              the largest exponential of a row
 *   sum, sum_apart   add n elements to a row. They keep the exponentials at e, if given, with room
 *                    for ONS_ROUNDED_ROOM more. sum_apart counts the largest, and does not add them
 *   two_sum          adds n elements to a row in two doubles
 *   softmax, log_softmax   results of n elements from their exponentials at e, or from x if e is
 *                    NULL. A result that a double cannot decide is NaN. They return whether there
 *                    is one. y may be x */
enum { ONS_ROUNDED_ROOM = 16 };
typedef double ons_rounded_top_fn(const ons_rounded_row *row);
typedef void ons_rounded_sum_fn(ons_rounded_row *row, double *e, const float *x, int64_t n);
typedef void ons_two_sum_fn(ons_two_row *row, const float *x, int64_t n);
typedef bool ons_rounded_finish_fn(const ons_rounded_row *row, float *y, const double *e,
                                   const float *x, int64_t n);
typedef struct {
    ons_rounded_top_fn *top;
    ons_rounded_sum_fn *sum, *sum_apart;
    ons_two_sum_fn *two_sum;
    ons_rounded_finish_fn *softmax, *log_softmax;
} ons_rounded_kernels;

/* A thread that stored past the caches calls it before another thread reads the results. */
typedef void ons_fence_fn(void);

/* For naive. The first computes e = exp(x), from 0 to inf. The second adds e to the running sums.
 * The third computes from the sum the number that the results of a row need. */
typedef void ons_exp_fn(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n);
typedef void ons_sum_fn(const ons_rows *rows, ons_tile e, int64_t n);
typedef double ons_plain_row_fn(double d);

/* Converts `count` rows of `from`, scaled and masked, into `to`, `pitch` elements apart. */
typedef void ons_convert_rows_fn(const void *from, int64_t first, int64_t count, void *to,
                                 int64_t pitch);

/* Whole rows of N elements, one after the other. Their elements lie side by side in y, and in x
 * unless rows are converted. */
typedef struct {
    ons_tile x, y; /* row 0 */
    int64_t count, N;
    ons_dtype dtype; /* of y */
    ons_convert_rows_fn
        *convert; /* NULL: x is of the compute type or of 16 bits, and needs no change */
    const void *from;
    void *kept; /* buffer for ONS_KEPT_ROWS rows of the compute type, `pitch` elements apart.
                 * Batches and short rows need ONS_KEPT_SHORT_ROWS, and room for the rows that are
                 * converted at once */
    int64_t pitch;
    bool past_caches; /* y is stored past the caches */
} ons_run_of_rows;

/* Computes y from x; y may be x. x has y's type unless it is converted. Returns whether a row
 * became NaN. There are three kinds. One processes row after row. One processes batches of rows,
 * for N of at most ONS_BATCHED_F32 or _F64. One processes short rows, with a vector for each
 * element, for N of at most twice ONS_LANES_F32 or _F64. Short rows may have a y of any type, and
 * an x of another type is converted. */
typedef bool ons_run_rows_fn(const ons_run_of_rows *run);

/* Neighbouring rows that lie side by side. The addresses are those of element 0 of the first
 * row. */
typedef struct {
    const char *x;
    char *y;
    const char *where; /* NULL: all elements count */
    const char *scale; /* a double for each row; NULL: the run's scale */
    int64_t width;     /* rows */
} ons_columns;
#define ONS_NO_COLUMNS ((ons_columns){NULL, NULL, NULL, NULL, 0})

typedef ons_columns ons_columns_at_fn(const void *from, int64_t index);

/* Strips of such rows of N elements, one after the other. x and y have the compute type or 16
 * bits. */
typedef struct {
    ons_columns_at_fn *at; /* returns strip first + i of `count` */
    const void *from;
    int64_t first, count, N;
    int64_t x_along, y_along, where_along; /* bytes from element to element of a row */
    ons_dtype x_dtype, y_dtype;
    double scale;
    int64_t scale_across; /* bytes from row to row */
    /* buffer for ONS_KEPT_STRIPS strips, and for a cache line in front. `pitch` elements lie
     * between the elements of a row: whole vectors, or the width of every strip if x and y are of
     * the compute type and x needs no change */
    void *kept;
    void *strips; /* ONS_STRIPS_BYTES, aligned to a cache line; unused for short rows */
    int64_t pitch;
    bool waits;       /* there is a cache line in front of each row of elements too */
    bool past_caches; /* y is stored past the caches */
} ons_run_of_columns;

/* Computes y from x; y may be x. Returns whether a row became NaN. One kind is for short rows, with
 * N of at most twice ONS_LANES_F32 or _F64. */
typedef bool ons_run_columns_fn(const ons_run_of_columns *run);

typedef struct {
    ons_max_fn *max;
    ons_set_references_fn *set_references;
    ons_sum_exp_fn *sum_exp;
    ons_exp_store_sum_fn *exp_store_sum;
    ons_end_block_fn *end_block;
    ons_exp_fn *exp;
    ons_sum_fn *sum;
    ons_fence_fn *fence;
    ons_max_of_blocks_fn *max_of_blocks;
    ons_take_fn *take;
} ons_primitives;

typedef struct {
    ons_take_candidates_fn *take;
    ons_cut_fn *cut;
    ons_fill_fn *fill;
    ons_order_fn *order;
} ons_of_candidates;

/* The epilogue of an operation, with a result for each element or one value a row. Other entries
 * are NULL. */
typedef struct {
    ons_end_rows_fn *end_rows;
    ons_finish_fn *finish, *finish_kept, *finish_plain; /* finish_plain reads exponentials of exp,
                                                         * or elements */
    ons_values_fn *values;
    ons_plain_row_fn *plain_row;
    ons_gradient_rows_fn *gradient_rows;
    ons_add_gradient_fn *add_gradient;
    ons_end_gradients_fn *end_gradients;
    ons_finish_gradient_fn *finish_gradient;
} ons_epilogue;

/* Move n elements between an array, where they are `step` bytes apart, and a tile of the compute
 * type. Stores round once, to nearest even. */
typedef void ons_load_fn(void *tile, const char *from, int64_t step, ons_dtype dtype, int64_t n);
typedef void ons_store_fn(char *to, int64_t step, ons_dtype dtype, const void *tile, int64_t n);

/* x = x * scale, rounded once, and x = x - anchor. The second operand is one value, or one for each
 * element. */
typedef void ons_multiply_fn(void *x, const double *scale, bool each, int64_t n);
typedef void ons_subtract_fn(void *x, const double *anchor, bool each, int64_t n);

/* x = value where the mask is 0. */
typedef void ons_exclude_fn(void *x, ons_mask where, double value, int64_t n);

/* Converts: load, multiply, and exclude with -inf. */
typedef void ons_convert_fn(void *tile, const char *from, int64_t step, ons_dtype dtype,
                            ons_change by, int64_t n);

typedef struct {
    ons_load_fn *load;
    ons_store_fn *store;
    ons_multiply_fn *multiply;
    ons_subtract_fn *subtract;
    ons_exclude_fn *exclude;
    ons_convert_fn *convert;
} ons_movers;

/* An operation on whole rows, in one pass. An entry is NULL if there is no such pipeline. */
typedef struct {
    ons_run_rows_fn *rows[ONS_FLOAT64 + 1], *batches[ONS_FLOAT64 + 1]; /* for each type of y */
    ons_run_rows_fn *short_rows;
    ons_run_columns_fn *columns, *short_columns;
} ons_pipelines;

/* All functions of one instruction set, for one compute type. */
typedef struct {
    ons_primitives row, column;
    ons_epilogue end_row[ONS_OPERATION_COUNT], end_column[ONS_OPERATION_COUNT];
    ons_pipelines pipelines[ONS_OPERATION_COUNT];
    bool has_pipelines;      /* for any operation; without them `fused` runs strip by strip
                              * (run.c) */
    int64_t longest_batched; /* row in a batch */
    double one; /* the number that 1 is kept as: a state's d is larger by this factor */
    ons_top_exponential_fn *top_exponential;
    ons_add_digits_fn *add_digits;
    const ons_rounded_kernels *rounded; /* NULL in double */
    ons_of_candidates candidates;
    ons_movers move;
} ons_kernels;

typedef struct {
    const char *name;
    bool (*runs_here)(void);
    bool (*suits_here)(void); /* it runs here, and is better than those before it */
    const ons_kernels *f32, *f64;
} ons_isa;

extern const ons_isa ons_isa_scalar, ons_isa_avx2, ons_isa_avx512, ons_isa_neon;
extern const ons_kernels ons_kernels_f32_scalar, ons_kernels_f64_scalar, ons_kernels_f32_avx2,
    ons_kernels_f64_avx2, ons_kernels_f32_avx512, ons_kernels_f64_avx512, ons_kernels_f32_neon,
    ons_kernels_f64_neon;

/* vec/select.c: the selected instruction set's kernels for a compute type. */
const ons_kernels *ons_kernels_for(ons_dtype compute);

/* A function that must always be inlined, however large its file is. */
#define ONS_ALWAYS static inline __attribute__((always_inline))
/* A function that must stay a call: inline it would take registers from its caller. */
#if defined(__clang__)
#define ONS_APART __attribute__((noinline))
#else
#define ONS_APART __attribute__((noinline, noclone))
#endif

/* The numbers in the order of a row's sum (sum.h). The lanes are the same on every instruction set.
 * The lanes add up a chunk in the compute type. Running sums take the sums of a chunk. After a
 * block the running sums are added up. */
enum { ONS_LANES_F32 = 16, ONS_LANES_F64 = 8, ONS_CHUNK = 128, ONS_SUMS = 8, ONS_BLOCK = 32768 };

/* The longest rows for batches. */
enum { ONS_BATCHED_F32 = 512, ONS_BATCHED_F64 = 128 };

/* The distance of the floor below c, if x is raised to the floor. The lifted exponential would be
 * 2^-127 there, in float64 2^-1023, whose bits are those of 0. */
#define ONS_RAISED_BELOW (64.0 + 127.0)
#define ONS_RAISED_BELOW_F64 (128.0 + 1023.0)

/* The bits of the floats 2^(k / 8). k is subtracted at the top of the fraction, where t's bits add
 * it again (benchmarks/fit_exp.py). */
static const uint32_t ONS_POWERS[8] = {
    0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7, 0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7,
};

/* Rows in the buffer of ons_run_of_rows: three for row after row, or two of the largest batch and
 * the vectors past their end. Then the rows that are converted at once: a batch, or short rows. */
enum { ONS_KEPT_ROWS = 3, ONS_KEPT_SHORT_ROWS = 34 };
enum { ONS_CONVERTED_ROWS = 16, ONS_CONVERTED_SHORT_ROWS = 128 };

/* Strips in the buffer of ons_run_of_columns, and the largest width of a strip, for long and for
 * short rows. */
enum { ONS_KEPT_STRIPS = 2, ONS_MAX_COLUMNS = 256, ONS_MAX_SHORT_COLUMNS = 4096 };
/* Bytes that the pipeline of columns needs for three strips, besides their elements. */
enum { ONS_STRIPS_BYTES = 80 << 10 };

/* The most rows side by side in the column form. Elements of a row in a tile: at most 16 KiB in the
 * row form, and 256 KiB for ONS_MAX_WIDTH rows in the column form. Both are multiples of ONS_CHUNK
 * and divide ONS_BLOCK. */
enum { ONS_MAX_WIDTH = 128, ONS_ROW_TILE = 2048, ONS_COLUMN_TILE = 256 };

#endif
