/* shapes.h - the shapes of the kernels, of which plan/gpu_shape.c makes plans. */
#ifndef ONS_SHAPES_H
#define ONS_SHAPES_H

#include <stdbool.h>

/* A chunk is 16 bytes of the compute type. */
enum {
    WARP = 32,
    WARP_ROW_THREADS = 128,  /* the most of a block in fused_warp */
    WARP_CHUNKS = 8,         /* the most chunks of a lane there, */
    WARP_CHUNKS_16_BIT = 12, /* and of 16-bit rows */
    BLOCK_CHUNKS = 8,        /* of a thread in fused_block and online_block */
    BLOCK_THREADS = 1024,    /* the most of a block there, on rows without gaps */
    ANY_BLOCK_THREADS = 512, /* and on others, whose addresses take more registers */
    SHORT_CHUNKS = 2,        /* of a thread in fused_block where a warp could hold the row, */
    MEDIUM_CHUNKS = 4,       /* where MEDIUM_WARPS can; at most as many are added up as floats */
    MEDIUM_WARPS = 8,
    UNALIGNED_CHUNKS = 12,        /* of a thread there, of unaligned rows, */
    UNALIGNED_CHUNKS_16_BIT = 16, /* and where they have 16 bits */
    UNALIGNED_ROW_CHUNKS = 4096,  /* the chunks of the longest row that has either */
    UNALIGNED_WARPS = 24,         /* warps of such rows that fit a multiprocessor */
    TILE_CHUNKS = 4,              /* of a thread in the methods that pass several times */
    VALUE_CHUNKS = 8,             /* in online of one value a row, in the row form; */
    VALUE_TILES = 8,              /* the tiles of a thread, where the row does not fill a block */
    PASS_THREADS = 512,           /* the most of a block there */
    SPLIT_CHUNKS = 8,             /* of a thread in split, in the row form */
    SPLIT_THREADS = 256,          /* of a block there */
    CLUSTER_THREADS = 256,        /* the most of a block in cluster, and those in grid */
    MIN_CLUSTER_WARPS = 4,        /* the fewest of a block where there are more than two blocks */
    LONG_CLUSTER_THREADS = 384,   /* the most in cluster where 256 do not hold a row without gaps */
    CLUSTER_WARPS = 16,           /* that fit a multiprocessor, of rows without gaps */
    CLUSTER_WARPS_16_BIT = 24,    /* the same of 16-bit rows */
    CLUSTER_WARPS_OF_320_THREADS = 20, /* the same of others with 320 threads a block */
    CLUSTER_WARPS_OF_384_THREADS = 24, /* and with 384 */
    COLUMN_CLUSTER_WARPS = 20,         /* the same of columns side by side */
    CLUSTER_CHUNKS = 16,               /* of a thread there */
    LARGEST_CLUSTER = 16,              /* blocks */
    CLUSTER_FEW_ROWS_THREADS = 512,    /* the most of a block there where rows are few, and half
                                        * of it where a multiprocessor has two blocks; */
    MAX_SHARERS = 4,            /* the most of the warps that share what is one warp's elsewhere */
    FETCH_AHEAD = 7 << 20,      /* bytes from a row to the one that is fetched with it */
    FETCH_MIN_BYTES = 24 << 20, /* of all rows where any are: of fewer most begin at once */
    SMEM_THREADS = 512, /* of a block in cluster where rows come to shared memory (smem.cuh) */
    SMEM_CHUNKS = 8,    /* of a thread in a tile that is held in shared memory */
    MAX_SMEM_TILES = 2, /* such tiles of a warp */
    SLOT_BYTES = 2048,  /* of elements in one bulk copy */
    SLOT_ROOM = SLOT_BYTES + 16,
    MIN_SLOTS = 2, /* of a warp */
    MAX_SLOTS = 6,
    SMEM_BESIDES = 1024, /* bytes of shared memory, at most, besides all these */
    PACKS_A_LANE = 16,   /* the most of packed_columns in fused_warp */
    /* of a thread in cluster where an operation takes a gradient: of 16-bit rows of whole packs,
     * and of other rows without gaps that are too long for BLOCK_CHUNKS; not in float64 */
    GRADIENT_CLUSTER_CHUNKS = 16,
    GRADIENT_THREADS = 256 /* the most of a block where an operation takes a gradient */
};

/* Of which rows a shape in kernels.def is; and whether of operations of one value a row. */
typedef enum { ONS_16_BIT_ROWS, ONS_ALL_ROWS } ons_warp_rows;
enum { ONS_OF_ROWS = false, ONS_OF_VALUES = true };

#endif
