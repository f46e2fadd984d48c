"""The arguments of sample on the CPU: their forms, the results that they ask for, and errors. The tests of
draws are in test_sample_draws.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onsoftmax as ons

NUMBERS = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "seed": 3, "offset": 8}
OTHERS = {"temperature": 3.0, "top_k": 1, "top_p": 0.25, "min_p": 0.5, "seed": 4, "offset": 9}
INTEGERS = "top_k", "seed", "offset"


@pytest.fixture
def logits(rng: np.random.Generator) -> Any:
    return (2 * rng.standard_normal((3, 4, 40))).astype(np.float32)


def everything(logits: Any, **terms: Any) -> Any:
    return ons.sample(logits, return_logprob="filtered", return_valid=True, **NUMBERS | terms)


def same(one: Any, other: Any) -> bool:
    return all(
        type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("name", NUMBERS)
def test_a_parameter_is_a_number_or_an_array(logits: Any, name: str) -> None:
    """A number in any form gives the same. So does an array of this number in each row, except for seeds."""
    number = NUMBERS[name]
    wide, narrow = (np.int64, np.int32) if name in INTEGERS else (np.float64, np.float32)
    right = everything(logits)
    for form in (wide(number), np.array(number, wide), [number], np.array([[number]], wide)):
        assert same(everything(logits, **{name: form}), right)
    each = np.full((3, 4), number, wide)
    of_rows = everything(logits, **{name: each})
    assert same(of_rows, right) == (name != "seed")
    forms = [each.tolist(), np.repeat(each, 2, 0)[::2], np.asfortranarray(each)]
    forms.append(each.astype(each.dtype.newbyteorder("S")))
    forms += [each.astype(kind) for kind in ("int32", "int8", "uint16") if name in INTEGERS]
    assert all(same(everything(logits, **{name: form}), of_rows) for form in forms)
    if name not in INTEGERS:
        small = narrow(number)
        assert same(everything(logits, **{name: np.full((3, 4), small)}), everything(logits, **{name: small}))
        half = everything(logits, **{name: each.astype(np.float16)})
        assert same(half, everything(logits, **{name: np.float16(number)}))


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "seed"])
def test_each_row_has_its_own_number(logits: Any, name: str) -> None:
    """Rows with one of two numbers are as in calls with this number for all rows."""
    first, second = everything(logits), everything(logits, **{name: OTHERS[name]})
    assert not same(first, second)
    takes_second = np.indices((3, 4)).sum(0) % 2 == 1
    mixed = everything(logits, **{name: np.where(takes_second, OTHERS[name], NUMBERS[name])})
    assert same(mixed, [np.where(takes_second, b, a) for a, b in zip(first, second, strict=True)])


def test_a_row_with_a_seed_of_its_own_has_its_token_in_any_batch(logits: Any) -> None:
    seed = np.arange(12).reshape(3, 4)
    rows = everything(logits, seed=seed)
    reverse = everything(logits[::-1, ::-1], seed=seed[::-1, ::-1])
    assert same(rows, [each[::-1, ::-1] for each in reverse])
    alone = everything(logits[1, 2], seed=seed[1, 2:3])
    assert [each[1, 2] for each in rows] == list(alone)


def test_seeds_count_modulo_2_to_the_64(logits: Any) -> None:
    for name in ("seed", "offset"):
        right = everything(logits, **{name: -5})
        for form in (2**64 - 5, np.uint64(2**64 - 5), np.array([2**64 - 5], np.uint64), np.int16(-5)):
            assert same(everything(logits, **{name: form}), right)
        assert not same(everything(logits, **{name: 5}), right)


def test_results_that_are_asked_for(logits: Any) -> None:
    terms: dict[str, Any] = {"seed": 1, "top_k": 3}
    indices = ons.sample(logits, **terms)
    assert isinstance(indices, np.ndarray) and indices.shape == (3, 4) and indices.dtype == np.int64
    in_p = np.take_along_axis(ons.log_softmax(logits), indices[..., None], -1)[..., 0]
    for wanted in (True, np.True_, "unfiltered"):
        found, logprob = ons.sample(logits, return_logprob=wanted, **terms)
        assert np.array_equal(found, indices) and logprob.dtype == np.float32
        np.testing.assert_allclose(logprob, in_p, rtol=1e-5, atol=1e-6)
    _, filtered, valid = ons.sample(logits, return_logprob="filtered", return_valid=True, **terms)
    assert (filtered > in_p).all() and valid.all() and valid.dtype == np.bool_ and valid.shape == (3, 4)
    found, valid = ons.sample(logits, return_valid=True, **terms)
    assert np.array_equal(found, indices) and valid.dtype == np.bool_
    _, logprob = ons.sample(logits.astype(np.float64), return_logprob=True, **terms)
    assert logprob.dtype == np.float64


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes_and_layouts(logits: Any, axis: int) -> None:
    moved = np.moveaxis(logits, -1, axis)
    for form in (moved, np.ascontiguousarray(moved), np.asfortranarray(moved)):
        assert same(everything(form, axis=axis), everything(logits))
    row = everything(logits[0, 0])
    assert [type(each) for each in row] == [np.int64, np.float32, np.bool_]
    one_row = everything(logits[:1, :1])
    assert [each.item() for each in row] == [each.item() for each in one_row]
    empty = everything(logits[:, :0], temperature=np.ones((3, 0)))
    assert [each.shape for each in empty] == 3 * [(3, 0)]
    assert ons.sample([[5, 1], [1, 5]], temperature=0, seed=0).tolist() == [0, 1]


def test_where(logits: Any) -> None:
    where = np.arange(40) % 4 == 1
    indices, logprob, valid = everything(logits, where=where, top_k=0, top_p=1, min_p=0, temperature=9)
    assert (indices % 4 == 1).all() and len(np.unique(indices)) > 3 and valid.all()
    excluded = np.where(where, logits, np.nan)
    again = everything(excluded, where=where, top_k=0, top_p=1, min_p=0, temperature=9)
    assert same(again, (indices, logprob, valid))
    none = everything(logits, where=where & (np.arange(3) > 0)[:, None, None])
    assert none[2].tolist() == [4 * [False], *2 * [4 * [True]]]


WRONG_VALUES = {
    "temperature": [-1, np.nan, np.inf],
    "top_p": [-0.5, 1.5, np.nan],
    "min_p": [-0.5, 1.5, np.nan],
}


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_values_of_arrays_are_not_checked(logits: Any, name: str) -> None:
    """A row with a number out of range is not valid. The others are as without it."""
    for value in WRONG_VALUES[name]:
        numbers = np.full((3, 4), NUMBERS[name])
        right = everything(logits, **{name: numbers})
        numbers[1, 2] = value
        indices, logprob, valid = everything(logits, **{name: numbers})
        assert indices[1, 2] == -1 and np.isnan(logprob[1, 2]) and not valid[1, 2]
        others = np.ones((3, 4), bool)
        others[1, 2] = False
        assert same([each[others] for each in (indices, logprob, valid)], [each[others] for each in right])


def test_a_top_k_that_keeps_all_tokens(logits: Any) -> None:
    right = everything(logits, top_k=0)
    for k in (40, 41, 2**31, 2**63, 10**30, np.full((3, 4), -1), np.full((3, 4), 2**62)):
        assert same(everything(logits, top_k=k), right)


ERRORS: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (TypeError, "seed", {}),
    (ValueError, "temperature is -1: expected a finite number of at least 0", {"temperature": -1}),
    (ValueError, "temperature is nan: expected a finite", {"temperature": float("nan")}),
    (ValueError, "temperature is inf: expected a finite", {"temperature": float("inf")}),
    (ValueError, "temperature is 1000.* expected a finite", {"temperature": 10**400}),
    (ValueError, r"top_p is 1\.5: expected a number from 0 to 1", {"top_p": 1.5}),
    (ValueError, r"top_p is -0\.5: expected a number from 0 to 1", {"top_p": -0.5}),
    (ValueError, "min_p is 2: expected a number from 0 to 1", {"min_p": 2}),
    (ValueError, "top_k is -1: expected an int of at least 0", {"top_k": -1}),
    (ValueError, r"seed is 18446744073709551616: expected an int from -2\^63 to", {"seed": 2**64}),
    (ValueError, r"offset is -9223372036854775809: expected an int from -2\^63", {"offset": -(2**63) - 1}),
    (TypeError, r"top_k is 2\.0: expected an int, or an array of integers", {"top_k": 2.0}),
    (TypeError, "top_k is True: expected an int", {"top_k": True}),
    (TypeError, "top_k is '5': expected an int", {"top_k": "5"}),
    (TypeError, "seed is None: expected an int", {"seed": None}),
    (TypeError, "temperature is 'hot': expected a number, or an array", {"temperature": "hot"}),
    (TypeError, "temperature is True: expected a number", {"temperature": True}),
    (TypeError, "top_p is None: expected a number", {"top_p": None}),
    (TypeError, "top_k has dtype float64: expected integers, int32 or int64", {"top_k": np.ones((3, 4))}),
    (TypeError, "seed has dtype bool: expected integers", {"seed": np.ones((3, 4), bool)}),
    (TypeError, "min_p has dtype complex128: expected real", {"min_p": np.ones((3, 4), complex)}),
    (TypeError, "top_p has dtype bool: expected real numbers", {"top_p": [True]}),
    (TypeError, "temperature is a masked array", {"temperature": np.ma.masked_array([1.0])}),
    (ValueError, r"temperature has shape \(4,\): expected \(3, 4\)", {"temperature": np.ones(4)}),
    (ValueError, r"top_k has shape \(3, 4, 1\): expected \(3, 4\)", {"top_k": np.ones((3, 4, 1), int)}),
    (ValueError, r"seed has shape \(0,\): expected \(3, 4\)", {"seed": np.ones(0, int)}),
    (
        ValueError,
        "filter_apply_order is 'top_p_first': expected 'top_k_first' or 'joint'",
        {"filter_apply_order": "top_p_first"},
    ),
    (ValueError, "return_logprob is 'all': expected a bool, 'unfiltered' or", {"return_logprob": "all"}),
    (ValueError, "return_logprob is None: expected a bool", {"return_logprob": None}),
    (
        ValueError,
        "method is 'online': expected 'auto' or 'invariant', since sample has one",
        {"method": "online"},
    ),
    (ValueError, "stream is given, but the array is on the CPU", {"stream": 1}),
    (ValueError, "num_threads is 0: expected at least 1", {"num_threads": 0}),
    (ValueError, "where has shape", {"where": np.ones(3, bool)}),
    (TypeError, "where has dtype float64: expected a mask of bool", {"where": np.ones(40)}),
    (IndexError, "axis 3 is out of bounds", {"axis": 3}),
    (TypeError, r"axis is \(0, 1\): expected an int", {"axis": (0, 1)}),
]


@pytest.mark.parametrize("error, words, terms", ERRORS, ids=[words for _, words, _ in ERRORS])
def test_errors(logits: Any, error: type[Exception], words: str, terms: dict[str, Any]) -> None:
    with pytest.raises(error, match=words):
        ons.sample(logits, **({"seed": 0} | terms if terms else {}))


def test_logits_without_tokens() -> None:
    for shape, words in (((), r"logits has shape \(\)"), ((3, 0), "logits has rows of length 0")):
        with pytest.raises(ValueError, match=words):
            ons.sample(np.ones(shape), seed=0)
