"""Mistakes and types that type checkers must find. mypy and pyright read this file. Nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import onsoftmax as ons


class Tensor:
    """Stands for an array of another library."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        raise NotImplementedError


class Series:
    """Stands for an object that NumPy can convert, like a pandas Series."""

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray[Any]:
        raise NotImplementedError


class TorchDType:
    """Stands for a torch.dtype."""

    is_floating_point: bool = True


half: NDArray[np.float16] = np.zeros(3, np.float16)
single: NDArray[np.float32] = np.zeros((3, 4), np.float32)
double: NDArray[np.float64] = np.zeros((3, 4))
counts: NDArray[np.int64] = np.zeros(3, np.int64)
mask: NDArray[np.bool_] = np.zeros(3, np.bool_)
tensor = Tensor()
series = Series()
bfloat16: type[np.generic] = np.float32  # the type that ml_dtypes states

# a float type gives itself; integers, bools and Python numbers give float64
assert_type(ons.softmax(half), NDArray[np.float16])
assert_type(ons.softmax(single, axis=0), NDArray[np.float32])
assert_type(ons.log_softmax(double, (0, 1)), NDArray[np.float64])
assert_type(ons.softmax(counts), NDArray[np.float64])
assert_type(ons.softmax(mask, None), NDArray[np.float64])
assert_type(ons.softmax(1.0), NDArray[np.floating[Any]] | Any)
assert_type(ons.softmax([1.0, 2.0]), NDArray[np.float64])
assert_type(ons.softmax([[1, 2], [3, 4]]), NDArray[np.float64])

# dtype= is the result's type; out= is the result
assert_type(ons.softmax(single, dtype=np.float64), NDArray[np.float64])
assert_type(ons.softmax(counts, dtype=np.dtype(np.float32)), NDArray[np.float32])
assert_type(ons.softmax(single, dtype="float16"), NDArray[np.floating[Any]])
assert_type(ons.softmax(single, dtype=float), NDArray[np.float64])
assert_type(ons.softmax(single, out=double), NDArray[np.float64])
assert_type(ons.softmax([1, 2], out=single), NDArray[np.float32])
assert_type(ons.softmax([single, single], dtype=np.float16), NDArray[np.float16])
assert_type(ons.softmax(tensor, out=tensor), Tensor)
ons.softmax(tensor, dtype=TorchDType())
ons.softmax(single, dtype=bfloat16)

# other libraries' arrays come back as their own kind
assert_type(ons.softmax(tensor, -1, where=tensor, scale=0.5), Tensor)
assert_type(ons.logsumexp(tensor, keepdims=True), Tensor)
assert_type(ons.softmax_backward(tensor, tensor), Tensor)

# an object that NumPy converts gives a NumPy array
assert_type(ons.softmax([single, single]), NDArray[np.floating[Any]])
assert_type(ons.softmax(series), NDArray[np.floating[Any]] | Any)

assert_type(ons.logsumexp(single, keepdims=True), NDArray[np.float32])
assert_type(ons.logsumexp(single, None), np.float32)
assert_type(ons.logsumexp(single, (0, 1), keepdims=False), NDArray[np.float32] | Any)
assert_type(ons.logsumexp([1.0, 2.0]), np.float64)
assert_type(ons.logsumexp(single), NDArray[np.float32] | Any)
assert_type(ons.logsumexp(counts), NDArray[np.floating[Any]] | Any)
assert_type(ons.softmax_backward(single, single), NDArray[np.float32])
assert_type(ons.log_softmax_backward(single, single, dtype=np.float64), NDArray[np.float64])

