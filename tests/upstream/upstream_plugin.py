"""What run.py adds to pytest: which tests of an upstream file run, and what became of each, a JSON line a test.

The settings come as environment variables, because pytest-xdist's workers inherit those:

UPSTREAM_SUFFIX    only test classes that PyTorch made for a device, with this ending: CPU or PRIVATEUSE1
UPSTREAM_WITHOUT   tests whose name matches this regular expression do not run
UPSTREAM_PART      i/n: of the tests one in n, by a hash of the key
UPSTREAM_CHOICE    a file with the keys of the tests to run, a line each; all of the device's without it
UPSTREAM_RESULTS   the file that results are appended to
"""

import contextlib
import importlib
import json
import os
import re
import unittest.case
import zlib
from pathlib import Path

import pytest
import shims

DEVICE_NAMES = {"CPU": "cpu", "PRIVATEUSE1": "tpu"}
# PyTorch 2.13 writes the renamed device's name into the base class once a test class of a file is set up, so the
# classes that the file makes after it end in that name
CLASS_ENDINGS = {"CPU": ("CPU",), "PRIVATEUSE1": ("PRIVATEUSE1", "TPU")}
RANK = {"passed": 0, "skipped": 1, "failed": 2}  # of several phases of a test the worst counts


def key_of(nodeid: str, suffix: str) -> str:
    """The name of a test without its device: the same for both devices."""
    _, class_name, name = nodeid.split("::")
    places = list(re.finditer(f"_{DEVICE_NAMES[suffix]}(?=_|$)", name))
    if places:  # the last: parameters come before the device, dtypes after it
        name = name[: places[-1].start()] + name[places[-1].end() :]
    for ending in CLASS_ENDINGS[suffix]:
        class_name = class_name.removesuffix(ending)
    return f"{class_name}.{name}"


def is_of_device(item, suffix: str) -> bool:
    """Whether PyTorch made the test for one device out of a device-generic class."""
    made_for_device = hasattr(item.cls, "device_type") and hasattr(item.cls, "get_primary_device")
    return made_for_device and item.cls.__name__.endswith(CLASS_ENDINGS[suffix])


def message_of(report) -> str:
    """The first line of an error, or the reason of a skip."""
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):
        text = longrepr[2].removeprefix("Skipped: ")
    elif hasattr(longrepr, "reprcrash") and longrepr.reprcrash:
        text = longrepr.reprcrash.message
    else:
        text = str(longrepr or "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # the exception's type may stand alone in its line
    return " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])[:500]


class Choice:
    """In a worker: the stand-ins, and the choice of tests."""

    def __init__(self, suffix: str):
        self.suffix = suffix
        path = os.environ.get("UPSTREAM_CHOICE")
        without = os.environ.get("UPSTREAM_WITHOUT")
        self.without = re.compile(without) if without else None
        self.chosen = set(Path(path).read_text().splitlines()) if path else None
        self.part, self.parts = (int(number) for number in os.environ.get("UPSTREAM_PART", "0/1").split("/"))

    def pytest_collectstart(self, collector):
        """Just before a file is imported."""
        if isinstance(collector, pytest.Module):
            shims.install(collector.path.read_text())

    def pytest_collection_modifyitems(self, config, items):
        """Leave out what is not of the device, and what was not asked for."""

        def wanted(item):
            if not is_of_device(item, self.suffix):
                return False
            if self.without and self.without.search(item.name):
                return False
            key = key_of(item.nodeid, self.suffix)
            return zlib.crc32(key.encode()) % self.parts == self.part and (self.chosen is None or key in self.chosen)

        config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
        items[:] = [item for item in items if wanted(item)]


class LateErrors:
    """In a worker on tpu: an error found while a program runs is raised at the next synchronisation.

    So a test that expects an error synchronises at the end of its `assertRaises`, and every test at its own end: no
    error reaches the test after it.
    """

    def __init__(self):
        self.synchronize = importlib.import_module("torch").tpu.synchronize  # here: the controller needs no torch
        synchronize = self.synchronize
        context = unittest.case._AssertRaisesContext
        leave = context.__exit__

        def synchronize_and_leave(self, kind, error, traceback):
            if kind is None:
                try:
                    synchronize()
                except Exception as late:
                    kind, error, traceback = type(late), late, late.__traceback__
                    if not issubclass(kind, self.expected):
                        raise
            return leave(self, kind, error, traceback)

        context.__exit__ = synchronize_and_leave

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """The error that a test leaves behind is its own."""
        try:
            result = yield
        except BaseException:
            with contextlib.suppress(Exception):
                self.synchronize()
            raise
        self.synchronize()
        return result


class Results:
    """In the controller: a JSON line for each test that is through, and for each file that cannot be imported."""

    def __init__(self, suffix: str, path: str):
        self.suffix = suffix
        self.file = open(path, "a", buffering=1)
        self.running = {}

    def key(self, nodeid: str) -> str:
        """What names a test on both devices."""
        return key_of(nodeid, self.suffix)

    def write(self, **line):
        """Append one result."""
        self.file.write(json.dumps(line) + "\n")

    def pytest_collectreport(self, report):
        """A file that cannot be imported."""
        if report.failed:
            last = str(report.longrepr).strip().splitlines()[-1]
            self.write(collect=report.nodeid, message=last.removeprefix("E").strip())

    def pytest_runtest_logreport(self, report):
        """A phase of a test: setup, call, teardown; a crashed worker reports a phase named "???" and no other."""
        outcome = "skipped" if hasattr(report, "wasxfail") else report.outcome
        worst, message = self.running.get(report.nodeid, ("passed", ""))
        if RANK[outcome] > RANK[worst]:
            worst, message = outcome, message_of(report)
        self.running[report.nodeid] = worst, message
        if report.when not in ("setup", "call"):
            del self.running[report.nodeid]
            self.write(key=self.key(report.nodeid), test=report.nodeid, outcome=worst, message=message)


def pytest_configure(config):
    """Each process of the run has its part."""
    suffix = os.environ["UPSTREAM_SUFFIX"]
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Choice(suffix))
        if suffix != "CPU":
            config.pluginmanager.register(LateErrors())
    else:
        config.pluginmanager.register(Results(suffix, os.environ["UPSTREAM_RESULTS"]))
