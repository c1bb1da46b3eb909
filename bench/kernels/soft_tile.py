"""The chains of soft_tile.c in eager PyTorch on the CPU, one thread, in that thread's CPU time."""

import time

import torch.nn.functional as F

import torch


def measure(name, run, repeats=1):
    best, end = 1.0, time.perf_counter() + 0.4
    while time.perf_counter() < end:
        start = time.thread_time()
        for _ in range(repeats):
            run()
        best = min(best, (time.thread_time() - start) / repeats)
    print(f"{name:22} {best * 1e6:9.2f} us")


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x * x * x)))


def adamw(p, g, m, v):
    p.mul_(1 - 1e-5)
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m, (v.sqrt() / 0.5).add_(1e-8), value=-1e-3)


def main():
    torch.set_num_threads(1)
    small, middle, large = torch.rand(1, 16), torch.rand(64, 1024), torch.rand(2048, 2048)
    measure("gelu_tanh 16", lambda: gelu(small), 100)
    measure("add 4M", lambda: large + large)
    measure("gelu_tanh 64K", lambda: gelu(middle))
    measure("gelu_tanh 64K, fused", lambda: F.gelu(middle, approximate="tanh"))
    measure("gelu_tanh 4M", lambda: gelu(large))
    measure("gelu_tanh 4M, fused", lambda: F.gelu(large, approximate="tanh"))
    measure("gelu_erf 4M, fused", lambda: F.gelu(large))
    half = large.bfloat16()
    measure("gelu_tanh 4M bf16", lambda: gelu(half))
    for rows, columns in ((1024, 1024), (12288, 64), (64, 50257)):
        x = torch.rand(rows, columns)
        measure(f"softmax {rows}x{columns}", lambda x=x: x.softmax(-1))
    weight, bias = torch.rand(768), torch.rand(768)
    for rows in (4096, 1):
        x = torch.rand(rows, 768)
        measure(f"layer_norm {rows}x768", lambda x=x: F.layer_norm(x, (768,), weight, bias), 1 if rows > 1 else 100)
    x = torch.rand(4096, 768)
    measure("column_sum 4096x768", lambda: x.sum(0))
    measure("sum 4M", lambda: large.sum())
    for n, repeats in ((1024 * 1024, 1), (768, 100)):
        state = [torch.rand(n) for _ in range(4)]
        measure(f"adamw {n}", lambda state=state: adamw(*state), repeats)


with torch.no_grad():
    main()
