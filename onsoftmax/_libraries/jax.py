"""JAX arrays, and tracers, which have no values."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import NoneType
from typing import Any

import numpy as np

from .._core import INDICES, WHERE, X, Y
from .._types import DTYPES
from .kinds import library_of, refused_dtype
from .operators import ByOperator, operator_of


def is_jax_tracer(array: Any) -> bool:
    return library_of(array) in ("jax", "jaxlib") and isinstance(array, sys.modules["jax"].core.Tracer)


def check_jax_values(array: Any) -> None:
    """RuntimeError for a deleted or donated array of JAX, which has no memory."""
    if library_of(array) in ("jax", "jaxlib") and getattr(array, "is_deleted", bool)():
        raise RuntimeError(
            f"Array has been deleted, or donated to a compiled call: it was {array.dtype}{list(array.shape)}"
        )


def jax_operator() -> ByOperator:
    """The ByOperator for a tracer."""
    jax = sys.modules["jax"]
    if importlib.util.find_spec("jax.ffi") is None:
        raise TypeError(
            f"got a JAX tracer, and JAX {jax.__version__} has no jax.ffi: inside jax.jit, jax.grad and "
            "jax.vmap onsoftmax needs JAX 0.5 or later; use jax.nn.softmax there"
        )
    return ByOperator(
        "onsoftmax.jax",
        TypeError,
        "got a JAX tracer, which this function does not support: call it on concrete arrays, outside "
        "jax.jit, jax.grad and jax.vmap, or by jax.pure_callback",
    )


def traced_operator(name: str, *arrays: Any) -> Callable[..., Any] | None:
    """The operator of onsoftmax.jax with this name, if one of the arrays is a tracer."""
    if "jax" in sys.modules:
        for array in arrays:
            if type(array) not in (np.ndarray, list, NoneType) and is_jax_tracer(array):
                return operator_of(jax_operator(), name)
    return None


def is_cut_to_32_bits(array: Any) -> bool:
    """Whether this is an array of uint32 that JAX would make int32, since it has no 64-bit types."""
    is_jax = "jax" in sys.modules and isinstance(array, sys.modules["jax"].Array)
    return is_jax and array.dtype == np.uint32 and not jax_has_64_bits()


def operator_for_words(name: str, logits: Any, *parameters: Any) -> Callable[..., Any] | None:
    """The operator of onsoftmax.jax with this name, if the logits are a JAX array, and JAX would cut a
    parameter. The core takes signed integers."""
    if any(map(is_cut_to_32_bits, parameters)) and isinstance(logits, sys.modules["jax"].Array):
        return operator_of(jax_operator(), name)
    return None


def jax_floating(array: Any) -> Any:
    """The array, or an array of integers or bools as JAX's default float."""
    jax = sys.modules["jax"]
    if array.dtype.name in DTYPES:
        return array
    if not any(jax.numpy.issubdtype(array.dtype, kind) for kind in (jax.numpy.integer, np.bool_)):
        raise TypeError(refused_dtype(array.dtype.name, X))
    return array.astype(float)


def jax_array(array: Any, role: int) -> Any:
    if role == Y:
        raise TypeError("out is a JAX array, which is immutable: call without out=, and use the result")
    if is_jax_tracer(array):
        return jax_operator()
    check_jax_values(array)
    devices = array.sharding.num_devices
    if devices > 1:
        raise BufferError(
            f"the array lies on {devices} devices: expected one; jax.jit and jax.shard_map take it as it is"
        )
    return array if role in (WHERE, INDICES) else jax_floating(array)


def jax_has_64_bits() -> bool:
    return bool(sys.modules["jax"].config.jax_enable_x64)


def check_jax_float64() -> None:
    if not jax_has_64_bits():
        raise TypeError(
            "this gives float64, which JAX cuts to float32 while jax_enable_x64 is off: call "
            "jax.config.update('jax_enable_x64', True), or pass numpy.asarray of the array"
        )


def jax_result(array: Any, given: Any) -> Any:
    """The memory of a NumPy array or a DeviceArray as a JAX array, on the device of the array `given`. It is
    committed to this device if `given` is."""
    jax = sys.modules["jax"]
    if not isinstance(array, np.ndarray):
        return importlib.import_module("jax.dlpack").from_dlpack(array)
    if given.committed:
        return jax.device_put(array, given.sharding)
    made = jax.numpy.asarray(array)
    return made if made.sharding == given.sharding else jax.device_put(made, given.sharding)
