/* exponential.cuh - e^x relative to a reference, for thousands of x at a time, and what it costs to
 * change the reference.
 *
 * The reference of a maximum m is 2^c with c = ceil(m * log2(e)), an integer: to move from one to
 * another is an exact power of two. n = rint(x * log2(e)) appears in the low bits of t = x *
 * log2(e)
 * + shift, where shift is MAGIC + LIFT - c; then e^x = 2^n * 2^f with f = x * log2(e) - n, taken
 * from the two parts of log2(e), so that neither m nor an offset of the row enters the rounding of
 * 2^f; and the bits of t give the lifted exponential e^x * 2^(LIFT - c). What must hold:
 *
 *  - |n| and |c| are below 2^22, the room that MAGIC leaves: rows with |m| > LARGEST are anchored,
 *    that is taken relative to m itself. x - m is exact there wherever e^(x - m) is not 0;
 *  - a lifted exponential is a normal number: `floor` sees to it. An element at the floor, as one
 *    of -inf is, becomes 0 when it is finished. */
#ifndef ONS_EXPONENTIAL_CUH
#define ONS_EXPONENTIAL_CUH

#include <math_constants.h>

#include "../exponential.h"
#include "../state.h"

template <typename Real>
struct arithmetic;

template <>
struct arithmetic<float> {
    static constexpr float MAGIC = 0x1.8p23f, LIFTED = 0x1p64f, LOWERED = 0x1p-64f;
    static constexpr float LOG2_E = 0x1.715476p0f, LOG2_E_LOW = 0x1.4ae0cp-26f;
    static constexpr int LIFT = 64, BELOW = 170, SMALLEST = -149, BITS = 23;
    __device__ static float infinity() { return CUDART_INF_F; }
    __device__ static float nan() { return CUDART_NAN_F; }
    __device__ static float reciprocal(float d) { return __frcp_rn(d); }

    /* 2^(x * log2(e) - n) * 2^(n + LIFT - c), where t = n + shift. */
    __device__ static float lifted(float x, float t, float n) {
        float f = fmaf(x, LOG2_E_LOW, fmaf(x, LOG2_E, -n)), power;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(f));
        return __uint_as_float(__float_as_uint(power) + (__float_as_uint(t) << BITS));
    }

    /* 2^k for k <= 0, exactly; 0 where that is too small for a float. */
    __device__ static float power(int k) {
        return __uint_as_float(k >= -126       ? (unsigned)(k + 127) << BITS
                               : k >= SMALLEST ? 1u << (k - SMALLEST)
                                               : 0u);
    }
};

template <>
struct arithmetic<double> {
    static constexpr double MAGIC = 0x1.8p52, LIFTED = 0x1p128, LOWERED = 0x1p-128;
    static constexpr double LOG2_E = ONS_LOG2_E, LOG2_E_LOW = 0x1.777d0ffda0d24p-56;
    static constexpr int LIFT = 128, BELOW = 1090, SMALLEST = -1074, BITS = 52;
    __device__ static double infinity() { return CUDART_INF; }
    __device__ static double nan() { return CUDART_NAN; }
    __device__ static double reciprocal(double d) { return __drcp_rn(d); }

    __device__ static double lifted(double x, double t, double n) {
        double r = fma(-n, ONS_LN2_LOW, fma(-n, ONS_LN2_HIGH, x)), p = 0;
#define TERM(a) p = fma(p, r, a);
        ONS_EXP_TERMS(TERM)
#undef TERM
        p = fma(fma(p, r, 1.0), r, 1.0);
        return __longlong_as_double(__double_as_longlong(p) + (__double_as_longlong(t) << BITS));
    }

    __device__ static double power(int k) {
        return __longlong_as_double(k >= -1022      ? (long long)(k + 1023) << BITS
                                    : k >= SMALLEST ? 1ll << (k - SMALLEST)
                                                    : 0ll);
    }
};

/* The largest |m| whose reference is a power of two. */
constexpr float LARGEST = 2.5e6f;

template <typename Real>
__device__ inline bool is_anchored(Real m) {
    return !(fabs(m) <= (Real)LARGEST) && m != -arithmetic<Real>::infinity();
}

/* c of a maximum that is not anchored. */
template <typename Real>
__device__ inline Real power_of(Real m) {
    return ceil(m * arithmetic<Real>::LOG2_E);
}

/* e^x * 2^(LIFT - c), for the x that are not far above c * ln2. */
template <typename Real>
struct exponentials {
    Real shift, floor;

    __device__ explicit exponentials(Real c) {
        using A = arithmetic<Real>;
        shift = A::MAGIC + (A::LIFT - c);
        floor = (c - A::BELOW) * (Real)(1 / ONS_LOG2_E);
    }

    __device__ Real operator()(Real x) const {
        x = fmax(x, floor);
        Real t = fma(x, arithmetic<Real>::LOG2_E, shift);
        return arithmetic<Real>::lifted(x, t, t - shift);
    }
};

/* What the elements under a maximum are taken relative to: they lose `anchor`, then 2^c. */
template <typename Real>
struct reference {
    Real anchor;
    exponentials<Real> exponential;

    __device__ explicit reference(Real m)
        : anchor(is_anchored(m) ? m : 0),
          exponential(is_anchored(m) || m == -arithmetic<Real>::infinity() ? 0 : power_of(m)) {}
};

/* What exponentials relative to `from` are multiplied by to be relative to `to`, which is not
 * smaller: an exact power of two but where one of them is anchored. */
template <typename Real>
__device__ inline Real rescale(Real from, Real to) {
    using A = arithmetic<Real>;
    if (from == to) return 1;
    if (from == -A::infinity()) return 0;
    bool anchored_from = is_anchored(from), anchored_to = is_anchored(to);
    if (!anchored_from && !anchored_to) return A::power((int)(power_of(from) - power_of(to)));
    Real c = anchored_from == anchored_to ? 0 : anchored_to ? -power_of(from) : power_of(to);
    Real x = anchored_from == anchored_to ? from - to : anchored_to ? -to : from;
    return exponentials<Real>(c)(x) * A::LOWERED;
}

/* Makes lifted exponentials of elements; returns their sum, in a fixed order. */
template <typename Real, int n>
__device__ inline Real exponentiate(Real (&x)[n], const reference<Real> &to) {
    constexpr int CHAINS = n < 4 ? n : 4;
    Real sum[CHAINS] = {};
    if (to.anchor != 0) {
#pragma unroll
        for (int i = 0; i < n; i++) x[i] -= to.anchor;
    }
#pragma unroll
    for (int i = 0; i < n; i++) {
        x[i] = to.exponential(x[i]);
        sum[i % CHAINS] += x[i];
    }
#pragma unroll
    for (int i = 1; i < CHAINS; i++) sum[0] += sum[i];
    return sum[0];
}

#endif
