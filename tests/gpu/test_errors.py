"""The largest errors of the exponentials on a GPU, and the largest error of a result that gpu_errors.py's
search finds."""

import pytest
from gpu_errors import METHODS, build, search, spread_of_doubles, spread_of_floats
from gpu_support import torch

SPREAD = {torch.float32: 2.57, torch.float64: 1.9}  # of the exponentials' relative errors, in eps
RESULT = 5  # in eps; the largest error that a search found is 4.8


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("gpu_errors"))


def test_every_exponential(library):
    found, least, most = spread_of_floats(library)
    assert found <= SPREAD[torch.float32], (found, least, most)
    assert spread_of_doubles(library, 20) <= SPREAD[torch.float64]


@pytest.mark.parametrize("method", METHODS)
def test_no_result_errs_more_than_is_promised(library, method):
    assert search(library, 5, method)[0] <= RESULT
