"""Calls that wait for the import of a module."""

import importlib
import importlib.machinery
import importlib.util
import sys
import types

import pytest

from torch_tpu._imports import when_imported

SOURCE = """
import os, sys
if os.environ.get("WAITED_FOR_FAILS"):
    raise OSError
sys.modules["waits"].wait_from_within(__name__)
value = 1
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that can be imported and is not yet."""
    (tmp_path / "waited_for.py").write_text(SOURCE)
    waits = types.SimpleNamespace(wait_from_within=lambda name: None)
    monkeypatch.setitem(sys.modules, "waits", waits)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "waited_for"
    sys.modules.pop("waited_for", None)


def test_called_once_with_the_whole_module(module):
    seen = []
    when_imported(module, lambda found: seen.append(found.value))
    when_imported(module, lambda found: seen.append(found.value + 1))
    assert seen == []
    imported = importlib.import_module(module)
    assert seen == [1, 2]
    importlib.reload(imported)
    assert seen == [1, 2]
    when_imported(module, lambda found: seen.append(found is imported))
    assert seen == [1, 2, True]


def test_asking_where_a_module_is_does_not_use_the_call_up(module):
    """Libraries ask ``find_spec`` whether another is installed, and import it later."""
    seen = []
    when_imported(module, seen.append)
    assert importlib.util.find_spec(module).loader.get_source(module).endswith("value = 1\n")
    assert seen == []
    assert importlib.import_module(module) is seen[0]


def test_import_that_fails_may_be_tried_again(module, monkeypatch):
    seen = []
    when_imported(module, seen.append)
    with monkeypatch.context() as failing:
        failing.setenv("WAITED_FOR_FAILS", "1")
        with pytest.raises(OSError):
            importlib.import_module(module)
    assert seen == []
    assert importlib.import_module(module) is seen[0]


def test_import_that_has_begun(module):
    """A library that imports torch first is half imported when the backend is loaded."""
    seen = []
    wait = lambda name: when_imported(name, lambda found: seen.append(found.value))  # noqa: E731
    sys.modules["waits"].wait_from_within = wait
    importlib.import_module(module)
    assert seen == [1]


def test_nothing_is_left_in_the_module(module):
    when_imported(module, lambda found: None)
    imported = importlib.import_module(module)
    assert type(imported.__spec__) is importlib.machinery.ModuleSpec
    assert type(imported.__loader__) is type(importlib.util.find_spec("json").loader)


def test_module_that_does_not_exist():
    when_imported("no_such_module_anywhere", lambda found: None)
    assert importlib.util.find_spec("no_such_module_anywhere") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_anywhere")
