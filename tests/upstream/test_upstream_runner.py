"""run.py on a made-up file of PyTorch's device-generic kind: what it counts, what it lists, what it survives."""

import contextlib
import io
import json

import pytest
import run

FILE = """
import os
import time
import unittest

import torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCPU
from torch.testing._internal.common_utils import TestCase, skipIfMps  # an old name


class TestGeneric(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_same(self, device, dtype):
        self.assertEqual(torch.ones(2, device=device, dtype=dtype).sum().item(), 2)

    @skipIfMps
    def test_to_cpu_differs(self, device):
        self.assertEqual(torch.ones(2, device=device).device.type, "cpu")

    def test_fails_on_both(self, device):
        self.fail("no baseline")

    @unittest.expectedFailure
    def test_expected_failure(self, device):
        self.fail("no baseline either")

    @onlyCPU
    def test_same_as_ones_cpu(self, device):  # a name that another gets
        pass

    def test_same_as_ones(self, device):
        self.assertEqual(torch.ones(2, device=device), torch.full((2,), 1.0))

    def test_kills_its_process(self, device):
        if torch.device(device).type == "tpu":
            os.abort()

    def test_hangs(self, device):
        if torch.device(device).type == "tpu":
            time.sleep(60)

    def test_late_error(self, device):
        source, index = torch.ones(3, device=device), torch.tensor([7], device=device)
        with self.assertRaises(IndexError):
            source[index]

    def test_late_error_left_behind(self, device):
        if torch.device(device).type == "tpu":
            torch.ones(3, device=device)[torch.tensor([7], device=device)]

    def test_zero_after_the_others(self, device):
        self.assertEqual(torch.zeros(2, device=device).sum().item(), 0)

    def test_not_asked_for(self, device):
        self.fail("-k leaves it out")


class TestWithoutDevice(TestCase):
    def test_other(self):
        self.fail("not of a device")


instantiate_device_type_tests(TestGeneric, globals())


class TestNamedAfterTheDevice(TestCase):
    def setUp(self):
        super(self.__class__, self).setUp()  # which is for ever in a subclass

    def test_second_class(self, device):
        self.assertEqual(torch.ones(2, device=device).sum().item(), 2)


instantiate_device_type_tests(TestNamedAfterTheDevice, globals())
"""

DIFFERENT = ("to_cpu_differs", "kills_its_process", "hangs", "late_error_left_behind")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A test folder with one file that runs, one that cannot be imported."""
    path = tmp_path_factory.mktemp("upstream")
    (path / "test_generic.py").write_text(FILE)
    (path / "test_broken.py").write_text("import a_module_that_nobody_has")
    return path


@pytest.fixture(scope="module")
def report(folder):
    """What run.py printed and what it wrote."""
    path, printed = folder / "report", io.StringIO()
    arguments = [str(folder), "test_broken", "test_generic.py", "--jobs=1", "--timeout=10", f"--json={path}"]
    with contextlib.redirect_stdout(printed):
        assert run.main([*arguments, "-k", "not asked_for"]) == 1
    return printed.getvalue(), path


def test_lists_what_passes_on_cpu_alone(report):
    printed, path = report
    results = json.loads(path.read_text())["files"]["test_generic.py"]["tpu"]["results"]
    failed = {key for key, result in results.items() if result["outcome"] == "failed"}
    assert failed == {f"TestGeneric.test_{name}" for name in DIFFERENT}
    assert all(f"TestGenericPRIVATEUSE1::test_{name}_tpu\n" in printed for name in DIFFERENT)
    for part in ("crashed", "Timeout", "index is out of", "skipped 1: Only runs on", "a_module_that_nobody_has"):
        assert part in printed
    assert "not_asked_for" not in printed


def test_counts_what_has_a_counterpart(report):
    printed, _ = report
    assert columns(printed, "test_broken.py") == ["0", "0", "100.00", "0", "0"]
    assert columns(printed, "test_generic.py") == columns(printed, "all") == ["10", "6", "60.00", "0", "1"]


def test_runs_again_what_failed(folder, report, capsys):
    arguments = [str(folder), "test_generic", "--jobs=1", "--timeout=10", f"--again={report[1]}"]
    assert run.main(arguments) == 1
    assert columns(capsys.readouterr().out, "all") == ["10", "6", "60.00", "0", "1"]


def columns(printed: str, name: str) -> list[str]:
    """A line of the summary: passed on cpu, on tpu, per cent, skipped."""
    (line,) = (line for line in printed.splitlines() if line.startswith(f"{name}  "))
    return line.split()[1:]


def test_refuses_a_file_that_is_not_there(folder):
    with pytest.raises(SystemExit):
        run.main([str(folder), "test_nowhere"])
