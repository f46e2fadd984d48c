/* log_softmax.h - y = (x - m) - log(sum(e^(x - m))). No offset of the row enters the rounding. */

#ifdef ONS_OPERATION
ONS_OPERATION(log_softmax, ROW, ELEMENTS, -INFINITY, "x - log(sum(exp(x)))")
#endif

#ifdef ONS_OPERATION_ON_CPU

/* first = m, second = log(sum(e^(x - m))). */
ONS_ALWAYS void log_softmax_row(const ons_state *state, double anchor, T *first, T *second) {
    *first = isfinite(state->m) ? (T)(state->m + anchor) : (T)NAN;
    *second = (T)log_of_sum(state);
}

ONS_ALWAYS void log_softmax_rows(const sums_of_rows *rows, T *first, T *second) {
    V(store)(first, (rows->m + rows->anchor) + (rows->m - rows->m));
    double logs[WIDTH];
    logs_of_sums(rows, logs);
    for (int64_t i = 0; i < WIDTH; i++) second[i] = (T)logs[i];
}

ONS_ALWAYS VEC log_softmax_element(VEC x, VEC m, VEC log_d) { return (x - m) - log_d; }

ONS_ALWAYS double log_softmax_plain_row(double d) { return log(d); }
ONS_ALWAYS VEC log_softmax_plain_element(VEC x, VEC log_d) { return x - log_d; }

#endif

#ifdef ONS_OPERATION_ON_CUDA

struct log_softmax : operation_log_softmax {
    /* first = m, second = log(sum(e^(x - m))). */
    template <typename Real>
    __device__ static void row(const state<Real> &pair, Real *first, Real *second) {
        *first = isfinite(pair.m) ? pair.m : arithmetic<Real>::nan();
        *second = log_of_sum(pair);
    }
    template <typename Real>
    __device__ static Real element(Real x, Real m, Real log_d) {
        return (x - m) - log_d;
    }

    template <typename Real>
    __device__ static Real plain_row(Real d) {
        return log(d);
    }
    template <typename Real>
    __device__ static Real plain_element(Real x, Real log_d) {
        return x - log_d;
    }
};

#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(
    log_softmax, ROW,
    "scale * array - log(sum(exp(scale * array))) along axis: the logarithm of softmax. It\n"
    "does not underflow as softmax does.",
    "    A row with a NaN or +inf, or with nothing but -inf, is NaN. An excluded element's\n"
    "    result is -inf. In every test the error is at most 2.5 eps * max(1, abs(result)).\n"
    "    16-bit results are float32 results, rounded once. safe keeps all digits near 0.\n",
    ">>> ons.log_softmax([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).round(4)\n"
    "array([-5.0952, -4.0952, -3.0952, -0.0952, -4.0952, -5.0952])\n")
#endif
