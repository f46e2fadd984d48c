"""Arguments of the wrong type: the error names the argument, what was given and what was expected."""

import numpy as np
import pytest
from wrong_types import check_wrong_types

import onsoftmax as ons

X = np.ones((3, 6), np.float32)
TARGET = np.arange(3)


def test_numpy():
    check_wrong_types(ons, X, TARGET)


def test_torch():
    torch, module = pytest.importorskip("torch"), pytest.importorskip("onsoftmax.torch")
    x, target = torch.tensor(X), torch.tensor(TARGET)
    for functions, logits in ((ons, x), (ons, x.clone().requires_grad_()), (module, x)):
        check_wrong_types(functions, logits, target)


def test_jax():
    pytest.importorskip("jax")
    module = pytest.importorskip("onsoftmax.jax")
    for functions in (ons, module):
        check_wrong_types(functions, module.jnp.asarray(X), module.jnp.asarray(TARGET))


@pytest.mark.parametrize(
    ("number", "error", "text"),
    [
        (1.5, TypeError, "is 1.5: expected an int"),
        (2**70, ValueError, rf"is {2**70}: expected an int from -2\^63"),
    ],
)
def test_an_ignore_index_that_is_no_int64(number, error, text):
    with pytest.raises(error, match=f"ignore_index {text}"):
        ons.cross_entropy_with_grad(X, TARGET, ignore_index=number)
