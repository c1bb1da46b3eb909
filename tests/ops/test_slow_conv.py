"""The operators that PyTorch's CPU convolutions consist of, called by name: values, layouts, gradients, errors."""

import pytest

import torch

A = torch.ops.aten
NN = torch._C._nn
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def values(*sizes, dtype=torch.float32):
    return torch.randint(-3, 4, sizes).to(dtype)


CALLS = {  # operator, image, weight, and what follows the weight; the bias is made for it
    "slow2d": (A._slow_conv2d_forward, (2, 4, 6, 7), (5, 4, 3, 2), [(3, 2), None, (2, 1), (1, 0)]),
    "matrix": (A._slow_conv2d_forward, (2, 4, 6, 7), (5, 24), [(3, 2), None, (1, 1), (0, 1)]),
    "slow3d": (A.slow_conv3d_forward, (2, 4, 6, 7, 5), (6, 4, 3, 2, 2), [(3, 2, 2), None, (1, 2, 1), (1, 0, 1)]),
    "groups": (A.slow_conv3d_forward, (2, 4, 3, 4, 5), (6, 2, 1, 2, 2), [(1, 2, 2), None, (1, 1, 1), (0, 0, 0)]),
    "dilated2d": (A.slow_conv_dilated2d, (2, 4, 6, 7), (5, 4, 3, 2), [(3, 2), None, (2, 1), (1, 0), (2, 3)]),
    "dilated image": (A.slow_conv_dilated2d, (4, 6, 7), (5, 4, 3, 2), [(3, 2), None]),
    "dilated3d": (A.slow_conv_dilated3d, (2, 4, 6, 7, 5), (5, 4, 3, 2, 2),
                  [(3, 2, 2), None, (1, 1, 2), (1, 1, 0), (2,) * 3]),
    "dilated volume": (A.slow_conv_dilated3d, (4, 6, 7, 5), (5, 4, 3, 2, 2), [(3, 2, 2), None]),
    "transpose2d": (A.slow_conv_transpose2d, (2, 4, 6, 7), (4, 5, 3, 2),
                    [(3, 2), None, (2, 3), (1, 0), (1, 2), (1, 2)]),
    "transpose image": (A.slow_conv_transpose2d, (4, 6, 7), (4, 5, 3, 2), [(3, 2), None]),
    "transpose3d": (A.slow_conv_transpose3d, (2, 4, 3, 4, 5), (4, 5, 3, 2, 2),
                    [(3, 2, 2), None, (2,) * 3, (1,) * 3, (1,) * 3]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_values_and_layout(name, dtype):
    torch.manual_seed(0)
    operator, image, weight, rest = CALLS[name]
    x, w = values(*image, dtype=dtype), values(*weight, dtype=dtype)
    outputs = weight[1] if "transpose" in name else weight[0]
    for bias in (None, values(outputs, dtype=dtype)):
        for last in (False, True):
            if last and (len(image) not in LAST or name == "matrix"):
                continue  # the CPU has no channels last for a weight that is a matrix
            given = x.contiguous(memory_format=LAST[len(image)]) if last else x
            after = (rest[0], bias, *rest[2:])
            expected = operator(given, w, *after)
            moved = [t.to("tpu") if isinstance(t, torch.Tensor) else t for t in (given, w, *after)]
            got = operator(*moved)
            assert got.dtype == expected.dtype
            assert got.stride() == expected.stride()
            assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_slow_conv2d_gradients(dtype, last):
    torch.manual_seed(0)
    x, w, g = values(2, 4, 6, 7, dtype=dtype), values(5, 4, 3, 2, dtype=dtype), values(2, 5, 3, 6, dtype=dtype)
    if last:  # all of them: the CPU mixes up the elements of weights that alone are so
        x, w, g = (t.contiguous(memory_format=torch.channels_last) for t in (x, w, g))
    geometry = ([3, 2], [2, 1], [1, 0])
    moved = [t.to("tpu") for t in (g, x, w)]
    for mask in ([True, True, True], [False, True, False], [True, False, True]):
        expected = A._slow_conv2d_backward(g, x, w, *geometry, mask)
        got = A._slow_conv2d_backward(*moved, *geometry, mask)
        for e, r in zip(expected, got, strict=True):
            assert (e is None) == (r is None)
            if e is not None:
                assert r.stride() == e.stride()
                assert torch.equal(r.cpu(), e)
    outs = [torch.empty(0, dtype=dtype, device="tpu") for _ in range(3)]
    A._slow_conv2d_backward.grad_input(*moved, *geometry, grad_input=outs[0], grad_weight=outs[1], grad_bias=outs[2])
    expected = A._slow_conv2d_backward(g, x, w, *geometry, [True, True, True])
    assert all(torch.equal(r.cpu(), e) for e, r in zip(expected, outs, strict=True))


@pytest.mark.parametrize("function", [NN.thnn_conv2d, NN.slow_conv_dilated2d, NN.slow_conv_transpose2d])
def test_autograd(function):
    torch.manual_seed(0)
    x, w = values(2, 4, 6, 7), values(4, 4, 3, 2)
    results = []
    for device in ("cpu", "tpu"):
        leaves = [t.to(device).detach().requires_grad_() for t in (x, w)]
        y = function(*leaves, (3, 2))
        results.append([t.cpu() for t in (y.detach(), *torch.autograd.grad((y * y).sum(), leaves))])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(
    "operator, image, weight, rest",
    [
        (A._slow_conv2d_forward, (4, 6, 7), (5, 4, 3, 2), ([3, 2], None, [1, 1], [0, 0])),
        (A._slow_conv2d_forward, (2, 4, 6, 7), (5, 3, 3, 2), ([3, 2], None, [1, 1], [0, 0])),
        (A._slow_conv2d_forward, (2, 4, 2, 7), (5, 4, 3, 2), ([3, 2], None, [1, 1], [0, 0])),
        (A.slow_conv_dilated2d, (2, 4, 6, 7), (5, 4, 3, 2), ([2, 2],)),
        (A.slow_conv_transpose2d, (0, 4, 6, 7), (4, 5, 3, 2), ([3, 2],)),
        (A.slow_conv_transpose3d, (2, 4, 6, 7, 5), (4, 5, 3, 2, 2), ([3, 2, 2], None, [0, 1, 1])),
    ],
)
def test_bad_calls_raise_the_cpu_error(operator, image, weight, rest):
    errors = []
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError) as error:
            operator(torch.ones(image, device=device), torch.ones(weight, device=device), *rest)
        errors.append(str(error.value).split("\n")[0])
    assert errors[0] == errors[1]
