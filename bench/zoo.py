"""Whole models, eager, forward and a training step, in f32 and bf16: the speed over that of CPU eager.

Random weights at the sizes of the published small variants (fewer layers where they only repeat), no settings on
either side, both in turns in one process. `python bench/zoo.py` measures everything, `python bench/zoo.py gpt2 resnet
--dtype f32` some of it, `--quick` fewer rounds, `--profile SECONDS` runs the parts on tpu alone, for a profiler.
`--beside eager` compares compiled with eager, both on tpu, `--beside threads` all threads with one. On a machine where
others work too, `--threads 1` is to be trusted more: with one thread on each side it counts processor time instead of
the clock's.
"""

import argparse
import copy
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import transformers
from threads import use_threads
from torch.nn import functional

import torch
import torch_tpu
from torch import nn

Batch = dict[str, torch.Tensor]
Made = tuple[nn.Module, Batch]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def tokens(batch: int, length: int, vocabulary: int = 1000) -> torch.Tensor:
    return torch.randint(5, vocabulary, (batch, length))


def gpt2(batch: int = 1, length: int = 128) -> Made:
    """GPT-2 124M."""
    config = transformers.GPT2Config(use_cache=False)
    ids = tokens(batch, length)
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


def llama() -> Made:
    """A Llama of 512 features, grouped queries, six layers."""
    config = transformers.LlamaConfig(
        vocab_size=8192,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=2,
        use_cache=False,
    )
    ids = tokens(2, 256)
    return transformers.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}


def bert() -> Made:
    """BERT base, six of its layers, with padding."""
    config = transformers.BertConfig(num_hidden_layers=6)
    ids = tokens(4, 128)
    mask = torch.ones_like(ids)
    mask[1:, 100:] = 0
    return transformers.BertForMaskedLM(config), {"input_ids": ids, "attention_mask": mask, "labels": ids}


def vit() -> Made:
    """ViT-B/16, six of its layers."""
    config = transformers.ViTConfig(num_hidden_layers=6, num_labels=1000)
    pixels = torch.randn(2, 3, 224, 224)
    return transformers.ViTForImageClassification(config), {"pixel_values": pixels, "labels": torch.tensor([3, 4])}


def resnet() -> Made:
    """ResNet-50."""
    config = transformers.ResNetConfig(num_labels=1000)
    pixels = torch.randn(4, 3, 224, 224)
    return transformers.ResNetForImageClassification(config), {"pixel_values": pixels, "labels": torch.arange(4)}


def whisper() -> Made:
    """Whisper tiny: 30 seconds of sound, 32 tokens."""
    config = transformers.WhisperConfig(use_cache=False)
    config.num_mel_bins = 80
    ids = tokens(1, 32)
    return transformers.WhisperForConditionalGeneration(config), {
        "input_features": torch.randn(1, 80, 3000),
        "labels": ids,
    }


def t5() -> Made:
    """T5 small."""
    config = transformers.T5Config(use_cache=False, decoder_start_token_id=0)
    return transformers.T5ForConditionalGeneration(config), {"input_ids": tokens(4, 128), "labels": tokens(4, 64)}


def mamba() -> Made:
    """Mamba, four layers of the 130M model; the scan is the loop over time that runs without CUDA kernels."""
    config = transformers.MambaConfig(num_hidden_layers=4, vocab_size=8192, use_cache=False)
    ids = tokens(1, 64)
    return transformers.MambaForCausalLM(config), {"input_ids": ids, "labels": ids}


def mixtral() -> Made:
    """A mixture of eight experts, two of them for each token."""
    config = transformers.MixtralConfig(
        vocab_size=8192,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        num_local_experts=8,
        use_cache=False,
    )
    ids = tokens(2, 128)
    return transformers.MixtralForCausalLM(config), {"input_ids": ids, "labels": ids}


class Residual(nn.Module):
    """GroupNorm, SiLU, convolution, twice, with a time embedding between."""

    def __init__(self, before: int, after: int, time_features: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, before), nn.GroupNorm(32, after)
        self.conv1, self.conv2 = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(time_features, after)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor, when: torch.Tensor) -> torch.Tensor:
        h = self.conv1(functional.silu(self.norm1(x))) + self.time(functional.silu(when))[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(h)))


