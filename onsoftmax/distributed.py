"""softmax, its logarithm, and losses of rows that are cut over the ranks of a torch.distributed group.

Each rank has a part of every row and gets the same part of the result. A rank reads its part once and
computes the states of the rows. All ranks exchange the states in one all_gather. Then each rank finishes its
part. No rank needs the elements of another rank. Gradients work in the same way. Losses are the same on all
ranks.

>>> from onsoftmax.distributed import log_softmax  # doctest: +SKIP
>>> y = log_softmax(my_part_of_the_logits, group)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise ImportError("onsoftmax.distributed needs torch: pip install torch") from error

from . import _core
from ._torch import compile as _torch_compile
from ._torch import losses_of_parts as _losses
from ._torch.gradients import for_gradient, for_output, in_step, terms, wide
from ._torch.ranks import OnMesh, agree, checked_axis, checked_group, gather

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed import ProcessGroup

    from ._types import NormalizerMethod, Reduction

    _T = TypeVar("_T")

__all__ = ["cross_entropy", "log_softmax", "logprob", "logsumexp", "softmax"]


def softmax(
    local: Tensor, group: ProcessGroup | None = None, axis: int = -1, *, method: NormalizerMethod = "auto"
) -> Tensor:
    """Softmax along an axis that is cut over the ranks of a group.

    The result's bits do not depend on how many ranks share a row, where it is cut, which rank has which part,
    or the order of the ranks. There are exceptions: float64 rows with abs(m) above 2^40, and rows of more
    than 2^29 elements, may differ in the last bits.

    For each row a rank sends a state: the row's maximum and the sum of its exponentials in four digits, which
    are added up without rounding. A state has 5 float64, 40 bytes. A pair of float64, 16 bytes, would not be
    enough. The sum of each part would be rounded. A cut would then change the last bit of one result in 2^27
    on a CPU, and of most results on a GPU.

    Parameters
    ----------
    local : torch.Tensor or DTensor
        This rank's part of the rows, on the CPU or a GPU. float16, bfloat16, float32 or float64. The parts
        may have different lengths along `axis`, also 0. Their type and the rest of their shape must be the
        same. A DTensor brings its groups with it. If it is sharded on `axis`, over one dimension of its mesh
        or several, its parts are the parts of the rows. If it is replicated or sharded on another axis, it
        needs no exchange. If it is partial, DTensor's own redistribute adds it up first.
    group : ProcessGroup, optional
        The ranks that share the rows. None means the default group. Must be None for a DTensor.
    axis : int
        The axis that is cut.
    method : str
        auto, invariant or exact, the same on all ranks. invariant changes only gradients on a GPU: their sums
        have one order for any axis and layout. exact gives the exact results of the whole rows, rounded once.
        They have the bits of ``onsoftmax.softmax(..., method="exact")``, for any number of ranks. It reads
        the part once more and computes in two doubles. Its states have 32 bytes. float64 has no such method.

    Returns
    -------
    Tensor of local's shape and type
        This rank's part of the softmax. A DTensor gives a DTensor with the same placements. Rows are NaN as
        in `onsoftmax.softmax`. A NaN on one rank makes the row NaN on all ranks. The result is differentiable
        any number of times in reverse mode. Each backward step exchanges 16 bytes a row and rank, so all
        ranks must take this step. The bits of a gradient may depend on the cuts, since its sums are rounded
        in double. For a first derivative of float64 rows, each sum is kept in two doubles.

    Raises
    ------
    ValueError
        The calls of the ranks do not fit each other (on every rank; see Notes), a group is given for a
        DTensor, or the process is not in the group.
    IndexError
        axis is out of bounds.
    TypeError
        local is not a tensor, or its type is none of the four.
    RuntimeError
        A rank does not make the call, or has ended. The error comes within the group's timeout. Its text
        is from this module or from the group's backend. With NCCL, torch's watchdog then ends the process,
        unless TORCH_NCCL_ASYNC_ERROR_HANDLING is 0 or 2.

    Notes
    -----
    The ranks compare their calls over the group's store. So parts that do not fit never meet in a collective,
    where backends hang or return wrong numbers. The ranks compare the shape and the type of the rows, the
    method, and the function with the options that change what it sends. softmax, log_softmax and logsumexp
    send the same numbers. So the ranks do not notice if one calls softmax and another calls logsumexp.

    If a call is like the group's last call, a rank compares nothing. The exchange is then one collective and
    nothing else. If a program alternates between functions that send different things, such as softmax and
    cross_entropy, it compares at every call. A group for each function avoids this.

    References
    ----------
    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018), section
    3.1: the merge. J. Demmel and H. D. Nguyen, Parallel reproducible summation, IEEE Transactions on
    Computers 64(7), 2015: the sum in digits.
    """
    return _run(_call, "softmax", local, group, axis, method)


def log_softmax(
    local: Tensor, group: ProcessGroup | None = None, axis: int = -1, *, method: NormalizerMethod = "auto"
) -> Tensor:
    """The logarithm of softmax along an axis that is cut over the ranks of a group.

    All else is as in `softmax`.
    """
    return _run(_call, "log_softmax", local, group, axis, method)


def logsumexp(
    local: Tensor, group: ProcessGroup | None = None, axis: int = -1, *, method: NormalizerMethod = "auto"
) -> Tensor:
    """log(sum(exp(x))) along an axis that is cut over the ranks of a group.

    The result has local's shape without `axis`, and is the same on all ranks. For a DTensor it is replicated
    over the dimensions of the mesh that cut the rows. Its gradient must be the same on all ranks too: the
    gradient of the whole loss. The backward step exchanges nothing. The second backward step exchanges sums.
    All else is as in `softmax`.
    """
    return _run(_call, "logsumexp", local, group, axis, method)


def cross_entropy(
    local: Tensor,
    target: Tensor,
    group: ProcessGroup | None = None,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    return_lse: bool = False,
) -> Any:
    """The cross-entropy of each row with its class, if the classes are cut over the ranks of a group.

    It is `onsoftmax.cross_entropy` of the whole rows, and the same on all ranks. The ranks make one
    all_gather of 48 bytes per row and rank, or 56 with label_smoothing. The backward step exchanges nothing.
    It reads this rank's part of the logits once and writes the gradient of this part once. The gradient that
    flows to the loss must be the same on all ranks: the gradient of the whole loss.

    Parameters
    ----------
    local : torch.Tensor or DTensor
        The logits of this rank's classes, as `softmax` takes them. The parts are in the order of the ranks.
    target : torch.Tensor or DTensor of integers, of local's shape without axis
        The class of each row among the classes of all ranks, the same on all ranks. For a DTensor of logits
        it has the targets of all rows. It is a plain tensor with the same values on all ranks, or a DTensor.
    group, axis
        As `softmax` takes them.
    weight : torch.Tensor of N numbers, optional
        The weights of all N classes, on all ranks.
    ignore_index, label_smoothing, z_loss, reduction, return_lse
        As `onsoftmax.cross_entropy` takes them, the same on all ranks. If a DTensor is sharded along another
        axis too, reduction must be "none".

    Returns
    -------
    Tensor, or (loss, lse) with return_lse
        As `onsoftmax.cross_entropy`. For a DTensor these are DTensors. They are replicated over the
        dimensions of the mesh that cut the rows. The loss has first derivatives only: create_graph=True
        raises RuntimeError. The bits of the loss do not depend on the cuts, except as in `softmax`. With
        label_smoothing its last bit may depend on the cuts too.

    Raises
    ------
    IndexError
        A target on the CPU is no class and not ignore_index. Every rank raises it, before the exchange. On a
        GPU, the loss and the gradient of such a row are NaN.
    ValueError, TypeError, RuntimeError
        As `softmax` and `onsoftmax.cross_entropy` raise them.

    Notes
    -----
    A rank must know the lengths of all parts to find its classes. So the ranks compare the lengths too (see
    `softmax`). If only some ranks change their lengths, the other ranks do not know of it. All ranks then
    raise RuntimeError within the group's timeout. To avoid this, first make a call with rows of
    another shape on all ranks. Then all ranks compare again. With DTensors you need not do so, since they
    know the length of the whole rows.
    """
    return _run(
        _losses.cross_entropy,
        local,
        target,
        group,
        axis,
        weight,
        return_lse,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        reduction=reduction,
    )


def logprob(
    local: Tensor,
    index: Tensor,
    group: ProcessGroup | None = None,
    axis: int = -1,
    *,
    entropy: bool = False,
    lse: bool = False,
    argmax: bool = False,
) -> Any:
    """The log-probabilities of some elements of each row, if the rows are cut over the ranks of a group.

    It is `onsoftmax.logprob` of the whole rows, and the same on all ranks. The ranks make one all_gather of
    40 bytes per row and rank, 8 more for each index of the row, and 16 more if entropy or argmax is wanted.
    The backward step exchanges nothing. It reads this rank's part of the logits once and writes the gradient
    of this part once. The gradients that flow to the results must be the same on all ranks.

    Parameters
    ----------
    local : torch.Tensor or DTensor
        This rank's part of the rows, as `softmax` takes it. The parts are in the order of the ranks.
    index : torch.Tensor or DTensor of integers
        The chosen element of each row, or several, as `onsoftmax.logprob` takes them. They count from the
        beginning of the whole row, and are the same on all ranks. For a DTensor of logits see the target of
        `cross_entropy`.
    group, axis
        As `softmax` takes them.
    entropy, lse, argmax : bool
        Whether to return the entropy, the logsumexp, and the index of the largest element of each whole row.
        For entropy or argmax, a rank reads its part once more.

    Returns
    -------
    Tensor, or LogProb
        As `onsoftmax.logprob`. For a DTensor these are DTensors, as in `cross_entropy`. The
        log-probabilities, the entropy and the lse have first derivatives only: create_graph=True raises
        RuntimeError. The last bits of the entropy may depend on the cuts.

    Raises
    ------
    IndexError
        An index on the CPU is out of range. Every rank raises it, before the exchange. On a GPU the
        log-probability and the gradient are NaN.
    ValueError, TypeError, RuntimeError
        As `cross_entropy`.
    """
    return _run(_losses.logprob, local, index, group, axis, entropy=entropy, lse=lse, argmax=argmax)


def _call(
    operation: str, local: Tensor, group: ProcessGroup | None, axis: int, method: NormalizerMethod
) -> Tensor:
    axis = checked_axis(local, axis)
    if method not in ("auto", "invariant", "exact"):
        raise ValueError(f"method is {method!r}: expected 'auto', 'invariant' or 'exact'")
    if not hasattr(local, "device_mesh"):
        return _of_parts(operation, local, _Cut(axis, (checked_group(group),), method))
    on = OnMesh(local, group, axis)
    y = _of_parts(operation, on.local(), _Cut(axis, on.groups, method))
    return on.of_rows(y) if operation == "logsumexp" else on.of_elements(y)


def _run(function: Callable[..., _T], *given: Any, **keywords: Any) -> _T:
    return function(*given, **keywords)


def _leave_out_of_graphs(tracer: Any) -> None:
    """torch.compile breaks its graph at the exchange between ranks, which it does not know."""
    global _run
    _run = tracer.disable(_run)


_torch_compile.prepare(_leave_out_of_graphs)


class _Cut(NamedTuple):
    """The axis that is cut, the groups of ranks that share a row, and the method."""

    axis: int
    groups: tuple[ProcessGroup, ...]
    method: NormalizerMethod

    def agree(self, local: Tensor) -> None:
        how = "" if self.method == "auto" else f" by method {self.method!r}"
        for group in self.groups:
            agree(local, self.axis, group, how)

    def merged(self, x: Tensor) -> Tensor:
        """The pairs of the whole rows, or their exact states. finish takes them."""
        exact = self.method == "exact"
        state = _core.normalizer(x, self.axis, method="exact") if exact else _core.sums(x, self.axis)
        for group in self.groups:
            state = _core.merge(gather(state, group), 0)
        return state if exact else _core.merge(state, gives="pair")


def _of_parts(operation: str, local: Tensor, cut: _Cut) -> Tensor:
    cut.agree(local)
    return (_Values if operation == "logsumexp" else _Rows).apply(local, cut, operation)


# ---------------------------------------------------------------- a function and its gradients


class _Rows(torch.autograd.Function):  # type: ignore[misc]
    """softmax and log_softmax. If the pairs of the whole rows are known, there is no exchange."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: _Cut, operation: str, pairs: Tensor | None = None) -> Tensor:
        x = x.detach()
        pairs = cut.merged(x) if pairs is None else pairs
        y = _core.finish(x, cut.axis, pairs=pairs, operation=operation)
        ctx.save_for_backward(y)
        ctx.call = cut, f"{operation}_backward"
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return _Gradient.apply(grad, *ctx.saved_tensors, *ctx.call), None, None, None


