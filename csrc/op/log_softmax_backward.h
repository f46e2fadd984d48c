/* log_softmax_backward.h - the backward step of log_softmax: of y = log_softmax(x) and the loss's
 * gradient dy of it, the loss's gradient of x: dy - e^y * sum(dy). */

#ifdef ONS_OPERATION
ONS_OPERATION(log_softmax_backward, GRADIENT, NOTHING, 0.0, "dy - exp(y) * sum(dy)")
#endif

#ifdef ONS_OPERATION_ON_CPU

enum { FN(log_softmax_backward_adds_products) = false };

INLINE VEC FN(log_softmax_backward_element)(VEC dy, VEC y, VEC sum) {
    return V(fnma)(FN(exponential_of_log)(y), sum, dy);
}

#endif

#ifdef ONS_OPERATION_ON_CUDA

struct log_softmax_backward : operation_log_softmax_backward {
    static constexpr bool ADDS_PRODUCTS = false;

    template <typename Real>
    __device__ static Real element(Real dy, Real y, Real sum) {
        return fma(-exp(y), sum, dy);
    }
};

#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(
    log_softmax_backward, GRADIENT,
    "The gradient of a loss with respect to x, from output = log_softmax(scale * x) and the loss's "
    "gradient\n"
    "grad with respect to output: scale * (grad - exp(output) * sum(grad)) along axis.",
    "    A row whose output is NaN, as log_softmax gives for one with nothing but -inf, is NaN; an "
    "excluded\n"
    "    element's result is 0. float32 and float64 lie within 4 eps of the larger of |grad| and\n"
    "    |exp(output) * sum|.\n",
    ">>> y = ons.log_softmax([1.0, 2.0, 3.0])\n"
    ">>> ons.log_softmax_backward([1.0, 0.0, 0.0], y).round(4)\n"
    "array([ 0.91  , -0.2447, -0.6652])\n")
#endif
