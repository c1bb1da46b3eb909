"""``scan`` in compiled graphs: a loop of the program, held against PyTorch's own definition on the CPU."""

import importlib
import unittest.mock

import pytest
from torch.utils._pytree import tree_leaves, tree_map

import torch
from torch import nn
from torch_tpu import control

TORCH = importlib.import_module("torch._higher_order_ops.scan")  # the package has a function of the same name
SCANS = {"tpu": TORCH.scan, "cpu": TORCH._fake_scan}


@pytest.fixture
def loops():
    """How many scans became loops, and the reasons why others did not."""

    def count(*operands):
        try:
            results = on_device(*operands)
            made.append("loop")
            return results
        except control.NotOnDevice as error:
            made.append(str(error))
            raise

    made, on_device = [], control.scan_on_device
    with unittest.mock.patch.object(control, "scan_on_device", count):
        yield made


def same(actual, expected, **tolerances) -> None:
    for a, b in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a.cpu(), b, **tolerances)


def on_both(function, *arguments, compiled=None, **tolerances):
    """The compiled function on tpu, and the function on the CPU; they agree."""
    expected = function(SCANS["cpu"], *arguments)
    moved = tree_map(lambda x: x.to("tpu"), arguments)
    found = (compiled or torch.compile(function))(SCANS["tpu"], *moved)
    same(found, expected, **tolerances)


