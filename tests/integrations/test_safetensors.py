"""safetensors with device="tpu": reading whole files and slices, writing, tied weights."""

import pytest
from support import assert_same, in_fresh_python
from tiny_models import tiny_llama, tokens

import torch

safetensors = pytest.importorskip("safetensors")
from safetensors.torch import load, load_file, load_model, save, save_file, save_model  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_fallback")

TENSORS = {
    "matrix": torch.arange(6.0).view(2, 3),
    "number": torch.tensor(5),
    "none": torch.zeros(0, 3),
    "bf16": torch.randn(4, dtype=torch.bfloat16),
    "fp8": torch.randn(4).to(torch.float8_e4m3fn),
    "bool": torch.tensor([True, False]),
}


@pytest.fixture
def path(tmp_path):
    """A file with `TENSORS`, written from tpu."""
    path = tmp_path / "tensors.safetensors"
    save_file({name: tensor.to("tpu") for name, tensor in TENSORS.items()}, path)
    return path


@pytest.mark.parametrize("device", ["tpu", "tpu:0", 0, torch.device("tpu"), torch.device("tpu", 0)])
def test_load_file(path, device):
    loaded = load_file(path, device=device)
    assert loaded.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert loaded[name].dtype == tensor.dtype
        assert_same(loaded[name].float(), tensor.float())


def test_file_is_the_one_that_the_cpu_writes(path, tmp_path):
    save_file(TENSORS, tmp_path / "cpu.safetensors")
    assert path.read_bytes() == (tmp_path / "cpu.safetensors").read_bytes()
    assert save({name: tensor.to("tpu") for name, tensor in TENSORS.items()}) == save(TENSORS)
    assert torch.equal(load(path.read_bytes())["matrix"], TENSORS["matrix"])


def test_slices(path):
    with safetensors.safe_open(path, "pt", device="tpu") as file:
        assert isinstance(file, safetensors.safe_open)
        assert set(file.keys()) == TENSORS.keys()
        assert_same(file.get_slice("matrix")[:, 1:], TENSORS["matrix"][:, 1:])
        assert_same(file.get_tensor("bf16"), TENSORS["bf16"])


def test_other_devices_as_ever(path):
    assert load_file(path)["matrix"].device.type == "cpu"
    with safetensors.safe_open(path, framework="pt", device="cpu", backend="pread") as file:
        assert file.get_tensor("matrix").device.type == "cpu"
    with pytest.raises(safetensors.SafetensorError, match="device nowhere is invalid"):
        load_file(path, device="nowhere")
    with pytest.raises(FileNotFoundError):
        load_file(path.with_name("missing"), device="tpu")


def test_shared_memory_is_refused_as_on_the_cpu(tmp_path):
    x = torch.ones(2, 2, device="tpu")
    with pytest.raises(RuntimeError, match="share memory"):
        save_file({"all": x, "row": x[0]}, tmp_path / "shared.safetensors")


def test_tied_weights(tmp_path):
    model, path = tiny_llama().to("tpu"), tmp_path / "model.safetensors"
    save_model(model, path)
    assert "lm_head.weight" not in load_file(path) or "model.embed_tokens.weight" not in load_file(path)
    loaded = tiny_llama(initializer_range=0.5).to("tpu")
    load_model(loaded, path, device="tpu")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    x = tokens().to("tpu")
    assert torch.equal(loaded(x).logits, model(x).logits)


def test_save_pretrained_from_tpu(tmp_path):
    model = tiny_llama().to("tpu")
    model.save_pretrained(tmp_path)
    for name, tensor in type(model).from_pretrained(tmp_path).state_dict().items():
        assert tensor.device.type == "cpu" and torch.equal(tensor, model.state_dict()[name].cpu())


def test_device_of_several(path):
    code = f"""
import torch
from safetensors.torch import load_file
devices = [load_file({str(path)!r}, device=d)["matrix"].device for d in ("tpu:1", 1, "tpu")]
torch.tpu.set_device(1)
print(*devices, load_file({str(path)!r}, device="tpu")["matrix"].device)
"""
    devices = in_fresh_python(code, TTPU_TOPOLOGY="v5e:2x2").stdout.split()
    assert devices == ["tpu:1", "tpu:1", "tpu:0", "tpu:1"]
