"""A contestant is the line that a user would write, and the names in it. This module has the CPU's."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import methods as list_methods
from .. import set_num_threads, softmax

Array = np.ndarray[Any, np.dtype[Any]]

PEERS = ("scipy", "numpy", "torch", "onnxruntime")

ONNX_OPSET, ONNX_IR = 18, 9


@dataclass(frozen=True)
class Contestant:
    name: str
    kind: str
    """ "ours", "peer" or "copy"."""
    line: str
    """The expression that is timed."""
    names: Callable[..., dict[str, Any]]
    """Makes the names in `line` from the arrays (on the CPU an input and an output)."""
    into: bool
    """Whether it writes into the output array. If not, it chooses the memory of its result."""
    compiles: bool = False
    """Whether it needs seconds to be ready for a further shape."""
    cannot: str = ""
    """Why it cannot run this shape."""


def importable(module: str) -> bool:
    """Whether a module is installed. It imports the module's parents alone."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


@functools.cache
def installed(module: str) -> Any:
    """The module. If it is not installed, None and, once, a line on stderr."""
    try:
        return importlib.import_module(module)
    except ImportError:
        print(f"{module} is not installed: left out", file=sys.stderr)
        return None


def numpy_formula(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


def tensors(x: Array, y: Array) -> dict[str, Any]:
    """The same memory as tensors. torch knows NumPy's own types. bfloat16 goes by its bits."""
    torch = installed("torch")

    def tensor(a: Array) -> Any:
        if a.dtype.name == "bfloat16":
            return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(a)

    return {"torch": torch, "x": tensor(x), "y": tensor(y)}


@functools.cache
def onnx_session(dtype: str, axis: int, threads: int) -> Any:
    onnx, runtime = installed("onnx"), installed("onnxruntime")
    kind = getattr(onnx.TensorProto, {"float64": "DOUBLE", "float32": "FLOAT"}.get(dtype, dtype.upper()))
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Softmax", ["x"], ["y"], axis=axis)],
        "softmax",
        [value("x", kind, None)],
        [value("y", kind, None)],
    )
    opset = onnx.helper.make_opsetid("", ONNX_OPSET)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=ONNX_IR)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def onnx_names(axis: int, threads: int) -> Callable[[Array, Array], dict[str, Any]]:
    def names(x: Array, y: Array) -> dict[str, Any]:
        session = onnx_session(x.dtype.name, axis, threads)
        binding = session.io_binding()
        binding.bind_input("x", "cpu", 0, x.dtype, x.shape, x.ctypes.data)
        binding.bind_output("y", "cpu", 0, y.dtype, y.shape, y.ctypes.data)
        # x and y live as long as the binding that has their addresses
        return {"session": session, "binding": binding, "feed": {"x": x}, "x": x, "y": y}

    return names


def contestants(
    axis: int, threads: int, wanted: Sequence[str] = PEERS, methods: Sequence[str] | None = None
) -> Iterator[Contestant]:
    """Ours by `auto` and by these methods (None: all), the wanted peers that are installed, and copies. All
    are told to use that many threads. SciPy and NumPy always use one thread."""
    set_num_threads(threads)

    def ours(x: Array, y: Array) -> dict[str, Any]:
        return {"softmax": softmax, "x": x, "y": y}

    yield Contestant("auto", "ours", f"softmax(x, {axis})", ours, False)
    yield Contestant("auto out=", "ours", f"softmax(x, {axis}, out=y)", ours, True)
    for method in [m.name for m in list_methods("cpu")] if methods is None else methods:
        call = f"softmax(x, {axis}, method='{method}'"
        yield Contestant(method, "ours", call + ")", ours, False)
        yield Contestant(f"{method} out=", "ours", call + ", out=y)", ours, True)
    scipy = installed("scipy.special") if "scipy" in wanted else None
    if scipy:
        names = lambda x, y: {"softmax": scipy.softmax, "x": x}  # noqa: E731
        yield Contestant("SciPy", "peer", f"softmax(x, axis={axis})", names, False)
    if "numpy" in wanted:
        names = lambda x, y: {"formula": numpy_formula, "x": x}  # noqa: E731
        yield Contestant("NumPy", "peer", f"formula(x, {axis})", names, False)
    torch = installed("torch") if "torch" in wanted else None
    if torch:
        torch.set_num_threads(threads)
        yield Contestant("torch", "peer", f"torch.softmax(x, {axis})", tensors, False)
        yield Contestant("torch out=", "peer", f"torch.softmax(x, {axis}, out=y)", tensors, True)
    if "onnxruntime" in wanted and installed("onnx") and installed("onnxruntime"):
        names = onnx_names(axis, threads)
        yield Contestant("ONNX Runtime", "peer", "session.run(None, feed)[0]", names, False)
        yield Contestant("ONNX Runtime out=", "peer", "session.run_with_iobinding(binding)", names, True)
    names = lambda x, y: {"copyto": np.copyto, "x": x, "y": y}  # noqa: E731
    yield Contestant("copy: np.copyto", "copy", "copyto(y, x)", names, True)
    if torch:
        yield Contestant("copy: torch", "copy", "y.copy_(x)", tensors, True)
