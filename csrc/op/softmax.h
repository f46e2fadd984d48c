/* softmax.h - y = e^x / sum(e^x). */

#ifdef ONS_OPERATION
ONS_OPERATION(softmax, ROW, EXPONENTIALS, 0.0, "exp(x) / sum(exp(x))")
#endif

#ifdef ONS_OPERATION_ON_CPU

/* first + second = 1 / d. There are two parts so that e / d is rounded once, and an element alone
 * in its row gives 1. */
ONS_ALWAYS void softmax_row(const ons_state *state, double anchor, T *first, T *second) {
    (void)anchor;
    T nearest = (T)(LOWERED / (state->d + state->d_low));
    double rest = fma(-(double)nearest, state->d, LOWERED) - (double)nearest * state->d_low;
    *first = isfinite(state->m) ? nearest : (T)NAN;
    *second = (T)(rest * (double)nearest * (1.0 / LOWERED));
}

ONS_ALWAYS void softmax_rows(const sums_of_rows *rows, T *first, T *second) {
    const wide *low = rows->d_low;
    wide inverse, rest, d = rows->d;
    f64_vec one = f64_set(1);
    EACH_PART {
        f64_vec all = d.part[k];
        if (low) all += low->part[k];
        inverse.part[k] = one / all;
    }
    VEC nearest = V(narrow)(inverse.part), none = rows->m - rows->m; /* NaN, or 0 */
    wide by = widen(nearest);
    EACH_PART {
        rest.part[k] = f64_rest(by.part[k], d.part[k], one);
        if (low) rest.part[k] -= by.part[k] * low->part[k];
        rest.part[k] *= by.part[k];
    }
    V(store)(first, nearest + none);
    V(store)(second, V(narrow)(rest.part));
}

ONS_ALWAYS VEC softmax_element(VEC e, VEC first, VEC second) { return V(times)(e, first, second); }

ONS_ALWAYS double softmax_plain_row(double d) { return d; }
ONS_ALWAYS VEC softmax_plain_element(VEC e, VEC d) { return e / d; }

#endif

#ifdef ONS_OPERATION_ON_CUDA

struct softmax : operation_softmax {
    /* first + second = 1 / d, as on the CPU. */
    template <typename Real>
    __device__ static void row(const state<Real> &pair, Real *first, Real *second) {
        const Real nearest = arithmetic<Real>::reciprocal(pair.d);
        *first = isfinite(pair.m) ? nearest : arithmetic<Real>::nan();
        *second = fma(-nearest, pair.d, (Real)1) * nearest;
    }
    template <typename Real>
    __device__ static Real element(Real e, Real first, Real second) {
        return fma(e, first, e * second);
    }

    template <typename Real>
    __device__ static Real plain_row(Real d) {
        return d;
    }
    template <typename Real>
    __device__ static Real plain_element(Real e, Real d) {
        return e / d;
    }
};

#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(
    softmax, ROW,
    "exp(scale * array) / sum(exp(scale * array)) along axis, for logits of any size.",
    "    The elements of a row sum to 1. A row with a NaN or +inf, or with nothing but -inf,\n"
    "    is NaN. An excluded element's result is 0. On the CPU a float32 or float64 result\n"
    "    lies within 4 eps of the exact value. A float16 or bfloat16 result is the float32\n"
    "    result, rounded once, to nearest even. If the input is float64, it is the float64\n"
    "    result, rounded once.\n",
    ">>> ons.softmax([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).round(4)\n"
    "array([0.0061, 0.0167, 0.0453, 0.9092, 0.0167, 0.0061])\n")
#endif
