"""Views and in-place writes: every alias of a storage sees every write, as on the CPU."""

import pytest
from support import assert_same, assert_values

import torch

# A view of a 4x6 tensor holding 0..23, and what may be written through it.
VIEWS = {
    "whole": lambda x: x,
    "row": lambda x: x[1],
    "column": lambda x: x[:, 2],
    "rows": lambda x: x[1:3],
    "every second column": lambda x: x[:, ::2],
    "block": lambda x: x[1:3, 2:5],
    "transposed": lambda x: x.t(),
    "transposed block": lambda x: x.t()[1:5:2, 1:],
    "flat": lambda x: x.view(-1),
    "flat end": lambda x: x.view(-1)[5:],
    "other shape": lambda x: x.view(2, 3, 4),
    "permuted": lambda x: x.view(2, 3, 4).permute(2, 0, 1),
    "permuted slice": lambda x: x.view(2, 3, 4).permute(2, 0, 1)[1:, :, ::2],
    "diagonal": lambda x: x.diagonal(),
    "diagonal offset": lambda x: x.diagonal(2),
    "unsqueezed": lambda x: x.unsqueeze(1),
    "squeezed": lambda x: x[1:2].squeeze(0),
    "split": lambda x: x.split(2, dim=1)[1],
    "chunk": lambda x: x.chunk(3, dim=1)[2],
    "unbound": lambda x: x.unbind(1)[3],
    "narrowed": lambda x: x.narrow(1, 2, 3),
    "unflattened": lambda x: x.unflatten(1, (2, 3)),
    "swapped": lambda x: x.view(2, 2, 6).movedim(0, 2),
    "strided": lambda x: x.as_strided((3, 2), (7, 2), 1),
    "one element": lambda x: x[2, 3],
    "empty": lambda x: x[4:],
    "unfolded": lambda x: x.unfold(1, 2, 2),
    "tail of tail": lambda x: x[1:][1:][:, 3:][:, ::2],
}

WRITES = {
    "add_": lambda v, n: v.add_(1),
    "mul_ of tensor": lambda v, n: v.mul_(n),
    "fill_": lambda v, n: v.fill_(7),
    "zero_": lambda v, n: v.zero_(),
    "copy_": lambda v, n: v.copy_(n),
    "setitem": lambda v, n: v.__setitem__(..., n),
    "clamp_": lambda v, n: v.clamp_(3, 9),
    "out": lambda v, n: torch.add(n, 2, out=v),
    "masked_fill_": lambda v, n: v.masked_fill_(n > 0, -1),
    "neg_": lambda v, n: v.neg_(),
    "copy of scalar": lambda v, n: v.copy_(torch.tensor(5.0, device=v.device)),
}


def numbers_like(view: torch.Tensor) -> torch.Tensor:
    return (torch.arange(view.numel(), dtype=torch.float32) * 0.5 - 2).view(view.shape)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_reading(view):
    base = torch.arange(24.0).view(4, 6)
    on_device = base.to("tpu")
    expected, actual = view(base), view(on_device)
    assert actual.stride() == expected.stride() and actual.storage_offset() == expected.storage_offset()
    assert actual.untyped_storage().data_ptr() == on_device.untyped_storage().data_ptr()
    assert_same(actual, expected)
    assert_same(actual + 1, expected + 1)
    assert_same(actual.sum(), expected.sum())
    assert_same(actual.contiguous(), expected.contiguous())
    assert_same(actual.clone(), expected.clone())


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_writing(view, write):
    base = torch.arange(24.0).view(4, 6)
    on_device = base.to("tpu")
    early = on_device.t()
    first, second = view(base), view(on_device)
    numbers = numbers_like(first)
    write(first, numbers)
    write(second, numbers.to("tpu"))
    assert_same(second, first)
    assert_same(on_device, base)
    assert_same(early, base.t())


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_writing_to_never_written_storage(view):
    on_device = torch.empty(4, 6, device="tpu")
    view(on_device).fill_(1)
    base = torch.zeros(4, 6)
    view(base).fill_(1)
    assert_same(view(on_device), view(base))


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64], ids=str
)
def test_writing_dtypes(dtype):
    base = torch.arange(24).view(4, 6).to(dtype)
    on_device = base.to("tpu")
    for x in (base, on_device):
        x[1:3, ::2].copy_(torch.ones(2, 3, device=x.device))
        x.t()[3] = 1
    assert_same(on_device, base)


