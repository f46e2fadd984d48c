"""A short `make soak`: it calls every function, makes every fault, and finds errors."""

import json
import subprocess
import sys

import numpy as np
import soak
from support import HERE, SANITIZED, environment

import onsoftmax as ons

FIRST = 1_000_000  # a seed without findings
SECONDS = 20 if SANITIZED else 4


def test_a_run(tmp_path):
    command = [sys.executable, f"{HERE}/soak.py", "--seconds", str(SECONDS), "--seed", str(FIRST)]
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "soak.json")], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "soak.json").read_text())
    assert {*found["by_function"]} == {*soak.CASES} and all(found["faults"].values()) and not found["wrong"]
    assert found["calls"] == sum(found["by_function"].values()) > 300


def test_a_wrong_answer_is_seen(monkeypatch):
    """One element of each answer is changed, for each function."""

    def spoiled(function):
        def call(*args, **keywords):
            y = function(*args, **keywords)
            first, *_ = y if isinstance(y, tuple) else (y.packed if hasattr(y, "packed") else y,)
            if np.size(first) == 0:
                return y
            first = np.array(first)
            first.reshape(-1)[0] = 7
            if isinstance(y, tuple):
                return first, *y[1:]
            if isinstance(y, ons.Normalizer):
                return ons.Normalizer.from_packed(first, dtype=y.dtype)
            return first if first.ndim else first[()]

        return call

    whole = {name: getattr(ons, name) for name in soak.CASES}
    for name in soak.CASES:
        monkeypatch.setattr(ons, name, spoiled(whole[name]))
        assert any(soak.CASES[name](seed, name) for seed in range(20)), name
        monkeypatch.setattr(ons, name, whole[name])


def test_a_crash_is_seen(monkeypatch):
    """The process cannot read its options and ends too early."""
    monkeypatch.setattr(soak, "worker_options", lambda seconds, seed: ["--seconds", "none"])
    found = soak.run(1, FIRST)
    assert all("the process ended with 2" in what for what in found["wrong"]) and found["wrong"]