class SelfAttention(nn.Module):
    """Attention over the places of an image."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(32, features), features // 64
        self.qkv, self.out = nn.Conv2d(features, 3 * features, 1), nn.Conv2d(features, features, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        return x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(b, c, h, w))


class UNet(nn.Module):
    """The denoiser of a latent diffusion model, small: three levels, attention at the lower two."""

    def __init__(self, features: int = 64, widths: tuple[int, ...] = (1, 2, 4)) -> None:
        super().__init__()
        t = 4 * features
        self.features = features
        self.time = nn.Sequential(nn.Linear(features, t), nn.SiLU(), nn.Linear(t, t))
        sizes = [features * w for w in widths]
        self.first = nn.Conv2d(4, sizes[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, size in enumerate(sizes):
            block = nn.ModuleList([Residual(size, size, t), SelfAttention(size) if level else nn.Identity()])
            if level + 1 < len(sizes):
                block.append(nn.Conv2d(size, sizes[level + 1], 3, stride=2, padding=1))
            self.down.append(block)
        self.middle = nn.ModuleList([Residual(sizes[-1], sizes[-1], t), SelfAttention(sizes[-1])])
        for level, size in reversed(list(enumerate(sizes))):
            block = nn.ModuleList([Residual(2 * size, size, t), SelfAttention(size) if level else nn.Identity()])
            if level:
                block.append(nn.Conv2d(size, sizes[level - 1], 3, padding=1))
            self.up.append(block)
        self.last = nn.Sequential(nn.GroupNorm(32, sizes[0]), nn.SiLU(), nn.Conv2d(sizes[0], 4, 3, padding=1))

    def forward(self, sample: torch.Tensor, when: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        half = self.features // 2
        angle = when[:, None] * torch.exp(torch.arange(half, device=when.device) * (-math.log(1e4) / half))
        when = self.time(torch.cat([angle.sin(), angle.cos()], -1).to(sample.dtype))
        h, kept = self.first(sample), []
        for residual, attention, *smaller in self.down:
            h = attention(residual(h, when))
            kept.append(h)
            for convolution in smaller:
                h = convolution(h)
        h = self.middle[1](self.middle[0](h, when))
        for residual, attention, *larger in self.up:
            h = attention(residual(torch.cat([h, kept.pop()], 1), when))
            for convolution in larger:
                h = convolution(functional.interpolate(h, scale_factor=2.0, mode="nearest"))
        return {"loss": functional.mse_loss(self.last(h), labels)}


def unet() -> Made:
    """A diffusion model's denoiser on two latents of 32 x 32."""
    sample = torch.randn(2, 4, 32, 32)
    return UNet(), {"sample": sample, "when": torch.tensor([3.0, 500.0]), "labels": torch.randn_like(sample)}


def smollm2(batch: int = 1) -> Made:
    """SmolLM2-135M."""
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": tokens(batch, 32)}


def smollm2_8() -> Made:
    """The same, eight prompts at once."""
    return smollm2(8)


MODELS = {
    f.__name__: f for f in (gpt2, llama, bert, vit, resnet, whisper, t5, mamba, mixtral, unet, smollm2, smollm2_8)
}


def forward(model: nn.Module, batch: Batch) -> Callable[[], None]:
    """The model in evaluation mode; its loss is read."""
    model.eval()

    @torch.no_grad()
    def run() -> None:
        model(**batch)["loss"].item()

    return run


