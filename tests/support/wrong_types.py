"""Arguments of the wrong type, for NumPy, torch and JAX. The error names the argument, what was given and
what was expected."""

import pytest

# (function, argument, value, what is expected)
WRONG = [
    ("cross_entropy", "label_smoothing", "a", "a number from 0 to 1"),
    ("cross_entropy", "z_loss", None, "a finite number"),
    ("cross_entropy", "ignore_index", 1.5, "an int"),
    ("cross_entropy", "axis", (0,), "an int"),
    ("logprob", "topk", "a", "an int"),
    ("kl_divergence", "axis", "a", "an int"),
    ("js_divergence", "beta", "a", "a number between 0 and 1"),
    ("route", "groups", 2.0, "an int"),
    ("route", "top_groups", "a", "an int"),
    ("route", "scale", "a", "a number"),
    ("sample", "axis", "a", "an int"),
]


def check_wrong_types(module, x, target):
    """Makes each call with the functions that the module has."""
    more = {"kl_divergence": [x], "js_divergence": [x], "route": [2], "sample": []}
    for function, name, value, expected in WRONG:
        seed = {"seed": 1} if function == "sample" else {}
        with pytest.raises(TypeError) as error:
            getattr(module, function)(x, *more.get(function, [target]), **{name: value}, **seed)
        assert str(error.value) == f"{name} is {value!r}: expected {expected}", function
