"""Fake kernels of our own: what is compiled and exported has the sizes and dtypes of what runs."""

import pytest
from support import in_fresh_python

import torch
import torch_tpu  # noqa: F401

ENDS = [3, 3, 8]
SIZES = {
    "rows by matrices": ((8, 16), (3, 16, 24)),
    "groups of a sum": ((16, 8), (8, 24)),
    "matrices by columns": ((3, 24, 16), (16, 8)),
    "batches": ((3, 24, 16), (3, 16, 8)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", SIZES)
def test_grouped_mm(case, dtype):
    left, right = (torch.randn(size, dtype=dtype, device="tpu") for size in SIZES[case])
    offs = None if case == "batches" else torch.tensor(ENDS, dtype=torch.int32, device="tpu")
    expected = torch._grouped_mm(left, right, offs=offs)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = torch._grouped_mm(*(mode.from_tensor(t) if t is not None else None for t in (left, right, offs)))
    assert (fake.shape, fake.dtype, fake.device) == (expected.shape, expected.dtype, expected.device)


def test_compiled_experts():
    left = torch.randn(8, 16, device="tpu", requires_grad=True)
    right = torch.randn(3, 16, 24, device="tpu", requires_grad=True)
    offs = torch.tensor(ENDS, dtype=torch.int32, device="tpu")

    def loss(left, right):
        return torch._grouped_mm(left, right, offs=offs).square().sum()

    value = loss(left, right)
    compiled = torch.compile(loss, fullgraph=True)(left, right)
    torch.testing.assert_close(compiled, value)
    expected = torch.autograd.grad(value, (left, right))
    torch.testing.assert_close(torch.autograd.grad(compiled, (left, right)), expected)


def test_other_devices_keep_pytorchs_own():
    code = """
import torch
with torch._subclasses.FakeTensorMode():
    left, right, offs = torch.empty(8, 16), torch.empty(3, 16, 8), torch.empty(3, dtype=torch.int32)
    print(torch._grouped_mm(left.bfloat16(), right.bfloat16(), offs=offs).shape)
    try:
        torch._grouped_mm(left, right, offs=offs)
    except RuntimeError as error:
        print(error)
"""
    with_us = in_fresh_python(code).stdout
    assert with_us == in_fresh_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout
    assert "BF16" in with_us
