"""method="safe" keeps the digits of logarithms near 0 on a GPU."""

import pytest
from gpu_support import DEVICE, torch

import onsoftmax as ons

near_zero_checks = pytest.importorskip("near_zero_checks", reason="needs mpmath")


def on_gpu(function):
    def call(x, axis, where):
        where = None if where is None else torch.from_numpy(where).to(DEVICE)
        return function(torch.from_numpy(x).to(DEVICE), axis, where=where, method="safe").cpu().numpy()

    return call


@pytest.mark.parametrize("seed", range(4))
def test_digits(seed):
    found = list(near_zero_checks.faults(on_gpu(ons.logsumexp), on_gpu(ons.log_softmax), seed))
    assert not found, f"{len(found)}: " + "\n".join(found[:10])
