/* signs.cuh - sets a bit for each of a thread's elements that is not below a number, or for each
 * that is above it. The sign of the difference gives the bit, in two instructions an element. */
#ifndef ONS_SIGNS_CUH
#define ONS_SIGNS_CUH

#include "../rows/tile.cuh"

template <typename Tile>
struct signs {
    static constexpr int n = Tile::K * Tile::V;
    static_assert(n <= 32);
    using Real = typename Tile::Real;

    __device__ static constexpr unsigned element(unsigned bit) { return n - 1 - bit; }
    __device__ static constexpr unsigned bit(unsigned e) { return n - 1 - e; }

    /* NaN is not below any number. */
    __device__ static unsigned not_below(const Tile &tile, Real number) {
        const Real from = number == 0 ? (Real)-0.0 : number; /* ±0 - -0 is not negative */
        return ~bits([&](int e) { return sign(tile.element(e), from); }) & ~0u >> (32 - n);
    }
    /* NaN is not above any number either. */
    __device__ static unsigned above(const Tile &tile, Real number) {
        const Real to = number + (Real)0; /* 0 - ±0 is not negative */
        return bits([&](int e) { return sign(to, tile.element(e)); });
    }

   private:
    template <typename Sign>
    __device__ static unsigned bits(Sign sign_of) {
        unsigned all = 0;
#pragma unroll
        for (int e = 0; e < n; e++) all = __funnelshift_l(sign_of(e), all, 1);
        return all;
    }
    __device__ static unsigned sign(float a, float b) { return __float_as_uint(a - b); }
    __device__ static unsigned sign(double a, double b) { return a < b ? ~0u : 0; }
};

/* Takes 16-bit elements two at a time; the bits of the first of each two are the lower half. The
 * number is rounded to their type. */
template <typename X, int K>
struct signs_of_pairs {
    using Tile = raw_tile<X, K>;
    static constexpr int n = K * Tile::V, PAIRS = n / 2;
    static_assert(PAIRS <= 16);

    __device__ static constexpr unsigned element(unsigned bit) { return 2 * (bit % 16) + bit / 16; }
    __device__ static constexpr unsigned bit(unsigned e) { return e / 2 + 16 * (e % 2); }

    __device__ static unsigned not_below(const Tile &tile, float number) {
        const X from = from_real<X>(number == 0 ? -0.0f : number);
        return ~bits(tile, [&](pair two) { return two - pair{from, from}; }) & ALL;
    }
    __device__ static unsigned above(const Tile &tile, float number) {
        const X to = from_real<X>(number + 0.0f);
        return bits(tile, [&](pair two) { return pair{to, to} - two; }) & ALL;
    }

   private:
    using pair = pair_of_16_bits<X>;
    static constexpr unsigned ALL = 0x10001u * (0xffffu >> (16 - PAIRS));

    template <typename Difference>
    __device__ static unsigned bits(const Tile &tile, Difference difference) {
        unsigned all = 0;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const pair apart = difference(*(const pair *)&tile.raw[i / 2].word[i % 2]);
            all = all >> 1 | (*(const unsigned *)&apart & 0x80008000u);
        }
        return all >> (16 - PAIRS);
    }
};
template <int K>
struct signs<raw_tile<__half, K>> : signs_of_pairs<__half, K> {};
template <int K>
struct signs<raw_tile<__nv_bfloat16, K>> : signs_of_pairs<__nv_bfloat16, K> {};

/* The bits of the elements before place `end`; the first element's place is `first`. */
template <int STRIDE, typename Tile>
__device__ inline unsigned bits_before(uint32_t end, uint32_t first) {
    unsigned all = 0;
#pragma unroll
    for (int e = 0; e < signs<Tile>::n; e++)
        if (first + place<STRIDE, Tile::V>(e) < end) all |= 1u << signs<Tile>::bit(e);
    return all;
}

template <typename Tile>
__device__ inline unsigned bits_of_nan(const Tile &tile) {
    unsigned all = 0;
#pragma unroll
    for (int e = 0; e < signs<Tile>::n; e++)
        if (isnan(tile.element(e))) all |= 1u << signs<Tile>::bit(e);
    return all;
}

#endif
