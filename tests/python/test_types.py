"""Type hints: a user's code under mypy --strict, and stubs that agree with the functions."""

import ast
import inspect
import os

import pytest
import stubs
from support import PACKAGE_PARENT, SANITIZED, run_python

import onsoftmax as ons
from onsoftmax import _core

MODULES = ("dask", "distributed", "jax", "torch")
USE_MODULES = f"""
import sys
import onsoftmax as ons
assert not sys.modules.keys() & {{"dask", "jax", "torch"}}
sys.modules |= dict.fromkeys(["dask", "jax", "torch"])  # as if they were not installed
for name in {MODULES}:
    try:
        getattr(ons, name)
    except ImportError as error:
        print(error)
"""
needs_no_sanitizer = pytest.mark.skipif(SANITIZED, reason="mypy runs, and nothing of ours")

USER = """
import numpy as np
from numpy.typing import NDArray

import onsoftmax as ons


def attention(scores: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    y: NDArray[np.float32] = ons.softmax(scores, axis=-1, where=mask, scale=0.125, method="online")
    return ons.softmax(y, (0, 1), out=y, num_threads=2)


first: float = ons.softmax([1.0, 2.0])[0]
names: list[str] = [method.name for method in ons.methods("cpu")]
reason: str = ons.plan((3, 4), dtype=np.float32).reason
threads: int = ons.get_num_threads()
ons.set_num_threads(threads)
before: bool = ons.set_batch_invariant(ons.get_batch_invariant())
state: NDArray[np.float64] = ons.normalizer(np.zeros(3), method="invariant").packed
config = ons.show_config()


def on_a_gpu(array: ons.DeviceArray, stream: object) -> NDArray[np.float32]:
    return ons.softmax(array, stream=stream, out=array).copy_to_host()


registers: int | None = ons.plan((3, 4), device="cuda").registers
seconds: float | None = ons.plan((3, 4)).seconds(1e10)
lengths: list[int] = [cliff.N for cliff in ons.plan((3, 4)).cliffs()]
trace: ons.Trace = ons.explain(np.zeros(3), tile=2, method="split", parts=2, dtype="float32")
d: list[float | None] = [step.d for step in trace.steps]
"""
WRONG = """
import numpy as np

import onsoftmax as ons

ons.softmax(np.zeros(3), method=7)
ons.softmax(np.zeros(3), axis="last")
ons.softmax(np.zeros(3), axes=0)
ons.softmax()
ons.set_num_threads("two")
ons.set_batch_invariant(1)
reason: int = ons.plan((3, 4)).reason
"""


@pytest.fixture(scope="module")
def run_mypy(tmp_path_factory):
    """A function that runs mypy on a text. Its cache of NumPy's types lasts from run to run."""
    pytest.importorskip("mypy")
    pytest.importorskip("numpy", "1.24")
    folder = tmp_path_factory.mktemp("mypy")

    def run(text):
        (folder / "user.py").write_text(text)
        arguments = ["--strict", "--cache-dir", str(folder / "cache"), str(folder / "user.py")]
        installed = "site-packages" in PACKAGE_PARENT
        return run_python(["-m", "mypy", *arguments], MYPYPATH=None if installed else PACKAGE_PARENT)

    return run


@needs_no_sanitizer
def test_users_code_passes_mypy(run_mypy):
    done = run_mypy(USER)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_no_sanitizer
def test_mypy_finds_mistakes(run_mypy):
    done = run_mypy(WRONG)
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert lines == {6, 7, 8, 9, 10, 11, 12}, done.stdout


@needs_no_sanitizer
def test_the_examples(run_mypy):
    """Checks the installed package. .ci/run also has pyright read the examples."""
    pytest.importorskip("typing_extensions")
    with open(os.path.join(os.path.dirname(__file__), "typing_examples.py")) as file:
        done = run_mypy(file.read())
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed():
    assert os.path.exists(os.path.join(os.path.dirname(ons.__file__), "py.typed"))


