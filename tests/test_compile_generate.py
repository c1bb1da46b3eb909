"""Transformers' generate with a static key-value cache and a compiled forward pass, as its documentation writes it."""

import pytest

import torch

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=101,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("how", ["forward", "automatic"])
def test_static_cache(model, how, no_fallback):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # which a reset leaves
    prompts = [torch.randint(2, 101, (2, length)) for length in (5, 9)]
    model.to("cpu")
    expected = [model.generate(p, max_new_tokens=12, do_sample=False) for p in prompts]
    model.to("tpu")
    eager = model.forward
    if how == "forward":
        model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
    try:
        for prompt, tokens in zip(prompts, expected, strict=True):
            inputs = prompt.to("tpu")
            mask = torch.ones_like(inputs)
            for _ in range(2):
                actual = model.generate(
                    inputs, attention_mask=mask, max_new_tokens=12, do_sample=False, cache_implementation="static"
                )
                assert torch.equal(actual.cpu(), tokens)
    finally:
        model.forward = eager
    if how == "forward":
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
