"""The sweep's own judgement: what it lets pass, and what it does not."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import trial

import torch


class Remembers(torch.nn.Module):
    """As a router that keeps the capacity of the first call it had."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.capacity = None

    def forward(self, x):
        self.capacity = self.capacity or (2.0 if self.training else 1.0)
        return self.weight * x * self.capacity


class ChoosesAmongEquals(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64))

    def forward(self, x):
        chosen = torch.relu(-x.abs()).topk(8).indices
        return self.weight[chosen] * (1 + torch.arange(64, device=x.device))[chosen]


class HasIdleWeights(torch.nn.Module):
    """Compiled, the last layer's weights get a gradient of zeros."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))
        self.outputs: list[torch.Tensor] = []

    def forward(self, x):
        self.keep(x)
        return self.outputs[0].square()

    def keep(self, x):
        first = self.layers[0](x)
        self.outputs = [first, self.layers[1](first)]


class Differs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.weight * x * (1.01 if x.device.type == "tpu" else 1.0)


def steps(model: torch.nn.Module, size: int, compiled: bool = False) -> dict[str, str]:
    case = trial.Case(model, {"x": torch.linspace(0.5, 1.0, size)}, notes={})
    return trial.run_trial(case, torch.float32, compiled)["steps"]


@pytest.mark.parametrize("model, size", [(Remembers, 3), (ChoosesAmongEquals, 64)])
def test_agrees(model, size):
    assert set(steps(model(), size).values()) == {"ok"}


@pytest.mark.parametrize("model", [Remembers, HasIdleWeights])
def test_agrees_compiled(model):
    assert set(steps(model(), 3, compiled=True).values()) == {"ok"}


def test_eager_model_is_not_taken_for_a_compiled_one():
    class Eager(Remembers):
        @torch.compiler.disable
        def forward(self, x):
            return super().forward(x)

    assert steps(Eager(), 3, compiled=True)["forward"] == "differs: nothing of it was compiled"


def test_cpu_chooses_other_ones():
    x = torch.zeros(64)
    with trial.LowestFirst():
        assert x.topk(8).indices.tolist() == list(range(8))
        lowest = torch.tensor([[1.0, 3.0, 2.0], [4.0, 5.0, 6.0]]).topk(2, largest=False)
        assert lowest.values.view(-1).tolist() == [1.0, 2.0, 4.0, 5.0]
    assert x.topk(8).indices.tolist() != list(range(8))  # else test_agrees does not show much


def test_cpu_has_gradients_of_short_videos():
    convolution = torch.nn.Conv3d(16, 16, (3, 1, 1), padding=(1, 0, 0)).bfloat16()
    case = trial.Case(convolution, {"input": torch.randn(2, 16, 2, 4, 4)})
    found = trial.Trial(case, torch.bfloat16, False)
    actual, exact = (found.on_cpu("train", dtype).gradients["weight"] for dtype in (torch.bfloat16, torch.float64))
    assert trial.distance(actual, exact) < 0.02 * trial.largest(exact) and actual.isfinite().all()


def test_differs():
    found = steps(Differs(), 3)
    assert found["forward"].startswith("differs: output: differs by 0.01")
    assert found["loss"].startswith("differs") and found["backward"].startswith("differs")
