"""The stand-ins of peer_shims.py beside torch, on a small case each. The peers' own tests need a checkout."""

from importlib import import_module

import pytest
from support import run_python

torch = pytest.importorskip("torch")
pytest.importorskip("onsoftmax.torch")
peer_shims = import_module("peer_shims")

F = torch.nn.functional


def arguments(ignored=-100):
    """Logits, targets, weights of the classes, and the weight and the bias of a layer."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 50, generator=generator)
    target = torch.randint(3, 50, (6,), generator=generator)
    target[2] = ignored
    return x, target, *(torch.rand(shape, generator=generator) for shape in (50, (50, 50), 50))


def assert_alike(ours, theirs, x):
    """The values of both functions of x, and the gradients of x."""
    results = []
    for function in (ours, theirs):
        leaf = x.clone().requires_grad_()
        value = function(leaf)
        gradient = torch.autograd.grad(value, leaf, torch.linspace(1, 2, value.numel()).view(value.shape))
        results.append((value.detach(), *gradient))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_liger(reduction):
    x, target, weight, *_ = arguments(ignored=2)
    counts, tokens = target != 2, x.argmax(-1)
    terms = {"reduction": reduction, "ignore_index": 2, "label_smoothing": 0.1}
    wanted = {"return_z_loss": True, "return_token_accuracy": True, "return_predicted_tokens": True}

    def z_loss(x):
        terms = (0.3 * x.logsumexp(-1).square()).masked_fill(~counts, 0)
        return {"mean": terms.sum() / counts.sum(), "sum": terms.sum(), "none": terms}[reduction]

    def ours(x):
        return peer_shims.liger_cross_entropy(x, target, lse_square_scale=0.3, **terms, **wanted)

    assert_alike(lambda x: ours(x).loss, lambda x: F.cross_entropy(x, target, **terms) + z_loss(x), x)
    torch.testing.assert_close(ours(x).z_loss, z_loss(x))
    assert ours(x).predicted_tokens.tolist() == tokens.where(counts, torch.tensor(-1)).tolist()
    assert ours(x).token_accuracy == (tokens == target)[counts].float().mean()
    weighted = [
        lambda x, f=f: f(x, target, weight, **terms)
        for f in (peer_shims.liger_cross_entropy, F.cross_entropy)
    ]
    assert_alike(*weighted, x)
    with pytest.raises(AssertionError, match="out of bounds"):
        peer_shims.liger_cross_entropy(x, target + 50)


def test_linear_layers():
    x, target, weight, layer, bias = arguments()
    terms = {"reduction": "sum", "label_smoothing": 0.1}
    given = layer, target, bias, weight, -100, 0.0, 0.1, "sum", None, False, None, False, False, False
    for ours in (
        lambda x: peer_shims.liger_linear_cross_entropy(layer, x, target, bias, ce_weight=weight, **terms),
        lambda x: peer_shims.liger_linear_of_x(x, layer, target, bias, ce_weight=weight, **terms),
        lambda x: peer_shims.liger_linear_applied(x, *given)[0],
    ):
        assert_alike(ours, lambda x: F.cross_entropy(F.linear(x, layer, bias), target, weight, **terms), x)
    assert_alike(
        lambda x: peer_shims.quack_linear(x, layer, target, chunk_size=4, tuned=False),
        lambda x: F.cross_entropy(F.linear(x, layer), target),
        x,
    )


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
def test_divergences():
    x, labels, *_ = arguments()
    log_q, log_p = x.log_softmax(-1), arguments()[3][:6].log_softmax(-1)
    for reduction in ("sum", "mean", "batchmean"):  # of rows whose sum is not 1, as in 16 bits
        assert_alike(
            lambda x, r=reduction: peer_shims.liger_kl(x, log_p.exp(), reduction=r, log_target=False),
            lambda x, r=reduction: F.kl_div(x, log_p.exp(), reduction=r),
            log_q + 0.01,
        )

    def kl(log_p, log_q):
        return (log_p.exp() * (log_p - log_q)).sum(-1)

    def js(x, beta):
        if beta in (0, 1):
            return kl(x, log_p) if beta else kl(log_p, x)
        log_r = (beta * log_p.exp() + (1 - beta) * x.exp()).log()
        return beta * kl(log_p, log_r) + (1 - beta) * kl(x, log_r)

    for beta in (0, 0.2, 0.5, 1):
        assert_alike(
            lambda x, beta=beta: peer_shims.liger_js(x, log_p, labels, beta=beta),
            lambda x, beta=beta: js(x, beta)[labels != -100].mean(),
            log_q,
        )


def test_quack():
    x, target, weight, *_ = arguments()
    terms = {"weight": weight, "reduction": "none"}
    assert_alike(
        lambda x: peer_shims.quack_cross_entropy(x, target, **terms),
        lambda x: F.cross_entropy(x, target, **terms),
        x,
    )
    leaf = x.clone().requires_grad_()
    expected = F.cross_entropy(leaf, target, weight, reduction="none")
    gradient = torch.autograd.grad(expected.sum(), leaf)[0]
    given = x.clone()
    found = peer_shims.quack_forward(
        given, target, weight=weight, return_lse=True, return_dx=True, inplace_backward=True
    )
    torch.testing.assert_close(found, (expected.detach(), x.logsumexp(-1), gradient))
    assert found[2] is given
    torch.testing.assert_close(peer_shims.quack_forward(leaf, target, weight=weight), expected.detach())
    factors = torch.linspace(1, 2, 6)
    gradient = torch.autograd.grad(F.cross_entropy(leaf, target, reduction="none"), leaf, factors)[0]
    torch.testing.assert_close(peer_shims.quack_backward(x, target, factors, None), gradient)


@pytest.mark.parametrize("in_place", [False, True])
def test_flash_attention(in_place):
    x, target, *_ = arguments()

    def ours(x):
        terms = {"lse_square_scale": 0.3, "return_z_loss": True, "inplace_backward": in_place}
        return peer_shims.flash_cross_entropy(x, target, label_smoothing=0.1, logit_scale=1.0, **terms)

    def z_loss(x):
        return 0.3 * x.logsumexp(-1)[target != -100].square().mean()

    torch.testing.assert_close(ours(x)[1], z_loss(x))
    assert_alike(
        lambda x: ours(x)[0], lambda x: F.cross_entropy(x, target, label_smoothing=0.1) + z_loss(x), x
    )


def test_flashinfer():
    """Each function draws the tokens that its filters keep, and the row of a wrong number has the token 0."""
    sampling = peer_shims.flashinfer_sampling()
    x = arguments()[0][:3]
    x[1, 7] = torch.nan
    probs, rows = x.softmax(-1), torch.arange(3).repeat(400)
    order = x.nan_to_num(-9).argsort(-1, descending=True)
    mass = probs.gather(-1, order).cumsum(-1)

    def kept_by(tokens, valid):
        """The numbers of kept tokens of the first and the last row, if the draws found all of them."""
        assert tokens.dtype == torch.int64 and (tokens[rows == 1] == 0).all()
        assert (valid == (rows != 1)).all()
        found = [tokens[rows == row].unique() for row in (0, 2)]
        for row, some in zip((0, 2), found, strict=True):
            assert some.tolist() == order[row, : len(some)].sort().values.tolist()
        return [len(some) for some in found]

    terms = {"indices": rows, "return_valid": True}
    half = [int((mass[row] < 0.5).sum()) + 1 for row in (0, 2)]
    likely = [int((probs[row] >= 0.5 * probs[row].max()).sum()) for row in (0, 2)]
    k = torch.tensor([3, 3, 5])
    for seed in (None, 5):
        terms |= {"seed": seed}
        assert kept_by(*sampling.top_k_sampling_from_probs(probs, 4, **terms)) == [4, 4]
        assert kept_by(*sampling.top_p_sampling_from_probs(probs, 0.5, **terms)) == half
        assert kept_by(*sampling.min_p_sampling_from_probs(probs, 0.5, **terms)) == likely
        for function, given in (
            (sampling.top_k_top_p_sampling_from_probs, probs),
            (sampling.top_k_top_p_sampling_from_logits, x),
        ):
            kept = kept_by(*function(given, k[rows], 0.5, filter_apply_order="joint", **terms))
            assert kept == [min(half[0], 3), min(half[1], 5)]
    assert kept_by(peer_shims.vllm_sample(x[rows], k[rows], None, {}).long(), rows != 1) == [3, 5]
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 1, 2)]
    one, again, other = (
        sampling.sampling_from_logits(x[:1].expand(99, -1), generator=each) for each in generators
    )
    assert one.dtype == torch.int32 and (one == again).all() and (one != other).any()
    assert (sampling.sampling_from_probs(probs, seed=1) == sampling.sampling_from_logits(x, seed=1)).all()
    for temperature in (0.5, torch.tensor([0.5, 1, 2])):
        divisor = temperature if isinstance(temperature, float) else temperature[:, None]
        wanted = (x / divisor).softmax(-1)
        torch.testing.assert_close(sampling.softmax(x, temperature=temperature), wanted, equal_nan=True)


def test_run(tmp_path):
    """A checkout with a test that passes, a test that fails, and a test that does not run."""
    utils, tests = (
        tmp_path / "tests/pytorch" / f"{name}.py" for name in ("utils", "test_parallel_cross_entropy")
    )
    utils.parent.mkdir(parents=True)
    utils.write_text(
        "import absent\n\ndef dtype_tols(dtype: absent.Type):\n    return {'rtol': 1e-5, 'atol': 0}\n"
    )
    tests.write_text("""
import torch
from transformer_engine.pytorch import parallel_cross_entropy
from utils import dtype_tols

def test_beside_torch():
    x, target = torch.randn(3, 5, 7, device="cuda"), torch.ones(3, 5, dtype=int, device="cuda")
    loss = torch.nn.functional.cross_entropy(x.view(15, 7), target.view(15), label_smoothing=0.1)
    found = parallel_cross_entropy(x, target, 0.1, True, None)
    torch.testing.assert_close(found, loss, **dtype_tols(x.dtype))

def test_wrong():
    x, target = torch.zeros(1, 2, 3), torch.ones(1, 2, dtype=int)
    assert parallel_cross_entropy(x, target, 0, False, None).sum() == 1

def test_external_grad():
    raise SystemError
""")
    done = run_python([peer_shims.__file__, "transformer-engine", str(tmp_path)], PYTEST_ADDOPTS=None)
    assert done.returncode == 1, done.stderr
    assert "1 failed, 1 passed, 1 deselected" in done.stdout, done.stdout
    assert "not run:    1 tests: asks which tensors" in done.stdout
