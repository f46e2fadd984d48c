"""sample by its definition (csrc/api/sample.h) in float64, for all rows at once, and which tokens a result
may have."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import oracle
from support import DTYPES, lay_out

# The share of the kept mass that a boundary between two tokens, or the end of a filter, may move by.
NEAR = {"float32": 1e-5, "float64": 1e-9}
# The error of a log-probability, relative to 1 plus its size.
LOGPROB_ERROR = {"float32": 2e-6, "float64": 1e-12}
GREEDY = 1e-30  # a temperature below this takes the first token


def philox(counter: Any, key: Any) -> Any:
    """Philox-4x32-10 (Salmon et al., 2011). Counters have 4 words along the first axis, keys 2, and results
    4."""
    low = np.uint64(0xFFFFFFFF)
    c, k = ([np.asarray(word, np.uint64) for word in words] for words in (counter, key))
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ k[0], b & low, (a >> np.uint64(32)) ^ c[3] ^ k[1], a & low]
        k = [(word + np.uint64(weyl)) & low for word, weyl in zip(k, (0x9E3779B9, 0xBB67AE85), strict=True)]
    return np.stack(np.broadcast_arrays(*c))


def words(number: Any) -> list[Any]:
    """The two 32-bit words of a number, the low one first. Negative numbers count as modulo 2^64."""
    number = np.asarray(number)
    wide = number.astype(np.int64 if number.dtype.kind == "i" else np.uint64).view(np.uint64)
    return [wide & np.uint64(0xFFFFFFFF), wide >> np.uint64(32)]


def random_numbers(seed: Any, offset: Any, row: Any) -> Any:
    """A random number from 0 up to 1 for each row."""
    low, high, *_ = philox([*words(offset), *words(row)], words(seed))
    return ((high << np.uint64(32) | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Draws(NamedTuple):
    """What the definition gives for rows. A rank is a place in the order of a row."""

    valid: Any
    order: Any
    """The tokens of each row in order."""
    rank: Any
    """The rank of the drawn token."""
    first: Any
    """The lowest rank that rounding may give."""
    last: Any
    """The highest rank that rounding may give. It differs from `first` only if a boundary is near."""
    scaled: Any
    """Logits over the temperature, in order, relative to the row's largest."""
    kept: Any
    """The number of tokens that the filters keep: at least, exactly and at most."""
    running: Any
    """The running mass of the tokens in order, relative to the first token's mass."""

    def masses(self) -> Any:
        """The kept mass of each row: at least, exactly and at most."""
        return np.take_along_axis(self.running, self.kept - 1, -1)


def column(values: Any, rows: int) -> Any:
    """A parameter with one entry for each row, as a column."""
    return np.broadcast_to(np.asarray(values).reshape(-1, 1), (rows, 1))


