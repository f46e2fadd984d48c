"""Checks what the GPU's handler asks of XLA and of CUDA. test_cuda_stand_in.py runs them on a build with
stand_in.c."""

import ctypes

import numpy as np

import onsoftmax as ons
from onsoftmax import _core

STAND_IN = ctypes.CDLL(_core.__file__)
SIZE, POINTER, INT, LONG = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
CALL = ctypes.CFUNCTYPE(POINTER, POINTER)
X = np.linspace(-4, 4, 60).reshape(3, 4, 5).astype(np.float32)
STREAM, GPU = 1234, 1
DTYPES = {"float32": 11, "float64": 12, "bool": 1, "int32": 4, "int64": 5, "uint32": 8}


def struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": [("size", SIZE), ("extensions", POINTER), *fields]})


Buffer = struct("Buffer", ("dtype", INT), ("data", POINTER), ("dims", LONG), ("shape", POINTER))
Buffers = struct("Buffers", ("count", LONG), ("types", POINTER), ("buffers", POINTER))
Attributes = struct(
    "Attributes", ("count", LONG), ("types", POINTER), ("names", POINTER), ("values", POINTER)
)
Version = struct("Version", ("major", INT), ("minor", INT))
Api = struct("Api", ("version", Version), ("internal", POINTER), *((f"call{i}", POINTER) for i in range(11)))
Frame = struct(
    "Frame",
    ("api", POINTER),
    ("context", POINTER),
    ("stage", INT),
    ("arguments", Buffers),
    ("results", Buffers),
    ("attributes", Attributes),
)
Asked = struct("Asked", ("context", POINTER), ("stream", POINTER))
Error = struct("Error", ("text", ctypes.c_char_p), ("code", INT))
Memory = struct("Memory", ("context", POINTER), ("bytes", SIZE), ("alignment", SIZE), ("memory", POINTER))
Freed = struct("Freed", ("context", POINTER), ("bytes", SIZE), ("memory", POINTER))


class Answer(ctypes.Structure):
    _fields_ = (("size", SIZE), ("version", Version), ("traits", ctypes.c_uint32))


class XLA:
    """The arguments that a handler gets, and the requests that it makes."""

    def __init__(self, refuses=False):
        self.errors, self.live, self.allocated, self.refuses = [], {}, 0, refuses
        self.calls = {0: self.make_error, 4: self.get_stream, 9: self.allocate, 10: self.free}
        self.kept = {place: CALL(call) for place, call in self.calls.items()}
        self.api = Api(ctypes.sizeof(Api), None, Version(ctypes.sizeof(Version), None, 0, 3))
        for place, call in self.kept.items():
            setattr(self.api, f"call{place}", ctypes.cast(call, POINTER).value)

    def make_error(self, given):
        self.errors.append(Error.from_address(given).text.decode())
        return 1

    def get_stream(self, given):
        Asked.from_address(given).stream = STREAM
        return None

    def allocate(self, given):
        asked = Memory.from_address(given)
        assert asked.bytes > 0 and asked.alignment == 16
        if self.refuses:
            return 77
        memory = ctypes.create_string_buffer(asked.bytes)
        asked.memory = ctypes.addressof(memory)
        self.live[asked.memory] = memory
        self.allocated += 1
        return None

    def free(self, given):
        del self.live[Freed.from_address(given).memory]
        return None

    def call(self, arguments, results, stage=3, extensions=None, **attributes):
        """Calls the handler. Returns None, or an error's number."""
        keep = []

        def array_of(kind, values):
            keep.append((kind * len(values))(*values))
            return ctypes.addressof(keep[-1])

        def at(thing):
            keep.append(thing)
            return ctypes.addressof(thing)

        def buffers(arrays):
            made = []
            for array in arrays:
                shape = array_of(LONG, array.shape)
                made.append(Buffer(0, None, DTYPES[array.dtype.name], array.ctypes.data, array.ndim, shape))
            pointers = array_of(POINTER, [at(each) for each in made])
            return Buffers(0, None, len(made), array_of(INT, [1] * len(made)), pointers)

        def text(value):
            keep.append(ctypes.create_string_buffer(value.encode()))
            return array_of(SIZE, [ctypes.addressof(keep[-1]), len(value)])

        given = {"operands": "x", "axes": np.int64([-1]), "method": "auto", "scale": np.float64(1)}
        given |= {"num_threads": np.int32(1), "flags": np.int32(0), **attributes}
        types, values = [], []
        for value in given.values():
            if isinstance(value, str):
                types.append(4)
                values.append(text(value))
            elif value.ndim:
                keep.append(value)
                types.append(1)
                values.append(array_of(SIZE, [5, value.size, value.ctypes.data]))
            else:
                keep.append(np.array(value))
                types.append(3)
                values.append(array_of(SIZE, [DTYPES[value.dtype.name], keep[-1].ctypes.data]))
        names = array_of(POINTER, [text(name) for name in given])
        frame = Frame(0, extensions, at(self.api), None, stage, buffers(arguments), buffers(results))
        frame.attributes = Attributes(
            0, None, len(given), array_of(INT, types), names, array_of(POINTER, values)
        )
        return HANDLER(ctypes.addressof(frame))


