"""A contestant is the line that a user would write, and the names in it. This module has the CPU's."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import onsoftmax

from .. import methods as list_methods
from .. import set_num_threads
from .._explain.textbook import Array
from .case import Case

PEERS = ("scipy", "numpy", "torch", "onnxruntime")
FORWARD = ("softmax", "log_softmax", "logsumexp")
# The operations that a peer has. A peer that is not here has all of them.
HAVE = {
    "scipy": FORWARD,
    "onnxruntime": ("softmax", "log_softmax"),
    "unfused": ("softmax",),
    "triton": ("softmax",),
    "liger": ("softmax",),
    "quack": ("softmax", "softmax_topk", "softmax_backward"),
}

ONNX_OPSET, ONNX_IR = 18, 9


@dataclass(frozen=True)
class Contestant:
    name: str
    kind: str
    """ "ours", "peer", "copy", or "yardstick": ours, timed beside another operation."""
    line: str
    """The expression that is timed."""
    names: Callable[..., dict[str, Any]]
    """Makes the names in `line` from the arrays of a case: x, y, `grad` and others."""
    into: bool
    """Whether it writes into the output array. If not, it chooses the memory of its result."""
    compiles: bool = False
    """Whether it needs seconds to be ready for a further shape."""
    cannot: str = ""
    """Why it cannot run this shape."""
    bytes: int = 0
    """The bytes that it must move, if these are not the bytes of the case."""
    waits: bool = False
    """Whether it waits for the GPU. A CUDA graph cannot capture it then."""


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


def our_line(case: Case, method: str = "auto", out: bool = False, extra: str = "") -> str:
    """The expression that calls our operation by the name `function`."""
    arrays = "grad, x" if case.backward else f"x, {case.k}" if case.k else "x"
    options = (f", method='{method}'" if method != "auto" else "") + (", out=y" if out else "") + extra
    return f"function({arrays}, {case.axis}{options})" + (".values" if case.k else "")


def numpy_formula(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


def numpy_topk(x: Array, k: int, axis: int) -> tuple[Array, Array]:
    places = np.argpartition(-x, k - 1, axis).take(range(k), axis)
    order = np.argsort(-np.take_along_axis(x, places, axis), axis)
    places = np.take_along_axis(places, order, axis)
    return np.take_along_axis(numpy_formula(x, axis), places, axis), places


def in_arrays(case: Case, xp: Any) -> Callable[..., Any]:
    """The formula of the case, as a user of NumPy or jax.numpy would write it."""
    axis = case.axis

    def sums(x: Any) -> Any:
        return xp.log(xp.exp(x).sum(axis=axis, keepdims=True))

    def log_softmax(x: Any) -> Any:
        x = x - x.max(axis=axis, keepdims=True)
        return x - sums(x)

    def logsumexp(x: Any) -> Any:
        m = x.max(axis=axis, keepdims=True)
        return (m + sums(x - m)).squeeze(axis)

    def softmax_backward(grad: Any, y: Any) -> Any:
        return (grad - (grad * y).sum(axis=axis, keepdims=True)) * y

    def log_softmax_backward(grad: Any, y: Any) -> Any:
        return grad - xp.exp(y) * grad.sum(axis=axis, keepdims=True)

    formulas = (log_softmax, logsumexp, softmax_backward, log_softmax_backward)
    return {formula.__name__: formula for formula in formulas}[case.operation]


def in_torch(case: Case) -> Callable[..., Any]:
    """The function that a torch user would write for the case, without `extra`."""
    torch, axis = installed("torch"), case.axis
    if case.backward:
        backward = getattr(torch.ops.aten, f"_{case.operation}_data")
        return lambda grad, x: backward(grad, x, axis, x.dtype)
    if case.k:
        return lambda x: torch.topk(torch.softmax(x, axis), case.k, axis).values
    function = getattr(torch, case.operation.replace("normalizer", "logsumexp"))
    return lambda x: function(x, axis)


def in_jax(case: Case) -> Callable[..., Any]:
    """The function that a JAX user would write for the case, compiled."""
    jax, axis = installed("jax"), case.axis

    def topk(x: Any) -> Any:
        rows = jax.numpy.moveaxis(jax.nn.softmax(x, axis), axis, -1)
        return jax.numpy.moveaxis(jax.lax.top_k(rows, case.k)[0], -1, axis)

    def forward(x: Any) -> Any:
        return getattr(jax.nn, case.operation)(x, axis)

    function = topk if case.k else forward if case.operation in FORWARD else in_arrays(case, jax.numpy)
    compiled: Callable[..., Any] = jax.jit(function)
    return compiled


def tensors(arrays: dict[str, Array]) -> dict[str, Any]:
    """The same memory as tensors. torch knows NumPy's own types. bfloat16 goes by its bits."""
    torch = installed("torch")

    def tensor(a: Array) -> Any:
        if a.dtype.name == "bfloat16":
            return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(a)

    return {"torch": torch, **{name: tensor(array) for name, array in arrays.items()}}


