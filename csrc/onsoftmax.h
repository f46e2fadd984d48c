/* onsoftmax.h - the whole vocabulary: what a problem is, what a plan is, and how one is run.
 *
 * A problem names its arrays by pointer, type and byte strides, nothing else: no Python, no CUDA.
 * The way of a call: ons_problem -> ons_make_plan -> ons_run. */
#ifndef ONSOFTMAX_H
#define ONSOFTMAX_H

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

/* Every operation of operations.def. */
typedef enum {
#define ONS_OPERATION(name, result, keeps, excluded, summary) ONS_OPERATION_##name,
#include "operations.def"
#undef ONS_OPERATION
    ONS_OPERATION_COUNT
} ons_operation;

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
#define ONS_METHOD(name, devices, reads, writes, keeps, summary) ONS_METHOD_##name,
#include "methods.def"
#undef ONS_METHOD
    ONS_METHOD_COUNT
} ons_method;

/* What a method holds in fast memory of each row while it works on it. */
typedef enum { ONS_KEEPS_NOTHING, ONS_KEEPS_TILE, ONS_KEEPS_ROW } ons_keeps;

typedef struct {
    const char *name;
    bool on_cpu, on_cuda;
    int reads, writes; /* of the whole array, through main memory */
    ons_keeps keeps;
    const char *summary;
} ons_method_info;

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

/* The most elements of a problem, more than any memory holds: all figures of a plan, the scratch of
 * 1024 threads that keep every row among them, are below 2^63 then. */
#define ONS_MAX_ELEMENTS_LOG2 48
#define ONS_MAX_ELEMENTS ((int64_t)1 << ONS_MAX_ELEMENTS_LOG2)

/* The most that methods which read a row once give of it on a GPU. */
#define ONS_LARGEST_K 1024

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
    ONS_PAIRS,
    ONS_GRADIENT,
    ONS_INDICES,
    ONS_OPERANDS
} ons_role;

/* y = operation(scale * x) over the last `reduced_dims` of `dims` dimensions, taken in order as one
 * row of N elements; the dimensions before them tell the rows apart. where (ONS_BOOL) and scale
 * (ONS_FLOAT64 on the CPU, any floating type on a GPU, stride 0 along the row) may be absent; y may
 * be x itself, else they must not overlap. Of an operation with one value a row, y has stride 0
 * along the row. Where pairs are given, an ons_pair a row (stride 0 along the row), they are taken
 * for those of the rows, of which x may be a part then; no element may be above its row's m.
 *
 * An operation that takes a gradient is the backward step of another one: x is what that one gave,
 * ONS_GRADIENT the loss's gradient of it, y the loss's gradient of what it was given; and scale
 * multiplies the result. y may be either of the two.
 *
 * Where pairs are given to it, they are the rows' sums, each as two doubles.
 *
 * With `sums` y is what each row, or part of a row, adds up, to be merged with the other parts'
 * (stride 0 along the row): of normalizer an ons_packed (packed.h), found without rounding; of an
 * operation that takes a gradient two doubles, the sum and what it rounded away.
 *
 * An operation that selects gives of each row its k largest elements, 1 <= k <= N, in descending
 * order, of equal ones the first; NaN is larger than all, and what `where` excludes is -inf. y has
 * their softmax, or its logarithm where `log`, and ONS_INDICES their places along the row: both
 * have k elements, a stride apart, where x has N. Neither may overlap x. Where ONS_PAIRS is there
 * it is written: the rows' pairs. The row has one dimension. */
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
    /* of an operation that selects: */
    int64_t k;
    bool log, sorted; /* else in any order */
} ons_problem;

/* What one GPU has. */
typedef struct {
    char name[256];
    int architecture; /* 90 for compute capability 9.0 */
    int multiprocessors, threads_a_multiprocessor;
    int64_t l2_bytes;
    double bandwidth; /* of its memory, in bytes a second; 0: not known */
    /* The most blocks that a cluster may have, of rows without gaps and of any; 0: no clusters. */
    int cluster_blocks, cluster_blocks_any;
    bool cooperative; /* whether a grid can wait for itself */
    int shared_bytes; /* the most of a block */
    /* How many clusters of 8 and of 16 blocks can run at once, a block a multiprocessor. */
    int clusters_of_8, clusters_of_16;
} ons_gpu;

/* GPUs to plan for without one, the usual one first; an empty name ends the list. One of them by
 * its name, in capitals or not and whatever its spaces: NULL, where none has it. */
extern const ons_gpu ons_known_gpus[];
const ons_gpu *ons_gpu_named(const char *name);

/* What a plan is made for. */
typedef struct {
    int threads; /* of the CPU, the most that may be used */
    /* bytes of the caches that a core has to itself, and of the last one, that so many share */
    int64_t core_cache, last_cache;
    int last_cache_sharers;
    /* NULL: the problem's own, or the usual one where its driver says nothing */
    const ons_gpu *gpu;
} ons_machine;

/* The row form takes rows one after the other along their elements; the column form takes them side
 * by side, for an axis that is not the last. On the CPU both give the same bits; on a GPU a sum has
 * another order in each. */
typedef enum { ONS_ROW_FORM, ONS_COLUMN_FORM } ons_form;

