"""torch.compile: graphs on tpu give what eager mode gives, to the bit where both run the same operators."""

import importlib
import os
import pathlib
import unittest.mock

import pytest
import torch.nn.functional as F
import torch.utils.checkpoint
from models import MODELS, make
from support import in_fresh_python
from torch.utils._pytree import tree_leaves

import torch
from torch import nn

EVERY_MODEL = os.environ.get("TTPU_TEST_ALL", "0") == "1"


@pytest.fixture(autouse=True)
def fresh_dynamo(no_fallback):
    torch._dynamo.reset()
    yield


def same(actual, expected, **tolerances) -> None:
    """Both structures agree, to the bit unless tolerances say otherwise."""
    tolerances = tolerances or {"rtol": 0, "atol": 0}
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerances)


def gradients(model: nn.Module, loss: torch.Tensor) -> dict:
    """The gradients of all parameters, which are left without one."""
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def compare(model: nn.Module, *inputs, times: int = 2, **options) -> None:
    """Results, gradients and buffers of a compiled model, several times in a row."""
    compiled = torch.compile(model, **options)
    for _ in range(times):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        torch.manual_seed(1)
        expected = model(*inputs)
        expected_gradients = gradients(model, expected.float().sum())
        after = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(state)
        torch.manual_seed(1)
        actual = compiled(*inputs)
        same(actual, expected)
        same(gradients(model, actual.float().sum()), expected_gradients, rtol=1e-5, atol=1e-6)
        same(model.state_dict(), after)


# ---- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS if EVERY_MODEL else ["gpt2", "vit"])
def test_model(name):
    """Forward, backward with dropout, and a step of AdamW, twice."""
    model = make(name).to("tpu")
    inputs = {key: value.to("tpu") for key, value in MODELS[name].inputs().items()}
    compiled = torch.compile(model)
    with torch.no_grad():
        same(compiled(**inputs).logits, model(**inputs).logits)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(2):
        torch.manual_seed(step)
        expected = gradients(model, model(**inputs).loss)
        torch.manual_seed(step)
        loss = compiled(**inputs).loss
        loss.backward()
        same({n: p.grad for n, p in model.named_parameters() if p.grad is not None}, expected, rtol=1e-5, atol=1e-6)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.skipif(not EVERY_MODEL, reason="they are large: make test-all")
@pytest.mark.parametrize("name", "gpt2 llama bert vit resnet whisper t5 mamba mixtral unet".split())
def test_model_of_the_benchmarks(name, monkeypatch):
    """Loss and gradients with dropout, twice."""
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parent.parent / "bench")
    model, batch = importlib.import_module("zoo").MODELS[name]()
    model, batch = model.to("tpu").train(), {key: value.to("tpu") for key, value in batch.items()}
    compiled = torch.compile(model)
    for seed in range(2):
        results = []
        for call in (model, compiled):
            torch.manual_seed(seed)
            loss = call(**batch)["loss"]
            results.append((loss, gradients(model, loss)))
        same(*results, rtol=1e-4, atol=1e-5)


def test_encoder_in_every_mode():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to("tpu"), torch.randn(2, 9, 32).to("tpu")
    for options in ({}, {"mode": "max-autotune"}, {"mode": "reduce-overhead", "fullgraph": True}, {"backend": "tpu"}):
        torch._dynamo.reset()
        compare(model, x, **options)


def test_batch_norm_writes_its_statistics():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)).to("tpu")
    compare(model, torch.randn(2, 3, 12, 12, device="tpu"), times=3)


class Block(nn.Module):
    """A linear layer with dropout, recomputed in the backward pass."""

    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(16, 16), nn.Dropout(0.4)

    def inner(self, x):
        return self.dropout(F.gelu(self.linear(x)))

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)


def test_checkpointing_repeats_its_random_numbers():
    compare(Block().to("tpu"), torch.randn(4, 16, device="tpu"))


def test_autocast():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def forward(self, x):
            with torch.autocast("tpu", torch.bfloat16):
                return self.linear(x)

    model, x = Model().to("tpu"), torch.randn(3, 16, device="tpu")
    compare(model, x)
    assert torch.compile(model)(x).dtype == torch.bfloat16


