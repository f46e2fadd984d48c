/* keys.cuh - the elements of a short row as 32-bit numbers in the order of top-k. The high bits
 * hold the element, the low bits its place. An earlier place is a larger number. A 16-bit element
 * fits whole. A float32 element loses its last bits, so two elements that differ only there are
 * ordered by their places. */
#ifndef ONS_KEYS_CUH
#define ONS_KEYS_CUH

#include "entry.cuh"
#include "../rows/tile.cuh"

/* For a row that LANES lanes share. The places are lane 0's. */
template <typename Tile, int LANES>
struct keys_of_row {
    static constexpr int V = Tile::V, n = Tile::K * V;
    static constexpr bool EXACT = false;
    static constexpr uint32_t PLACES = LANES * n - 1; /* a power of two minus 1 */

    /* Keys of the tile, or of a tile whose elements are APART places apart. */
    template <int APART = 1, typename Some, int count>
    __device__ static void fill(const Some &tile, uint32_t (&keys)[count]) {
#pragma unroll
        for (int e = 0; e < count; e++) {
            /* + 0 makes every NaN the same largest one, and -0 to 0 */
            const uint32_t bits = __float_as_uint(tile.element(e) + 0.0f);
            const uint32_t key = bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
            keys[e] = (key & ~PLACES) | (PLACES - place<LANES, V>(APART * e));
        }
    }
    __device__ static uint32_t place_of(uint32_t key) { return PLACES - (key & PLACES); }
    /* The bits of a key that belong to the element. */
    __device__ static uint32_t bucket(uint32_t key) { return key & ~PLACES; }
};

template <typename X, int K, int LANES>
struct keys_of_pairs {
    using Tile = raw_tile<X, K>;
    static constexpr int V = Tile::V, n = K * V;
    static constexpr bool EXACT = true;
    static constexpr uint32_t PLACES = 0xffff;

    template <int APART = 1, int k, int count>
    __device__ static void fill(const raw_tile<X, k> &tile, uint32_t (&keys)[count]) {
        using pair = pair_of_16_bits<X>;
#pragma unroll
        for (int e = 0; e < count; e += 2) {
            const pair zero = {from_real<X>(0.0f), from_real<X>(0.0f)};
            const pair two = __hadd2(*(const pair *)&tile.raw[e / V].word[e % V / 2], zero);
            const unsigned bits = *(const unsigned *)&two;
            unsigned signs; /* of both elements, 16 bits each */
            asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(signs) : "r"(bits));
            const unsigned both = bits ^ (signs | 0x80008000u);
            keys[e] = (both << 16) | (PLACES - place<LANES, V>(APART * e));
            keys[e + 1] = (both & 0xffff0000u) | (PLACES - place<LANES, V>(APART * (e + 1)));
        }
    }
    __device__ static uint32_t place_of(uint32_t key) { return PLACES - (key & PLACES); }
    __device__ static float number_of(uint32_t key) {
        const unsigned short bits =
            (unsigned short)((key & 0x80000000u ? key ^ 0x80000000u : ~key) >> 16);
        return to_real<float>(bits_as<X>(bits));
    }
};
template <int K, int LANES>
struct keys_of_row<raw_tile<__half, K>, LANES> : keys_of_pairs<__half, K, LANES> {};
template <int K, int LANES>
struct keys_of_row<raw_tile<__nv_bfloat16, K>, LANES> : keys_of_pairs<__nv_bfloat16, K, LANES> {};

#endif
