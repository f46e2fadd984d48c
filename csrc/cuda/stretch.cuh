/* stretch.cuh - a warp's stretch of a row whose elements have 16 bits and which begins BYTES after
 * a pack: the 32 lanes take neighbouring chunks, K times. BYTES is a constant, so that to pick
 * words costs nothing; it and `left`, the elements from the warp's first one to the row's end, are
 * the same in all lanes. */
#ifndef ONS_STRETCH_CUH
#define ONS_STRETCH_CUH

#include "packs.cuh"

/* How many times all 32 lanes have a whole chunk. */
template <int K, int V>
__device__ inline int whole_times(int left) {
    return min(left / (WARP * V), K);
}

/* Words I to LAST after `from`, a multiple of 8 bytes, in the widest accesses. */
template <int I, int LAST, int n>
__device__ __forceinline__ void read_words(const char *from, unsigned (&word)[n]) {
    if constexpr (I + 1 <= LAST && I % 2 == 0) {
        const uint2 two = *(const uint2 *)(from + 4 * I);
        word[I] = two.x, word[I + 1] = two.y;
        read_words<I + 2, LAST>(from, word);
    } else if constexpr (I <= LAST) {
        word[I] = *(const unsigned *)(from + 4 * I);
        read_words<I + 1, LAST>(from, word);
    }
}

/* Reads a lane's first `whole` chunks, each by the words in which it lies: of the row's neighbours
 * and of other lanes' chunks half a word at most, which is dropped. read_more reads what else is to
 * be under way before the first of them is here. */
template <int BYTES, typename P, int K, typename Meanwhile>
__device__ __forceinline__ void read_stretch(const char *from, int whole, P (&raw)[K],
                                             Meanwhile read_more) {
    constexpr int FIRST = BYTES / 4, LAST = (BYTES + (int)sizeof(P) - 1) / 4;
    unsigned word[K][2 * P::WORDS];
#pragma unroll
    for (int k = 0; k < K; k++)
        if (k < whole) read_words<FIRST, LAST>(from - BYTES + k * WARP * (int)sizeof(P), word[k]);
    read_more();
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < P::WORDS; i++)
            raw[k].word[i] = BYTES % 4
                                 ? __funnelshift_r(word[k][FIRST + i], word[k][FIRST + i + 1], 16)
                                 : word[k][FIRST + i];
}

/* Writes a lane's first `whole` chunks as the packs that end in them, each with the end of the
 * chunk before, from the lane that has it. Single elements are those that come before the stretch's
 * first pack and after its last one. */
template <int BYTES, bool STREAM, typename T, int V, int K>
__device__ __forceinline__ void write_stretch(T *to, int whole, const pack<T, V> (&raw)[K]) {
    constexpr int BEFORE = BYTES / (int)sizeof(T), OWN = V - BEFORE;
    using P = pack<T, V>;
    const int lane = threadIdx.x % WARP;
    P got = {}; /* what the last lane gave the first is for the first one's next chunk */
#pragma unroll
    for (int k = 0; k < K; k++) {
        const P mine = raw[k];
        T *const at = to + place<WARP, V>(k * V);
        P previous = {};
#pragma unroll
        for (int i = OWN * (int)sizeof(T) / 4; i < P::WORDS; i++) {
            const unsigned given = __shfl_sync(~0u, mine.word[i], lane + WARP - 1);
            previous.word[i] = lane == 0 ? got.word[i] : given;
            got.word[i] = given;
        }
        if (k < whole && (k > 0 || BYTES == 0 || lane > 0))
            write_pack<STREAM>((P *)(at - BEFORE),
                               BYTES ? between(previous, mine, OWN * (int)sizeof(T)) : mine);
#pragma unroll
        for (int i = 0; i < V && BYTES > 0; i++)
            if (i < OWN ? k == 0 && lane == 0 && whole > 0 : k == whole - 1 && lane == WARP - 1)
                at[i] = mine.element(i);
    }
}

#endif