def expected(
    x: Any,
    u: Any,
    *,
    temperature: Any = 1.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    min_p: Any = 0.0,
    joint: bool = False,
    allowed: Any = None,
) -> Draws:
    """The draws from rows of x, with a random number u for each row. `allowed` has the shape of x."""
    rows, N = x.shape
    compute = oracle.compute_type(x.dtype)
    allowed = np.ones(x.shape, bool) if allowed is None else allowed
    temperature, top_p, min_p = (
        column(np.asarray(each, np.float64), rows) for each in (temperature, top_p, min_p)
    )
    logits = np.where(allowed, x.astype(np.float64), -np.inf)
    with np.errstate(invalid="ignore"):
        valid = np.isfinite(logits.max(-1, initial=-np.inf)) & ~np.isnan(logits).any(-1)
        in_range = np.isfinite(temperature) & (temperature >= 0)
        for share in (top_p, min_p):
            in_range &= (share >= 0) & (share <= 1)
        greedy = temperature < GREEDY
    valid &= in_range[:, 0]
    if N == 0 or rows == 0:
        empty = np.zeros((rows, 0))
        none = np.zeros(rows, np.int64)
        return Draws(valid, empty.astype(np.int64), none, none, none, empty, empty, empty)
    # Other rows have no draw. Any numbers stand for theirs.
    ok = valid[:, None]
    logits = np.where(ok, logits, 0.0)
    top_p, min_p = np.where(ok, top_p, 1.0), np.where(ok, min_p, 0.0)
    divisor = np.where(ok & ~greedy, temperature, 1.0)
    factor = (1 / divisor).astype(compute).astype(np.float64)
    logits = oracle.product(logits.astype(compute), factor, compute).astype(np.float64)
    top_k = np.where(greedy, 1, column(top_k, rows))
    top_k = np.where((top_k < 1) | (top_k > N), N, top_k)
    filtered = (top_k < N) | (top_p < 1) | (min_p > 0)
    order = np.where(filtered, np.argsort(-logits, -1, kind="stable"), np.arange(N))
    largest = logits.max(-1, keepdims=True)
    with np.errstate(invalid="ignore", under="ignore"):
        scaled = np.take_along_axis(logits, order, -1) - largest
        p = np.exp(scaled)
        running = p.cumsum(-1)
    near = NEAR[compute.name]
    of_top_p = running[:, -1:] if joint else np.take_along_axis(running, top_k - 1, -1)
    kept = []
    for side in (-1, 0, 1):
        share = np.select([top_p == 0, top_p == 1], [0, 2], top_p + side * near)
        by_top_p = (running < share * of_top_p).sum(-1, keepdims=True) + 1
        likely = (p >= min_p * (1 - side * near)).sum(-1, keepdims=True)
        by_min_p = np.where(min_p > 0, likely, N)
        kept.append(np.clip(np.minimum(np.minimum(by_top_p, by_min_p), top_k), 1, N))
    counts = np.concatenate(kept, -1)
    mass = np.take_along_axis(running, counts - 1, -1)
    ranks = []
    for side, place in ((-1, 0), (0, 1), (1, 2)):
        passed = (running <= (u[:, None] + side * near) * mass[:, place, None]).sum(-1)
        ranks.append(np.minimum(passed, counts[:, place] - 1))
    first, rank, last = ranks
    return Draws(valid, order, rank, first, last, scaled, counts, running)


def rows_of(array: Any, axis: int) -> Any:
    """An array's rows along the axis, as a matrix."""
    moved = np.moveaxis(array, axis, -1)
    return moved.reshape(-1, moved.shape[-1])


def draws_of(
    logits: Any,
    *,
    seed: Any,
    offset: Any = 0,
    axis: int = -1,
    where: Any = None,
    filter_apply_order: str = "top_k_first",
    **filters: Any,
) -> Draws:
    """What the definition gives for a call with these arguments."""
    x = rows_of(logits, axis)
    allowed = None if where is None else rows_of(np.broadcast_to(where, logits.shape), axis)
    # A row with a seed of its own counts as row 0.
    row = np.arange(len(x)) if np.size(seed) == 1 else 0
    u = random_numbers(np.ravel(seed), np.ravel(offset), row)
    joint = filter_apply_order == "joint"
    return expected(x, np.broadcast_to(u, len(x)), joint=joint, allowed=allowed, **filters)


def logprobs_of(draws: Draws, rank: Any, filtered: bool) -> tuple[Any, Any]:
    """The log-probabilities of the tokens of these ranks: at least, and at most."""
    scaled = np.take_along_axis(draws.scaled, rank[:, None], -1)[:, 0]
    mass = draws.masses() if filtered else draws.running[:, [-1] * 3]
    return scaled - np.log(mass[:, 2]), scaled - np.log(mass[:, 0])


