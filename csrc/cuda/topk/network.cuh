/* network.cuh - sorts numbers without branches, by networks of exchanges in registers and over
 * neighbouring lanes (Batcher, Sorting networks and their applications, 1968). Numbers are
 * unsigned, and the largest come first. */
#ifndef ONS_NETWORK_CUH
#define ONS_NETWORK_CUH

#include <cstdint>

#include "../statistic/over_lanes.cuh"

__device__ __forceinline__ void put_larger_first(uint32_t &a, uint32_t &b) {
    const uint32_t larger_one = max(a, b);
    b = min(a, b);
    a = larger_one;
}

/* Sorts n numbers from `first` on, where n is a power of two, by Batcher's odd-even merges. */
template <int n, int first, int half = 1, int apart = 1, int all>
__device__ __forceinline__ void sort_numbers(uint32_t (&x)[all]) {
    if constexpr (half < n) {
#pragma unroll
        for (int i = apart % half; i + apart < n; i++)
            if ((i - apart % half) / apart % 2 == 0 && i / (2 * half) == (i + apart) / (2 * half))
                put_larger_first(x[first + i], x[first + i + apart]);
        if constexpr (apart > 1)
            sort_numbers<n, first, half, apart / 2>(x);
        else
            sort_numbers<n, first, 2 * half, 2 * half>(x);
    }
}

/* Sorts the first n numbers, which must be bitonic: they rise and then fall, or fall and then
 * rise. */
template <int n, int all>
__device__ __forceinline__ void sort_bitonic(uint32_t (&x)[all]) {
#pragma unroll
    for (int apart = n / 2; apart > 0; apart /= 2)
#pragma unroll
        for (int i = 0; i < n; i++)
            if (!(i & apart)) put_larger_first(x[i], x[i + apart]);
}

/* Puts the M largest numbers first, in order. The others are lost. */
template <int M, int next = 0, int all>
__device__ __forceinline__ void keep_largest(uint32_t (&x)[all]) {
    sort_numbers<M, next>(x);
    if constexpr (next > 0) {
#pragma unroll
        for (int i = 0; i < M; i++) x[i] = max(x[i], x[next + M - 1 - i]);
        sort_bitonic<M>(x);
    }
    if constexpr (next + M < all) keep_largest<M, next + M>(x);
}

/* Merges the lists of LANES neighbouring lanes; each lane has M numbers in order. Afterwards every
 * `wide` lanes, a power of two, together hold the largest M * wide numbers in order. */
template <int LANES, int M, int all>
__device__ __forceinline__ void merge_lists(uint32_t (&x)[all], int wide) {
    const int lane = threadIdx.x % LANES;
    auto take = [&](uint32_t &own, uint32_t other, bool less) {
        own = less ? min(own, other) : max(own, other);
    };
#pragma unroll 1
    for (int apart = 1; apart < LANES; apart *= 2) {
        /* compare two lists, one of them reversed: side by side, or one above the other */
        const int list = min(apart, wide), across = apart | (list - 1);
        const bool second = apart < wide && lane & apart;
#pragma unroll
        for (int i = 0; i < M / 2; i++) {
            const uint32_t low = __shfl_xor_sync(~0u, x[M - 1 - i], across);
            const uint32_t high = __shfl_xor_sync(~0u, x[i], across);
            take(x[i], low, second);
            take(x[M - 1 - i], high, second);
        }
#pragma unroll 1
        for (int half = list / 2; half > 0; half /= 2)
#pragma unroll
            for (int i = 0; i < M; i++) take(x[i], __shfl_xor_sync(~0u, x[i], half), lane & half);
        sort_bitonic<M>(x);
    }
}

#endif
