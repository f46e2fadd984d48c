"""Benchmarks of GPUs without a GPU: refusals, arithmetic and tables, runs with a stopwatch."""

import importlib
import importlib.util
import json
import os
import subprocess

import pytest
from core import COMPILER, needs_compiler
from support import ROOT, SANITIZED, run_python

BENCHMARKS = os.path.join(ROOT, "benchmarks")
SCRIPT = os.path.join(BENCHMARKS, "bench_cuda.py")
pytestmark = pytest.mark.skipif(not os.path.isfile(SCRIPT), reason="the benchmarks are not beside the tests")


def has_gpu():
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="module")
def report():
    spec = importlib.util.spec_from_file_location("gpu_report", os.path.join(BENCHMARKS, "gpu_report.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def main_of(monkeypatch, capsys):
    """Calls the main function of a benchmark. Returns its exit code and what it printed."""
    monkeypatch.syspath_prepend(BENCHMARKS)

    def call(name, *arguments):
        try:
            code = importlib.import_module(name).main([*map(str, arguments)])
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return call


def made_up(report):
    """A document of two lengths, 1 MB each, in the form that bench_cuda.py writes."""

    def figures(*samples):
        return report.figures_of(list(samples), 0.5, 10**6, 10**6, [0.002])

    def case(part, N, **more):
        common = {"part": part, "label": f"4x{N}", "shape": [4, N], "dtype": "float32", "N": N}
        return {**common, "figures": more}

    cluster = {"cannot": "N is above 8"}
    cases = [
        case("bands", 8, copy=figures(0.002), auto=figures(0.003, 0.0025, 0.0021), cluster=figures(0.0026)),
        case("bands", 1000, copy=figures(0.002), auto=figures(0.0024), cluster=cluster, torch=figures(0.04)),
        case(
            "small", 64, copy=figures(0.002), auto=figures(0.0015), naive={"wrong": "wrong", "error": "nan"}
        ),
        case("accuracy", 64, auto={"error": 1.234, "mean": 0.5}, torch={"cannot": "?"}),
    ]
    cases[3]["spread"] = 3
    kinds = {"copy": "copy", "auto": "ours", "cluster": "ours", "naive": "ours", "torch": "peer"}
    about = dict.fromkeys(report.ABOUT, "") | {"gpu": "a GPU", "date": "2026-01-01"}
    return {**about, "kinds": kinds, "cases": cases}


@pytest.mark.skipif(has_gpu(), reason="a GPU is here")
def test_without_a_gpu_one_line():
    done = run_python([SCRIPT])
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("bench_cuda.py: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("wrong", [["--parts", "band"], ["--dtypes", "float8"], ["--lengths", "1k"]])
def test_wrong_options(main_of, wrong):
    code, _, error = main_of("bench_cuda", *wrong)
    assert code == 2 and f"{wrong[1]!r} is none of" in error


def test_statistics(report):
    figures = report.figures_of([3.0, 1.0, 2.0], None, 4 * 10**6, 10**6, [0.5, 0.1, 0.6])
    assert figures == {"ms": 2, "low": 1, "high": 3, "spread": 0.5, "samples": 3, "gbps": 2, "x_copy": 1}
    assert report.rounded(1.23456) == 1.235
    assert report.rounded(float("nan")) == "nan"
    assert report.rounded(None) is None


def test_tables(report):
    text = "\n".join(report.tables(made_up(report)))
    ours, summary = text.split("# beside the peers")
    assert "| N | copy, GB/s | auto | cluster |" in ours
    assert "| 8 | 500 | 0.80 | 0.77 |" in ours
    assert "| 1000 | 500 | 0.83 | \N{EN DASH} |" in ours
    assert "| 1000 | 500 | 0.83 | \N{EN DASH} | 0.050 | 16.67 torch |" in summary
    assert "| 8 | 500 | 0.80 | 0.77 cluster | \N{EN DASH} | \N{EN DASH} |" in summary
    assert "| 4x64 | 2.00 | 1.50 | wrong |" in ours
    assert "| 64, 3 | 1.23 (0.50) | \N{EN DASH} |" in summary


def test_troubles(report):
    document = made_up(report)
    assert report.troubles(document) == []  # naive may be wrong
    document["cases"][0]["figures"]["auto"] = {"failed": "CUDA says no"}
    assert report.troubles(document) == ["auto, 4x8 float32: CUDA says no"]


def test_the_document(report, tmp_path):
    document, path = made_up(report), tmp_path / "new" / "made up.json"
    report.write(document, path)
    assert json.loads(path.read_text()) == document
    report.write({**document, "cases": []}, path)
    assert json.loads(path.read_text())["cases"] == []
    for broken in ({"cases": [{"label": "x"}]}, {"kinds": {}}):
        with pytest.raises(ValueError, match="lacks"):
            report.check_document({**document, **broken})


def test_what_is_committed_is_a_document(report):
    results = os.path.join(BENCHMARKS, "results")
    for name in os.listdir(results):
        if name.startswith(("cuda-", "losses-", "routers-", "sampler-")) and name.endswith(".json"):
            with open(os.path.join(results, name)) as file:
                report.check_document(json.load(file))


def test_cliffs(report):
    def band(N):
        return {"part": "bands", "dtype": "float16", "N": N, "figures": {"auto": {"x_copy": share(N)}}}

    def share(N):
        return 0.6 if N == 10 else 0.9

    (line,) = report.cliffs({"cases": [band(N) for N in range(20)]})
    assert "the least: 10: 0.60 (0.67), " in line
    assert not list(report.cliffs({"cases": [band(N) for N in range(19)]}))


def test_the_clock(report):
    clock = report.Clock(100, {"a": 1, "b": 3}, 0)
    clock.begin("a", 0)
    assert not clock.hurry(18) and clock.hurry(19) and not clock.over(25) and clock.over(26)
    clock.begin("b", 10)
    assert clock.share == 90


@pytest.mark.skipif(SANITIZED, reason="times nothing of C")
def test_a_run_on_a_stopwatch(tmp_path, main_of):
    pytest.importorskip("torch")
    path = tmp_path / "run.json"
    fake = os.path.join(ROOT, "tests", "tools", "fake_cuda.py")
    arguments = ["--total", "4096", "--lengths", "16,100", "--peers", "torch,unfused", "--rounds", "2"]
    done = run_python([fake, *arguments, "--dtypes", "float32", "--no-chart", "--json", path])
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(path.read_text())
    assert {case["part"] for case in document["cases"]} == {*document["options"]["parts"]}
    for case in document["cases"]:
        assert "skipped" not in case, case
        right = {"mean"} if case["part"] == "accuracy" else {"ms"}
        assert right <= case["figures"]["auto"].keys(), case
        assert right <= case["figures"]["torch"].keys(), case
    code, again, _ = main_of("bench_cuda", "--show", path, "--no-chart")
    assert code == 0 and again in done.stdout


def test_losses_without_a_gpu(main_of):
    code, _, error = main_of("gpu_losses", "--parts", "loss,no")
    assert code == 2 and "'no' is none of" in error


@pytest.mark.skipif(SANITIZED, reason="times nothing of C")
def test_losses_on_a_stopwatch(tmp_path, main_of):
    pytest.importorskip("torch")
    path = tmp_path / "losses.json"
    fake = os.path.join(ROOT, "tests", "tools", "fake_cuda.py")
    arguments = ["losses", "--peers", "torch,trl,quack,liger", "--rounds", "1", "--json", path]
    done = run_python([fake, *arguments], OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(path.read_text())
    assert {case["part"] for case in document["cases"]} == {*document["options"]["parts"]}
    for case in document["cases"]:
        assert "skipped" not in case, case
        unexpected = {
            name for name, figure in case["figures"].items() if not {"ms", "cannot"} & figure.keys()
        }
        assert not unexpected, case
    code, again, _ = main_of("gpu_losses", "--show", path)
    assert code == 0 and again in done.stdout
    assert "## loss_and_gradient: peak memory" in again
    for part in ("kl", "kl_gradient", "js_gradient"):
        head = again.split(f"## {part}: microseconds a call\n\n")[1].partition("\n")[0]
        assert {"auto", "torch", "Liger"} <= {*head.strip("| ").split(" | ")}
    assert "the time by invariant, divided by the time by auto" in again


# The k largest logits and their softmax, for float32. FIRST is the index of the first expert.
ROUTER_IN_C = r"""
#include <math.h>
int route(const float *x, int is_bfloat16, const float *bias, int rows, int n, int k, int groups,
          int top_groups, float scale, float *weights, int *indices, void *stream) {
  if (is_bfloat16 || bias) return 7;
  for (; rows > 0; rows--, x += n, weights += k, indices += k) {
    double sum = 0;
    for (int j = 0, last = -1; j < k; last = indices[j] - FIRST, j++) {
      int best = -1;
      for (int i = 0; i < n; i++)
        if ((last < 0 || x[i] < x[last]) && (best < 0 || x[i] > x[best])) best = i;
      indices[j] = best + FIRST;
      sum += weights[j] = exp(x[best]);
    }
    for (int j = 0; j < k; j++) weights[j] *= scale / sum;
  }
  return 0;
}
"""


@needs_compiler
@pytest.mark.skipif(SANITIZED, reason="times nothing of C")
def test_routers_on_a_stopwatch(tmp_path, main_of):
    """A library with the wrong experts is told apart, and so is a case that a library cannot take."""
    pytest.importorskip("torch")
    path, source = tmp_path / "routers.json", tmp_path / "router.c"
    source.write_text(ROUTER_IN_C)
    libraries = []
    for name, first in (("right", 0), ("shifted", 1)):
        built = tmp_path / f"{name}.so"
        flags = ["-O1", f"-DFIRST={first}", "-shared", "-fPIC"]
        subprocess.run([COMPILER, *flags, source, "-o", built, "-lm"], check=True)
        libraries += ["--library", f"{name}={built}"]
    fake = os.path.join(ROOT, "tests", "tools", "fake_cuda.py")
    arguments = ["--cells", "1x64,24x64,16x48", "--peers", "torch,quack", "--rounds", "1", "--json", path]
    done = run_python([fake, "routers", *arguments, *libraries], OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(path.read_text())
    assert len(document["cases"]) == 6
    for case in document["cases"]:
        figures, grouped = case["figures"], "DeepSeek" in case["label"]
        timed = {
            "copy",
            "softmax_topk",
            "auto",
            "int32",
            "torch",
            *([] if case["N"] != 64 or grouped else ["QuACK"]),
        }
        if case["dtype"] == "float32" and not grouped:
            timed.add("right")
            assert figures["shifted"]["wrong"] == "wrong"
        else:
            assert (
                figures["right"]["cannot"]
                == figures["shifted"]["cannot"]
                == "it cannot take the case: status 7"
            )
        assert {name for name, figure in figures.items() if "ms" in figure} == timed, case
    code, again, _ = main_of("gpu_routers", "--show", path)
    assert code == 0 and again in done.stdout
    assert "| shape | copy, us | auto | best of ours | torch | QuACK | right | shifted |" in again


# FlashInfer's functions, with the most likely token in place of a draw. LAZY leaves the tokens as they were.
FLASHINFER_IN_C = r"""
#include <math.h>
static int draw(const float *p, int *tokens, int rows, int n) {
  for (int row = 0; row < rows && !LAZY; row++, p += n) {
    tokens[row] = 0;
    for (int i = 1; i < n; i++)
      if (p[i] > p[tokens[row]]) tokens[row] = i;
  }
  return 0;
}
#define START const float *p, int *tokens, char *valid, int rows
int fi_gumbel(const float *x, int *tokens, int rows, int n, void *stream) { return draw(x, tokens, rows, n); }
int fi_probs(START, int n, void *stream) { return draw(p, tokens, rows, n); }
int fi_topp(START, float top_p, int n, void *stream) { return top_p < 0.9f ? 1 : draw(p, tokens, rows, n); }
int fi_topk(START, int k, int n, void *stream) { return k != 50 ? 2 : draw(p, tokens, rows, n); }
int fi_minp(START, float min_p, int n, void *stream) {
  return min_p != 0.02f ? 3 : draw(p, tokens, rows, n);
}
int fi_topktopp(START, int k, float top_p, int n, void *stream) {
  return k != 50 || top_p != 0.9f ? 4 : draw(p, tokens, rows, n);
}
int fi_select(const float *x, int *tokens, float *values, int rows, int k, int n, char *zeros, void *stream) {
  if (k != 50 || zeros[(1 << 24) - 1]) return 5;
  for (; rows > 0; rows--, x += n, tokens += k, values += k)
    for (int j = 0; j < k; values[j] = x[tokens[j]], j++) {
      tokens[j] = -1;
      for (int i = 0; i < n; i++)
        if ((!j || x[i] < values[j - 1]) && (tokens[j] < 0 || x[i] > x[tokens[j]])) tokens[j] = i;
    }
  return 0;
}
int fi_softmax(const float *x, float *y, int rows, int n, float temperature, char *zeros, size_t bytes,
               void *stream) {
  if (zeros[bytes - 1] || bytes != 1 << 26) return 6;
  for (; rows > 0; rows--, x += n, y += n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += y[i] = exp(x[i] / temperature);
    for (int i = 0; i < n; i++) y[i] /= sum;
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def sampler_runs(tmp_path_factory):
    """The documents of gpu_sampler.py, by what stands in for FlashInfer, and what the runs printed."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("sampler")
    (folder / "flashinfer.c").write_text(FLASHINFER_IN_C)
    found = {}
    for name, more in {
        "module": ["--peers", "torch,flashinfer"],
        "library": ["--peers", "flashinfer", "--dtypes", "float32"],
        "lazy library": ["--peers", "flashinfer", "--dtypes", "float32", "--temperatures", "1"],
    }.items():
        if "library" in name:
            built = folder / f"{name}.so"
            flags = ["-O1", "-include", "stddef.h", f"-DLAZY={int('lazy' in name)}", "-shared", "-fPIC"]
            subprocess.run([COMPILER, *flags, folder / "flashinfer.c", "-o", built, "-lm"], check=True)
            more += ["--flashinfer", built]
        path = folder / f"{name}.json"
        fake = os.path.join(ROOT, "tests", "tools", "fake_cuda.py")
        done = run_python([fake, "sampler", "--rounds", "1", "--json", path, *more], OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stdout + done.stderr
        found[name] = json.loads(path.read_text()), done.stdout, path
    return found


@needs_compiler
@pytest.mark.skipif(SANITIZED, reason="times nothing of C")
@pytest.mark.parametrize("by", ["module", "library"])
def test_the_sampler_on_a_stopwatch(sampler_runs, by, main_of):
    document, printed, path = sampler_runs[by]
    assert len(document["cases"]) == 2 * 8 * 2 * (2 if by == "module" else 1)
    for case in document["cases"]:
        assert case["in_graph"]
        setting = case["setting"]
        timed = {"copy", "softmax_topk", "auto", "per row"}
        if setting in ("none", "top_k", "top_k_top_p"):
            timed.add("FlashInfer")
        if setting in ("none", "top_k", "joint", "top_p", "min_p", "wide"):
            timed.add("FlashInfer softmax")
        if by == "module":
            timed.add("torch")
            if setting == "none":
                timed |= {"torch Gumbel", "torch.multinomial"}
            elif setting in ("top_k", "top_k_top_p", "all"):
                timed.add("torch top-k")
        assert {name for name, figure in case["figures"].items() if "ms" in figure} == timed, case
    code, again, _ = main_of("gpu_sampler", "--show", path)
    assert code == 0 and again in printed
    assert "| shape | none | top_k | top_k_top_p | joint | all | top_p | min_p | wide |" in again


@needs_compiler
@pytest.mark.skipif(SANITIZED, reason="times nothing of C")
def test_tokens_that_a_library_did_not_write_are_wrong(sampler_runs):
    document, _, _ = sampler_runs["lazy library"]
    figures = [case["figures"].get("FlashInfer softmax") for case in document["cases"]]
    figures = [figure for figure in figures if figure]
    assert len(figures) == 2 * 6
    assert all(figure["wrong"] == "wrong" for figure in figures)


SAMPLERS = ["none", "top_k", "top_k_top_p", "joint", "all", "top_p", "min_p", "wide"]


@pytest.fixture
def sampler_case(monkeypatch):
    """Makes a case of a setting with so many rows, and its logits on the CPU."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(BENCHMARKS)
    import gpu_sampler_cases
    import gpu_sampler_contestants

    from onsoftmax.bench import gpu_case

    monkeypatch.setattr(gpu_case, "DEVICE", "cpu")

    def make(setting, rows, dtype="float32", temperature=0.7):
        torch.manual_seed(0)
        spread = gpu_sampler_cases.WIDE_SPREAD if setting == "wide" else gpu_sampler_cases.SPREAD
        terms = {"spread": spread, "setting": setting, "temperature": temperature}
        case = gpu_sampler_cases.SamplerCase("sampler", (rows, 300), dtype, **terms)
        return case, gpu_sampler_contestants.sampler_tensors(case)

    return make


@pytest.mark.parametrize("setting", SAMPLERS)
def test_the_reference_of_samplers(sampler_case, setting):
    """The token of each rank is right if the definition keeps it. The first other token is wrong."""
    case, tensors = sampler_case(setting, 6)
    from gpu_sampler_contestants import SamplerReference
    from sample_checks import draws_of

    filters = {**case.filters, "temperature": case.temperature}
    draws = draws_of(tensors["x"].numpy(), seed=0, **filters)
    reference = SamplerReference(case, tensors)
    order = tensors["x"].sort(-1, descending=True).indices
    for rank in range(case.N):
        right = reference.error_eps(order[:, rank]) == 0
        assert right or rank >= draws.kept[:, 0].min()
        assert not right or rank < draws.kept[:, 2].max() + 3
    assert reference.error_eps(order[:, 0] - case.N) != 0
    assert reference.error_eps(order[:5, 0]) != 0


@pytest.mark.parametrize("setting", SAMPLERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_draws_of_samplers(sampler_case, setting, dtype):
    """Peers in torch and both calls of ours draw from the distribution that the definition gives. Tokens with
    equal logits count together."""
    case, tensors = sampler_case(setting, 20000, dtype)
    import torch
    from gpu_sampler_contestants import contestants
    from sample_checks import draws_of

    tensors["x"][:] = tensors["x"][:1]
    filters = {**case.filters, "temperature": case.temperature}
    draws = draws_of(tensors["x"][:1].float().numpy(), seed=0, **filters)
    kept = draws.kept[0, 1]
    group = tensors["x"][0].unique(return_inverse=True)[1]
    expected = torch.zeros(case.N, dtype=torch.float64)
    p = torch.tensor(draws.scaled[0, :kept]).softmax(-1)
    expected.index_add_(0, group[torch.tensor(draws.order[0, :kept])], p)
    drawers = [c for c in contestants(case, ["torch"], None) if c.kind in ("ours", "peer")]
    assert len(drawers) >= 3
    for contestant in drawers:
        tokens = eval(contestant.line, contestant.names(tensors))
        share = group[tokens].bincount(minlength=case.N) / len(tokens)
        rare = 6 * (expected > 0) / len(tokens)  # a few draws of tokens that are hardly ever drawn
        within = 6 * (expected / len(tokens)).sqrt() + rare
        assert ((share - expected).abs() <= within).all(), contestant.name


@pytest.mark.parametrize(("part", "wrt"), [("kl_gradient", "p"), ("kl_gradient", "q"), ("js_gradient", "q")])
def test_the_reference_of_divergences(monkeypatch, part, wrt):
    """It finds the gradient of the other side, and another reduction."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(BENCHMARKS)
    from gpu_loss_answers import reference
    from gpu_loss_cases import LossCase

    import onsoftmax as ons

    function = ons.js_divergence_with_grad if part == "js_gradient" else ons.kl_divergence_with_grad
    tensors = {"x": torch.randn(5, 40), "q": torch.randn(5, 40)}
    case = LossCase(part, (5, 40), "float32", reduction="mean", wrt=wrt)
    exact = reference(case, tensors)
    for of, reduction in (("p", "mean"), ("q", "mean"), (wrt, "sum")):
        value, gradient = function(tensors["x"], tensors["q"], wrt=of, reduction=reduction)
        right = (of, reduction) == (wrt, "mean")
        for parts in ({"gradient": gradient},) if of != wrt else ({"gradient": gradient}, {"value": value}):
            assert (exact.error_eps(parts) < 4) == right


@pytest.mark.skipif(SANITIZED, reason="times nothing of C")
def test_linear_loss_on_a_cpu(tmp_path, main_of):
    pytest.importorskip("torch")
    path = tmp_path / "linear.json"
    script = os.path.join(BENCHMARKS, "gpu_linear_loss.py")
    sizes = ["--tokens", "50", "--hidden", "16", "--vocabulary", "100", "--chunks", "8", "--rounds", "2"]
    done = run_python([script, "--device", "cpu", *sizes, "--peers", "torch,chunked", "--json", path])
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(path.read_text())["figures"]
    assert {"products", "auto", "chunk=8", "torch"} <= figures.keys()
    assert all("ms" in figure for figure in figures.values()), figures
    assert main_of("gpu_linear_loss", "--show", path)[:2] == (0, done.stdout)


def test_linear_loss_troubles(monkeypatch):
    """Each limit is close enough to the recorded errors to find a worse loss or gradient."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(BENCHMARKS)
    import gpu_linear_loss

    def troubles(name, what, times):
        document = json.loads(recorded)
        document["figures"][name]["errors"][what] *= times
        return gpu_linear_loss.troubles(document)

    with open(os.path.join(BENCHMARKS, "results", "linear-loss-h200-2026-11-29.json")) as file:
        recorded = file.read()
    for what, times in (("loss", 30), ("gradient of x", 1.3), ("gradient of weight", 1.5)):
        assert troubles("auto", what, 1) == []
        (line,) = troubles("auto", what, times)
        assert line.startswith(f"auto: {what} is off by ")
        assert troubles("Liger", what, 100) == []  # another contestant may be wrong
    assert len(troubles("torch", "gradient of weight", 0.7)) == 1
