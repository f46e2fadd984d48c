"""The steps of a method on one row, as data."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from .sampling import Sampling

Floats = tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """One step on elements `start` to `stop`. A field that does not apply to a step is None, or empty."""

    kind: str
    """The kind of step. Steps that find m and d: "maximum", "sum", "statistics" (both at once), "merge".
    Steps that add up a gradient's sum: "total", "merge". Steps that add up the sum s of an entropy:
    "second_sum". Steps that add up the logits for label_smoothing: "sum_of_logits". Steps that write results:
    "divide" (softmax), "subtract" (log_softmax), "value" (logsumexp), "select" (softmax_topk), "gradient",
    "loss", "logprob", "entropy". Steps of `exact` for results that a double does not decide: "two_sum" (d in
    two doubles), "two_doubles" (the results). Steps of `sample`: "order" (the tokens in their order),
    "filter", "renormalize" (the kept tokens), "draw"."""
    part: int
    """The number of the part of the row, with `split`. Otherwise 0."""
    start: int
    """The index of the step's first element. For tokens of `sample`, their place in the order."""
    stop: int
    """The index behind the step's last element, or the place behind the last token."""
    passes: int
    """Passes over the row in memory that have begun so far."""
    bytes_read: int
    """Bytes read so far."""
    bytes_written: int
    """Bytes written so far."""
    read: Floats = ()
    """Elements read from memory. Empty if the elements are on the chip already."""
    written: Floats = ()
    """Elements written to memory."""
    own_m: float | None = None
    """The maximum of these elements alone. In a merge, the maximum of the part that comes in."""
    own_d: float | None = None
    """d of these elements alone, relative to own_m."""
    m_before: float | None = None
    """The maximum before this step."""
    d_before: float | None = None
    """The normalizer before this step, relative to m_before."""
    m: float | None = None
    """The maximum so far."""
    d: float | None = None
    """The normalizer so far, relative to m: sum(exp(x - m)). For `naive` sum(exp(x))."""
    rescale: float | None = None
    """exp(m_before - m), the factor of d_before."""
    own_rescale: float | None = None
    """exp(own_m - m), the factor of own_d."""
    exponent: int | None = None
    """c: the code keeps d relative to 2^c, so that a rescale is exact."""
    exponentials: Floats = ()
    """exp(x - m), or exp(x) for `naive`, in the arithmetic's type."""
    added: float | None = None
    """The number added to the rescaled d_before: the sum of the exponentials, or own_d * own_rescale. For a
    gradient the number added to s_before."""
    log_d: float | None = None
    """The logarithm of d, for logarithms and losses."""
    lse: float | None = None
    """For a loss and logprob: m + log_d, the logsumexp of the row."""
    exact_m: float | None = None
    """m by the textbook formula in float64, for comparison."""
    exact_d: float | None = None
    """d by the same formula."""
    exact: Floats = ()
    """The exponentials or the written values by the same formula."""
    bound: float | None = None
    """For softmax_topk: the k-th largest element before this tile. None if fewer than k elements came before.
    An element that is not above the bound costs one comparison."""
    passed: int | None = None
    """How many elements of the tile are above the bound."""
    kept: Floats = ()
    """The k largest so far, in descending order."""
    kept_at: tuple[int, ...] = ()
    """Their indices in the row."""
    grad: Floats = ()
    """Elements of the upstream gradient g, for a gradient."""
    products: Floats = ()
    """For softmax_backward: g * y of these elements. For an entropy: exp(x - m) * (x - m)."""
    own_s: float | None = None
    """In a gradient's merge, s of the part that comes in."""
    s_before: float | None = None
    """The sum before this step."""
    s: float | None = None
    """A gradient's sum so far: sum(g * y), and for log_softmax_backward sum(g). For an entropy:
    sum(exp(x - m) * (x - m))."""
    exact_s: float | None = None
    """s by the textbook formula in float64."""
    in_double: float | None = None
    """For `exact`: the result in double."""
    interval: Floats = ()
    """For `exact`: the two ends of an interval around `in_double`. The exact result lies between them."""
    ends: Floats = ()
    """The two ends, each rounded to the result's type. If they are the same number, it is the result."""
    two_doubles: Floats = ()
    """For `exact`: d or the result as the sum of two doubles, if a double does not decide."""
    scaled: Floats = ()
    """For `sample`: these elements divided by the temperature. Empty if the temperature is 1 or 0."""
    tokens: tuple[int, ...] = ()
    """For `sample`: the tokens of this step, in their order. For "draw" the drawn token, or -1 if the row is
    not valid."""
    p: Floats = ()
    """The probabilities of the tokens. For "renormalize", each is divided by the sum of the kept ones."""
    running: Floats = ()
    """For each of the tokens, the running sum of p."""
    filter: str = ""
    """The name of a filter: "top_k", "top_p" or "min_p", or "temperature" for the temperature 0."""
    limit: float | None = None
    """For top_k and temperature: the number of tokens. For top_p: the running sum that is enough. For min_p:
    the least p."""
    of: float | None = None
    """What top_p and min_p are a share of: the sum of p, or the largest p."""
    kept_tokens: int | None = None
    """The number of tokens that this filter and the filters before it keep."""
    mass: float | None = None
    """The sum of their p."""
    u: float | None = None
    """The random number, from 0 up to 1. The draw takes the first token whose running sum is above u."""
    filtered_logprob: float | None = None
    """The log-probability of the drawn token among the kept tokens."""
    note: str = ""
    """A remark in words."""

    @property
    def rescaled(self) -> bool:
        """Whether a larger maximum came, and d_before was moved to it."""
        return self.rescale is not None and self.d_before != 0 and self.m_before != self.m


