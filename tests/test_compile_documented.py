"""What PyTorch's documentation shows of torch.compile, on tpu: the same uses, in programs of our own."""

import warnings

import pytest

import torch
from torch import nn


@pytest.fixture(autouse=True)
def fresh_dynamo(no_fallback):
    torch._dynamo.reset()
    yield


def on_tpu(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device="tpu")


def test_a_function_and_a_decorated_one():
    def trigonometric(x, y):
        return torch.sin(x) + torch.cos(y)

    @torch.compile
    def decorated(x, y):
        return torch.sin(x) + torch.cos(y)

    x, y = on_tpu(10, 10), on_tpu(10, 10)
    assert torch.equal(torch.compile(trigonometric)(x, y), trigonometric(x, y))
    assert torch.equal(decorated(x, y), trigonometric(x, y))


def test_a_module_in_place_and_what_it_calls():
    class Inner(nn.Module):
        def forward(self, x):
            return nn.functional.relu(x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.inner = nn.Linear(10, 10), Inner()

        def forward(self, x):
            return self.inner(self.linear(x))

    model, x = Outer().to("tpu"), on_tpu(3, 10)
    expected = model(x)
    model.compile()
    assert torch.equal(model(x), expected)
    assert list(model.state_dict()) == ["linear.weight", "linear.bias"]


def test_a_branch_on_data_breaks_the_graph():
    def branch(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    compiled = torch.compile(branch)
    for sign in (1, -1):
        a, b = on_tpu(10), on_tpu(10).abs() * sign
        assert torch.equal(compiled(a, b), branch(a, b))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent branching"):
        torch.compile(branch, fullgraph=True)(on_tpu(10), on_tpu(10))


def test_parts_that_are_left_out():
    calls = []

    @torch.compiler.disable
    def note(x):
        calls.append(x.shape[0])
        return x

    compiled = torch.compile(lambda x: note(x * 2) + 1)
    x = on_tpu(4)
    assert torch.equal(compiled(x), x * 2 + 1) and torch.equal(compiled(x), x * 2 + 1)
    assert calls == [4, 4]
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(compiled(x), x * 2 + 1)


def test_dynamic_dimensions_that_are_marked():
    compiled = torch.compile(lambda x: (x * x.shape[0]).sum(-1), fullgraph=True)
    x = on_tpu(5, 3)
    torch._dynamo.mark_dynamic(x, 0)
    assert torch.equal(compiled(x), (x * 5).sum(-1))
    with torch.compiler.set_stance("fail_on_recompile"):
        for length in (2, 7, 30):
            y = on_tpu(length, 3)
            assert torch.equal(compiled(y), (y * length).sum(-1))


def test_a_learning_rate_that_is_scheduled():
    model, x = nn.Linear(4, 4).to("tpu"), on_tpu(4)
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5)
    before = model.weight.detach().clone()

    @torch.compile(fullgraph=False)
    def step():
        optimizer.step()
        schedule.step()

    model(x).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            step()
    assert not torch.equal(model.weight, before) and 0.003 < float(schedule.get_last_lr()[0]) < 0.01
