"""One model of each family (module) of timm, as a case of the sweep: its smallest, on small images."""

import importlib
import inspect
import re
import types
from collections.abc import Iterator

from torchvision_operators import define_torchvision_operators
from trial import Case, describe

import torch

SIZES = {"test_": 0, "atto": 1, "femto": 2, "pico": 3, "nano": 4, "zepto": 1, "xx?tiny|xxs": 5, "tiny|_xs|_t_": 6}
SMALL_SIDE = 64
CLASSES = 10
CANDIDATES = 4
MOST_PARAMETERS = 60_000_000


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


def attempts(name: str) -> Iterator[tuple[torch.nn.Module, int]]:
    """The model with a side of images to try, smaller ones first."""
    timm = load()
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=CLASSES)
    if sum(parameter.numel() for parameter in model.parameters()) > MOST_PARAMETERS:
        raise ValueError(f"{name}: too large")
    usual = model.pretrained_cfg["input_size"][-1]
    try:
        yield timm.create_model(name, num_classes=CLASSES, img_size=SMALL_SIDE), SMALL_SIDE
    except TypeError:  # it takes images of any size
        yield timm.create_model(name, num_classes=CLASSES), SMALL_SIDE
        yield timm.create_model(name, num_classes=CLASSES), 2 * SMALL_SIDE
    yield timm.create_model(name, num_classes=CLASSES), usual


def make_case(module: str) -> Case:
    """The first model of the family that runs on the CPU."""
    reasons = []
    for name in candidates(module):
        torch.manual_seed(0)
        try:
            for model, side in attempts(name):
                case = run_on_cpu(model, name, side, reasons)
                if case is not None:
                    return case
        except Exception as error:
            reasons.append(f"{name}: {describe(error)}")
    raise ValueError(reasons)


def run_on_cpu(model: torch.nn.Module, name: str, side: int, reasons: list[str]) -> Case | None:
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
    return Case(model, batch, notes={"class": name, "plan": f"{side} pixels", "parameters": size})
