/* topk/shapes.h - the shapes of the top-k kernels. plan/gpu_topk.c makes plans from them. */
#ifndef ONS_TOPK_H
#define ONS_TOPK_H

#include <stdint.h>

#include "../../api/state.h"

enum {
    TOPK_THREADS = 1024,            /* most threads of a block that holds a part of a row */
    TOPK_CHUNKS = 8,                /* chunks of each of these threads */
    TOPK_BLOCK_THREADS = 512,       /* most threads of a block that holds a row */
    TOPK_MERGE_THREADS = 512,       /* threads of a block that merges the parts of a row */
    TOPK_TILE_THREADS = 256,        /* most threads of a block that reads tile by tile */
    TOPK_TILE_BLOCKS = 3,           /* such blocks that fit a multiprocessor */
    TOPK_TILE_BLOCKS_OF_OTHERS = 2, /* the same for float64 and for rows with gaps */
    TOPK_KEPT = 32,                 /* tiles whose tops are all kept */
    TOPK_QUEUED = 8,                /* tops a thread in the queue; entries a thread in the list */
    TOPK_TILE_CHUNKS = 4,           /* chunks of a thread in a tile */
    TOPK_TILE_CHUNKS_16_BIT = 8,    /* the same for 16-bit rows */
    ROUTE_EXPERTS = 1024,           /* most experts of a row that a warp holds, in topk/route.cu */
    ROUTE_LANE_ELEMENTS = 32        /* most elements of a lane there */
};

/* The rows that a shape of topk/sorted.cu, topk/warp.cu or topk/route.cu serves: all, many without
 * gaps, many 16-bit rows without gaps, few, or the rows for a whole warp. */
typedef enum {
    TOPK_ALL_ROWS,
    TOPK_MANY_ROWS,
    TOPK_MANY_16_BIT_ROWS,
    TOPK_FEW_ROWS,
    TOPK_WHOLE_WARP_ROWS
} topk_rows;

/* Entries in the list of a row of topk/warp.cu, a multiple of the entries read at once. If k is at
 * most twice the lanes, the bound comes from tops, and mostly fewer than 2 * k + 16 elements reach
 * it. Otherwise it comes from counting. It need not be exact, so there is room for more than k. */
ONS_INLINE int64_t topk_warp_room(int64_t k, int64_t lanes) {
    const int64_t of_tops = 2 * k + 16, by_counting = k + (k < 128 ? 32 : k / 4);
    return ((k <= 2 * lanes ? of_tops : by_counting) + 3) / 4 * 4;
}

/* Entries in the list of a row of topk/route.cu. There is room for more than k entries, because
 * more than k keys often reach the bound of tops. */
ONS_INLINE int64_t route_room(int64_t k) { return k + 40; }

/* Bytes of shared memory for a row of topk/route.cu: first the keys of the row, then in their place
 * the list and the k entries in order. */
ONS_INLINE int64_t route_row_bytes(int64_t tile, int64_t groups, int64_t k, int64_t key_bytes) {
    const int64_t of_keys = groups > 1 ? tile * key_bytes : 0;
    const int64_t of_lists = (route_room(k) + k) * 2 * key_bytes;
    return ((of_keys > of_lists ? of_keys : of_lists) + 15) / 16 * 16;
}

/* Elements that each lane keeps of its own in topk/sorted.cu. */
static inline int64_t topk_kept(int64_t k, int64_t elements) {
    const int64_t kept = k <= 4 ? 4 : k <= 8 ? 8 : k <= 16 ? 16 : 32;
    return kept < elements ? kept : elements;
}

#endif
