"""Tiny models of eight families from unmodified Transformers: forward, backward, a step, generation; beside the CPU."""

import copy
import warnings

import pytest
from models import MODELS, make
from support import assert_same

import torch

GENERATING = [name for name, model in MODELS.items() if model.prompt]


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


def both(name: str) -> tuple[torch.nn.Module, torch.nn.Module, dict, dict]:
    """The model and its inputs on the CPU and on tpu."""
    model, inputs = make(name), MODELS[name].inputs()
    return model, copy.deepcopy(model).to("tpu"), inputs, {key: value.to("tpu") for key, value in inputs.items()}


def test_forward(name, no_fallback):
    cpu, tpu, inputs, on_device = both(name)
    with torch.no_grad():
        expected, actual = cpu(**inputs), tpu(**on_device)
    assert_same(actual.logits, expected.logits, rtol=1e-4, atol=1e-4)
    assert_same(actual.loss, expected.loss, rtol=1e-5, atol=1e-5)


def test_training_step(name, no_fallback):
    """Loss, every gradient, and every parameter after a step of AdamW."""
    cpu, tpu, inputs, on_device = both(name)
    for model, batch in ((cpu, inputs), (tpu, on_device)):
        model.train()
        for module in model.modules():  # the devices drop different elements
            for rate in ("p", "dropout", "attention_dropout", "activation_dropout"):
                if isinstance(getattr(module, rate, None), float):
                    setattr(module, rate, 0.0)
        model(**batch).loss.backward()
    gradients = {key: parameter.grad for key, parameter in tpu.named_parameters()}
    for key, parameter in cpu.named_parameters():
        if parameter.grad is None:
            assert gradients[key] is None
        else:
            scale = parameter.grad.abs().max().item()
            assert_same(gradients[key], parameter.grad, rtol=1e-3, atol=1e-4 * scale + 1e-7)
    for model in (cpu, tpu):
        torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-3).step()
    after = dict(tpu.named_parameters())
    for key, parameter in cpu.named_parameters():
        assert_same(after[key], parameter, rtol=1e-4, atol=1e-5)
    buffers = dict(tpu.named_buffers())
    for key, buffer in cpu.named_buffers():
        assert_same(buffers[key], buffer, rtol=1e-4, atol=1e-5)


def test_training_with_dropout(name, no_fallback):
    """Four steps with dropout as configured: finite, and the loss goes down on the one batch."""
    _, tpu, _, on_device = both(name)
    tpu.train()
    optimizer = torch.optim.AdamW(tpu.parameters(), lr=3e-3)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = tpu(**on_device).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(loss == loss for loss in losses) and losses[-1] < losses[0]


@pytest.mark.parametrize("name", GENERATING)
@pytest.mark.parametrize("cache", ["growing", "static"])
def test_greedy_tokens(name, cache, no_fallback):
    cpu, tpu, inputs, on_device = both(name)
    spec = MODELS[name]
    options = {"max_new_tokens": 12, "do_sample": False, "min_new_tokens": 12, **spec.options}
    if cache == "static":
        if name in ("t5", "whisper", "gpt2"):
            options["use_cache"] = False  # these have no static cache here: without any, every step is a longer forward
        else:
            options["cache_implementation"] = "static"
            options["disable_compile"] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = cpu.generate(**{key: inputs[key] for key in spec.prompt}, **options)
        actual = tpu.generate(**{key: on_device[key] for key in spec.prompt}, **options)
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize(
    "options",
    [{"do_sample": True, "top_k": 8}, {"do_sample": True, "top_p": 0.9, "temperature": 0.7}, {"num_beams": 3}],
    ids=str,
)
def test_other_generation(name, options, no_fallback):
    """Sampling repeats with its seed; beams equal the CPU's."""
    cpu, tpu, inputs, on_device = both(name)
    keep = {"input_ids", "attention_mask"}
    options = {"max_new_tokens": 8, "pad_token_id": 0, **options}
    results = []
    for _ in range(2):
        torch.manual_seed(1)
        results.append(tpu.generate(**{key: on_device[key] for key in keep}, **options))
    assert torch.equal(*results)
    if "num_beams" in options:
        assert torch.equal(results[0].cpu(), cpu.generate(**{key: inputs[key] for key in keep}, **options))


@pytest.mark.parametrize("name", ["gpt2", "llama", "vit"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(name, dtype, no_fallback):
    cpu, tpu, inputs, on_device = both(name)
    tpu = tpu.to(dtype)
    on_device = {key: value.to(dtype) if value.is_floating_point() else value for key, value in on_device.items()}
    with torch.no_grad():
        expected = cpu(**inputs).logits
    out = tpu(**on_device)
    out.loss.backward()
    difference = (out.logits.float().cpu() - expected).abs().max() / expected.abs().max()
    assert difference < 0.06
    assert all(parameter.grad.isfinite().all().item() for parameter in tpu.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_implementations(attention, no_fallback):
    cpu, tpu, inputs, on_device = both("llama")
    for model in (cpu, tpu):
        model.set_attn_implementation(attention)
    with torch.no_grad():
        assert_same(tpu(**on_device).logits, cpu(**inputs).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2], ids=["", "grouped"])
@pytest.mark.parametrize("masked", ["least", "infinity", "none"])
def test_gradients_of_masked_rows(groups, masked):
    """A query that sees no key, masked as Transformers masks padding: all probabilities are equal, backward too."""
    value = {"least": torch.finfo(torch.float32).min, "infinity": float("-inf"), "none": 0.0}[masked]
    bias = torch.randn(2, 4, 5, 5)
    mask = torch.zeros(5, 5)
    mask[:2, : 5 if masked == "least" else 3] = value
    query, key, content, weight = (torch.randn(2, heads, 5, 8) for heads in (4, 4 // groups, 4 // groups, 4))
    results = []
    for device in ("cpu", "tpu"):
        operands = [tensor.to(device).detach().requires_grad_() for tensor in (query, key, content, bias)]
        out = torch.nn.functional.scaled_dot_product_attention(
            *operands[:3], attn_mask=operands[3] + mask.to(device), enable_gqa=groups > 1
        )
        (out * weight.to(device)).sum().backward()
        results.append([out, *(operand.grad for operand in operands)])
    for expected, actual in zip(*results, strict=True):
        assert_same(actual, expected, rtol=1e-4, atol=1e-5)
