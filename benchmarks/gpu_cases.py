"""The cases of each part of bench_cuda.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from onsoftmax.bench.case import Case

TOTAL, QUICK_TOTAL = 2**28, 2**26
POWERS = [128, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288]
HUGE = [2**20, 2**22, 2**24, 2**28]
ODD = [1000, 4097, 32000, 50257, 100277, 128256, 151936, 201088, 262145]  # many are sizes of vocabularies
LENGTHS = sorted(POWERS + HUGE + ODD)
QUICK_LENGTHS = [256, 1000, 1024, 4096, 32768, 50257, 131072, 2**20]
THREE_TYPES = ["float32", "bfloat16", "float16"]
CHART_ROWS = 2048
CHART_LENGTHS = [2**i for i in range(10, 19)]
SMALL = [(1, 1024), (64, 1024), (8, 16384), (1, 32000), (1, 128256), (8, 128256), (64, 128256), (256, 128256)]
SMALL += [(1, 2**20), (1, 2**24), (4096, 1024), (2048, 4096)]
ACCURACY = [(1024, 3), (4096, 10), (65536, 10), (2**20, 3)]  # N, and the scale of the logits
OTHER_AXES = [((4096, 4096), 0), ((64, 1000, 512), 1)]
# (images, classes, pixels): a whole number of packs of pixels, and one more
CLASSES = [((16, 21, 263168), 1), ((16, 21, 263169), 1), ((400, 150, 4096), 1), ((2000, 100, 1023), 1)]
CLASSES += [((64, 1000, 4096), 1)]  # classes that one block does not hold
OTHER_ROWS, QUICK_OTHER_ROWS = (2**15, 4096), (2**12, 4096)  # (M, N); measured as M / 16 rows of 16 N too
OPERATIONS = ["softmax", "log_softmax", "logsumexp"]
GRADIENTS = ["softmax_backward", "log_softmax_backward"]
OPERATION_LENGTHS = [128, 1000, 1024, 4096, 4097, 16384, 32000, 50257, 65536, 131072, 262144]
NORMALIZER_LENGTHS = [256, 1024, 4096, 32000, 50257, 131072, 2**20]
GRADIENT_LENGTHS = [2, 3, 5, 8, 33, 64, 65, 256, 257, 1000, 1024]
GRADIENT_LENGTHS += [4096, 4097, 16384, 32768, 50257, 65536, 128256, 262144]
# (rows, N, k) of routers of experts and of vocabularies
TOPK = [(65536, 256, 8), (16384, 128, 8), (32768, 64, 6), (65536, 256, 64), (4096, 4096, 16), (8, 16384, 10)]
TOPK += [(65536, 128, 16), (65536, 256, 16), (65536, 512, 10), (32768, 2048, 8), (8192, 8192, 64)]
TOPK += [(4096, 32000, 5), (1, 128256, 5), (1, 128256, 64), (64, 128256, 64), (1024, 128256, 5)]
TOPK += [(1024, 128256, 64), (1, 151936, 64), (4096, 50257, 50), (1, 2**24, 64), (1024, 128256, 1024)]
MASKS = ["where", "where for all rows", "scale per row", "scale 0.7"]
PLACES = ["input off by one", "both off by one", "row stride N + 1"]
EXTRAS = ["", *MASKS, *PLACES]
MASKED_LENGTHS = [1000, 50257]


def cases(part: str, options: Any) -> Iterator[Case]:
    """The cases of a part. `options` are bench_cuda.py's."""
    if part == "bands":
        for dtype in options.dtypes or (options.quick and ["float32", "bfloat16"]) or THREE_TYPES:
            for N in options.lengths or (QUICK_LENGTHS if options.quick else LENGTHS):
                yield Case(part, (max(1, options.total // N), N), dtype)
    for dtype in options.dtypes or (THREE_TYPES if part == "accuracy" else ["float32", "bfloat16"]):
        if part == "operations":
            for N, operation in itertools.product(
                OPERATION_LENGTHS[:: 3 if options.quick else 1], OPERATIONS
            ):
                yield Case(part, (max(1, options.total // N), N), dtype, operation=operation)
        elif part == "gradients":
            for N, operation in itertools.product(GRADIENT_LENGTHS[:: 3 if options.quick else 1], GRADIENTS):
                yield Case(part, (max(1, options.total // N), N), dtype, operation=operation)
        elif part == "normalizer":  # beside logsumexp, which reads as many bytes
            for N, operation in itertools.product(
                NORMALIZER_LENGTHS[:: 3 if options.quick else 1], ["logsumexp", "normalizer"]
            ):
                yield Case(part, (max(1, options.total // N), N), dtype, operation=operation)
        elif part == "topk":
            for rows, N, k in TOPK[:: 3 if options.quick else 1]:
                yield Case(part, (rows, N), dtype, operation="softmax_topk", k=k)
        elif part == "chart":
            for N in CHART_LENGTHS[:: 3 if options.quick else 1]:
                yield Case(part, (CHART_ROWS, N), dtype)
        elif part == "small":
            for shape in SMALL:
                yield Case(part, shape, dtype)
        elif part == "accuracy":
            for N, spread in ACCURACY:
                yield Case(part, (max(1, 2**20 // N), N), dtype, spread=spread)
        elif part == "other":
            yield from other_cases(dtype, options.quick)


def other_cases(dtype: str, quick: bool) -> Iterator[Case]:
    for shape, axis in OTHER_AXES:
        yield Case("other", shape, dtype, axis=axis)
    for (shape, axis), operation in itertools.product(
        CLASSES[: 1 if quick else None], ["softmax", "logsumexp", *GRADIENTS]
    ):
        yield Case("other", shape, dtype, axis=axis, operation=operation)
    rows, N = QUICK_OTHER_ROWS if quick else OTHER_ROWS
    for extra in EXTRAS[1:]:
        yield Case("other", (rows, N), dtype, extra=extra)
    for extra in PLACES:
        yield Case("other", (rows // 16, 16 * N), dtype, extra=extra)
    for length, extra in itertools.product([] if quick else MASKED_LENGTHS, MASKS):
        yield Case("other", (rows * N // length, length), dtype, extra=extra)
    if dtype in ("bfloat16", "float16"):
        yield Case("other", (rows, N), dtype, out_dtype="float32")
