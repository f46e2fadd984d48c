"""Tests of tests/jax compile programs. Without XLA's optimizations they take half the time."""

import sys

import pytest


@pytest.fixture(autouse=True, scope="module")
def without_optimizations(request):
    """The programs of test_jax.py are optimized, as a user's are."""
    jax = sys.modules["jax"]
    jax.config.update("jax_disable_most_optimizations", request.path.name != "test_jax.py")
    yield
    jax.config.update("jax_disable_most_optimizations", False)
