"""Calls that wait for the import of a module."""

import importlib
import importlib.util
import sys

import pytest

from torch_tpu._imports import when_imported


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that can be imported and is not yet."""
    (tmp_path / "waited_for.py").write_text(
        "import os\nif os.environ.get('WAITED_FOR_FAILS'): raise OSError\nvalue = 1\n"
    )
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


def test_module_keeps_its_own_loader(module, tmp_path):
    when_imported(module, lambda found: None)
    imported = importlib.import_module(module)
    other = importlib.util.find_spec("json")
    assert type(imported.__loader__) is type(imported.__spec__.loader) is type(other.loader)


def test_module_that_does_not_exist():
    when_imported("no_such_module_anywhere", lambda found: None)
    assert importlib.util.find_spec("no_such_module_anywhere") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_anywhere")