def check_sample(logits: Any, found: Any, *, by_logits: bool = False, **terms: Any) -> int:
    """Compares a result of sample for NumPy arrays with the definition. Returns the number of rows whose
    random number is so near a boundary that rounding may change the token. by_logits: the order is by logits,
    so logits that the temperature makes equal may change places, as on a GPU."""
    return_logprob, return_valid = terms.pop("return_logprob", False), terms.pop("return_valid", False)
    for name in ("num_threads", "method"):
        terms.pop(name, None)
    indices, *others = found if return_logprob or return_valid else (found,)
    draws = draws_of(logits, **terms)
    axis = terms.get("axis", -1) % logits.ndim
    shape = logits.shape[:axis] + logits.shape[axis + 1 :]
    indices = np.asarray(indices)
    assert indices.shape == shape and indices.dtype == np.int64, (indices.shape, indices.dtype)
    tokens = indices.reshape(-1)

    def require(good: Any, *shown: Any) -> None:
        """All rows must be good. Shows the first other one."""
        if not good.all():
            at = int(np.argmin(good))
            parts = [draws.valid, draws.first, draws.rank, draws.last, draws.kept, *shown]
            raise AssertionError(f"row {at}: token {tokens[at]}, {[each[at] for each in parts]}")

    require((tokens >= 0) == draws.valid)
    require((tokens >= -1) & (tokens < max(logits.shape[axis], 1)))
    if return_valid:
        valid = np.asarray(others.pop())
        assert valid.shape == shape and valid.dtype == bool, (valid.shape, valid.dtype)
        require(valid.reshape(-1) == draws.valid, valid.reshape(-1))
    if logits.size == 0:
        return 0
    rank = np.argmax(draws.order == tokens[:, None], -1)
    scaled = np.take_along_axis(draws.scaled, rank[:, None], -1)[:, 0]
    right = (draws.first <= rank) & (rank <= draws.last)
    if by_logits:
        right |= scaled == np.take_along_axis(draws.scaled, draws.rank[:, None], -1)[:, 0]
    require(~draws.valid | (right & (scaled > -np.inf)), rank)
    if return_logprob:
        logprob = np.asarray(others.pop())
        compute = oracle.compute_type(logits.dtype)
        assert logprob.shape == shape and logprob.dtype == compute, (logprob.shape, logprob.dtype)
        logprob = logprob.reshape(-1)
        lowest, highest = logprobs_of(draws, rank, return_logprob == "filtered")
        error = LOGPROB_ERROR[compute.name] * (1 + np.abs(lowest))
        if return_logprob == "filtered":  # each kept mass is rounded to 2^-50
            share = draws.masses()[:, 0] / draws.running[:, -1]
            error += 2.0**-50 * draws.kept.max(-1) / np.where(draws.valid, share, 1.0)
        with np.errstate(invalid="ignore"):
            good = (lowest - error <= logprob) & (logprob <= highest + error)
        require(np.where(draws.valid, good, np.isnan(logprob)), logprob, lowest, highest)
    assert not others
    return int((draws.valid & (draws.first < draws.last)).sum())


def check_filtered(logits: Any, found: Any, *, by_logits: bool = False, **terms: Any) -> int:
    """Compares a result of filtered_softmax for NumPy arrays with the definition. Returns the number of rows
    whose filters end so near a token that rounding may change whether it is kept. by_logits: as in
    check_sample."""
    for name in ("num_threads", "method"):
        terms.pop(name, None)
    draws = draws_of(logits, seed=0, **terms)
    compute = oracle.compute_type(logits.dtype)
    found = np.asarray(found)
    assert found.shape == logits.shape and found.dtype == compute, (found.shape, found.dtype)
    if logits.size == 0:
        return 0
    y = rows_of(found, terms.get("axis", -1)).astype(np.float64)
    info = np.finfo(compute)
    kept = draws.kept
    for at in range(len(y)):
        if not draws.valid[at]:
            assert np.isnan(y[at]).all(), f"row {at} is not valid: {y[at]}"
            continue
        own = y[at][draws.order[at]]
        if by_logits:  # tokens with equal logits may change places
            starts = np.flatnonzero(np.diff(draws.scaled[at], prepend=np.inf))
            own = np.concatenate([-np.sort(-part) for part in np.split(own, starts[1:])])
        count = min(max(np.count_nonzero(own), kept[at, 0]), kept[at, 2])
        right = np.where(np.arange(len(own)) < count, np.exp(draws.scaled[at].astype(np.longdouble)), 0)
        right /= right.sum()
        error = info.eps * (32 + np.abs(draws.scaled[at])) * right + 2 * info.tiny
        good = np.abs(own - right) <= np.where(right > 0, error, 2 * info.tiny * (draws.scaled[at] < -80))
        shown = own[~good][:3], right[~good][:3], np.flatnonzero(~good)[:3], kept[at]
        assert good.all(), f"row {at}: {shown}"
    return int((draws.valid & (kept[:, 0] < kept[:, 2])).sum())


# ------- random calls

KINDS = ("normal", "peaked", "flat", "equal", "ties", "huge", "tail", "edges")
LENGTHS = (1, 2, 3, 5, 8, 31, 33, 64, 100, 255, 256, 257, 300, 1000, 3000)


