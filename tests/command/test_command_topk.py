"""`onsoftmax topk`: what it prints and writes, for every layout of a file, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support import fails, prints

import onsoftmax as ons
from onsoftmax import apply
from onsoftmax._cli import topk as _cli_topk

ROW = np.array([1.0, 2.0, 3.0, 6.0, 2.0, 1.0])


def saved(tmp_path, x):
    np.save(tmp_path / "in.npy", x)
    return tmp_path / "in.npy"


def test_one_row(capsys, tmp_path):
    text = prints(["topk", saved(tmp_path, ROW), "-k", 2], capsys)
    assert [line.split() for line in text.splitlines()[-2:]] == [["3", "0.909178"], ["2", "0.045265"]]
    assert "the 2 largest of the row" in " ".join(text.split())
    logs = prints(["topk", saved(tmp_path, ROW), "-k", 2, "--log", "--scale", "-1"], capsys)
    expected = ons.softmax_topk(ROW, 2, log=True, scale=-1)
    assert f"{expected.values[0]:.6f}" in logs and "log_softmax" in logs


def test_many_rows_are_cut(capsys, tmp_path, rng):
    x = rng.standard_normal((3, 10, 7)).astype(np.float32)
    text = prints(["topk", saved(tmp_path, x), "-k", 3], capsys)
    lines = text[text.index("0,0 ") :].splitlines()
    assert lines[1].split()[0] == "0,1"
    assert [int(at) for at in lines[1].split()[1:4]] == ons.softmax_topk(x[0, 1], 3).indices.tolist()
    assert lines[-1] == "and 10 rows more: --output FILE or --json has them"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.float16, ">f4", np.int16])
def test_files_of_every_layout(order, axis, dtype, capsys, tmp_path, monkeypatch, rng):
    """A file is read in many boxes. The lower place wins a tie."""
    monkeypatch.setattr(apply, "BOX_BYTES", 500)
    monkeypatch.setattr(apply, "RUN_BYTES", 64)
    x = np.asarray((5 * rng.standard_normal((37, 20, 9))).astype(dtype), order=order)
    expected = ons.softmax_topk(x, 4, axis, scale=0.5)
    path = saved(tmp_path, x)
    arguments = ["topk", path, "-k", 4, "--axis", axis, "--scale", 0.5]
    data = json.loads(prints([*arguments, "--json"], capsys))
    np.testing.assert_array_equal(data["indices"], expected.indices)
    np.testing.assert_array_equal(np.array(data["values"], expected.values.dtype), expected.values)
    assert prints([*arguments, "--output", tmp_path / "top.npz"], capsys) == ""
    with np.load(tmp_path / "top.npz") as top:
        np.testing.assert_array_equal(top["indices"], expected.indices)
        np.testing.assert_array_equal(top["values"], expected.values)


def test_a_file_in_pieces_holds_no_more_than_they_do(tmp_path, monkeypatch):
    monkeypatch.setattr(apply, "BOX_BYTES", 4000)
    x = _cli_topk.open_input(str(saved(tmp_path, np.zeros((100, 50)))))
    assert [piece.shape for _, piece in _cli_topk._pieces(x, 1)] == [(10, 50)] * 10


def test_special_rows(capsys, tmp_path):
    x = np.array([[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf] * 3])
    data = json.loads(prints(["topk", saved(tmp_path, x), "-k", 1, "--json"], capsys))
    assert data == {"values": [["nan"]] * 3, "indices": [[0], [0], [0]]}
    text = prints(["topk", saved(tmp_path, np.zeros((0, 3))), "-k", 1], capsys)
    assert "the 1 largest of each of 0 rows" in " ".join(text.split())


@pytest.mark.parametrize(
    "x, arguments, text",
    [
        (ROW, ["-k", 7], "k is 7: expected 1 to 6"),
        (ROW, ["-k", 0], "k is 0"),
        (ROW, ["-k", "two"], "invalid int value: 'two'"),
        (ROW, [], "required: -k"),
        (ROW, ["-k", 1, "--axis", 1], "axis 1 is out of bounds"),
        (ROW, ["-k", 1, "--method", "naive"], "method 'naive' cannot compute softmax_topk"),
        (
            ROW,
            ["-k", 1, "--scale", "nan"],
            "argument --scale: 'nan' is not a scale: expected a finite number",
        ),
        (ROW, ["-k", 1, "--method", "foo"], "'foo': expected one of auto, invariant, online, split"),
        (ROW, ["-k", 1, "--output", "nowhere/top.npz"], "nowhere/top.npz: No such file"),
        (np.float64(3), ["-k", 1], "has no dimension"),
        (np.zeros(3, complex), ["-k", 1], "in.npy: dtype complex128 is not supported"),
        (np.array(["a"]), ["-k", 1], "U1"),
    ],
)
def test_refusals(x, arguments, text, capsys, tmp_path):
    assert text in fails(["topk", saved(tmp_path, x), *arguments], capsys)


def test_files_that_are_none(capsys, tmp_path):
    assert "No such file" in fails(["topk", tmp_path / "none.npy", "-k", 1], capsys)
    (tmp_path / "text.npy").write_text("text")
    assert "not a .npy file" in fails(["topk", tmp_path / "text.npy", "-k", 1], capsys)


def test_from_standard_input(capfd, tmp_path, monkeypatch):
    x = np.asfortranarray(np.random.default_rng(0).standard_normal((3, 10)))
    for axis in (0, 1):
        with open(saved(tmp_path, x)) as file:
            monkeypatch.setattr("sys.stdin", file)
            data = json.loads(prints(["topk", "-", "-k", 2, "--axis", axis, "--json"], capfd))
        assert data["indices"] == ons.softmax_topk(x, 2, axis).indices.tolist()
    with open(saved(tmp_path, np.zeros(3, complex))) as file:
        monkeypatch.setattr("sys.stdin", file)
        assert "standard input: dtype complex128" in fails(["topk", "-", "-k", 2], capfd)


def test_the_input_is_not_replaced(capsys, tmp_path):
    path = saved(tmp_path, ROW)
    (tmp_path / "link.npy").symlink_to(path)
    for name in (path, tmp_path / "link.npy"):
        assert "is the input: expected another" in fails(["topk", path, "-k", 1, "--output", name], capsys)
    assert np.array_equal(np.load(path), ROW)
