"""Fractional pooling against the CPU: every window of every plane, with ties, infinities and NaN."""

import pytest

import torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
CASES = [  # sizes, kernel, output
    ((2, 3, 9, 12), (2, 3), (4, 5)),
    ((3, 8, 8), (1, 2), (1, 7)),
    ((1, 2, 290, 7), (3, 2), (201, 1)),  # in bfloat16 positions above 256 are rounded
    ((2, 2, 7, 8, 9), (2, 2, 3), (3, 4, 2)),
    ((2, 7, 6, 5), (2, 1, 2), (1, 5, 3)),
]


def make(sizes, dtype):
    x = torch.randint(-9, 9, sizes).to(dtype)
    x[torch.rand(sizes) < 0.1] = -float("inf")
    x[torch.rand(sizes) < 0.02] = float("nan")
    return x.transpose(-1, -2).contiguous().transpose(-1, -2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("sizes, kernel, output", CASES, ids=str)
def test_values_indices_gradient(sizes, kernel, output, dtype):
    torch.manual_seed(0)
    spatial = len(kernel)
    pool = getattr(torch.ops.aten, f"fractional_max_pool{spatial}d")
    backward = getattr(torch.ops.aten, f"fractional_max_pool{spatial}d_backward")
    lead = sizes[: len(sizes) - spatial]
    images = lead[0] if len(lead) == 2 else 1
    samples = torch.rand(images + 1, lead[-1], spatial).clamp(max=0.99).to(dtype)  # one image's are left over
    x = make(sizes, dtype)
    values, indices = pool(x, kernel, output, samples)
    got_values, got_indices = pool(x.to("tpu"), kernel, output, samples.to("tpu"))
    assert torch.equal(got_indices.cpu(), indices)
    torch.testing.assert_close(got_values.cpu(), values, rtol=0, atol=0, equal_nan=True)
    gradient = torch.randint(-9, 9, values.shape).to(dtype)  # sums that no dtype rounds
    expected = backward(gradient, x, kernel, output, indices)
    got = backward(gradient.to("tpu"), x.to("tpu"), kernel, output, got_indices)
    assert torch.equal(got.cpu(), expected)
    assert got.stride() == expected.stride()


def test_bad_calls_raise_the_cpu_error():
    pool = torch.ops.aten.fractional_max_pool2d
    for sizes, kernel, output, dtype in [
        ((2, 3, 7, 8), (2, 2), (9, 4), torch.float32),
        ((2, 3, 7, 8), (2,), (3, 4), torch.float32),
        ((2, 3, 7, 8), (2, 2), (3, 4), torch.int64),
        ((2, 0, 7, 8), (2, 2), (3, 4), torch.float32),
    ]:
        errors = []
        for device in ("cpu", "tpu"):
            x = torch.ones(sizes, dtype=dtype, device=device)
            with pytest.raises((RuntimeError, NotImplementedError)) as error:
                pool(x, kernel, output, torch.ones(*sizes[:2], 2, dtype=dtype, device=device) / 2)
            errors.append((error.type, str(error.value).split("\n")[0].replace(device, "")))
        assert errors[0] == errors[1]
