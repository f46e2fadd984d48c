"""sample under the signatures of FlashInfer and vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .._sample import sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._types import FilterOrder

SEEDS = 2**62


def drawn_seeds(count: int, device: torch.device, generator: torch.Generator | None) -> torch.Tensor:
    """Seeds on the device of the logits, so that the host waits for nothing."""
    on = device if generator is None else generator.device
    return torch.randint(SEEDS, (count,), generator=generator, device=on).to(device, non_blocking=True)


def top_k_top_p_sampling_from_logits(
    logits: torch.Tensor,
    top_k: torch.Tensor | int,
    top_p: torch.Tensor | float,
    indices: torch.Tensor | None = None,
    filter_apply_order: FilterOrder = "top_k_first",
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: torch.Tensor | int | None = None,
    offset: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """onsoftmax.sample with the signature of FlashInfer's function of this name.

    Parameters
    ----------
    logits : Tensor, shape (rows, N)
        The logits of each row.
    top_k, top_p : number, or Tensor with one entry for each result
        The filters of sample.
    indices : Tensor of int32 or int64, optional
        The row of logits of each result. By default each row has one result.
    filter_apply_order : {"top_k_first", "joint"}
        As sample takes it.
    deterministic : bool
        Has no effect: the tokens are always deterministic.
    generator : torch.Generator, optional
        Gives the seed, if `seed` is None. By default torch's own generator of the device.
    check_nan : bool
        Whether to look for NaN first. The host then waits for the GPU.
    seed, offset : int or Tensor with one element, optional
        As sample takes them.

    Returns
    -------
    Tensor of int32, or of the type of `indices`
        The tokens. The token of a row that is not valid is 0, as in FlashInfer.

    Raises
    ------
    ValueError
        check_nan is True and a logit is NaN, or sample raises it.

    Examples
    --------
    >>> import torch
    >>> logits = torch.log(torch.tensor([[0.1, 0.2, 0.7]]))
    >>> top_k_top_p_sampling_from_logits(logits, 1, 1.0)
    tensor([2], dtype=torch.int32)
    """
    if check_nan and bool(logits.isnan().any()):
        raise ValueError("a logit is NaN: expected none, since check_nan is True")
    if indices is not None:
        logits = logits[indices]
    tokens = sample(
        logits,
        top_k=top_k,
        top_p=top_p,
        seed=drawn_seeds(1, logits.device, generator) if seed is None else seed,
        offset=0 if offset is None else offset,
        filter_apply_order=filter_apply_order,
    )
    kind = torch.int32 if indices is None else indices.dtype
    valid_or_0: torch.Tensor = tokens.clamp(min=0).to(kind)
    return valid_or_0


def vllm_forward_native(
    sampler: Any,
    logits: torch.Tensor,
    generators: Mapping[int, torch.Generator],
    k: torch.Tensor | None,
    p: torch.Tensor | None,
) -> tuple[torch.Tensor, None]:
    """onsoftmax.sample in place of the method forward_native of vLLM's TopKTopPSampler.

    Assign it to the class: ``TopKTopPSampler.forward_native = onsoftmax.torch.vllm_forward_native``. Each
    row has a seed of its own. It comes from the row's generator, if `generators` has one, else from torch's
    own generator.

    Parameters
    ----------
    sampler : TopKTopPSampler
        Its logprobs_mode must not be a processed one, since no processed logits are written.
    logits : Tensor, shape (rows, N)
        The logits of each row, divided by the temperature.
    generators : mapping of int to torch.Generator
        The generators of rows with a seed of their own.
    k, p : Tensor with one entry a row, optional
        top_k and top_p of each row. None: off.

    Returns
    -------
    (tokens, None)
        The tokens as int64. A row that is not valid has the token 0.

    Raises
    ------
    ValueError
        The sampler has to return processed logits.
    """
    mode = str(getattr(sampler, "logprobs_mode", "raw_logprobs"))
    if mode.startswith("processed"):
        raise ValueError(
            f"logprobs_mode is {mode!r}: expected a raw one, since no processed logits are written"
        )
    seeds = drawn_seeds(len(logits), logits.device, None)
    for row, generator in generators.items():
        seeds[row] = drawn_seeds(1, logits.device, generator)[0]
    tokens = sample(logits, top_k=0 if k is None else k, top_p=1.0 if p is None else p, seed=seeds)
    return tokens.clamp(min=0), None
