/* onsoftmax.h - the whole vocabulary: what a problem is, what a plan is, and how one is run.
 *
 * A problem names its arrays by pointer, type and byte strides, nothing else: no Python, no CUDA.
 * The way of a call: ons_problem -> ons_make_plan -> ons_run. */
#ifndef ONSOFTMAX_H
#define ONSOFTMAX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    ONS_FLOAT16,
    ONS_BFLOAT16,
    ONS_FLOAT32,
    ONS_FLOAT64,
    ONS_BOOL /* of a mask alone */
} ons_dtype;

typedef enum { ONS_CPU, ONS_CUDA } ons_device;

typedef enum { ONS_SOFTMAX } ons_operation;

/* Every method of methods.def, ONS_METHOD_AUTO before them. */
typedef enum {
    ONS_METHOD_AUTO = -1,
#define ONS_METHOD(name, devices, reads, writes, keeps, summary) ONS_METHOD_##name,
#include "methods.def"
#undef ONS_METHOD
    ONS_METHOD_COUNT
} ons_method;

/* What a method holds in fast memory of each row while it works on it. */
typedef enum { ONS_KEEPS_NOTHING, ONS_KEEPS_TILE, ONS_KEEPS_ROW } ons_keeps;

typedef struct {
    const char *name;
    bool on_cpu;
    int reads, writes; /* of the whole array, through main memory */
    ons_keeps keeps;
    const char *summary;
} ons_method_info;

typedef enum {
    ONS_OK = 0,
    ONS_E_MEMORY = -1,
    ONS_E_METHOD_NOT_ON_DEVICE = -2,
    ONS_E_OPERAND = -3 /* a problem that the caller put together wrongly */
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

/* y = softmax(scale * x) over the last `reduced_dims` of `dims` dimensions, taken in order as one
 * row of N elements; the dimensions before them tell the rows apart. where (ONS_BOOL) and scale
 * (ONS_FLOAT64, stride 0 along the row) may be absent; y may be x itself, else they must not
 * overlap. */
typedef struct {
    ons_operation operation;
    ons_device device;
    int dims, reduced_dims;
    int64_t extent[ONS_MAX_DIMS];
    ons_operand x, y, where, scale;
    double scale_by; /* for every row, where `scale` is absent */
} ons_problem;

/* The row form takes rows one after the other along their elements; the column form takes them side
 * by side, for an axis that is not the last. Both give the same bits. */
typedef enum { ONS_ROW_FORM, ONS_COLUMN_FORM } ons_form;

typedef struct {
    ons_method method;
    const char *reason; /* why this one, in words */
    ons_form form;
    ons_dtype compute; /* the arithmetic's type: ONS_FLOAT32 or ONS_FLOAT64 */
    bool x_direct;     /* x is read in place; else tile by tile through a staging buffer */
    bool y_direct;     /* y is written in place; likewise */
    bool keeps_apart;  /* a row's exponentials are kept in scratch memory; else in y */
    int64_t rows, N;
    int64_t width;           /* rows worked on together */
    int64_t tile;            /* elements of a row in one tile */
    int64_t bytes_moved;     /* through main memory, by the method's reads and writes */
    int64_t on_chip_bytes;   /* held in fast memory for one row */
    int64_t workspace_bytes; /* scratch of all threads together */
    int threads;
} ons_plan;

extern const ons_method_info ons_methods[ONS_METHOD_COUNT];

const char *ons_method_name(ons_method method);
const char *ons_dtype_name(ons_dtype dtype);
int64_t ons_dtype_size(ons_dtype dtype);

/* Joins what can be joined: dimensions of length 1 go, neighbours that every operand steps through
 * evenly become one, and the outer ones are put in the order of x's memory. */
void ons_coalesce(ons_problem *problem);

/* What will run and why. `problem` must be coalesced; `threads` is the most that may be used. */
ons_status ons_make_plan(const ons_problem *problem, ons_method method, int threads,
                         ons_plan *plan);

/* Runs the plan. On any status but ONS_OK nothing is promised about y. */
ons_status ons_run(const ons_problem *problem, const ons_plan *plan);

/* Instruction sets of this processor, best last; NULL ends the list. */
const char *const *ons_isa_available(void);
const char *ons_isa_selected(void);
/* Forces one, for tests; false, and nothing changed, where the processor does not run it. */
bool ons_isa_select(const char *name);

/* The processors that affinity and the cgroup's quota leave to this process. */
int ons_processors(void);

#endif
