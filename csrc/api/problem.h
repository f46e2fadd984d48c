/* problem.h - the data of a problem and of its plan. onsoftmax.h has the functions. A problem names
 * its arrays by pointer, type and byte strides, and nothing else: no Python, no CUDA. */
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
    ONS_BOOL,  /* only for a mask */
    ONS_INT32, /* only for indices */
    ONS_INT64  /* only for indices */
} ons_dtype;

typedef enum { ONS_CPU, ONS_CUDA } ons_device;

/* The operations on a row alone. onsoftmax.h adds the others. */
typedef unsigned ons_operation;
enum {
#define ONS_OPERATION(name, result, keeps, excluded, summary) ONS_OPERATION_##name,
#include "../op/row_operations.def"
#undef ONS_OPERATION
    ONS_ROW_OPERATIONS
};

/* What a method that reads a row once keeps of it until (m, d) is known. */
typedef enum { ONS_KEEP_NOTHING, ONS_KEEP_ELEMENTS, ONS_KEEP_EXPONENTIALS } ons_keep;

typedef struct {
    const char *name;
    bool one_a_row; /* the result is one value a row; otherwise it has the row's shape */
    bool pair;      /* this value is an ons_pair (state.h), whatever y's type */
    bool gradient;  /* it also takes ONS_GRADIENT, and adds up no exponentials */
    bool selects;   /* the result is each row's k largest, and ONS_INDICES */
    bool loss;      /* a loss, or with a result of the row's shape its gradient (loss.h); with
                     * `gradient`, a divergence of two rows */
    ons_keep keeps;
    double excluded; /* the result of an element that `where` excludes */
    const char *summary;
} ons_operation_info;

/* All methods of methods.def, after two choices that a plan makes of them. INVARIANT gives a row
 * the same bits in every batch and layout: N, the types and the kind of device alone decide. */
typedef enum {
    ONS_METHOD_INVARIANT = -2,
    ONS_METHOD_AUTO,
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
    ONS_E_OPERAND = -3,      /* the caller made an invalid problem */
    ONS_E_NO_CUDA = -4,      /* a GPU's array in a build without CUDA */
    ONS_E_ROW_TOO_LONG = -5, /* it does not fit on chip: see plan->longest_row */
    ONS_E_NO_CLUSTERS = -6,  /* this GPU cannot run the blocks of a row side by side */
    ONS_E_NO_GRID = -7,      /* this GPU has no cooperative launch */
    ONS_E_METHOD_NOT_OF_OPERATION = -8,
    ONS_E_K_TOO_LARGE = -9,        /* for the method */
    ONS_E_METHOD_NOT_OF_TYPE = -10 /* `exact` of float64 */
} ons_status;

#define ONS_MAX_DIMS 64 /* as many as any array library allows */

/* An operand of one problem: the address of its first element, and a byte stride for each dimension
 * of the problem, which may be negative, zero or odd. data is NULL if it is not given. */
typedef struct {
    char *data;
    ons_dtype dtype;
    int64_t stride[ONS_MAX_DIMS];
} ons_operand;

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

/* y = operation(scale * x) over the last `reduced_dims` of `dims` dimensions, in order, as one row
 * of N elements. The dimensions before them tell the rows apart. where (ONS_BOOL) and scale
 * (ONS_FLOAT64 on the CPU, any floating type on a GPU, stride 0 along the row) may be absent. y may
 * be x itself; otherwise they must not overlap. If a row has one value, y has stride 0 along it.
 *
 * ONS_STATISTIC is the sum of each row, as two doubles a row (stride 0 along the row): an ons_pair,
 * or for an operation that takes a gradient, the sum and what it rounded away. With `exact_states`
 * it is a state of `exact`, four doubles (rounding.h), as normalizer by `exact` gives it. If it is
 * given, it takes the place of the sum over x, and x may be a part of the row. No element may be
 * above its row's m. An operation that selects writes it, if present.
 *
 * An operation that takes a gradient is the backward step of another operation. x is that
 * operation's result, ONS_GRADIENT is the loss's gradient of the result, and y is the loss's
 * gradient of that operation's input. scale multiplies the result. y may be either input.
 *
 * With `sums`, y is the sum of each row or part of a row, to be merged with other parts (stride 0
 * along the row). For normalizer it is an ons_packed (packed.h), added up without rounding. For an
 * operation that takes a gradient it is two doubles, the sum and what it rounded away.
 *
 * An operation that selects returns the k largest elements of each row, 1 <= k <= N, in descending
 * order. Of equal elements the first comes first, NaN is larger than all, and elements that `where`
 * excludes are -inf. y receives their softmax, or its logarithm if `log`, and ONS_INDICES their
 * indices along the row. Both have k elements where x has N, with their own strides. Neither may
 * overlap x. The row has one dimension. Routers and samplers have other rules (route.h, sample.h).
 *
 * A divergence is between the softmax of x and the softmax of ONS_GRADIENT. Its values are in
 * `loss`, and y receives their gradient with respect to x, if loss->gradient. where and scale hold
 * for both inputs. y may be either input.
 *
 * A loss has the pairs of its rows in ONS_STATISTIC, and reads one element of each row. Its results
 * are in `loss`, and y is not used. Its gradient has the row's shape. The row has one dimension,
 * and the dimensions before it stay in their order. */
