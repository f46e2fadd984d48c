/* warp_tile.cuh - a warp's tile of a 16-bit row that need not begin with a pack: the 32 lanes take
 * neighbouring chunks, K times. Reads are of words, wherever they begin:
 * what a lane reads in turn comes from the first cache. Writes are of whole packs. What depends on
 * the place in a pack or in a word is a constant, so that to pick words costs nothing; that place
 * and `whole`, how many times all 32 lanes have a chunk, are the same in all lanes. */
#ifndef ONS_WARP_TILE_CUH
#define ONS_WARP_TILE_CUH

#include "packs.cuh"

/* How many times all 32 lanes have a whole chunk. */
template <int K, int V>
__device__ inline int whole_times(int left) {
    return min(left / (WARP * V), K);
}

/* Reads a lane's first `whole` chunks, each by the words in which it lies; HALF: the first begins
 * in the middle of one. Of the row's neighbours and of other lanes' chunks half a word at most is
 * read then, and dropped. read_more reads what else is to be under way meanwhile. */
template <bool HALF, typename T, typename P, int K, typename Meanwhile>
__device__ __forceinline__ void read_warp_tile(const T *from, int whole, P (&raw)[K],
                                               Meanwhile read_more) {
    constexpr int WORDS = P::WORDS + HALF, APART = WARP * P::WORDS;
    const unsigned *const words = (const unsigned *)(from - HALF);
    unsigned word[K][WORDS];
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            if (k < whole) word[k][i] = words[k * APART + i];
    read_more();
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < P::WORDS; i++)
            raw[k].word[i] =
                HALF ? __funnelshift_r(word[k][i], word[k][(i + 1) % WORDS], 16) : word[k][i];
}

/* Writes a lane's first `whole` chunks of a tile that begins BYTES after a pack, as the packs
 * that end in them, each with the end of the chunk before, from the lane that has it. Single
 * elements are those that come before the tile's first pack and after its last one. */
template <int BYTES, bool STREAM, typename T, int V, int K>
__device__ __forceinline__ void write_warp_tile(T *to, int whole, const pack<T, V> (&raw)[K]) {
    constexpr int BEFORE = BYTES / (int)sizeof(T), OWN = V - BEFORE;
    using P = pack<T, V>;
    const int lane = threadIdx.x % WARP;
    P got = {}; /* what the last lane gave the first: for its next chunk, or behind the last one */
#pragma unroll
    for (int k = 0; k < K; k++) {
        const P mine = raw[k];
        T *const at = to + place<WARP, V>(k * V);
        P previous = {};
#pragma unroll
        for (int i = OWN * (int)sizeof(T) / 4; i < P::WORDS; i++) {
            const unsigned given = __shfl_sync(~0u, mine.word[i], lane + WARP - 1);
            previous.word[i] = lane == 0 ? got.word[i] : given;
            if (k < whole) got.word[i] = given;
        }
        if (k < whole && (k > 0 || BYTES == 0 || lane > 0))
            write_pack<STREAM>((P *)(at - BEFORE),
                               BYTES ? between(previous, mine, OWN * (int)sizeof(T)) : mine);
        if (BYTES > 0 && k == 0 && lane == 0 && whole > 0) {
#pragma unroll
            for (int i = 0; i < OWN; i++) at[i] = mine.element(i);
        }
    }
    if (BYTES > 0 && lane == 0 && whole > 0) {
        T *const end = to + whole * (WARP * V);
#pragma unroll
        for (int i = OWN; i < V; i++) end[i - V] = got.element(i);
    }
}

#endif
