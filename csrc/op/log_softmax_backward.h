/* log_softmax_backward.h - the backward step of log_softmax. Let y = log_softmax(x), and let dy be
 * the gradient of the loss with respect to y. The gradient with respect to x is dy - e^y *
 * sum(dy). */

#ifdef ONS_OPERATION
ONS_OPERATION(log_softmax_backward, GRADIENT, NOTHING, 0.0, "dy - exp(y) * sum(dy)")
#endif

#ifdef ONS_OPERATION_ON_CPU

enum { log_softmax_backward_adds_products = false };

/* The exponential is lifted, so either the sum or the exponential must be lowered. If the sum is
 * large enough, the sum is lowered. Then the product keeps digits that e^y alone would lose. */
ONS_ALWAYS void log_softmax_backward_row(double sum, double power, T *first, T *second) {
    bool large = fabs(sum) * power >= 1;
    *first = (T)(large ? sum * (power * (BITS == 32 ? 0x1p-120 : 0x1p-1000)) : sum * power);
    *second = (T)(large ? LOG_LOWERED * (BITS == 32 ? 0x1p120 : 0x1p1000) : LOG_LOWERED);
}

/* The result for outputs that are too large for the lifted exponential. Such outputs are not
 * logarithms of probabilities. It goes lane by lane, since lanes must not affect each other. */
static ONS_APART VEC log_softmax_backward_above(VEC dx, VEC dy, VEC y, VEC sum) {
    T of[WIDTH], result[WIDTH], plain[WIDTH];
    V(store)(of, y);
    V(store)(result, dx);
    V(store)(plain, V(fnma)(plain_exponential(y), sum, dy));
    for (int64_t l = 0; l < WIDTH; l++)
        if (of[l] > LOG_LARGEST) result[l] = plain[l];
    return V(load)(result);
}

ONS_ALWAYS VEC log_softmax_backward_element(VEC dy, VEC y, VEC first, VEC second, VEC power,
                                            bool plain) {
    VEC e = lifted_exponential_of_log(y) * second, more = dy;
    if (!plain) more *= power;
    VEC dx = V(fnma)(e, first, more);
    if (__builtin_expect(V(any_outside)(V(max)(y, V(set)(0)), V(set)(LOG_LARGEST)), false)) {
        VEC sum = (first * second) * V(set)((T)(1 / LOG_LOWERED));
        return log_softmax_backward_above(dx, more, y, sum);
    }
    return dx;
}

#endif

#ifdef ONS_OPERATION_ON_CUDA

struct log_softmax_backward : operation_log_softmax_backward {
    static constexpr bool ADDS_PRODUCTS = false, HAS_PLAIN = true, ALWAYS_PLAIN = false;

    /* Far below 0, e^y may be 0 although its product with the sum is not. There the code computes
     * e^(y + LOWER), and multiplies the sum by e^-LOWER. */
    template <typename Real>
    static constexpr Real LOWER = sizeof(Real) == sizeof(float) ? 80 : 700;

    template <typename Real>
    __device__ static void row(double sum, Real power, Real *first, Real *second) {
        const double lowered = sizeof(Real) == sizeof(float) ? 0x1.7fd974d372e45p-116   /* e^-80 */
                                                             : 0x1.14f2b0fb9307fp-1010; /* e^-700 */
        *first = (Real)(sum * (double)power);
        *second = (Real)(sum * lowered * (double)power);
    }
    template <typename Real>
    __device__ static Real element(Real dy, Real y, Real first, Real second, Real power) {
        const bool far = y < -LOWER<Real>;
        return fma(-exp(far ? y + LOWER<Real> : y), far ? second : first, dy * power);
    }
    /* The same if y is at least -LOWER and power is 1. */
    template <typename Real>
    __device__ static Real plain(Real dy, Real y, Real first) {
        return fma(-exp(y), first, dy);
    }
};

#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(
    log_softmax_backward, GRADIENT,
    "The gradient of a loss with respect to x: scale * (grad - exp(output) * sum(grad)) along\n"
    "axis.\n"
    "\n"
    "Here output is log_softmax(scale * x), and grad is the gradient of the loss with respect\n"
    "to output.",
    "    A row whose output is NaN is NaN. log_softmax gives such an output for a row with\n"
    "    nothing but -inf. An excluded element's result is 0. The error of a float32 or\n"
    "    float64 result is at most 4 eps times the larger of |grad| and |exp(output) * sum|.\n",
    ">>> y = ons.log_softmax([1.0, 2.0, 3.0])\n"
    ">>> ons.log_softmax_backward([1.0, 0.0, 0.0], y).round(4)\n"
    "array([ 0.91  , -0.2447, -0.6652])\n")
#endif
