/* softmax_backward.h - the backward step of softmax: of y = softmax(x) and the loss's gradient dy
 * of it, the loss's gradient of x: y * (dy - sum(dy * y)). */

#ifdef ONS_OPERATION
ONS_OPERATION(softmax_backward, GRADIENT, NOTHING, 0.0, "y * (dy - sum(dy * y))")
#endif

#ifdef ONS_OPERATION_ON_CPU

enum { FN(softmax_backward_adds_products) = true };

INLINE VEC FN(softmax_backward_element)(VEC dy, VEC y, VEC sum) {
    return V(mul)(y, V(sub)(dy, sum));
}

#endif

#ifdef ONS_OPERATION_ON_CUDA

struct softmax_backward : operation_softmax_backward {
    static constexpr bool ADDS_PRODUCTS = true;

    template <typename Real>
    __device__ static Real element(Real dy, Real y, Real sum) {
        return y * (dy - sum);
    }
};

#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(
    softmax_backward, GRADIENT,
    "The gradient of a loss with respect to x, from output = softmax(scale * x) and the loss's "
    "gradient grad\n"
    "with respect to output: scale * output * (grad - sum(grad * output)) along axis.",
    "    A row whose output has a NaN, as softmax gives for one with nothing but -inf, is NaN; an "
    "excluded\n"
    "    element's result is 0. float64, and float32 on a GPU, lie within 4 eps of the larger of\n"
    "    |output * grad| and |output * sum|; float32 on the CPU within 4 eps, with a scale 5, of\n"
    "    |output| times the larger of |grad| and sum(|grad * output|).\n",
    ">>> y = ons.softmax([1.0, 2.0, 3.0])\n"
    ">>> ons.softmax_backward([1.0, 0.0, 0.0], y).round(4)\n"
    "array([ 0.0819, -0.022 , -0.0599])\n")
#endif
