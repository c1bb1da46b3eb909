"""Warm programs compile nothing: not for new numbers, nor new sizes, and long runs keep nothing."""

import os

import pytest
from models import VOCABULARY, make
from support import in_fresh_python
from torch.nn import functional

import torch
from torch import nn


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4)).to("tpu")


class Trainer:
    """A training loop whose learning rate changes at every step."""

    def __init__(self, model: nn.Module, **options) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 1000)
        self.x, self.y = torch.randn(8, 16, device="tpu"), torch.arange(8, device="tpu") % 4

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()


def test_errors_on_compile_raises():
    """The guard itself: something new inside it is an error that names the piece."""
    torch.tpu.synchronize()
    with pytest.raises(RuntimeError, match=r"errors_on_compile.*operators, from"):
        with torch.tpu.errors_on_compile():
            x = torch.ones(3, 5, 7, 2, device="tpu").permute(3, 1, 0, 2)
            (x.cumsum(1).tan().flip(2) + x.logsumexp((0, 3), keepdim=True)).argsort(1).sum()
    assert torch.ones(3, device="tpu").sum().item() == 3


@pytest.mark.parametrize("options", [{}, {"foreach": False}], ids=["foreach", "one by one"])
def test_training_steps(options, no_fallback):
    trainer = Trainer(small_model(), **options)
    for _ in range(3):
        trainer.step().item()
    torch.tpu.reset_counters()
    with torch.tpu.errors_on_compile():
        losses = [trainer.step().item() for _ in range(100)]
    counters = torch.tpu.counters()
    assert counters["programs_compiled"] == counters["programs_built"] == 0
    assert losses[-1] < losses[0]


def test_training_steps_without_reads(no_fallback):
    """A loop that never reads is cut by content alone, and finds the same pieces again."""
    trainer = Trainer(small_model())
    for _ in range(20):
        trainer.step()
    torch.tpu.synchronize()
    with torch.tpu.errors_on_compile():
        for _ in range(100):
            trainer.step()
    counters = torch.tpu.counters()
    assert counters["programs_run"] > 0


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad])
def test_optimizers(optimizer, no_fallback):
    model = small_model()
    trainer = Trainer(model)
    trainer.optimizer = optimizer(model.parameters(), lr=1e-3)
    trainer.schedule = torch.optim.lr_scheduler.LinearLR(trainer.optimizer, total_iters=50)
    for _ in range(3):
        trainer.step().item()
    with torch.tpu.errors_on_compile():
        for _ in range(20):
            trainer.step().item()


def test_generation_with_a_growing_cache(no_fallback):
    """The first prompt compiles; later ones, at lengths never seen, bind new sizes only."""
    model = make("llama").to("tpu")

    def generate(length: int, new: int) -> torch.Tensor:
        ids = torch.randint(3, VOCABULARY, (1, length), device="tpu")
        return model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False
        )

    for length in (5, 9):
        generate(length, 6).cpu()
    torch.tpu.reset_counters()
    with torch.tpu.errors_on_compile():
        for length in (7, 12, 4):
            assert generate(length, 20).shape == (1, length + 20)
    assert torch.tpu.counters()["programs_compiled"] == 0


def test_training_over_many_lengths(no_fallback):
    """Fifty sequence lengths, after the first five of which nothing is compiled."""
    model = make("gpt2").to("tpu").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(length: int) -> float:
        ids = torch.randint(3, VOCABULARY, (2, length), device="tpu")
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    lengths = [8, 31, 17, 25, 12, *[length for length in range(6, 60)][:45]]
    for length in lengths[:5]:
        step(length)
    torch.tpu.reset_counters()
    with torch.tpu.errors_on_compile():
        for length in lengths[5:]:
            assert step(length) == pytest.approx(4, abs=4)
    assert torch.tpu.counters()["programs_compiled"] == 0


def test_evaluation_over_batch_sizes(no_fallback):
    """The last, smaller batch of an epoch is no new program."""
    model = small_model().eval()
    with torch.no_grad():
        for size in (32, 20, 9):
            model(torch.randn(size, 16, device="tpu")).argmax(1).cpu()
        with torch.tpu.errors_on_compile():
            for size in (2, 3, 7, 11, 19, 25, 31, 33, 39, 64):  # the model's own sizes are another structure
                classes = model(torch.randn(size, 16, device="tpu")).argmax(1).cpu()
                assert classes.shape == (size,)  # pytest keeps what an assert computes: another set of results


def test_convolutions_over_sizes(no_fallback):
    model = (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)
        )
        .to("tpu")
        .eval()
    )
    with torch.no_grad():
        for size in (16, 20, 24):
            model(torch.randn(2, 3, size, size, device="tpu")).sum().item()
        with torch.tpu.errors_on_compile():
            for size in (18, 22, 26, 32):
                model(torch.randn(2, 3, size, size, device="tpu")).sum().item()


def test_numbers_are_not_constants(no_fallback):
    x = torch.ones(8, device="tpu")

    def program(a: float, b: int) -> list[torch.Tensor]:
        return [x * a + b, x.add(x, alpha=a), torch.full((4,), a, device="tpu"), x.clamp(-a, a), (x * b).pow(a)]

    for value in (0.5, 2.6, 1.5):
        [t.cpu() for t in program(value, 2)]
    with torch.tpu.errors_on_compile():
        for i in range(4, 24):
            value = i * 0.25 + 0.125  # an alpha of 1 and powers of 2 and 3 are operators of their own
            values = [t.cpu() for t in program(value, i)]
            assert values[0][0].item() == value + i
            assert values[2][3].item() == value


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_resident_memory_stays_flat(no_fallback):
    """Two thousand steps of a small model; bench/soak.py does ten thousand."""
    trainer = Trainer(small_model())
    resident = []
    for step in range(2000):
        loss = trainer.step()
        if step % 100 == 99:
            loss.item()
            resident.append(resident_bytes())
    growth = resident[-1] - resident[4]
    assert growth < 6 << 20, f"{growth >> 10} KiB in 1,500 steps: {[r >> 20 for r in resident]} MiB"
    assert torch.tpu.memory_allocated() < 1 << 20


PROGRAMS = """
import torch, torch_tpu
for n in range(1, 41):
    torch.polygamma(2, torch.ones(n, device="tpu")).cpu()
kept = len(torch_tpu._C.programs(0))
torch.tpu.reset_counters()
torch.polygamma(2, torch.ones(40, device="tpu")).cpu(), torch.polygamma(2, torch.ones(1, device="tpu")).cpu()
print(kept, torch.tpu.counters()["programs_built"])
"""


def test_programs_go_when_they_take_too_much_memory():
    """The least recently used first; what is asked for again is made again."""
    kept, built = map(int, in_fresh_python(PROGRAMS, TTPU_PROGRAM_MEMORY="4000000").stdout.split())
    assert 2 <= kept < 40
    assert built == 1
    kept, built = map(int, in_fresh_python(PROGRAMS).stdout.split())
    assert kept >= 40
    assert built == 0
