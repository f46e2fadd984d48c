/* softmax_topk.h - of each row its k largest elements: their softmax, or its logarithm, and their
 * places. (m, d) and the k largest are found in one read (Milakov and Gimelshein, arXiv 1805.02867,
 * algorithm 4). The values are those of softmax and of log_softmax. */

#ifdef ONS_OPERATION
ONS_OPERATION(softmax_topk, TOPK, ELEMENTS, 0.0, "the k largest of softmax(x), and where they are")
#endif

#ifdef ONS_OPERATION_IN_PYTHON
ONS_OPERATION_IN_PYTHON(
    softmax_topk, TOPK,
    "The k largest values of softmax(scale * array) along an axis, and their places, in one read.",
    "Parameters\n"
    "----------\n"
    "array : array_like, any shape\n"
    "    Logits, dimensionless, as softmax takes them.\n"
    "k : int\n"
    "    How many of each row, from 1 to its length.\n"
    "axis : int\n"
    "    What is taken as one row: one axis, the last by default. A tuple of one int will do.\n"
    "log : bool\n"
    "    Whether the values are those of log_softmax.\n"
    "sorted : bool\n"
    "    Whether the values are in descending order. Without it the order is any; the k are the "
    "same.\n"
    "return_normalizer : bool\n"
    "    Whether the result has the normalizer of each row too.\n"
    "method : str\n"
    "    online or split, and on a GPU fused_warp, fused_block or cluster too; auto picks for the "
    "shape: see\n"
    "    plan().\n"
    "    A GPU gives a k above 1024 by online alone, which reads the array several times then.\n"
    "dtype : dtype, optional\n"
    "    The type of the values; by default that of the array.\n"
    "where : array of bool that broadcasts to the array, optional\n"
    "    False excludes an element: it comes after all others but -inf, its value is 0, or -inf "
    "with log.\n"
    "scale : float, or array that broadcasts with length 1 along axis\n"
    "    Multiplies the logits first. A negative one turns the order round.\n"
    "stream, num_threads\n"
    "    As softmax takes them.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "TopK\n"
    "    The named tuple (values, indices): arrays of the array's kind and shape, with k elements "
    "along axis.\n"
    "    Of equal elements that with the lower index is first, -0.0 equals 0.0, and NaN is the "
    "largest. Indices\n"
    "    count from 0 and are int64; int32 in JAX without jax_enable_x64. A row with a NaN or "
    "+inf, or with\n"
    "    nothing but -inf, has values of NaN.\n"
    "TopKWithNormalizer\n"
    "    The same with a third field, the Normalizer of the rows, where return_normalizer is "
    "true.\n"
    "\n"
    "Raises\n"
    "------\n"
    "ValueError\n"
    "    k is below 1 or above the row's length; more axes than one; what softmax refuses.\n"
    "TypeError\n"
    "    k is no int; axis is None; what softmax refuses.\n"
    "AxisError, BufferError, RuntimeError, MemoryError\n"
    "    As softmax.\n"
    "\n"
    "References\n"
    "----------\n"
    "M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 "
    "(2018):\n"
    "algorithm 4 (page 5).\n"
    "\n"
    "Examples\n"
    "--------\n",
    ">>> import onsoftmax as ons\n"
    ">>> values, indices = ons.softmax_topk([1.0, 2.0, 3.0, 6.0, 2.0, 1.0], 2)\n"
    ">>> values.round(4), indices\n"
    "(array([0.9092, 0.0453]), array([3, 2]))\n")
#endif