def test_graph_break():
    linear = nn.Linear(8, 8).to("tpu")

    class Model(nn.Module):
        def forward(self, x):
            y = linear(x)
            return linear(y + 1 if y.sum().item() > 0 else y - 1)

    compare(Model(), torch.randn(3, 8, device="tpu"))


# ---- optimizers and whole steps --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_optimizer(kind):
    eager, compiled = (nn.Linear(8, 8).to("tpu") for _ in range(2))
    compiled.load_state_dict(eager.state_dict())
    optimizers = [kind(model.parameters(), lr=1e-2) for model in (eager, compiled)]
    step = torch.compile(optimizers[1].step)
    x = torch.randn(4, 8, device="tpu")
    for _ in range(4):
        for model in (eager, compiled):
            model.zero_grad()
            model(x).square().sum().backward()
        optimizers[0].step()
        step()
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] *= 0.9
    same(compiled.state_dict(), eager.state_dict(), rtol=1e-5, atol=1e-6)


def test_whole_training_step():
    model = nn.Linear(8, 4).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile
    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    x = torch.randn(16, 8, device="tpu")
    losses = [step(x).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


def recorded() -> int:
    """How many operators were recorded so far: none where a compiled graph runs."""
    return torch.tpu.counters()["ops_recorded"]


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.NAdam])
def test_an_optimizer_that_counts_on_the_cpu_is_one_program(kind):
    eager, compiled = (nn.Linear(8, 8).to("tpu") for _ in range(2))
    compiled.load_state_dict(eager.state_dict())
    optimizers = [kind(model.parameters(), lr=1e-2, foreach=True) for model in (eager, compiled)]
    step = torch.compile(optimizers[1].step)
    for model in (eager, compiled):
        for p in model.parameters():
            p.grad = torch.linspace(-1, 1, p.numel(), device="tpu").reshape(p.shape)
    for i in range(9):
        optimizers[0].step()
        before = recorded()
        step()
        torch.tpu.synchronize()
        assert i < 3 or recorded() == before
    assert all(state["step"].device.type == "cpu" and state["step"] == 9 for state in optimizers[1].state.values())
    same(compiled.state_dict(), eager.state_dict(), rtol=1e-5, atol=1e-6)


# ---- sizes and numbers -----------------------------------------------------------------------------------------------


def test_twenty_lengths_take_two_graphs():
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("tpu")
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU()).to("tpu")
    compiled = torch.compile(model, backend=counter)
    for length in range(2, 22):
        x = torch.randn(length, 8, device="tpu")
        same(compiled(x), model(x))
    assert counter.frame_count <= 2


def test_known_sizes_compile_nothing():
    compiled = torch.compile(lambda x, a: (x.reshape(-1) * x.size(0) * a).sum(), dynamic=True)
    inputs = [torch.randn(n, 8, device="tpu") for n in (3, 4, 5)]
    first = [compiled(x, 2.0) for x in inputs]
    with torch.tpu.errors_on_compile():
        second = [compiled(x, 2.0) for x in inputs]
    same(second, first)


def test_numbers_that_change():
    def scale(x, a):
        return x * a

    x = torch.randn(4, device="tpu")
    for number in (float, torch.tensor):
        compiled = torch.compile(scale)
        for i in range(5):
            same(compiled(x, number(0.3 * i)), scale(x, number(0.3 * i)))


def test_random_numbers_are_those_of_eager_mode():
    def draw(x):
        return F.dropout(x, 0.3) + torch.rand_like(x), torch.randn(3, device="tpu")

    x, compiled = torch.randn(50, device="tpu"), torch.compile(draw)
    torch.manual_seed(7)
    expected = [draw(x) for _ in range(3)]
    torch.manual_seed(7)
    same([compiled(x) for _ in range(3)], expected)


# ---- what is written, shared and returned ----------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_arguments_are_written_and_results_are_views(dynamic):
    def change(x, y):
        x.add_(1)
        part = x[1:]
        part.mul_(2)
        y.copy_(x.sum())
        return part, x, x.t()

    def arguments():
        return torch.arange(12.0, device="tpu").reshape(3, 4), torch.zeros((), device="tpu")

    eager = arguments()
    expected = change(*eager)
    compiled = torch.compile(change, dynamic=dynamic)
    for _ in range(3):
        given = arguments()
        versions = [t._version for t in given]
        actual = compiled(*given)
        same(given, eager)
        same(actual, expected)
        assert actual[1] is given[0] and actual[0]._base is not None
        assert all(t._version > before for t, before in zip(given, versions, strict=True))


