"""No primitive of the CPU takes more instructions an element than was recorded (by `python
tests/instructions.py --record`)."""

import core
import instructions
import pytest
from core import Missing
from support import SANITIZED, isas

# Of the same compiler and sources a count is the same to the last instruction; the rest is for a C library
# and for point releases of the compiler other than those it was recorded with.
TOLERANCE = 0.02


@pytest.mark.skipif(SANITIZED, reason="valgrind cannot run beside the sanitizers")
def test_instructions_an_element():
    try:
        compiler, made = instructions.counts()
    except Missing as missing:
        core.skip(missing)
    budget = instructions.read_budget()
    if compiler not in budget:
        pytest.skip(f"recorded for {' and '.join(budget)}, not for {compiler}")
    if "avx2" not in isas() and any(name.startswith("avx2: ") for name in budget[compiler]):
        pytest.skip("recorded on a processor with AVX2")
    assert made.keys() == budget[compiler].keys(), f"{instructions.BUDGET} is of others: record it anew"
    beyond = [
        f"{name}: {count}, at most {budget[compiler][name]} so far"
        for name, count in made.items()
        if count > budget[compiler][name] * (1 + TOLERANCE)
    ]
    assert not beyond, "\n".join(beyond)
