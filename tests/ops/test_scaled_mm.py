"""Products of float8 matrices with scales, against the CPU."""

import pytest

import torch

A = torch.ops.aten
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
TOLERANCES = {  # relative to the largest element: sums of exact products in another order, rounded once
    torch.float32: 1e-6,
    torch.bfloat16: 2**-8,
    torch.float16: 2**-11,
    E4M3: 2**-3,
    E5M2: 2**-2,
}


def matrices(rows, inner, columns, x_dtype=E4M3, y_dtype=E4M3):
    torch.manual_seed(rows + inner + columns)
    return torch.randn(rows, inner).to(x_dtype), torch.randn(columns, inner).to(y_dtype).t()


def scales(kind, rows, columns):
    if kind == "tensor":
        return torch.tensor(0.37), torch.tensor([1.9])
    return torch.rand(rows, 1) + 0.5, torch.rand(1, columns) + 0.5


def to_tpu(value):
    if isinstance(value, list):
        return [to_tpu(v) for v in value]
    return value.to("tpu") if isinstance(value, torch.Tensor) else value


def check(operator, *arguments, **options):
    expected = operator(*arguments, **options)
    got = operator(*map(to_tpu, arguments), **{k: to_tpu(v) for k, v in options.items()})
    assert got.dtype == expected.dtype
    assert got.stride() == expected.stride()
    tolerance = TOLERANCES[expected.dtype]
    expected, got = expected.float(), got.cpu().float()
    largest = expected.abs().max().item() if expected.numel() else 0
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("kind", ["tensor", "row"])
@pytest.mark.parametrize("x_dtype, y_dtype", [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)], ids=str)
def test_dtypes(x_dtype, y_dtype, kind):
    for out_dtype in (None, torch.float32, torch.bfloat16, torch.float16, E4M3, E5M2):
        x, y = matrices(16, 32, 48, x_dtype, y_dtype)
        x_scale, y_scale = scales(kind, 16, 48)
        check(A._scaled_mm, x, y, x_scale, y_scale, out_dtype=out_dtype)
        for bias in (torch.randn(48), torch.randn(48).bfloat16()):
            check(A._scaled_mm, x, y, x_scale, y_scale, bias, None, out_dtype)
            recipe = [1] if kind == "row" else [0]
            check(A._scaled_mm_v2, x, y, [x_scale], recipe, [0], [y_scale], recipe, [0], bias, out_dtype)


@pytest.mark.parametrize("kind", ["tensor", "row"])
@pytest.mark.parametrize("sizes", [(5, 7, 3), (1, 16, 7), (0, 16, 16), (3, 0, 4), (1, 1, 1)], ids=str)
def test_sizes(sizes, kind):
    x, y = matrices(*sizes)
    x_scale, y_scale = scales(kind, sizes[0], sizes[2])
    if kind == "row" and sizes[0] == 0:
        return  # the CPU finds fault with the strides of no scales
    recipe = [1] if kind == "row" else [0]
    for given in (y, y.contiguous()):
        check(A._scaled_mm, x, given, x_scale, y_scale, torch.ones(sizes[2]), None, torch.bfloat16)
        if sizes[1] != 0:
            rest = ([0], [y_scale], recipe, [0], None, torch.float32, [1, 0])
            check(A._scaled_mm_v2, x, given, [x_scale], recipe, *rest)


def test_result_scale_and_out():
    x, y = matrices(16, 32, 16)
    one = torch.ones(1)
    for out_dtype in (E4M3, torch.bfloat16):  # the scale is for float8 alone
        check(A._scaled_mm, x, y, one, one, None, torch.tensor(4.0), out_dtype)
    for dtype in (torch.float32, torch.bfloat16):
        out = torch.empty(0, dtype=dtype, device="tpu")
        A._scaled_mm.out(x.to("tpu"), y.to("tpu"), one.to("tpu"), one.to("tpu"), out=out)
        expected = A._scaled_mm(x, y, one, one, out_dtype=dtype)
        assert torch.allclose(out.cpu().float(), expected.float(), rtol=1e-2, atol=1e-2)


def test_bad_calls_raise_the_cpu_error():
    x, y = matrices(16, 32, 16)
    one, ones = torch.ones(1), torch.ones(16, 1)
    calls = [
        (A._scaled_mm, x.float(), y, one, one),
        (A._scaled_mm, x, y, one.double(), one),
        (A._scaled_mm, x, y, ones[:5], ones.t()),
        (A._scaled_mm, x, y, ones, one),
        (A._scaled_mm, x, y[:16], one, one),
        (A._scaled_mm, x, y, one, one, torch.ones(3)),
        (A._scaled_mm_v2, x, y, [ones], [2], [0], [ones.t()], [2], [0], None, torch.bfloat16),
        (A._scaled_mm_v2, x, y, [one], [0], [1], [one], [0], [1], None, torch.bfloat16),
    ]
    for operator, *arguments in calls:
        errors = []
        for moved in (arguments, [to_tpu(a) for a in arguments]):
            with pytest.raises((RuntimeError, ValueError)) as error:
                operator(*moved)
            errors.append((error.type, str(error.value).split("\n")[0]))
        assert errors[0] == errors[1]
