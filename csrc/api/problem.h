/* problem.h - what a problem is, and what a plan for one is: the data that everybody reads. What is
 * done with them is onsoftmax.h.
 *
 * A problem names its arrays by pointer, type and byte strides, nothing else: no Python, no CUDA.
 */
#ifndef ONS_PROBLEM_H
#define ONS_PROBLEM_H

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#error "NaN, infinities and roundings must be as written: build without -ffast-math and -Ofast"
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    ONS_FLOAT16,
    ONS_BFLOAT16,
    ONS_FLOAT32,
    ONS_FLOAT64,
    ONS_BOOL,  /* of a mask alone */
    ONS_INT32, /* of indices alone, */
    ONS_INT64  /* as this is */
} ons_dtype;

typedef enum { ONS_CPU, ONS_CUDA } ons_device;

/* The operations on a row alone; the others follow in onsoftmax.h. */
typedef unsigned ons_operation;
enum {
#define ONS_OPERATION(name, result, keeps, excluded, summary) ONS_OPERATION_##name,
#include "../op/row_operations.def"
#undef ONS_OPERATION
    ONS_ROW_OPERATIONS
};

/* What a method that reads a row once keeps of it for an operation, until the (m, d) is known. */
typedef enum { ONS_KEEP_NOTHING, ONS_KEEP_ELEMENTS, ONS_KEEP_EXPONENTIALS } ons_keep;

typedef struct {
    const char *name;
    bool one_a_row; /* the result: one value a row; else it has the row's shape */
    bool pair;      /* that value is an ons_pair (state.h), whatever y's type */
    bool gradient;  /* it takes ONS_GRADIENT too, and adds up what it makes of both, no exponentials
                     */
    bool selects;   /* the result: of each row its k largest, and ONS_INDICES */
    ons_keep keeps;
    double excluded; /* the result of an element that `where` excludes */
    const char *summary;
} ons_operation_info;

/* Every method of methods.def, ONS_METHOD_AUTO before them. */
typedef enum {
    ONS_METHOD_AUTO = -1,
#define ONS_METHOD(name, devices, reads, writes, on_chip, summary) ONS_METHOD_##name,
#include "methods.def"
#undef ONS_METHOD
    ONS_METHOD_COUNT
} ons_method;

/* Zero, one of these, or a positive cudaError_t. */
typedef enum {
    ONS_OK = 0,
    ONS_E_MEMORY = -1,
    ONS_E_METHOD_NOT_ON_DEVICE = -2,
    ONS_E_OPERAND = -3,      /* a problem that the caller put together wrongly */
    ONS_E_NO_CUDA = -4,      /* a GPU's array, and a build without CUDA */
    ONS_E_ROW_TOO_LONG = -5, /* for what the method holds on chip: plan->longest_row */
    ONS_E_NO_CLUSTERS = -6,  /* this GPU cannot run the blocks of a row side by side */
    ONS_E_NO_GRID = -7,      /* this GPU has no cooperative launch */
    ONS_E_METHOD_NOT_OF_OPERATION = -8,
    ONS_E_K_TOO_LARGE = -9 /* for the method */
} ons_status;

/* As many dimensions as any array library has. */
#define ONS_MAX_DIMS 64

/* An array as one problem sees it: the address of its first element and one byte stride for each
 * dimension of the problem, which may be negative, zero or odd. data NULL: not given. */
typedef struct {
    char *data;
    ons_dtype dtype;
    int64_t stride[ONS_MAX_DIMS];
} ons_operand;

/* What an operand is to its problem. */
typedef enum {
    ONS_X,
    ONS_Y,
    ONS_WHERE,
    ONS_SCALE,
    ONS_STATISTIC,
    ONS_GRADIENT,
    ONS_INDICES,
    ONS_OPERANDS
} ons_role;

/* y = operation(scale * x) over the last `reduced_dims` of `dims` dimensions, taken in order as one
 * row of N elements; the dimensions before them tell the rows apart. where (ONS_BOOL) and scale
 * (ONS_FLOAT64 on the CPU, any floating type on a GPU, stride 0 along the row) may be absent; y may
 * be x itself, else they must not overlap. Of an operation with one value a row, y has stride 0
 * along the row.
 *
 * ONS_STATISTIC is what each row adds up, two doubles a row (stride 0 along the row): an ons_pair,
 * or the sum of an operation that takes a gradient and what that rounded away. Where it is given,
 * it is taken for the row's, of which x may be a part then; no element may be above its row's m. An
 * operation that selects writes it, where it is there.
 *
 * An operation that takes a gradient is the backward step of another one: x is what that one gave,
 * ONS_GRADIENT the loss's gradient of it, y the loss's gradient of what it was given; and scale
 * multiplies the result. y may be either of the two.
 *
 * With `sums` y is what each row, or part of a row, adds up, to be merged with the other parts'
 * (stride 0 along the row): of normalizer an ons_packed (packed.h), found without rounding; of an
 * operation that takes a gradient two doubles, the sum and what it rounded away.
 *
 * An operation that selects gives of each row its k largest elements, 1 <= k <= N, in descending
 * order, of equal ones the first; NaN is larger than all, and what `where` excludes is -inf. y has
 * their softmax, or its logarithm where `log`, and ONS_INDICES their indices along the row: both
 * have k elements, a stride apart, where x has N. Neither may overlap x. The row has one dimension.
 */
