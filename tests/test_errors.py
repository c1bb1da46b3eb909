"""Bad input raises what the CPU raises, of the same type; the device works afterwards."""

import contextlib
from math import nan

import pytest
import torch.nn.functional as F
from support import assert_same, assert_values, in_fresh_python, on_both

import torch
from torch import nn


def modify_saved(device: str) -> None:
    y = torch.ones(2, device=device, requires_grad=True).exp()
    y.add_(1)
    y.sum().backward()


# A call that the CPU refuses, on the device given. The same type must come out on tpu.
CALLS = {
    "leaky_relu_ slope": lambda d: (
        F.leaky_relu_(torch.ones(2, device=d, requires_grad=True).clone(), -2.0).sum().backward()
    ),
    "add shapes": lambda d: torch.ones(2, 3, device=d) + torch.ones(4, device=d),
    "add alpha": lambda d: torch.add(
        torch.ones(2, dtype=torch.int8, device=d), torch.ones(2, dtype=torch.int8, device=d), alpha=1.0
    ),
    "mm shapes": lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
    "mm dtypes": lambda d: torch.ones(2, 2, device=d) @ torch.ones(2, 2, device=d, dtype=torch.int64),
    "bmm ranks": lambda d: torch.bmm(torch.ones(2, 2, device=d), torch.ones(2, 2, device=d)),
    "addmm shapes": lambda d: torch.addmm(
        torch.ones(5, device=d), torch.ones(2, 3, device=d), torch.ones(3, 4, device=d)
    ),
    "linear shapes": lambda d: nn.Linear(3, 2).to(d)(torch.ones(1, 4, device=d)),
    "linear dtypes": lambda d: nn.Linear(3, 2).to(d)(torch.ones(1, 3, device=d, dtype=torch.bfloat16)),
    "conv channels": lambda d: F.conv2d(torch.ones(1, 3, 4, 4, device=d), torch.ones(2, 2, 3, 3, device=d)),
    "conv kernel too large": lambda d: F.conv2d(torch.ones(1, 1, 2, 2, device=d), torch.ones(1, 1, 3, 3, device=d)),
    "cat shapes": lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)]),
    "cat nothing": lambda d: torch.cat([]),
    "stack shapes": lambda d: torch.stack([torch.ones(2, device=d), torch.ones(3, device=d)]),
    "view size": lambda d: torch.ones(2, 3, device=d).view(4),
    "view strides": lambda d: torch.ones(2, 3, device=d).t().view(6),
    "reshape size": lambda d: torch.ones(2, 3, device=d).reshape(4, 2),
    "dim out of range": lambda d: torch.ones(2, device=d).sum(3),
    "softmax dim": lambda d: torch.ones(2, device=d).softmax(2),
    "squeeze dim": lambda d: torch.ones(2, device=d).squeeze(4),
    "select index": lambda d: torch.ones(2, device=d)[5],
    "narrow length": lambda d: torch.ones(2, device=d).narrow(0, 1, 4),
    "too many indices": lambda d: torch.ones(2, device=d)[0, 0],
    "index dtype": lambda d: torch.ones(2, device=d)[torch.ones(1, device=d)],
    "mask shape": lambda d: torch.ones(3, device=d)[torch.ones(2, dtype=torch.bool, device=d)],
    "gather rank": lambda d: torch.ones(2, 2, device=d).gather(0, torch.zeros(1, dtype=torch.int64, device=d)),
    "gather dtype": lambda d: torch.ones(2, device=d).gather(0, torch.zeros(1, dtype=torch.float32, device=d)),
    "scatter dtype": lambda d: torch.ones(2, device=d).scatter(
        0, torch.zeros(1, dtype=torch.int64, device=d), torch.ones(1, dtype=torch.int64, device=d)
    ),
    "index_select rank": lambda d: torch.ones(2, device=d).index_select(
        0, torch.zeros(1, 1, dtype=torch.int64, device=d)
    ),
    "embedding dtype": lambda d: F.embedding(torch.ones(2, device=d), torch.ones(3, 2, device=d)),
    "in-place broadcast": lambda d: torch.ones(3, device=d).add_(torch.ones(2, 3, device=d)),
    "in-place dtype": lambda d: torch.ones(3, dtype=torch.int64, device=d).add_(0.5),
    "in-place mul bool": lambda d: torch.ones(3, dtype=torch.bool, device=d).mul_(2),
    "in-place div of int": lambda d: torch.ones(3, dtype=torch.int64, device=d).div_(2),
    "out dtype": lambda d: torch.add(torch.ones(2, device=d), 1, out=torch.ones(2, dtype=torch.int64, device=d)),
    "sub bool": lambda d: torch.ones(2, dtype=torch.bool, device=d) - torch.ones(2, dtype=torch.bool, device=d),
    "neg bool": lambda d: -torch.ones(2, dtype=torch.bool, device=d),
    "shift of float": lambda d: torch.ones(2, device=d) << 1,
    "bitwise of float": lambda d: torch.ones(2, device=d) & torch.ones(2, device=d),
    "compare with complex": lambda d: torch.ones(2, device=d) < 1j,
    "remainder of bool": lambda d: (
        torch.ones(2, dtype=torch.bool, device=d) % torch.ones(2, dtype=torch.bool, device=d)
    ),
    "abs of bool": lambda d: torch.ones(2, dtype=torch.bool, device=d).abs(),
    "isposinf of complex": lambda d: torch.ones(2, dtype=torch.complex64, device=d).isposinf(),
    "mean of int": lambda d: torch.ones(2, dtype=torch.int64, device=d).mean(),
    "var of int": lambda d: torch.ones(2, dtype=torch.int64, device=d).var(),
    "compare complex": lambda d: torch.ones(2, dtype=torch.complex64, device=d) < 1,
    "max of nothing": lambda d: torch.ones(0, device=d).max(),
    "max of nothing along dim": lambda d: torch.ones(0, 2, device=d).max(0),
    "argmax of nothing": lambda d: torch.ones(0, device=d).argmax(),
    "clamp without bounds": lambda d: torch.ones(2, device=d).clamp(),
    "item of many": lambda d: torch.ones(2, device=d).item(),
    "bool of many": lambda d: bool(torch.ones(2, device=d)),
    "topk too many": lambda d: torch.ones(2, device=d).topk(3),
    "kthvalue": lambda d: torch.ones(2, device=d).kthvalue(3),
    "arange step": lambda d: torch.arange(0, 5, 0, device=d),
    "arange sign": lambda d: torch.arange(0, 5, -1, device=d),
    "negative size": lambda d: torch.ones(-1, device=d),
    "expand": lambda d: torch.ones(2, device=d).expand(3),
    "permute": lambda d: torch.ones(2, 2, device=d).permute(0, 0),
    "repeat": lambda d: torch.ones(2, 2, device=d).repeat(2),
    "split": lambda d: torch.ones(4, device=d).split([1, 2]),
    "unfold": lambda d: torch.ones(4, device=d).unfold(0, 5, 1),
    "as_strided outside": lambda d: torch.ones(4, device=d).as_strided((5,), (1,)).sum().item(),
    "pad": lambda d: F.pad(torch.ones(2, 2, device=d), (-3, 0)),
    "pad reflect": lambda d: F.pad(torch.ones(1, 2, device=d), (3, 3), mode="reflect"),
    "layer norm": lambda d: F.layer_norm(torch.ones(2, 3, device=d), (4,)),
    "group norm": lambda d: F.group_norm(torch.ones(2, 3, device=d), 2),
    "batch norm": lambda d: F.batch_norm(torch.ones(1, 3, device=d), None, None, training=True),
    "batch norm stats": lambda d: F.batch_norm(
        torch.ones(2, 3, device=d), torch.ones(2, device=d), torch.ones(2, device=d)
    ),
    "dropout p": lambda d: F.dropout(torch.ones(2, device=d), 1.5),
    "bernoulli p": lambda d: torch.empty(2, device=d).bernoulli_(1.5),
    "bernoulli p below": lambda d: torch.empty(2, device=d).bernoulli_(-0.5),
    "bernoulli p after a good one": lambda d: torch.empty(2, device=d).bernoulli_(0.5).bernoulli_(1.5),
    "exponential rate": lambda d: torch.empty(2, device=d).exponential_(0),
    "geometric p": lambda d: torch.empty(2, device=d).geometric_(1),
    "cauchy sigma": lambda d: torch.empty(2, device=d).cauchy_(0, 0),
    "log_normal std": lambda d: torch.empty(2, device=d).log_normal_(0, 0),
    "random to": lambda d: torch.empty(2, device=d).random_(0),
    "random_ to beyond int8": lambda d: torch.empty(2, dtype=torch.int8, device=d).random_(129),
    "random_ from below uint8": lambda d: torch.empty(2, dtype=torch.uint8, device=d).random_(-1, 3),
    "random_ from above int16": lambda d: torch.empty(2, dtype=torch.int16, device=d).random_(1 << 15, None),
    "random_ to beyond bool": lambda d: torch.empty(2, dtype=torch.bool, device=d).random_(3),
    "random_ to beyond float16": lambda d: torch.empty(2, dtype=torch.float16, device=d).random_(70000),
    "random_ complex": lambda d: torch.empty(2, dtype=torch.complex64, device=d).random_(),
    "randint complex": lambda d: torch.randint(6, (2,), device=d, dtype=torch.complex64),
    "uniform_ int": lambda d: torch.empty(2, dtype=torch.int32, device=d).uniform_(),
    "normal_ bool": lambda d: torch.empty(2, dtype=torch.bool, device=d).normal_(),
    "exponential_ complex": lambda d: torch.empty(2, dtype=torch.complex64, device=d).exponential_(),
    "log_normal_ int": lambda d: torch.empty(2, dtype=torch.int64, device=d).log_normal_(),
    "bernoulli_ complex": lambda d: torch.empty(2, dtype=torch.complex64, device=d).bernoulli_(0.5),
    "empty_strided ranks": lambda d: torch.empty_strided((2,), (), device=d),
    "normal std": lambda d: torch.empty(2, device=d).normal_(0, -1),
    "uniform": lambda d: torch.empty(2, device=d).uniform_(1, 0),
    "uniform from beyond float32": lambda d: torch.empty(2, device=d).uniform_(-1e39, 0),
    "uniform wider than float32": lambda d: torch.empty(2, device=d).uniform_(-3e38, 3e38),
    "randperm beyond uint8": lambda d: torch.randperm(257, dtype=torch.uint8, device=d),
    "randperm beyond float16": lambda d: torch.randperm(2050, out=torch.empty(0, dtype=torch.float16, device=d)),
    "index_put values": lambda d: torch.ones(5, device=d).index_put_(
        (torch.arange(3, device=d),), torch.ones(4, device=d)
    ),
    "index_put indices": lambda d: torch.ones(5, 5, device=d).index_put_(
        (torch.arange(3, device=d), torch.arange(2, device=d)), torch.ones((), device=d)
    ),
    "bincount of floats": lambda d: torch.bincount(torch.ones(2, device=d)),
    "randint": lambda d: torch.randint(5, 2, (3,), device=d),
    "multinomial": lambda d: torch.multinomial(torch.ones(3, device=d), 5),
    "multinomial rank": lambda d: torch.multinomial(torch.ones(1, 1, 3, device=d), 1),
    "multinomial of nothing": lambda d: torch.multinomial(torch.ones(3, device=d), 0),
    "nll dtype": lambda d: F.nll_loss(torch.ones(2, 3, device=d), torch.ones(2, device=d)),
    "nll shapes": lambda d: F.nll_loss(torch.ones(2, 3, device=d), torch.ones(3, dtype=torch.int64, device=d)),
    "mse shapes": lambda d: F.mse_loss(torch.ones(2, 3, device=d), torch.ones(4, device=d)),
    "bce range": lambda d: F.binary_cross_entropy(torch.full((2,), 2.0, device=d), torch.ones(2, device=d)),
    "attention shapes": lambda d: F.scaled_dot_product_attention(
        torch.ones(1, 2, 3, 4, device=d), torch.ones(1, 2, 3, 5, device=d), torch.ones(1, 2, 3, 4, device=d)
    ),
    "pool": lambda d: F.max_pool2d(torch.ones(1, 1, 2, 2, device=d), 3),
    "masked_scatter source": lambda d: torch.ones(3, device=d).masked_scatter(
        torch.ones(3, dtype=torch.bool, device=d), torch.ones(2, device=d)
    ),
    "where dtype": lambda d: torch.where(torch.ones(2, device=d), torch.ones(2, device=d), torch.ones(2, device=d)),
    "masked_fill mask": lambda d: torch.ones(2, device=d).masked_fill(torch.ones(2, device=d), 1),
    "cumsum dim": lambda d: torch.ones(2, device=d).cumsum(1),
    "sort dim": lambda d: torch.ones(2, device=d).sort(2),
    "tril rank": lambda d: torch.ones(2, device=d).tril(),
    "diag rank": lambda d: torch.diag(torch.ones(2, 2, 2, device=d)),
    "view dtype": lambda d: torch.ones(3, dtype=torch.int8, device=d).view(torch.int32),
    "view_as_complex": lambda d: torch.view_as_complex(torch.ones(3, 3, device=d)),
    "set_ dtype": lambda d: torch.ones(2, device=d).set_(torch.ones(2, dtype=torch.int64, device=d)),
    "write to expanded": lambda d: torch.ones(1, device=d).expand(3).add_(1),
    "write overlapping": lambda d: (lambda x: x[1:].add_(x[:-1]))(torch.ones(4, device=d)),
    "out overlapping": lambda d: (lambda x: torch.add(x[:3], 1, out=x[1:]))(torch.ones(4, device=d)),
    "copy sizes": lambda d: torch.ones(3, device=d).copy_(torch.ones(2, device=d)),
    "copy sizes from cpu": lambda d: torch.ones(3, device=d).copy_(torch.ones(2)),
    "resize": lambda d: torch.ones(3, device=d).resize_(-1),
    "cholesky": lambda d: torch.linalg.cholesky(-torch.eye(2, device=d)),
    "inverse shape": lambda d: torch.linalg.inv(torch.ones(2, 3, device=d)),
    "lstm width": lambda d: nn.LSTM(3, 4).to(d)(torch.ones(2, 1, 5, device=d)),
    # autograd
    "leaf in place": lambda d: torch.ones(2, device=d, requires_grad=True).add_(1),
    "backward twice": lambda d: (lambda y: (y.backward(), y.backward()))(
        (torch.ones(2, device=d, requires_grad=True) ** 2).sum()
    ),
    "backward of many": lambda d: (torch.ones(2, device=d, requires_grad=True) * 2).backward(),
    "backward of constant": lambda d: torch.ones(1, device=d).backward(),
    "saved and modified": modify_saved,
    "gradient shape": lambda d: (torch.ones(2, device=d, requires_grad=True) * 2).backward(torch.ones(3, device=d)),
    "requires_grad of int": lambda d: torch.ones(2, dtype=torch.int64, device=d).requires_grad_(),
    "numpy with grad": lambda d: torch.ones(2, device=d, requires_grad=True).cpu().numpy(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_same_type_as_cpu(call):
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(Exception) as raised:
        call("tpu")
        torch.tpu.synchronize()
    assert raised.type is expected.type, (
        f"CPU: {expected.type.__name__}: {expected.value}\ntpu: {raised.type.__name__}: {raised.value}"
    )
    assert torch.ones(3, device="tpu").sum().item() == 3


def test_what_the_cpu_refuses_for_its_zeros_alone_is_taken():
    ones = torch.ones(3, dtype=torch.uint8, device="tpu")
    assert_values(ones.clone().remainder_(torch.full((3,), 2, device="tpu")), [1, 1, 1])
    column = torch.ones(3, 1, dtype=torch.bfloat16, device="tpu")
    assert_values(torch.addmm(column[0], column, column[:1]), [[2]] * 3)
    state = torch.get_rng_state()
    torch.ones(5, dtype=torch.int64, device="tpu").add(0.5)
    assert torch.equal(state, torch.get_rng_state())


MIXES = {
    "add": lambda a, b: a + b,
    "add reversed": lambda a, b: b + a,
    "mm": lambda a, b: a @ b,
    "cat": lambda a, b: torch.cat([a, b]),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "linear": lambda a, b: F.linear(a, b),
    "in-place": lambda a, b: a.add_(b),
    "out": lambda a, b: torch.add(a, a, out=b),
    "embedding": lambda a, b: F.embedding(torch.zeros(1, dtype=torch.int64), a),
    "index_select": lambda a, b: a.index_select(0, torch.zeros(1, dtype=torch.int64)),
    "cross_entropy": lambda a, b: F.cross_entropy(a, torch.zeros(2, dtype=torch.int64)),
    "layer_norm": lambda a, b: F.layer_norm(a, (2,), b[0]),
    "attention": lambda a, b: F.scaled_dot_product_attention(a[None], b[None], a[None]),
    "equal": lambda a, b: torch.equal(a, b),
    "foreach": lambda a, b: torch._foreach_add([a, a], [b, b]),
    "index_put": lambda a, b: a.index_put_((torch.zeros(1, dtype=torch.int64, device="tpu"),), b[0]),
    "in-place on CPU": lambda a, b: b.add_(a),
}


@pytest.mark.parametrize("call", MIXES.values(), ids=MIXES)
def test_mixed_devices(call):
    with pytest.raises(RuntimeError, match="device"):
        call(torch.ones(2, 2, device="tpu"), torch.ones(2, 2))
    torch.tpu.synchronize()


def test_zero_dim_cpu_tensors_mix():
    x = torch.ones(2, device="tpu")
    assert_values(x + torch.tensor(2.0), [3, 3])
    assert_values(torch.tensor(2.0) * x, [2, 2])
    assert_values(x.add_(torch.tensor(1)), [2, 2])
    assert_values(torch.where(x > 0, x, torch.tensor(5.0)), [2, 2])
    x[0] = torch.tensor(7.0)
    assert_values(x, [7, 2])


def test_index_on_cpu_is_taken():
    x = torch.arange(5.0, device="tpu")
    assert_values(x[torch.tensor([1, 3])], [1, 3])
    assert_values(x[torch.tensor([True, False, True, False, False])], [0, 2])
    x[torch.tensor([0])] = 9.0
    assert x[0].item() == 9


OUT_OF_RANGE = {
    "index": lambda d: torch.ones(3, device=d)[torch.tensor([0, 5], device=d)],
    "index below": lambda d: torch.ones(3, device=d)[torch.tensor([-4], device=d)],
    "index_put": lambda d: torch.ones(3, device=d).index_put_((torch.tensor([3], device=d),), torch.ones(1, device=d)),
    "index_select": lambda d: torch.ones(3, device=d).index_select(0, torch.tensor([3], device=d)),
    "index_add": lambda d: torch.ones(3, device=d).index_add(0, torch.tensor([3], device=d), torch.ones(1, device=d)),
    "index_fill": lambda d: torch.ones(3, device=d).index_fill(0, torch.tensor([3], device=d), 1.0),
    "gather": lambda d: torch.ones(3, device=d).gather(0, torch.tensor([3], device=d)),
    "scatter": lambda d: torch.ones(3, device=d).scatter(0, torch.tensor([3], device=d), 1.0),
    "scatter_add": lambda d: torch.ones(3, device=d).scatter_add(
        0, torch.tensor([-1], device=d), torch.ones(1, device=d)
    ),
    "embedding": lambda d: F.embedding(torch.tensor([9], device=d), torch.ones(3, 2, device=d)),
    "embedding below": lambda d: F.embedding(torch.tensor([-1], device=d), torch.ones(3, 2, device=d)),
    "nll_loss": lambda d: F.nll_loss(torch.zeros(1, 3, device=d), torch.tensor([3], device=d)),
    "cross_entropy": lambda d: F.cross_entropy(torch.zeros(1, 3, device=d), torch.tensor([-5], device=d)),
    "take": lambda d: torch.ones(3, device=d).take(torch.tensor([3], device=d)),
    "one_hot": lambda d: F.one_hot(torch.tensor([3], device=d), 3),
}


BAD_VALUES = {
    "floor_divide": lambda d: torch.tensor([1, 2], device=d) // torch.tensor([0, 1], device=d),
    "floor_divide by a number": lambda d: torch.tensor([1, 2], device=d) // 0,
    "floor_divide unsigned": lambda d: torch.ones(2, dtype=torch.uint8, device=d) // torch.zeros(2, device=d).byte(),
    "floor_divide_": lambda d: torch.tensor([1, 2], device=d).floor_divide_(torch.tensor([0, 1], device=d)),
    "remainder": lambda d: torch.tensor([1, 2], device=d) % torch.tensor([0, 1], device=d),
    "fmod": lambda d: torch.fmod(torch.tensor([1, 2], device=d), 0),
    "div": lambda d: torch.div(torch.tensor([1, 2], device=d), torch.tensor([0, 1], device=d), rounding_mode="trunc"),
    "multinomial": lambda d: torch.multinomial(torch.tensor([-1.0, 1.0], device=d), 1),
    "multinomial zero": lambda d: torch.multinomial(torch.tensor([0.0, 0.0], device=d), 1),
    "multinomial nan": lambda d: torch.multinomial(torch.tensor([nan, 1.0], device=d), 1),
    "bernoulli": lambda d: torch.bernoulli(torch.tensor([1.5], device=d)),
    "normal": lambda d: torch.normal(torch.zeros(2, device=d), torch.tensor([-1.0, 1.0], device=d)),
    "poisson": lambda d: torch.poisson(torch.tensor([-1.0], device=d)),
    "binary_cross_entropy": lambda d: F.binary_cross_entropy(torch.tensor([1.5], device=d), torch.ones(1, device=d)),
}


@pytest.mark.parametrize("call", BAD_VALUES.values(), ids=BAD_VALUES)
def test_values_that_the_cpu_refuses(call):
    with pytest.raises(RuntimeError):
        call("cpu")
    with pytest.raises(RuntimeError, match=r"ZeroDivisionError|probability|distribution|expects|Poisson|between"):
        call("tpu").cpu()
    with contextlib.suppress(RuntimeError):
        torch.tpu.synchronize()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_classes_as_bytes(reduction):
    scores, classes = torch.randn(6, 5, requires_grad=True), torch.tensor([0, 4, 2, 2, 1, 3], dtype=torch.uint8)

    def gradient(scores, classes):
        loss = F.nll_loss(scores.log_softmax(1), classes, reduction=reduction).sum()
        return torch.autograd.grad(loss, scores)[0]

    on_both(gradient, scores, classes)


def test_division_by_zero_of_floats_is_no_error():
    for divide in (torch.floor_divide, torch.remainder, torch.fmod):
        on_both(divide, torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]))