def asked(name, kind):
    return kind.in_dll(STAND_IN, f"stand_in_{name}")


ctypes.pythonapi.PyCapsule_GetPointer.restype = POINTER
ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
HANDLER = CALL(ctypes.pythonapi.PyCapsule_GetPointer(_core.xla_target("CUDA"), b"xla._CUSTOM_CALL_TARGET"))


def check_the_stream_and_the_gpu():
    asked("gpu_of_memory", INT).value = GPU
    for operation in ("softmax", "log_softmax"):
        xla, y = XLA(), np.empty_like(X)
        assert xla.call([X], [y], operation=operation) is None
        assert np.array_equal(y, getattr(ons, operation)(X))
        assert asked("stream", POINTER).value == STREAM and asked("gpu", INT).value == GPU
    xla, y = XLA(), np.empty((3, 1, 5), np.float32)
    scale = np.full((1, 1, 5), 0.5, np.float32)
    assert xla.call([X, X > 0, scale], [y], operation="logsumexp", operands="xws", axes=np.int64([-2])) == 1
    assert xla.errors  # the stand-in computes on the CPU, which takes only a float64 scale
    wide = scale.astype(np.float64)
    assert xla.call([X, X > 0, wide], [y], operation="logsumexp", operands="xws", axes=np.int64([-2])) is None
    assert np.array_equal(y, ons.logsumexp(X, 1, where=X > 0, scale=wide[0], keepdims=True))


def check_scratch():
    """Scratch memory is XLA's, and is given back after the launch. XLA's own error goes back as it is."""
    x = np.linspace(-3, 3, 100_000, dtype=np.float32)[None]
    xla, y = XLA(), np.empty_like(x)
    before = asked("workspaces", ctypes.c_long).value
    assert xla.call([x], [y], operation="softmax", method="split") is None
    assert xla.allocated == 1 and not xla.live and asked("workspaces", ctypes.c_long).value == before + 1
    assert np.allclose(y, ons.softmax(x))
    assert XLA(refuses=True).call([x], [y], operation="softmax", method="split") == 77
    assert xla.call([x], [y], operation="softmax", method="fused_warp") == 1
    assert "fused_warp" in xla.errors[-1] and "too long" in xla.errors[-1]


def check_losses():
    """One kernel for rows that are held, or several parts. In both cases there is one scratch."""
    target = (np.arange(12, dtype=np.int32) % 5).reshape(3, 4, 1)
    weight = np.linspace(0.5, 2, 5, dtype=np.float32)
    for parts, smoothing in ((1, 0.0), (5, 0.1)):
        xla, gradient = XLA(), np.empty_like(X)
        loss, lse = np.empty((2, 3, 4, 1), np.float32)
        terms = {"label_smoothing": smoothing, "z_loss": 0.1, "ignore_index": 2}
        attributes = {name: np.asarray(value)[()] for name, value in terms.items()}
        runs = asked("runs", ctypes.c_long).value
        given = {"operation": "cross_entropy_with_grad", "operands": "xtc", **attributes}
        assert xla.call([X, target, weight], [gradient, loss, lse], **given) is None
        assert asked("runs", ctypes.c_long).value == runs + parts
        assert xla.allocated == 1 and not xla.live and asked("stream", POINTER).value == STREAM
        expected = ons.cross_entropy_with_grad(
            X, target[..., 0], weight=weight, reduction="none", return_lse=True, **terms
        )
        for made, right in zip((loss, gradient, lse), expected, strict=True):
            assert np.array_equal(made.reshape(right.shape), right)
        assert XLA(refuses=True).call([X, target, weight], [gradient, loss, lse], **given) == 77