def test_chain_of_writes_through_many_aliases():
    def run(x):
        rows, columns, flat = x[1:], x.t(), x.view(-1)
        rows += 10
        columns[2] *= 2
        flat[::5] = -1
        x.sub_(1)
        rows[0].copy_(columns[:, 0].sum())
        flat[3:9].add_(flat[9:15])
        return x

    assert_same(run(torch.arange(24.0, device="tpu").view(4, 6)), run(torch.arange(24.0).view(4, 6)))


def test_copies_within_a_storage():
    def run(x):
        x[0].copy_(x[1])
        x[:, 0].copy_(x[:, 1].clone())
        x[2:, 3:] = x[:2, :3]
        return x

    assert_same(run(torch.arange(24.0, device="tpu").view(4, 6)), run(torch.arange(24.0).view(4, 6)))


def test_a_result_keeps_its_value_when_its_operand_is_written():
    x = torch.ones(4, device="tpu")
    y = x + 1
    clone = x.clone()
    x.fill_(9)
    assert_values(y, [2] * 4)
    assert_values(clone, [1] * 4)
    assert_values(x, [9] * 4)


def test_index_assignment():
    def run(d):
        x = torch.zeros(4, 5, device=d)
        x[torch.tensor([0, 2], device=d), torch.tensor([1, 3], device=d)] = torch.tensor([5.0, 6.0], device=d)
        x[x > 5] = -1
        x[:, torch.tensor([4], device=d)] += 2
        x[1, 1:3] = 8
        x[..., 0] = torch.arange(4.0, device=d)
        x[torch.tensor([True, False, False, True], device=d)] *= 3
        return x

    assert_same(run("tpu"), run("cpu"))


@pytest.mark.parametrize(
    "source,target",
    [
        (torch.float32, torch.int32),
        (torch.int32, torch.float32),
        (torch.float32, torch.uint8),
        (torch.uint8, torch.int32),
        (torch.int64, torch.float16),
        (torch.float16, torch.int64),
        (torch.bfloat16, torch.uint8),
        (torch.float64, torch.complex64),
        (torch.complex64, torch.float32),
        (torch.float16, torch.complex32),
        (torch.complex32, torch.uint8),
        (torch.complex64, torch.complex32),
        (torch.complex32, torch.complex128),
    ],
    ids=str,
)
def test_dtype_views(source, target):
    x = (torch.arange(16) * 3 + 1).view(2, 8).to(source)
    on_device = x.to("tpu")
    assert_same(on_device.view(target).clone(), x.view(target).clone())
    assert on_device.view(target).data_ptr() == on_device.data_ptr()


def test_writing_through_dtype_views():
    def run(x):
        bits = x.view(torch.int32)
        bits[1] |= -(2**31)  # the sign
        x[2] = 4.0
        bits.view(torch.uint8)[15] = 0xC0
        return x, bits

    for actual, expected in zip(run(torch.arange(1.0, 9.0, device="tpu")), run(torch.arange(1.0, 9.0)), strict=True):
        assert_same(actual, expected)


def test_complex_views():
    def run(x):
        torch.view_as_real(x)[:, 0] += 10
        x.real.mul_(2)
        x.imag[1:] = -1
        y = torch.view_as_complex(torch.view_as_real(x) + 1)
        return x, y, x.conj() * x, x.conj().imag + 0, x.mH if x.dim() > 1 else x.conj().clone(), x.real.sum()

    values = torch.tensor([1 + 2j, 3 - 4j, 0.5j])
    for actual, expected in zip(run(values.to("tpu")), run(values.clone()), strict=True):
        assert_same(actual.resolve_conj(), expected.resolve_conj())