def test_two_arguments_of_one_storage():
    def change(x, y):
        x.mul_(3)
        return y + 1

    for shared in (True, False):
        torch._dynamo.reset()  # its guards do not tell the two apart, on any device
        results = []
        for function in (change, torch.compile(change)):
            base = torch.arange(6.0, device="tpu")
            x, y = base[:4], base[2:] if shared else base[2:].clone()
            results.append((function(x, y), base))
        same(results[1], results[0])


def test_captured_tensors_may_change():
    outside = torch.randn(4, device="tpu")

    def add(x):
        return x + outside + torch.arange(4, device="tpu") + torch.tensor([1.0, 2, 3, 4], device="tpu")

    compiled, x = torch.compile(add), torch.randn(4, device="tpu")
    same(compiled(x), add(x))
    outside.add_(1)
    same(compiled(x), add(x))


def test_tensors_of_two_devices():
    def both(x, y):
        return x * 2, y.to("tpu") + x, x.cpu() + y

    x, y, compiled = torch.randn(4, device="tpu"), torch.randn(4), torch.compile(both)
    for _ in range(2):
        same(compiled(x, y), both(x, y))


def test_what_is_computed_on_the_cpu_first():
    """Inputs that the model moves itself, numbers made of others, and a count that is written, in one program."""

    def mixed(x, y, a, count):
        y = y.to("tpu").clone() * 2
        before = x * count
        count.add_(1)
        return before + y * (a**2 - 1) + count, count * 2, y, 3

    def arguments():
        numbers = torch.tensor(1.5), torch.tensor(4, dtype=torch.int64)
        return torch.arange(6.0, device="tpu"), torch.arange(6, dtype=torch.float64), *numbers

    eager, given = arguments(), arguments()
    compiled = torch.compile(mixed)
    for i in range(4):
        before = recorded()
        actual = compiled(*given)
        assert i == 0 or recorded() == before
        same(actual, mixed(*eager))
        same(given, eager)
        given[2].mul_(1.25)
        eager[2].mul_(1.25)


def test_what_goes_to_the_cpu_and_back():
    def back_and_forth(x, a):
        b = x.sum().cpu() * a
        return x * b.to("tpu") + a

    compiled = torch.compile(back_and_forth)
    for i in range(3):
        x, a = torch.full((3,), 1.0 + i, device="tpu"), torch.tensor(0.5 + i)
        same(compiled(x, a), back_and_forth(x, a))


def test_a_graph_that_begins_on_the_cpu():
    compiled = torch.compile(lambda: torch.tensor(3).expand(4).to("tpu") + 1)  # it has no input on tpu
    for _ in range(2):
        same(compiled(), torch.full((4,), 4, device="tpu"))


def test_memory_that_was_never_written():
    compiled = torch.compile(lambda x, y: (x + 1, y.add_(x)))
    for zeros in (True, False, True):
        x = torch.empty(4, device="tpu") if zeros else torch.ones(4, device="tpu")
        y = torch.zeros(4, device="tpu")
        expected = 1.0 if zeros else 2.0
        assert compiled(x, y)[0].tolist() == [expected] * 4
        assert y.tolist() == [expected - 1] * 4


def test_operators_that_run_on_the_host():
    compiled = torch.compile(lambda x: (torch.logdet(x @ x.mT + torch.eye(x.shape[0], device="tpu")), x.sum()))
    for size in (4, 0):
        for _ in range(3):
            x = torch.randn(size, size, device="tpu")
            same(compiled(x)[0], torch.logdet(x @ x.mT + torch.eye(size, device="tpu")))


def test_constants_are_kept():
    def add(x):
        table = torch.arange(64.0, device="cpu").to("tpu")  # uploaded anew by eager mode, once by a graph
        return x + table.reshape(8, 8), x * 2

    compiled = torch.compile(add)
    for _ in range(3):
        x = torch.randn(8, 8, device="tpu")
        same(compiled(x), add(x))


def test_conjugate_and_no_elements():
    def function(x):
        return x.conj() * x, x.conj(), x[:0] + 1

    compiled = torch.compile(function)
    for _ in range(2):
        x = torch.randn(3, dtype=torch.complex64, device="tpu")
        same(compiled(x), function(x))


