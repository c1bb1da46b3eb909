"""Reductions that the operator database leaves out."""

import pytest
from support import on_both

import torch

CALLS = {
    "all": lambda x: torch._aminmax(x),
    "dim": lambda x: torch._aminmax(x, 1),
    "last dim kept": lambda x: torch._aminmax(x, -1, True),
    "transposed": lambda x: torch._aminmax(x.transpose(0, 2), 1),
    "of a number": lambda x: torch._aminmax(x[0, 0, 1], 0),
    "all kept": lambda x: x.aminmax(keepdim=True),
    "bool": lambda x: (x > 0).aminmax(dim=0),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:_aminmax is deprecated")
def test_aminmax(name):
    x = torch.randn(3, 4, 5)
    x[0, 0, 0] = float("nan")
    for which in range(2):
        on_both(lambda x, i=which: CALLS[name](x)[i], x, rtol=0, atol=0)
        assert CALLS[name](x.to("tpu"))[which].stride() == CALLS[name](x)[which].stride()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize(
    "ends", [(0, 7), (0, 0), (2, 5), (-3, 40), (0.9, 7.9)], ids=lambda ends: f"{ends[0]} to {ends[1]}"
)
def test_histc_of_integers(dtype, ends):
    """The CPU counts floats alone; on tpu integers count as on CUDA, in their dtype (tokens of experts)."""
    x = torch.tensor([[0, 1, 1, 2, 3], [3, 3, 5, 7, 7]], dtype=dtype)
    low, high = (int(end) for end in ends)
    expected = torch.histc(x.double(), bins=8, min=low, max=high).to(dtype)
    actual = torch.histc(x.to("tpu"), bins=8, min=ends[0], max=ends[1])
    assert actual.dtype == dtype and torch.equal(actual.cpu(), expected)


def test_histc_of_integers_of_one_value():
    x = torch.full((4,), 3, dtype=torch.int32, device="tpu")
    assert torch.histc(x, bins=2).tolist() == [0, 4]
    with pytest.raises(RuntimeError, match="bins"):
        torch.histc(x, bins=0)
