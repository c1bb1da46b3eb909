"""Complex numbers: what holds of their arithmetic."""

import pytest

import torch


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_products_do_not_depend_on_sizes(dtype):
    """One element at a time or many at once: no fused multiply-add sneaks into one of the two."""
    x, y = torch.randn(64, dtype=dtype), torch.randn(64, dtype=dtype)
    for operator in (torch.mul, torch.div):
        many = operator(x.to("tpu"), y.to("tpu")).cpu()
        one = torch.stack([operator(a.to("tpu"), b.to("tpu")).cpu() for a, b in zip(x, y, strict=True)])
        assert torch.equal(torch.view_as_real(many), torch.view_as_real(one))