def train(model: nn.Module, batch: Batch) -> Callable[[], None]:
    """A step of AdamW, to its end."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def run() -> None:
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        torch.tpu.synchronize()

    return run


def decode(model: nn.Module, batch: Batch) -> Callable[[], None]:
    """Sixteen greedy tokens after the prompt, the cache growing."""
    model.eval()
    options = {"max_new_tokens": 16, "min_new_tokens": 16, "do_sample": False, "use_cache": True, "pad_token_id": 0}
    prompt = batch["input_ids"][:, :32]
    mask = torch.ones_like(prompt)
    return lambda: model.generate(prompt, attention_mask=mask, **options).cpu()


MODES = {"forward": forward, "train": train, "decode": decode}
DECODES, ONLY_DECODES = ("gpt2", "smollm2", "smollm2_8"), ("smollm2", "smollm2_8")
TRAINED = [part for part in MODELS if part not in ONLY_DECODES]


def program(part: str, mode: str, device: str, dtype: torch.dtype, compiled: bool = False) -> Callable[[], None]:
    """One part on one device; the same seed makes the same model."""
    torch.manual_seed(0)
    model, batch = MODELS[part]()
    batch = {n: (t.to(dtype) if t.is_floating_point() and n != "when" else t).to(device) for n, t in batch.items()}
    model = copy.deepcopy(model).to(device, dtype)
    return MODES[mode](torch.compile(model) if compiled else model, batch)


def interleaved(programs: list[Callable[[], None]], seconds: float, least: int) -> list[list[float]]:
    """Seconds of each program by round, in turns, until about `seconds` have passed."""
    for one in programs:
        for _ in range(3):
            one()
    taken: list[list[float]] = [[] for _ in programs]
    end = time.perf_counter() + seconds
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    while len(taken[0]) < least or time.perf_counter() < end:
        for one, into in zip(programs, taken, strict=True):
            start = clock()
            one()
            into.append(clock() - start)
    return taken


def compare(part: str, mode: str, dtype: str, programs: list[Callable[[], None]], quick: bool) -> float:
    """Print the row of a part, two programs beside each other; give their ratio."""
    first, second = interleaved(programs, 1.0 if quick else 4.0, 3 if quick else 5)
    ratio = statistics.median(a / b for a, b in zip(first, second, strict=True))
    medians = [statistics.median(times) * 1e3 for times in (first, second)]
    row = f"{part + ' ' + mode:<18}{dtype:<6}{medians[0]:>10.1f}{medians[1]:>10.1f}"
    print(f"{row}{ratio:>8.2f}{min(first) / min(second):>8.2f}", flush=True)
    return ratio


def beside_cpu(part: str, mode: str, dtype: str) -> list[Callable[[], None]]:
    """The part on the CPU and on tpu."""
    return [program(part, mode, device, DTYPES[dtype]) for device in ("cpu", "tpu")]


def beside_eager(part: str, mode: str, dtype: str) -> list[Callable[[], None]]:
    """The part on tpu, eager and compiled."""
    return [program(part, mode, "tpu", DTYPES[dtype], compiled) for compiled in (False, True)]


def beside_one_thread(part: str, mode: str, dtype: str) -> list[Callable[[], None]]:
    """The part on tpu, with one thread and with all."""
    run = program(part, mode, "tpu", DTYPES[dtype])

    def with_threads(count: int) -> None:
        torch_tpu._C.set_threads(count)
        run()

    return [functools.partial(with_threads, count) for count in (1, torch.get_num_threads())]


class Comparison(NamedTuple):
    """What stands beside what: a row's programs, their columns, the mean that is wanted and the least ratio."""

    programs: Callable[[str, str, str], list[Callable[[], None]]]
    columns: tuple[str, str]
    targets: dict[str, float]
    least: float


COMPARISONS = {
    "cpu": Comparison(beside_cpu, ("CPU ms", "tpu ms"), {"f32": 1.25, "bf16": 1.4}, 1.0),
    "eager": Comparison(beside_eager, ("eager ms", "compiled"), {"f32": 1.0, "bf16": 1.0}, 1.0),
    "threads": Comparison(beside_one_thread, ("1 thread", "all, ms"), {"f32": 1.8, "bf16": 1.8}, 1.0),
}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="; ".join(MODELS))
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--threads", type=int, help="on each side")
    parser.add_argument("--beside", choices=COMPARISONS, default="cpu", help="the CPU; or tpu's eager mode, one thread")
    parser.add_argument("--quick", action="store_true", help="a second for each row")
    parser.add_argument("--profile", type=float, metavar="SECONDS", help="run the parts on tpu alone")
    parsed = parser.parse_args(arguments)
    unknown = [part for part in parsed.parts if part not in MODELS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    return parsed


def main(arguments: list[str]) -> int:
    """Print the table; the exit status says whether every target was met."""
    options = parse(arguments)
    if options.threads:
        use_threads(options.threads)
    modes = options.mode or ["forward", "train", "decode"]
    rows = [(p, m) for p in options.parts or MODELS for m in modes if p in (DECODES if m == "decode" else TRAINED)]
    missed = False
    for dtype in options.dtype or DTYPES:
        if options.profile:
            for part, mode in rows:
                run = program(part, mode, "tpu", DTYPES[dtype])
                interleaved([run], options.profile, 1)
            continue
        beside = COMPARISONS[options.beside]
        columns = f"{beside.columns[0]:>10}{beside.columns[1]:>10}{'speed':>8}{'of best':>8}"
        print(f"{'model':<18}{'dtype':<6}{columns}   {torch.get_num_threads()} threads")
        ratios = [compare(part, mode, dtype, beside.programs(part, mode, dtype), options.quick) for part, mode in rows]
        mean, target = statistics.geometric_mean(ratios), beside.targets[dtype]
        missed |= mean < target or min(ratios) < beside.least
        least = f"least {min(ratios):.2f} (target {beside.least:.2f})"
        print(f"{dtype}: geometric mean {mean:.2f} (target {target}), {least}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
