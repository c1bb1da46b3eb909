"""Micro-kernels beside PyTorch's CPU kernels, in one process, in turns.

python bench/kernels/kern_bench.py LIBRARY [gemm|skinny|small|conv|attention ...] [--threads N]
LIBRARY is kern_bench.c linked with src/base and src/soft/kern as a shared library.
"""

import ctypes as c
import os
import sys
import time

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # plain PyTorch is the peer
import torch

F32, BF16, F16, F64, I8, I32 = 11, 13, 10, 12, 2, 4  # ttpu_dtype
clock = time.perf_counter
DTYPES = {
    torch.float32: F32,
    torch.bfloat16: BF16,
    torch.float16: F16,
    torch.float64: F64,
    torch.int8: I8,
    torch.int32: I32,
}
I64P, VP, I64 = c.POINTER(c.c_int64), c.c_void_p, c.c_int64


class Gemm(c.Structure):
    _fields_ = [
        ("a_dtype", c.c_int),
        ("b_dtype", c.c_int),
        ("out", c.c_int),
        ("precision", c.c_int),
        ("m", I64),
        ("n", I64),
        ("k", I64),
        ("a", VP),
        ("a_row", I64),
        ("a_col", I64),
        ("b", VP),
        ("b_row", I64),
        ("b_col", I64),
        ("c", VP),
        ("c_row", I64),
        ("c_col", I64),
        ("batch", I64),
        ("a_batch", I64),
        ("b_batch", I64),
        ("c_batch", I64),
        ("beta", c.c_double),
        ("bias", VP),
        ("bias_dtype", c.c_int),
        ("epilogue", VP),
        ("epilogue_ctx", VP),
        ("b_packed", VP),
        ("workspace", VP),
    ]


A3 = I64 * 3


class Conv(c.Structure):
    _fields_ = [
        ("dtype", c.c_int),
        ("kernel_dtype", c.c_int),
        ("out_dtype", c.c_int),
        ("precision", c.c_int),
        ("spatial", c.c_int),
        ("batch", I64),
        ("in_features", I64),
        ("out_features", I64),
        ("in_size", A3),
        ("kernel_size", A3),
        ("out_size", A3),
        ("window_stride", A3),
        ("pad_low", A3),
        ("lhs_dilation", A3),
        ("rhs_dilation", A3),
        ("reversal", c.c_bool * 3),
        ("groups", I64),
        ("batch_groups", I64),
        ("input", VP),
        ("in_batch", I64),
        ("in_feature", I64),
        ("in_spatial", A3),
        ("kernel", VP),
        ("kernel_in", I64),
        ("kernel_out", I64),
        ("kernel_spatial", A3),
        ("out", VP),
        ("out_batch", I64),
        ("out_feature", I64),
        ("out_spatial", A3),
        ("bias", VP),
        ("bias_dtype", c.c_int),
        ("epilogue", VP),
        ("epilogue_ctx", VP),
        ("workspace", VP),
    ]


class Attention(c.Structure):
    _fields_ = [
        ("dtype", c.c_int),
        ("batch", I64),
        ("heads", I64),
        ("kv_heads", I64),
        ("m", I64),
        ("n", I64),
        ("d", I64),
        ("e", I64),
        ("q", VP),
        ("k", VP),
        ("v", VP),
        ("q_strides", I64 * 4),
        ("k_strides", I64 * 4),
        ("v_strides", I64 * 4),
        ("scale", c.c_double),
        ("causal", c.c_bool),
        ("bias", VP),
        ("bias_dtype", c.c_int),
        ("bias_strides", I64 * 4),
        ("out", VP),
        ("out_strides", I64 * 4),
        ("logsumexp", VP),
        ("logsumexp_strides", I64 * 3),
        ("workspace", VP),
    ]


