"""One model of each family (module) of timm, as a case of the sweep: its smallest, on small images."""

import functools
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

from torchvision_operators import define_torchvision_operators
from trial import Case, describe

import torch

SIZES = {"test_": 0, "atto": 1, "femto": 2, "pico": 3, "nano": 4, "zepto": 1, "xx?tiny|xxs": 5, "tiny|_xs|_t_": 6}
SMALL_SIDE = 64
CLASSES = 10
CANDIDATES = 4
MOST_PARAMETERS = 60_000_000
# What makes a model smaller whose family has no small one; families differ in what they take.
SHRINKS: tuple[dict[str, Any], ...] = ({}, {"depth": 2}, {"channel_multiplier": 0.25}, {"num_features": 1056})


def preload() -> None:
    load()


def load() -> types.ModuleType:
    """timm, which imports torchvision, whose wheel wants operators that only its own library defines."""
    define_torchvision_operators()
    return importlib.import_module("timm")


def names() -> list[str]:
    timm = load()
    return [module for module in timm.list_modules() if timm.list_models(module=module)]


def candidates(module: str) -> list[str]:
    """A family's models, those whose names say that they are small first."""

    def rank(name: str) -> tuple[int, int, str]:
        sizes = [size for pattern, size in SIZES.items() if re.search(pattern, name)]
        digits = [int(number) for number in re.findall(r"\d+", name)]
        return min(sizes, default=10), min(digits, default=1000), name

    return sorted(load().list_models(module=module), key=rank)[:CANDIDATES]


def shrink(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments with which the model is not too large, none where it is not anyway, and what it says of its inputs."""
    for options in SHRINKS:
        try:
            with torch.device("meta"):
                model = load().create_model(name, num_classes=CLASSES, **options)
        except TypeError:
            if not options:
                raise
            continue  # this one has no such argument
        if sum(parameter.numel() for parameter in model.parameters()) <= MOST_PARAMETERS:
            return options, model.pretrained_cfg
    raise ValueError(f"{name}: too large")


def attempts(name: str) -> Iterator[tuple[torch.nn.Module, int, str]]:
    """The model with a side of images to try, smaller ones first, and how it was made smaller."""
    options, config = shrink(name)
    create = functools.partial(load().create_model, name, num_classes=CLASSES, **options)
    plan = "".join(f", {key} {value}" for key, value in options.items())
    try:
        yield create(img_size=SMALL_SIDE), SMALL_SIDE, plan
    except TypeError:  # it takes images of any size
        yield create(), SMALL_SIDE, plan
        yield create(), 2 * SMALL_SIDE, plan
    yield create(), config["input_size"][-1], plan


def make_case(module: str) -> Case:
    """The first model of the family that runs on the CPU."""
    reasons = []
    for name in candidates(module):
        torch.manual_seed(0)
        try:
            for model, side, plan in attempts(name):
                case = run_on_cpu(model, name, side, plan, reasons)
                if case is not None:
                    return case
        except Exception as error:
            reasons.append(f"{name}: {describe(error)}")
    raise ValueError(reasons)


def run_on_cpu(model: torch.nn.Module, name: str, side: int, plan: str, reasons: list[str]) -> Case | None:
    argument = next(iter(inspect.signature(model.forward).parameters))
    channels = model.pretrained_cfg["input_size"][0]
    batch = {argument: torch.randn(2, channels, side, side, generator=torch.Generator().manual_seed(0))}
    try:
        with torch.no_grad():
            model.eval()(**batch)
    except Exception as error:
        reasons.append(f"{name}, {side} pixels: {describe(error)}")
        return None
    size = sum(parameter.numel() for parameter in model.parameters())
    return Case(model, batch, notes={"class": name, "plan": f"{side} pixels{plan}", "parameters": size})