assert_type(ons.cross_entropy(tensor, tensor, reduction="sum"), Tensor | Any)
assert_type(ons.cross_entropy(single, counts), NDArray[np.float32] | Any)
loss, gradient = ons.cross_entropy_with_grad(tensor, tensor, weight=tensor, grad_out=tensor)
assert_type(gradient, Tensor)
loss, gradient, lse = ons.cross_entropy_with_grad([[1.0, 2.0]], [0], return_lse=True)
assert_type(ons.kl_divergence(tensor, tensor, reduction="mean"), Tensor | Any)
assert_type(ons.js_divergence(single, single, beta=0.1, where=mask), NDArray[np.float32] | Any)
value, gradient = ons.kl_divergence_with_grad(tensor, tensor, wrt="q", grad_out=tensor)
assert_type(gradient, Tensor)
value, of_list = ons.js_divergence_with_grad([[1.0, 2.0]], single)
assert_type(ons.route(tensor, 2, score="sigmoid", bias=tensor, groups=2, top_groups=1), ons.Route)
assert_type(ons.sample(tensor, temperature=tensor, top_k=3, seed=counts, filter_apply_order="joint"), Any)
assert_type(ons.filtered_softmax(tensor, temperature=0.7, top_k=counts, min_p=0.1, where=mask), Any)
tokens, of_tokens = ons.sample(single, seed=1, return_logprob="filtered", where=mask)
weights, experts = ons.route(single, k=2, renormalize=False, where=mask, index_dtype=np.int32)

assert_type(ons.softmax_topk(single, 2).values, NDArray[np.float32])
assert_type(ons.softmax_topk(single, 2).indices, NDArray[np.int64])
assert_type(ons.softmax_topk(single, 2, dtype=np.float64).values, NDArray[np.float64])
assert_type(ons.softmax_topk(tensor, 2).indices, Tensor)
found: ons.TopK = ons.softmax_topk([1.0, 2.0], 2)
assert_type(ons.softmax_topk(single, k=2, return_normalizer=True).values, NDArray[np.float32])
assert_type(ons.softmax_topk(tensor, k=2, return_normalizer=True).normalizer, ons.Normalizer)
rows = ons.normalizer(single)
assert_type(rows.merge(ons.normalizer(double)).update([1.0]), ons.Normalizer[NDArray[np.float64]])
assert_type(rows.packed, NDArray[np.float64])
assert_type(rows.m, NDArray[np.float64] | Any)
assert_type(rows.d, NDArray[np.float64] | Any)
assert_type(rows.logsumexp(), NDArray[np.floating[Any]] | Any)
assert_type(ons.Normalizer.merge_all(rows.packed), ons.Normalizer[NDArray[np.float64]])
assert_type(ons.normalizer(tensor).packed, Tensor)
assert_type(ons.normalizer(tensor).logsumexp(), Tensor)
kept: ons.Normalizer = ons.Normalizer.empty((3,), like=single)
assert_type(rows.softmax(single), NDArray[np.float32])
assert_type(rows.softmax(single, dtype=np.float64), NDArray[np.float64])
assert_type(rows.log_softmax([1.0]), NDArray[np.floating[Any]])
assert_type(ons.normalizer(tensor).softmax(tensor), Tensor)
assert_type(ons.normalizer(tensor).softmax(tensor, out=tensor), Tensor)

assert_type(ons.plan(single), ons.Plan)
assert_type(ons.plan((4096, 32000), device="cuda", operation="softmax_topk", k=5), ons.Plan)
assert_type(ons.explain([1, 2, 3], method="split", parts=3), ons.Trace)
assert_type(ons.explain([1, 2], operation="softmax_backward", grad=[0, 1]).grad, tuple[float, ...])
assert_type(ons.explain([1, 2], operation="cross_entropy_with_grad", target=1).loss, float | None)
assert_type(ons.explain([1, 2], operation="sample", seed=1, top_p=0.9).indices, tuple[int, ...])
for method in ons.methods("cpu", operation="logsumexp"):
    ons.logsumexp(single, method=method.name)

# each of these is a mistake that a checker must find
ons.softmax(single, method="flash")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
ons.softmax("abc")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
ons.softmax(["abc"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType, reportCallIssue]
ons.softmax(single, dtype=np.int32)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue]
ons.plan((3, 4), device=0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ons.explain("abc")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ons.plan("3x4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
print(ons.nonsense)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
ons.softmax(single, dim=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
ons.logsumexp(single, out=single)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
ons.softmax_topk(single)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
ons.plan((3, 4), operation="topk")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ons.explain([1, 2], operation="normalizer")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ons.cross_entropy(single, counts, reduction="avg")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
ons.kl_divergence(single, single, reduction="avg")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
ons.js_divergence_with_grad(single, single, wrt="r")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
ons.filtered_softmax(single, seed=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ons.sample(single)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ons.sample(single, seed=1, return_logprob="all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ons.route(single, 2, score="relu")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ons.cross_entropy("abc", counts)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
ons.explain([1, 2], method="auto")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