def attention(lib, b, h, g, m, n, d, causal, dtype):
    q, k, v = (torch.randn(*s).to(dtype) for s in ((b, h, m, d), (b, g, n, d), (b, g, n, d)))
    out = torch.empty_like(q)
    s4 = lambda t: (I64 * 4)(*t.stride())
    a = Attention(
        dtype=DTYPES[dtype],
        batch=b,
        heads=h,
        kv_heads=g,
        m=m,
        n=n,
        d=d,
        e=d,
        q=q.data_ptr(),
        k=k.data_ptr(),
        v=v.data_ptr(),
        q_strides=s4(q),
        k_strides=s4(k),
        v_strides=s4(v),
        scale=d**-0.5,
        causal=causal,
        out=out.data_ptr(),
        out_strides=s4(out),
    )
    run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=g != h)
    work = 4.0 * b * h * m * n * d * (0.5 if causal else 1)
    compare(
        f"attention {str(dtype)[6:]} b{b} h{h}/{g} {m}x{n} d{d}{' causal' if causal else ''}",
        lib.bench_attention,
        a,
        run,
        work,
        "GF/s",
    )
    want = run()
    error = (out.double() - want.double()).abs().max().item()
    assert error < (1e-5 if dtype == torch.float32 else 2e-2), error


def best(fn, seconds=0.15, runs=5):
    fn()
    start = clock()
    fn()
    calls = max(1, int(seconds / runs / max(1e-7, clock() - start)))
    result = 1e9
    for _ in range(runs):
        start = clock()
        for _ in range(calls):
            fn()
        result = min(result, (clock() - start) / calls)
    return result


def compare(name, lib_fn, args, torch_fn, work, unit, rounds=3):
    lib_fn.restype = c.c_double
    one = lib_fn(c.byref(args), 1, 1)
    assert one >= 0, name
    one = lib_fn(c.byref(args), 1, 2)
    calls = max(1, int(0.03 / max(1e-7, one)))
    ours = theirs = 1e9
    for _ in range(rounds):
        time.sleep(0.02)  # lets the other's threads fall asleep
        ours = min(ours, lib_fn(c.byref(args), calls, 5))
        time.sleep(0.02)
        theirs = min(theirs, best(torch_fn))
    print(
        f"{name:44s} ours {ours * 1e6:10.2f} us {work / ours * 1e-9:8.1f} {unit}   torch {theirs * 1e6:10.2f} us "
        f"{work / theirs * 1e-9:8.1f}   ratio {theirs / ours:5.2f}",
        flush=True,
    )


def gemm(lib, a, b, precision=2, packed=False, name="", bytes_=False):
    m, k = a.shape
    n = b.shape[1]
    out = torch.empty(m, n, dtype=a.dtype if a.dtype != torch.int8 else torch.int32)
    g = Gemm(
        DTYPES[a.dtype],
        0,
        DTYPES[out.dtype],
        precision,
        m,
        n,
        k,
        a.data_ptr(),
        *a.stride(),
        b.data_ptr(),
        *b.stride(),
        out.data_ptr(),
        *out.stride(),
        1,
        0,
        0,
        0,
        0.0,
    )
    keep = []
    if packed:
        lib.bench_gemm_packed_b_bytes.restype = c.c_size_t
        buffer = torch.empty(lib.bench_gemm_packed_b_bytes(c.byref(g)) + 64, dtype=torch.uint8)
        at = (buffer.data_ptr() + 63) // 64 * 64
        assert lib.bench_gemm_pack_b(c.byref(g), c.c_void_p(at)) == 0
        g.b_packed = at
        keep.append(buffer)
    reference = torch.empty_like(out)
    fn = (lambda: torch._int_mm(a, b)) if a.dtype == torch.int8 else (lambda: torch.mm(a, b, out=reference))
    work = (n * k * b.element_size()) if bytes_ else 2.0 * m * n * k
    label = f"{name} {str(a.dtype)[6:]} {m}x{n}x{k} b{tuple(b.stride())}{' packed' if packed else ''}"
    compare(label, lib.bench_gemm, g, fn, work, "GB/s" if bytes_ else "GF/s")
    want = torch._int_mm(a, b) if a.dtype == torch.int8 else torch.mm(a, b)
    error = (out.double() - want.double()).abs().max().item() / max(1e-9, want.double().abs().max().item())
    assert error < (1e-5 if a.dtype in (torch.float32, torch.float64, torch.int8) else 2e-2), error


