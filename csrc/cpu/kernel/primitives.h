/* primitives.h - the few things that a method does to a tile of rows, as function types.
 *
 * A tile is n elements of each of `rows->width` rows, of the compute type (float or double). In the
 * row form the elements of a row lie side by side (`along` is the element's size); in the column
 * form the rows do (`across` is). Any alignment will do.
 *
 * Each is written once for the row form (row.h) and once for the column form (column.h), and is
 * compiled for each type and instruction set. All of them add up in the same order, so a row has
 * the same bits in either form. */
#ifndef ONS_CPU_PRIMITIVES_H
#define ONS_CPU_PRIMITIVES_H

#include "../../api/onsoftmax.h"
#include "../../api/exact.h"
#include "../../api/state.h"

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

/* What is done to elements on the way from an array: scaled, and -inf where the mask is 0. */
typedef struct {
    double scale;
    ons_mask where;
} ons_change;

/* The rows of a tile, and what their exponentials are relative to; the arrays hold one entry a
 * row. An exponential is kept as e^x * 2^(LIFT - c): see exponential.h. */
typedef struct {
    int64_t width;
    /* what will be read after what sum_exp or exp_store_sum takes, in the array's own type: fetched
     * into the caches meanwhile. A hint, any address will do; data NULL for none */
    ons_tile next;
    bool past_caches;    /* finish stores past the caches, until fence is called */
    bool short_rows;     /* of at most 2 * ONS_LANES_F32 or _F64 elements */
    bool sums_in_double; /* of gradients, no block of them in floats: the sums are the result */
    ons_state *state;
    /* the running sums of the block of a row that is being added up (sum.h): 2 * ONS_SUMS
     * doubles, so many apart, for each row; lifted as the exponentials are */
    double *sums;
    int64_t sums_along, sums_across;
    void *shift;          /* of the compute type: a sum with it has n - c in its low bits */
    void *floor;          /* so far below m that what is less gives 0 */
    void *first, *second; /* what the operation's elements need of each row (operation.h) */
} ons_rows;

/* Raises each state's m to the largest element; to NaN for good where one is NaN. d and c stay. A
 * copy of x stays at `kept`, unless its data is NULL or x's. */
typedef void ons_max_fn(const ons_rows *rows, ons_tile kept, ons_tile x, int64_t n);

/* Fills shift and floor from the states' c. */
typedef void ons_set_references_fn(const ons_rows *rows);

/* Adds the exponentials of x to the running sums. n is a multiple of ONS_CHUNK but for a row's
 * last tile. Needs shift and floor. */
typedef void ons_sum_exp_fn(const ons_rows *rows, ons_tile x, int64_t n);

/* sum_exp that also stores each exponential, as it is kept, to e. e may be x. */
typedef void ons_exp_store_sum_fn(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n);

/* Adds the running sums to the states' d and empties them: to be called after every ONS_BLOCK
 * elements and at the end of a row. `plain`: of what sum has added. */
typedef void ons_end_block_fn(const ons_rows *rows, bool plain);

/* Fills first and second from the states. */
typedef void ons_end_rows_fn(const ons_rows *rows);

/* Computes y from x, or from what a method keeps: the exponentials of exp_store_sum, or
 * elements. y may be x. Needs first and second, and where x is exponentiated shift and floor. */
typedef void ons_finish_fn(const ons_rows *rows, ons_tile y, ons_tile x, int64_t n);

/* The results of rows with one value each, in the compute type. `anchor`: one a row, or NULL. */
typedef void ons_values_fn(const ons_rows *rows, const double *anchor, void *values);

/* Tiles of n elements of an operation that takes a gradient: dx may be either of the others. */
typedef struct {
    ons_tile dx, dy, y;
    int64_t n;
} ons_gradients;

/* For operations that take a gradient: adds to the states' d what a row adds up; makes first and
 * second of the states and of a scale a row; computes dx. */
typedef void ons_add_gradient_fn(const ons_rows *rows, ons_tile dy, ons_tile y, int64_t n);
typedef void ons_end_gradients_fn(const ons_rows *rows, const double *scale);
typedef void ons_finish_gradient_fn(const ons_rows *rows, ons_gradients of);

/* All of it for whole rows of n elements in the row form, which are added up by tiles. */
typedef void ons_gradient_rows_fn(const ons_rows *rows, ons_gradients of, int64_t tile,
                                  const double *scale);

/* The candidates for the k largest elements of a row (candidates.h), in their order. */
typedef struct {
    int64_t k, room, count;
    double least; /* what comes is among the k only if it is above this; -inf at first */
    bool many;    /* above it is so much of a tile that it is worth raising first */
    bool closed;  /* the k are NaN: nothing that comes is among them */
    void *values; /* of the compute type: there is room for `room` */
    int64_t *places;
    void *maxima; /* of what is taken next: a vector for each block of it */
} ons_candidates;

/* As max, of a tile that begins at element `at` of what take is given next, and a multiple of
 * ONS_CHUNK. Keeps what shortens that. */
typedef void ons_max_of_blocks_fn(const ons_rows *rows, ons_candidates *candidates, ons_tile x,
                                  int64_t n, int64_t at);

