"""What the C core asks of other array libraries. Imports none: an array's own library is there already."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import sys
from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

from . import _core

# ons_library in csrc/python/views.h, ons_role in csrc/api/problem.h
NUMPY, TORCH, JAX, CUPY = range(4)
X, Y, WHERE, SCALE = range(4)


class ByOperator(TypeError, RuntimeError):
    """An array whose values are not all there is to it, or that the caller wants to see at work. A call that
    has an operator in `module` goes by that one; another raises this.

    Users see it as a plain TypeError, and may also catch it as a RuntimeError, as torch has it.
    """

    __module__ = "builtins"
    __qualname__ = "TypeError"

    def __init__(self, module: str | None, message: str) -> None:
        super().__init__(message)
        self.module = module

    def __reduce__(self) -> tuple[Any, ...]:
        return TypeError, self.args


ByOperator.__name__ = "TypeError"

# The types that a call takes, by the names that torch and JAX have for them.
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_COUNTS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_EXPECTED = "expected float16, bfloat16, float32 or float64"

_FOR_GRADIENT = (
    "onsoftmax.torch",
    "got a tensor that requires grad, and no gradient flows through this function: pass tensor.detach(), or "
    "call it under torch.no_grad()",
)


_operators: dict[str, dict[str, Callable[..., Any]]] = {}  # by module


def operator_of(error: ByOperator, name: str) -> Callable[..., Any] | None:
    """What takes such arrays in the place of the function of that name."""
    if error.module is None:
        return None
    operators = _operators.get(error.module)
    if operators is None:  # sys.modules has a module that another thread has only begun to import
        operators = _operators[error.module] = importlib.import_module(error.module).OPERATORS
    return operators.get(name)


def _library_of(array: object) -> str:
    """The top-level package of the first class in the array's ancestry that belongs to a library we know."""
    return _library_of_type(type(array))


def _library_of_type(kind: type) -> str:
    for cls in kind.__mro__:
        package = cls.__module__.partition(".")[0]
        if package in ("torch", "jax", "jaxlib", "dask", "cupy"):
            return package
    return ""


def prepare(array: Any, role: int) -> tuple[int, Any]:
    """The library that the result goes back to, and an array of a type that `role` takes to look at: a NumPy
    array, an object with __dlpack__, or what _described gives."""
    library = _library_of(array)
    if library == "torch":
        return TORCH, _torch(array, role)
    if library in ("jax", "jaxlib"):
        return JAX, _jax(array, role)
    if library == "cupy":
        return CUPY, _cupy(array, role)
    if library == "dask":
        _refuse_dask()
    if hasattr(array, "__dlpack__") and not (role == X and _keeps_memory(array)):
        return NUMPY, array
    if hasattr(array, "__cuda_array_interface__"):
        return NUMPY, _cuda_array_interface(array)
    if role == Y:
        raise TypeError(f"out is of type {type(array).__name__}: expected an array")
    made = _made(array)
    if made.dtype == object and not hasattr(array, "__array__"):
        raise TypeError(f"got {refused_value(array)}")
    return NUMPY, made


def _refuse_dask() -> None:
    raise TypeError(
        "got a Dask array: expected a call of onsoftmax.dask.softmax, log_softmax or logsumexp, which "
        "take it lazily; or array.compute() for the other functions"
    )


def _keeps_memory(array: Any) -> bool:
    """Whether it has an __array__ beside a __dlpack__ that refuses it, as pyarrow's arrays with nulls."""
    if not hasattr(array, "__array__") or gpu_of(array) is not None:
        return False
    try:
        array.__dlpack__()
    except Exception:
        return True
    return False


def _made(array: Any) -> Any:
    """The NumPy array of an object. A mask of numpy.ma stays to be seen."""
    if not hasattr(array, "__array__") and hasattr(array, "__dlpack__"):
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError):  # bfloat16, which NumPy has not
            return np.asarray(_core.as_numpy(array), np.float64)
    made = np.asanyarray(array)
    if made.dtype == object and hasattr(array, "to_numpy"):
        return _of_pandas(array, made)
    return made


