/* plan/gpu.h - shared by the files of the planner for GPUs: the shape of a method, and the facts on
 * which it depends. */
#ifndef ONS_PLAN_GPU_H
#define ONS_PLAN_GPU_H

#include "../cuda/cuda.h"
#include "plan.h"

/* The share of a memory's bandwidth that a copy reaches: 4.23 of 4.8 TB/s on an H200
 * (benchmarks/results/cuda-h200-2026-11-22.json). */
#define COPY_SHARE 0.88
#define BANDWIDTH_OF_H200 4.8e12

enum { CHUNK_OF_FLOATS = 4 };

/* A row in chunks, and how a block's threads share it. */
typedef struct {
    int64_t chunks;
    int chunk;          /* elements */
    int element_bytes;  /* of x */
    int threads_a_lane; /* 1 in the row form, 32 in the column form */
    bool is_16_bit;     /* Rows::IS_16_BIT: without gaps, with any mask and scale */
    bool widened;       /* 16-bit rows with float32 results */
    bool whole_packs;   /* each row is a whole number of packs */
    bool contiguous;    /* rows without gaps, mask and scale, in the row form; of one type, or
                         * widened */
    bool masked;        /* the same with any scale and most masks */
    bool unaligned;     /* contiguous rows of at most 32 bits that are not all aligned */
    bool packed;        /* columns side by side in whole packs, in the column form */
    bool beside;        /* columns side by side at any place, in the column form */
    int64_t slice;      /* how many such columns lie side by side */
    bool gradient;      /* the operation takes a gradient */
    bool given;         /* the caller gives the sums of the rows */
    bool divergence;    /* the operation is a divergence of two rows */
    bool held_loss;     /* the kernel finds a loss and its gradient at once */
    bool staged;        /* rows one after the other that are faster together (staged.cuh) */
    int part_bytes;     /* bytes in the workspace for a part of a row, in split */
    ons_operation operation;
    const ons_gpu *gpu;
} gpu_row;

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t power_of_two_from(int64_t n) {
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

/* Whether masked_rows can read the rows: without gaps along the axis, with any scale. The mask has
 * no gaps either, or it is one byte for a whole row. */
static inline bool has_masked_rows(const ons_problem *problem) {
    const ons_operand *x = &problem->operand[ONS_X], *where = &problem->operand[ONS_WHERE];
    const int inner = problem->dims - 1;
    if (problem->reduced_dims != 1) return false;
    return problem->extent[inner] == 1 || (x->stride[inner] == ons_dtype_size(x->dtype) &&
                                           (!where->data || (where->stride[inner] & ~1ll) == 0));
}

/* Scales a number that was found on an H200 to a GPU with another number of multiprocessors. */
static inline int64_t scaled(int64_t found, const ons_gpu *gpu) {
    const int64_t multiprocessors_of_h200 = 132;
    return ceil_div(found * gpu->multiprocessors, multiprocessors_of_h200);
}

/* Number of blocks of `threads` threads that the GPU runs at once. */
static inline int64_t blocks_in_flight(const ons_gpu *gpu, int threads) {
    return (int64_t)gpu->threads_a_multiprocessor / threads * gpu->multiprocessors;
}

static inline bool has_one_a_row(const gpu_row *row) {
    return ons_operations[row->operation].one_a_row;
}

/* Threads of a block in fused_warp: at most `limit`. Blocks are so small that `together` threads
 * make about one block or more for each multiprocessor. */
int ons_threads_of_warps(const gpu_row *row, int64_t together, int limit);

/* Sets the blocks of a cluster and the warps of each. A multiprocessor has room for `room` warps.
 * As many of these warps as possible get elements. The elements of a row fill `filled` warps.
 * `twice`: a warp without elements costs double. */
void ons_share_out(int64_t filled, int room, int max_warps, int64_t max_blocks, bool twice,
                   ons_plan *plan);

/* plan/gpu_topk.c: the method, if none is asked for, and its shape, for the operation that
 * selects. */
ons_status ons_topk_on_gpu(const ons_problem *problem, const ons_gpu *gpu, ons_plan *plan);

/* The shape of plan->method: its threads, blocks, longest row and workspace. */
ons_status ons_shape_on_gpu(const gpu_row *row, ons_plan *plan);

#endif