@dataclass(frozen=True)
class Record:
    """All steps of one method on one row."""

    operation: str
    """The operation, one of those that `explain` takes."""
    method: str
    """The method whose steps these are."""
    dtype: str
    """The type of the row and of the result. A loss, a log-probability and an entropy have the type
    `compute`."""
    compute: str
    """The arithmetic's type."""
    tile: int
    """Elements that are read at a time."""
    parts: int
    """The number of parts of the row. 1 except with `split`."""
    row: Floats
    """The logits. For a gradient the result of the forward step."""
    steps: tuple[Step, ...]
    """The steps, in their order."""
    result: Floats
    """The result of the method. For cross_entropy_with_grad the gradient. For sample the log-probability of
    the token."""
    exact: Floats
    """The result by the textbook formula in float64."""
    size: Floats
    """For each element, the number by which its error is divided: the size of the exact value. For a
    logarithm and a loss it is at least 1. For a gradient it is the larger of the gradient's two terms, with
    absolute values added up in s."""
    indices: tuple[int, ...] = ()
    """For softmax_topk: the places of its k values in the row. For sample: the token."""
    grad: Floats = ()
    """For a gradient: the upstream gradient."""
    target: int | None = None
    """For a loss and logprob: the index of the chosen element."""
    z_loss: float = 0.0
    """For a loss: the factor of lse ** 2."""
    label_smoothing: float = 0.0
    """For a loss: the share of the target that all classes share equally."""
    loss: float | None = None
    """For cross_entropy_with_grad: the loss. The result is its gradient."""
    entropy: float | None = None
    """For logprob with entropy: the entropy of the row."""
    sampling: Sampling | None = None
    """For sample: its arguments."""

    @property
    def passes(self) -> int:
        """Passes over the row in memory."""
        return self.steps[-1].passes

    @property
    def bytes_read(self) -> int:
        """Bytes read from memory by all steps."""
        return self.steps[-1].bytes_read

    @property
    def bytes_written(self) -> int:
        """Bytes written to memory by all steps."""
        return self.steps[-1].bytes_written

    @property
    def error(self) -> float:
        """The largest error of the result, relative to `size`. NaN if only the result or only the formula has
        a NaN at some place."""
        each = zip(self.result, self.exact, self.size, strict=True)
        errors = [0.0 if _alike(y, e) else abs(y - e) / size if size else math.inf for y, e, size in each]
        return math.nan if any(map(math.isnan, errors)) else max(errors)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data: dicts, lists, numbers, text."""
        return asdict(self)

    def to_json(self, indent: int | None = 1) -> str:
        """The record as JSON. JSON has no number for infinity and NaN: they are "inf", "-inf" and "nan"."""
        return json.dumps(for_json(self.to_dict()), indent=indent, allow_nan=False)


def _alike(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def for_json(value: Any) -> Any:
    """The value with text for infinities and NaN."""
    if isinstance(value, dict):
        return {key: for_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_json(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