def test_overlap_is_refused_before_dtypes():
    for device in ("cpu", "tpu"):
        x = torch.ones(4, device=device)
        with pytest.raises(RuntimeError, match="unsupported operation"):
            x[1:].__ilshift__(x[:-1])


def test_writes_to_overlapping_elements():
    def expanded(device):
        return torch.zeros(1, device=device).expand(4)

    for write in (
        lambda x: x.copy_(torch.ones(4, device=x.device)),
        lambda x: x.add_(1),
        lambda x: x.scatter_(0, torch.tensor([0], device=x.device), 1.0),
    ):
        for device in ("cpu", "tpu"):
            with pytest.raises(RuntimeError, match="single memory location"):
                write(expanded(device))
    assert_values(expanded("tpu").fill_(3), [3] * 4)
    assert_values(expanded("tpu").fill_(3).zero_(), [0] * 4)
    windows = torch.zeros(5, device="tpu").as_strided((3, 3), (1, 1))
    assert_values(windows.fill_(1), [[1] * 3] * 3)


def test_indices_apart_from_what_they_write():
    def write_self(device):
        x = torch.tensor([0, 1, 2], device=device)
        for write in (
            lambda: x.index_fill_(0, x, 1),
            lambda: x.scatter_(0, x, 1),
            lambda: x.put_(x, torch.tensor([1, 2, 3], device=device)),
            lambda: x.index_put_((torch.tensor([2, 1, 0], device=device),), x),
            lambda: x.index_add_(0, torch.tensor([2, 1, 0], device=device), x),
        ):
            with pytest.raises(RuntimeError, match="single memory location"):
                write()
        return x

    assert_same(write_self("tpu"), write_self("cpu"))


