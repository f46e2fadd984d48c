/* entry.cuh - an element of a row and its place, in the order of top-k: larger elements first, NaN
 * before all others, -0 equal to 0. If two elements are equal, the one with the lower index comes
 * first. */
#ifndef ONS_ENTRY_CUH
#define ONS_ENTRY_CUH

#include <cstdint>

#include "../statistic/over_lanes.cuh"

/* An unsigned integer for each number, in the same order. No number has key 0. */
__device__ inline uint32_t key_of(float x) {
    /* + 0 makes -0 to 0, and every NaN to 0x7fffffff, whose key is ~0 */
    const uint32_t bits = __float_as_uint(x + 0.0f);
    return bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
}
__device__ inline uint64_t key_of(double x) {
    if (isnan(x)) return ~0ull;
    const uint64_t bits = (uint64_t)__double_as_longlong(x + 0.0);
    return bits ^ ((uint64_t)((int64_t)bits >> 63) | 0x8000000000000000ull);
}
__device__ inline float number_of(uint32_t key) {
    return __uint_as_float(key == ~0u ? 0x7fffffffu : key >> 31 ? key ^ 0x80000000u : ~key);
}
__device__ inline double number_of(uint64_t key) {
    const uint64_t bits = key == ~0ull ? 0x7fffffffffffffffull
                          : key >> 63  ? key ^ 0x8000000000000000ull
                                       : ~key;
    return __longlong_as_double((long long)bits);
}
template <typename Real>
using key_type = decltype(key_of(Real()));

/* The least key of LANES neighbouring lanes, and of a warp. */
template <int LANES, typename Key>
__device__ inline Key least_over_lanes(Key key) {
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        const Key other = __shfl_xor_sync(~0u, key, apart);
        key = other < key ? other : key;
    }
    return key;
}
__device__ inline uint64_t least_of_warp(uint64_t key) { return least_over_lanes<WARP>(key); }
__device__ inline uint32_t least_of_warp(uint32_t key) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(~0u, key);
#else
    return least_over_lanes<WARP>(key);
#endif
}

/* The largest key of a warp. */
__device__ inline uint64_t largest_of_warp(uint64_t key) { return ~least_of_warp(~key); }
__device__ inline uint32_t largest_of_warp(uint32_t key) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(~0u, key);
#else
    return ~least_of_warp(~key);
#endif
}

/* An entry of zeros is no entry. It comes after all others. */
template <typename Real>
struct entry;

template <>
struct entry<float> {
    uint64_t bits;

    __device__ static entry make(uint32_t key, uint32_t index) {
        return {(uint64_t)key << 32 | (uint32_t)~index};
    }
    __device__ uint32_t key() const { return (uint32_t)(bits >> 32); }
    __device__ uint32_t index() const { return ~(uint32_t)bits; }
    __device__ bool is_before(const entry &other) const { return bits > other.bits; }

    /* Subtracts 1 from count if this entry is before the other. The borrow of a difference tells
     * it. */
    __device__ void uncount_if_before(const entry &other, uint32_t &count) const {
        asm("{\n\t.reg .u32 rest;\n\t"
            "sub.cc.u32 rest, %1, %3;\n\t"
            "subc.cc.u32 rest, %2, %4;\n\t"
            "subc.u32 %0, %0, 0;\n\t}"
            : "+r"(count)
            : "r"((uint32_t)other.bits), "r"((uint32_t)(other.bits >> 32)), "r"((uint32_t)bits),
              "r"((uint32_t)(bits >> 32)));
    }
};

template <>
struct alignas(16) entry<double> {
    uint64_t bits, place;

    __device__ static entry make(uint64_t key, uint32_t index) { return {key, (uint32_t)~index}; }
    __device__ uint64_t key() const { return bits; }
    __device__ uint32_t index() const { return ~(uint32_t)place; }
    __device__ bool is_before(const entry &other) const {
        return bits > other.bits || (bits == other.bits && place > other.place);
    }
    __device__ void uncount_if_before(const entry &other, uint32_t &count) const {
        count -= is_before(other);
    }
};

#endif
