/* exponential.cuh - e^x relative to a reference, for thousands of x at a time, and the change of a
 * reference.
 *
 * The reference of a maximum m is 2^c with the integer c = ceil(m * log2(e)). So a change of
 * reference multiplies by an exact power of two. With shift = MAGIC + LIFT - c, the integer n =
 * rint(x * log2(e)) appears in the low bits of t = x * log2(e) + shift. Then e^x = 2^n * 2^f with f
 * = x * log2(e) - n. f is computed from the two parts of log2(e), so neither m nor an offset of the
 * row enters the rounding of 2^f. The bits of t give the lifted exponential e^x * 2^(LIFT - c).
 * What must hold:
 *
 *  - |n| and |c| are below 2^22, the room that MAGIC leaves. Rows with |m| > LARGEST have an
 *    anchor, a number near m that is subtracted from x first. The difference is exact wherever
 *    e^(x - m) is not 0.
 *  - A lifted exponential is a normal number. `floor` ensures that. An element at the floor, such
 *    as -inf, becomes 0 when it is finished. */
#ifndef ONS_EXPONENTIAL_CUH
#define ONS_EXPONENTIAL_CUH

#include <math_constants.h>

#include "../../api/exponential.h"
#include "../../api/state.h"

template <typename Real>
struct arithmetic;

template <>
struct arithmetic<float> {
    static constexpr float MAGIC = 0x1.8p23f, LOWERED = 0x1p-64f;
    static constexpr float LOG2_E = 0x1.715476p0f, LOG2_E_LOW = 0x1.4ae0cp-26f;
    static constexpr float LN2 = 0x1.62e43p-1f, LN2_LOW = -0x1.05c61p-29f;
    static constexpr int LIFT = 64, BELOW = 170, BITS = 23;
    static constexpr double LEAST_NORMAL = 0x1p-126;
    static constexpr int SUBNORMAL = 28; /* more than the number of subnormal powers of two */
    __device__ static float infinity() { return CUDART_INF_F; }
    __device__ static float nan() { return CUDART_NAN_F; }

    /* Nearly 1 / d. */
    __device__ static float reciprocal(float d) {
        float nearly;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(nearly) : "f"(d));
        return nearly;
    }

    /* MAGIC + c of a maximum m, with c = ceil(m * log2(e)). */
    __device__ static float biased_c(float m) { return __fadd_ru(m * LOG2_E, MAGIC); }
    __device__ static int difference(float a, float b) {
        return __float_as_int(a) - __float_as_int(b);
    }

    /* 2^(x * log2(e) - n) * 2^(n + LIFT - c), where t = n + shift. */
    __device__ static float lifted(float x, float t, float n) {
        float f = fmaf(x, LOG2_E_LOW, fmaf(x, LOG2_E, -n)), power;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(f));
        return __uint_as_float(__float_as_uint(power) + (__float_as_uint(t) << BITS));
    }

    /* 2^k, or 0 if it is not a normal number. */
    __device__ static float power(int k) { return __int_as_float((max(k, -127) + 127) << BITS); }
};

template <>
struct arithmetic<double> {
    static constexpr double MAGIC = 0x1.8p52, LOWERED = 0x1p-128;
    static constexpr double LOG2_E = ONS_LOG2_E, LOG2_E_LOW = 0x1.777d0ffda0d24p-56;
    static constexpr double LN2 = 0x1.62e42fefa39efp-1, LN2_LOW = 0x1.abc9e3b39803fp-56;
    static constexpr double LEAST_NORMAL = 0x1p-1022;
    static constexpr int LIFT = 128, BELOW = 1090, SUBNORMAL = 60, BITS = 52;
    __device__ static double infinity() { return CUDART_INF; }
    __device__ static double nan() { return CUDART_NAN; }
    __device__ static double reciprocal(double d) { return __drcp_rn(d); }
    __device__ static double biased_c(double m) { return __dadd_ru(m * LOG2_E, MAGIC); }
    __device__ static int difference(double a, double b) {
        return (int)(__double_as_longlong(a) - __double_as_longlong(b));
    }

