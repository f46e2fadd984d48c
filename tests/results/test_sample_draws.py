"""sample on the CPU: tokens, log-probabilities and validity by the definition, and shares of many draws."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import oracle
import pytest
import sample_checks
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from sample_checks import check_sample, expected, philox, random_case
from sample_search import search
from scipy import stats
from support import DTYPES, NARROW_DTYPES, lay_out, same_bits

import onsoftmax as ons

# ------- the definition itself


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_known_answers(counter: list[int], key: list[int], wanted: str) -> None:
    """Philox gives the known answers of Random123, its authors' library."""
    assert " ".join(f"{word:08x}" for word in philox(counter, key)) == wanted


def test_the_definition_by_hand() -> None:
    """Probabilities of 0.4, 0.3, 0.2 and 0.1, in another order, with a random number just below each
    boundary."""
    p = np.array([0.2, 0.4, 0.1, 0.3])
    for terms, tokens in (
        ({}, [0, 1, 2, 3]),
        ({"top_k": 3}, [1, 3, 0]),
        ({"top_p": 0.65}, [1, 3]),
        ({"top_k": 2, "top_p": 0.55}, [1]),
        ({"top_k": 2, "top_p": 0.55, "joint": True}, [1, 3]),
        ({"min_p": 0.45}, [1, 3, 0]),
        ({"top_k": 3, "top_p": 0.99, "min_p": 0.7}, [1, 3]),
        ({"temperature": 0.0}, [1]),
    ):
        bounds = p[tokens].cumsum() / p[tokens].sum()
        u = np.concatenate([bounds - 1e-7, bounds[:-1] + 1e-7])
        draws = expected(np.log(np.tile(p, (len(u), 1))), u, **terms)
        found = np.take_along_axis(draws.order, draws.rank[:, None], -1)[:, 0]
        assert found.tolist() == tokens + tokens[1:], terms
        assert (draws.kept == len(tokens)).all() and (draws.first == draws.last).all()


# ------- random calls


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_calls(seed: int) -> None:
    logits, terms = random_case(seed)
    check_sample(logits, ons.sample(logits, **terms), **terms)


@settings(max_examples=200, deadline=None)
@given(
    npst.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        npst.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=9),
        elements=st.floats(-8, 8, width=16) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0]),
    ),
    st.data(),
)
def test_small_rows(logits: np.ndarray, data: Any) -> None:
    share = st.floats(0, 1, width=32)
    terms = {
        "seed": data.draw(st.integers(0, 2**64 - 1)),
        "offset": data.draw(st.integers(0, 2**63 - 1)),
        "temperature": data.draw(st.sampled_from([0.0, 1.0]) | st.floats(0.125, 100)),
        "top_k": data.draw(st.integers(0, 10)),
        "top_p": data.draw(share),
        "min_p": data.draw(share),
        "where": data.draw(st.none() | npst.arrays(np.bool_, logits.shape)),
        "filter_apply_order": data.draw(st.sampled_from(["top_k_first", "joint"])),
        "return_logprob": data.draw(st.sampled_from(["unfiltered", "filtered"])),
        "return_valid": True,
    }
    check_sample(logits, ons.sample(logits, **terms), **terms)


