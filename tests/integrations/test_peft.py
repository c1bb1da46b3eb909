"""PEFT on tpu: adapters train with the CPU's losses, are saved, loaded and merged."""

import copy

import pytest
from tiny_models import devices, tiny_llama, tokens, train

import torch

peft = pytest.importorskip("peft")

pytestmark = pytest.mark.usefixtures("no_fallback")

LANGUAGE = {"task_type": "CAUSAL_LM"}
PARTS = {**LANGUAGE, "target_modules": ["q_proj", "v_proj"]}
METHODS = {
    "lora": peft.LoraConfig(r=4, **PARTS),
    "dora": peft.LoraConfig(r=4, use_dora=True, **PARTS),
    "lora with embeddings": peft.LoraConfig(r=4, task_type="CAUSAL_LM", target_modules=["q_proj", "embed_tokens"]),
    "ia3": peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], **LANGUAGE),
    "adalora": peft.AdaLoraConfig(init_r=6, target_r=3, total_step=50, tinit=2, tfinal=5, **PARTS),
    "vera": peft.VeraConfig(r=4, **PARTS),
    "oft": peft.OFTConfig(r=4, oft_block_size=0, **PARTS),
    "prompt tuning": peft.PromptTuningConfig(num_virtual_tokens=4, **LANGUAGE),
    "prefix tuning": peft.PrefixTuningConfig(num_virtual_tokens=4, **LANGUAGE),
    "p-tuning": peft.PromptEncoderConfig(num_virtual_tokens=4, encoder_hidden_size=16, **LANGUAGE),
}
PROMPTS = ("prompt tuning", "prefix tuning", "p-tuning")  # they change no weights, so there is nothing to merge


def adapted(method: str):
    """A model with the adapter, on the CPU, the same one each time."""
    model = tiny_llama()
    torch.manual_seed(1)
    return peft.get_peft_model(model, copy.deepcopy(METHODS[method]))


@pytest.mark.parametrize("method", METHODS)
def test_trains_saves_loads_and_merges(method, tmp_path):
    expected = train(adapted(method))
    model = adapted(method).to("tpu")
    assert train(model) == pytest.approx(expected, abs=1e-5)
    model.eval().save_pretrained(tmp_path)
    x = tokens().to("tpu")
    logits = model(input_ids=x).logits
    loaded = peft.PeftModel.from_pretrained(tiny_llama().to("tpu"), tmp_path).eval()
    assert devices(loaded) == {"tpu"}
    torch.testing.assert_close(loaded(input_ids=x).logits, logits, atol=1e-5, rtol=1e-5)
    if method not in PROMPTS and method != "lora with embeddings":  # whose embeddings are tied to the head
        merged = model.merge_and_unload()
        torch.testing.assert_close(merged(input_ids=x).logits, logits, atol=1e-5, rtol=1e-5)


def test_made_on_tpu():
    model = peft.get_peft_model(tiny_llama().to("tpu"), copy.deepcopy(METHODS["lora"]))
    assert devices(model) == {"tpu"}
    losses = train(model, 5)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("method", ["lora", "lora with embeddings"])
def test_loaded_without_a_copy_on_the_cpu(method, tmp_path):
    adapted(method).save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(tiny_llama().to("tpu"), tmp_path, low_cpu_mem_usage=True)
    assert devices(loaded) == {"tpu"}


def test_several_adapters(tmp_path):
    adapted("lora").save_pretrained(tmp_path)
    model = peft.PeftModel.from_pretrained(tiny_llama().to("tpu"), tmp_path, adapter_name="first")
    model.load_adapter(tmp_path, adapter_name="second")
    model.add_weighted_adapter(["first", "second"], [0.5, 0.5], "both", combination_type="linear")
    model.set_adapter("both")
    x = tokens().to("tpu")
    with model.disable_adapter():
        torch.testing.assert_close(model(input_ids=x).logits, tiny_llama().to("tpu")(x).logits)
    assert model.generate(input_ids=x, max_new_tokens=3, do_sample=False).shape == (2, 13)


def test_device_is_inferred():
    from peft.utils import infer_device

    assert infer_device() == "tpu"


def test_model_on_the_cpu_stays_there(tmp_path):
    adapted("lora").save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(tiny_llama(), tmp_path)
    assert devices(loaded) == {"cpu"}
    assert train(peft.get_peft_model(tiny_llama(), copy.deepcopy(METHODS["lora"])))
