/* shapes.h - the shapes of the kernels. plan/gpu_shape.c makes plans from them. */
#ifndef ONS_SHAPES_H
#define ONS_SHAPES_H

#include <stdbool.h>

/* A chunk is 16 bytes of the compute type. */
enum {
    WARP = 32,
    WARP_ROW_THREADS = 128,      /* usual limit of a block in fused_warp */
    MOST_WARP_ROW_THREADS = 512, /* the limit if such a block would end too soon */
    WARP_CHUNKS = 8,             /* most chunks of a lane in fused_warp */
    WARP_CHUNKS_16_BIT = 12,     /* the same for a 16-bit row that has a warp */
    BLOCK_CHUNKS = 8,            /* chunks of a thread in fused_block and online_block */
    BLOCK_THREADS = 1024,        /* most threads of a block there, for rows without gaps */
    ANY_BLOCK_THREADS = 512,     /* the same for other rows, whose addresses take more registers */
    SHORT_CHUNKS = 2,            /* of a thread in fused_block if a warp could hold the row */
    MEDIUM_CHUNKS = 4,           /* the same if MEDIUM_WARPS warps can hold the row */
    MEDIUM_WARPS = 8,
    UNALIGNED_CHUNKS = 12,        /* the same for unaligned rows */
    UNALIGNED_CHUNKS_16_BIT = 16, /* the same for unaligned 16-bit rows */
    UNALIGNED_ROW_CHUNKS = 4096,  /* chunks of the longest row with the last two */
    UNALIGNED_WARPS = 24,         /* warps of such rows that fit a multiprocessor */
    TILE_CHUNKS = 4,              /* chunks of a thread in a tile, in methods with several passes */
    VALUE_CHUNKS = 8,             /* the same in online with one value a row, row form */
    VALUE_TILES = 8,              /* tiles a thread in online with one value a row */
    PASS_THREADS = 512,           /* most threads of a block in these methods */
    SPLIT_CHUNKS = 8,             /* chunks of a thread in split, row form */
    SPLIT_THREADS = 256,          /* threads of a block there */
    LOGPROB_CHUNKS = 8,           /* chunks of a thread in a tile in logprob, not in float64 */
    LOGPROB_THREADS = 512,        /* most threads of a block there; they fill a multiprocessor */
    LOGPROB_THREADS_16_BIT = 384, /* the same for aligned 16-bit rows; two such blocks fill it */
    LOGPROB_WARPS = 8,            /* most warps of a block there, if rows are many */
    LOGPROB_TILES = 8,            /* tiles of such a warp, if the row is long enough */
    CLUSTER_THREADS = 256,        /* most threads of a block in cluster; threads in grid */
    MIN_CLUSTER_WARPS = 4,        /* fewest warps of a block if a row has more than two blocks */
    LONG_CLUSTER_THREADS = 384,   /* most threads if 256 cannot hold a row without gaps */
    CLUSTER_WARPS = 16,           /* warps that fit a multiprocessor */
    CLUSTER_WARPS_16_BIT = 24,    /* the same for 16-bit rows */
    CLUSTER_WARPS_OF_320_THREADS = 20, /* the same for other rows, 320 threads a block */
    CLUSTER_WARPS_OF_384_THREADS = 24, /* the same for other rows, 384 threads a block */
    COLUMN_CLUSTER_WARPS = 20,         /* the same for columns in packs */
    CLUSTER_CHUNKS = 16,               /* chunks of a thread in cluster */
    LARGEST_CLUSTER = 16,              /* blocks */
    CLUSTER_FEW_ROWS_THREADS = 512,    /* most threads of a block in cluster_few_rows; half of them
                                        * if two blocks share a multiprocessor */
    MAX_SHARERS = 4,                   /* most warps there that share one warp's part */
    EXACT_BLOCK_THREADS = 512,         /* most threads of a block in exact, if it holds the row */
    EXACT_CHUNKS = 4,                  /* chunks of a thread there */
    LONG_EXACT_CHUNKS = 8,             /* the same if a cluster could not hold the row else */
    EXACT_WARPS = 4,                   /* warps of a block in a cluster that is not the largest */
    FETCH_AHEAD = 7 << 20,             /* distance from a row to the prefetched row, in bytes */
    FETCH_MIN_BYTES = 24 << 20,        /* no prefetch for fewer bytes: most rows begin at once */
    SMEM_THREADS = 512,                /* threads of a block in cluster_smem */
    SMEM_CHUNKS = 8,                   /* chunks of a thread in a tile in shared memory */
    MAX_SMEM_TILES = 2,                /* most such tiles of a warp */
    SLOT_BYTES = 2048,                 /* bytes of elements in one bulk copy */
    SLOT_ROOM = SLOT_BYTES + 16,
    MIN_SLOTS = 2, /* of a warp */
    MAX_SLOTS = 6,
    SMEM_BESIDES = 1024,          /* most bytes of shared memory for everything else */
    PACKS_A_LANE = 16,            /* most packs of a lane in fused_warp */
    GRADIENT_PACKS_A_LANE = 8,    /* the same with a gradient */
    WIDE_STRIP_THREADS = 448,     /* most threads of a softmax block with a wide strip */
    LONGEST_BESIDE = 24,          /* longest column at any address for softmax in fused_warp */
    GRADIENT_CLUSTER_CHUNKS = 16, /* of a thread in cluster with a gradient, for some rows */
    GRADIENT_THREADS = 256,       /* most threads of a block with a gradient */
    DIVERGENCE_LANES = 8, /* of a short row in divergences_in_warp; longer rows have a warp */
    JS_THREADS = 128,     /* most threads of a block in js_divergences */
    JS_TILE_BYTES = 4096  /* of both rows, in a tile of a warp there */
};

/* The rows of a shape in kernels.def, and whether its operations give one value a row. */
typedef enum { ONS_16_BIT_ROWS, ONS_ALL_ROWS } ons_warp_rows;
enum { ONS_OF_ROWS = false, ONS_OF_VALUES = true };

#endif
