"""The three execution modes give the same numbers and the same errors; only when things run differs."""

import pytest
from support import in_fresh_python
from torch.nn import functional

import torch
from torch import nn

FUSED, EAGER, BLOCKING = torch.tpu.ExecutionMode


def elementwise() -> list[torch.Tensor]:
    x = torch.linspace(-2, 2, 1000, device="tpu")
    return [x.sin().add_(1).mul_(x).clamp(0, 1), x.view(10, 100).softmax(1), x.cumsum(0), x.bfloat16().exp()]


def views() -> list[torch.Tensor]:
    x = torch.zeros(6, 6, device="tpu")
    x.t()[1:4, ::2].add_(3)
    x[2] = x[:, 2]
    return [x, x.view(-1)[::7], torch.cat([x, x.t()], 1)]


def training() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 5)
    ).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch.randn(8, 1, 8, 8, device="tpu"), torch.arange(8, device="tpu") % 5
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(p.detach() for p in model.parameters())]


def indexing() -> list[torch.Tensor]:
    x = torch.arange(60.0, device="tpu").view(10, 6)
    order = torch.tensor([3, 1, 7], device="tpu")
    return [x[order], x[x > 30], x.index_add(0, order, x[:3]), x.topk(2).values, torch.nonzero(x % 7 == 0)]


@pytest.mark.parametrize("program", [elementwise, views, training, indexing])
def test_same_numbers(program, no_fallback):
    results = []
    for mode in (FUSED, EAGER, BLOCKING):
        with torch.tpu.execution_mode(mode):
            results.append([t.cpu() for t in program()])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


def test_fused_runs_few_programs():
    def count(mode):
        with torch.tpu.execution_mode(mode):
            x = torch.ones(16, device="tpu")
            torch.tpu.synchronize()
            torch.tpu.reset_counters()
            for _ in range(7):
                x = x + 1
            torch.tpu.synchronize()
            return torch.tpu.counters()["programs_run"]

    assert count(EAGER) == count(BLOCKING) == 7
    assert count(FUSED) < 7


def test_blocking_raises_at_the_call():
    x = torch.ones(3, device="tpu")
    index = torch.tensor([5], device="tpu")
    with torch.tpu.execution_mode(BLOCKING):
        with pytest.raises(IndexError):
            x[index]
    assert x.sum().item() == 3


def test_blocking_is_done_at_return():
    with torch.tpu.execution_mode(BLOCKING):
        x = torch.ones(100, 100, device="tpu") @ torch.ones(100, 100, device="tpu")
        assert torch.tpu.current_stream().query()
    assert x[0, 0].item() == 100


def test_mode_from_the_environment():
    code = """
import torch, torch_tpu
x = torch.ones(4, device="tpu")
torch.tpu.synchronize()
torch.tpu.reset_counters()
y = x + 1 + 2 + 3
torch.tpu.synchronize()
print(torch.tpu.counters()["programs_run"], y.sum().item())
"""
    assert in_fresh_python(code, TTPU_MODE="eager").stdout.split() == ["3", "28.0"]
    assert in_fresh_python(code, TTPU_MODE="blocking").stdout.split() == ["3", "28.0"]
    assert in_fresh_python(code, TTPU_MODE="fused").stdout.split() == ["1", "28.0"]


def test_reference_executor_agrees():
    """The slow scalar reference beside the fast paths, over the same small training."""
    code = """
import torch, torch_tpu
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).to("tpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = torch.randn(16, 6, device="tpu"), torch.arange(16, device="tpu") % 3
for _ in range(5):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
    fast = [float(line) for line in in_fresh_python(code).stdout.split()]
    slow = [float(line) for line in in_fresh_python(code, TTPU_SOFT="reference").stdout.split()]
    torch.testing.assert_close(torch.tensor(fast), torch.tensor(slow), rtol=1e-5, atol=1e-5)