@pytest.mark.parametrize("call", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE)
@pytest.mark.parametrize("how", ["read", "synchronise"])
def test_index_out_of_range(call, how):
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(Exception) as raised:
        out = call("tpu")
        if how == "read":
            out.cpu()
        else:
            torch.tpu.synchronize()
    assert raised.type is expected.type, raised.value
    if how == "read":
        del out
        try:  # the same failure may also wait at the next synchronisation
            torch.tpu.synchronize()
        except raised.type:
            pass
    assert torch.ones(3, device="tpu").sum().item() == 3
    torch.tpu.synchronize()


def test_late_error_names_the_operator():
    with pytest.raises(IndexError, match=r"embedding|index|gather"):
        F.embedding(torch.tensor([9], device="tpu"), torch.ones(3, 2, device="tpu")).cpu()
    try:
        torch.tpu.synchronize()
    except IndexError:
        pass


@pytest.mark.parametrize("split", [False, True], ids=["one piece", "two pieces"])
def test_what_depends_on_a_failure_fails_and_the_rest_does_not(split):
    good = torch.ones(4, device="tpu")
    torch.tpu.synchronize()
    before = good * 2
    bad = good[torch.tensor([8], device="tpu")]
    between = good * 3
    if split:
        torch.tpu.flush()
    dependent, independent = bad + 1, good + 1
    good.mul_(5)
    with pytest.raises(IndexError, match="index"):
        torch.tpu.synchronize()
    for failed in (bad, dependent):
        with pytest.raises(IndexError, match="index"):
            failed.cpu()
    for tensor, value in ((before, 2), (between, 3), (independent, 2), (good, 5)):
        assert_values(tensor, [value] * 4)


