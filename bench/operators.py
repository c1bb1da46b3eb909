"""Operators and short chains of them, eager: the speed on tpu over that of the CPU, both in turns in one process.

The rows are the groups of docs/speed.md; each ends with the geometric mean beside its target. `python
bench/operators.py pointwise sort` measures some groups, `--quick` less of each. Like bench/zoo.py, `--threads 1`
counts processor time.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

from threads import use_threads
from torch.nn import functional

import torch
import torch_tpu  # noqa: F401 - where autoloading is switched off

Inputs = list[torch.Tensor]
Case = tuple[str, Callable[[], Inputs], Callable[..., object]]
BF16 = torch.bfloat16


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[], Inputs]:
    return lambda: [torch.randn(*shape).to(dtype)]


def pairs(first: tuple[int, ...], second: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[], Inputs]:
    return lambda: [torch.randn(*first).to(dtype), torch.randn(*second).to(dtype)]


def integers(*shape: int, most: int = 1000) -> Callable[[], Inputs]:
    return lambda: [torch.randint(most, shape)]


def small_integers(n: int) -> torch.Tensor:
    return torch.randint(-128, 128, (n, n), dtype=torch.int8)


def adamw(dtype: torch.dtype) -> Case:
    """The update of one weight of a million elements, as the optimizer writes it."""

    def step(w: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        w.mul_(1 - 1e-6)
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        return w.addcdiv_(m, (v.sqrt() / 0.5).add_(1e-8), value=-1e-5)

    inputs = [torch.randn(1024, 1024).to(dtype) for _ in range(3)] + [torch.rand(1024, 1024).to(dtype)]
    return f"AdamW step {str(dtype)[6:]}", lambda: inputs, step


POINTWISE: list[Case] = [
    ("add 4M", pairs((2048, 2048), (2048, 2048)), torch.add),
    ("gelu (erf) 4M", floats(2048, 2048), functional.gelu),
    ("gelu (tanh) 4M", floats(2048, 2048), lambda x: functional.gelu(x, approximate="tanh")),
    ("chain of 6 ops 1M", pairs((1024, 1024), (1024, 1024)), lambda x, y: torch.sigmoid(x * y + 1.0) * x - y.abs()),
    (
        "chain of 6 ops bf16",
        pairs((1024, 1024), (1024, 1024), BF16),
        lambda x, y: torch.sigmoid(x * y + 1.0) * x - y.abs(),
    ),
    ("softmax 1024 x 1024", floats(1024, 1024), lambda x: x.softmax(-1)),
    ("softmax 16 x 50257", floats(16, 50257), lambda x: x.softmax(-1)),
    ("layer norm 1024 x 768", floats(1024, 768), lambda x: functional.layer_norm(x, (768,))),
    ("layer norm 64 x 16384", floats(64, 16384), lambda x: functional.layer_norm(x, (16384,))),
    ("RMS norm bf16 1024 x 768", floats(1024, 768, dtype=BF16), lambda x: functional.rms_norm(x, (768,))),
    (
        "cross entropy 512 x 32000",
        lambda: [torch.randn(512, 32000), torch.randint(32000, (512,))],
        functional.cross_entropy,
    ),
    adamw(torch.float32),
    adamw(BF16),
]

ORDER: list[Case] = [
    ("sort 1M", floats(1 << 20), lambda x: x.sort()[0]),
    ("sort 1024 x 1024", floats(1024, 1024), lambda x: x.sort(-1)[0]),
    ("topk 50 of 64 x 50257", floats(64, 50257), lambda x: x.topk(50)[0]),
    ("gather rows", lambda: [torch.randn(32000, 512), torch.randint(32000, (4096,))], lambda x, i: x[i]),
    ("embedding", lambda: [torch.randint(32000, (8, 512)), torch.randn(32000, 512)], functional.embedding),
    (
        "scatter add",
        lambda: [torch.zeros(32000, 64), torch.randint(32000, (8192,)), torch.randn(8192, 64)],
        lambda x, i, y: x.index_add(0, i, y),
    ),
    ("cumsum 1024 x 1024", floats(1024, 1024), lambda x: x.cumsum(-1)),
    ("unique 256k", integers(1 << 18), torch.unique),
    ("normal 1M", floats(1 << 20), torch.Tensor.normal_),
    ("dropout 1M", floats(1 << 20), lambda x: functional.dropout(x, 0.1)),
]

PRODUCTS: list[Case] = [
    (f"{str(dtype)[6:]} {m} x {n} x {k}", pairs((m, k), (n, k), dtype), lambda x, w: x @ w.t())
    for dtype in (torch.float32, BF16)
    for m, n, k in (
        (64, 64, 64),
        (256, 256, 256),
        (1024, 1024, 1024),
        (1, 2048, 2048),
        (8, 2048, 2048),
        (128, 3072, 768),
    )
]
PRODUCTS += [
    (f"int8 {n} x {n} x {n}", lambda n=n: [small_integers(n) for _ in "ab"], torch._int_mm) for n in (64, 256, 1024)
]
PRODUCTS += [(f"float16 {n} x {n} x {n}", pairs((n, n), (n, n), torch.float16), torch.mm) for n in (64, 256)]

ATTENTION: list[Case] = [
    (
        f"{str(dtype)[6:]} {m} x {n}{' causal' if causal else ''}",
        lambda m=m, n=n, dtype=dtype: [torch.randn(1, 12, s, 64).to(dtype) for s in (m, n, n)],
        lambda q, k, v, causal=causal: functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
    )
    for dtype in (torch.float32, BF16)
    for m, n, causal in ((128, 128, True), (1024, 1024, True), (1, 1024, False))
]


def convolution(dtype: torch.dtype, channels: tuple[int, int], size: int, kernel: int, **options: int) -> Case:
    x, w = (4, channels[0], size, size), (channels[1], channels[0] // options.get("groups", 1), kernel, kernel)
    name = f"{str(dtype)[6:]} {channels[0]} to {channels[1]}, {size} x {size}, {kernel} x {kernel}"
    return (
        name + (" depthwise" if "groups" in options else ""),
        pairs(x, w, dtype),
        lambda x, w: functional.conv2d(x, w, padding=kernel // 2, **options),
    )


CONVOLUTIONS: list[Case] = [
    case
    for dtype in (torch.float32, BF16)
    for case in (
        convolution(dtype, (64, 64), 56, 3),
        convolution(dtype, (256, 256), 14, 3),
        convolution(dtype, (64, 256), 56, 1),
        convolution(dtype, (128, 128), 56, 3, stride=2),
        convolution(dtype, (96, 96), 56, 3, groups=96),
    )
]


def changing(steps: list[int], run: Callable[..., torch.Tensor]) -> Callable[..., object]:
    """A function of a tensor whose length is another one at every call."""

    def of_another_length(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        steps[0] = (steps[0] + 7) % 500
        return run(x[: 500 + steps[0]], *rest)

    return of_another_length


def attend(x: torch.Tensor) -> torch.Tensor:
    """One query against keys and values, as decoding has it."""
    heads = x.view(1, 1, -1, 64)
    return functional.scaled_dot_product_attention(heads[:, :, -1:], heads, heads)


SIZES: list[Case] = [
    ("softmax of a new length", floats(1000, 64), changing([0], lambda x: torch.softmax(x * 2.0 + 1.0, -1).sum(0))),
    (
        "linear, gelu of a new length",
        pairs((1000, 64), (256, 64)),
        changing([0], lambda x, w: functional.gelu(x @ w.t())),
    ),
    ("layer norm of a new length", floats(1000, 64), changing([0], lambda x: functional.layer_norm(x * 2.0, (64,)))),
    ("attention of a new length", floats(1000, 64), changing([0], attend)),
    (
        "concatenation of a new length",
        pairs((1000, 64), (1, 64)),
        changing([0], lambda x, row: torch.cat([x, row]) * 2.0),
    ),
]

GROUPS: dict[str, tuple[list[Case], float]] = {
    "pointwise": (POINTWISE, 2.0),
    "sort": (ORDER, 1.0),
    "products": (PRODUCTS, 1.0),
    "convolutions": (CONVOLUTIONS, 1.0),
    "attention": (ATTENTION, 1.2),
    "sizes": (SIZES, 1.0),
}


REST = 0.02  # seconds before a turn, in which the other side's waiting threads stop spinning


def timed(run: Callable[..., object], inputs: Inputs, calls: int) -> float:
    """Seconds of one call of `calls`. Each is waited for with its result held: what nobody holds is not computed."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    time.sleep(REST)
    start = clock()
    for _ in range(calls):
        result = run(*inputs)
        torch.tpu.synchronize()
    del result
    return (clock() - start) / calls