def logits_of(rng: Any, kind: str, shape: Any, dtype: Any) -> Any:
    x = rng.standard_normal(shape) * {"peaked": 8.0, "flat": 0.01, "equal": 0.0}.get(kind, 2.0)
    x = x + rng.choice([0.0, 0.0, 20.0, -50.0])
    if kind == "ties":
        x = np.round(x)
    elif kind == "huge":
        x[..., rng.integers(shape[-1])] = 60000.0
    elif kind == "tail":
        x = np.where(rng.random(shape) < rng.choice([0.1, 0.5, 0.98]), -np.inf, x)
    elif kind == "edges":
        few = rng.choice([-np.inf, np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 88.0, -120.0, 60000.0], shape)
        x = np.where(rng.random(shape) < rng.choice([1.0, 1 / shape[-1]]), few, x)
    return x.astype(dtype)


def parameter(rng: Any, shape: Any, dtypes: Any, some: Any) -> Any:
    """A number, or an array with a number for each row, or for all rows."""
    if rng.random() < 0.5:
        return rng.choice(some).item()
    return np.asarray(rng.choice(some, shape if rng.random() < 0.9 else ()), rng.choice(dtypes))


def filters_of(terms: dict[str, Any]) -> dict[str, Any]:
    """The arguments of sample that filtered_softmax takes too."""
    draw = "seed", "offset", "return_logprob", "return_valid"
    return {name: value for name, value in terms.items() if name not in draw}


def random_case(seed: int, rows: int = 0) -> tuple[Any, dict[str, Any]]:
    """Logits and the other arguments of a call. By default there are few rows, at a random place in memory,
    and the axis is any. With `rows` the logits are a matrix of so many rows."""
    rng = np.random.default_rng(seed)
    N = int(rng.choice(LENGTHS))
    batch = (rows,) if rows else tuple(rng.integers(1, 6, rng.integers(0, 4)).tolist())
    if not rows and rng.random() < 0.02:
        N, batch = 40000, (2,)
    dtype = DTYPES[rng.integers(len(DTYPES))]
    x = logits_of(rng, str(rng.choice(KINDS)), (*batch, N), dtype)
    axis = -1 if rows else int(rng.integers(-x.ndim, x.ndim))
    x = np.moveaxis(x, -1, axis)
    if not rows:
        steps = [int(rng.choice([1, 1, 1, -1, 2])) for _ in x.shape]
        x = lay_out(x, tuple(rng.permutation(x.ndim)), steps)
    reals, integers = [np.float32, np.float64], [np.int32, np.int64]
    terms: dict[str, Any] = {
        "seed": parameter(rng, batch, [np.int64], [0, 1, 7, 2**31, 2**40, 2**63 - 1]),
        "offset": parameter(rng, batch, integers, [0, 1, 5, 2**31 - 1]),
        "temperature": parameter(rng, batch, reals, [0.0, 0.1, 0.7, 1.0, 1.0, 1.5, 10.0]),
        "filter_apply_order": str(rng.choice(["top_k_first", "joint"])),
        "return_logprob": [False, True, "unfiltered", "filtered"][rng.integers(4)],
        "return_valid": bool(rng.integers(2)),
        "axis": axis,
    }
    if np.ndim(terms["seed"]):
        terms["seed"] = rng.integers(0, 2**63, batch)
    else:
        terms["seed"] += int(rng.integers(2**30)) * (terms["seed"] < 2**60)
    if rng.random() < 0.6:
        terms["top_k"] = parameter(rng, batch, integers, [0, 1, 2, 5, 50, 300, N - 1, N, N + 1])
    if rng.random() < 0.6:
        terms["top_p"] = parameter(rng, batch, reals, [0.0, 0.01, 0.3, 0.5, 0.9, 0.99, 1.0])
    if rng.random() < 0.4:
        terms["min_p"] = parameter(rng, batch, reals, [0.0, 0.001, 0.05, 0.3, 1.0])
    if rng.random() < 0.3:
        shape = x.shape if rng.random() < 0.5 else (x.shape[-1],)
        terms["where"] = rng.random(shape) < 0.6
    if rng.random() < 0.3:
        terms["num_threads"] = int(rng.integers(1, 4))
    for name in ("temperature", "top_p", "min_p"):
        if np.ndim(terms.get(name, 0)) and rng.random() < 0.2:
            terms[name].reshape(-1)[rng.integers(terms[name].size)] = rng.choice([-0.1, np.nan, np.inf])
    return x, terms