/* Takes the elements of a tile which begins at `place` of the rows, after max_of_blocks has. */
typedef void ons_take_fn(const ons_rows *rows, ons_candidates *candidates, ons_tile x, int64_t n,
                         int64_t place);

/* Takes the candidates of a later part of the row. */
typedef void ons_take_candidates_fn(ons_candidates *row, const ons_candidates *part);

/* Of one row. When all elements were taken: leaves k candidates, or fewer where there are no more
 * but -inf; takes elements that are -inf, in order, until there are k, of those with a mask the
 * allowed or the excluded ones; puts the candidates in descending order, of equal ones the first
 * first, at `values` and `places`. There may be more than k then, up to ONS_ORDERED_AT_ONCE. */
enum { ONS_ORDERED_AT_ONCE = 128 };
typedef void ons_cut_fn(ons_candidates *row);
typedef void ons_fill_fn(ons_candidates *row, ons_tile x, ons_mask where, bool allowed, int64_t n,
                         int64_t place);
typedef void ons_order_fn(ons_candidates *row, void *values, int64_t *places);

/* e^m relative to 2^ons_reference(m), times `one`: as it is added to a row's d. */
typedef double ons_top_exponential_fn(double m);

/* Adds the exponentials of n elements that lie side by side, relative to 2^c, to the digits of
 * sum.h. Their sizes are at most ONS_LARGEST_REFERENCE, or they are far below c. */
typedef void ons_add_exact_fn(double digit[ONS_DIGITS], double c, const void *x, int64_t n);

/* A thread that stored past the caches calls it before another thread reads that. */
typedef void ons_fence_fn(void);

/* For naive: e = exp(x), plainly, to inf and to 0; e added to the running sums; what the results
 * need of a row, from the sum. */
typedef void ons_exp_fn(const ons_rows *rows, ons_tile e, ons_tile x, int64_t n);
typedef void ons_sum_fn(const ons_rows *rows, ons_tile e, int64_t n);
typedef double ons_plain_row_fn(double d);

/* Converts `count` rows of `from`, scaled and masked, into `to`, `pitch` elements apart. */
typedef void ons_convert_rows_fn(const void *from, int64_t first, int64_t count, void *to,
                                 int64_t pitch);

/* Whole rows of N elements, one after the other. Their elements lie side by side in y, and in x
 * where no row is converted. */
typedef struct {
    ons_tile x, y; /* row 0 */
    int64_t count, N;
    ons_dtype dtype; /* of y */
    ons_convert_rows_fn
        *convert; /* NULL: x is of the compute type or of 16 bits, and nothing changes it */
    const void *from;
    void *kept; /* buffer for ONS_KEPT_ROWS rows of the compute type, or ONS_KEPT_SHORT_ROWS for
                   batches and short rows, and for those that are converted at once; `pitch`
                   elements apart */
    int64_t pitch;
    bool past_caches; /* y is stored past the caches */
} ons_run_of_rows;

/* Computes y from x; y may be x. x is of y's type unless it is converted. Returns whether a row
 * became NaN. One kind takes row after row; one batches of rows, for N of at most
 * ONS_BATCHED_F32 or _F64; one short rows, a vector of each element, for N of at most twice
 * ONS_LANES_F32 or _F64. Short rows may have a y of any type; an x that is not of the compute
 * type is converted. */
typedef bool ons_run_rows_fn(const ons_run_of_rows *run);

/* Neighbouring rows that lie side by side: element 0 of the first. */
typedef struct {
    const char *x;
    char *y;
    const char *where; /* NULL: all elements count */
    const char *scale; /* a double a row, which multiplies it; NULL: the run's scale does */
    int64_t width;     /* rows */
} ons_columns;
#define ONS_NO_COLUMNS ((ons_columns){NULL, NULL, NULL, NULL, 0})

typedef ons_columns ons_columns_at_fn(const void *from, int64_t index);

/* Strips of such rows of N elements, one after the other; x and y of the compute type or 16 bits.
 */
typedef struct {
    ons_columns_at_fn *at; /* strip first + i of `count` */
    const void *from;
    int64_t first, count, N;
    int64_t x_along, y_along, where_along; /* bytes from element to element of a row */
    ons_dtype x_dtype, y_dtype;
    double scale;
    int64_t scale_across; /* bytes from row to row */
    /* buffer for ONS_KEPT_STRIPS strips, and for a cache line in front; `pitch` elements from
     * element to element of a row: whole vectors, or the width of every strip where x and y are
     * of the compute type and nothing changes x */
    void *kept;
    void *strips; /* ONS_STRIPS_BYTES, aligned to a cache line; not used by short ones */
    int64_t pitch;
    bool waits;       /* there is a cache line in front of each of these elements too */
    bool past_caches; /* y is stored past the caches */
} ons_run_of_columns;

/* y of x; y may be x. Returns whether a row became NaN. One for N of at most twice
 * ONS_LANES_F32 or _F64. */
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

