/* onsoftmax.h - makes and runs a plan for a problem: ons_problem -> ons_make_plan -> ons_run. This
 * header also describes methods, processors and GPUs. */
#ifndef ONSOFTMAX_H
#define ONSOFTMAX_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operations that have kernels of their own. They follow the operations on a row alone. */
enum {
    ONS_LAST_ROW_OPERATION = ONS_ROW_OPERATIONS - 1,
#define ONS_OPERATION(name, result, keeps, excluded, summary) ONS_OPERATION_##name,
#include "../op/gradient_and_topk_operations.def"
#undef ONS_OPERATION
    ONS_OPERATION_COUNT
};

static inline bool ons_is_divergence(ons_operation operation) {
    return ons_operations[operation].gradient && ons_operations[operation].loss;
}

/* Whether the problem has an ons_sample (sample.h). */
static inline bool ons_is_sampler(ons_operation operation) {
    return operation == ONS_OPERATION_sample || operation == ONS_OPERATION_filtered_softmax;
}

/* The part of a row that a method holds in fast memory while it works on the row. */
typedef enum { ONS_NOTHING_ON_CHIP, ONS_TILE_ON_CHIP, ONS_ROW_ON_CHIP } ons_on_chip;

typedef struct {
    const char *name;
    bool on_cpu, on_cuda;
    int reads, writes; /* of the whole array, through main memory */
    ons_on_chip on_chip;
    const char *summary;
} ons_method_info;

/* The most elements of a problem, more than any memory holds. So all numbers of a plan are below
 * 2^63, even the scratch of 1024 threads that keep every row. */
#define ONS_MAX_ELEMENTS_LOG2 48
#define ONS_MAX_ELEMENTS ((int64_t)1 << ONS_MAX_ELEMENTS_LOG2)

/* The largest k on a GPU for methods that read a row once. */
#define ONS_LARGEST_K 1024

/* A GPU's properties. */
typedef struct {
    char name[256];
    int architecture; /* 90 for compute capability 9.0 */
    int multiprocessors, threads_a_multiprocessor;
    int64_t l2_bytes;
    double bandwidth; /* of its memory, in bytes a second; 0 if unknown */
    double doubles;   /* multiply-adds in double a second; 0 if unknown */
    /* The most blocks of a cluster, for rows without gaps and for any rows; 0: no clusters. */
    int cluster_blocks, cluster_blocks_any;
    bool cooperative; /* whether a grid can wait for itself */
    int shared_bytes; /* most bytes of a block */
    /* The number of clusters that can run at once if each block has a multiprocessor to itself: for
     * clusters of 8 blocks, and for clusters of 16. */
    int clusters_of_8, clusters_of_16;
    bool early_launch; /* whether a kernel may start before the one before it has ended */
} ons_gpu;

/* GPUs for which a plan can be made without having one. The usual one comes first, and an empty
 * name ends the list. ons_gpu_named finds one by its name, ignoring case and spaces, or returns
 * NULL. */
extern const ons_gpu ons_known_gpus[];
const ons_gpu *ons_gpu_named(const char *name);

/* The machine for which a plan is made. */
typedef struct {
    int threads; /* most threads of the CPU that may be used */
    /* bytes of the caches of one core, and of the last cache, which last_cache_sharers threads
     * share */
    int64_t core_cache, last_cache;
    int last_cache_sharers;
    /* NULL: the problem's own, or the usual one if its driver says nothing */
    const ons_gpu *gpu;
} ons_machine;

extern const ons_method_info ons_methods[ONS_METHOD_COUNT];

const char *ons_method_name(ons_method method);
const char *ons_dtype_name(ons_dtype dtype);

/* Whether a method has an operation on a device. The device must have the method. */
bool ons_method_takes(ons_method method, ons_operation operation, ons_device device);

/* How often the method reads and writes the whole array for an operation. With a gradient it counts
 * both inputs. */
int ons_method_reads(ons_method method, ons_operation operation);
int ons_method_writes(ons_method method, ons_operation operation);

/* Removes dimensions of length 1, joins neighbours that every operand steps through evenly, and
 * sorts the outer dimensions in the order of x's memory, except for a loss. */
void ons_coalesce(ons_problem *problem);

/* Whether ONS_METHOD_AUTO means ONS_METHOD_INVARIANT, in all threads. The second sets it, and
 * returns what it was. */
bool ons_batch_invariant(void);
bool ons_set_batch_invariant(bool invariant);

/* Decides what will run, and why. `problem` must be coalesced. */
ons_status ons_make_plan(const ons_problem *problem, ons_method method, const ons_machine *machine,
                         ons_plan *plan);

/* Runs the plan. On a GPU it launches the plan on the problem's stream. `workspace` then is
 * plan->workspace_bytes of the GPU's memory, with any contents. Nothing else may use it until the
 * plan is done. On the CPU it is NULL. If the status is not ONS_OK, y may hold anything. */
ons_status ons_run(const ons_problem *problem, const ons_plan *plan, void *workspace);

/* The text of a status. CUDA's errors have CUDA's text. */
const char *ons_status_text(ons_status status);

/* Instruction sets of this processor, best last; NULL ends the list. */
const char *const *ons_isa_available(void);
const char *ons_isa_selected(void);
/* Forces an instruction set, for tests. Returns false and changes nothing if the processor does not
 * run it. */
bool ons_isa_select(const char *name);

/* ------- GPUs -------
 *
 * CUDA starts with the first of these calls, or with the first run on a GPU. */

/* Whether this build has CUDA, and the number of GPUs. The status may be ONS_E_NO_CUDA, or CUDA's
 * error (35: no driver, or one that is too old; 100: no GPU). */
bool ons_has_cuda(void);
const char *ons_cuda_architectures(void); /* for which it was compiled: "80;90" */
ons_status ons_gpu_count(int *count);

/* Asks the driver once. */
ons_status ons_gpu_describe(int gpu, ons_gpu *description);

/* The GPU to which an address belongs, or -1 if CUDA knows none. */
ons_status ons_gpu_of(const void *memory, int *gpu);

/* Whether this GPU is the thread's current one in CUDA. */
bool ons_gpu_is_current(int gpu);

/* Makes it the current one. Returns the one before, or -1 on failure. */
int ons_gpu_make_current(int gpu);

/* The driver's facts about the kernel of a plan (for `split` the second one). */
typedef struct {
    int registers, spilled_bytes, shared_bytes, blocks_a_multiprocessor;
} ons_kernel_facts;
ons_status ons_describe_kernel(const ons_problem *problem, const ons_plan *plan,
                               ons_kernel_facts *facts);

/* ons_gpu_allocate and ons_gpu_free act in the order of a stream (cudaMallocAsync). ons_gpu_order
 * makes later work on `then` wait for the work so far on `first`. ons_gpu_copy copies between any
 * memory, in the order of a stream. */
ons_status ons_gpu_allocate(int gpu, void *stream, int64_t bytes, void **memory);
ons_status ons_gpu_free(int gpu, void *stream, void *memory);
ons_status ons_gpu_order(int gpu, void *first, void *then);
ons_status ons_gpu_copy(int gpu, void *stream, void *to, const void *from, int64_t bytes);
ons_status ons_gpu_wait(int gpu, void *stream);

/* This machine, for plans with at most `threads` threads. The system tells its caches. */
ons_machine ons_this_machine(int threads);

/* The number of processors that affinity and the cgroup's quota leave to this process. */
int ons_processors(void);

#ifdef __cplusplus
}
#endif

#endif