def measure(case: Case, seconds: float) -> float:
    """Print one row, give its ratio."""
    name, make, run = case
    torch.manual_seed(0)
    inputs = make()
    sides = [inputs, [x.to("tpu") for x in inputs]]
    calls = []
    for side in sides:
        timed(run, side, 3)
        calls.append(max(1, min(200, int(seconds / 10 / max(1e-7, timed(run, side, 1))))))
    taken = [[timed(run, side, n) for side, n in zip(sides, calls, strict=True)] for _ in range(7)]
    ratio = statistics.median(cpu / tpu for cpu, tpu in taken)
    cpu, tpu = (statistics.median(column) * 1e6 for column in zip(*taken, strict=True))
    print(f"{name:<44}{cpu:>12.1f}{tpu:>12.1f}{ratio:>8.2f}", flush=True)
    return ratio


MOVED = {"add 4M": 3 * 4 << 22, "AdamW step float32": 7 * 4 << 20, "AdamW step bfloat16": 7 * 2 << 20}  # bytes


def triad(seconds: float) -> float:
    """Bytes a second of the CPU's best `a = b + s * c` over three arrays of 16 MiB that exist already."""
    a, b, c = (torch.ones(4 << 20) for _ in range(3))
    times = [timed(lambda: torch.add(b, c, alpha=3.0, out=a), [], 10) for _ in range(max(3, int(seconds * 20)))]
    return 3 * 4 * (4 << 20) / min(times)


