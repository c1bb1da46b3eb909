"""What run.py adds to pytest: which of a library's tests run, and what became of each, a JSON line a test.

The settings come as environment variables, because pytest-xdist's workers inherit those:

LIBRARIES_DEVICE   cpu or tpu
LIBRARIES_PACKAGE  the library: as installed, not as in the tree, which pytest puts before all else
LIBRARIES_WITHOUT  tests whose name matches this regular expression do not run
LIBRARIES_PART     i/n: of the tests one in n, by a hash of the name
LIBRARIES_CHOICE   a file with the tests to run, a line each; all without it
LIBRARIES_RESULTS  the file that results are appended to
"""

import importlib
import os
import re
import zlib
from pathlib import Path

import torchvision_operators
import upstream_plugin

torchvision_operators.define_torchvision_operators()  # before a conftest.py of the library is imported
importlib.import_module(os.environ["LIBRARIES_PACKAGE"])


class Choice:
    """In a worker: the choice of tests."""

    def __init__(self):
        path = os.environ.get("LIBRARIES_CHOICE")
        without = os.environ.get("LIBRARIES_WITHOUT")
        self.without = re.compile(without) if without else None
        self.chosen = set(Path(path).read_text().splitlines()) if path else None
        self.part, self.parts = (int(number) for number in os.environ.get("LIBRARIES_PART", "0/1").split("/"))

    def wanted(self, item) -> bool:
        """Whether a test runs."""
        if self.without and self.without.search(item.nodeid):
            return False
        if self.chosen is not None:
            return item.nodeid in self.chosen
        return zlib.crc32(item.nodeid.encode()) % self.parts == self.part

    def pytest_collection_modifyitems(self, config, items):
        """Leave out what was not asked for."""
        config.hook.pytest_deselected(items=[item for item in items if not self.wanted(item)])
        items[:] = [item for item in items if self.wanted(item)]


class Results(upstream_plugin.Results):
    """In the controller: as of upstream's tests, but a test has one name on all devices."""

    def key(self, nodeid: str) -> str:
        """What names a test on both devices."""
        return nodeid


def pytest_configure(config):
    """Each process of the run has its part."""
    device = os.environ["LIBRARIES_DEVICE"]
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Choice())
        if device == "tpu":
            config.pluginmanager.register(upstream_plugin.LateErrors())
    else:
        config.pluginmanager.register(Results(device, os.environ["LIBRARIES_RESULTS"]))
