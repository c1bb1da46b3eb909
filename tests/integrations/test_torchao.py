"""torchao's weight-only quantizations on tpu, against the same on the CPU; bitsandbytes where it is installed."""

import pytest
from tiny_models import tiny_llama, tokens

import torch

quantization = pytest.importorskip("torchao.quantization")

pytestmark = pytest.mark.usefixtures("no_fallback")

METHODS = {
    "int8": quantization.Int8WeightOnlyConfig(),
    "int8 activations too": quantization.Int8DynamicActivationInt8WeightConfig(),
    "int4": quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=quantization.PerGroup(32)),
    "float8": quantization.Float8WeightOnlyConfig(),
}


def model(dtype):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32)).to(dtype).eval()


@pytest.mark.parametrize("first", ["moved", "quantized"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_quantized_as_on_the_cpu(method, dtype, first):
    x = torch.randn(4, 64, dtype=dtype)
    exact = model(dtype)(x)
    on_cpu = model(dtype)
    quantization.quantize_(on_cpu, METHODS[method])
    expected = on_cpu(x)
    assert 0 < (expected - exact).abs().max() < 0.2  # it is quantized, and not nonsense
    on_tpu = model(dtype)
    if first == "moved":
        on_tpu.to("tpu")
        quantization.quantize_(on_tpu, METHODS[method])
    else:
        quantization.quantize_(on_tpu, METHODS[method])
        on_tpu.to("tpu")
    assert on_tpu[0].weight.device.type == "tpu" and type(on_tpu[0].weight) is type(on_cpu[0].weight)
    result = on_tpu(x.to("tpu"))
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(torch.compile(on_tpu)(x.to("tpu")), result)


@pytest.mark.parametrize("method", ["int8", "int4", "float8"])
@torch.no_grad()
def test_transformers_model_quantized_as_it_is_loaded(method, tmp_path):
    transformers = pytest.importorskip("transformers")
    tiny_llama(hidden_size=64).save_pretrained(tmp_path / "model")
    logits = []
    for device in ("cpu", "tpu"):
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "model",
            dtype=torch.bfloat16,
            device_map=device,
            quantization_config=transformers.TorchAoConfig(METHODS[method]),
        )
        logits.append(loaded(tokens().to(device)).logits.cpu())
    torch.testing.assert_close(logits[1], logits[0], atol=1e-2, rtol=1e-2)
    loaded.save_pretrained(tmp_path / "quantized")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "quantized", device_map="tpu")
    assert torch.equal(again(tokens().to("tpu")).logits.cpu(), logits[1])


@pytest.mark.parametrize("bits", [8, 4])
@torch.no_grad()
def test_bitsandbytes(bits, tmp_path):
    """Its linear layers run on any device; its optimizers, kernels of their own, refuse tpu by name."""
    bitsandbytes = pytest.importorskip("bitsandbytes")
    transformers = pytest.importorskip("transformers")
    tiny_llama(hidden_size=64).save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path,
        dtype=torch.bfloat16,
        device_map="tpu",
        quantization_config=transformers.BitsAndBytesConfig(**{f"load_in_{bits}bit": True}),
    )
    assert "bitsandbytes" in type(loaded.model.layers[0].mlp.up_proj).__module__
    exact = tiny_llama(hidden_size=64)(tokens()).logits
    torch.testing.assert_close(loaded(tokens().to("tpu")).logits.float().cpu(), exact, atol=0.15, rtol=0.1)
    weight = torch.nn.Parameter(torch.ones(8192, device="tpu"))
    weight.grad = torch.ones_like(weight)
    with pytest.raises(NotImplementedError, match=r"optimizer_update_8bit_blockwise.* not implemented for the tpu"):
        bitsandbytes.optim.Adam8bit([weight]).step()
