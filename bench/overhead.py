"""What it costs to record one operator, next to a kernel that does nothing in the same place (target: 1.3 times).

Both are called from Python through the dispatcher, in turns in one process. *record* is seven calls in a row, which
are never cut; *run* is a long stream of them on tiny tensors, with cutting, finding the programs and running them.
"""

import os
import pathlib
import statistics
import sys
import time

os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # PyTorch warns of kernels that are replaced, which is what this does

from torch.utils import cpp_extension

import torch
import torch_tpu  # noqa: F401 - where autoloading is switched off

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "bench"
BATCH, BATCHES, ROUNDS = 7, 150, 9
TARGET = 1.3


def load_nothing() -> None:
    """Compile the kernel that does nothing, once."""
    BUILD.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"  # ninja
    cpp_extension.load(
        "ttpu_bench_nothing",
        [str(HERE / "overhead.cpp")],
        build_directory=str(BUILD),
        is_python_module=False,
        extra_cflags=["-O2"],
    )


def cases():
    """Name of the kernel, what to call, and the same on the CPU."""
    for device in ("tpu", "cpu"):
        a, b = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device)
        row, weight = torch.ones(4, device=device), torch.ones(4, device=device)
        ids = torch.zeros(4, dtype=torch.int64, device=device)
        yield (
            device,
            {
                "mul.Tensor": lambda a=a, b=b: torch.mul(a, b),
                "add_.Tensor": lambda a=a, b=b: a.add_(b),
                "add.Tensor": lambda a=a: a + 1.0,
                "addmm": lambda a=a, b=b, row=row: torch.addmm(row, a, b),
                "native_layer_norm": lambda a=a, w=weight: torch.native_layer_norm(a, (4,), w, w, 1e-5),
                "_softmax": lambda a=a: torch._softmax(a, 1, False),
                "cat": lambda a=a, b=b: torch.cat((a, b)),
                "sum.dim_IntList": lambda a=a: a.sum(1),
                "index_select": lambda a=a, ids=ids: a.index_select(0, ids),
                "gelu": lambda a=a: torch.nn.functional.gelu(a),
            },
        )


def batch_seconds(call) -> float:
    """Seconds a call, of the best-behaved half of the batches."""
    seconds = []
    for _ in range(BATCHES):
        start = time.perf_counter()
        call(), call(), call(), call(), call(), call(), call()
        seconds.append(time.perf_counter() - start)
        torch.tpu.flush()
    seconds.sort()
    return statistics.fmean(seconds[: BATCHES // 2]) / BATCH


def stream_seconds(call, calls: int = 1000) -> float:
    """Seconds a call, with everything that follows from it."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.tpu.synchronize()
    return (time.perf_counter() - start) / calls


def in_place_of(name: str, measure, by: str = "boxed") -> float:
    """Measure with the kernel replaced by one that does nothing, boxed or not, or only makes a "fresh" tensor."""
    torch.ops.ttpu_bench.replace(name, by)
    try:
        return measure()
    finally:
        torch.ops.ttpu_bench.restore()


def main() -> int:
    """Print the table; the exit status says whether the target was met."""
    load_nothing()
    (_, on_tpu), (_, on_cpu) = cases()
    print("microseconds a call, from Python; ratio = record / nothing")
    print(f"{'operator':<20}{'nothing':>9}{'record':>9}{'ratio':>8}{'run':>9}{'CPU':>9}")
    ratios = []
    for name, call in on_tpu.items():
        for _ in range(3):
            stream_seconds(call)
        rounds = []
        for _ in range(ROUNDS):
            rounds.append(
                (
                    in_place_of(name, lambda call=call: batch_seconds(call)),
                    batch_seconds(call),
                    stream_seconds(call),
                    batch_seconds(on_cpu[name]),
                )
            )
        nothing, record, run, cpu = (statistics.median(column) * 1e6 for column in zip(*rounds, strict=True))
        ratio = statistics.median(record / nothing for nothing, record, _, _ in rounds)
        ratios.append(ratio)
        print(f"{name:<20}{nothing:>9.2f}{record:>9.2f}{ratio:>8.2f}{run:>9.2f}{cpu:>9.2f}")
    multiply = on_tpu["mul.Tensor"]
    recorded = batch_seconds(multiply)
    for by, what in ("unboxed", "gives its argument back"), ("fresh", "makes a tensor without memory"):
        peer = in_place_of("mul.Tensor", lambda: batch_seconds(multiply), by)
        print(f"mul.Tensor by an unboxed kernel that {what}: {peer * 1e6:.2f}, ratio {recorded / peer:.2f}")
    median = statistics.median(ratios)
    print(f"median ratio {median:.2f} (target {TARGET:.2f}): {'met' if median <= TARGET else 'MISSED'}")
    return 0 if median <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