class _Gradient(torch.autograd.Function):  # type: ignore[misc]
    """softmax_backward and log_softmax_backward."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, y: Tensor, cut: _Cut, operation: str) -> Tensor:
        cut.agree(y)
        method: NormalizerMethod = "invariant" if cut.method == "invariant" else "auto"
        sums = _core.gradient_sums(grad, y, cut.axis, operation=operation, method=method)
        for group in cut.groups:
            sums = gather(sums, group).sum(0)
        ctx.save_for_backward(grad, y)
        ctx.call = cut, operation
        return _core.gradient_finish(grad, y, cut.axis, pairs=sums, operation=operation)

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> tuple[Any, ...]:
        """Every rank makes both gradients, even if it does not need both: the other ranks wait for its
        sums."""
        (grad, y), (cut, operation) = ctx.saved_tensors, ctx.call
        cut.agree(y)
        g, v, p = in_step(operation, grad, change, y)
        parts = [x.sum(cut.axis, keepdim=True, dtype=torch.float64) for x in terms(operation, g, v, p)]
        sums = _Spread.apply(_Sum.apply(torch.stack(parts), cut.groups), cut.groups)
        of_g, of_v = sums.to(p.dtype).unbind()
        for_grad = for_gradient(operation, v, p, of_v)
        for_y = for_output(operation, g, v, p, of_g, of_v)
        return for_grad.to(grad.dtype), for_y.to(y.dtype), None, None


class _Values(torch.autograd.Function):  # type: ignore[misc]
    """logsumexp."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: _Cut, operation: str) -> Tensor:
        pairs = cut.merged(x.detach())
        ctx.save_for_backward(x, pairs)
        ctx.cut = cut
        rows = x.detach().narrow(cut.axis, 0, 0)  # only the pairs matter
        return _core.finish(rows, cut.axis, pairs=pairs, operation=operation)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (x, pairs), cut = ctx.saved_tensors, ctx.cut
        y, grad = _Rows.apply(x, cut, "softmax", pairs), grad.unsqueeze(cut.axis)
        if not torch.is_grad_enabled():
            return y.mul_(grad), None, None
        dtype = wide(y.dtype)
        return (y.to(dtype) * _Spread.apply(grad.to(dtype), cut.groups)).to(y.dtype), None, None


# A value that all ranks share has the same gradient on all of them: the gradient of the whole loss. A value
# of one rank has a gradient of its own. So _Sum and _Spread, the steps between the two kinds of values, are
# each other's gradient.


class _Sum(torch.autograd.Function):  # type: ignore[misc]
    """From the ranks' own values to their sum, which is the same on all ranks."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, groups: tuple[ProcessGroup, ...]) -> Tensor:
        ctx.groups = groups
        for group in groups:
            values = gather(values.contiguous(), group).sum(0)
        return values if groups else values.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return _Spread.apply(grad, ctx.groups), None


class _Spread(torch.autograd.Function):  # type: ignore[misc]
    """From values that are the same on all ranks to each rank's own values."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, groups: tuple[ProcessGroup, ...]) -> Tensor:
        ctx.groups = groups
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return _Sum.apply(grad, ctx.groups), None
