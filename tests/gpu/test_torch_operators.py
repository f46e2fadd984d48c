"""torch's operators of our functions on a GPU: gradients, transforms, torch.compile, autocast."""

import pytest

import onsoftmax as ons

torch = pytest.importorskip("torch")
checks = pytest.importorskip("torch_operator_checks")


def test_gradients():
    checks.check_gradients("cuda")


def test_operators():
    checks.check_operators("cuda")


def test_samples_of_torch():
    assert checks.check_samples("cuda") >= 100


def test_transforms():
    checks.check_transforms("cuda")


def test_rows_of_the_profiler():
    checks.check_profiled("cuda")


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compiled(mode):
    """With CUDA graphs too."""
    checks.check_bits_compiled("cuda", "inductor", mode=mode)


def test_compiled_graphs():
    checks.check_compiled("cuda", "inductor")


def test_training_in_cuda_graphs():
    """Forward and backward of a model in CUDA graphs. Each step reads its own arrays."""
    torch._dynamo.reset()
    weights = torch.nn.Linear(64, 1000, device="cuda")

    def loss(x, target):
        return -ons.log_softmax(weights(x)).gather(-1, target).mean()

    compiled = torch.compile(loss, fullgraph=True, mode="reduce-overhead")
    for step in range(5):
        x = torch.randn(32, 64, device="cuda")
        target = torch.full((32, 1), step, device="cuda")
        grads = []
        for function in (loss, compiled):
            weights.zero_grad()
            function(x, target).backward()
            grads.append(weights.weight.grad.clone())
        torch.testing.assert_close(*grads)


def test_own_graph_of_a_step():
    x = torch.randn(64, 5000, device="cuda", requires_grad=True)
    weights = torch.randn_like(x)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # torch asks for one run before, on another stream
        (ons.softmax(x) * weights).sum().backward()
    torch.cuda.current_stream().wait_stream(stream)
    x.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (ons.softmax(x) * weights).sum().backward()
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
    graph.replay()
    expected = torch.autograd.grad((torch.softmax(x, -1) * weights).sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_autocast(name, dtype):
    """As in torch, 16-bit rows give a float32 result, even if the tensor needs no gradient."""
    ours, theirs = getattr(ons, name), getattr(torch, name)
    operator = getattr(torch.ops.onsoftmax, name)
    x = torch.randn(5, 300, device="cuda", dtype=dtype)
    with torch.autocast("cuda", dtype):
        expected = theirs(x, -1)
        for given in (x, x.clone().requires_grad_()):
            for y in (ours(given), operator(given, [-1])):
                assert y.dtype == torch.float32 == expected.dtype
                torch.testing.assert_close(y, expected)
        (grad,) = torch.autograd.grad(ours(given).square().sum(), given)
        (theirs_grad,) = torch.autograd.grad(theirs(given, -1).square().sum(), given)
        assert grad.dtype == dtype
        torch.testing.assert_close(grad, theirs_grad)
        assert ons.softmax(x, dtype=torch.float64).dtype == torch.float64
        out = torch.empty_like(x)
        assert ons.softmax(x, out=out) is out
        assert ons.softmax(x.double()).dtype == torch.float64
        assert ons.softmax_backward(x, x).dtype == dtype
        compiled = torch.compile(lambda t: ours(t), fullgraph=True)
        assert compiled(x).dtype == torch.float32
    assert ours(x).dtype == dtype


def test_streams():
    """Forward and backward work is on torch's current stream."""
    x = torch.randn(2000, 5000, device="cuda", requires_grad=True)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        with torch.no_grad():
            x.mul_(2)
        y = ons.softmax(x)
        y.square().sum().backward()
    stream.synchronize()
    expected = torch.autograd.grad(torch.softmax(x, -1).square().sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)
