"""Models and inputs as Transformers' own tests make them, from a source tree of Transformers.

The installed package has no tests. Where a tree is at hand (`sweep.py --testers PATH`), a type's tiny configuration in
them comes before one of our own making (`shrink.py`, `batches.py`). The tree may be of another version than the
installed package: what does not fit shows when the model is run on the CPU.
"""

import contextlib
import copy
import importlib
import inspect
import os
import pathlib
import re
import sys
import unittest
from collections.abc import Iterator
from typing import Any

import transformers
from shrink import RANDOM
from transformers import CONFIG_MAPPING
from trial import describe

import torch

VARIABLE = "SWEEP_TESTERS"


def use(path: pathlib.Path) -> None:
    """Take testers from this source tree, in this process and its children."""
    if not (path / "tests/models").is_dir():
        raise ValueError(f"{path} is no source tree of Transformers: it has no tests/models")
    os.environ[VARIABLE] = str(path.resolve())
    os.environ["HF_HUB_OFFLINE"] = "1"  # what a test would download is missing at once instead of after many tries


def preload() -> None:
    """Import what all tests import, once for all workers."""
    if tree := os.environ.get(VARIABLE):
        # The tests choose their device when they are imported; what they make is moved later.
        os.environ["TRANSFORMERS_TEST_DEVICE"] = "cpu"
        sys.path.insert(0, tree)
        importlib.import_module("tests.test_modeling_common")


def test_classes(model_type: str, reasons: list[str]) -> Iterator[type[unittest.TestCase]]:
    """The test classes in the folder of a type that have a tester."""
    tree = os.environ.get(VARIABLE)
    folder = CONFIG_MAPPING[model_type].__module__.split(".")[2]
    files = sorted(pathlib.Path(tree, "tests/models", folder).glob("test_modeling_*.py")) if tree else []
    if not files:
        return
    for file in files:
        try:
            module = importlib.import_module(f"tests.models.{folder}.{file.stem}")
        except Exception as error:  # it needs a package that is not there, or is of another version
            reasons.append(f"{file.name}: {describe(error)}")
            continue
        for member in vars(module).values():
            own = isinstance(member, type) and member.__module__ == module.__name__
            if own and issubclass(member, unittest.TestCase) and hasattr(member, "_prepare_for_class"):
                yield member


def configurations(model_type: str, reasons: list[str]) -> Iterator[tuple[type, Any, dict[str, Any]]]:
    """All classes in the folder of a type, each with its tests' configuration and the inputs of a call."""
    for test_class in test_classes(model_type, reasons):
        test = test_class()
        try:
            test.setUp()
            torch.manual_seed(0)
            config, inputs = test.model_tester.prepare_config_and_inputs_for_common()
        except Exception as error:
            reasons.append(f"{test_class.__name__}: {describe(error)}")
            continue
        without_randomness(config)
        for model_class in test.all_model_classes:
            yield model_class, config, test._prepare_for_class(inputs, model_class, return_labels=True)


def wholes(
    model_type: str, preferred: list[str], reasons: list[str]
) -> Iterator[tuple[torch.nn.Module, dict[str, Any]]]:
    """Models of a type and the inputs of a call: those classes first that `preferred` names."""
    wanted = CONFIG_MAPPING[model_type]
    found = [item for item in configurations(model_type, reasons) if type(item[1]) is wanted]

    def rank(item: tuple) -> int:
        name = item[0].__name__
        return preferred.index(name) if name in preferred else len(preferred)

    for model_class, config, inputs in sorted(found, key=rank):
        model = make(model_class, config, reasons)
        if model is not None:
            yield model, inputs


def parts(model_type: str, reasons: list[str]) -> Iterator[tuple[torch.nn.Module, dict[str, Any]]]:
    """Modules made from a type's configuration inside of larger models, and the inputs that those give them."""
    wanted = CONFIG_MAPPING[model_type]
    for model_class, config, inputs in configurations(model_type, reasons):
        whole = make(model_class, config, reasons)
        modules = whole.modules() if whole is not None else ()
        part = next((module for module in modules if type(getattr(module, "config", None)) is wanted), None)
        if part is None:
            continue
        calls: list[dict[str, Any]] = []
        part.register_forward_pre_hook(
            lambda part, *given, calls=calls: calls.append(named(part, *given)), with_kwargs=True
        )
        with torch.no_grad(), contextlib.suppress(Exception):  # what the whole does behind this part is of no interest
            whole(**inputs)
        part._forward_pre_hooks.clear()
        part._forward_pre_hooks_with_kwargs.clear()
        if calls:
            yield part, calls[0]


def make(model_class: type, config: Any, reasons: list[str]) -> torch.nn.Module | None:
    """A model in evaluation, or None and why there is none."""
    torch.manual_seed(0)
    try:
        return model_class(config).eval()
    except Exception as error:
        reasons.append(f"{model_class.__name__} with its tests' configuration: {describe(error)}")
        return None


def named(module: torch.nn.Module, arguments: tuple, keywords: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, copied, without caches: they would hold what a first call puts in."""
    signature = inspect.signature(module.forward)
    bound = signature.bind(*arguments, **keywords).arguments
    given = {}
    for name, value in (bound | bound.pop("kwargs", {})).items():
        required = name in signature.parameters and signature.parameters[name].default is inspect.Parameter.empty
        if required or not (value is None or "Cache" in type(value).__name__):
            given[name] = copy.deepcopy(value)
    return given


def without_randomness(config: transformers.PreTrainedConfig) -> None:
    """Switch dropout off, as our own configurations do, also in configurations inside this one."""
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PreTrainedConfig):
            without_randomness(value)
        elif isinstance(value, float) and re.search(RANDOM, name):
            setattr(config, name, 0.0)