/* How rows arrive on a GPU and where they go (cuda/launch.cuh): any; without gaps and with nothing
 * to be done first; without gaps, with a mask or a scale; side by side in packs, in the column
 * form.
 */
typedef enum { ONS_GENERAL, ONS_CONTIGUOUS, ONS_MASKED, ONS_PACKED } ons_loader;

/* Which of its kernels a method runs on a GPU: the one that bears its name; fused_warp_staged;
 * cluster_few_rows; cluster_smem; those of operations which take a gradient,
 * and of these gradient_warp_staged; and those of the one that selects. */
typedef enum {
    ONS_OWN,
    ONS_STAGED,
    ONS_FEW_ROWS,
    ONS_SMEM,
    ONS_WITH_GRADIENT,
    ONS_WITH_GRADIENT_STAGED,
    ONS_SELECTING
} ons_variant;

typedef struct {
    ons_method method;
    const char *reason; /* why this one, in words */
    /* what a run measured where the choice turns: "FILE: TYPE SHAPE: METHOD X_COPY, ...; ..."; NULL
     * where none did, or the method was asked for by name */
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
    ons_loader loader;
    ons_variant variant;
    int64_t longest_row; /* that the method can hold; 0: any */
    double copy_speed;   /* of this GPU, in bytes a second, of its bandwidth; 0: not known */
} ons_plan;

extern const ons_method_info ons_methods[ONS_METHOD_COUNT];
extern const ons_operation_info ons_operations[ONS_OPERATION_COUNT];

const char *ons_method_name(ons_method method);
const char *ons_dtype_name(ons_dtype dtype);
int64_t ons_dtype_size(ons_dtype dtype);

/* Whether a method carries out an operation on a device that has the method. */
bool ons_method_takes(ons_method method, ons_operation operation, ons_device device);

/* How often it reads and writes the whole array then; of a gradient both inputs. */
int ons_method_reads(ons_method method, ons_operation operation);
int ons_method_writes(ons_method method, ons_operation operation);

/* Joins what can be joined: dimensions of length 1 go, neighbours that every operand steps through
 * evenly become one, and the outer ones are put in the order of x's memory. */
void ons_coalesce(ons_problem *problem);

/* What will run and why. `problem` must be coalesced. */
ons_status ons_make_plan(const ons_problem *problem, ons_method method, const ons_machine *machine,
                         ons_plan *plan);

/* Runs the plan, on a GPU by launching it on the problem's stream. `workspace` is
 * plan->workspace_bytes of the GPU's memory that nothing else uses until that is done, of any
 * contents; NULL on the CPU, which takes its own. On any status but ONS_OK nothing is promised
 * about y. */
ons_status ons_run(const ons_problem *problem, const ons_plan *plan, void *workspace);

/* The words for a status: CUDA's own for its errors. */
const char *ons_status_text(ons_status status);

/* Instruction sets of this processor, best last; NULL ends the list. */
const char *const *ons_isa_available(void);
const char *ons_isa_selected(void);
/* Forces one, for tests; false, and nothing changed, where the processor does not run it. */
bool ons_isa_select(const char *name);

/* ------- GPUs: no call touches CUDA before one of these or ons_run on ONS_CUDA ------- */

/* Whether this build has CUDA; and how many GPUs there are: ONS_E_NO_CUDA, or CUDA's error (35: no
 * driver, or one too old; 100: no GPU). */
bool ons_has_cuda(void);
const char *ons_cuda_architectures(void); /* that it was compiled for: "80;90" */
ons_status ons_gpu_count(int *count);

/* As its driver says, which is asked once. */
ons_status ons_gpu_describe(int gpu, ons_gpu *description);

/* Which GPU an address belongs to; -1: none that CUDA knows of. */
ons_status ons_gpu_of(const void *memory, int *gpu);

/* Whether what this thread asks of CUDA is of that GPU. */
bool ons_gpu_is_current(int gpu);

/* Makes it so. Returns the GPU that was current before, -1 where that failed. */
int ons_gpu_make_current(int gpu);

/* What the driver says of the kernel that a plan runs (the second one of `split`). */
typedef struct {
    int registers, spilled_bytes, shared_bytes, blocks_a_multiprocessor;
} ons_kernel_facts;
ons_status ons_describe_kernel(const ons_problem *problem, const ons_plan *plan,
                               ons_kernel_facts *facts);

/* Memory in the order of a stream (cudaMallocAsync); what is enqueued on `then` from now on waits
 * for what is enqueued on `first` by now; and a copy, in the order of a stream, between any memory.
 */
ons_status ons_gpu_allocate(int gpu, void *stream, int64_t bytes, void **memory);
ons_status ons_gpu_free(int gpu, void *stream, void *memory);
ons_status ons_gpu_order(int gpu, void *first, void *then);
ons_status ons_gpu_copy(int gpu, void *stream, void *to, const void *from, int64_t bytes);
ons_status ons_gpu_wait(int gpu, void *stream);

/* This machine, to plan for so many threads at most: the caches that its system tells of. */
ons_machine ons_this_machine(int threads);

/* The processors that affinity and the cgroup's quota leave to this process. */
int ons_processors(void);

#ifdef __cplusplus
}
#endif

#endif