/* The epilogue of an operation: a result for each element, or one for each row; else NULL. */
typedef struct {
    ons_end_rows_fn *end_rows;
    ons_finish_fn *finish, *finish_kept, *finish_plain; /* the last one from exp's e, or elements */
    ons_values_fn *values;
    ons_plain_row_fn *plain_row;
    ons_gradient_rows_fn *gradient_rows;
    ons_add_gradient_fn *add_gradient;
    ons_end_gradients_fn *end_gradients;
    ons_finish_gradient_fn *finish_gradient;
} ons_epilogue;

/* Moves n elements, `step` bytes apart in the array, between an array's type and the compute type;
 * stores round to nearest even, once. */
typedef void ons_load_fn(void *tile, const char *from, int64_t step, ons_dtype dtype, int64_t n);
typedef void ons_store_fn(char *to, int64_t step, ons_dtype dtype, const void *tile, int64_t n);

/* x = x * scale rounded once; x = x - anchor. One value for all n elements, or one for each. */
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

/* An operation on whole rows, in one pass over them; NULL where it has no such pipeline. */
typedef struct {
    ons_run_rows_fn *rows[ONS_FLOAT64 + 1], *batches[ONS_FLOAT64 + 1]; /* of each type of y */
    ons_run_rows_fn *short_rows;
    ons_run_columns_fn *columns, *short_columns;
} ons_pipelines;

/* All functions of one instruction set, for one compute type. */
typedef struct {
    ons_primitives row, column;
    ons_epilogue end_row[ONS_OPERATION_COUNT], end_column[ONS_OPERATION_COUNT];
    ons_pipelines pipelines[ONS_OPERATION_COUNT];
    bool has_pipelines;      /* of any operation; else `fused` runs strip by strip (run.c) */
    int64_t longest_batched; /* of rows in batches */
    double one; /* what 1 is kept as: a state's d is so many times what it stands for */
    ons_top_exponential_fn *top_exponential;
    ons_add_exact_fn *add_exact;
    ons_of_candidates candidates;
    ons_movers move;
} ons_kernels;

typedef struct {
    const char *name;
    bool (*runs_here)(void);
    bool (*suits_here)(void); /* it does, and is better than those before it */
    const ons_kernels *f32, *f64;
} ons_isa;

extern const ons_isa ons_isa_scalar, ons_isa_avx2, ons_isa_avx512, ons_isa_neon;
extern const ons_kernels ons_kernels_f32_scalar, ons_kernels_f64_scalar, ons_kernels_f32_avx2,
    ons_kernels_f64_avx2, ons_kernels_f32_avx512, ons_kernels_f64_avx512, ons_kernels_f32_neon,
    ons_kernels_f64_neon;

/* vec/select.c: what the selected instruction set has for a compute type. */
const ons_kernels *ons_kernels_for(ons_dtype compute);

/* A function that must never become a call, however large the file is. */
#define ONS_ALWAYS static inline __attribute__((always_inline))
/* A function that must stay a call: inline it would take registers from its caller. */
#if defined(__clang__)
#define ONS_APART __attribute__((noinline))
#else
#define ONS_APART __attribute__((noinline, noclone))
#endif

/* How a row is added up (sum.h): its lanes, the same on every instruction set; the elements
 * of a chunk, which the lanes add in the compute type; the running sums, which take the sums of
 * a chunk; the elements of a block, after which the running sums are added up. */
enum { ONS_LANES_F32 = 16, ONS_LANES_F64 = 8, ONS_CHUNK = 128, ONS_SUMS = 8, ONS_BLOCK = 32768 };

/* The longest rows that are taken in batches. */
enum { ONS_BATCHED_F32 = 512, ONS_BATCHED_F64 = 128 };

/* Where x is raised to the floor: so far below c that the lifted exponential would be 2^-127, in
 * float64 2^-1023, whose bits are those of 0. */
#define ONS_RAISED_BELOW (64.0 + 127.0)
#define ONS_RAISED_BELOW_F64 (128.0 + 1023.0)

/* Bits of the floats 2^(k / 8), less k where t's bits add it again: at the top of the fraction
 * (benchmarks/fit_exp.py). */
static const uint32_t ONS_POWERS[8] = {
    0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7, 0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7,
};

/* Rows that the buffer of ons_run_of_rows has: three for row after row; two of the largest
 * batch, and what vectors reach past them. Rows that are converted at once: a batch, or short
 * ones. */
enum { ONS_KEPT_ROWS = 3, ONS_KEPT_SHORT_ROWS = 34 };
enum { ONS_CONVERTED_ROWS = 16, ONS_CONVERTED_SHORT_ROWS = 128 };

/* The buffer of ons_run_of_columns in strips, and the largest width of these, long and short. */
enum { ONS_KEPT_STRIPS = 2, ONS_MAX_COLUMNS = 256, ONS_MAX_SHORT_COLUMNS = 4096 };
/* Bytes that the pipeline of columns keeps of three strips, beside their elements. */
enum { ONS_STRIPS_BYTES = 80 << 10 };

/* The most rows that the column form takes side by side, and elements of each in a tile. */
enum { ONS_MAX_WIDTH = 128, ONS_COLUMN_TILE = 256 };

#endif