def test_writing_through_conjugate():
    x = torch.tensor([1 + 2j, 3 - 4j], device="tpu")
    x.conj()[0] = 5 + 6j
    assert_values(x, [5 - 6j, 3 - 4j])
    z = torch.zeros(2, dtype=torch.complex64)
    z.copy_(x.conj())
    assert z.tolist() == [5 + 6j, 3 + 4j]


def test_set_and_data():
    x, y = torch.arange(4.0, device="tpu"), torch.arange(10.0, 18.0, device="tpu")
    x.set_(y)
    y.add_(1)
    assert_values(x, [float(i) for i in range(11, 19)])
    x.set_(y.untyped_storage(), 2, (2, 3), (3, 1))
    assert_values(x, [[13, 14, 15], [16, 17, 18]])
    assert x.is_set_to(y[2:].view(2, 3))
    x.set_()
    assert x.shape == (0,)
    z = torch.zeros(2, device="tpu")
    z.data = y[1:3]
    z.mul_(0)
    assert_values(y[:4], [11, 0, 0, 14])
    parameter = torch.nn.Parameter(torch.ones(2, device="tpu"))
    parameter.data.copy_(torch.tensor([3.0, 4.0]))
    assert parameter.tolist() == [3, 4]


@pytest.mark.parametrize("dtype", [torch.int16, torch.float64])
def test_slice_of_a_storage(dtype):
    x = torch.arange(6, dtype=dtype, device="tpu")
    size = x.element_size()
    part = x.untyped_storage()[2 * size : 5 * size]
    y = torch.empty(0, dtype=dtype, device="tpu").set_(part)
    assert_values(y, [2, 3, 4])
    assert part[0] == x.cpu().untyped_storage()[2 * size]
    y[1:] *= 10  # one memory
    assert_values(x, [0, 1, 2, 30, 40, 5])
    y.copy_(torch.tensor([7, 8, 9], dtype=dtype))
    assert_values(x, [0, 1, 7, 8, 9, 5])
    assert list(part.cpu()) == list(x.cpu().untyped_storage()[2 * size : 5 * size])
    assert_values(torch.empty(0, dtype=dtype, device="tpu").set_(x.untyped_storage()[6 * size :]), [])


def test_slice_of_a_storage_refuses():
    storage = torch.arange(6.0, device="tpu").untyped_storage()
    with pytest.raises(RuntimeError, match="byte 2"):
        torch.empty(0, device="tpu").set_(storage[2:10]).neg()
    with pytest.raises(RuntimeError, match="not resizable"):
        storage[:8].resize_(100)


def test_resize():
    x = torch.arange(6.0, device="tpu").view(2, 3)
    x.resize_(2, 2)
    assert_values(x, [[0, 1], [2, 3]])
    x.resize_(6)
    assert_values(x, [0, 1, 2, 3, 4, 5])
    x.resize_(3, 4)
    assert x.shape == (3, 4)
    assert_values(x.view(-1)[:6], [0, 1, 2, 3, 4, 5])
    x.fill_(2)
    assert_values(x, [[2] * 4] * 3)
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0
    x.untyped_storage().resize_(48)
    x.fill_(3)
    assert_values(x, [[3] * 4] * 3)


def test_out_resizes():
    out = torch.empty(0, device="tpu")
    torch.add(torch.ones(2, 3, device="tpu"), 1, out=out)
    assert_values(out, [[2] * 3] * 2)
    out = torch.empty(0, device="tpu")
    torch.mm(torch.ones(2, 3, device="tpu"), torch.ones(3, 2, device="tpu"), out=out)
    assert_values(out, [[3] * 2] * 2)
    values, indices = torch.empty(0, device="tpu"), torch.empty(0, dtype=torch.int64, device="tpu")
    torch.max(torch.tensor([[1.0, 5.0], [7.0, 2.0]], device="tpu"), 1, out=(values, indices))
    assert_values(values, [5, 7])
    assert_values(indices, [1, 0])


