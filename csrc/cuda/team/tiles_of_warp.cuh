/* tiles_of_warp.cuh - the tiles of a row that a warp has in cluster_smem. The first REGISTER_TILES
 * tiles are neighbours and stay in registers. The warp takes the further tiles in turn with the
 * other warps, block by block. The warps of two blocks differ by at most one tile. The order of
 * every sum follows from this. */
#ifndef ONS_TILES_OF_WARP_CUH
#define ONS_TILES_OF_WARP_CUH

#include "../statistic/over_lanes.cuh"

constexpr int REGISTER_TILES = CLUSTER_CHUNKS / SMEM_CHUNKS;
constexpr int SMEM_TILE = SMEM_CHUNKS * WARP; /* in chunks */

struct tiles_of_warp {
    int warp, turn, warps; /* this warp's number along the row, its number in turn, and the number
                            * of warps */
    int tiles;             /* tiles with elements of the row */

    __device__ tiles_of_warp(int chunks, int block, int blocks)
        : warp(block * warps_of_block() + warp_of_block()),
          turn(warp_of_block() * blocks + block),
          warps(blocks * warps_of_block()) {
        const int of_row = (chunks + SMEM_TILE - 1) / SMEM_TILE;
        const int kept = of_row - warp * REGISTER_TILES,
                  rest = of_row - warps * REGISTER_TILES - turn;
        tiles = kept < 0 ? 0 : kept < REGISTER_TILES ? kept : REGISTER_TILES;
        if (rest > 0) tiles += (rest + warps - 1) / warps;
    }

    /* The chunk in which tile t begins. A lane's first chunk is this chunk plus the lane's
     * number. */
    __device__ int begin(int t) const {
        return (t < REGISTER_TILES ? warp * REGISTER_TILES + t : t * warps + turn) * SMEM_TILE;
    }
};

#endif
