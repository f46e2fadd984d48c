/* logsumexp.h - log(sum(e^x)) = m + log(sum(e^(x - m))), one value a row. */

#ifdef ONS_OPERATION
ONS_OPERATION(logsumexp, VALUE, NOTHING, 0.0, "log(sum(exp(x)))")
#endif

#ifdef ONS_OPERATION_ON_CPU

/* An infinite maximum is the result: +inf, or -inf if the row has nothing else. */
ONS_ALWAYS double logsumexp_value(const ons_state *state, double anchor) {
    if (!isfinite(state->m)) return state->m;
    return (state->m + log_of_sum(state)) + anchor;
}

ONS_ALWAYS void logsumexp_values(const sums_of_rows *rows, T *values) {
    double logs[WIDTH];
    T m[WIDTH], anchor[WIDTH];
    logs_of_sums(rows, logs);
    V(store)(m, rows->m);
    V(store)(anchor, rows->anchor);
    for (int64_t i = 0; i < WIDTH; i++) {
        double finite = ((double)m[i] + logs[i]) + (double)anchor[i];
        values[i] = isinf(m[i]) ? m[i] : (T)finite;
    }
}

ONS_ALWAYS double logsumexp_plain_row(double d) { return log(d); }

#endif

#ifdef ONS_OPERATION_ON_CUDA

struct logsumexp : operation_logsumexp {
    /* An infinite maximum is the result, as on the CPU. */
    template <typename Real>
    __device__ static Real value(const state<Real> &pair) {
        return isinf(pair.m) ? pair.m : pair.m + log_of_sum(pair);
    }

    template <typename Real>
    __device__ static Real plain_row(Real d) {
        return log(d);
    }
};

#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(
    logsumexp, VALUE,
    "log(sum(exp(scale * array))) along axis, for logits of any size. The array is read once.",
    "    If no dimension is left, the result is a number. A row with a NaN gives NaN. A row\n"
    "    with +inf and no NaN gives +inf. A row without elements, or with nothing but -inf,\n"
    "    gives -inf. In every test the error is at most 2.5 eps * max(1, abs(result)). 16-bit\n"
    "    results are float32 results, rounded once. safe keeps all digits near 0.\n",
    ">>> float(ons.logsumexp([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).round(4))\n"
    "6.0952\n")
#endif