def check_list(values: Any) -> None:
    """TypeError where lists have a Dask array, which NumPy would compute."""
    if _any_dask(values):
        _refuse_dask()


def _any_dask(values: Any) -> bool:
    kinds = set(map(type, values))
    if any(_library_of_type(kind) == "dask" for kind in kinds):
        return True
    nested = any(issubclass(kind, (list, tuple)) for kind in kinds)
    return nested and any(_any_dask(each) for each in values if isinstance(each, (list, tuple)))


def _of_pandas(array: Any, made: Any) -> Any:
    """Columns whose types have NA, which pandas gives as objects: as NumPy's numbers, with NaN for NA."""
    types: Any = getattr(array, "dtypes", None)
    types = list(types) if hasattr(types, "__iter__") else [types]
    numbers = [getattr(each, "numpy_dtype", each) for each in types]
    if not all(isinstance(each, np.dtype) and each.kind in "biuf" for each in numbers):
        return made
    wanted = np.result_type(*numbers)
    try:
        return array.to_numpy(dtype=wanted)
    except (TypeError, ValueError):  # NA, which only floats have
        if wanted.kind == "b":
            return made
        return array.to_numpy(dtype=wanted if wanted.kind == "f" else np.float64, na_value=np.nan)


def refused_value(given: Any, expected: str = "an array, a number, or numbers in lists") -> str:
    """What is wrong with a Python value that NumPy makes no array of numbers of, and what was expected."""
    odd = _odd_element(given)
    kind, place = type(odd).__name__, "" if odd is given else f" in a {type(given).__name__}"
    if isinstance(odd, Number):
        kind = "n int of over 64 bits" if isinstance(odd, int) else f" {kind}"
        return f"a{kind}{place}: expected floats, or ints of at most 64 bits; convert it by float()"
    if odd is None:
        kind = "None"
    elif not isinstance(odd, (str, bytes)):
        kind = f"an object of type {kind}"
    return f"{kind}{place}: expected {expected}"


def _odd_element(given: Any) -> Any:
    """The first element, however deep in lists, that NumPy makes no number of; the value itself otherwise."""
    if not isinstance(given, (list, tuple)):
        return given
    odd = [each for each in given if not _is_number(each)]
    return _odd_element(odd[0]) if odd else given


def _is_number(element: Any) -> bool:
    """Whether NumPy makes a number of it, or an array of numbers."""
    if isinstance(element, (list, tuple)):
        return all(map(_is_number, element))
    if isinstance(element, int):
        return -(2**63) <= element < 2**63
    return isinstance(element, (float, complex)) or (
        hasattr(element, "__array__") and not isinstance(element, (str, bytes))
    )


