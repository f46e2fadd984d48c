/* lay_out.cuh - copies a short row's tile to shared memory, where any element can be read. */
#ifndef ONS_LAY_OUT_CUH
#define ONS_LAY_OUT_CUH

#include "../rows/tile.cuh"

/* The type in which shared memory holds an element. The elements lie in the row's order. */
template <typename Tile>
struct stored_as {
    using type = typename Tile::Real;
};
template <typename X, int K>
struct stored_as<raw_tile<X, K>> {
    using type = X;
};

template <int LANES, typename X, int K>
__device__ inline void lay_out(const raw_tile<X, K> &tile, X *row, int lane) {
    constexpr int V = raw_tile<X, K>::V;
#pragma unroll
    for (int k = 0; k < K; k++) ((pack<X, V> *)row)[k * LANES + lane] = tile.raw[k];
}
template <int LANES, typename Real, int K>
__device__ inline void lay_out(const real_tile<Real, K> &tile, Real *row, int lane) {
    constexpr int V = real_tile<Real, K>::V;
#pragma unroll
    for (int e = 0; e < K * V; e++) row[lane * V + place<LANES, V>(e)] = tile.x[e];
}

/* Reads the tile back. */
template <int LANES, typename X, int K>
__device__ inline void take_back(const X *row, int lane, raw_tile<X, K> *tile) {
    constexpr int V = raw_tile<X, K>::V;
#pragma unroll
    for (int k = 0; k < K; k++) tile->raw[k] = ((const pack<X, V> *)row)[k * LANES + lane];
}
template <int LANES, typename Real, int K>
__device__ inline void take_back(const Real *row, int lane, real_tile<Real, K> *tile) {
    constexpr int V = real_tile<Real, K>::V;
#pragma unroll
    for (int e = 0; e < K * V; e++) tile->x[e] = row[lane * V + place<LANES, V>(e)];
}

#endif
