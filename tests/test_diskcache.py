"""Programs on disk: found again by another process, and never trusted when damaged."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

PROGRAM = """
import torch
torch.manual_seed(0)
layers = torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
model = torch.nn.Sequential(*layers).to("tpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = torch.randn(5, 8).to("tpu"), torch.tensor([0, 1, 2, 3, 0]).to("tpu")
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
counters = torch.tpu.counters()
print(repr(loss.item()), counters["programs_built"], torch.tpu.counters()["programs_loaded"])
"""


def start(folder: pathlib.Path) -> subprocess.Popen:
    """The program in a process of its own, an operator at a time so that there are many files."""
    environment = {**os.environ, "TTPU_CACHE": "always", "TTPU_CACHE_DIR": str(folder), "TTPU_MODE": "eager"}
    command = [sys.executable, "-c", "import torch_tpu\n" + PROGRAM]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def run(folder: pathlib.Path) -> tuple[str, int, int]:
    """The loss, and how many programs were built and loaded."""
    process = start(folder)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    loss, built, loaded = output.split()
    return loss, int(built), int(loaded)


def test_found_again(tmp_path):
    loss, built, loaded = run(tmp_path)
    assert built > 10 and loaded == 0
    assert len(list(tmp_path.glob("*.program"))) >= built
    assert run(tmp_path)[:2] == (loss, 0)


@pytest.mark.parametrize("damage", ["bytes", "short", "empty", "foreign"])
def test_damaged_files_are_ignored_and_replaced(tmp_path, damage):
    loss, built, _ = run(tmp_path)
    for file in tmp_path.glob("*.program"):
        content = bytearray(file.read_bytes())
        if damage == "bytes":
            content[-5] ^= 0xFF
        elif damage == "short":
            del content[len(content) // 2 :]
        elif damage == "empty":
            content.clear()
        else:
            content[8] ^= 0xFF  # another build's salt
        file.write_bytes(content)
    assert run(tmp_path) == (loss, built, 0)
    assert run(tmp_path)[:2] == (loss, 0)


def test_killed_while_writing(tmp_path):
    expected = run(tmp_path / "whole")[0]
    folder = tmp_path / "killed"
    process = start(folder)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list(folder.glob("*.program"))) < 5:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert list(folder.glob("*.program"))
    assert run(folder)[0] == expected