def test_a_bad_batch_costs_no_weights():
    """The error of a bad index may be met a step later; what the optimizer did before it is not lost."""
    table, scale = torch.nn.Embedding(5, 3, device="tpu"), torch.nn.Parameter(torch.ones(3, device="tpu"))
    optimizer = torch.optim.AdamW([table.weight, scale], lr=0.1)

    def step(ids):
        optimizer.zero_grad()
        (table(torch.tensor(ids, device="tpu")) * scale).square().sum().backward()
        optimizer.step()

    step([1, 2])
    kept = scale.detach().clone()
    with torch.no_grad(), pytest.raises(IndexError, match="embedding"):
        (table(torch.tensor([7], device="tpu")) * scale).sum().item()
    assert_same(scale.detach(), kept.cpu())
    step([0, 4])
    assert torch.isfinite(table.weight).all().item()


def test_unsupported_layouts_and_ranks():
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.zeros(2, 2, layout=torch.sparse_coo, device="tpu")
    with pytest.raises((RuntimeError, TypeError)):
        torch.quantize_per_tensor(torch.ones(2, device="tpu"), 0.1, 0, torch.quint8)
    with pytest.raises(RuntimeError, match="dimensions"):
        torch.ones((1,) * 20, device="tpu").sum(0)


def test_wrong_settings_give_one_clear_error():
    for name, value in (
        ("TTPU_TOPOLOGY", "v99:9x9"),
        ("TTPU_PLUGIN", "/nonexistent/plugin.so"),
        ("TTPU_HBM_BYTES", "lots"),
    ):
        out = in_fresh_python("import torch, torch_tpu; torch.ones(1, device='tpu')", check=False, **{name: value})
        assert out.returncode == 1
        last = out.stderr.strip().splitlines()[-1]
        assert "RuntimeError" in last and value.split("/")[-1] in out.stderr, out.stderr


def test_deterministic_algorithms_refuse_what_the_cpu_refuses():
    """And not what PyTorch's Meta kernels refuse on behalf of CUDA's."""
    x = torch.tensor([3.0, 1.0, 2.0], device="tpu")
    torch.use_deterministic_algorithms(True)
    try:
        assert x.median(0).values.item() == 2
        with pytest.raises(RuntimeError, match="put_ does not have a deterministic"):
            x.put_(torch.tensor([0], device="tpu"), torch.ones(1, device="tpu"))
        with pytest.raises(IndexError):
            x.median(5)
    finally:
        torch.use_deterministic_algorithms(False)
