"""The steps of sample, after the pair (m, d) of the row divided by its temperature.

The filters, the random number and the draw are those of csrc/api/sample.h. The probabilities and the order
are from the core.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from .. import _core
from .record import Floats
from .steps import Row, State, floats
from .textbook import textbook

WHOLE_MASS = 2.0**50  # the mass of a whole row: masses are probabilities in fixed point


def random_bits(seed: int, offset: int, row: int) -> int:
    """64 random bits by Philox-4x32-10: the seed is the key, and (offset, row) is the counter."""

    def words(number: int) -> list[int]:
        return [number & 0xFFFFFFFF, number >> 32 & 0xFFFFFFFF]

    key, c = words(seed), words(offset) + words(row)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ key[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ key[1], a & 0xFFFFFFFF]
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c[1] << 32 | c[0]


def end(row: Row, state: State, from_memory: bool) -> None:
    """Order, filters and draw. The row is on the chip already, so nothing is read."""
    sampling, N = row.sampling, len(row.x)
    top_k = 1 if sampling.is_greedy else sampling.top_k
    top_k = top_k if 1 <= top_k <= N else N
    filtered = top_k < N or sampling.top_p < 1 or sampling.min_p > 0
    p, tokens = _in_order(row, filtered)
    if not sum(p) > 0:  # there is a NaN
        _write(row, -1, (math.nan, math.nan), note="the row is not valid: its largest logit is not finite")
        return
    running = list(accumulate(int(each * WHOLE_MASS) for each in p))
    _show_order(row, state, tokens, p, running)
    kept = _filter(row, tokens, p, running, top_k)
    mass, total = running[kept - 1], sum(p)
    if filtered:
        # If only the first token has a mass, the sum is its p without the rounding of a mass.
        total = p[0] if mass == int(p[0] * WHOLE_MASS) else mass / WHOLE_MASS
        shares = [each / total for each in p[:kept]]
        _show_tokens(row, "renormalize", tokens[:kept], shares, [each / mass for each in running[:kept]])
    bits = random_bits(sampling.seed, sampling.offset, 0)
    at = bisect_right(running, bits * mass >> 64)
    logprobs = math.log(p[at]), math.log(p[at] / total)
    _write(row, tokens[at], logprobs, u=(bits >> 11) * 2.0**-53)


def _in_order(row: Row, filtered: bool) -> tuple[Floats, Sequence[int]]:
    """The probabilities, and their tokens: in the order of the logits if there are filters, else in the order
    of indices."""
    how: dict[str, Any] = {"dtype": row.compute, "scale": row.sampling.scale(row.compute)}
    if not filtered:
        return floats(_core.softmax(row.x, **how)), range(len(row.x))
    p, tokens = _core.softmax_topk(row.x, len(row.x), **how)[:2]
    return floats(p), tokens.tolist()


def _show_tokens(
    row: Row, kind: str, tokens: Sequence[int], p: Sequence[float], running: Sequence[float], **each: Any
) -> None:
    """Steps that show tokens in their order, as many in each step as a tile has. `each` has functions that
    give a field for some tokens."""
    for start in range(0, len(tokens), row.tile):
        part = slice(start, min(start + row.tile, len(tokens)))
        own = tuple(tokens[part])
        facts = {name: of(own) for name, of in each.items()}
        row.add(kind, part, tokens=own, p=tuple(p[part]), running=tuple(running[part]), **facts)


def _show_order(
    row: Row, state: State, tokens: Sequence[int], p: Sequence[float], running: Sequence[int]
) -> None:
    exponentials = row.exponentials(slice(0, len(row.x)), state)
    exact = textbook("softmax", row.wide, row.wide_grad)[0]
    _show_tokens(
        row,
        "order",
        tokens,
        p,
        [mass / WHOLE_MASS for mass in running],
        exponentials=lambda own: tuple(exponentials[j] for j in own),
        exact=lambda own: floats(exact[list(own)]),
    )


def _filter(row: Row, tokens: Sequence[int], p: Sequence[float], running: Sequence[int], top_k: int) -> int:
    """The number of tokens that all filters keep. A filter keeps the first tokens of those that the filters
    before it keep."""
    sampling, kept = row.sampling, len(p)

    def show(name: str, limit: float, of: float | None = None) -> None:
        part, mass = slice(0, kept), running[kept - 1] / WHOLE_MASS
        row.add("filter", part, filter=name, limit=limit, of=of, kept_tokens=kept, mass=mass)

    if top_k < kept:
        kept = top_k
        show("temperature" if sampling.is_greedy else "top_k", top_k)
    if sampling.top_p < 1:
        of = running[-1] if sampling.filter_apply_order == "joint" else running[kept - 1]
        # Probabilities are rounded, so a little less is enough.
        rounding = 2.0**-40 if row.compute == np.float64 else 2.0**-22
        enough = max(1, math.ceil(sampling.top_p * of * (1 - rounding)))
        kept = min(kept, bisect_left(running, enough) + 1)
        show("top_p", sampling.top_p * of / WHOLE_MASS, of / WHOLE_MASS)
    if sampling.min_p > 0:
        least = sampling.min_p * p[0]
        kept = min(kept, sum(each >= least for each in p))
        show("min_p", least, p[0])
    return kept


def _write(row: Row, token: int, logprobs: tuple[float, float], **facts: Any) -> None:
    """Writes the token as int64 and its log-probability in the arithmetic's type."""
    unfiltered, filtered = floats(np.array(logprobs).astype(row.compute))
    row.result, row.places = np.array([unfiltered]), (token,)
    log_p, size = (each[[token]] for each in textbook("log_softmax", row.wide, row.wide_grad))
    row.exact, row.size = (np.full(1, math.nan), size) if token < 0 else (log_p, size)
    row.bytes_written += 8 + row.compute.itemsize
    row.add(
        "draw",
        slice(0, len(row.x)),
        tokens=(token,),
        written=(unfiltered,),
        exact=floats(row.exact),
        filtered_logprob=filtered,
        **facts,
    )
