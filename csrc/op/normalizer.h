/* normalizer.h - the pair (m, d) of each row, in the form of state.h. ons_pair_merge merges the
 * pairs of a row's parts, from any machine. With the pair of the whole row (ONS_STATISTIC), other
 * operations finish its parts. */

#ifdef ONS_OPERATION
ONS_OPERATION(normalizer, PAIR, NOTHING, 0.0, "the pair (m, d)")
#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(
    normalizer, PAIR,
    "The pair (m, d) of each row. m is the largest element. d is the sum of the exponentials,\n"
    "relative to a power of two that follows from m, or relative to e^m if abs(m) is very\n"
    "large (csrc/api/state.h). The array is read once.",
    "    A row with a NaN has (nan, nan). A row with +inf and no NaN has (inf, nan). A row\n"
    "    without elements, or with nothing but -inf, has (-inf, 0).\n",
    ">>> ons._core.normalizer([1.0, 2.0, 3.0, 6.0, 2.0, 1.0]).round(4)\n"
    "array([6.    , 0.8667])\n")
#endif
