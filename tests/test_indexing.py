"""Indexing beyond what the operator database tries: TorchScript."""

from support import assert_values

import torch


@torch.jit.script
def raise_small(x: torch.Tensor) -> torch.Tensor:
    x[x < 2] = 2.0
    return x[torch.tensor([3, 0])]


def test_torchscript_indices():
    assert_values(raise_small(torch.arange(4.0, device="tpu")), [3.0, 2.0])