typedef struct {
    ons_operation operation;
    ons_device device;
    int gpu;      /* number of the GPU, on ONS_CUDA */
    void *stream; /* a cudaStream_t, on ONS_CUDA */
    int dims, reduced_dims;
    int64_t extent[ONS_MAX_DIMS];
    ons_operand operand[ONS_OPERANDS];
    double scale_by;   /* for every row, if ONS_SCALE is absent */
    bool sums;         /* the result is the sums of the rows */
    bool exact_states; /* ONS_STATISTIC has states of `exact` in place of pairs (rounding.h) */
    /* The type of the arithmetic that gave the pairs, if x and y ask for another. It decides how
     * products with the scale are rounded. ONS_FLOAT16: the type that x and y ask for. */
    ons_dtype compute;
    int64_t k;                         /* of an operation that selects, as the next two */
    bool log, sorted;                  /* else in any order */
    const struct ons_loss *loss;       /* for a loss: its other operands (loss.h) */
    const struct ons_logprob *logprob; /* for log-probabilities: the same (logprob.h) */
    const struct ons_route *route;     /* for a router: its other operands (route.h) */
    const struct ons_sample *sample;   /* for a sampler: the same (sample.h) */
} ons_problem;

/* In the row form, rows are processed one after the other along their elements. In the column form
 * they are processed side by side, for an axis that is not the last. On the CPU both give the same
 * bits. On a GPU each has its own order of sums. */
typedef enum { ONS_ROW_FORM, ONS_COLUMN_FORM } ons_form;

/* The kind of rows on a GPU (cuda/kernel/launch_rows.cuh). The last three lie side by side. */
typedef enum {
    ONS_GENERAL,      /* any */
    ONS_CONTIGUOUS,   /* rows without gaps */
    ONS_MASKED,       /* rows without gaps, with a mask or a scale */
    ONS_PACKED,       /* four rows a lane, in packs that are whole and aligned */
    ONS_PACKED_APART, /* four rows a lane, which lie apart, at any address */
    ONS_STRIDED       /* a row for each lane, at any address */
} ons_loader;

typedef struct {
    ons_method method;
    bool invariant;     /* ONS_METHOD_INVARIANT was asked for */
    const char *reason; /* why this one, in words */
    /* measurements that show where the choice changes: "FILE on DEVICE: TYPE SHAPE: METHOD X_COPY,
     * ...; ..."; NULL if there are none, or if the method was asked for by name */
    const char *measured;
    ons_form form;
    ons_dtype compute;    /* the arithmetic's type: ONS_FLOAT32 or ONS_FLOAT64 */
    bool in_double;       /* `exact`: elements are of type `compute`, the arithmetic is in double */
    bool x_direct;        /* x is read in place; otherwise tile by tile through a buffer */
    bool y_direct;        /* y is written in place; otherwise through a buffer too */
    bool stages_gradient; /* the gradient is not read in place */
    bool keeps_apart;     /* a row's exponentials are kept in scratch memory, not in y */
    bool whole_rows;      /* rows are processed one after the other, each as a whole */
    bool whole_columns;   /* the same for strips, in the column form */
    bool brings_rows;     /* such a row is converted, scaled and masked first */
    bool past_caches;     /* y is written past the caches */
    int64_t rows, N;
    int64_t k;               /* for an operation that selects; otherwise 0 */
    int64_t width;           /* rows processed together */
    int64_t tile;            /* elements of a row in one tile */
    int64_t bytes_moved;     /* through main memory, by the method's reads and writes */
    int64_t on_chip_bytes;   /* held in fast memory for one row */
    int64_t workspace_bytes; /* scratch of all threads; on a GPU the caller allocates it */
    int threads;             /* of the CPU; on a GPU, of a block */
    /* Only on a GPU: */
    int64_t blocks_a_row;  /* blocks that share a row; 0 if a block has several rows */
    int elements_a_thread; /* of a row, that its registers hold at once */
    int lanes;             /* lanes of a warp that share a row, in fused_warp */
    int64_t clusters;      /* clusters that take rows in turn, in cluster_smem */
    int smem_tiles, slots; /* each warp's share of shared memory there (cuda/rows/smem.cuh) */
    ons_loader loader;
    bool all_aligned;    /* every row begins and ends with a pack, in all arrays */
    int family;          /* of kernels, in cuda/kernels.def */
    int64_t longest_row; /* that the method can hold; 0: any */
    bool starts_early;   /* it may start before the kernel before it in its stream has ended */
    double copy_speed;   /* of this GPU, in bytes a second; 0 if unknown */
} ons_plan;

/* What a kernel knows of its launch. */
typedef struct {
    int64_t first_row;   /* the first row that it takes */
    bool next_may_start; /* the next kernel in the stream, before this one has ended */
} ons_launch;

extern const ons_operation_info ons_operations[];

int64_t ons_dtype_size(ons_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
