"""How time and memory grow: a Transformer's forward and training step over batch, length, depth and width.

Every row changes one size of the same model (docs/cost.md has the picture that `--plot FILE` draws). Time is the
median of a few steps, *reached* the products' arithmetic over it as a part of what a large product of this library
reaches here, memory the most that the step took beyond the weights, from `torch.tpu.max_memory_allocated`; both sides
run in turns.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable

from threads import use_threads
from torch.nn import functional

import torch
import torch_tpu  # noqa: F401 - where autoloading is switched off
from torch import nn


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A model and its input."""

    batch: int = 2
    length: int = 128
    depth: int = 4
    width: int = 384


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = width // 64

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, w))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def flops(s: Sizes) -> float:
    """Arithmetic of the products of one forward: 12 width^2 weights a layer, and the causal half of the scores."""
    return s.batch * s.length * s.depth * (24.0 * s.width**2 + 2.0 * s.length * s.width)


def steps(s: Sizes, device: str, train: bool) -> Callable[[], None]:
    """A function that runs one step to its end."""
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(s.width) for _ in range(s.depth)]).to(device)
    x = torch.randn(s.batch, s.length, s.width, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def training() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.tpu.synchronize()

    @torch.no_grad()
    def forward() -> None:
        kept = model(x)  # what nobody holds is not computed
        torch.tpu.synchronize()
        del kept

    return training if train else forward


def clock() -> float:
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def median_seconds(programs: list[Callable[[], None]], rounds: int) -> list[float]:
    taken = [[] for _ in programs]
    for _ in range(rounds + 2):
        for program, into in zip(programs, taken, strict=True):
            start = clock()
            program()
            into.append(clock() - start)
    return [statistics.median(t[2:]) for t in taken]


def peak_rate() -> float:
    """Floating-point operations a second of a large product."""
    x = torch.randn(1024, 1024, device="tpu")
    w = torch.randn(1024, 1024, device="tpu")

    def run() -> None:
        kept = x @ w
        torch.tpu.synchronize()
        del kept

    return 2.0 * 1024**3 / median_seconds([run], 9)[0]


def measure(s: Sizes, train: bool, peak: float, rounds: int) -> dict[str, float]:
    """One row."""
    programs = [steps(s, device, train) for device in ("cpu", "tpu")]
    cpu, tpu = median_seconds(programs, rounds)
    before = torch.tpu.memory_allocated()
    torch.tpu.reset_peak_memory_stats()
    programs[1]()
    memory = torch.tpu.max_memory_allocated() - before
    work = flops(s) * (3 if train else 1)
    return {"cpu": cpu, "tpu": tpu, "reached": work / tpu / peak, "memory": memory}


SERIES = {
    "batch": [Sizes(batch=n) for n in (1, 2, 4, 8)],
    "length": [Sizes(length=n) for n in (64, 128, 256, 512)],
    "depth": [Sizes(depth=n) for n in (2, 4, 8, 16)],
    "width": [Sizes(width=n) for n in (192, 384, 768)],
}


def plot(rows: dict[tuple[str, bool], list[tuple[int, dict[str, float]]]], path: str) -> None:
    """Time over each size, logarithmic on both axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 4, figsize=(14, 6), sharey="row")
    for (series, train), row in rows.items():
        at = list(SERIES).index(series)
        sizes = [size for size, _ in row]
        step = "train" if train else "forward"
        for device in ("cpu", "tpu"):
            axes[0][at].loglog(
                sizes,
                [m[device] * 1e3 for _, m in row],
                "o-" if train else "o--",
                label=f"{device} {step}",
            )
        axes[1][at].loglog(sizes, [m["memory"] / 2**20 for _, m in row], "o-" if train else "o--")
        axes[1][at].set_xlabel(series)
    axes[0][0].set_ylabel("milliseconds a step")
    axes[1][0].set_ylabel("MiB beyond the weights")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path)


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", nargs="*", choices=[[], *SERIES], metavar="SERIES", help=", ".join(SERIES))
    parser.add_argument("--threads", type=int, help="on each side; 1 counts processor time")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plot", metavar="FILE", help="draw it (PNG or SVG)")
    options = parser.parse_args(arguments)
    if options.threads:
        use_threads(options.threads)
    peak, rows = peak_rate(), {}
    print(f"{torch.get_num_threads()} threads; a product of 1024 reaches {peak / 1e9:.0f} GF/s in float32")
    print(f"{'size':<14}{'step':<9}{'CPU ms':>9}{'tpu ms':>9}{'speed':>7}{'reached':>9}{'MiB':>9}")
    for series in options.series or SERIES:
        for train in (False, True):
            for s in SERIES[series]:
                m = measure(s, train, peak, 2 if options.quick else 5)
                size = getattr(s, series)
                rows.setdefault((series, train), []).append((size, m))
                name = f"{series + ' ' + str(size):<14}{'train' if train else 'forward':<9}"
                times = f"{m['cpu'] * 1e3:>9.1f}{m['tpu'] * 1e3:>9.1f}{m['cpu'] / m['tpu']:>7.2f}"
                print(f"{name}{times}{m['reached']:>9.2f}{m['memory'] / 2**20:>9.1f}", flush=True)
    if options.plot:
        plot(rows, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
