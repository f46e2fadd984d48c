/* onsoftmax.h - how a plan for a problem is made and run: ons_problem -> ons_make_plan -> ons_run;
 * and what is asked of methods, processors and GPUs. */
#ifndef ONSOFTMAX_H
#define ONSOFTMAX_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operations that have kernels of their own, after those on a row alone. */
enum {
    ONS_LAST_ROW_OPERATION = ONS_ROW_OPERATIONS - 1,
#define ONS_OPERATION(name, result, keeps, excluded, summary) ONS_OPERATION_##name,
#include "../op/gradient_and_topk_operations.def"
#undef ONS_OPERATION
    ONS_OPERATION_COUNT
};

/* What a method holds in fast memory of each row while it works on it. */
typedef enum { ONS_NOTHING_ON_CHIP, ONS_TILE_ON_CHIP, ONS_ROW_ON_CHIP } ons_on_chip;

typedef struct {
    const char *name;
    bool on_cpu, on_cuda;
    int reads, writes; /* of the whole array, through main memory */
    ons_on_chip on_chip;
    const char *summary;
} ons_method_info;

/* The most elements of a problem, more than any memory holds: all figures of a plan, the scratch of
 * 1024 threads that keep every row among them, are below 2^63 then. */
#define ONS_MAX_ELEMENTS_LOG2 48
#define ONS_MAX_ELEMENTS ((int64_t)1 << ONS_MAX_ELEMENTS_LOG2)

/* The most that methods which read a row once give of it on a GPU. */
#define ONS_LARGEST_K 1024

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
    bool early_launch; /* whether a kernel may start before the one ahead of it has ended */
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

extern const ons_method_info ons_methods[ONS_METHOD_COUNT];

const char *ons_method_name(ons_method method);
const char *ons_dtype_name(ons_dtype dtype);

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

/* What the driver says of the kernel that a plan runs. */
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
