"""torch.save and torch.load, in both directions and where the backend is not installed; pickle, copies, DLPack."""

import copy
import io
import pickle

import pytest
from support import assert_same, assert_values, in_fresh_python

import torch
from torch import nn


def through_file(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


def test_save_and_load():
    x = torch.arange(6.0, device="tpu").view(2, 3)
    assert_values(through_file(x), [[0, 1, 2], [3, 4, 5]])
    assert_values(through_file(x, weights_only=False), [[0, 1, 2], [3, 4, 5]])


def test_map_location():
    x = torch.randn(3, device="tpu")
    assert through_file(x, map_location="cpu").device.type == "cpu"
    assert torch.equal(through_file(x, map_location=torch.device("cpu")), x.cpu())
    assert_same(through_file(x.cpu(), map_location="tpu"), x)
    assert_same(through_file(x.cpu(), map_location={"cpu": "tpu:0"}), x)
    assert_same(through_file(x.cpu(), map_location=lambda storage, _: storage.to(device="tpu")), x)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.bfloat16, torch.float64, torch.complex64, torch.complex32], ids=str
)
def test_dtypes(dtype):
    x = torch.tensor([0.0, 1.0, 2.0]).to(dtype)
    assert_same(through_file(x.to("tpu")), x)


def test_views_stay_views():
    base = torch.arange(10.0, device="tpu")
    loaded_base, loaded_view = through_file([base, base[2:8:2]])
    assert loaded_view.stride() == (2,) and loaded_view.storage_offset() == 2
    loaded_base.add_(1)
    assert_values(loaded_view, [3, 5, 7])


def test_module_and_optimizer_state():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3, device="tpu")).sum().backward()
    optimizer.step()
    saved = through_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to("tpu")
    other.load_state_dict(saved["model"])
    other_optimizer = torch.optim.AdamW(other.parameters())
    other_optimizer.load_state_dict(saved["optimizer"])
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(optimizer.state.values(), other_optimizer.state.values(), strict=True):
        assert_same(b["exp_avg"], a["exp_avg"])


def test_parameter_and_requires_grad():
    parameter = through_file(nn.Parameter(torch.ones(2, device="tpu")))
    assert isinstance(parameter, nn.Parameter) and parameter.requires_grad and parameter.is_tpu


def test_pickle_and_deepcopy():
    x = torch.randn(2, 3, device="tpu").t()
    assert_same(pickle.loads(pickle.dumps(x)), x)
    twin = copy.deepcopy(x)
    twin.add_(1)
    assert_same(twin, x + 1)


def test_file_of_tpu_loads_without_the_backend(tmp_path):
    """In a process that never imports the backend a tpu file loads with map_location="cpu"."""
    path = tmp_path / "model.pt"
    torch.save({"w": torch.arange(4.0, device="tpu"), "v": torch.ones(2, dtype=torch.bfloat16, device="tpu")}, path)
    code = f"""
import sys, torch
state = torch.load({str(path)!r}, map_location="cpu")
assert "torch_tpu" not in sys.modules
print(state["w"].tolist(), state["v"].tolist(), state["v"].dtype)
"""
    out = in_fresh_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout
    assert out.strip() == "[0.0, 1.0, 2.0, 3.0] [1.0, 1.0] torch.bfloat16"


def test_file_written_without_the_backend_loads_on_tpu(tmp_path):
    path = tmp_path / "model.pt"
    code = f"import torch; torch.save(torch.arange(4.0), {str(path)!r})"
    in_fresh_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert_values(torch.load(path, map_location="tpu"), [0, 1, 2, 3])


def test_safetensors(tmp_path):
    from safetensors.torch import load_file, save_file

    path = tmp_path / "model.safetensors"
    tensors = {"a": torch.randn(2, 3, device="tpu"), "b": torch.ones(4, dtype=torch.bfloat16, device="tpu")}
    save_file(tensors, path)
    for name, tensor in load_file(path, device="cpu").items():
        assert torch.equal(tensor, tensors[name].cpu())


def test_mmap_load(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(torch.arange(4.0), path)
    assert_values(torch.load(path, map_location="tpu", mmap=True), [0, 1, 2, 3])


def test_storage_moves():
    storage = torch.arange(4.0, device="tpu").untyped_storage()
    assert storage.device == torch.device("tpu:0")
    assert bytes(storage.cpu()) == bytes(torch.arange(4.0).untyped_storage())
