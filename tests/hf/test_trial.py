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


class Differs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.weight * x * (1.01 if x.device.type == "tpu" else 1.0)


def steps(model: torch.nn.Module, size: int) -> dict[str, str]:
    case = trial.Case(model, {"x": torch.linspace(0.5, 1.0, size)}, notes={})
    return trial.run_trial(case, torch.float32)["steps"]


@pytest.mark.parametrize("model, size", [(Remembers, 3), (ChoosesAmongEquals, 64)])
def test_agrees(model, size):
    assert set(steps(model(), size).values()) == {"ok"}


def test_cpu_chooses_other_ones():
    x = torch.zeros(64)
    with trial.LowestFirst():
        assert x.topk(8).indices.tolist() == list(range(8))
        lowest = torch.tensor([[1.0, 3.0, 2.0], [4.0, 5.0, 6.0]]).topk(2, largest=False)
        assert lowest.values.view(-1).tolist() == [1.0, 2.0, 4.0, 5.0]
    assert x.topk(8).indices.tolist() != list(range(8))  # else test_agrees does not show much


def test_differs():
    found = steps(Differs(), 3)
    assert found["forward"].startswith("differs: output: differs by 0.01")
    assert found["loss"].startswith("differs") and found["backward"].startswith("differs")