def test_channels_last():
    x = torch.randn(2, 3, 4, 5)
    last = x.to("tpu").to(memory_format=torch.channels_last)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert (last * 2).is_contiguous(memory_format=torch.channels_last)
    assert_same(last * 2, x * 2)
    assert_same(last.contiguous(), x)
    last[:, 1].zero_()
    x[:, 1].zero_()
    assert_same(last, x)


def test_strides_of_results_are_the_cpus():
    x = torch.randn(3, 4, 5).transpose(0, 2)
    d = x.to("tpu")
    for function in (
        lambda t: t + 1,
        lambda t: t.exp(),
        lambda t: t + t[:1],
        lambda t: torch.empty_like(t),
        lambda t: t.clone(),
        lambda t: t.contiguous(),
        lambda t: t.sum(1),
        lambda t: t.softmax(-1),
        lambda t: t.to(torch.float64),
        lambda t: torch.cat([t, t]),
        lambda t: t.flip(0),
        lambda t: t.cumsum(0),
        lambda t: t @ t.transpose(1, 2),
    ):
        assert function(d).stride() == function(x).stride()


def test_autograd_through_views_and_writes():
    def run(d):
        x = torch.arange(12.0, device=d).view(3, 4).requires_grad_()
        y = x * 2
        y[1:, ::2].mul_(3)
        y.t()[0] = x[:, 3] ** 2
        z = y.as_strided((2, 2), (4, 1), 1).sum() + y.diagonal().prod() + y.expand(2, 3, 4).sum()
        z.backward()
        return x.grad

    assert_same(run("tpu"), run("cpu"))


def test_expanded_operands_and_results():
    def run(d):
        x = torch.arange(3.0, device=d)
        e = x.expand(4, 3)
        y = e + torch.ones(4, 3, device=d)
        x.add_(1)
        return e.sum(0), y, e.t() @ e, e[1:, 1:].contiguous(), e.reshape(12)

    for actual, expected in zip(run("tpu"), run("cpu"), strict=True):
        assert_same(actual, expected)


def test_more_dimensions_than_a_program_has():
    """Elementwise operators, copies and fills work on tensors of up to 64 dimensions; others name the limit."""
    sizes = [1] * 18 + [2, 3]
    host = torch.arange(6.0).reshape(sizes)
    x = host.to("tpu")
    assert_same((x + 1).relu(), host + 1)
    assert_same(x + torch.ones(3, device="tpu"), host + 1)
    assert_same(x.permute(*reversed(range(20))).contiguous(), host.permute(*reversed(range(20))).contiguous())
    assert_same(torch.where(x > 2, x, -x), torch.where(host > 2, host, -host))
    assert_same(x.expand([4] + [1] * 17 + [2, 3]).clone(), host.expand([4] + [1] * 17 + [2, 3]).clone())
    y = x.clone()
    y.mul_(2)[..., 0].fill_(7)
    expected = host.clone()
    expected.mul_(2)[..., 0].fill_(7)
    assert_same(y, expected)
    assert torch.rand([1] * 64, device="tpu").dim() == 64
    with pytest.raises(RuntimeError, match=r"sum\.dim_IntList: tensors of more than 16 dimensions"):
        x.sum(0)
    with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
        torch.zeros([1] * 65, device="tpu").sum(0)


def test_reading_an_element_runs_no_program():
    """An element of a tensor that is there is read where it lies, however large the tensor is."""
    host = torch.arange(300_000, dtype=torch.float64).reshape(1000, 300)
    x = host.to("tpu")
    torch.tpu.synchronize()
    before = torch.tpu.counters()["programs_run"]
    assert x[999, 299].item() == 299_999 and x.t()[7, 3] == host[3, 7] and x[-1][-2:].tolist() == [299_998, 299_999]
    assert float(x.view(torch.int64)[0, 1].item()) == float(host.view(torch.int64)[0, 1].item())
    assert torch.tpu.counters()["programs_run"] <= before + 2  # the comparison and the slice of two
    grown = torch.zeros(2, device="tpu").resize_(100_000)
    assert grown[99_999].item() == 0
