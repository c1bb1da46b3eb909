"""run.py on a made-up source tree: what it counts, what it lists, what it survives."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("xdist")
pytest.importorskip("pytest_timeout")

RUNNER = Path(__file__).with_name("run.py")
NAME = "tests/models/llama/test_modeling_llama.py"
FILE = """
import os
import unittest

import pytest
import torch
import transformers

device = os.environ["TRANSFORMERS_TEST_DEVICE"]


class Model(unittest.TestCase):
    def test_same(self):
        self.assertEqual(torch.ones(2, device=device).sum().item(), 2)

    def test_fails_on_both(self):
        self.fail("no baseline")

    def test_differs(self):
        self.assertEqual(torch.ones(2, device=device).device.type, "cpu")

    @unittest.skipIf(device == "tpu", "not for tpu")
    def test_skips(self):
        pass

    def test_kills_its_process(self):
        if device == "tpu":
            os.abort()

    def test_late_error_left_behind(self):
        if device == "tpu":
            torch.ones(3, device=device)[torch.tensor([7], device=device)]

    def test_weights_hub(self):
        self.fail("downloads")


def test_cpu_knows_no_tpu(fixture_of_the_tree):
    assert fixture_of_the_tree == 1
    assert hasattr(torch, "tpu") == (device == "tpu")
"""
CONFTEST = """
import pytest


@pytest.fixture
def fixture_of_the_tree():
    return 1
"""


def run(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(RUNNER), *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


def test_what_counts(tmp_path):
    file = tmp_path / NAME
    file.parent.mkdir(parents=True)
    file.write_text(FILE)
    (tmp_path / "conftest.py").write_text(CONFTEST)  # here, so that pytest puts the tree before installed packages
    (tmp_path / "transformers.py").write_text("raise ImportError('not the installed one')")
    report = tmp_path / "report.json"
    done = run("transformers", tmp_path, "--jobs", 1, "--json", report)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"== {NAME}: 2 of 5" in done.stdout
    assert "skipped 1: not for tpu" in done.stdout
    for failure in ("test_differs", "test_kills_its_process", "test_late_error_left_behind"):
        assert f"{NAME}::Model::{failure}" in done.stdout
    assert "test_weights_hub" not in report.read_text()

    file.write_text(FILE.replace('.device.type, "cpu"', ".device.type, device"))
    done = run("transformers", tmp_path, "--jobs", 1, "--again", report, "--json", report)
    assert f"== {NAME}: 3 of 5" in done.stdout
    assert len(json.loads(report.read_text())["files"][NAME]["cpu"]["results"]) == 7


def test_wrong_calls(tmp_path):
    done = run("transformers", tmp_path)
    assert done.returncode == 2 and "is it its source tree" in done.stderr
    done = run("transformers", tmp_path, "tests/nothing.py")
    assert done.returncode == 2 and "no file tests/nothing.py" in done.stderr
    assert run("nolib", tmp_path).returncode == 2
