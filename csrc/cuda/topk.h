/* topk.h - the shapes of the kernels of the operation that selects, of which plan_cuda_topk.c makes
 * plans. */
#ifndef ONS_TOPK_H
#define ONS_TOPK_H

#include "cuda.h"

enum {
    LONGEST_LISTED = 1024,      /* row of which nearly all elements may be listed */
    TOPK_THREADS = 512,         /* the most of a block that holds a row, or a part of one; */
    TOPK_BLOCKS = 2,            /* so many find room on a multiprocessor, of rows without gaps */
    TOPK_CHUNKS = 8,            /* of a thread there, */
    TOPK_CHUNKS_16_BIT = 16,    /* and of 16-bit rows */
    TOPK_TILE_THREADS = 256,    /* the most of a block that reads a row tile by tile, */
    TOPK_TILE_BLOCKS = 4,       /* of which so many find room on a multiprocessor; */
    TOPK_QUEUE = 4096,          /* the tops that it has room for, */
    TOPK_LISTED = 2048,         /* and the elements behind those from the last bound on, */
    TOPK_TILE_CHUNKS = 4,       /* the chunks of a thread in a tile, */
    TOPK_TILE_CHUNKS_16_BIT = 8 /* and of 16-bit rows */
};

#endif
