"""methods(), plan() and show_config(): what there is and what would run. The facts come from the C core."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import numpy as np

from . import _core
from ._libraries.meta import as_planned, has_no_values
from ._plan import Cost, Plan, PlanStep, reasons
from ._plan.table import Table, as_html, plain
from ._plan.terms import facts_of, terms_of
from ._types import MethodName, OperationName, PlannedOperation

if TYPE_CHECKING:
    from ._types import ArrayLike, Device, DType

__version__ = "0.1.0"  # pyproject.toml has it too


@dataclass(frozen=True)
class Method:
    """One method: its name, what it costs and where it runs."""

    name: MethodName
    """The name that `method=` takes."""
    summary: str
    """What the method does, in a line."""
    devices: tuple[str, ...]
    """Where it runs: "cpu", "cuda"."""
    reads: int
    """How often the whole array is read from memory. For a gradient, both arrays."""
    writes: int
    """How often the whole array is written to memory."""
    keeps: str
    """The part of a row that stays in fast memory meanwhile: "nothing", "tile" or "row"."""

    @property
    def passes(self) -> int:
        """How often the method goes over a row in memory: its reads."""
        return self.reads

    @property
    def on_chip(self) -> str:
        """How much fast memory a row takes: "O(1)", "O(tile)", or "O(N)". With "O(N)" a row must fit."""
        return {"nothing": "O(1)", "tile": "O(tile)", "row": "O(N)"}[self.keeps]


class Methods(list[Method]):
    """A list of methods that prints as a table."""

    device: str | None = None
    """The device that the methods run on. None if they are the methods of all devices."""
    operation: str = "softmax"

    def _table(self) -> Table:
        head = ("method", "reads", "writes", "on chip a row", "runs on", "what it is")
        rows = [(m.name, str(m.reads), str(m.writes), m.on_chip, self._place(m), m.summary) for m in self]
        if self.device:
            head = (*head[:4], "float32 rows of", head[5])
        title = "Reads and writes are of the whole array, through memory"
        if self and not any(method.writes for method in self):
            title += f"; {self.operation} has no pass that divides"
        return Table(title, head, rows, frozenset({0, 4, 5}))

    def _place(self, method: Method) -> str:
        """Where the method runs. If the list is for one device, how long a row may be."""
        if self.device is None:
            return " ".join(method.devices)
        longest = 0
        while True:  # on a GPU `fused` is several methods, each with a limit of its own
            try:
                facts = _core.plan(
                    (1, longest + 1),
                    device=self.device,
                    method=method.name,
                    operation=self.operation,
                    k=1 if self.operation == "softmax_topk" else None,
                )
            except ValueError:
                return f"at most {longest}" if longest else "none here"
            if not facts.get("longest_row"):
                return "any N"
            longest = facts["longest_row"]

    def __str__(self) -> str:
        return plain(self._table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self._table())


def _device(device: Any) -> Any:
    """The core's name of the device. "gpu", "cuda:0" and torch's devices are "cuda" or "cpu"."""
    name = str(device) if type(device).__module__ == "torch" else device
    if isinstance(name, str) and (name == "gpu" or re.fullmatch(r"cuda:\d+", name)):
        return "cuda"
    return name


def _refuse_lengths(given: Any) -> None:
    """TypeError for a value that is no array, but that was meant as a shape."""
    if isinstance(given, str):
        written, _, axis = given.partition("@")
        lengths = re.findall("[0-9]+", written)
        example = f"({', '.join(lengths)}{',' * (len(lengths) == 1)})" if lengths else "(4096, 32000)"
        example += f", {axis}" if re.fullmatch("-?[0-9]+", axis) else ""
        raise TypeError(f"plan() got the string {given!r}. Pass a shape as a tuple: plan({example})")
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        raise TypeError(f"got {given!r}: expected an array, or a shape as a tuple: ({given},)")
    if isinstance(given, list) and given and all(type(length) is int for length in given):
        shape = tuple(given)
        raise TypeError(
            f"got the list {given!r}: expected an array, or a shape as a tuple, {shape!r}. For a row with "
            "these elements, pass the list as a NumPy array"
        )


def methods(device: Device = None, *, operation: OperationName = "softmax") -> Methods:
    """All methods as a list, which prints as a table.

    Parameters
    ----------
    device : "cpu", "cuda" or None
        The device whose methods to list, even if this machine does not have it. None lists the methods of all
        devices. "gpu", "cuda:0" and a torch.device work too.
    operation : str
        The operation whose methods to list: softmax, log_softmax, logsumexp, normalizer, softmax_topk,
        softmax_backward or log_softmax_backward.

    Raises
    ------
    ValueError
        The device or the operation is unknown.
    """
    device = _device(device)
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"device is {device!r}: expected 'cpu', 'cuda' or None")
    found = Methods()
    found.device, found.operation = device, operation
    for facts in _core.methods(operation):
        devices = tuple(name for name in ("cpu", "cuda") if facts.pop(f"on_{name}"))
        if device is None or device in devices:
            found.append(Method(devices=devices, **facts))
    return found


def plan(
    array_or_shape: ArrayLike | tuple[SupportsIndex, ...],
    /,
    axis: int | Sequence[int] | None = -1,
    *,
    dtype: DType = None,
    device: Device = None,
    method: MethodName = "auto",
    num_threads: int | None = None,
    operation: PlannedOperation = "softmax",
    k: SupportsIndex | None = None,
    **arguments: Any,
) -> Plan:
    """The method that an operation would take for an array, and why, and what each method would cost.

    It runs nothing.

    Parameters
    ----------
    array_or_shape : array, or tuple of ints
        An array as `softmax` takes it, or the shape of a C-ordered array. A torch tensor on meta and a fake
        tensor work too, since a plan needs no values. If `device` is given, or if the fake tensor is on a
        GPU, only the shape and the type of the array count.
    axis, method, num_threads
        As `softmax` takes them. num_threads has no effect for a GPU.
    dtype : dtype, optional
        With an array: the result's type. With a shape: the type of the array and of the result, float32 by
        default.
    device : str, optional
        Where an array of that shape lies: "cpu" (the default) or "cuda". "cuda" is the first GPU, or an H100
        if there is no GPU. "gpu", "cuda:0" and a torch.device work too. You can also name a GPU that is not
        here, to plan by its data sheet: "RTX 4090", "L4", "A100" (SXM, 80 GB), "H100" (SXM), "H200" or
        "B200", in capitals or not, with spaces or without.
    operation : str
        An operation that `methods` takes, cross_entropy, cross_entropy_with_grad, logprob, kl_divergence,
        kl_divergence_with_grad, js_divergence, js_divergence_with_grad, route or sample. If the operation has
        two inputs, the array stands for both.
    k : int, optional
        The number of elements to select per row. softmax_topk and route need k, other operations do not take
        it.
    **arguments
        The arguments of the operation that change its plan, with the defaults of the call:

        - cross_entropy and cross_entropy_with_grad: label_smoothing, weight, reduction.
        - logprob: entropy, argmax, rank, topk.
        - kl_divergence and js_divergence: scale, reduction. With the gradient also wrt.
        - route: score, bias, groups, top_groups, renormalize.
        - sample: temperature, top_k, top_p, min_p, filter_apply_order, return_logprob.

        weight and bias may be True in place of an array. A parameter of sample may be None, which means an
        array with a number for each row. Operations with such arguments have the methods "auto" and
        "invariant".

    Raises
    ------
    ValueError, TypeError, AxisError
        As `softmax`. Also in these cases: the shape is an int or a list of ints, the device or the operation
        is unknown, the array is not on the device, the array has more than 2^48 elements, the operation
        refuses k or another argument, or an argument is missing.
    """
    _refuse_lengths(array_or_shape)
    place = _device(device)
    if has_no_values(array_or_shape):
        array_or_shape, dtype, place = as_planned(array_or_shape, dtype, place)
    axes = tuple(axis) if isinstance(axis, Sequence) else axis
    terms = terms_of(operation, arguments)
    if terms and dtype is not None and not isinstance(array_or_shape, tuple):
        raise TypeError(f"plan() of {operation} takes no dtype with an array: expected None")

    def planned(name: str) -> dict[str, Any]:
        return facts_of(
            array_or_shape,
            axes,
            operation,
            terms,
            dtype=dtype,
            device=place,
            method=name,
            num_threads=num_threads,
            k=k,
        )

    facts = planned(method)
    costs: tuple[Cost, ...]
    rivals: list[Cost] = []
    if terms:
        costs = (reasons.cost(facts["method"], facts, reasons.bytes_once(facts)),)
        facts["arguments"] = terms.arguments
    else:
        known = methods(
            "cpu" if facts["device"] == "cpu" else "cuda", operation=cast("OperationName", operation)
        )
        costs, rivals = _costs(known, planned, facts["method"])
    (own,) = (cost for cost in costs if cost.method == facts["method"])
    if method == "auto" and not _core.get_batch_invariant():

        def at(name: str, rows: int) -> dict[str, Any]:
            shape = (rows, facts["N"])
            return _core.plan(shape, dtype=facts["dtype"], device=facts["device"], method=name)

        facts["reason"] = reasons.explained(facts["reason"], own, rivals, facts["N"], at)
    for name in (
        "k",
        "longest_row",
        "copy_speed",
        "measured_seconds",
        "measured_copy_seconds",
        "launch_seconds",
    ):
        facts[name] = facts.get(name) or None
    for name in (
        "reads_again",
        "read_bytes",
        "past_caches",
        "last_cache",
        "least_bytes",
        "arithmetic_seconds",
    ):
        facts.pop(name, None)
    facts["steps"] = tuple(
        PlanStep(**{**step, "threads": step["threads"] or None, "blocks_a_row": step["blocks_a_row"] or None})
        for step in facts.get("steps", ())
    )
    return Plan(**facts, others=costs, num_threads=num_threads)


def _costs(
    known: Sequence[Method], planned: Callable[[str], dict[str, Any]], own: str
) -> tuple[tuple[Cost, ...], list[Cost]]:
    """The costs of all methods, and the costs of those that can run in place of the plan's own method."""
    made: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}
    for method in known:
        try:
            made[method.name] = planned(method.name)
        except ValueError as error:
            refused[method.name] = _why_not(method.name, str(error))
    needed = min(reasons.bytes_once(facts) for facts in made.values())
    costs = tuple(
        Cost(each.name, None, None, refused[each.name])
        if each.name in refused
        else reasons.cost(each.name, made[each.name], needed)
        for each in known
    )
    # on a GPU `fused` is another method's name
    rivals = {name for name, facts in made.items() if facts["method"] == name != own}
    return costs, [cost for cost in costs if cost.method in rivals]


def _why_not(name: str, error: str) -> str:
    """What a method cannot do, from the core's error."""
    why = error.partition(": ")[0].partition(" elements")[0].partition(", and ")[0]
    return why.removeprefix(f"method '{name}' ").removeprefix("holds ").removeprefix("gives ")


def found_config() -> dict[str, Any]:
    """What show_config prints, as plain data."""
    return {
        "onsoftmax": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        **_core.config(),
    }


def show_config() -> dict[str, Any]:
    """Prints the versions, instruction sets, threads and GPUs found, and returns them as a dict."""
    config = found_config()
    width = max(map(len, config))
    for name, value in config.items():
        print(f"{name:{width}}  {', '.join(value) if isinstance(value, list) else value}")
    return config