def as_numpy(array: Any, role: int = SCALE) -> Any:
    """A mask or a scale of any library as a NumPy array."""
    if is_jax_tracer(array):
        _refuse_jax_tracer()
    if _library_of(array) == "dask":
        _refuse_dask()
    check_jax_values(array)
    gpu = gpu_of(array)
    if gpu is not None:
        place = "a GPU" if gpu == UNKNOWN else f"cuda:{gpu}"
        raise ValueError(f"the array is on the CPU, but where or scale is on {place}: expected one device")
    if _library_of(array) == "torch":
        torch = sys.modules["torch"]
        tensor = _torch_data(array, role)
        return (tensor.double() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    return _made(array)


def overlaps_itself(array: Any) -> bool:
    """Whether elements of a NumPy array share memory: such as are apart along one axis, none before it."""
    while array.ndim:
        first = array[0, ...]
        if np.shares_memory(first, array[1:]):
            return True
        array = first
    return False


def plain_int(value: Any) -> int:
    """An int; TypeError for what is none, and for a bool, which Python would take for one."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"got {value!r}: expected an int")
    return operator.index(value)


def plain_axes(axis: Any) -> Any:
    """What the core makes of axis=, without an array."""
    try:
        if axis is None:
            return None
        return tuple(map(plain_int, axis)) if isinstance(axis, tuple) else plain_int(axis)
    except TypeError:
        raise TypeError(f"axis is {axis!r}: expected an int, a tuple of ints, or None") from None


def dtype_name(dtype: Any) -> str:
    """The name of a type given as a NumPy, ml_dtypes, torch or JAX dtype, or as a string."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return dtype
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        raise TypeError(f"dtype is {dtype!r}: expected float16, bfloat16, float32 or float64") from None


def on_stream(
    call: Callable[..., Any], arrays: tuple[Any, ...], handle: int, keywords: dict[str, Any]
) -> Any:
    """The call under `handle` as the current stream of the array's library, where it is another one."""
    array = arrays[0]
    library = _library_of(array)
    if library == "torch" and array.is_cuda:
        return _on_torch_stream(call, arrays, handle, keywords)
    if library == "cupy":
        cupy = sys.modules["cupy"]
        with array.device:
            if cupy.cuda.get_current_stream().ptr != handle:
                with cupy.cuda.ExternalStream(handle) if handle else cupy.cuda.Stream.null:
                    return call(*arrays, **keywords)
    return NotImplemented


def memory(library: int, gpu: int, length: int) -> tuple[Any, int]:
    """So many bytes of a library's memory on a GPU, in the order of its current stream: owner, address."""
    if library == TORCH:
        torch = sys.modules["torch"]
        tensor = torch.empty(length, dtype=torch.uint8, device=f"cuda:{gpu}")
        return tensor, tensor.data_ptr()
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(gpu):
        allocated = cupy.cuda.alloc(length)
    return allocated, allocated.ptr


# ---------------------------------------------------------------- torch


def torch_knowledge() -> tuple[Any, ...]:
    """What ons_torch in csrc/python/views.h holds."""
    torch = sys.modules["torch"]
    shortcuts = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return (
        torch.Tensor,
        torch.nn.Parameter,
        torch.Tensor.requires_grad,
        torch.Tensor.layout,
        torch.Tensor.is_neg,
        torch.empty_like,
        torch.is_grad_enabled,
        _increment_version(torch),
        torch.strided,
        torch.contiguous_format,
        (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool, torch.int32, torch.int64),
        getattr(shortcuts, "_empty_strided_cpu", None),
        getattr(shortcuts, "_empty_strided_cuda", None),
        vars(torch.autograd.forward_ad),
        vars(torch.utils._python_dispatch),
        in_mode,
        torch.is_autocast_enabled,
        torch._C._is_tracing,
        ByOperator,
        _FOR_GRADIENT,
        getattr(torch.Tensor, "__dlpack_c_exchange_api__", None),
    )


def _increment_version(torch: Any) -> Callable[[tuple[Any, ...]], None]:
    """What tells autograd that tensors were written to. torch.autograd.graph.increment_version calls a
    function of C, at twice its cost; there, too, tuples are taken in later versions alone."""
    try:
        inner: Callable[[tuple[Any, ...]], None] = torch._C._increment_version
        inner(())
    except (AttributeError, TypeError, RuntimeError):
        return lambda tensors: torch.autograd.graph.increment_version(*tensors)
    return inner


def has_no_values(array: Any) -> bool:
    """Whether it is a tensor on meta, or a fake one."""
    return _library_of(array) == "torch" and (array.is_meta or type(array).__name__ == "FakeTensor")


def as_planned(tensor: Any, dtype: Any, device: Any) -> tuple[Any, Any, Any]:
    """What a plan is made for in its place: an array that has no memory, or its shape; with the type and the
    device that go with it."""
    torch = sys.modules["torch"]
    shape = tuple(map(int, tensor.shape))
    own = tensor.dtype if tensor.dtype.is_floating_point else torch.get_default_dtype()
    name = dtype_name(tensor.dtype if tensor.dtype.is_complex else own)
    if device is None and tensor.device.type != "cuda":
        try:
            element = np.empty(
                (), name if name != "bfloat16" else importlib.import_module("ml_dtypes").bfloat16
            )
        except ImportError:
            return shape, name if dtype is None else dtype, None
        strides = tuple(int(stride) * element.itemsize for stride in tensor.stride())
        return np.lib.stride_tricks.as_strided(element, shape, strides), dtype, None
    return shape, name if dtype is None else dtype, device or "cuda"


def check_symbolic(array: Any, number: Any) -> None:
    """To take a symbolic int for a number would fix its value: an operator leaves it as it is."""
    if _library_of(array) == "torch" and type(number).__name__ == "SymInt":
        raise ByOperator("onsoftmax.torch", f"got {number!r}, a symbolic int of torch: expected an int")


def in_mode() -> bool:
    """Whether a TorchDispatchMode of this thread is to see what is done with tensors."""
    torch = sys.modules["torch"]
    below_autograd = getattr(torch._C, "_len_torch_dispatch_stack", int)
    above_autograd = getattr(torch._ops, "_len_torch_dispatch_stack_pre_dispatch", int)
    return bool(below_autograd() or above_autograd())


def torch_stream(gpu: int) -> int:
    """The handle of torch's current stream."""
    handle: int = sys.modules["torch"].cuda.current_stream(gpu).cuda_stream
    return handle


def _is_in_a_transform(torch: Any, tensor: Any) -> bool:
    """Whether it is of torch.func, in or after a transform, or of the vmap of torch.autograd."""
    try:
        functorch = torch._C._functorch
        wrapped = functorch.is_functorch_wrapped_tensor(tensor)
        return bool(wrapped or functorch.is_legacy_batchedtensor(tensor))
    except AttributeError:  # an older or later torch
        return False


def refuse_nested(tensor: Any) -> None:
    if tensor.is_nested:
        raise TypeError(
            "got a nested tensor, which is not supported: expected a plain tensor. Pass each tensor of "
            "nested.unbind(), or torch.nested.to_padded_tensor(nested, -math.inf)"
        )


def _torch_data(tensor: Any, role: int) -> Any:
    """The tensor without autograd and without the lazy views that DLPack cannot show."""
    torch = sys.modules["torch"]
    if not isinstance(tensor, torch.Tensor):
        raise ByOperator("onsoftmax._torch_fx", f"got a {type(tensor).__name__}: expected a tensor")
    refuse_nested(tensor)
    if _is_in_a_transform(torch, tensor):
        raise ByOperator(
            "onsoftmax.torch",
            "got a tensor inside vmap, grad or another transform of torch.func, which this function does not "
            "support: expected a plain tensor",
        )
    if type(tensor).__name__ == "DTensor":
        raise ByOperator(
            None,
            "got a DTensor: expected a plain tensor, or softmax, log_softmax and logsumexp of "
            "onsoftmax.distributed, which take it",
        )
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise ByOperator(
            "onsoftmax.torch",
            f"got a {type(tensor).__name__}, whose values its class alone knows: expected a plain tensor",
        )
    if tensor.is_meta:
        raise ByOperator(
            "onsoftmax.torch", "got a tensor on meta, which has no values: expected a plain tensor"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(
            f"got a tensor of layout {tensor.layout}: expected torch.strided; pass tensor.to_dense()"
        )
    if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
        raise RuntimeError(
            "got a dual tensor of forward-mode differentiation, and no tangent flows through this function: "
            "pass tensor.detach()"
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ByOperator(*_FOR_GRADIENT)
    if dtype_name(tensor.dtype) not in _FLOATS + _COUNTS:
        raise TypeError(_refused_dtype(dtype_name(tensor.dtype), role))
    return tensor.detach().resolve_neg()


def _refused_dtype(name: str, role: int) -> str:
    """The text for an array of a type that no call takes."""
    if role == WHERE:
        return f"where has dtype {name}: expected a mask of bool"
    if role == SCALE:
        return f"scale has dtype {name}: expected a real number, or an array of them"
    return (
        f"out has dtype {name}: {_EXPECTED}" if role == Y else f"dtype {name} is not supported: {_EXPECTED}"
    )


def _torch(tensor: Any, role: int) -> Any:
    if role == Y and (tensor.is_neg() or tensor.is_conj()):
        raise ValueError("out is a negated or conjugated view: expected a tensor that can be written to")
    data = _torch_data(tensor, role)
    if role in (WHERE, Y) or data.dtype.is_floating_point:
        return data
    return data.double() if role == SCALE else data.to(sys.modules["torch"].get_default_dtype())


def _on_torch_stream(
    call: Callable[..., Any], arrays: tuple[Any, ...], handle: int, keywords: dict[str, Any]
) -> Any:
    torch = sys.modules["torch"]
    array = arrays[0]
    before = torch.cuda.current_stream(array.device)
    if before.cuda_stream == handle:
        return NotImplemented
    stream = (
        torch.cuda.ExternalStream(handle, array.device) if handle else torch.cuda.default_stream(array.device)
    )
    with torch.cuda.stream(stream):
        result = call(*arrays, **keywords)
    # Memory is taken again in the order of the stream it was allocated under. The result is from `stream`
    # and will be used on the one before; the others the other way round.
    for tensor in (*arrays, *keywords.values()):
        if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
            tensor.record_stream(stream)
    if "out" not in keywords:
        for tensor in result if isinstance(result, tuple) else (result,):
            tensor.record_stream(before)
    return result


# ---------------------------------------------------------------- JAX


def is_jax_tracer(array: Any) -> bool:
    return _library_of(array) in ("jax", "jaxlib") and isinstance(array, sys.modules["jax"].core.Tracer)


def check_jax_values(array: Any) -> None:
    """RuntimeError for a deleted or donated array of JAX, which has no memory."""
    if _library_of(array) in ("jax", "jaxlib") and getattr(array, "is_deleted", bool)():
        raise RuntimeError(
            f"Array has been deleted, or donated to a compiled call: it was {array.dtype}{list(array.shape)}"
        )


def _refuse_jax_tracer() -> None:
    jax = sys.modules["jax"]
    if importlib.util.find_spec("jax.ffi") is None:
        raise TypeError(
            f"got a JAX tracer, and JAX {jax.__version__} has no jax.ffi: inside jax.jit, jax.grad and "
            "jax.vmap onsoftmax needs JAX 0.5 or later; use jax.nn.softmax there"
        )
    raise ByOperator(
        "onsoftmax.jax",
        "got a JAX tracer, which this function does not support: call it on concrete arrays, outside "
        "jax.jit, jax.grad and jax.vmap, or by jax.pure_callback",
    )


def jax_floating(array: Any) -> Any:
    """The array, or one of numbers as JAX's default float."""
    jax = sys.modules["jax"]
    if array.dtype.name in _FLOATS:
        return array
    if not any(jax.numpy.issubdtype(array.dtype, kind) for kind in (jax.numpy.integer, np.bool_)):
        raise TypeError(_refused_dtype(array.dtype.name, X))
    return array.astype(float)


def _jax(array: Any, role: int) -> Any:
    if role == Y:
        raise TypeError("out is a JAX array, which is immutable: leave out= away, and take the result")
    if is_jax_tracer(array):
        _refuse_jax_tracer()
    check_jax_values(array)
    devices = array.sharding.num_devices
    if devices > 1:
        raise BufferError(
            f"the array lies on {devices} devices: expected one; jax.jit and jax.shard_map take it as it is"
        )
    return array if role == WHERE else jax_floating(array)


def jax_has_64_bits() -> bool:
    return bool(sys.modules["jax"].config.jax_enable_x64)


def check_jax_float64() -> None:
    if not jax_has_64_bits():
        raise TypeError(
            "this gives float64, which JAX cuts to float32 while jax_enable_x64 is off: call "
            "jax.config.update('jax_enable_x64', True), or pass numpy.asarray of the array"
        )


def jax_result(array: Any, given: Any) -> Any:
    """The memory of a NumPy array or a DeviceArray as a JAX array, on the given one's device; committed to it
    if that is."""
    jax = sys.modules["jax"]
    if not isinstance(array, np.ndarray):
        return importlib.import_module("jax.dlpack").from_dlpack(array)
    if given.committed:
        return jax.device_put(array, given.sharding)
    made = jax.numpy.asarray(array)
    return made if made.sharding == given.sharding else jax.device_put(made, given.sharding)


def torch_empty(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return like.new_empty(shape, dtype=dtype)


# ---------------------------------------------------------------- CuPy and the CUDA Array Interface

UNKNOWN = -1  # GPU: CUDA knows it by the address

_Description = tuple[Any, int, tuple[int, ...], Any, str, bool, int, "int | None", Any]


def _cupy(array: Any, role: int) -> _Description:
    """As ons_view_described takes it. Without DLPack, which costs more and has to be asked for order."""
    cupy = sys.modules["cupy"]
    if role in (X, SCALE) and array.dtype.kind in "iub":
        with array.device:
            array = array.astype(float)
    gpu = array.device.id
    stream = cupy.cuda.get_current_stream(gpu)
    return array, array.data.ptr, array.shape, array.strides, array.dtype.name, False, gpu, stream.ptr, stream


def cupy_result(array: Any, dtype: str, shape: tuple[int, ...] | None) -> _Description:
    """A CuPy array of `shape` for a result; of None: of the given one's, in its memory order."""
    cupy = sys.modules["cupy"]
    if array.dtype.name != dtype and dtype == "bfloat16":
        import ml_dtypes

        kind = np.dtype(ml_dtypes.bfloat16)
    else:
        kind = array.dtype if array.dtype.name == dtype else np.dtype(dtype)
    with array.device:
        made = cupy.empty_like(array, dtype=kind) if shape is None else cupy.empty(shape, dtype=kind)
        return _cupy(made, Y)


def _cuda_array_interface(array: Any) -> _Description:
    """As ons_view_described takes it."""
    shown = array.__cuda_array_interface__
    if shown.get("mask") is not None:
        raise TypeError("masked arrays are not supported: pass the array without its mask, and where=")
    dtype = np.dtype(shown["typestr"])
    if not dtype.isnative:
        raise TypeError(f"dtype {dtype} is not supported on a GPU: expected native byte order")
    address, readonly = shown["data"]
    # From version 3 on None says that nothing is pending; before it, the default stream is meant.
    stream = shown.get("stream", 0 if shown.get("version", 0) < 3 else None)
    keeper = getattr(array, "stream", None)
    return (
        array,
        address or 0,
        tuple(shown["shape"]),
        shown.get("strides"),
        dtype.name,
        readonly,
        UNKNOWN,
        stream,
        keeper,
    )


def gpu_of(array: Any) -> int | None:
    """The number of the GPU that the array is on; None on the CPU."""
    if _library_of(array) == "torch":
        return array.device.index if array.is_cuda else None
    if hasattr(array, "__dlpack_device__"):
        try:
            kind, number = array.__dlpack_device__()
        except BufferError:  # of several devices, or none that DLPack knows: its own library can tell
            return None
        return int(number) if kind in (2, 13) else None
    if hasattr(array, "__cuda_array_interface__"):
        return UNKNOWN  # the interface does not say it
    return None
