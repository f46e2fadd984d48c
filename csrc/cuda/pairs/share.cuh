/* share.cuh - which tiles of a long row are a warp's, where the warps of a cluster hold it on chip:
 * KEPT_TILES side by side for its registers, then tiles in turn with the other warps, block by
 * block, so that no block has more than one a warp more than another. The order of every sum
 * follows from this. */
#ifndef ONS_SHARE_CUH
#define ONS_SHARE_CUH

#include "lanes.cuh"

constexpr int KEPT_TILES = CLUSTER_CHUNKS / HELD_CHUNKS;
constexpr int HELD_TILE = HELD_CHUNKS * WARP; /* in chunks */

struct share_of_warp {
    int warp, turn, warps; /* its number along the row, and in turn; of how many */
    int tiles;             /* that have elements of the row */

    __device__ share_of_warp(int chunks, int block, int blocks)
        : warp(block * warps_of_block() + warp_of_block()),
          turn(warp_of_block() * blocks + block),
          warps(blocks * warps_of_block()) {
        const int of_row = (chunks + HELD_TILE - 1) / HELD_TILE;
        const int kept = of_row - warp * KEPT_TILES, rest = of_row - warps * KEPT_TILES - turn;
        tiles = kept < 0 ? 0 : kept < KEPT_TILES ? kept : KEPT_TILES;
        if (rest > 0) tiles += (rest + warps - 1) / warps;
    }

    /* The chunk in which tile `t` begins; a lane's first is as many chunks on. */
    __device__ int begin(int t) const {
        return (t < KEPT_TILES ? warp * KEPT_TILES + t : t * warps + turn) * HELD_TILE;
    }
};

#endif
