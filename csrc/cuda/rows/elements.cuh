/* elements.cuh - the types of elements and of the arithmetic, and the places of a thread's elements
 * in a row. */
#ifndef ONS_ELEMENTS_CUH
#define ONS_ELEMENTS_CUH

#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../statistic/over_lanes.cuh"
#include "../../api/problem.h"

/* A 16-bit element. The kernel learns at run time whether it is float16 or bfloat16. */
struct any_16_bit {
    unsigned short bits;
};

/* The arithmetic's type for each type of elements. */
template <typename T>
struct compute_of {
    using type = float;
};
template <>
struct compute_of<double> {
    using type = double;
};

/* A bit for each of n elements, clear if `where` excludes the element. */
template <int n>
using allowed_bits = std::conditional_t<(n > 32), unsigned long long, unsigned>;

template <typename Real, typename T>
__device__ inline Real to_real(T v) {
    if constexpr (std::is_same_v<T, __half>)
        return (Real)__half2float(v);
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        return (Real)__bfloat162float(v);
    else
        return (Real)v;
}

/* Rounds to nearest even, once. */
template <typename T, typename Real>
__device__ inline T from_real(Real v) {
    constexpr bool IS_FLOAT = std::is_same_v<Real, float>;
    if constexpr (std::is_same_v<T, __half>)
        return IS_FLOAT ? __float2half_rn(v) : __double2half(v);
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        return IS_FLOAT ? __float2bfloat16_rn(v) : __double2bfloat16(v);
    else
        return (T)v;
}

__device__ inline unsigned short bits_of(__half v) { return __half_as_ushort(v); }
__device__ inline unsigned short bits_of(__nv_bfloat16 v) { return __bfloat16_as_ushort(v); }
__device__ inline unsigned short bits_of(any_16_bit v) { return v.bits; }
template <typename T>
__device__ inline T bits_as(unsigned short bits) {
    if constexpr (std::is_same_v<T, __half>)
        return __ushort_as_half(bits);
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        return __ushort_as_bfloat16(bits);
    else
        return {bits};
}

/* The part of the elements' type that is known only at run time. */
template <typename T>
struct element_format {
    __host__ __device__ element_format() {}
    __host__ __device__ explicit element_format(ons_dtype) {}

    /* Returns body(an element of that type, with any value). It branches, so call it for many
     * elements at once. */
    template <typename Body>
    __device__ __forceinline__ auto with(Body body) const {
        return body(T());
    }

    __device__ static T minus_infinity() { return from_real<T>(-CUDART_INF_F); }

    template <typename Real>
    __device__ static T rounded(Real v) {
        return from_real<T>(v);
    }
};
template <>
struct element_format<any_16_bit> {
    __host__ __device__ explicit element_format(ons_dtype dtype)
        : is_bfloat(dtype == ONS_BFLOAT16) {}

    template <typename Body>
    __device__ __forceinline__ auto with(Body body) const {
        if (is_bfloat) return body(__nv_bfloat16());
        return body(__half());
    }

    __device__ any_16_bit minus_infinity() const {
        return {(unsigned short)(is_bfloat ? 0xff80 : 0xfc00)};
    }

    __device__ any_16_bit rounded(float v) const {
        return with(
            [&](auto type) -> any_16_bit { return {bits_of(from_real<decltype(type)>(v))}; });
    }

   private:
    int is_bfloat;
};

/* The format of results: the elements' format, or that of another type Y. */
template <typename Y, typename X>
__device__ inline element_format<Y> format_of_results(
    [[maybe_unused]] const element_format<X> &format) {
    if constexpr (std::is_same_v<X, Y>)
        return format;
    else
        return element_format<Y>();
}

/* Reads one element whose type is known only at run time. */
template <typename Real>
__device__ inline Real read_as(const char *at, ons_dtype dtype) {
    switch (dtype) {
    case ONS_FLOAT16: return to_real<Real>(*(const __half *)at);
    case ONS_BFLOAT16: return to_real<Real>(*(const __nv_bfloat16 *)at);
    case ONS_FLOAT32: return to_real<Real>(*(const float *)at);
    default: return to_real<Real>(*(const double *)at);
    }
}

template <typename Real>
__device__ inline void write_as(char *at, ons_dtype dtype, Real v) {
    switch (dtype) {
    case ONS_FLOAT16: *(__half *)at = from_real<__half>(v); break;
    case ONS_BFLOAT16: *(__nv_bfloat16 *)at = from_real<__nv_bfloat16>(v); break;
    case ONS_FLOAT32: *(float *)at = from_real<float>(v); break;
    default: *(double *)at = from_real<double>(v);
    }
}

/* Rounds v to a type, as `naive` does after each step. */
template <typename Real>
__device__ inline Real round_to(ons_dtype dtype, Real v) {
    alignas(8) char own[8];
    write_as(own, dtype, v);
    return read_as<Real>(own, dtype);
}

/* Number of elements in the row from this thread's first element on, as an int. It is clamped far
 * above the chunks' reach, and negative if the row ends earlier. */
__device__ inline int elements_left(int64_t N, int64_t first) {
    int64_t left = N - first;
    return left > 1 << 30 ? 1 << 30 : left < -(1 << 30) ? -(1 << 30) : (int)left;
}

/* The place of element e of a thread's chunks of V elements, relative to the thread's first
 * element. */
template <int STRIDE, int V>
__device__ constexpr int place(int e) {
    return e / V * STRIDE * V + e % V;
}

#endif
