"""segment_reduce and its gradient against the CPU: lengths and offsets, special values, checks."""

import pytest

import torch

A = torch.ops.aten
REDUCTIONS = ["sum", "mean", "max", "min", "prod"]
RUNS = [  # sizes of the data, lengths, offsets, axis
    ((6, 2), [2, 0, 4], None, 0),
    ((6, 2), None, [1, 3, 3, 5], 0),
    ((7,), [7], None, 0),
    ((2, 4, 3), [[1, 3], [4, 0]], None, 1),
    ((2, 4, 3), None, [[0, 1, 3], [0, 2, 4]], 1),
    ((2, 3, 5), [[[1, 4], [2, 3], [5, 0]], [[0, 5], [5, 0], [3, 2]]], None, -1),
    ((0, 3), [0, 0], None, 0),
    ((4, 0), [1, 3], None, 0),
    ((3, 2), None, [0], 0),
]


def arguments(device, lengths, offsets, axis, dtype=torch.int64):
    given = {"lengths": lengths, "offsets": offsets}
    tensors = {k: torch.tensor(v, dtype=dtype, device=device) for k, v in given.items() if v is not None}
    return {**tensors, "axis": axis}


def make(sizes, dtype):
    x = torch.randint(-2, 3, sizes).to(dtype)  # ties, zeros; sums and products that no dtype rounds
    x[torch.rand(sizes) < 0.05] = float("nan")
    return x.transpose(0, -1).contiguous().transpose(0, -1)


@pytest.mark.parametrize("initial", [None, 1.5])
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_values_and_gradient(dtype, reduce, initial):
    torch.manual_seed(0)
    for number, (sizes, *runs) in enumerate(RUNS):
        index = torch.int32 if number % 2 else torch.int64
        x = make(sizes, dtype)
        host, device = arguments("cpu", *runs, index), arguments("tpu", *runs, index)
        expected = A.segment_reduce(x, reduce, **host, initial=initial)
        got = A.segment_reduce(x.to("tpu"), reduce, **device, initial=initial)
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got.cpu(), expected, equal_nan=True)
        gradient = torch.randint(-2, 3, expected.shape).to(dtype)
        wanted = A._segment_reduce_backward(gradient, expected, x, reduce, **host, initial=initial)
        found = A._segment_reduce_backward(
            gradient.to("tpu"), expected.to("tpu"), x.to("tpu"), reduce, **device, initial=initial
        )
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found.cpu(), wanted, equal_nan=True)


def test_unsafe_lengths_need_not_reach_the_end():
    x = torch.arange(6.0)
    for lengths in ([2, 1], [0, 0], []):
        expected = torch.segment_reduce(x, "sum", lengths=torch.tensor(lengths, dtype=torch.int64), unsafe=True)
        given = torch.tensor(lengths, dtype=torch.int64, device="tpu")
        assert torch.equal(torch.segment_reduce(x.to("tpu"), "sum", lengths=given, unsafe=True).cpu(), expected)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"lengths": [2, 1]}, "Expected all rows of lengths along axis to sum to data.size"),
        ({"lengths": [-2, 8]}, "lengths contains negative value!"),
        ({"offsets": [0, 3, 2]}, "segment_length >= 0"),
        ({}, "Either lengths or offsets must be defined"),
        ({"lengths": [6], "axis": 1}, "Expected axis to be the last dimension of lengths"),
        ({"lengths": [6], "indices": [6]}, "indices based reduction is not supported yet"),
        ({"lengths": []}, "Expected reduction dim to be specified"),
    ],
)
def test_bad_segments(arguments, message):
    for device in ("cpu", "tpu"):
        given = {
            k: torch.tensor(v, dtype=torch.int64, device=device) if isinstance(v, list) else v
            for k, v in arguments.items()
        }
        with pytest.raises(RuntimeError, match=message.replace("(", r"\(")):
            torch.segment_reduce(torch.ones(6, 2, device=device), "sum", **given).cpu()


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.complex64], ids=str)
def test_only_floats(dtype):
    with pytest.raises(RuntimeError):
        torch.segment_reduce(torch.ones(6, device="tpu").to(dtype), "sum", lengths=torch.tensor([6], device="tpu"))
    with pytest.raises(RuntimeError, match="reduce argument must be either"):
        torch.segment_reduce(torch.ones(2, device="tpu"), "median", lengths=torch.tensor([1, 1], device="tpu"))