# ---- PyTorch's other means -------------------------------------------------------------------------------------------


def runs_as_one_program(function, *arguments):
    """The second call runs one program, reads nothing, and gives what the function gives on the CPU."""
    compiled, on_tpu = torch.compile(function), [x.to("tpu") for x in arguments]
    compiled(*on_tpu)
    torch.tpu.synchronize()
    before = torch.tpu.counters()
    results = compiled(*on_tpu)
    after = torch.tpu.counters()
    assert after["programs_run"] == before["programs_run"] + 1 and after["host_reads"] == before["host_reads"]
    for result, expected in zip(tree_leaves(results), tree_leaves(function(*arguments)), strict=True):
        same(result.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_branches_and_loops_are_parts_of_the_program():
    from torch._higher_order_ops.while_loop import while_loop

    def nested(x, weight):
        def body(i, x):
            x = torch.cond(i % 2 == 0, lambda x: x @ weight, lambda x: x.tanh() * 2, (x,))
            halved = while_loop(lambda k, x: k < i, lambda k, x: (k + 1, x * 0.5), (torch.zeros_like(i), x))
            return i + 1, halved[1]

        return while_loop(lambda i, x: i < 6, body, (torch.zeros((), dtype=torch.int64, device=x.device), x))

    def views(x):
        low = lambda x: ((x * 2).T.contiguous(), x[:-1] * 3)  # noqa: E731
        first, second = torch.cond(x.mean() > 0, lambda x: ((x + 1).T.contiguous(), x[1:] + 1), low, (x,))
        return first, second, first.T.reshape(-1)

    runs_as_one_program(nested, torch.randn(4, 4), torch.randn(4, 4))
    for shift in (1, -3):
        runs_as_one_program(views, torch.randn(5, 3) + shift)


def test_gradients_of_a_branch():
    def loss(x, weight):
        y = torch.cond(x.sum() > 0, lambda x, w: (x @ w).sin(), lambda x, w: (x @ w).cos(), (x, weight))
        return (y**2).sum()

    compiled, x = torch.compile(loss), torch.rand(4, 4)
    for sign in (1, -1):
        weights = [torch.eye(4, device=device, requires_grad=True) for device in ("cpu", "tpu")]
        loss(x * sign, weights[0]).backward()
        compiled((x * sign).to("tpu"), weights[1]).backward()
        same(weights[1].grad.cpu(), weights[0].grad, rtol=1e-5, atol=1e-5)


def test_an_index_out_of_range_in_a_loop():
    from torch._higher_order_ops.while_loop import while_loop

    def sum_of_rows(x, rows):
        body = lambda i, total: (i + 1, total + x.index_select(0, rows.index_select(0, i.reshape(1)))[0])  # noqa: E731
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, total: i < rows.shape[0], body, (start, torch.zeros_like(x[0])))[1]

    x = torch.randn(5, 3)
    runs_as_one_program(sum_of_rows, x, torch.tensor([1, 4, 0]))
    with pytest.raises(IndexError, match=r"test_compile\.py:\d+, in .*index 9 is out of range \[0, 5\)"):
        torch.compile(sum_of_rows)(x.to("tpu"), torch.tensor([1, 9, 0], device="tpu")).cpu()


