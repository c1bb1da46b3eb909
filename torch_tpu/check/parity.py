"""The same module on CPU and on tpu, with the same weights and inputs: the first layer that differs, and how far."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

# How far a result may be from the CPU's, in parts of its largest element: what some hundred roundings amount to.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_MOST_INPUT_BYTES = 512 << 20
_MOST_KEPT_BYTES = 1 << 30  # of the CPU's results; layers beyond are not compared
_LEAST_GRADIENT = 1e-3  # of the largest gradient of all: what counts as a gradient's size
_DEPTH = 6  # of objects in objects


def moved(value: Any, device: str, depth: int = 0) -> Any:
    """A copy whose tensors are on a device, also those in containers and objects such as key-value caches."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device, copy=True)
    if isinstance(value, torch.nn.Module | type) or callable(value) or depth > _DEPTH:
        return value
    if isinstance(value, dict):
        made = copy.copy(value)
        for name, item in value.items():
            made[name] = moved(item, device, depth + 1)
        return made
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item, device, depth + 1) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(moved(item, device, depth + 1) for item in value)
    if hasattr(value, "__dict__"):
        made = copy.copy(value)
        for name, item in vars(value).items():
            setattr(made, name, moved(item, device, depth + 1))
        return made
    return value


def tensors_of(value: Any, depth: int = 0) -> list[torch.Tensor]:
    """The tensors in a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth > _DEPTH or isinstance(value, str | torch.nn.Module | type) or callable(value):
        return []
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, list | tuple):
        items = list(value)
    else:
        items = list(vars(value).values()) if hasattr(value, "__dict__") else []
    return [tensor for item in items for tensor in tensors_of(item, depth + 1)]


def difference(actual: torch.Tensor, expected: torch.Tensor, least: float = 0.0) -> float:
    """The largest difference in parts of the largest element, which counts as no less than ``least``.

    Infinite where sizes, NaN or infinities differ.
    """
    if actual.shape != expected.shape:
        return float("inf")
    if expected.numel() == 0:
        return 0.0
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        return 0.0 if torch.equal(actual, expected) else float("inf")
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    actual, expected = actual.to(wide), expected.to(wide)
    finite = torch.isfinite(expected)
    if not torch.equal(torch.isfinite(actual), finite) or not torch.equal(actual.isnan(), expected.isnan()):
        return float("inf")
    apart = torch.where(finite, (actual - expected).abs(), 0.0).max().item()
    scale = max(torch.where(finite, expected.abs(), 0.0).max().item(), least)
    return apart / scale if scale else apart


class Inputs:
    """A module and the arguments of its first call, kept on the CPU, to be called again when the program is over."""

    def __init__(self, module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        self.module = module
        self.error = ""
        self.args, self.kwargs = (), {}
        on = torch.is_autocast_enabled("tpu")
        self.autocast = torch.get_autocast_dtype("tpu") if on else None
        size = sum(t.numel() * t.element_size() for t in tensors_of((list(args), kwargs)))
        if size > _MOST_INPUT_BYTES:
            self.error = f"its arguments have {size >> 20} MiB; up to {_MOST_INPUT_BYTES >> 20} are kept to be compared"
            return
        try:
            self.args, self.kwargs = moved((args, kwargs), "cpu")
        except Exception as error:  # of an object of the program that cannot be copied: the program goes on
            self.error = f"its arguments cannot be kept: {type(error).__name__}: {error}"


class Layers:
    """Results of a module's parts, each with its name: those of the CPU are kept, those of tpu compared with them."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.names = {id(part): name or "(whole)" for name, part in module.named_modules()}
        self.kept: dict[tuple[str, int], list[torch.Tensor]] = {}
        self.rows: list[dict] = []
        self.left_out = 0
        self.tolerance = 0.0  # of the coarsest dtype that it computes with, whatever its results have
        self._bytes = 0
        self._calls: dict[str, int] = {}

    def _key(self, module: torch.nn.Module) -> tuple[str, int]:
        name = self.names.get(id(module), type(module).__name__)
        self._calls[name] = self._calls.get(name, 0) + 1
        return name, self._calls[name]

    def keep(self, module: torch.nn.Module, _: Any, result: Any) -> None:
        """A hook for the CPU."""
        tensors = [tensor.detach().clone() for tensor in tensors_of(result)]
        key, size = self._key(module), sum(t.numel() * t.element_size() for t in tensors)
        if self._bytes + size > _MOST_KEPT_BYTES:
            self.left_out += 1
            return
        self._bytes += size
        self.kept[key] = tensors

    def compare(self, module: torch.nn.Module, _: Any, result: Any) -> None:
        """A hook for tpu."""
        key = self._key(module)
        expected = self.kept.pop(key, None)
        if expected is None:
            return
        actual = [tensor.detach().cpu() for tensor in tensors_of(result)]
        layer = f"{key[0]} (call {key[1]})" if key[1] > 1 else key[0]
        self.rows.append(compared(layer, type(module).__name__, actual, expected, self.tolerance))

    @contextlib.contextmanager
    def hooked(self, module: torch.nn.Module, hook: Callable) -> Iterator[None]:
        """Within the block, the hook is called behind each part of the module."""
        self.names = {id(part): name or "(whole)" for name, part in module.named_modules()}
        self._calls.clear()
        handles = [part.register_forward_hook(hook) for part in module.modules()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def compared(
    layer: str,
    kind: str,
    actual: list[torch.Tensor],
    expected: list[torch.Tensor],
    tolerance: float = 0.0,
    least: float = 0.0,
) -> dict:
    """One row of the report: a layer, how far it is from the CPU, and how far it may be, at least ``tolerance``."""
    apart = max((difference(a, e, least) for a, e in zip(actual, expected, strict=False)), default=0.0)
    if len(actual) != len(expected):
        apart = float("inf")
    tolerance = max([tolerance, *(TOLERANCES.get(tensor.dtype, 0.0) for tensor in expected)])
    return {"layer": layer, "kind": kind, "difference": apart, "tolerance": tolerance, "agrees": apart <= tolerance}


def _coarsest(module: torch.nn.Module, inputs: Inputs) -> float:
    """The tolerance of the coarsest dtype in which a module computes: of its parameters, or autocast's."""
    dtypes = [parameter.dtype for parameter in module.parameters()]
    return max((TOLERANCES.get(dtype, 0.0) for dtype in [*dtypes, inputs.autocast]), default=0.0)


def _scalar_of(result: Any) -> torch.Tensor:
    """What a gradient can be taken of: the loss where the result has one, else the mean square of all numbers."""
    loss = getattr(result, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    numbers = [t.float() for t in tensors_of(result) if t.is_floating_point() and t.requires_grad]
    return sum(t.square().mean() for t in numbers)


def _run(module: torch.nn.Module, inputs: Inputs, device: str, gradients: bool) -> None:
    args, kwargs = moved((inputs.args, inputs.kwargs), device)
    cast = torch.autocast(device, dtype=inputs.autocast) if inputs.autocast else contextlib.nullcontext()
    with torch.set_grad_enabled(gradients), cast:
        result = module(*args, **kwargs)
        scalar = _scalar_of(result) if gradients else None
    if isinstance(scalar, torch.Tensor):
        scalar.backward()


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Within the block, nothing is dropped at random, and running statistics stay."""
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, was in training.items():
            part.training = was


def compare_module(inputs: Inputs, gradients: bool) -> dict:
    """Call the module on both devices, in evaluation mode, and compare its layers, then its parameters' gradients."""
    module = getattr(inputs.module, "_orig_mod", inputs.module)  # what torch.compile wraps
    report: dict = {
        "module": type(module).__name__,
        "layers": [],
        "gradients": [],
        "error": inputs.error,
        "first": None,
    }
    if inputs.error:
        return report
    on_cpu = copy.deepcopy(module).cpu()
    for part in (on_cpu, module):
        part.zero_grad(set_to_none=True)
    layers = Layers(on_cpu)
    layers.tolerance = _coarsest(on_cpu, inputs)
    with _evaluating(on_cpu), layers.hooked(on_cpu, layers.keep):
        _run(on_cpu, inputs, "cpu", gradients)
    with _evaluating(module), layers.hooked(module, layers.compare):
        _run(module, inputs, "tpu", gradients)
    report["layers"], report["left_out"] = layers.rows, layers.left_out
    if gradients:
        expected = {name: p.grad for name, p in on_cpu.named_parameters() if p.grad is not None}
        actual = {name: p.grad.cpu() for name, p in module.named_parameters() if p.grad is not None}
        # a gradient that is zero but for rounding, such as that of attention's key bias, is measured by the others
        least = _LEAST_GRADIENT * max((g.abs().max().item() for g in expected.values() if g.numel()), default=0.0)
        report["gradients"] = [
            compared(name, "gradient", [actual[name]] if name in actual else [], [gradient], layers.tolerance, least)
            for name, gradient in expected.items()
        ]
    rows = [*layers.rows, *report["gradients"]]
    report["first"] = next((row for row in rows if not row["agrees"]), None)
    return report


def compare_function(function: Callable, args: tuple, kwargs: dict, result: Any) -> dict:
    """Call a function with the same arguments on the CPU and compare its results."""
    expected = tensors_of(function(*moved(args, "cpu"), **moved(kwargs, "cpu")))
    actual = [tensor.detach().cpu() for tensor in tensors_of(result)]
    name = getattr(function, "__name__", type(function).__name__)
    row = compared("result", name, actual, [tensor.detach() for tensor in expected])
    return {
        "module": name,
        "layers": [row],
        "gradients": [],
        "error": "",
        "left_out": 0,
        "first": None if row["agrees"] else row,
    }
