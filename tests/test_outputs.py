"""out= arguments of other dimensions, strides and dtypes than the result has by itself."""

import itertools

import pytest
from support import on_both

import torch

RANGES = {
    "arange": lambda out: torch.arange(0, 24, out=out),
    "arange step": lambda out: torch.arange(30, 6, -1, out=out),
    "range": lambda out: torch.range(1, 24, out=out),
    "linspace": lambda out: torch.linspace(-3, 5, 24, out=out),
    "logspace": lambda out: torch.logspace(-1, 1, 24, out=out),
}


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_ranges_fill_in_row_major_order(name, dtype):
    on_both(lambda out: RANGES[name](out.clone()), torch.zeros(2, 3, 4, dtype=dtype))
    on_both(lambda out: RANGES[name](out.clone().permute(2, 0, 1)), torch.zeros(2, 3, 4, dtype=dtype))


def test_complex_linspace_fills_in_row_major_order():
    on_both(lambda out: torch.linspace(-3, 5j, 24, out=out.clone()), torch.zeros(2, 3, 4, dtype=torch.complex64))


def test_range_of_another_length_warns():
    for device in ("cpu", "tpu"):
        out = torch.ones(3, device=device)
        with pytest.warns(UserWarning, match="The out tensor will be resized"):
            assert torch.arange(5, out=out).tolist() == out.tolist() == [0, 1, 2, 3, 4]


def test_range_into_a_part():
    def fill(x):
        torch.arange(0, 4, out=x.narrow(1, 1, 2))
        return x

    on_both(fill, torch.zeros(2, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_wider_output_takes_rounded_results(dtype):
    x, y = torch.tensor([33000.0, 1.5, 1.0], dtype=dtype), torch.tensor([33000.0, 0.666, 3.0], dtype=dtype)
    for operator in (torch.add, torch.div, torch.mul, torch.atan2):
        for wide in (torch.float32, torch.float64):
            on_both(lambda x, y, o=operator, w=wide: o(x, y, out=torch.empty(3, dtype=w, device=x.device)), x, y)
    on_both(lambda x: torch.exp(x, out=torch.empty(3, device=x.device)), y)


@pytest.mark.parametrize("weight", [None, torch.tensor([-1.5])])
def test_margin_loss_of_one_number_has_its_targets_sizes(weight):
    """As the CPU's kernel; PyTorch's description of the operator gives every loss without reduction a dimension."""
    loss = torch.nn.functional.multi_margin_loss
    for x, target in itertools.product((torch.tensor(2.0), torch.tensor([2.0])), (torch.tensor(0), torch.tensor([0]))):
        expected = loss(x, target, weight=weight, reduction="none")
        there = weight if weight is None else weight.to("tpu")
        actual = loss(x.to("tpu"), target.to("tpu"), weight=there, reduction="none")
        torch.testing.assert_close(actual.cpu(), expected)