def numbers(*sizes, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(sizes).to(dtype) if dtype.is_floating_point else torch.randint(-9, 9, sizes, dtype=dtype)


def running(scan, start, xs):
    """Two carries of different sizes; a tensor, and a dict of two, for each step."""

    def step(carry, x):
        total, count = carry
        total = total + x["a"] * x["b"]
        return (total, count + 1), (total * count, {"first": x["a"] - total, "sum": total.sum(-1)})

    return scan(step, start, xs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
def test_lengths_and_dtypes(dtype, loops):
    compiled = torch.compile(running)
    start = numbers(2, 3, dtype=dtype), torch.zeros((), dtype=torch.int64)
    for length in (7, 1000, 1):
        xs = {name: numbers(length, 2, 3, dtype=dtype) // 2 for name in "ab"}
        tolerances = {} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
        on_both(running, start, xs, compiled=compiled, **tolerances)
    assert loops == ["loop"] * len(loops) and len(loops) >= 3


def test_another_length_compiles_nothing():
    """It is the same code with another number of rounds, and one program; nothing is read on the way."""
    compiled = torch.compile(lambda h, xs: TORCH.scan(lambda h, x: (h * 0.5 + x, h.exp()), h, xs), dynamic=True)
    h, short, long = torch.zeros(3).to("tpu"), torch.randn(7, 3).to("tpu"), torch.randn(1000, 3).to("tpu")
    compiled(h, short)
    torch.tpu.synchronize()
    before = torch.tpu.counters()
    compiled(h, long)
    torch.tpu.synchronize()
    after = torch.tpu.counters()
    assert after["programs_compiled"] == before["programs_compiled"]
    assert after["programs_run"] == before["programs_run"] + 1 and after["host_reads"] == before["host_reads"]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_directions(dim, reverse, loops):
    weight = torch.randn(4, 4) / 2

    def function(scan, h, xs, weight):
        return scan(lambda h, x: (torch.tanh(x @ weight + h), h * x), h, xs, dim=dim, reverse=reverse)

    sizes = [3, 4]
    sizes.insert(dim, 6)
    on_both(function, torch.randn(3, 4), torch.randn(sizes), weight, rtol=1e-5, atol=1e-5)
    assert loops == ["loop"]


def test_within_branches_and_branches_within(loops):
    def function(scan, h, xs):
        branch = torch.cond if scan is SCANS["tpu"] else lambda go, yes, no, operands: (yes if go else no)(*operands)

        def step(h, x):
            h = branch(x.sum() > 0, lambda h, x: h.sin() + x, lambda h, x: h * 2 - x, (h, x))
            return h + 1, h * x

        return branch(xs.sum() > 0, lambda h, xs: scan(step, h, xs), lambda h, xs: (h + 1, xs * 2), (h, xs))

    compiled, xs = torch.compile(function), torch.rand(9, 4)
    for sign in (1, -1):
        on_both(function, torch.randn(4), xs * sign, compiled=compiled, rtol=1e-5, atol=1e-5)
    assert loops == ["loop"]


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients(reverse, loops):
    """Of what is carried first, of slices, and of what all steps see; forward and backward are loops."""

    def loss(scan, h, a, b, weight):
        def step(carry, x):
            h, total = carry
            m = torch.tanh(x["a"] @ weight + h @ weight)
            return (m.clone(), total * 0.5 + m * 2), (
                m * x["b"],
                (m @ weight).relu(),
            )  # cloned, for PyTorch saves m too

        (h, total), (y, z) = scan(step, (h, h * 2), {"a": a, "b": b}, reverse=reverse)
        return h.square().sum() + total.sum() + (y * 1.5).sum() + z.cos().sum()

    def gradients(device, loss, *arguments):
        leaves = [x.to(device).requires_grad_() for x in arguments]
        return torch.autograd.grad(loss(SCANS[device], *leaves), leaves)

    compiled = torch.compile(loss)
    for length in (7, 40):
        sizes = (2, 4), (length, 2, 4), (length, 2, 4), (4, 4)
        arguments = [torch.randn(s) / 2 for s in sizes]
        expected = gradients("cpu", loss, *arguments)
        for found, gradient in zip(gradients("tpu", compiled, *arguments), expected, strict=True):
            torch.testing.assert_close(found.cpu(), gradient, rtol=1e-4, atol=1e-5)
    assert set(loops) == {"loop"}


def test_a_weight_is_saved_once():
    """The backward pass needs its transpose at each step: one copy, and not one a step."""

    def loss(xs, weight):
        h, ys = TORCH.scan(lambda h, x: (torch.tanh(x + h @ weight), h * 2), torch.zeros_like(xs[0]), xs)
        return h.sum() + ys.square().sum()

    steps, features = 500, 64
    xs, weight = torch.randn(steps, 2, features).to("tpu"), torch.eye(features).to("tpu").requires_grad_()
    compiled = torch.compile(loss)
    torch.autograd.grad(compiled(xs, weight), weight)
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    before = torch.tpu.memory_allocated()
    torch.autograd.grad(compiled(xs, weight), weight)
    torch.tpu.synchronize()
    assert torch.tpu.max_memory_allocated() - before < steps * features * features * 4 / 2


def test_a_result_that_is_the_same_at_each_step(loops):
    """It is written out for whoever asked for it: memory of its own, row-major."""

    def function(scan, h, xs, weight):
        return scan(lambda h, x: (h + x, (weight.clone(), weight.t() + 0)), h, xs, reverse=True)

    on_both(function, torch.randn(3), torch.randn(4, 3), torch.randn(2, 3))
    assert loops == ["loop"]


def test_order_in_memory():
    """Operands that are not row-major: results lie in memory as the graph was told, so views of them stay views."""
    from torch._higher_order_ops.while_loop import while_loop

    def scanned(h, xs):
        h, ys = TORCH.scan(lambda h, x: (h * 0.5 + x.T, h * x.T), h.T, xs)
        return h.T.view(-1), ys

    def looped(h, xs):
        start = torch.zeros((), dtype=torch.int64, device=h.device)
        h = while_loop(lambda i, h: i < 5, lambda i, h: (i + 1, h * 0.5 + xs[0].T), (start, h.T))[1]
        return h.T.view(-1), h

    def chosen(h, xs):
        h = torch.cond(xs.sum() > 0, lambda h: h * 2, lambda h: h + 1, (h.T,))
        return h.T.view(-1), h

    h, xs = torch.randn(3, 4), torch.randn(5, 3, 4)
    for function in (scanned, looped, chosen):
        expected = torch.compile(function, backend="aot_eager")(h, xs)
        same(torch.compile(function)(h.to("tpu"), xs.to("tpu")), expected, rtol=1e-5, atol=1e-5)


def test_random_numbers_are_drawn_step_by_step(loops):
    def function(h, xs):
        return TORCH.scan(lambda h, x: (h + x, nn.functional.dropout(x, 0.5)), h, xs)

    compiled, ones = torch.compile(function), torch.ones(4, 100, device="tpu")
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        draws.append(compiled(torch.zeros(100, device="tpu"), ones)[1].cpu())
    assert torch.equal(*draws) and not torch.equal(draws[0][0], draws[0][1])
    assert set(draws[0].unique().tolist()) == {0, 2}
    assert all("random" in reason for reason in loops)


def wrong_dtype(h, xs):
    return TORCH.scan(lambda h, x: ((h + x).double(), x * 2), h, xs)


def wrong_size(h, xs):
    return TORCH.scan(lambda h, x: (torch.cat([h, x]), x * 2), h, xs)


def alias(h, xs):
    return TORCH.scan(lambda h, x: (h + x, x), h, xs)


def no_steps(h, xs):
    return TORCH.scan(lambda h, x: (h + x, x * 2), h, xs[:0])


@pytest.mark.parametrize("function", [wrong_dtype, wrong_size, alias, no_steps], ids=lambda f: f.__name__)
def test_errors_are_those_of_the_cpu(function):
    raised = []
    for device, backend in (("cpu", "aot_eager"), ("tpu", "tpu")):
        with pytest.raises(Exception) as error:  # whatever PyTorch raises
            torch.compile(function, backend=backend)(torch.zeros(3, device=device), torch.ones(4, 3, device=device))
        says = str(error.value).replace(", device='tpu:0'", "").splitlines()[:3]
        raised.append((type(error.value), says))
    assert raised[0] == raised[1]


def test_an_index_out_of_range_in_a_step():
    def function(table, rows):
        return TORCH.scan(lambda h, row: (h + table.index_select(0, row)[0], h * 2), torch.zeros_like(table[0]), rows)

    compiled, table = torch.compile(function), torch.randn(5, 3, device="tpu")
    total = compiled(table, torch.tensor([[1], [4]], device="tpu"))[0]
    torch.testing.assert_close(total, table[1] + table[4])
    with pytest.raises(IndexError, match=r"test_compile_scan\.py:\d+, in .*index 9 is out of range \[0, 5\)"):
        compiled(table, torch.tensor([[1], [9]], device="tpu"))[0].cpu()