def test_a_search_finds_wrong_tokens_and_logprobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another token in one row of a call is found, and so are log-probabilities that are a little off."""
    right = search(3000, 0, "cpu")
    assert right["rows"] == 3000 and right["cases"] == 30 and right["wrong"] == []
    sample = ons.sample

    def with_another_token(logits: np.ndarray, **terms: Any) -> Any:
        found = sample(logits, **terms)
        indices = found[0] if isinstance(found, tuple) else found
        indices[-1] = (indices[-1] + 1) % logits.shape[-1] if logits.shape[-1] > 1 else 1
        return found

    def with_other_logprobs(logits: np.ndarray, **terms: Any) -> Any:
        found = sample(logits, **terms)
        if not terms["return_logprob"]:
            return found
        wide = found[1].dtype == np.float64
        return found[0], found[1] - (1e-10 if wide else 1e-4), *found[2:]

    for spoiled, least in ((with_another_token, 9), (with_other_logprobs, 4)):
        monkeypatch.setattr(ons, "sample", spoiled)
        assert len(search(1000, 0, "cpu")["wrong"]) >= least


# ------- the shares of many draws

FILTERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"top_k": 10},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"top_k": 20, "top_p": 0.7},
    {"top_k": 20, "top_p": 0.7, "filter_apply_order": "joint"},
    {"top_k": 25, "min_p": 0.02, "temperature": 1.5},
    {"top_k": 12, "top_p": 0.9, "min_p": 0.05, "temperature": 0.8},
]


def shares(logits: np.ndarray, terms: dict[str, Any]) -> np.ndarray:
    """The exact probability of each token of a row. The filters are applied token by token."""
    terms = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **terms}
    p = np.asarray(oracle.softmax(logits.astype(np.float64) / terms["temperature"]), np.float64)
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    listed = order[: terms["top_k"]] if terms["top_k"] else order
    enough = terms["top_p"] * (1 if terms.get("filter_apply_order") == "joint" else p[listed].sum())
    kept = [
        i
        for before, i in enumerate(listed)
        if (terms["top_p"] == 1 or p[order[:before]].sum() < enough) and p[i] >= terms["min_p"] * p.max()
    ]
    share = np.zeros(len(p))
    share[kept] = p[kept] / p[kept].sum()
    return share


def is_likely(tokens: np.ndarray, share: np.ndarray) -> bool:
    """A chi-squared test. Tokens with less than ten expected draws count as one."""
    counts = np.bincount(tokens, minlength=len(share))
    assert len(counts) == len(share) and not counts[share == 0].any()
    wanted = share * len(tokens)
    common = wanted >= 10
    if wanted[~common].sum() >= 10:
        counts, wanted = (np.append(each[common], each[~common].sum()) for each in (counts, wanted))
    else:
        counts, wanted = counts[common], wanted[common]
    statistic = ((counts - wanted) ** 2 / wanted).sum()
    return bool(stats.chi2.sf(statistic, max(len(wanted) - 1, 1)) > 1e-4)


@pytest.mark.parametrize("N", [32, 1000])
@pytest.mark.parametrize("terms", FILTERS, ids=str)
def test_draws_have_the_shares_of_the_distribution(N: int, terms: dict[str, Any]) -> None:
    """10^5 draws: by the row, by the offset, and by a seed for each row."""
    draws = 10**5 if N == 32 else 2 * 10**4
    row = (1.5 * np.random.default_rng(3).standard_normal(N)).astype(np.float32)
    logits, share = np.tile(row, (draws, 1)), shares(row, terms)
    for random in (
        {"seed": 1},
        {"seed": 1, "offset": np.arange(draws)},
        {"seed": np.arange(draws)},
        {"seed": np.zeros(draws, np.int64), "offset": np.arange(draws, dtype=np.int32)},
    ):
        assert is_likely(ons.sample(logits, **terms, **random), share), random.keys()


def test_wrong_shares_are_unlikely() -> None:
    row = (1.5 * np.random.default_rng(3).standard_normal(32)).astype(np.float32)
    tokens = ons.sample(np.tile(row, (10**5, 1)), seed=1)
    assert is_likely(tokens, shares(row, {}))
    assert not is_likely(tokens, shares(row, {"temperature": 0.97}))
    with pytest.raises(AssertionError):
        is_likely(tokens, shares(row, {"top_k": 31}))


def test_draws_of_neighbours_do_not_depend_on_each_other() -> None:
    """Pairs of draws have the shares of two independent draws: next rows, next offsets and next seeds."""
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    share = np.outer(np.exp(row), np.exp(row)).ravel().astype(np.float64)
    half = 50_000
    logits = np.tile(row, (2 * half, 1))
    for random in (
        {"seed": 5},
        {"seed": np.arange(2 * half)},
        {"seed": np.zeros(2 * half, np.int64), "offset": np.arange(2 * half)},
    ):
        pairs = ons.sample(logits, **random).reshape(half, 2)
        assert is_likely(pairs @ [4, 1], share), random.keys()


# ------- which random number a row has


@pytest.mark.parametrize("terms", FILTERS[1:], ids=str)
def test_a_row_with_its_own_seed_has_its_token_in_any_batch(terms: dict[str, Any]) -> None:
    rng = np.random.default_rng(6)
    logits = (2 * rng.standard_normal((60, 700))).astype(np.float32)
    seeds, offsets = rng.integers(0, 2**63, 60), rng.integers(0, 2**31, 60)
    tokens = ons.sample(logits, seed=seeds, offset=offsets, **terms)
    for rows in (slice(0, 1), slice(17, 18), slice(59, 60), slice(3, 50), slice(None, None, -1)):
        some = ons.sample(logits[rows], seed=seeds[rows], offset=offsets[rows], **terms)
        assert (some == tokens[rows]).all()
    for threads in (1, 2, 3, 7):
        again = ons.sample(logits, seed=seeds, offset=offsets, num_threads=threads, **terms)
        assert (again == tokens).all()
    for method in ("auto", "invariant"):
        again = ons.sample(logits, seed=seeds, offset=offsets, method=method, **terms)
        assert (again == tokens).all()
    for laid in (
        np.asfortranarray(logits),
        lay_out(logits, (1, 0), (2, -1)),
        lay_out(logits, (0, 1), (-3, 1), 1),
    ):
        assert (ons.sample(laid, seed=seeds, offset=offsets, **terms) == tokens).all()
    of_columns = ons.sample(logits.T.copy(), seed=seeds, offset=offsets, axis=0, **terms)
    assert (of_columns == tokens).all()
    cube = logits.reshape(6, 10, 700)
    shaped = ons.sample(cube, seed=seeds.reshape(6, 10), offset=offsets.reshape(6, 10), **terms)
    assert (shaped.reshape(-1) == tokens).all()


def test_other_rows_do_not_move_the_end_of_top_p() -> None:
    """top_p is a share of the whole row, however many tokens other rows of the batch let a list have."""
    x = np.random.default_rng(0).standard_normal((300, 6)).astype(np.float32)
    p = np.sort(ons.softmax(x))[:, ::-1].astype(np.float64)
    for near in (-2e-7, -1e-7, 0, 1e-7):
        terms = {"filter_apply_order": "joint", "return_logprob": "filtered", "top_p": p[:, 0] + near}
        both = np.repeat(terms["top_p"], 2)
        alone = ons.sample(x, seed=1, top_k=[2] * 300, **terms)
        terms["top_p"] = both
        mixed = ons.sample(np.repeat(x, 2, 0), seed=1, top_k=[2, 0] * 300, **terms)
        kept_one = [logprob == 0 for logprob in (alone[1], mixed[1][::2])]
        assert np.array_equal(*kept_one) and 0 < kept_one[0].mean() <= 1


def test_with_one_seed_the_number_of_a_row_counts() -> None:
    """Rows count in the order of the indices, in any memory order."""
    logits = np.zeros((4, 5, 6, 100), np.float32)
    tokens = ons.sample(logits, seed=3)
    check_sample(logits, tokens, seed=3)
    assert len({*tokens.ravel().tolist()}) > 50
    for permutation in itertools.permutations(range(4)):
        valid: Any
        again, valid = ons.sample(lay_out(logits, permutation), seed=3, return_valid=True)
        assert (again == tokens).all() and valid.all()
    assert (ons.sample(logits, seed=np.array(3)) == tokens).all()
    assert (ons.sample(logits, seed=np.array([3])) == tokens).all()
    assert (ons.sample(logits.reshape(120, 100), seed=3) == tokens.reshape(-1)).all()
    assert (ons.sample(logits[:2], seed=3) == tokens[:2]).all()
    assert (ons.sample(logits, seed=np.full((4, 5, 6), 3)) == tokens[0, 0, 0]).all()
    assert ons.sample(logits[0, 0, 0], seed=3) == tokens[0, 0, 0]


@pytest.mark.parametrize(("dtype", "step"), [(np.float32, 1e-6), (np.float64, 1e-12)])
def test_a_random_number_has_all_its_digits(dtype: type, step: float) -> None:
    """The first of two tokens has a mass just above and just below the random number."""
    seeds = np.arange(400)
    u = sample_checks.random_numbers(seeds, 7, 0)
    for side in (1, -1):
        first = u + side * step
        logits = np.log(np.stack([first, 1 - first], -1)).astype(dtype)
        of_rounded = oracle.softmax(logits)[:, 0]
        clear = abs(of_rounded - u) > step / 4
        assert clear.mean() > 0.9
        wanted = np.where(of_rounded > u, 0, 1)
        for terms, is_sorted in (
            ({}, first > 0),
            ({"min_p": 1e-9}, first > 0.5),
            ({"top_p": 1 - 1e-15}, u > 0.5),
        ):
            rows = clear & is_sorted & (u > 0.01) & (u < 0.99)
            tokens = ons.sample(logits[rows], seed=seeds[rows], offset=7, **terms)
            assert (tokens == wanted[rows]).all(), terms


def test_seeds_and_offsets_have_64_bits() -> None:
    logits = np.zeros((50, 1000))
    numbers = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
    every = []
    for name in ("seed", "offset"):
        for number in numbers:
            terms = {"seed": 9, name: number}
            tokens = ons.sample(logits, **terms)
            assert check_sample(logits, tokens, **terms) < 5
            every.append(tokens)
    assert len({tokens.tobytes() for tokens in every}) == len(every)
    # An array of int64 has the numbers from 2^63 on as negative ones.
    wrapped = np.full(50, -1), np.full(50, -(2**63))
    for seeds, number in zip(wrapped, (2**64 - 1, 2**63), strict=True):
        assert (ons.sample(logits, seed=seeds) == ons.sample(logits[0], seed=number)).all()
        offset = ons.sample(logits, seed=9, offset=seeds)
        assert (offset == ons.sample(logits, seed=9, offset=number)).all()


# ------- filters at their ends


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "terms",
    [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.0}, {"temperature": 1e-31, "top_p": 0.5}],
    ids=str,
)
def test_greedy_rows_take_the_largest(dtype: np.dtype, terms: dict[str, Any]) -> None:
    """Of equal logits the first is the largest."""
    rng = np.random.default_rng(2)
    for N in (1, 2, 9, 64, 300, 5000):
        for logits in (
            rng.standard_normal((20, N)),
            np.round(rng.standard_normal((20, N))),
            np.zeros((20, N)),
        ):
            logits = logits.astype(dtype)
            tokens, logprob = ons.sample(logits, seed=1, return_logprob="filtered", **terms)
            assert (tokens == logits.argmax(-1)).all() and (logprob == 0).all()


def test_greedy_rows_mixed_with_others() -> None:
    rng = np.random.default_rng(2)
    logits = rng.standard_normal((200, 500)).astype(np.float32)
    greedy = rng.random(200) < 0.5
    terms = {"temperature": np.where(greedy, 0.0, 0.9), "top_p": np.where(rng.random(200) < 0.5, 1.0, 0.8)}
    tokens, logprob = ons.sample(logits, seed=4, return_logprob=True, **terms)
    check_sample(logits, (tokens, logprob), seed=4, return_logprob=True, **terms)
    largest = logits.argmax(-1)
    assert (tokens[greedy] == largest[greedy]).all() and (tokens[~greedy] != largest[~greedy]).any()
    at_1 = np.take_along_axis(ons.log_softmax(logits), largest[:, None], -1)[:, 0]
    assert np.allclose(logprob[greedy], at_1[greedy], rtol=1e-6)


def test_min_p_of_1_keeps_the_largest_alone_and_those_equal_to_it() -> None:
    logits = np.random.default_rng(2).standard_normal((300, 50)).astype(np.float32)
    assert (ons.sample(logits, seed=1, min_p=1.0) == logits.argmax(-1)).all()
    logits[:, 7] = logits[:, 30] = 9
    tokens = ons.sample(logits, seed=1, min_p=1.0)
    assert {*tokens.tolist()} == {7, 30}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_top_p_keeps_the_fewest_that_reach_the_share(dtype: type) -> None:
    """The masses of equal logits have no rounding, if their number is a power of 2."""
    for N in (2, 8, 64, 512):
        logits = np.zeros((20 * N, N), dtype)
        for top_p, kept in ((1 / N, 1), (1.01 / N, 2), (0.5, N // 2), (0.5 + 0.01 / N, N // 2 + 1)):
            terms: dict[str, Any] = {"seed": 8, "top_p": top_p, "return_logprob": "filtered"}
            tokens, logprob = ons.sample(logits, **terms)
            assert tokens.max() == kept - 1 and np.allclose(logprob, -np.log(kept), atol=1e-6)
            # the share of the tokens that top_k keeps, and the share of the whole row
            half = {**terms, "top_k": N // 2}
            first = ons.sample(logits, **half)[0]
            assert first.max() == max(int(np.ceil(top_p * (N // 2))), 1) - 1
            joint = ons.sample(logits, filter_apply_order="joint", **half)[0]
            assert joint.max() == min(kept, N // 2) - 1


def test_top_k_keeps_exactly_k() -> None:
    """Of equal logits the first ones."""
    rng = np.random.default_rng(2)
    row = np.round(rng.standard_normal(400)).astype(np.float32)
    order = np.argsort(-row, kind="stable")
    logits = np.tile(row, (5000, 1))
    for k in (1, 2, 17, 64, 255, 256, 257, 399):
        tokens, logprob = ons.sample(logits, seed=k, top_k=k, temperature=1e6, return_logprob="filtered")
        assert {*tokens.tolist()} <= {*order[:k].tolist()}
        assert np.allclose(logprob, -np.log(k), atol=1e-4)
        if k < 300:
            assert {*tokens.tolist()} == {*order[:k].tolist()}


@pytest.mark.parametrize("terms", [{}, {"top_p": 0.9}, {"min_p": 0.01}], ids=str)
def test_filters_that_keep_all_are_as_none(terms: dict[str, Any]) -> None:
    logits = np.random.default_rng(2).standard_normal((99, 60)).astype(np.float32)
    tokens = ons.sample(logits, seed=1, **terms)
    for k in (0, 60, 61, 2**31 - 1, 2**62):
        assert (ons.sample(logits, seed=1, top_k=k, **terms) == tokens).all(), k
    for dtype in (np.int32, np.int64):
        few, many = np.iinfo(dtype).min, np.iinfo(dtype).max
        mixed = np.resize(np.array([few, -1, 0, 60, 61, many], dtype), 99)
        assert (ons.sample(logits, seed=1, top_k=mixed, **terms) == tokens).all()


def test_filters_beyond_the_first_list() -> None:
    """The nucleus of long flat rows has many more tokens than the core takes at first."""
    rng = np.random.default_rng(2)
    logits = (0.1 * rng.standard_normal((12, 20000))).astype(np.float32)
    logits[:4] *= 30
    for terms in (
        {"top_p": 0.97},
        {"min_p": 0.6},
        {"top_k": 7000, "top_p": 0.9},
        {"top_k": 7000, "top_p": 0.3, "filter_apply_order": "joint"},
        {"top_k": 19999},
    ):
        terms = {"seed": 5, "return_logprob": "filtered", **terms}
        check_sample(logits, ons.sample(logits, **terms), **terms)


def test_rows_of_one_element() -> None:
    logits = np.array([[3.0], [-np.inf], [np.nan], [np.inf], [-3e38]], np.float32)
    for terms in ({}, {"top_k": 1}, {"top_p": 0.5}, {"min_p": 0.5}, {"temperature": 0.0}):
        tokens, logprob, valid = ons.sample(logits, seed=1, return_logprob=True, return_valid=True, **terms)
        assert tokens.tolist() == [0, -1, -1, -1, 0] and valid.tolist() == [True, False, False, False, True]
        assert same_bits(logprob, np.array([0, np.nan, np.nan, np.nan, 0], np.float32))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0, 5), (0, 0, 1)], ids=str)
def test_empty_batches(shape: tuple[int, ...]) -> None:
    batch = shape[:-1]
    for terms in ({"seed": 1}, {"seed": np.zeros(batch, np.int64), "top_p": np.ones(batch), "top_k": 2}):
        terms = {**terms, "return_logprob": True, "return_valid": True}
        logits = np.zeros(shape, np.float32)
        check_sample(logits, ons.sample(logits, **terms), **terms)


# ------- rows that are not valid


@pytest.mark.parametrize("terms", [{}, *FILTERS[2:7], {"temperature": 0.0}], ids=str)
@pytest.mark.parametrize("N", [5, 90, 1500])
def test_rows_without_a_distribution_leave_other_rows_alone(N: int, terms: dict[str, Any]) -> None:
    rng = np.random.default_rng(7)
    logits = rng.standard_normal((40, N)).astype(np.float32)
    wanted = {"seed": 2, "return_logprob": True, "return_valid": True, **terms}
    before = ons.sample(logits, **wanted)
    bad = [3, 4, 11, 20, 39]
    spoiled = logits.copy()
    spoiled[3], spoiled[4, -1], spoiled[11, N // 2], spoiled[20] = -np.inf, np.nan, np.inf, np.nan
    where = np.ones(logits.shape, bool)
    where[39] = False
    after = ons.sample(spoiled, where=where, **wanted)
    good = np.setdiff1d(np.arange(40), bad)
    for one, other in zip(before, after, strict=True):
        assert (one[good] == other[good]).all()
    tokens, logprob, valid = after
    assert (tokens[bad] == -1).all() and np.isnan(logprob[bad]).all() and not valid[bad].any()
    assert valid[good].all()


@pytest.mark.parametrize("terms", [{}, {"top_k": 3}, {"top_p": 0.9}, {"temperature": 0.0}], ids=str)
def test_excluded_elements_do_not_count(terms: dict[str, Any]) -> None:
    """Excluded elements may be NaN or inf."""
    rng = np.random.default_rng(7)
    logits = rng.standard_normal((60, 40)).astype(np.float32)
    where = rng.random(logits.shape) < 0.5
    where[:, 5] = True
    wanted = {"seed": 2, "return_logprob": True, "return_valid": True, **terms}
    found = ons.sample(logits, where=where, **wanted)
    for other in (-np.inf, np.nan, np.inf, 1e30):
        again = ons.sample(np.where(where, logits, np.float32(other)), where=where, **wanted)
        assert all(same_bits(a, b) for a, b in zip(found[:2], again[:2], strict=True)) and again[2].all()
    masked = ons.sample(np.where(where, logits, np.float32(-np.inf)), **wanted)
    assert (masked[0] == found[0]).all() and np.take_along_axis(where, found[0][:, None], -1).all()


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("temperature", [-1.0, -1e-31, np.inf, np.nan]),
        ("top_p", [-0.01, 1.01, np.inf, np.nan]),
        ("min_p", [-0.01, 1.01, np.inf, np.nan]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parameters_out_of_range_in_arrays(name: str, bad: list[float], dtype: type) -> None:
    logits = np.random.default_rng(7).standard_normal((9, 30)).astype(np.float32)
    values = np.full(9, {"temperature": 0.8, "top_p": 0.9, "min_p": 0.1}[name], dtype)
    wanted: dict[str, Any] = {"seed": 2, "return_logprob": True, "return_valid": True}
    before = ons.sample(logits, **{name: values}, **wanted)
    spoiled = values.copy()
    spoiled[[1, 2, 5, 8]] = bad
    tokens, logprob, valid = ons.sample(logits, **{name: spoiled}, **wanted)
    good = [0, 3, 4, 6, 7]
    assert (tokens[good] == before[0][good]).all() and (logprob[good] == before[1][good]).all()
    assert valid.tolist() == [i in good for i in range(9)]
    assert (tokens[~valid] == -1).all() and np.isnan(logprob[~valid]).all()
    # a greedy row with such a parameter is not valid either
    if name != "temperature":
        greedy = ons.sample(logits, temperature=0.0, **{name: spoiled}, **wanted)
        assert (greedy[2] == valid).all()


# ------- types and extremes


@pytest.mark.parametrize("dtype", NARROW_DTYPES, ids=str)
@pytest.mark.parametrize("terms", FILTERS[:7], ids=str)
def test_16_bits_are_as_their_float32(dtype: np.dtype, terms: dict[str, Any]) -> None:
    logits = (3 * np.random.default_rng(7).standard_normal((60, 300))).astype(dtype)
    found = ons.sample(logits, seed=1, return_logprob=True, **terms)
    wide = ons.sample(logits.astype(np.float32), seed=1, return_logprob=True, **terms)
    assert (found[0] == wide[0]).all() and same_bits(found[1], wide[1])


@pytest.mark.parametrize("terms", [{}, {"top_k": 5}, {"top_p": 0.9}], ids=str)
@pytest.mark.parametrize(
    ("temperature", "size"),
    [(1e-29, 1e-30), (1e-29, 1.0), (1e-7, 1e30), (1e-3, 1.0), (1e30, 1e-30), (1e38, 1.0), (1e300, 1e30)],
)
def test_logits_and_temperatures_of_any_size(temperature: float, size: float, terms: dict[str, Any]) -> None:
    """If the temperature is far below the logits' differences, the row is greedy."""
    logits = (size * np.random.default_rng(7).standard_normal((40, 30))).astype(np.float32)
    tokens, valid = ons.sample(logits, seed=1, temperature=temperature, return_valid=True, **terms)
    assert valid.all() and (tokens >= 0).all()
    if temperature < size * 1e-6:
        assert (tokens == logits.argmax(-1)).all()


