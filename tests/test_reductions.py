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
