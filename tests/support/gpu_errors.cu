/* gpu_errors.cu - the errors of csrc/cuda/statistic/exponential.cuh on this GPU. gpu_errors.py
 * loads it as a library. */
#include <cstdint>

#include "../../csrc/cuda/statistic/exponential.cuh"

/* ln2 in two parts. c times the first one is exact. */
constexpr double LN2_HIGH = 0x1.62e42fefap-1, LN2_LOW = 0x1.cf79abc9e3b3ap-40;

/* e^x * 2^-c of a float, to far more digits than a float has. */
__device__ double exact(float x, double c) { return exp(((double)x - c * LN2_HIGH) - c * LN2_LOW); }

/* The integer c of a row with the maximum m. */
template <typename Real>
__device__ Real reference_of(Real m) {
    return arithmetic<Real>::biased_c(m) - arithmetic<Real>::MAGIC;
}

/* e^x * 2^-c as the kernels compute it, lifted. */
template <typename Real>
__device__ Real lifted(Real x, Real c) {
    return exponentials<Real>(c + arithmetic<Real>::MAGIC)(x);
}

/* Positive doubles have the order of their bits. */
__device__ void keep(unsigned long long *range, double quotient) {
    const unsigned long long bits = (unsigned long long)__double_as_longlong(quotient);
    atomicMin(&range[0], bits);
    atomicMax(&range[1], bits);
}

/* The least and the largest quotient of the computed and the exact result, over all floats up to
 * LARGEST of both signs. Each is relative to an even and an odd c. */
__global__ void all_floats(unsigned long long *range) {
    const uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    const uint64_t last = __float_as_uint(LARGEST);
    double least = INFINITY, most = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i <= last; i += threads)
        for (uint32_t sign = 0; sign <= 1; sign++) {
            const float x = __uint_as_float((uint32_t)i | sign << 31);
            for (float c = reference_of(x), after = c + 2; c < after; c++) {
                const double quotient = (double)lifted(x, c) * 0x1p-64 / exact(x, c);
                least = fmin(least, quotient);
                most = fmax(most, quotient);
            }
        }
    keep(range, least);
    keep(range, most);
}

/* e = the computed exponentials of n elements of a row with the maximum m. *c = the row's
 * reference. */
template <typename Real>
__global__ void some(Real *e, double *c, const Real *x, int64_t n, Real m) {
    *c = (double)reference_of(m);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        e[i] = lifted(x[i], reference_of(m));
}

/* Pointers are GPU addresses. Returns 0 or CUDA's error. */
extern "C" int range_of_all_floats(void *range) {
    all_floats<<<4096, 256>>>(static_cast<unsigned long long *>(range));
    return cudaDeviceSynchronize();
}
extern "C" int exponentials_of_floats(void *e, void *c, const void *x, int64_t n, float m) {
    some<<<1024, 256>>>(static_cast<float *>(e), static_cast<double *>(c),
                        static_cast<const float *>(x), n, m);
    return cudaDeviceSynchronize();
}
extern "C" int exponentials_of_doubles(void *e, void *c, const void *x, int64_t n, double m) {
    some<<<1024, 256>>>(static_cast<double *>(e), static_cast<double *>(c),
                        static_cast<const double *>(x), n, m);
    return cudaDeviceSynchronize();
}