    __device__ static double lifted(double x, double t, double n) {
        double r = fma(-n, ONS_LN2_LOW, fma(-n, ONS_LN2_HIGH, x)), p = 0;
#define TERM(a) p = fma(p, r, a);
        ONS_EXP_TERMS(TERM)
#undef TERM
        p = fma(fma(p, r, 1.0), r, 1.0);
        return __longlong_as_double(__double_as_longlong(p) + (__double_as_longlong(t) << BITS));
    }

    __device__ static double power(int k) {
        return __longlong_as_double((long long)(max(k, -1023) + 1023) << BITS);
    }
};

/* The largest |m| whose reference is a power of two. An ordinary m is at most that; NaN is not
 * ordinary. The CPU counts n in eighths, so its limit is lower. Here all of float16 is ordinary. */
constexpr float LARGEST = 2.5e6f;
template <typename Real>
__device__ inline bool is_ordinary(Real m) {
    return fabs(m) <= (Real)LARGEST;
}

/* e^x * 2^(LIFT - c), for x that are not far above c * ln2. */
template <typename Real>
struct exponentials {
    Real shift, floor;

    /* biased_c is MAGIC + c. All of these are integers that a Real holds. */
    __device__ explicit exponentials(Real biased_c) {
        using A = arithmetic<Real>;
        shift = (2 * A::MAGIC + A::LIFT) - biased_c;
        floor = (biased_c - (A::MAGIC + A::BELOW)) * (Real)(1 / ONS_LOG2_E);
    }

    __device__ Real operator()(Real x) const { return from_floor_on(fmax(x, floor)); }

    /* For x that is known not to be below the floor. */
    __device__ Real from_floor_on(Real x) const {
        Real t = fma(x, arithmetic<Real>::LOG2_E, shift);
        return arithmetic<Real>::lifted(x, t, t - shift);
    }
};

/* The anchor of a maximum m that is not ordinary: the next multiple of 8. So a maximum that rises
 * step by step seldom moves the anchor. */
template <typename Real>
__device__ inline Real anchor_of(Real m) {
    return ceil(m / 8) * 8;
}

/* What the elements of a row with maximum m are relative to: the anchor, which is subtracted first,
 * and 2^c. If the row has no element above -inf, any reference will do. */
template <typename Real>
struct reference {
    Real anchor;
    exponentials<Real> exponential;

    __device__ explicit reference(Real m)
        : anchor(is_ordinary(m) || m == -arithmetic<Real>::infinity() ? 0 : anchor_of(m)),
          exponential(is_ordinary(m) ? arithmetic<Real>::biased_c(m) : arithmetic<Real>::MAGIC) {}
};

/* The factor that moves exponentials from the reference of `from` to the reference of `to`, times
 * 2^UP. `to` is not smaller. The factor is a power of two, unless one of the two has an anchor. It
 * is 0 if it is not a normal number. */
template <int UP = 0, typename Real>
__device__ inline Real rescale(Real from, Real to) {
    using A = arithmetic<Real>;
    bool ordinary_from = is_ordinary(from), ordinary_to = is_ordinary(to);
    if (ordinary_from && ordinary_to)
        return A::power(A::difference(A::biased_c(from), A::biased_c(to)) + UP);
    if (from == -A::infinity()) return 0;
    Real anchor_from = anchor_of(from), anchor_to = anchor_of(to);
    if (!ordinary_from && !ordinary_to && anchor_from == anchor_to) return A::power(UP);
    Real biased_c = ordinary_from ? 2 * A::MAGIC - A::biased_c(from)
                    : ordinary_to ? A::biased_c(to)
                                  : A::MAGIC;
    Real x = ordinary_from ? -anchor_to : ordinary_to ? anchor_from : anchor_from - anchor_to;
    return exponentials<Real>(biased_c)(x) * A::power(UP - A::LIFT);
}

#endif
