"""Devices: their names, their count, properties, and moving tensors to them."""

import copy

import pytest
from support import assert_same, assert_values

import torch
from torch import nn


def test_module_and_accelerator_agree():
    assert torch.tpu.is_available() and torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator().type == "tpu"
    assert torch.accelerator.device_count() == torch.tpu.device_count() == 1
    assert torch.accelerator.current_device_index() == torch.tpu.current_device() == 0


def test_device_names():
    assert torch.device("tpu", 0) == torch.device("tpu:0")
    assert torch.zeros(2, device="tpu").device == torch.device("tpu:0")
    assert torch.zeros(2, device=torch.device("tpu")).device == torch.device("tpu:0")
    assert torch.zeros(2, device="tpu").is_tpu and not torch.zeros(2).is_tpu


@pytest.mark.parametrize(
    "move",
    [
        lambda t: t.to("tpu"),
        lambda t: t.to("tpu:0"),
        lambda t: t.tpu(),
        lambda t: t.to(torch.zeros(1, device="tpu")),
        lambda t: torch.tensor(t.tolist(), device="tpu"),
        lambda t: torch.empty_like(t, device="tpu").copy_(t),
    ],
)
def test_moving(move):
    x = torch.arange(6.0).view(2, 3)
    assert_same(move(x), x)


def test_move_with_dtype():
    x = torch.tensor([1.5, -2.5, 300.0])
    assert_same(x.to("tpu", torch.float16), x.half())
    assert_same(x.to("tpu", torch.int64), x.long())
    assert torch.equal(x.to("tpu").to("cpu", torch.float64), x.double())


def test_default_device():
    with torch.device("tpu"):
        assert torch.ones(2).device.type == "tpu"
        assert torch.arange(3).device.type == "tpu"
        assert nn.Linear(2, 2).weight.device.type == "tpu"
    assert torch.ones(2).device.type == "cpu"


def test_device_context():
    with torch.tpu.device(0) as _, torch.tpu.device(None), torch.tpu.device(-1):
        assert torch.tpu.current_device() == 0
    with torch.tpu.device_of(torch.zeros(1)), torch.accelerator.device_index(0):
        assert torch.zeros(1, device="tpu").get_device() == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.zeros(1, device="tpu:7"),
        lambda: torch.tpu.set_device(7),
        lambda: torch.tpu.get_device_properties(7),
        lambda: torch.zeros(1).to("tpu:7"),
    ],
)
def test_missing_device(use):
    with pytest.raises(RuntimeError, match="invalid device ordinal tpu:7"):
        use()
    assert_values(torch.ones(2, device="tpu"), [1, 1])


def test_properties():
    properties = torch.tpu.get_device_properties()
    assert properties.name == torch.tpu.get_device_name() and "TPU" in properties.name
    assert properties.total_memory > 1 << 30
    assert len(properties.coords) == 3
    assert torch.tpu.is_bf16_supported()


def test_module_moves_and_copies():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
    moved = copy.deepcopy(model).to("tpu")
    assert {p.device.type for p in [*moved.parameters(), *moved.buffers()]} == {"tpu"}
    again = copy.deepcopy(moved)
    x = torch.randn(5, 3)
    model.eval(), moved.eval(), again.eval()
    assert_same(moved(x.to("tpu")), model(x))
    assert_same(again(x.to("tpu")), model(x))
    assert torch.equal(moved.cpu()(x), model(x))


def test_meta_then_empty():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    model = model.to_empty(device="tpu")
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    assert_values(model(torch.ones(1, 3, device="tpu")), [[3, 3]])


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    ],
    ids=str,
)
def test_round_trip_of_every_dtype(dtype):
    values = torch.tensor([0.0, 1.0, 2.0, 5.0, 100.0]).to(dtype)
    back = values.to("tpu").cpu()
    assert back.dtype == dtype
    assert torch.equal(back.view(torch.uint8), values.view(torch.uint8))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 4, 5, 6)], ids=str)
def test_round_trip_of_shapes(shape):
    x = torch.randn(shape)
    assert torch.equal(x.to("tpu").cpu(), x)
    assert x.to("tpu").stride() == x.stride()


def test_round_trip_of_strides():
    x = torch.randn(4, 6, 5)
    for view in (x.t() if x.dim() == 2 else x.transpose(0, 2), x[1:3, ::2], x[:, 3], x.expand(2, 4, 6, 5)):
        assert torch.equal(view.to("tpu").cpu(), view)
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert image.to("tpu").is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(image.to("tpu").cpu(), image)


def test_printing_and_numbers():
    x = torch.tensor([1.0, 2.0], device="tpu")
    assert repr(x) == "tensor([1., 2.], device='tpu:0')"
    assert float(x[1]) == 2.0 and int(x[0]) == 1 and bool(x[0] == 1) and x.tolist() == [1.0, 2.0]
    assert x.cpu().numpy().tolist() == [1.0, 2.0]
    assert "x".join(str(v) for v in x) == "tensor(1., device='tpu:0')xtensor(2., device='tpu:0')"


def test_numpy_of_device_tensor_raises():
    with pytest.raises(TypeError, match="cpu"):
        torch.ones(2, device="tpu").numpy()


def test_many_dtypes_print():
    for dtype in (torch.bool, torch.int64, torch.bfloat16, torch.complex64):
        assert "device='tpu:0'" in repr(torch.ones(2, dtype=dtype, device="tpu"))