def print_bandwidth(seconds: float) -> None:
    """What is bound by memory, beside the machine's triad (target 0.8)."""
    fastest = triad(seconds)
    print(f"triad (torch.add on the CPU, out= given): {fastest / 1e9:.1f} GB/s")
    for name, make, run in POINTWISE:
        if name in MOVED:
            inputs = [x.to("tpu") for x in make()]
            taken = min(timed(run, inputs, 10) for _ in range(max(3, int(seconds * 20))))
            rate = MOVED[name] / taken
            print(f"{name}: {rate / 1e9:.1f} GB/s, {rate / fastest:.2f} of it")


@torch.no_grad()
def main(arguments: list[str]) -> int:
    """Print the groups; the exit status says whether every target was met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS], metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--threads", type=int, help="on each side")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    if options.threads:
        use_threads(options.threads)
    missed = False
    for group in options.groups or GROUPS:
        cases, target = GROUPS[group]
        print(f"{group:<44}{'CPU us':>12}{'tpu us':>12}{'speed':>8}   {torch.get_num_threads()} threads")
        mean = statistics.geometric_mean(measure(case, 0.1 if options.quick else 0.5) for case in cases)
        print(f"{group}: geometric mean {mean:.2f} (target {target})")
        if group == "pointwise":
            print_bandwidth(0.1 if options.quick else 0.5)
        print()
        missed |= mean < target
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