def check_log_probabilities():
    """One run for all results, and one for the gradient. Integers and moments come as words."""
    index = (np.arange(12, dtype=np.int32) % 5).reshape(3, 4, 1, 1)
    index[2, 3] = 5  # out of range
    results = [np.empty((3, 4, 1, 1), np.float32) for _ in range(3)]
    argmax, rank = np.empty((2, 3, 4, 1, 2), np.uint32)
    moments = np.empty(12 * 6, np.uint32)
    runs = asked("runs", ctypes.c_long).value
    made = [*results, argmax, rank, moments]
    xla, given = XLA(), {"operation": "logprob", "operands": "xt", "flags": np.int32(8 + 16 + 32 + 64 + 128)}
    assert xla.call([X, index], made, **given) is None
    assert xla.allocated == 0 and asked("stream", POINTER).value == STREAM
    valid = index[..., 0, 0].clip(0, 4)
    expected = ons.logprob(X, valid, entropy=True, lse=True, argmax=True, rank=True)
    expected.logprob[2, 3], expected.rank[2, 3] = np.nan, -1
    for found, right in zip(
        (*results, argmax.view(np.int64), rank.view(np.int64)), expected[:5], strict=True
    ):
        assert np.array_equal(found.reshape(3, 4), right, equal_nan=True)
    gradient, grads = np.empty_like(X), [np.full((3, 4, 1, 1), by, np.float32) for by in (1, 2, 3)]
    given = {"operation": "logprob_backward", "operands": "xtpghl"}
    assert xla.call([X, index, moments, *grads], [gradient], **given) is None
    assert asked("runs", ctypes.c_long).value == runs + 2
    right = _core.logprob_backward(
        X, valid, -1, moments.view(np.float64), *(each[..., 0, 0] for each in grads), None, None
    )
    right[2, 3] = np.nan
    assert np.array_equal(gradient, right, equal_nan=True)
    empty, index = np.empty((2, 0), np.float32), np.zeros((2, 1, 1), np.int32)
    chosen = np.zeros((2, 1, 1), np.float32)
    assert XLA().call([empty, index], [chosen], operation="logprob", operands="xt") is None
    assert np.isnan(chosen).all()


def check_batch_invariant():
    """The setting counts when a compiled program runs."""

    def taken(**attributes):
        x = np.linspace(-3, 3, 16384, dtype=np.float32)[None]
        assert XLA().call([x], [np.empty_like(x)], operation="softmax", **attributes) is None
        return asked("method", ctypes.c_char_p).value.decode()

    assert taken() == "cluster" and taken(method="invariant") == "fused_block"
    before = ons.set_batch_invariant(True)
    try:
        assert taken() == "fused_block" and taken(method="cluster") == "cluster"
    finally:
        ons.set_batch_invariant(before)
    assert taken() == "cluster"


def check_states_of_parts():
    states = np.empty((3, 4, 1, 2, 10), np.uint32)
    for part in range(2):
        made = np.empty((3, 4, 1, 10), np.uint32)
        half = np.ascontiguousarray(X[..., 3 * part : 3 * part + 3])
        assert XLA().call([half], [made], operation="normalizer", flags=np.int32(4)) is None
        states[..., part, :] = made
    pairs = np.empty((3, 4, 1, 4), np.uint32)
    assert XLA().call([states], [pairs], operation="merge") is None
    assert asked("stream", POINTER).value == STREAM
    right = _core.merge(_core.sums(X)[None], 0, gives="pair")
    assert np.array_equal(pairs.view(np.float64)[:, :, 0], right)
    y = np.empty_like(X)
    assert XLA().call([X, pairs], [y], operation="softmax", operands="xp") is None
    assert np.array_equal(y, _core.finish(X, pairs=right))


def check_other_frames():
    xla, y = XLA(), np.zeros_like(X)
    for stage in (0, 1, 2):
        assert xla.call([X], [y], stage=stage, operation="softmax") is None and not y.any()
    answer = Answer(ctypes.sizeof(Answer))
    question = (SIZE * 4)(32, 1, 0, ctypes.addressof(answer))
    assert xla.call([X], [y], extensions=ctypes.addressof(question), operation="softmax") is None
    assert (answer.version.major, answer.version.minor, answer.traits) == (0, 1, 0) and not y.any()
    xla.api.version.major = 1
    assert xla.call([X], [y], operation="softmax") == 1 and "version" in xla.errors[-1]
    empty = np.empty((3, 0), np.float32)
    assert XLA().call([empty], [empty], operation="softmax") is None


check_the_stream_and_the_gpu()
check_scratch()
check_losses()
check_log_probabilities()
check_batch_invariant()
check_states_of_parts()
check_other_frames()
print("done")
