"""Indexing beyond what the operator database tries: TorchScript, complex products."""

import pytest
from support import assert_values, on_both

import torch


@torch.jit.script
def raise_small(x: torch.Tensor) -> torch.Tensor:
    x[x < 2] = 2.0
    return x[torch.tensor([3, 0])]


def test_torchscript_indices():
    assert_values(raise_small(torch.arange(4.0, device="tpu")), [3.0, 2.0])


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_products_of_scatter(dtype):
    x, updates = torch.randn(5, 4, dtype=dtype), torch.randn(6, 4, dtype=dtype)
    index = torch.tensor([4, 0, 4, 2, 4, 0])[:, None].expand(6, 4)
    on_both(lambda x, u, i: x.scatter_reduce(0, i, u, "prod"), x, updates, index)
    updates, index = updates[:5], torch.arange(5)[:, None].expand(5, 4)
    product = x.to("tpu").scatter_reduce(0, index.to("tpu"), updates.to("tpu"), "prod")
    (a, b), (c, d) = torch.view_as_real(x).unbind(-1), torch.view_as_real(updates).unbind(-1)
    assert torch.equal(product.cpu(), torch.complex(a * c - b * d, a * d + b * c))
