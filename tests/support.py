"""What the Python tests share beside their fixtures: a fresh interpreter, and comparing with the CPU."""

import os
import socket
import subprocess
import sys

import pytest

import torch

TORCHRUN = "torch.distributed.run", "--standalone", "--nproc-per-node"


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _run_python(arguments: list[str], check: bool, seconds: float, cwd: str | None = None, **environment: str):
    variables = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1", **environment}
    variables = {name: value for name, value in variables.items() if value != ""}
    done = subprocess.run(
        [sys.executable, *arguments], env=variables, cwd=cwd, capture_output=True, text=True, timeout=seconds
    )
    if check and done.returncode != 0:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def in_fresh_python(
    code: str, check: bool = True, cwd: str | None = None, **environment: str
) -> subprocess.CompletedProcess:
    """Run code in an interpreter of its own; a failure shows all that it printed.

    An environment variable given as "" is removed. PyTorch loads the backend unless the caller switches that off.
    """
    return _run_python(["-c", code], check, 300, cwd, **environment)


def in_processes(code: str, processes: int, folder, *arguments: str, launcher: tuple[str, ...] = TORCHRUN) -> str:
    """Run code in as many processes as a launcher starts, torchrun if no other one is given, and give what it prints.

    The folder is for the script, which imports what this process can; `sys.argv[1:]` are the arguments.
    """
    script = os.path.join(folder, "script.py")
    with open(script, "w") as file:
        file.write(code)
    launched = ["-m", *launcher, str(processes), script, *arguments]
    paths = os.pathsep.join(sys.path)
    return _run_python(launched, True, 400, OMP_NUM_THREADS="1", PYTHONPATH=paths).stdout


def assert_same(actual: torch.Tensor, expected: torch.Tensor, **tolerances) -> None:
    """Values, dtype and sizes agree; the actual one is on tpu."""
    assert actual.device.type == "tpu"
    torch.testing.assert_close(actual.detach().cpu(), expected.detach().cpu(), equal_nan=True, **tolerances)


def assert_values(actual: torch.Tensor, expected: list | float | bool, **tolerances) -> None:
    """Values and sizes are those given, whatever the dtype; the actual one is on tpu."""
    expected = torch.as_tensor(expected, device="cpu").to(actual.dtype)
    assert_same(actual, expected, **tolerances)


def on_both(function, *tensors: torch.Tensor, **tolerances) -> None:
    """The function gives on tpu copies what it gives on the CPU tensors themselves; strides and offsets go along."""
    expected = function(*tensors)
    assert_same(function(*(to_tpu(tensor) for tensor in tensors)), expected, **tolerances)


def to_tpu(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on tpu with the same strides and offset over a copy of the whole storage."""
    if tensor.numel() == 0:
        return tensor.to("tpu")
    storage = torch.empty(0, dtype=tensor.dtype).set_(tensor.detach().untyped_storage())
    moved = storage.to("tpu").as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    return moved.requires_grad_(tensor.requires_grad)