def test_the_kinds_of_random_calls() -> None:
    """Random calls reach each kind of row and each place of a parameter."""
    seen: set[Any] = set()
    for seed in range(400):
        logits, terms = random_case(seed)
        draws = sample_checks.draws_of(
            logits,
            **{
                name: value
                for name, value in terms.items()
                if name not in ("return_logprob", "return_valid", "num_threads", "method")
            },
        )
        seen |= {("valid", bool(valid)) for valid in draws.valid}
        seen |= {("near", bool(near)) for near in draws.valid & (draws.first < draws.last)}
        seen |= {(name, np.ndim(terms[name]) > 0) for name in ("seed", "offset", "temperature")}
        seen |= {(name, np.ndim(terms[name]) > 0) for name in ("top_k", "top_p", "min_p") if name in terms}
        seen |= {
            ("where", "where" in terms),
            ("dtype", logits.dtype.name),
            ("threads", "num_threads" in terms),
        }
    assert len(seen) == 2 * 10 + len(DTYPES), seen


def test_logits_that_the_temperature_makes_equal() -> None:
    """They are in the order of their indices, also if top_p ends after a row's first 256 tokens."""
    ulps = np.arange(700, dtype=np.int32) % 5
    row = (np.float32(3.0).view(np.int32) + ulps).view(np.float32)
    logits = np.tile(row, (300, 1))
    assert len(np.unique(row)) == 5 and len(np.unique(row * np.float32(0.1))) < 5
    terms: dict[str, Any] = {"temperature": 10.0, "top_p": 0.7, "seed": 2}
    check_sample(logits, ons.sample(logits, **terms), **terms)