def a3(values):
    return A3(*values)


def conv(lib, n, cin, cout, size, k, stride=1, pad=None, groups=1, dtype=torch.float32, last=False, kind="forward"):
    """Forward, or one of the two backward products as the convolution that it is."""
    pad = k // 2 if pad is None else pad
    form = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(n, cin, size, size).to(dtype).contiguous(memory_format=form)
    w = torch.randn(cout, cin // groups, k, k).to(dtype).contiguous(memory_format=form)
    y = torch.nn.functional.conv2d(x, w, None, stride, pad, 1, groups)
    out = y.shape[2]
    args = dict(dtype=DTYPES[dtype], out_dtype=DTYPES[dtype], precision=2, spatial=2, groups=groups, batch_groups=1)
    if kind == "forward":
        i, kern, o, window, lhs, rhs, low = x, w, torch.empty_like(y), stride, 1, 1, pad
        reverse = False
        run = lambda: torch.nn.functional.conv2d(x, w, None, stride, pad, 1, groups)
        strides = (i.stride(), (kern.stride(1), kern.stride(0), *kern.stride()[2:]), o.stride())
        sizes = (n, cin, cout, size, k, out)
    elif kind == "input":  # grad_out dilated by the stride, kernel reversed, features swapped
        assert groups == 1
        i, kern, o, window, lhs, rhs, low = y, w, torch.empty_like(x), 1, stride, 1, k - 1 - pad
        reverse = True
        run = lambda: torch.ops.aten.convolution_backward(
            y, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, [True, False, False]
        )[0]
        strides = (i.stride(), kern.stride(), o.stride())
        sizes = (n, cout, cin, out, k, size)
    else:  # batch and features swapped: the window is grad_out
        assert groups == 1
        i, kern, o, window, lhs, rhs, low = x, y, torch.empty_like(w), 1, 1, stride, pad
        reverse = False
        run = lambda: torch.ops.aten.convolution_backward(
            y, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, [False, True, False]
        )[1]
        s = o.stride()
        strides = ((i.stride(1), i.stride(0), *i.stride()[2:]), kern.stride(), (s[1], s[0], *s[2:]))
        sizes = (cin, n, cout, size, out, k)
    g = Conv(
        batch=sizes[0],
        in_features=sizes[1],
        out_features=sizes[2],
        in_size=a3([sizes[3]] * 2),
        kernel_size=a3([sizes[4]] * 2),
        out_size=a3([sizes[5]] * 2),
        window_stride=a3([window] * 2),
        pad_low=a3([low] * 2),
        lhs_dilation=a3([lhs] * 2),
        rhs_dilation=a3([rhs] * 2),
        reversal=(c.c_bool * 3)(reverse, reverse),
        input=i.data_ptr(),
        in_batch=strides[0][0],
        in_feature=strides[0][1],
        in_spatial=a3(strides[0][2:]),
        kernel=kern.data_ptr(),
        kernel_in=strides[1][0],
        kernel_out=strides[1][1],
        kernel_spatial=a3(strides[1][2:]),
        out=o.data_ptr(),
        out_batch=strides[2][0],
        out_feature=strides[2][1],
        out_spatial=a3(strides[2][2:]),
        **args,
    )
    work = 2.0 * n * cout * out * out * cin // groups * k * k
    label = (
        f"{kind} {str(dtype)[6:]} n{n} {cin}->{cout} {size}x{size} k{k} s{stride} g{groups}{' last' if last else ''}"
    )
    compare(label, lib.bench_conv, g, run, work, "GF/s")
    want = run()
    error = (o.double() - want.double()).abs().max().item() / want.double().abs().max().item()
    assert error < (1e-4 if dtype in (torch.float32, torch.float64) else 2e-2), error


RESNET = [
    (3, 64, 224, 7, 2, 3),
    (64, 64, 56, 3, 1, 1),
    (64, 256, 56, 1, 1, 0),
    (128, 128, 56, 3, 2, 1),
    (128, 128, 28, 3, 1, 1),
    (256, 256, 14, 3, 1, 1),
    (512, 512, 7, 3, 1, 1),
    (256, 512, 56, 1, 2, 0),
]


def random(dtype, *shape):
    return torch.randint(-9, 9, shape, dtype=dtype) if dtype == torch.int8 else torch.randn(*shape).to(dtype)


def main():
    lib = c.CDLL(sys.argv[1])
    args = sys.argv[2:]
    threads = 2
    if "--threads" in args:
        i = args.index("--threads")
        threads = int(args[i + 1])
        del args[i : i + 2]
    if threads == 1:  # what other processes do then counts less
        global clock
        clock = time.process_time
    torch.set_num_threads(threads)
    lib.bench_threads(threads)
    what = args or ["gemm", "skinny", "small", "conv", "attention"]
    if "gemm" in what:
        for n in (128, 256, 512, 1024, 2048):
            a, b = random(torch.float32, n, n), random(torch.float32, n, n)
            gemm(lib, a, b)
            gemm(lib, a, b.t())
            gemm(lib, a, b.t(), packed=True)
        gemm(lib, random(torch.float32, 4096, 256), random(torch.float32, 256, 256))
        gemm(lib, random(torch.float32, 128, 768), random(torch.float32, 3072, 768).t())
    if "types" in what:
        for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int8):
            for n in (64, 256, 1024):
                a, b = random(dtype, n, n), random(dtype, n, n)
                gemm(lib, a, b)
                gemm(lib, a, b.t(), packed=True)
    if "small" in what:
        for dtype in (torch.float32, torch.bfloat16):
            for n in (4, 8, 16, 32, 64, 96):
                gemm(lib, random(dtype, n, n), random(dtype, n, n))
                gemm(lib, random(dtype, n, n), random(dtype, n, n).t())
    if "skinny" in what:
        for dtype in (torch.float32, torch.bfloat16):
            for m in (1, 4, 8, 16):
                for n, k in ((2048, 2048), (4096, 4096), (768, 3072)):
                    gemm(lib, random(dtype, m, k), random(dtype, n, k).t(), bytes_=True)
                    gemm(lib, random(dtype, m, k), random(dtype, k, n), bytes_=True)
    if "conv" in what:
        for n in (1, 8):
            for last in (False, True):
                for cin, cout, size, k, stride, pad in RESNET:
                    conv(lib, n, cin, cout, size, k, stride, pad, last=last)
    if "backward" in what:
        for kind in ("input", "weight"):
            for last in (False, True):
                for cin, cout, size, k, stride, pad in RESNET[1:]:
                    conv(lib, 8, cin, cout, size, k, stride, pad, last=last, kind=kind)
    if "attention" in what:
        for dtype in (torch.float32, torch.bfloat16):
            attention(lib, 1, 12, 12, 128, 128, 64, True, dtype)
            attention(lib, 1, 12, 12, 128, 128, 64, False, dtype)
            attention(lib, 1, 12, 12, 1024, 1024, 64, True, dtype)
            attention(lib, 1, 4, 4, 2048, 2048, 128, True, dtype)
            attention(lib, 1, 12, 12, 1, 128, 64, False, dtype)
            attention(lib, 1, 12, 12, 1, 1024, 64, False, dtype)
            attention(lib, 1, 32, 8, 1, 4096, 128, False, dtype)
            attention(lib, 8, 12, 12, 64, 64, 64, False, dtype)
    if "depthwise" in what:
        for last in (False, True):
            for channels, size, k, stride in ((32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (384, 14, 7, 1)):
                conv(lib, 1, channels, channels, size, k, stride, groups=channels, last=last)
        conv(lib, 1, 128, 128, 56, 3, groups=32)


main()
