"""Tiny models with random weights from unmodified Transformers, and inputs for them."""

import dataclasses
from collections.abc import Callable

import transformers
from transformers.utils import logging

import torch

logging.set_verbosity_error()

VOCABULARY = 64


def tokens(batch: int = 2, length: int = 7) -> torch.Tensor:
    """Token ids without the special ones."""
    return torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(0))


def text(batch: int = 2, length: int = 7) -> dict[str, torch.Tensor]:
    """A batch for a causal language model, its second row padded on the left."""
    ids = tokens(batch, length)
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def images(classes: int, size: int = 16) -> dict[str, torch.Tensor]:
    """Two images with labels."""
    generator = torch.Generator().manual_seed(0)
    return {
        "pixel_values": torch.randn(2, 3, size, size, generator=generator),
        "labels": torch.randint(classes, (2,), generator=generator),
    }


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config)


def decoder_sizes() -> dict:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**decoder_sizes()))


def qwen3():
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**decoder_sizes(), head_dim=8, tie_word_embeddings=True)
    )


def bert():
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        num_labels=3,
    )
    return transformers.BertForSequenceClassification(config)


def bert_inputs() -> dict[str, torch.Tensor]:
    return {**text(), "labels": torch.tensor([0, 2]), "token_type_ids": torch.zeros(2, 7, dtype=torch.int64)}


def t5():
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    return transformers.T5ForConditionalGeneration(config)


def t5_inputs() -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(), "attention_mask": torch.ones(2, 7, dtype=torch.int64), "labels": tokens(2, 5)}


def vit():
    config = transformers.ViTConfig(
        image_size=16,
        patch_size=4,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        num_labels=5,
    )
    return transformers.ViTForImageClassification(config)


def resnet():
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="bottleneck", num_labels=5
    )
    return transformers.ResNetForImageClassification(config)


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        d_model=32,
        max_source_positions=20,
        max_target_positions=32,
        decoder_start_token_id=1,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return transformers.WhisperForConditionalGeneration(config)


def whisper_inputs() -> dict[str, torch.Tensor]:
    features = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(0))
    return {"input_features": features, "labels": tokens(2, 5)}


@dataclasses.dataclass
class Model:
    """How to make a model, its inputs for a loss, and which of them it generates from."""

    make: Callable[[], torch.nn.Module]
    inputs: Callable[[], dict[str, torch.Tensor]]
    prompt: tuple[str, ...] = ()
    options: dict = dataclasses.field(default_factory=dict)


MODELS = {
    "gpt2": Model(gpt2, text, ("input_ids", "attention_mask"), {"pad_token_id": 0}),
    "llama": Model(llama, text, ("input_ids", "attention_mask")),
    "qwen3": Model(qwen3, text, ("input_ids", "attention_mask")),
    "bert": Model(bert, bert_inputs),
    "t5": Model(t5, t5_inputs, ("input_ids", "attention_mask")),
    "vit": Model(vit, lambda: images(5)),
    "resnet": Model(resnet, lambda: images(5)),
    "whisper": Model(whisper, whisper_inputs, ("input_features",)),
}


def make(name: str) -> torch.nn.Module:
    """The model on the CPU, always with the same weights, large enough that its tokens differ clearly."""
    torch.manual_seed(0)
    model = MODELS[name].make()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    return model.eval()
