/* topk/shapes.h - the shapes of the top-k kernels, of which plan/gpu_topk.c makes plans. */
#ifndef ONS_TOPK_H
#define ONS_TOPK_H

#include <stdint.h>

enum {
    TOPK_THREADS = 1024,      /* the most of a block that holds a part of a row, and of all on a
                               * multiprocessor; */
    TOPK_CHUNKS = 8,          /* of a thread there */
    TOPK_BLOCK_THREADS = 512, /* the most of a block that holds a row */
    TOPK_MERGE_THREADS = 512, /* of a block that merges the parts of a row */
    TOPK_TILE_THREADS = 256,  /* the most of a block that reads a row tile by tile, */
    TOPK_TILE_BLOCKS = 3,     /* of which so many fit a multiprocessor, */
    TOPK_TILE_BLOCKS_OF_OTHERS = 2, /* of float64 and of rows with gaps; */
    TOPK_KEPT = 32,                 /* the tiles of which it keeps all tops, */
    TOPK_QUEUED = 8,      /* the tops a thread from a bound on, and the elements behind them, */
    TOPK_TILE_CHUNKS = 4, /* the chunks of a thread in a tile, */
    TOPK_TILE_CHUNKS_16_BIT = 8 /* and of 16-bit rows */
};

/* Of which rows a shape is where they are put in order: of all, of many without gaps, of those of
 * them that have 16 bits, or of few. */
typedef enum {
    TOPK_ALL_ROWS,
    TOPK_MANY_ROWS,
    TOPK_MANY_16_BIT_ROWS,
    TOPK_FEW_ROWS
} topk_sorted_rows;

/* The entries that the list of a row has room for in fused_warp: a bound need not be exact. A
 * multiple of what is read at once. */
static inline int64_t topk_warp_room(int64_t k) { return k <= 24 ? 32 : (k + k / 4 + 3) / 4 * 4; }

/* The elements that a lane keeps of its own, where those of a short row are put in order. */
static inline int64_t topk_kept(int64_t k, int64_t elements) {
    const int64_t kept = k <= 4 ? 4 : k <= 8 ? 8 : k <= 16 ? 16 : 32;
    return kept < elements ? kept : elements;
}

#endif
