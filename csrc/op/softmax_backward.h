/* softmax_backward.h - the backward step of softmax. Let y = softmax(x), and let dy be the gradient
 * of the loss with respect to y. The gradient with respect to x is y * (dy - sum(dy * y)). */

#ifdef ONS_OPERATION
ONS_OPERATION(softmax_backward, GRADIENT, NOTHING, 0.0, "y * (dy - sum(dy * y))")
#endif

#ifdef ONS_OPERATION_ON_CPU

enum { softmax_backward_adds_products = true };

/* y * power * (dy - first) - y * second. `second` is the sum if it is below the normal numbers
 * before the multiplication. Otherwise `first` is the sum. */
ONS_ALWAYS void softmax_backward_row(double sum, double power, T *first, T *second) {
    bool tiny = power > 1 && fabs(sum) < (BITS == 32 ? 0x1p-126 : 0x1p-1022);
    *first = tiny ? 0 : (T)sum;
    *second = tiny ? (T)(sum * power) : 0;
}

ONS_ALWAYS VEC softmax_backward_element(VEC dy, VEC y, VEC first, VEC second, VEC power,
                                        bool plain) {
    if (plain) return y * (dy - first);
    /* if second is 0, `less` must be 0, neither -0 nor NaN, so that nothing is subtracted */
    VEC finite = V(between)(y, V(set)(0), V(set)((T)INFINITY));
    VEC less = finite * second + V(set)(0);
    return (y * power) * (dy - first) - less;
}

#endif

#ifdef ONS_OPERATION_ON_CUDA

struct softmax_backward : operation_softmax_backward {
    static constexpr bool ADDS_PRODUCTS = true, HAS_PLAIN = true, ALWAYS_PLAIN = true;

    /* As on the CPU. */
    template <typename Real>
    __device__ static void row(double sum, Real power, Real *first, Real *second) {
        const bool tiny = power > 1 && fabs(sum) < arithmetic<Real>::LEAST_NORMAL;
        *first = tiny ? 0 : (Real)sum;
        *second = tiny ? (Real)(sum * (double)power) : 0;
    }
    template <typename Real>
    __device__ static Real element(Real dy, Real y, Real first, Real second, Real power) {
        const Real dx = (y * power) * (dy - first);
        return second != 0 ? fma(-y, second, dx) : dx;
    }
    template <typename Real>
    __device__ static Real plain(Real dy, Real y, Real first) {
        return y * (dy - first);
    }
};

#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(
    softmax_backward, GRADIENT,
    "The gradient of a loss with respect to x: scale * output * (grad - sum(grad * output))\n"
    "along axis.\n"
    "\n"
    "Here output is softmax(scale * x), and grad is the gradient of the loss with respect to\n"
    "output.",
    "    A row whose output has a NaN is NaN. softmax gives such an output for a row with\n"
    "    nothing but -inf. An excluded element's result is 0. The error of a float64 result,\n"
    "    and of a float32 result on a GPU, is at most 4 eps times the larger of\n"
    "    |output * grad| and |output * sum|. The error of a float32 result on the CPU is at\n"
    "    most 4 eps times |output| times the larger of |grad| and sum(|grad * output|). With\n"
    "    a scale, this error is at most 5 eps times the same product.\n",
    ">>> y = ons.softmax([1.0, 2.0, 3.0])\n"
    ">>> ons.softmax_backward([1.0, 0.0, 0.0], y).round(4)\n"
    "array([ 0.0819, -0.022 , -0.0599])\n")
#endif
