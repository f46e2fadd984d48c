"""Arguments of the wrong type: the error names the argument, what was given and what was expected."""

import numpy as np
import pytest

import onsoftmax as ons

X = np.ones((3, 6), np.float32)
TARGET = np.arange(3)
CALLS = {
    "cross_entropy": lambda **given: ons.cross_entropy(X, TARGET, **given),
    "cross_entropy_with_grad": lambda **given: ons.cross_entropy_with_grad(X, TARGET, **given),
    "logprob": lambda **given: ons.logprob(X, TARGET, **given),
    "kl_divergence": lambda **given: ons.kl_divergence(X, X, **given),
    "js_divergence": lambda **given: ons.js_divergence(X, X, **given),
    "route": lambda **given: ons.route(X, 2, **given),
}


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        ("cross_entropy", {"label_smoothing": "a"}, "a number from 0 to 1"),
        ("cross_entropy", {"z_loss": None}, "a finite number"),
        ("cross_entropy_with_grad", {"ignore_index": 1.5}, "an int"),
        ("cross_entropy", {"axis": (0,)}, "an int"),
        ("logprob", {"topk": "a"}, "an int"),
        ("kl_divergence", {"axis": "a"}, "an int"),
        ("js_divergence", {"beta": "a"}, "a number between 0 and 1"),
        ("route", {"groups": 2.0}, "an int"),
        ("route", {"top_groups": "a"}, "an int"),
        ("route", {"scale": "a"}, "a number"),
    ],
)
def test_the_error_names_the_argument(function, given, expected):
    [(name, value)] = given.items()
    with pytest.raises(TypeError) as error:
        CALLS[function](**given)
    assert str(error.value) == f"{name} is {value!r}: expected {expected}"


def test_an_ignore_index_of_more_than_64_bits():
    with pytest.raises(
        ValueError, match=r"ignore_index is 1180591620717411303424: expected an int from -2\^63"
    ):
        ons.cross_entropy(X, TARGET, ignore_index=2**70)
