"""Ten thousand training steps of a small model leave resident memory flat; `bench/soak.py 100000` runs longer."""

import os
import sys
import time

from torch.nn import functional

import torch
import torch_tpu  # noqa: F401 - where autoloading is switched off
from torch import nn


def resident_bytes() -> int:
    """The process's resident memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(steps: int) -> int:
    """Train and print; the exit status says whether memory grew by less than 8 MiB after the second tenth."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4)).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    x, y = torch.randn(8, 16, device="tpu"), torch.arange(8, device="tpu") % 4
    start, first = time.perf_counter(), 0
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % (steps // 10) == 0:
            value, now = loss.item(), resident_bytes()
            if step == 2 * (steps // 10):  # the first read has made its own cuts, and their programs, by then
                first = now
            rate = step / (time.perf_counter() - start)
            compiled = torch.tpu.counters()["programs_compiled"]
            print(f"step {step:>7}  loss {value:.4f}  {rate:7.0f} steps/s  {now / 2**20:8.1f} MiB  {compiled} compiled")
    growth = resident_bytes() - first
    print(f"grew by {growth / 2**20:.1f} MiB after the second tenth")
    return 0 if growth < 8 << 20 else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
