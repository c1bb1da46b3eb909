"""JAX on the software TPU: the programs of jax_programs.py, in a process of their own, and a few of JAX's own cases."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PLUGIN = HERE.parents[1] / "torch_tpu" / "lib" / "libttpu_soft.so"
NAMES = re.findall(r"^@program\ndef (\w+)", (HERE / "jax_programs.py").read_text(), re.MULTILINE)

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")


def run(*arguments: str) -> subprocess.CompletedProcess:
    environment = os.environ | {
        "PJRT_NAMES_AND_LIBRARY_PATHS": f"ttpu:{PLUGIN}",
        "JAX_PLATFORMS": "ttpu,cpu",
        "TTPU_TOPOLOGY": "v5e:2x2",
    }
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What is wrong with each program; absent: the process ended before it."""
    process = run(str(HERE / "jax_programs.py"))
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    outcomes = {line["name"]: line["wrong"] for line in lines}
    for name in NAMES:
        outcomes.setdefault(name, f"the process ended with {process.returncode} before:\n{process.stderr[-2000:]}")
    return outcomes


@pytest.mark.parametrize("name", NAMES)
def test_program(outcomes, name):
    assert not outcomes[name], outcomes[name]


def test_own_cases(tmp_path):
    """A few of JAX's own cases through the program that runs all of them."""
    pytest.importorskip("absl", reason="JAX's cases need absl-py")
    out = tmp_path / "results.jsonl"
    process = run(str(HERE / "harness.py"), "--out", str(out), "--every", "400", "--workers", "1")
    assert process.returncode == 0, process.stderr
    equal, total = map(int, re.search(r"(\d+) equal of (\d+)", process.stdout).groups())
    assert total >= 12 and equal >= total - 1, process.stdout