typedef struct {
    ons_operation operation;
    ons_device device;
    int gpu;      /* its number, on ONS_CUDA */
    void *stream; /* a cudaStream_t, on ONS_CUDA */
    int dims, reduced_dims;
    int64_t extent[ONS_MAX_DIMS];
    ons_operand operand[ONS_OPERANDS];
    double scale_by; /* for every row, where ONS_SCALE is absent */
    bool sums;       /* the result is what the rows add up */
    /* The type that the arithmetic of given pairs was done in, where it is not the one that x and y
     * ask for: it decides how products with the scale are rounded. ONS_FLOAT16: theirs. */
    ons_dtype compute;
    /* of an operation that selects: */
    int64_t k;
    bool log, sorted; /* else in any order */
} ons_problem;

/* The row form takes rows one after the other along their elements; the column form takes them side
 * by side, for an axis that is not the last. On the CPU both give the same bits; on a GPU a sum has
 * another order in each. */
typedef enum { ONS_ROW_FORM, ONS_COLUMN_FORM } ons_form;

/* How rows arrive on a GPU and where they go (cuda/kernel/launch_rows.cuh): any; without gaps and
 * with nothing to be done first; without gaps, with a mask or a scale; side by side in packs, in
 * the column form. */
typedef enum { ONS_GENERAL, ONS_CONTIGUOUS, ONS_MASKED, ONS_PACKED } ons_loader;

typedef struct {
    ons_method method;
    const char *reason; /* why this one, in words */
    /* what a run measured where the choice turns: "FILE on DEVICE: TYPE SHAPE: METHOD X_COPY, ...;
     * ..."; NULL where none did, or the method was asked for by name */
    const char *measured;
    ons_form form;
    ons_dtype compute;    /* the arithmetic's type: ONS_FLOAT32 or ONS_FLOAT64 */
    bool x_direct;        /* x is read in place; else tile by tile through a staging buffer */
    bool y_direct;        /* y is written in place; likewise */
    bool stages_gradient; /* the operation takes one, and it is not read in place */
    bool keeps_apart;     /* a row's exponentials are kept in scratch memory; else in y */
    bool whole_rows;      /* rows are taken one after the other, each as a whole */
    bool whole_columns;   /* in the column form, strips of them likewise */
    bool brings_rows; /* such a row is converted, scaled and masked first; else taken as it lies */
    bool past_caches; /* y is written to memory past the caches */
    int64_t rows, N;
    int64_t k;               /* of an operation that selects; else 0 */
    int64_t width;           /* rows worked on together */
    int64_t tile;            /* elements of a row in one tile */
    int64_t bytes_moved;     /* through main memory, by the method's reads and writes */
    int64_t on_chip_bytes;   /* held in fast memory for one row */
    int64_t workspace_bytes; /* scratch of all threads together; on a GPU the caller gives it */
    int threads;             /* of the CPU; on a GPU those of a block */
    /* On a GPU alone: */
    int64_t blocks_a_row;  /* blocks that share a row; 0 where a block has several rows */
    int elements_a_thread; /* of a row, held at once in its registers */
    int lanes;             /* of a warp that share a row, in fused_warp */
    int64_t clusters;      /* that take the rows in turn, in cluster_smem, */
    int smem_tiles, slots; /* and what each warp has in shared memory (cuda/rows/smem.cuh) */
    ons_loader loader;
    bool all_aligned;    /* every row begins and ends with a pack, in all arrays */
    int family;          /* of kernels, in cuda/kernels.def */
    int64_t longest_row; /* that the method can hold; 0: any */
    bool starts_early;   /* before the kernel ahead of it in its stream has ended */
    double copy_speed;   /* of this GPU, in bytes a second, of its bandwidth; 0: not known */
} ons_plan;

/* What the driver says of the kernel that a plan runs (the second one of `split`). */
typedef struct {
    int registers, spilled_bytes, shared_bytes, blocks_a_multiprocessor;
} ons_kernel_facts;

extern const ons_operation_info ons_operations[];

int64_t ons_dtype_size(ons_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