def test_control_flow_that_the_host_decides():
    """Random numbers in a branch; and what is written out."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def noise(x):
        return torch.cond(x.sum() > 0, lambda x: nn.functional.dropout(x, 0.5), lambda x: x * 2, (x,))

    ones, compiled = torch.ones(8, 8, device="tpu"), torch.compile(noise)
    for _ in range(2):
        torch.manual_seed(3)
        dropped = compiled(ones)
        torch.manual_seed(3)
        same(dropped, nn.functional.dropout(ones, 0.5))
    same(compiled(-ones), -2 * ones)
    xs = torch.randn(6, 3, device="tpu")
    cumulated = torch.compile(lambda xs: associative_scan(torch.add, xs, dim=0, combine_mode="generic"))(xs)
    same(cumulated, xs.cumsum(0), rtol=1e-5, atol=1e-5)


FLEX = {  # a name: score_mod, mask_mod, and whether it is the fused attention
    "grouped": (None, lambda b, h, i, j: i >= j, True),
    "alibi": (
        lambda s, b, h, i, j: s + (j - i) * torch.exp2(-h - 1.0),
        lambda b, h, i, j: (i >= j) & (i - j < 9),
        True,
    ),
    "hidden": (lambda s, b, h, i, j: torch.where((i >= j) & (i > 3), s + (i - j) * 0.01, -float("inf")), None, True),
    "softcap": (lambda s, b, h, i, j: 5 * torch.tanh(s / 5), None, False),
}


@pytest.mark.parametrize("name", FLEX)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention(name):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    score_mod, mask_mod, fused = FLEX[name]
    mask = create_block_mask(mask_mod, None, None, 128, 128, device="tpu") if mask_mod is not None else None
    options = {"score_mod": score_mod, "block_mask": mask, "enable_gqa": name == "grouped", "return_lse": True}
    key_heads = 1 if name == "grouped" else 2
    inputs = [torch.randn(2, n, 128, 16, device="tpu", requires_grad=True) for n in (2, key_heads, key_heads)]
    texts = []
    with unittest.mock.patch("torch_tpu.compiled_graph._watcher", lambda kind: texts.append):
        actual = torch.compile(flex_attention)(*inputs, **options)
    assert ("ttpu.attention" in texts[0]) == fused
    expected = flex_attention(*inputs, **options)
    same(actual, expected, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(out.square().sum(), inputs) for out, _ in (actual, expected)]
    same(*gradients, rtol=1e-3, atol=1e-4)


def test_function_transforms():
    from torch.func import grad, jacrev, vmap

    x = torch.randn(4, 3, device="tpu")
    for function in (vmap(grad(lambda x: (x.sin() * x).sum())), jacrev(lambda x: x[0].cos())):
        same(torch.compile(function)(x), function(x), rtol=1e-6, atol=1e-6)


def test_autograd_function():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 3 * g * ctx.saved_tensors[0]

    x = torch.randn(5, device="tpu", requires_grad=True)
    torch.compile(lambda x: Square.apply(x).sum())(x).backward()
    same(x.grad, 3 * x.detach())


def test_custom_operator():
    @torch.library.custom_op("ttpu_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    x = torch.randn(4, device="tpu")
    same(torch.compile(lambda x: twice(x) + 1, fullgraph=True)(x), x * 2 + 1)


def test_export():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.GELU()).to("tpu"), torch.randn(2, 8, device="tpu")
    same(torch.export.export(model, (x,)).module()(x), model(x))


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_a_bad_index_is_an_error_of_that_call_alone():
    compiled = torch.compile(lambda weight, i: F.embedding(i, weight))
    weight = torch.randn(4, 3, device="tpu")
    for good in (1, 2):
        same(compiled(weight, torch.tensor([good], device="tpu")), weight[good : good + 1])
        with pytest.raises(IndexError, match="embedding"):
            compiled(weight, torch.tensor([9], device="tpu")).cpu()


def test_a_function_that_raises_leaves_the_device_usable():
    @torch._dynamo.disable
    def fail():
        raise ValueError("on purpose")

    compiled = torch.compile(lambda x: (x + 1, fail()))
    x = torch.ones(3, device="tpu")
    for _ in range(2):
        with pytest.raises(ValueError, match="on purpose"):
            compiled(x)
        same(x + 1, torch.full_like(x, 2))


# ---- other devices ---------------------------------------------------------------------------------------------------


def test_other_devices_keep_inductor():
    with unittest.mock.patch("torch._inductor.compile_fx.compile_fx", side_effect=lambda module, *_, **__: module) as f:
        same(torch.compile(torch.sin)(torch.ones(3)), torch.sin(torch.ones(3)))
        assert f.call_count == 1
        torch.compile(torch.cos)(torch.ones(3, device="tpu"))
        assert f.call_count == 1


def test_options_are_checked_as_ever():
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        torch.compile(torch.sin, mode="fastest")
    with pytest.raises(RuntimeError, match="Unexpected optimization option"):
        torch.compile(torch.sin, options={"no_such_option": 1})


def test_nothing_is_imported_before_it_is_needed():
    in_fresh_python("import torch, sys; assert not [m for m in sys.modules if m.startswith('torch._dynamo')]")


def test_backend_by_name_is_listed():
    assert "tpu" in torch._dynamo.list_backends()
