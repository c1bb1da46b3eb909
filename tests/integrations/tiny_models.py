"""Models, a tokenizer and texts small enough to train in a test, made from nothing but their configurations."""

import torch

WORDS = "the quick brown fox jumps over the lazy dog hello world said a tpu".split()
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]


def tiny_llama(**changes):
    """A Llama of two layers and tied weights, the same one each time."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "vocab_size": len(SPECIAL) + len(WORDS),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
    }
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **changes})).eval()


def tiny_tokenizer():
    """One token a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: index for index, word in enumerate([*SPECIAL, *dict.fromkeys(WORDS)])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )


def tokens(rows: int = 2, length: int = 10) -> torch.Tensor:
    """Some tokens, the same ones each time, on the CPU."""
    return torch.randint(4, 16, (rows, length), generator=torch.Generator().manual_seed(1))


def train(model, steps: int = 3) -> list[float]:
    """The losses of some steps of AdamW on `tokens`."""
    inputs = tokens().to(model.device)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=inputs, labels=inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def devices(model) -> set[str]:
    """Where its parameters are."""
    return {parameter.device.type for parameter in model.parameters()}
