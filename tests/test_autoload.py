"""A plain PyTorch program gets the device by name alone, quickly, and pays nothing before the first use."""

from support import in_fresh_python


def test_plain_program():
    out = in_fresh_python('import torch; x = torch.randn(3, device="tpu"); print(x.device, (x * 0).sum().item())')
    assert out.stdout.split() == ["tpu:0", "0.0"]


def test_autoload_switched_off():
    code = """
import sys, torch
try:
    torch.device("tpu")
except RuntimeError:
    print("unknown", "torch_tpu" in sys.modules)
import torch_tpu
print(torch.ones(2, device="tpu").sum().item())
"""
    assert in_fresh_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.split() == ["unknown", "False", "2.0"]


def test_every_way_in():
    for load in (
        "import torch_tpu",
        "import torch_tpu._loader; torch_tpu._loader.load()",
        "import torch_tpu.api; assert torch_tpu.api.tpu_device() == torch.device('tpu')",
        "from torch_tpu.api import tpu_device; assert tpu_device(0) == torch.device('tpu:0')",
    ):
        for autoload in ("0", "1"):
            code = f"import torch\n{load}\nimport torch_tpu\ntorch_tpu.load()\n"
            code += "print(torch.ones(2, device='tpu').sum().item())"
            assert in_fresh_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload).stdout.split() == ["2.0"]


def test_backend_imported_first():
    code = "import torch_tpu, torch; print(torch.ones(2, device='tpu').sum().item())"
    assert in_fresh_python(code).stdout.split() == ["2.0"]


def test_import_starts_nothing():
    """No plugin is loaded, no thread is started and no device opened until a tensor is wanted."""
    code = """
import os, torch
maps = open("/proc/self/maps").read()
print("libttpu_soft" in maps, torch.tpu.is_initialized())
torch.manual_seed(1)
torch.get_rng_state()
torch.ones(4, 4) @ torch.ones(4, 4)
print(torch.tpu.is_initialized())
torch.ones(1, device="tpu")
print("libttpu_soft" in open("/proc/self/maps").read(), torch.tpu.is_initialized())
"""
    assert in_fresh_python(code).stdout.split() == ["False", "False", "False", "True", "True"]


def test_import_time():
    """The backend adds at most 60 ms to `import torch`, or a part of it that grows with how slow the machine is now.

    The time is that of loading it in a process that has imported PyTorch, so that the seconds of that are not in it, in
    processor time, the least of several: other tests run beside this one.
    """
    code = """
import time
start = time.process_time()
import torch
middle = time.process_time()
import torch_tpu
print(middle - start, time.process_time() - middle)
"""
    runs = [in_fresh_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.split() for _ in range(5)]
    torch_seconds = min(float(run[0]) for run in runs)
    added = min(float(run[1]) for run in runs)
    assert added <= max(0.060, 0.04 * torch_seconds), (
        f"{added * 1e3:.0f} ms beside {torch_seconds * 1e3:.0f} ms of torch"
    )


def test_command_line():
    out = in_fresh_python("from torch_tpu.cli import main; main(['info'])").stdout
    for expected in ("ttpu ", "PyTorch 2.13", "libttpu_soft.so", "software TPU", "PJRT C API", "tpu:0", "GiB", "cores"):
        assert expected in out
    listed = in_fresh_python("from torch_tpu.cli import main; main(['ops', '--status', 'native'])").stdout.split()
    assert "add.Tensor" in listed and "mm" in listed and len(listed) >= 300