def stub():
    return ast.parse(stubs.read()).body


def stub_functions():
    """(name, definition) of each function, and of each overload."""
    return [(node.name, node) for node in stub() if isinstance(node, ast.FunctionDef)]


def stub_classes():
    return [node for node in stub() if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


@pytest.mark.parametrize("name, node", stub_functions(), ids=lambda value: getattr(value, "lineno", value))
def test_stubs_agree_with_the_functions(name, node):
    signature = inspect.signature(getattr(_core, name))
    kinds = {kind: [] for kind in inspect._ParameterKind}
    for parameter in signature.parameters.values():
        kinds[parameter.kind].append(parameter.name)
    assert [a.arg for a in node.args.posonlyargs if a.arg != "self"] == kinds[
        inspect.Parameter.POSITIONAL_ONLY
    ]
    assert [a.arg for a in node.args.args] == kinds[inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert [a.arg for a in node.args.kwonlyargs] == kinds[inspect.Parameter.KEYWORD_ONLY]
    stated = dict(zip(kinds[inspect.Parameter.KEYWORD_ONLY], node.args.kw_defaults, strict=True))
    for name, default in stated.items():
        if isinstance(default, ast.Constant) and default.value is not ...:
            assert signature.parameters[name].default == default.value, name


def test_the_stub_has_the_docstrings_and_overloads_that_it_should():
    assert stubs.current() == stubs.read(), "run python tests/support/stubs.py"


def test_modules_for_other_libraries_are_attributes():
    """They are imported at their first use. If a library is missing, the error says how to install it."""
    done = run_python(["-c", USE_MODULES])
    assert done.returncode == 0, done.stderr
    messages = done.stdout.splitlines()
    assert len(messages) == 4, done.stdout
    for message, name, library in zip(
        messages, MODULES, ("dask[array]", "torch", "jax", "torch"), strict=True
    ):
        assert (
            message.startswith(f"onsoftmax.{name} needs ")
            and "pip install " in message
            and library in message
        )


def test_dir_is_what_is_public():
    modules = {name for name in MODULES if name in vars(ons)}
    assert {*dir(ons)} == {*ons.__all__, "__version__"} | modules
    with pytest.raises(AttributeError, match="module 'onsoftmax' has no attribute 'sofmax'"):
        ons.sofmax  # noqa: B018


def test_every_public_function_has_a_stub_and_a_docstring():
    public = {name for name in dir(_core) if not name.startswith("_") and not name.isupper()}
    assert public == {name for name, _ in stub_functions()} | {node.name for node in stub_classes()}
    for node in stub_classes():
        cls = getattr(_core, node.name)
        stated = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
        own = {
            name for name, value in vars(cls).items() if not isinstance(value, str) and inspect.getdoc(value)
        }
        assert stated == own - {"__repr__"}
    for name in ons.__all__:
        assert inspect.getdoc(getattr(ons, name)), name
    for section in ("Parameters", "Returns", "Raises", "References", "Examples"):
        assert f"\n{section}\n---" in ons.softmax.__doc__
    for name in inspect.signature(ons.softmax).parameters:
        assert f"\n{name} : " in ons.softmax.__doc__, name


def test_every_constant_has_a_stub():
    constants = {name for name in dir(_core) if name.isupper()}
    stated = {node.target.id for node in stub() if isinstance(node, ast.AnnAssign)}
    assert constants == {name for name in stated if name.isupper()}


def test_docstring_examples():
    import doctest

    runner, parser = doctest.DocTestRunner(), doctest.DocTestParser()
    public = {"onsoftmax": ons} | {name: getattr(ons, name) for name in ons.__all__}
    tried = {
        name: runner.run(parser.get_doctest(each.__doc__ or "", {"ons": ons}, name, None, 0)).attempted
        for name, each in public.items()
    }
    assert runner.failures == 0
    assert all(tried[name] for name in ("softmax", "cross_entropy", "logprob", "explain"))