def jax_arrays(arrays: dict[str, Array]) -> dict[str, Any]:
    """Copies as JAX arrays. JAX turns float64 into float32 unless it is told not to."""
    jax = installed("jax")
    if arrays["x"].dtype == np.float64 and not jax.config.jax_enable_x64:
        raise TypeError("JAX computes in float64 only with JAX_ENABLE_X64=1")
    copies: dict[str, Any] = jax.device_put(arrays, jax.devices("cpu")[0])
    return copies


@functools.cache
def onnx_session(operation: str, dtype: str, axis: int, threads: int) -> Any:
    onnx, runtime = installed("onnx"), installed("onnxruntime")
    kind = getattr(onnx.TensorProto, {"float64": "DOUBLE", "float32": "FLOAT"}.get(dtype, dtype.upper()))
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node(
                {"softmax": "Softmax", "log_softmax": "LogSoftmax"}[operation], ["x"], ["y"], axis=axis
            )
        ],
        operation,
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


def onnx_names(case: Case, threads: int) -> Callable[[dict[str, Array]], dict[str, Any]]:
    def names(arrays: dict[str, Array]) -> dict[str, Any]:
        x, y = arrays["x"], arrays["y"]
        session = onnx_session(case.operation, x.dtype.name, case.axis, threads)
        binding = session.io_binding()
        binding.bind_input("x", "cpu", 0, x.dtype, x.shape, x.ctypes.data)
        binding.bind_output("y", "cpu", 0, y.dtype, y.shape, y.ctypes.data)
        # x and y live as long as the binding that has their addresses
        return {"session": session, "binding": binding, "feed": {"x": x}, **arrays}

    return names


def contestants(
    case: Case, threads: int, wanted: Sequence[str] = PEERS, methods: Sequence[str] | None = None
) -> Iterator[Contestant]:
    """Ours by `auto` and by these methods (None: all), the wanted peers that are installed, and copies. All
    are told to use that many threads. SciPy and NumPy always use one thread, and JAX uses all."""
    set_num_threads(threads)
    operation, axis = case.operation, case.axis
    arguments = "grad, x" if case.backward else "x"

    def with_function(function: Any) -> Callable[[dict[str, Array]], dict[str, Any]]:
        return lambda arrays: {"function": function, **arrays}

    ours = with_function(getattr(onsoftmax, operation))
    known = [m.name for m in list_methods("cpu", operation=operation)]  # type: ignore[arg-type]
    for method in ["auto", *(known if methods is None else methods)]:
        if method == "exact" and case.dtype == "float64":
            continue
        yield Contestant(method, "ours", our_line(case, method), ours, False)
        if case.takes_out:
            yield Contestant(f"{method} out=", "ours", our_line(case, method, out=True), ours, True)
    wanted = [name for name in wanted if operation in HAVE.get(name, (operation,))]
    scipy = installed("scipy.special") if "scipy" in wanted else None
    if scipy:
        names = with_function(getattr(scipy, operation))
        yield Contestant("SciPy", "peer", f"function(x, axis={axis})", names, False)
    if "numpy" in wanted:
        if operation == "softmax":
            line, names = f"function(x, {axis})", with_function(numpy_formula)
        elif case.k:
            line, names = f"function(x, {case.k}, {axis})[0]", with_function(numpy_topk)
        else:
            line, names = f"function({arguments})", with_function(in_arrays(case, np))
        yield Contestant("NumPy", "peer", line, names, False)
    torch = installed("torch") if "torch" in wanted else None
    if torch:
        torch.set_num_threads(threads)
        if operation in FORWARD:
            yield Contestant("torch", "peer", f"torch.{operation}(x, {axis})", tensors, False)
            if case.takes_out:
                yield Contestant("torch out=", "peer", f"torch.{operation}(x, {axis}, out=y)", tensors, True)
        else:
            function = in_torch(case)
            names = lambda arrays: {**tensors(arrays), "function": function}  # noqa: E731
            yield Contestant("torch", "peer", f"function({arguments})", names, False)
    if "onnxruntime" in wanted and installed("onnx") and installed("onnxruntime"):
        names = onnx_names(case, threads)
        yield Contestant("ONNX Runtime", "peer", "session.run(None, feed)[0]", names, False)
        yield Contestant("ONNX Runtime out=", "peer", "session.run_with_iobinding(binding)", names, True)
    jax = installed("jax") if "jax" in wanted else None
    if jax:
        compiled = in_jax(case)
        names = lambda arrays: {"function": compiled, **jax_arrays(arrays)}  # noqa: E731
        yield Contestant("JAX", "peer", f"function({arguments}).block_until_ready()", names, False)
    names = lambda arrays: {"copyto": np.copyto, **arrays}  # noqa: E731
    yield Contestant("copy: np.copyto", "copy", "copyto(target, x)", names, True)
    if torch:
        yield Contestant("copy: torch", "copy", "target.copy_(x)", tensors, True)
